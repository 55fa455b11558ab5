//! Filler words of English.
//!
//! Where they are not asked for, `uh` and `um` are left out, and only these; where they are, each has
//! one spelling however long it was drawn out.

use super::word::{Word, parts, without};

/// Without `uh` and `um`.
pub fn strip(words: Vec<Word>) -> Vec<Word> {
    without(words, |word| matches!(spelling(&word.bare), Some("uh" | "um")))
}

/// Each filler word in its one spelling.
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

/// Those that the wire format knows, and what models write for them.
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
