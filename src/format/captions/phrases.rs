//! Where sentences, clauses and phrases end: the places at which a caption or a line may break.

/// Whether a sentence ends with `text`.
pub fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end_matches(['"', '\'', '”', '’', '»', ')', '」', '』', '）']);
    text.ends_with(['.', '!', '?', '…', '。', '！', '？', '؟', '।', '։', '។', '။'])
}

/// Whether a clause ends with `text`.
pub fn ends_clause(text: &str) -> bool {
    let closed = text.trim_end_matches(['"', '\'', '”', '’', '»', ')', '」', '』', '）']);
    ends_sentence(text) || closed.ends_with([',', ';', ':', '—', '–', '、', '，', '；', '：', '،', '؛'])
}

/// English words that should stay on one line with the next word (Timed Text Style Guide §4).
pub fn leans_on_next(text: &str) -> bool {
    matches!(
        text.to_lowercase().as_str(),
        "a" | "an"
            | "the"
            | "my"
            | "your"
            | "his"
            | "her"
            | "its"
            | "our"
            | "their"
            | "this"
            | "these"
            | "those"
            | "of"
            | "to"
            | "in"
            | "on"
            | "at"
            | "by"
            | "for"
            | "from"
            | "with"
            | "into"
            | "and"
            | "or"
            | "but"
            | "nor"
            | "that"
            | "who"
            | "which"
            | "as"
            | "than"
            | "if"
            | "when"
            | "because"
            | "i"
            | "he"
            | "she"
            | "we"
            | "they"
            | "is"
            | "are"
            | "was"
            | "were"
            | "be"
            | "been"
            | "has"
            | "have"
            | "had"
            | "will"
            | "would"
            | "can"
            | "could"
            | "not"
            | "very"
            | "mr."
            | "mrs."
            | "ms."
            | "dr."
    )
}
