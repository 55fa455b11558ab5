//! English text to Kokoro's phonemes: by a dictionary (misaki), for unknown words by the letter-to-sound rules
//! of a program on this machine, and otherwise letter by letter.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use misaki_rs::fallback::FallbackError;
use misaki_rs::{Fallback, G2P, Language};

use super::program::{ask, on_path};

/// Unknown words whose phonemes are cached.
const WORDS_MAX: usize = 1000;
const LETTERS_MAX: usize = 40;

pub struct Phonemes(G2P);

impl Phonemes {
    pub fn new(language: Language) -> Self {
        Self(G2P::with_fallback(language, Some(Box::new(Unknown::new()))))
    }

    pub fn of(&self, text: &str) -> Option<String> {
        let (phonemes, _) = self
            .0
            .g2p(text)
            .inspect_err(|error| tracing::warn!(%error, "a sentence has no phonemes"))
            .ok()?;
        Some(phonemes)
    }
}

/// Phonemes of words that the dictionary lacks.
struct Unknown {
    flite: Option<PathBuf>,
    espeak: Option<PathBuf>,
    known: Mutex<HashMap<String, String>>,
}

impl Unknown {
    fn new() -> Self {
        Self { flite: on_path("flite"), espeak: on_path("espeak-ng"), known: Mutex::default() }
    }

    fn find(&self, word: &str) -> String {
        let by_flite = || {
            let arguments = ["-voice", "slt", "-ps", "-f", "/dev/stdin", "-o", "none"];
            from_arpabet(&ask(self.flite.as_deref()?, &arguments, word)?)
        };
        let by_espeak = || {
            let arguments = ["-q", "--ipa", "-v", "en-us", "--stdin"];
            from_ipa(&ask(self.espeak.as_deref()?, &arguments, word)?)
        };
        // Both programs would only spell a word in capitals.
        let is_readable = word.chars().count() <= LETTERS_MAX && word.contains(char::is_lowercase);
        let read = is_readable.then(|| by_flite().or_else(by_espeak)).flatten();
        read.unwrap_or_else(|| spelled(word))
    }
}

impl Fallback for Unknown {
    fn phonemize(&self, word: &str) -> Result<String, FallbackError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(phonemes) = known().get(word) {
            return Ok(phonemes.clone());
        }
        let phonemes = self.find(word);
        let mut known = known();
        if known.len() >= WORDS_MAX {
            known.clear();
        }
        known.insert(word.to_owned(), phonemes.clone());
        Ok(phonemes)
    }
}

/// Converts flite's phones (CMU's ARPAbet in lower case).
const PHONES: [(&str, &str); 46] = [
    ("aa", "ɑ"),
    ("ae", "æ"),
    ("ah", "ʌ"),
    ("ao", "ɔ"),
    ("aw", "W"),
    ("ax", "ə"),
    ("axr", "əɹ"),
    ("ay", "I"),
    ("b", "b"),
    ("ch", "ʧ"),
    ("d", "d"),
    ("dh", "ð"),
    ("dx", "T"),
    ("eh", "ɛ"),
    ("el", "ᵊl"),
    ("em", "əm"),
    ("en", "ᵊn"),
    ("er", "ɜɹ"),
    ("ey", "A"),
    ("f", "f"),
    ("g", "ɡ"),
    ("hh", "h"),
    ("hv", "h"),
    ("ih", "ɪ"),
    ("iy", "i"),
    ("jh", "ʤ"),
    ("k", "k"),
    ("l", "l"),
    ("m", "m"),
    ("n", "n"),
    ("ng", "ŋ"),
    ("ow", "O"),
    ("oy", "Y"),
    ("p", "p"),
    ("r", "ɹ"),
    ("s", "s"),
    ("sh", "ʃ"),
    ("t", "t"),
    ("th", "θ"),
    ("uh", "ʊ"),
    ("uw", "u"),
    ("v", "v"),
    ("w", "w"),
    ("y", "j"),
    ("z", "z"),
    ("zh", "ʒ"),
];

