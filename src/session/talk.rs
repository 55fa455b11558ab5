//! The rules of one talk that a start may set: recording, silence, duration, transfer, and a webhook of its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Error;
use super::number::phone_number;
use crate::fields::{self, Fields};

const URL_BYTES_MAX: usize = 2048;
/// Longer times are cut: no talk takes more than a day.
const SECONDS_MAX: u64 = 86_400;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TalkRules {
    /// Record the talk, if the server records on request.
    pub recording: Option<bool>,
    /// Silence after which the agent asks whether the caller is still there, in seconds; 0: it never asks.
    pub silence_seconds: Option<u64>,
    /// The longest talk, in seconds, if it is shorter than the server's.
    pub max_duration_seconds: Option<u64>,
    /// Telephone callers who ask for a person are connected with this number.
    pub transfer_to: Option<String>,
    /// The session's events are sent there.
    pub webhook_url: Option<String>,
}

impl TalkRules {
    /// Members of another kind belong to clients of something else, and are left out: [`is_other`] says so.
    ///
    /// # Errors
    /// `transfer_to` is no telephone number, `webhook_url` too long, or `max_duration_seconds` zero.
    pub fn read(fields: Fields<'_>) -> Result<Self, Error> {
        let text =
            |name| fields.any(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let count = |name| fields.any(name).and_then(Value::as_u64).map(|seconds| seconds.min(SECONDS_MAX));
        let number = |text: &str| {
            let expected = "a number in E.164 form, such as +14155552671";
            phone_number(text).ok_or(fields::Error::Kind { field: "transfer_to", expected })
        };
        let webhook_url = text("webhook_url").map(str::to_owned);
        if webhook_url.as_ref().is_some_and(|url| url.len() > URL_BYTES_MAX) {
            let too_long = fields::Error::TooLong { field: "webhook_url", bytes_max: URL_BYTES_MAX };
            return Err(too_long.into());
        }
        let max_duration_seconds = count("max_duration_seconds");
        if max_duration_seconds == Some(0) {
            let expected = "a whole number, 1 or more";
            return Err(fields::Error::Kind { field: "max_duration_seconds", expected }.into());
        }
        Ok(Self {
            recording: fields.any("recording").and_then(Value::as_bool),
            silence_seconds: count("silence_seconds"),
            max_duration_seconds,
            transfer_to: text("transfer_to").map(number).transpose()?,
            webhook_url,
        })
    }
}

/// Whether a member of a start is one of these rules, of the kind that it must have; `None` if it is none by its name.
pub fn is_other(name: &str, value: &Value) -> Option<bool> {
    let is_ours = match name {
        "recording" => value.is_boolean(),
        "silence_seconds" | "max_duration_seconds" => value.is_u64(),
        "transfer_to" | "webhook_url" => value.is_string(),
        _ => return None,
    };
    Some(!is_ours && !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<TalkRules, Error> {
        TalkRules::read(Fields::of(value).expect("an object"))
    }

    #[test]
    fn rules_are_read_and_those_of_other_kinds_left_out() {
        let rules = json!({"recording": true, "silence_seconds": 0, "max_duration_seconds": 90,
            "transfer_to": " +14155552671 ", "webhook_url": "https://a.example/hook"});
        let read_rules = read(&rules).expect("valid");
        assert_eq!(read_rules.transfer_to.as_deref(), Some("+14155552671"));
        assert_eq!((read_rules.recording, read_rules.silence_seconds), (Some(true), Some(0)));
        let others = json!({"recording": {}, "silence_seconds": -1, "webhook_url": 3});
        assert_eq!(read(&others).expect("left out"), TalkRules::default());
        for (name, value) in others.as_object().expect("an object") {
            assert_eq!(is_other(name, value), Some(true), "{name}");
        }
        assert_eq!(is_other("voice", &json!("a")), None);
        let endless = read(&json!({"silence_seconds": u64::MAX})).expect("cut");
        assert_eq!(endless.silence_seconds, Some(SECONDS_MAX));
    }

    #[test]
    fn rules_that_cannot_be_kept_are_errors() {
        let long = format!("https://a.example/{}", "a".repeat(URL_BYTES_MAX));
        for (rules, named) in [
            (json!({"transfer_to": "the office"}), "`transfer_to`"),
            (json!({"max_duration_seconds": 0}), "`max_duration_seconds`"),
            (json!({"webhook_url": long}), "`webhook_url`"),
        ] {
            let error = read(&rules).expect_err(named).to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
