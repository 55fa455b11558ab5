//! Sentences in pieces, for a voice whose synthesis takes a good part of real time: while one piece plays, the
//! next is synthesized.

/// Letters and digits of a piece, about a second of speech. A shorter piece would end before the next is ready,
/// and it sounds hurried.
const LETTERS_MIN: usize = 14;

/// A longer piece is cut between words as well: its first sound would come so late that listeners give up. Pipecat's
/// services wait 3 s for sound.
const LETTERS_MAX: usize = 60;
/// Words before which speakers take a breath, the better places first.
const BREATHS: [&[&str]; 2] = [
    &[
        "and", "but", "or", "nor", "so", "because", "although", "though", "while", "when", "where", "if",
        "unless", "until", "since", "which", "who", "that", "then", "than",
    ],
    &[
        "in", "on", "at", "by", "for", "from", "with", "without", "about", "before", "after", "between",
        "through", "into", "beside", "over", "under", "during", "as", "to",
    ],
];

/// Cuts `sentence` where one pauses, and long stretches without a pause between words.
pub fn of(sentence: &str) -> Vec<&str> {
    at_pauses(sentence).into_iter().flat_map(at_words).collect()
}

/// Cuts `piece` between words until no part is too long, as far as it goes.
fn at_words(piece: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = piece;
    while let Some(cut) = breath(rest) {
        let (part, others) = rest.split_at(cut);
        parts.push(part.trim_end());
        rest = others;
    }
    parts.push(rest);
    parts
}

/// Where to take a breath in a piece that is too long: in bytes, before a word. Only between words of letters, so that
/// numbers stay whole.
fn breath(piece: &str) -> Option<usize> {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count();
    let all = letters(piece);
    if all <= LETTERS_MAX {
        return None;
    }
    let ends_with_letter = |text: &str| text.ends_with(char::is_alphabetic);
    let starts = piece.char_indices().zip(piece.chars().skip(1)).filter_map(|((at, c), next)| {
        (c.is_whitespace() && next.is_alphabetic()).then_some(at + c.len_utf8())
    });
    let places = starts.filter_map(|at| {
        let (before, after) = piece.split_at(at);
        let so_far = letters(before);
        let is_room = (LETTERS_MIN..=LETTERS_MAX).contains(&so_far) && all - so_far >= LETTERS_MIN;
        if !is_room || !ends_with_letter(before.trim_end()) {
            return None;
        }
        let word = after.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_lowercase();
        let rank = BREATHS.iter().position(|words| words.contains(&&*word)).unwrap_or(BREATHS.len());
        Some((BREATHS.len() - rank, at))
    });
    places.max().map(|(_, at)| at)
}

/// Cuts `sentence` at pauses. Text after a cut begins with a letter, so that `May 5, 2026` stays whole.
fn at_pauses(sentence: &str) -> Vec<&str> {
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
            (
                "The office that we moved into last year stands right beside the old railway station and has room for \
                 everyone who works with us on most days of the week.",
                &[
                    "The office that we moved into last year stands right",
                    "beside the old railway station and has room for everyone",
                    "who works with us on most days of the week.",
                ],
            ),
            ("", &[""]),
        ] {
            assert_eq!(of(sentence), pieces, "{sentence}");
        }
    }

    #[test]
    fn numbers_stay_whole_and_one_long_word_too() {
        let number = "1 ".repeat(80);
        assert_eq!(of(&number), [number.as_str()]);
        let word = "a".repeat(200);
        assert_eq!(of(&word), [word.as_str()]);
        let plain = "word ".repeat(60);
        assert!(of(&plain).iter().all(|piece| piece.len() <= 80), "{:?}", of(&plain));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(sentence in "[a-zé0-9 ,;:—.]{0,120}") {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&of(&sentence).join(" ")), words(&sentence));
        }
    }
}
