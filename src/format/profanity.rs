//! Swear words of English, masked.

use super::word::Word;

/// The text shown in place of one.
pub const MASK: &str = "****";

/// Whole words, without those that are more often names or have a decent sense.
const WORDS: &[&str] = &[
    "arse",
    "arsehole",
    "ass",
    "asses",
    "asshat",
    "asshole",
    "assholes",
    "bastard",
    "bastards",
    "bollocks",
    "cocksucker",
    "cunt",
    "cunts",
    "dickhead",
    "dickheads",
    "jackass",
    "twat",
    "twats",
    "wanker",
    "wankers",
];

/// A word that begins with one of these is one, whatever its ending: `fucking`, `shitty`, `bitches`.
const STEMS: &[&str] =
    &["bitch", "bullshit", "faggot", "fuck", "goddamn", "horseshit", "motherfuck", "nigger", "shit", "slut"];

/// Words that begin with a stem and are decent.
const DECENT: &[&str] = &["shitake", "shittah", "shittim"];

/// Masks them, as `word` and as written; punctuation stays.
pub fn mask(words: &mut [Word]) {
    for word in words.iter_mut().filter(|word| is_profane(&word.bare)) {
        let (open, _, close) = word.parts();
        word.written = format!("{open}{MASK}{close}");
        MASK.clone_into(&mut word.bare);
    }
}

fn is_profane(bare: &str) -> bool {
    bare.split('-').any(|part| {
        let part = part.strip_suffix("'s").or_else(|| part.strip_suffix("’s")).unwrap_or(part);
        WORDS.contains(&part) || (STEMS.iter().any(|stem| part.starts_with(stem)) && !DECENT.contains(&part))
    })
}
