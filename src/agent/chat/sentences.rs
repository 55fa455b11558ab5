//! Sentences of an answer, as soon as each is whole: speech begins while the model still writes.

/// A first piece may end at a comma from this length on, in bytes: its sound begins earlier.
const CLAUSE_BYTES_MIN: usize = 24;
/// A shorter sentence is spoken with the next one.
const SENTENCE_BYTES_MIN: usize = 12;
/// Models write their reasoning between these; it is not for callers.
const REASONING: (&str, &str) = ("<think>", "</think>");

#[derive(Default)]
pub struct Sentences {
    text: String,
    /// Bytes of text so far.
    pub bytes: usize,
    has_begun: bool,
}

impl Sentences {
    /// Takes a piece of text and returns the sentences that it completes.
    pub fn take(&mut self, text: &str) -> Vec<String> {
        self.bytes += text.len();
        self.text.push_str(text);
        let mut sentences = Vec::new();
        if !self.skip_reasoning() {
            return sentences;
        }
        while let Some(end) = end_of_first(&self.text, !self.has_begun) {
            let rest = self.text.split_off(end);
            let sentence = std::mem::replace(&mut self.text, rest);
            self.add(&sentence, &mut sentences);
        }
        sentences
    }

    /// The last sentence, if there is one.
    pub fn finish(&mut self) -> Option<String> {
        let mut sentences = Vec::new();
        let text = std::mem::take(&mut self.text);
        if !text.starts_with(REASONING.0) {
            self.add(&text, &mut sentences);
        }
        sentences.pop()
    }

    fn add(&mut self, sentence: &str, sentences: &mut Vec<String>) {
        let spoken = spoken(sentence);
        if !spoken.is_empty() {
            self.has_begun = true;
            sentences.push(spoken);
        }
    }

    /// Drops finished reasoning; false while there may be more of it.
    fn skip_reasoning(&mut self) -> bool {
        let (begin, end) = REASONING;
        let text = self.text.trim_start();
        if text.starts_with(begin) {
            let Some(at) = self.text.find(end) else { return false };
            self.text.drain(..at + end.len());
            return true;
        }
        text.is_empty() || !begin.starts_with(text)
    }
}

/// The end of the first sentence of `text`, if something follows it; `3.5` ends none. `clause`: a clause will do.
fn end_of_first(text: &str, clause: bool) -> Option<usize> {
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        let is_end = c.is_whitespace()
            && (matches!(last, '.' | '!' | '?' | '…') && at >= SENTENCE_BYTES_MIN
                || clause && matches!(last, ',' | ';' | ':' | '–' | '—') && at >= CLAUSE_BYTES_MIN);
        // Some scripts have no spaces between sentences.
        if c == '\n' || is_end || (matches!(c, '。' | '！' | '？' | '।') && text.len() > at + c.len_utf8())
        {
            return Some(at + c.len_utf8());
        }
        last = c;
    }
    None
}

/// The sentence without markup, which no voice can say.
fn spoken(sentence: &str) -> String {
    let bare: String =
        sentence.trim().trim_start_matches(['#', '-', '*', '•', ' ']).replace(['*', '`', '_'], "");
    bare.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(parts: &[&str]) -> Vec<String> {
        let mut sentences = Sentences::default();
        let mut found: Vec<String> = parts.iter().flat_map(|part| sentences.take(part)).collect();
        found.extend(sentences.finish());
        found
    }

    #[test]
    fn sentences_come_as_soon_as_they_are_whole() {
        let mut sentences = Sentences::default();
        let mut found = Vec::new();
        for part in ["We open", " at 9.", "30 every", " day. And", " close at five.\nBye"] {
            found.extend(sentences.take(part));
        }
        assert_eq!(found, ["We open at 9.30 every day.", "And close at five."]);
        assert_eq!(sentences.finish().as_deref(), Some("Bye"));
        assert_eq!(
            all(&["九時に開きます。五時", "に閉まります。"]),
            ["九時に開きます。", "五時に閉まります。"]
        );
    }

    #[test]
    fn the_first_piece_of_an_answer_may_be_a_clause() {
        let long = "From Monday to Friday we open at nine, at weekends at ten, and we close at five.";
        assert_eq!(
            all(&[long]),
            ["From Monday to Friday we open at nine,", "at weekends at ten, and we close at five."]
        );
        assert_eq!(all(&["Yes, we do. Come by, if you like."]), ["Yes, we do. Come by, if you like."]);
    }

    #[test]
    fn markup_and_reasoning_are_not_spoken() {
        assert_eq!(all(&["<th", "ink>Hm. They ask. </think>", "\n**Yes**, `we` do."]), ["Yes, we do."]);
        assert_eq!(all(&["<think>I never end"]), Vec::<String>::new());
        assert_eq!(all(&["- One thing\n- Another"]), ["One thing", "Another"]);
    }
}
