//! Text messages from clients. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::parameters::{self, Parameters};

/// A client's text message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Control {
    /// Keeps the stream alive.
    KeepAlive,
    /// Closes the open span of `channel`, or of all.
    Finalize {
        #[serde(default)]
        channel: Option<usize>,
    },
    /// Ends the audio.
    CloseStream,
    /// Changes options of the running stream.
    Configure(Change),
}

/// Options to change from here on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Change {
    /// All terms to expect, replacing the previous ones.
    #[serde(default)]
    pub keyterms: Option<Vec<String>>,
    /// Features that shape the text, on or off. Older clients call them `processors`.
    #[serde(default, alias = "processors")]
    pub features: Option<BTreeMap<String, bool>>,
}

/// Why a change was not made: the wire format's code, if it has one, and a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{description}")]
pub struct Unchanged {
    pub code: &'static str,
    pub description: &'static str,
}

impl Change {
    /// Makes the whole change, or none of it.
    ///
    /// # Errors
    /// [`Unchanged`].
    pub fn apply(&self, parameters: &mut Parameters) -> Result<(), Unchanged> {
        let mut changed = parameters.clone();
        for (name, value) in self.features.iter().flatten() {
            let known = changed.switch(name, *value);
            known.then_some(()).ok_or(Unchanged {
                code: "CONFIGURE_FEATURE_NOT_SUPPORTED",
                description: "A feature is none that can be changed.",
            })?;
        }
        if let Some(keyterms) = &self.keyterms {
            changed.replace_keyterms(keyterms).map_err(|error| match error {
                parameters::Error::KeytermTokens => Unchanged {
                    code: "CONFIGURE_KEYTERM_LIMIT_EXCEEDED",
                    description: "The keyterms exceed the limit of 500 tokens.",
                },
                _ => Unchanged {
                    code: "CONFIGURE_KEYTERMS_NOT_SUPPORTED",
                    description: "A keyterm is empty, or longer than 128 characters.",
                },
            })?;
        }
        *parameters = changed;
        Ok(())
    }
}

impl Control {
    /// `None` if it is not a control message.
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
            (r#"{"type":"Configure"}"#, Control::Configure(Change::default())),
            (
                r#"{"type":"Configure","features":{"numerals":true},"keyterms":null}"#,
                Control::Configure(Change {
                    features: Some(BTreeMap::from([("numerals".into(), true)])),
                    keyterms: None,
                }),
            ),
            (
                r#"{"type":"Configure","processors":{"punctuate":false},"keyterms":["a b"]}"#,
                Control::Configure(Change {
                    features: Some(BTreeMap::from([("punctuate".into(), false)])),
                    keyterms: Some(vec!["a b".into()]),
                }),
            ),
        ] {
            assert_eq!(Control::read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "",
            "hello",
            "null",
            "{}",
            r#"{"type":"Explode"}"#,
            r#"{"type":1}"#,
            r#"{"type":"Configure","features":{"numerals":"yes"}}"#,
        ] {
            assert_eq!(Control::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let change = |features: &[(&str, bool)], keyterms: Option<Vec<String>>| Change {
            features: Some(features.iter().map(|&(name, on)| (name.to_owned(), on)).collect()),
            keyterms,
        };
        let mut parameters = Parameters::parse("keyterm=old&numerals=true").unwrap();
        let wanted = change(&[("numerals", false), ("punctuate", true)], Some(vec!["new".into()]));
        assert_eq!(wanted.apply(&mut parameters), Ok(()));
        assert_eq!((parameters.numerals, parameters.punctuate), (false, Some(true)));
        assert_eq!(parameters.keyterms, ["new"]);

        let before = parameters.clone();
        for (refused, code) in [
            (change(&[("numerals", true), ("telepathy", true)], None), "CONFIGURE_FEATURE_NOT_SUPPORTED"),
            (change(&[], Some(vec!["a ".repeat(60); 10])), "CONFIGURE_KEYTERM_LIMIT_EXCEEDED"),
            (change(&[("numerals", true)], Some(vec!["a".repeat(129)])), "CONFIGURE_KEYTERMS_NOT_SUPPORTED"),
            (change(&[], Some(vec![" ".into()])), "CONFIGURE_KEYTERMS_NOT_SUPPORTED"),
        ] {
            assert_eq!(refused.apply(&mut parameters).map_err(|unchanged| unchanged.code), Err(code));
            assert_eq!(parameters, before);
        }
        assert_eq!(change(&[], Some(Vec::new())).apply(&mut parameters), Ok(()));
        assert!(parameters.keyterms.is_empty());
    }
}
