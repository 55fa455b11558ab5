//! Spoken punctuation of English: `comma` becomes `,`.
//!
//! A command replaces the model's own punctuation around it. After an article or before `of` the words are
//! ordinary ones: `a period of time`.

use super::word::{Gap, Word};

enum Command {
    Mark(&'static str),
    Break(Gap),
}

const BEFORE_NOUNS: [&str; 12] =
    ["a", "an", "the", "this", "that", "these", "each", "every", "his", "her", "my", "your"];

/// `words` with its commands carried out.
pub fn dictate(words: Vec<Word>) -> Vec<Word> {
    let mut output: Vec<Word> = Vec::with_capacity(words.len());
    let mut rest = words.as_slice();
    let mut gap = None;
    let mut capital = None;
    while let Some((first, tail)) = rest.split_first() {
        let Some((command, length)) = command(rest, output.last()) else {
            let mut word = first.clone();
            if let Some(dictated) = gap.take() {
                word.gap = dictated;
            }
            match capital.take() {
                Some(true) => word.capitalise(),
                Some(false) if word.bare != "i" && !word.bare.starts_with("i'") => word.decapitalise(),
                _ => {}
            }
            output.push(word);
            rest = tail;
            continue;
        };
        let stopped = output.last().is_some_and(Word::is_stop);
        match command {
            Command::Mark(mark) => {
                if let Some(last) = output.last_mut() {
                    let kept = last.written.trim_end_matches([',', '.', ';', ':', '!', '?']).len();
                    last.written.truncate(kept);
                    last.written.push_str(mark);
                    capital = match mark {
                        "." | "?" | "!" => Some(true),
                        // The capital began a sentence, which now goes on.
                        _ if stopped => Some(false),
                        _ => None,
                    };
                }
            }
            Command::Break(dictated) => {
                gap = Some(dictated);
                if dictated == Gap::Paragraph {
                    capital = Some(true);
                }
            }
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    output
}

/// The command that `words` begin with, and the number of its words.
fn command(words: &[Word], previous: Option<&Word>) -> Option<(Command, usize)> {
    let bare = |index: usize| words.get(index).map_or("", |word| word.bare.as_str());
    let joined = words.first().is_some_and(|word| !word.is_stop());
    let (command, length) = match (bare(0), bare(1)) {
        ("new", "line") if joined => (Command::Break(Gap::Line), 2),
        ("newline", _) => (Command::Break(Gap::Line), 1),
        ("new", "paragraph") if joined => (Command::Break(Gap::Paragraph), 2),
        ("question", "mark") if joined => (Command::Mark("?"), 2),
        ("exclamation", "mark" | "point") if joined => (Command::Mark("!"), 2),
        ("period", _) | ("full", "stop") => (Command::Mark("."), if bare(0) == "full" { 2 } else { 1 }),
        ("comma", _) => (Command::Mark(","), 1),
        ("colon", _) => (Command::Mark(":"), 1),
        ("semicolon", _) => (Command::Mark(";"), 1),
        _ => return None,
    };
    let noun = previous.is_some_and(|word| !word.is_stop() && BEFORE_NOUNS.contains(&word.bare.as_str()));
    let marks_nothing = previous.is_none() && matches!(command, Command::Mark(_));
    (!noun && !marks_nothing && bare(length) != "of").then_some((command, length))
}
