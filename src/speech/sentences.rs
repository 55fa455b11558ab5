//! Text that arrives in parts, cut into sentences as soon as each is whole.
//!
//! A sentence is spoken as one, so a cut in the wrong place is heard as a pause, and a late one as a delay.

/// A longer sentence is cut between words: its speech would take long to begin.
const CHARACTERS_MAX: usize = 250;
/// A full stop after one of these ends no sentence.
const ABBREVIATIONS: [&str; 21] = [
    "mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "mt", "vs", "etc", "inc", "ltd", "co", "fig",
    "approx", "dept", "est", "e.g", "i.e", "a.k.a",
];

/// Collects text, and gives it out by the sentence.
#[derive(Debug, Default)]
pub struct Sentences {
    text: String,
}

impl Sentences {
    /// Adds text, which need not end with a word.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Takes the next whole sentence. Its end shows when something follows it, be it only a space.
    pub fn whole(&mut self) -> Option<String> {
        loop {
            let end = end_of_first(&self.text).or_else(|| forced_end(&self.text))?;
            let sentence = self.take(end);
            if !sentence.is_empty() {
                return Some(sentence);
            }
        }
    }

    /// Takes the next sentence, the last one whole or not.
    pub fn rest(&mut self) -> Option<String> {
        self.whole().or_else(|| Some(self.take(self.text.len())).filter(|rest| !rest.is_empty()))
    }

    pub fn clear(&mut self) {
        self.text.clear();
    }

    fn take(&mut self, end: usize) -> String {
        let rest = self.text.split_off(end);
        std::mem::replace(&mut self.text, rest).trim().to_owned()
    }
}

/// Where the first sentence ends, in bytes.
fn end_of_first(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if c == '\n' && !text[..at].trim().is_empty() {
            return Some(at + 1);
        }
        // Chinese and Japanese have no space after a full stop.
        if matches!(c, '。' | '！' | '？') {
            return Some(at + c.len_utf8());
        }
        if !matches!(c, '.' | '!' | '?' | '…') {
            continue;
        }
        let mut end = at + c.len_utf8();
        while let Some((next, closing)) = characters
            .next_if(|(_, c)| matches!(c, '.' | '!' | '?' | '…' | '"' | '\'' | ')' | ']' | '”' | '’'))
        {
            end = next + closing.len_utf8();
        }
        let is_followed = characters.peek().is_some_and(|(_, next)| next.is_whitespace());
        if is_followed && !(c == '.' && is_abbreviated(&text[..at])) {
            return Some(end);
        }
    }
    None
}

/// Whether a full stop after `before` belongs to its last word: a title, an initial, the number of a list.
fn is_abbreviated(before: &str) -> bool {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let mut characters = word.chars();
    match (characters.next(), characters.next()) {
        (Some(initial), None) => initial.is_uppercase() && initial != 'I',
        _ => ABBREVIATIONS.contains(&&*word.to_lowercase()),
    }
}

/// Where to cut text in which no sentence ends for too long.
fn forced_end(text: &str) -> Option<usize> {
    let (limit, _) = text.char_indices().nth(CHARACTERS_MAX)?;
    let head = &text[..limit];
    let last = |is: fn(char) -> bool| head.rfind(is).filter(|at| *at > 0);
    let cut = last(|c| matches!(c, ',' | ';' | ':')).map(|at| at + 1).or_else(|| last(char::is_whitespace));
    Some(cut.unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(parts: &[&str]) -> Vec<String> {
        let mut sentences = Sentences::default();
        let mut found = Vec::new();
        for part in parts {
            sentences.push(part);
            found.extend(std::iter::from_fn(|| sentences.whole()));
        }
        found.extend(std::iter::from_fn(|| sentences.rest()));
        found
    }

    #[test]
    fn text_is_cut_where_sentences_end() {
        for (text, expected) in [
            ("Hello. How are you? Fine!", &["Hello.", "How are you?", "Fine!"][..]),
            (
                "Dr. Smith pays $3.50 to J. R. Doe, i.e. me. Bye",
                &["Dr. Smith pays $3.50 to J. R. Doe, i.e. me.", "Bye"],
            ),
            ("He said \"No.\" Then… he left", &["He said \"No.\"", "Then…", "he left"]),
            ("One\n\nTwo\n", &["One", "Two"]),
            ("你好。再见", &["你好。", "再见"]),
            ("So did I. Really", &["So did I.", "Really"]),
            ("", &[]),
            (" \n ", &[]),
        ] {
            assert_eq!(all(&[text]), expected, "{text}");
        }
    }

    #[test]
    fn a_sentence_comes_as_soon_as_it_is_whole() {
        let mut sentences = Sentences::default();
        for word in ["It", " is", " 9.", "30", " now."] {
            sentences.push(word);
            assert_eq!(sentences.whole(), None, "{word}");
        }
        sentences.push(" ");
        assert_eq!(sentences.whole().as_deref(), Some("It is 9.30 now."));
        sentences.push("And la");
        sentences.clear();
        assert_eq!(sentences.rest(), None);
    }

    #[test]
    fn text_without_an_end_is_cut_between_words() {
        let text = "word ".repeat(200);
        let found = all(&[&text]);
        assert!(
            found.len() >= 4 && found.iter().all(|part| part.chars().count() <= CHARACTERS_MAX),
            "{found:?}"
        );
        assert_eq!(all(&["é".repeat(600).as_str()]).concat().chars().count(), 600);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(parts in prop::collection::vec("[a-zé0-9 .,!?\n\"…]{0,60}", 0..8)) {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let squeezed = |text: &str| words(text).concat();
            prop_assert_eq!(squeezed(&all(&parts).join(" ")), squeezed(&parts.concat()));
        }
    }
}
