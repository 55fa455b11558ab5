//! Text messages from clients of conversational streams. Pure.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::language;
use crate::api::parameters::{self, TurnParameters};
use crate::engine::ModelInfo;

/// A client's text message.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Control {
    /// Keeps the stream alive. The wire format's own service has no such message here; clients of its other streams do.
    KeepAlive,
    /// Ends the turn that is going on.
    ForceEndTurn,
    /// Ends the audio.
    CloseStream,
    /// Changes options of the running stream.
    Configure(Change),
}

/// Options to change from here on. What is absent or null stays.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
pub struct Change {
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
    /// All terms to expect, replacing the previous ones.
    #[serde(default)]
    pub keyterms: Option<Keyterms>,
    /// All languages to choose among, replacing the previous ones.
    #[serde(default)]
    pub language_hints: Option<Vec<String>>,
    /// Numbers in digits.
    #[serde(default)]
    pub numerals: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
pub struct Thresholds {
    #[serde(default)]
    pub eot_threshold: Option<f64>,
    #[serde(default)]
    pub eager_eot_threshold: Option<f64>,
    #[serde(default)]
    pub eot_timeout_ms: Option<u64>,
}

/// One term, or all of them.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Keyterms {
    One(String),
    All(Vec<String>),
}

/// Why a change was not made: a code and a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{description}")]
pub struct Unchanged {
    pub code: &'static str,
    pub description: String,
}

impl Change {
    /// Makes the whole change, or none of it.
    ///
    /// # Errors
    /// [`Unchanged`].
    pub fn apply(&self, parameters: &mut TurnParameters, model: &ModelInfo) -> Result<(), Unchanged> {
        let refused =
            |code| move |error: parameters::Error| Unchanged { code, description: error.to_string() };
        let mut changed = parameters.clone();
        if let Some(Thresholds { eot_threshold, eager_eot_threshold, eot_timeout_ms }) = self.thresholds {
            changed
                .replace_thresholds(eot_threshold, eager_eot_threshold, eot_timeout_ms)
                .map_err(refused("INVALID_THRESHOLD"))?;
        }
        if let Some(keyterms) = &self.keyterms {
            let terms = match keyterms {
                Keyterms::One(term) => std::slice::from_ref(term),
                Keyterms::All(terms) => terms,
            };
            changed.common.replace_keyterms(terms).map_err(refused("INVALID_KEYTERMS"))?;
        }
        if let Some(hints) = &self.language_hints {
            changed.replace_language_hints(hints).map_err(refused("INVALID_LANGUAGE_HINTS"))?;
            language::choice(&changed.of_language(), model).map_err(|error| Unchanged {
                code: "INVALID_LANGUAGE_HINTS",
                description: error.to_string(),
            })?;
        }
        changed.common.numerals = self.numerals.unwrap_or(changed.common.numerals);
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

    fn model() -> ModelInfo {
        ModelInfo {
            name: "m".into(),
            uuid: uuid::Uuid::nil(),
            languages: vec!["en".into(), "es".into()],
            slots: 1,
            encode_batch: 1,
            device: String::new(),
            prompt_tokens: Default::default(),
        }
    }

    fn change(text: &str) -> Change {
        match Control::read(text) {
            Some(Control::Configure(change)) => change,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_clients_send_is_understood() {
        for (text, expected) in [
            (r#"{"type":"CloseStream"}"#, Control::CloseStream),
            (r#"{"type":"ForceEndTurn"}"#, Control::ForceEndTurn),
            (r#"{ "type": "KeepAlive", "more": 1 }"#, Control::KeepAlive),
        ] {
            assert_eq!(Control::read(text), Some(expected), "{text}");
        }
        for text in ["", "null", "{}", r#"{"type":"Finalize"}"#, r#"{"type":"Configure","thresholds":1}"#] {
            assert_eq!(Control::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let mut parameters = TurnParameters::parse("keyterm=old&language_hint=es").unwrap();
        let all = r#"{"type":"Configure","thresholds":{"eager_eot_threshold":0.4,"eot_threshold":0.7,"eot_timeout_ms":6000},
            "keyterms":["apple","banana"],"language_hints":["en","es"],"numerals":true}"#;
        assert_eq!(change(all).apply(&mut parameters, &model()), Ok(()));
        assert_eq!(parameters.thresholds.eager_end, Some(0.4));
        assert_eq!((parameters.common.keyterms.len(), parameters.language_hints.len()), (2, 2));
        assert!(parameters.common.numerals);
        let before = parameters.clone();
        for (text, code) in [
            (r#"{"type":"Configure","keyterms":[],"thresholds":{"eot_threshold":0.1}}"#, "INVALID_THRESHOLD"),
            (r#"{"type":"Configure","thresholds":{"eager_eot_threshold":0.8}}"#, "INVALID_THRESHOLD"),
            (r#"{"type":"Configure","keyterms":[" "]}"#, "INVALID_KEYTERMS"),
            (r#"{"type":"Configure","keyterms":[],"language_hints":["xx"]}"#, "INVALID_LANGUAGE_HINTS"),
        ] {
            let unchanged = change(text).apply(&mut parameters, &model()).unwrap_err();
            assert_eq!((unchanged.code, &parameters), (code, &before), "{text}");
        }
        let cleared =
            r#"{"type":"Configure","keyterms":[],"language_hints":[],"thresholds":{"eot_threshold":null}}"#;
        assert_eq!(change(cleared).apply(&mut parameters, &model()), Ok(()));
        assert!(parameters.common.keyterms.is_empty() && parameters.language_hints.is_empty());
        assert_eq!(parameters.thresholds, before.thresholds);
        assert_eq!(
            change(r#"{"type":"Configure","keyterms":"one term"}"#).apply(&mut parameters, &model()),
            Ok(())
        );
        assert_eq!(parameters.common.keyterms, ["one term"]);
    }
}