/// Puts the stress on the first full vowel, because flite prints none.
fn from_arpabet(phones: &str) -> Option<String> {
    let mut word = String::new();
    for phone in phones.split_whitespace().filter(|phone| *phone != "pau") {
        let (_, symbol) = PHONES.iter().find(|(name, _)| *name == phone)?;
        let is_vowel = phone.starts_with(['a', 'e', 'i', 'o', 'u']) && !symbol.starts_with(['ə', 'ᵊ']);
        if is_vowel && !word.contains('ˈ') {
            word.push('ˈ');
        }
        word.push_str(symbol);
    }
    (!word.is_empty()).then_some(word)
}

/// Replacements for espeak-ng's IPA, applied in this order.
const IPA: [(&str, &str); 23] = [
    ("eɪ", "A"),
    ("aɪ", "I"),
    ("aʊ", "W"),
    ("oʊ", "O"),
    ("əʊ", "O"),
    ("ɔɪ", "Y"),
    ("tʃ", "ʧ"),
    ("dʒ", "ʤ"),
    ("ɜː", "ɜɹ"),
    ("ɚ", "əɹ"),
    ("l\u{329}", "ᵊl"),
    ("n\u{329}", "ᵊn"),
    ("\u{329}", ""),
    ("ː", ""),
    ("e", "ɛ"),
    ("o", "O"),
    ("a", "æ"),
    ("ɾ", "T"),
    ("ʔ", "t"),
    ("r", "ɹ"),
    ("g", "ɡ"),
    ("x", "k"),
    ("ɬ", "l"),
];

fn from_ipa(ipa: &str) -> Option<String> {
    let word: String = ipa.split_whitespace().collect();
    let word = IPA.iter().fold(word, |word, (from, to)| word.replace(from, to));
    (!word.is_empty()).then_some(word)
}

/// The names of the letters from a to z, and of the digits.
const LETTERS: [&str; 26] = [
    "ˈA",
    "bˈi",
    "sˈi",
    "dˈi",
    "ˈi",
    "ˈɛf",
    "ʤˈi",
    "ˈAʧ",
    "ˈI",
    "ʤˈA",
    "kˈA",
    "ˈɛl",
    "ˈɛm",
    "ˈɛn",
    "ˈO",
    "pˈi",
    "kjˈu",
    "ˈɑɹ",
    "ˈɛs",
    "tˈi",
    "jˈu",
    "vˈi",
    "dˈʌbᵊlju",
    "ˈɛks",
    "wˈI",
    "zˈi",
];
const DIGITS: [&str; 10] = ["zˈɪɹO", "wˈʌn", "tˈu", "θɹˈi", "fˈɔɹ", "fˈIv", "sˈɪks", "sˈɛvən", "ˈAt", "nˈIn"];

/// Spells a word letter by letter; other characters are silent.
fn spelled(word: &str) -> String {
    let name = |c: char| match c.to_ascii_lowercase() {
        c @ 'a'..='z' => LETTERS.get(c as usize - 'a' as usize),
        c @ '0'..='9' => DIGITS.get(c as usize - '0' as usize),
        _ => None,
    };
    word.chars().take(LETTERS_MAX).filter_map(name).copied().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_no_dictionary_has_are_read_or_spelled() {
        assert_eq!(from_arpabet("pau ow k ax f er pau \n").as_deref(), Some("ˈOkəfɜɹ"));
        assert_eq!(from_arpabet("pau pau"), None);
        assert_eq!(from_arpabet("xx"), None);
        assert_eq!(from_ipa("ˈɑːkæfɚ\n").as_deref(), Some("ˈɑkæfəɹ"));
        assert_eq!(from_ipa(" \n"), None);
        assert_eq!(spelled("X2é"), "ˈɛks tˈu");
        let without_programs = Unknown { flite: None, espeak: None, known: Mutex::default() };
        assert_eq!(without_programs.phonemize("Okafor").ok().as_deref(), Some("ˈO kˈA ˈA ˈɛf ˈO ˈɑɹ"));
    }

    #[test]
    fn no_word_is_left_out() {
        let phonemes = Phonemes::new(Language::EnglishUS);
        for text in ["Dr. Okafor sees Mrs. Qzxwv at 9:30.", "It costs $49.99 — by the WXQZ.", ""] {
            let found = phonemes.of(text).expect("phonemes");
            assert!(!found.contains('❓'), "{text}: {found}");
        }
        // Characters without a sound are skipped.
        assert!(phonemes.of("«naïve» 中文 ❤ \u{0} x²").is_some());
    }
}
