//! Filler words of English.
//!
//! By default `uh` and `um`, and only these, are left out. If a client asks for fillers, each gets one spelling,
//! however long it was drawn out.

use super::word::{Word, parts, without};

/// Removes `uh` and `um`.
pub fn strip(words: Vec<Word>) -> Vec<Word> {
    without(words, |word| matches!(spelling(&word.bare), Some("uh" | "um")))
}

/// Gives each filler word its one spelling.
pub fn spell(words: &mut [Word]) {
    for word in words {
        let Some(spelling) = spelling(&word.bare).filter(|spelling| *spelling != word.bare) else { continue };
        let (open, _, close) = parts(&word.written);
        let (written, capital) = (format!("{open}{spelling}{close}"), word.is_capitalised());
        word.write(written);
        if capital {
            word.capitalise();
        }
    }
}

/// The fillers of the wire format, and the spellings of models for them.
fn spelling(bare: &str) -> Option<&'static str> {
    let drawn = |start: char, rest: char| {
        bare.strip_prefix(start).is_some_and(|tail| !tail.is_empty() && tail.chars().all(|c| c == rest))
    };
    match bare {
        "uh-huh" | "uhuh" | "uhhuh" => Some("uh-huh"),
        "mhmm" | "mhm" | "mm-hmm" | "mmhmm" | "mm-hm" | "mmhm" => Some("mhmm"),
        "mm-mm" | "mmm-mmm" => Some("mm-mm"),
        "uh-uh" => Some("uh-uh"),
        "nuh-uh" | "nuhuh" => Some("nuh-uh"),
        _ if drawn('u', 'h') => Some("uh"),
        _ if drawn('u', 'm') => Some("um"),
        _ => None,
    }
}
