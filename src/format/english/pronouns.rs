//! The pronoun `one`, which is not a number, even if every number is to be in digits.

use super::number_words;
use super::sequences::NUMBERED;
use super::spoken::{Joint, Spoken};

/// Before these `one` is the pronoun.
const BEFORE: [&str; 22] = [
    "this", "that", "the", "which", "each", "every", "no", "any", "another", "some", "someone", "last",
    "next", "only", "good", "bad", "big", "small", "new", "old", "other", "right",
];
/// Words that may follow the pronoun, and don't begin a countable noun.
const AFTER: [&str; 114] = [
    "a", "about", "above", "after", "again", "against", "all", "along", "also", "always", "among", "an",
    "and", "another", "are", "around", "as", "at", "because", "been", "before", "behind", "below", "beside",
    "between", "but", "by", "can", "cannot", "could", "did", "do", "does", "down", "during", "either",
    "ever", "felt", "for", "from", "had", "has", "have", "he", "here", "how", "i", "if", "in", "inside",
    "into", "is", "it", "just", "knew", "known", "left", "like", "may", "might", "must", "my", "myself",
    "near", "needed", "never", "not", "now", "of", "off", "often", "on", "open", "or", "out", "over", "said",
    "saw", "shall", "she", "should", "so", "than", "that", "the", "then", "there", "these", "they", "those",
    "though", "thought", "to", "today", "together", "tomorrow", "tonight", "too", "took", "under", "until",
    "wanted", "was", "we", "were", "when", "who", "whom", "whose", "will", "with", "without", "would", "you",
];
/// With these `one` is a turn of speech: `one day we will see`.
const TURNS: [&str; 8] = ["day", "hand", "last", "moment", "more", "side", "thing", "way"];
/// Between two numbers.
const BETWEEN: [&str; 11] =
    ["and", "by", "equals", "in", "minus", "or", "over", "plus", "point", "through", "to"];
/// The most words that describe the pronoun: `one very thick one`.
const DESCRIBING: usize = 3;

/// The distance to the other thing: `from one language to another`.
const OTHER_REACH: usize = 5;

/// Whether the atom at `at` is the pronoun.
pub fn is_pronoun(spoken: &Spoken<'_>, at: usize) -> bool {
    if spoken.atom(at) != "one" {
        return false;
    }
    let (before, next) = (spoken.before(at), spoken.open(at + 1));
    let paired = |between: &str, other: &str| other == "one" && matches!(between, "by" | "on" | "to");
    let larger = |text: &str| text == "hundred" || number_words::scale(text).is_some();
    let by_one = (paired(next, spoken.open(at + 2)) && !larger(spoken.open(at + 3)))
        || (at > 1 && paired(before, spoken.before(at - 1)));
    if BEFORE.contains(&before) || by_one {
        return true;
    }
    if is_named(before) {
        return false;
    }
    // `the cheap one and two others`.
    let described =
        at > 1 && matches!(spoken.before(at - 1), "a" | "an" | "the") && !number_words::is_number(before);
    if (described && !before.is_empty()) || is_said_again(spoken, at) {
        return true;
    }
    if has_neighbour(spoken, at) {
        return false;
    }
    // A noun after `one` is singular, so a word that ends in `s` is a verb: `one knows`.
    let verb = next.len() > 3 && next.ends_with('s') && !next.ends_with("ss") && !next.ends_with("us");
    let verb = verb || next.ends_with("n't") || next.ends_with("'d");
    let following = |count: usize| {
        (at + 2..at + 2 + count).map_while(|place| Some(spoken.open(place)).filter(|word| !word.is_empty()))
    };
    let described = following(DESCRIBING).any(|word| matches!(word, "one" | "ones"));
    let one_of_two = following(OTHER_REACH).any(|word| matches!(word, "another" | "other"));
    next.is_empty() || verb || described || one_of_two || TURNS.contains(&next) || is_function_word(next)
}

/// Whether `text` can stand after the pronoun, or after a number that is a name.
pub fn is_function_word(text: &str) -> bool {
    AFTER.contains(&text)
}

/// `one large one and two small ones`: the second.
fn is_said_again(spoken: &Spoken<'_>, at: usize) -> bool {
    let described = !BETWEEN.contains(&spoken.before(at)) && !is_function_word(spoken.before(at));
    described
        && (1..=DESCRIBING)
            .take_while(|back| at >= *back && spoken.joint(at + 1 - back) == Joint::Open)
            .skip(1)
            .any(|back| spoken.atom(at - back) == "one")
}

/// Whether a number by itself follows `before`: `chapter one`.
pub fn is_named(before: &str) -> bool {
    NUMBERED.contains(&before) || matches!(before, "floor" | "number" | "question" | "step")
}

/// Whether a number is next to it, with at most a comma or a word between the two.
fn has_neighbour(spoken: &Spoken<'_>, at: usize) -> bool {
    let number =
        |text: &str| number_words::is_number(text) || number_words::is_literal(text) || text == "zero";
    let after = |place: usize, joint| number(spoken.after(place, joint));
    let beside_before = spoken.joint(at) <= Joint::Comma && at > 0 && number(spoken.atom(at - 1));
    let between_before = BETWEEN.contains(&spoken.before(at)) && at > 1 && number(spoken.atom(at - 2));
    let between_after = BETWEEN.contains(&spoken.open(at + 1)) && after(at + 2, Joint::Open);
    beside_before || between_before || between_after || after(at + 1, Joint::Comma)
}
