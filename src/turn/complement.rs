//! Sentences that still want an object, a verb or a clause, by the grammar of their last words. English. Pure.

/// Verbs that need an object or a clause after them, in forms that no passive ends with ("it was sent").
const VERBS: &[&str] = &[
    "asking",
    "become",
    "becomes",
    "being",
    "bring",
    "bringing",
    "brings",
    "buy",
    "contain",
    "contains",
    "discuss",
    "expect",
    "get",
    "gets",
    "getting",
    "give",
    "gives",
    "giving",
    "having",
    "hoping",
    "keep",
    "keeps",
    "let",
    "lets",
    "make",
    "makes",
    "making",
    "mention",
    "provide",
    "put",
    "puts",
    "putting",
    "receive",
    "renew",
    "require",
    "requires",
    "seem",
    "seems",
    "send",
    "sending",
    "sends",
    "tell",
    "telling",
    "tells",
    "trying",
    "using",
    "wanted",
    "wondering",
];
/// Other words that need one, whatever was before them.
const OTHERS: &[&str] = &[
    "able",
    "according",
    "among",
    "another",
    "based",
    "beside",
    "concerning",
    "depending",
    "despite",
    "dr",
    "during",
    "each",
    "except",
    "mr",
    "mrs",
    "ms",
    "regarding",
    "several",
    "such",
    "supposed",
    "toward",
    "towards",
    "unable",
    "upon",
    "willing",
];
/// Verbs that need a second object: "can you tell me".
const GIVING: &[&str] = &["bring", "get", "give", "lend", "let", "offer", "send", "show", "tell"];
const RECEIVERS: &[&str] = &["me", "us", "him", "them"];
/// Auxiliaries are short only before the word that they belong to: "we've".
const SHORT: &[&str] = &["'d", "'ll", "'m", "'re", "'ve"];
/// Verbs of which questions and "there" begin.
const BE: &[&str] = &["is", "are", "was", "were"];
const PRONOUNS: &[&str] = &["i", "you", "he", "she", "it", "we", "they"];

/// Whether more has to follow.
pub(super) fn is_wanted(words: &[&str]) -> bool {
    let Some((last, before)) = words.split_last() else { return false };
    let previous = before.last().copied().unwrap_or_default();
    if OTHERS.contains(last) || SHORT.iter().any(|short| last.ends_with(short)) {
        return true;
    }
    if previous == "there" && BE.contains(last) {
        return true;
    }
    // "What do I need to bring?" and "the form that you give" have the object before the verb.
    if has_object(before) {
        return false;
    }
    VERBS.contains(last)
        || (GIVING.contains(&previous) && RECEIVERS.contains(last))
        || (*last == "know" && previous == "to")
}

fn has_object(words: &[&str]) -> bool {
    let asks = |word: &&str| matches!(*word, "what" | "which" | "who" | "whom" | "whatever");
    words.iter().any(asks)
        || words.windows(2).any(|two| match *two {
            ["how", counted] => matches!(counted, "much" | "many"),
            ["that", subject] => PRONOUNS.contains(&subject),
            _ => false,
        })
}

/// Whether a clause is open that begins with "if" or the like and needs another one: "when I press the button".
pub(super) fn is_subordinate(words: &[&str], text: &str) -> bool {
    let begins = match words {
        ["if" | "unless" | "although" | "though", ..] => true,
        ["when" | "while", subject, ..] => {
            PRONOUNS.contains(subject) || matches!(*subject, "the" | "my" | "your" | "our" | "somebody")
        }
        _ => false,
    };
    begins && !text.contains([',', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn an_object_a_clause_or_a_verb_is_wanted() {
        for text in [
            "can you tell me",
            "i was supposed",
            "could you bring",
            "i want to know",
            "we've",
            "there was",
            "i'm trying",
            "please send them",
            "a letter from mr",
        ] {
            assert!(is_wanted(&words(text)), "{text}");
        }
    }

    #[test]
    fn an_object_that_comes_first_is_enough() {
        for text in [
            "what do i need to bring",
            "which one did you get",
            "the parcel that you send",
            "how many can i buy",
            "can you help me",
            "you know",
            "is anybody there",
            "it was sent",
            "where is the exit",
        ] {
            assert!(!is_wanted(&words(text)), "{text}");
        }
    }

    #[test]
    fn a_clause_with_if_needs_another() {
        for text in ["if i come by car", "when i press the button."] {
            assert!(is_subordinate(&words(text), text), "{text}");
        }
        for text in ["when does it open?", "if i cancel, do i pay?", "when the train leaves, i am there"] {
            assert!(!is_subordinate(&words(text), text), "{text}");
        }
    }
}
