//! Text messages from clients of conversational streams. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny};

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
    /// Anything else, which has no effect.
    #[serde(flatten)]
    #[schemars(skip)]
    pub others: BTreeMap<String, IgnoredAny>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
pub struct Thresholds {
    #[serde(default)]
    pub eot_threshold: Option<f64>,
    #[serde(default)]
    pub eager_eot_threshold: Option<f64>,
    /// A whole number, perhaps written as `6000.0`.
    #[serde(default, deserialize_with = "whole")]
    pub eot_timeout_ms: Option<u64>,
}

fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(from)? else { return Ok(None) };
    let whole = Some(number).filter(|number| number.fract() == 0.0 && *number >= 0.0);
    whole.map(|number| Some(number as u64)).ok_or_else(|| D::Error::custom("expected a whole number"))
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

impl Change {
    /// The members that mean nothing to a stream with these parameters.
    pub fn without_effect(&self, parameters: &TurnParameters) -> impl Iterator<Item = &str> {
        let has_hints = self.language_hints.as_ref().is_some_and(|hints| !hints.is_empty());
        let hints = (parameters.is_english && has_hints).then_some("language_hints");
        self.others.keys().map(String::as_str).chain(hints)
    }
}

impl Control {
    /// `None` if it is not a control message; within, the reason why a change cannot be read.
    pub fn read(text: &str) -> Option<Result<Self, Unchanged>> {
        if let Ok(control) = serde_json::from_str(text) {
            return Some(Ok(control));
        }
        let Ok(Tagged::Configure) = serde_json::from_str(text) else { return None };
        let problem = serde_json::from_str::<Change>(text).err()?;
        Some(Err(Unchanged { code: "INVALID_CONFIGURE", description: problem.to_string() }))
    }
}

/// A `Configure` message, whatever else is in it.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    Configure,
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
            Some(Ok(Control::Configure(change))) => change,
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
            assert_eq!(Control::read(text), Some(Ok(expected)), "{text}");
        }
        for text in ["", "null", "{}", r#"{"type":"Finalize"}"#, "Configure"] {
            assert_eq!(Control::read(text), None, "{text}");
        }
        for text in [
            r#"{"type":"Configure","thresholds":1}"#,
            r#"{"type":"Configure","numerals":"true"}"#,
            r#"{"type":"Configure","thresholds":{"eot_timeout_ms":600.5}}"#,
            r#"{"type":"Configure","thresholds":{"eot_timeout_ms":-1}}"#,
        ] {
            let code = Control::read(text).and_then(Result::err).map(|unchanged| unchanged.code);
            assert_eq!(code, Some("INVALID_CONFIGURE"), "{text}");
        }
        let whole =
            change(r#"{"type":"Configure","thresholds":{"eot_timeout_ms":6000.0},"profanity_filter":true}"#);
        assert_eq!(whole.thresholds.and_then(|thresholds| thresholds.eot_timeout_ms), Some(6000));
        assert!(whole.others.keys().eq(["profanity_filter"]));
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
        let mut english = TurnParameters::parse("model=flux-general-en").unwrap();
        let hinted = change(r#"{"type":"Configure","language_hints":["en"],"diarize":true}"#);
        assert_eq!(hinted.apply(&mut english, &model()), Ok(()));
        assert!(hinted.without_effect(&english).eq(["diarize", "language_hints"]));
        assert!(hinted.without_effect(&parameters).eq(["diarize"]));
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
