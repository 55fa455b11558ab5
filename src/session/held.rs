//! Memory of sessions: the bytes of their setup, and of the knowledge read for them.

use std::io::{self, Write};

use serde::Serialize;

use super::setup::Setup;
use crate::knowledge::{Content, indexed_bytes};

/// The size of `value` as JSON in bytes, which approximates its memory.
pub fn json(value: &impl Serialize) -> u64 {
    struct Count(u64);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("names are strings and numbers finite; this is a bug");
    count.0
}

/// Estimated memory of a setup's texts once they are indexed, in bytes.
pub fn by_texts(setup: &Setup) -> u64 {
    let text = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Url(_) => 0,
    };
    let texts = setup.documents.iter().map(|document| text(&document.content)).sum::<usize>()
        + setup.instructions.as_ref().map_or(0, String::len);
    indexed_bytes(texts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::knowledge::{Document, Knowledge, passages};

    #[test]
    fn json_is_counted_as_it_would_be_written() {
        let value = json!({"text": "«ß»\n", "number": 1.5, "none": null});
        assert_eq!(json(&value), value.to_string().len() as u64);
    }

    #[test]
    fn what_is_expected_of_a_plain_text_is_what_it_takes_up() {
        let text: String = (0..20_000)
            .map(|n| format!("Room {n} on floor {} is open from nine to five. ", n % 40))
            .collect();
        let content = Content::Text(text.clone());
        let setup = Setup { documents: vec![Document { title: "d".into(), content }], ..Setup::default() };
        let taken = Knowledge::new(passages("d", "d", &text), setup.rationed()).bytes() as u64;
        let expected = by_texts(&setup);
        assert!((expected / 3..=expected).contains(&taken), "{taken} instead of {expected}");
    }
}
