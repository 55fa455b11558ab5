//! What clients say in text messages. Pure.

use serde::Deserialize;

/// A client's text message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type")]
pub enum Control {
    /// Nothing, so that the stream is not taken for dead.
    KeepAlive,
    /// Close the open span of `channel`, or of all.
    Finalize {
        #[serde(default)]
        channel: Option<usize>,
    },
    /// No more audio comes.
    CloseStream,
    /// Change something on the way.
    Configure,
}

impl Control {
    /// `None` where it is none.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sdks_send_is_understood() {
        for (text, expected) in [
            (r#"{"type":"KeepAlive"}"#, Control::KeepAlive),
            (r#"{ "type": "KeepAlive", "more": 1 }"#, Control::KeepAlive),
            (r#"{"type":"Finalize"}"#, Control::Finalize { channel: None }),
            (r#"{"type":"Finalize","channel":null}"#, Control::Finalize { channel: None }),
            (r#"{"channel":1,"type":"Finalize"}"#, Control::Finalize { channel: Some(1) }),
            (r#"{"type":"CloseStream"}"#, Control::CloseStream),
            (r#"{"type":"Configure","features":{"numerals":true}}"#, Control::Configure),
        ] {
            assert_eq!(Control::read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in ["", "hello", "null", "{}", r#"{"type":"Explode"}"#, r#"{"type":1}"#] {
            assert_eq!(Control::read(text), None, "{text}");
        }
    }
}
