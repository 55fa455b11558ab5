//! Sentences in pieces, for a voice whose synthesis takes a good part of real time: while one piece plays, the
//! next is synthesized.

/// Letters and digits of a piece, about a second of speech. A shorter piece would end before the next is ready,
/// and it sounds hurried.
const LETTERS_MIN: usize = 14;

/// Cuts `sentence` at pauses. Text after a cut begins with a letter, so that `May 5, 2026` stays whole.
pub fn of(sentence: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = sentence;
    let mut letters = 0;
    let mut characters = sentence.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        letters += usize::from(c.is_alphanumeric());
        let is_pause = matches!(c, ',' | ';' | ':' | '—' | '–');
        if !is_pause
            || letters < LETTERS_MIN
            || !characters.peek().is_some_and(|(_, next)| next.is_whitespace())
        {
            continue;
        }
        let after = sentence[at + c.len_utf8()..].trim_start();
        let left = after.chars().filter(|c| c.is_alphanumeric()).count();
        if left < LETTERS_MIN || !after.starts_with(char::is_alphabetic) {
            continue;
        }
        pieces.push(rest[..rest.len() - after.len()].trim_end());
        (rest, letters) = (after, 0);
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sentences_are_cut_where_one_pauses_and_nowhere_else() {
        for (sentence, pieces) in [
            ("We are open from nine to five.", &["We are open from nine to five."][..]),
            (
                "And so, my fellow Americans, ask not what your country can do for you, ask what you can do.",
                &[
                    "And so, my fellow Americans,",
                    "ask not what your country can do for you,",
                    "ask what you can do.",
                ],
            ),
            ("The meeting on Friday, May 5, 2026 is off.", &["The meeting on Friday, May 5, 2026 is off."]),
            (
                "It costs about $1,000,000 at the most:no more.",
                &["It costs about $1,000,000 at the most:no more."],
            ),
            ("Nothing else was needed, was it?", &["Nothing else was needed, was it?"]),
            ("", &[""]),
        ] {
            assert_eq!(of(sentence), pieces, "{sentence}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(sentence in "[a-zé0-9 ,;:—.]{0,120}") {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&of(&sentence).join(" ")), words(&sentence));
        }
    }
}
