//! Words by which a listener signals attention. English. Pure.

/// Whether `text` has no other words than such.
pub fn is_backchannel(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "mm", "mmm", "mhm", "hm", "hmm", "uh", "huh", "um", "ah", "oh", "ok", "okay", "yeah", "yes", "yep",
        "right", "sure", "i", "see", "aha", "got", "it", "alright", "you", "thank",
    ];
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.all(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_is_told_from_an_answer() {
        for text in ["Mhm.", "Mm-hmm", "Uh-huh.", "Yeah, right.", "I see.", "Okay, got it", ""] {
            assert!(is_backchannel(text), "{text}");
        }
        for text in ["No.", "Wait.", "Yeah, but where?", "I see it differently."] {
            assert!(!is_backchannel(text), "{text}");
        }
    }
}
