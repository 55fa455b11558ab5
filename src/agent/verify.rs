//! Verification of callers: the hook (contract, section 4.6) or the built-in matcher checks a spoken proof.

use std::path::Path;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use url::Url;

use super::config;
use crate::digits::four_digits;
use crate::identity::without_identity_within;
use crate::outbound;
use crate::secret::Secret;
use crate::session::Source;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Why proofs cannot be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("`sts.verification.hook_url` is no http or https address")]
    Hook,
    #[error("the records in `{path}` cannot be read: {problem}")]
    Records { path: String, problem: String },
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Checks proofs by the hook or by the built-in matcher.
pub struct Verifier {
    client: Client,
    way: Way,
    timeout: Duration,
}

enum Way {
    Hook { url: Url, key: Option<Secret> },
    Inline(Vec<Record>),
    Off,
}

/// A person known by four digits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    digits: String,
    /// The category that the digits prove; any, if it is missing.
    category: Option<String>,
    sms_catalog_key: Option<String>,
}

/// The result of a check.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Checked {
        verified: bool,
        source: Source,
        details: Value,
    },
    /// The check failed; this does not count as a wrong answer.
    Unavailable,
}

impl Verifier {
    /// # Errors
    /// [`VerifyError`].
    pub fn open(config: &config::Verification) -> Result<Self, VerifyError> {
        let way = match &config.hook_url {
            Some(text) => {
                let url = Url::parse(text).map_err(|_| VerifyError::Hook)?;
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(VerifyError::Hook);
                }
                Way::Hook { url, key: config.hook_api_key.clone() }
            }
            None if config.disable_inline => Way::Off,
            None => Way::Inline(config.records.as_deref().map(records).transpose()?.unwrap_or_default()),
        };
        let timeout = Duration::from_millis(config.timeout_ms);
        Ok(Self { client: outbound::client()?, way, timeout })
    }

    /// Checks a proof for `category`. A failed connection is tried once more.
    pub async fn check(&self, session_id: &str, utterance: &str, category: &str) -> Outcome {
        let (url, key) = match &self.way {
            Way::Off => return Outcome::Unavailable,
            Way::Inline(records) => return inline(records, utterance, category),
            Way::Hook { url, key } => (url, key),
        };
        let body =
            json!({"session_id": session_id, "utterance": utterance, "category": category}).to_string();
        let ask = || {
            let mut request = self.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
            if let Some(key) = key {
                request = request.header(X_API_KEY, key.expose());
            }
            request.body(body.clone()).timeout(self.timeout).send()
        };
        let mut answer = ask().await;
        if answer.as_ref().is_err_and(reqwest::Error::is_connect) {
            answer = ask().await;
        }
        let problem = match answer {
            Ok(answer) if answer.status().is_success() => match outbound::read_json(answer).await {
                Some(reply) => match reply.get("verified").and_then(Value::as_bool) {
                    Some(verified) => {
                        let details = reply.get("details").cloned().unwrap_or(Value::Null);
                        let details = without_identity_within(details);
                        return Outcome::Checked { verified, source: Source::Hook, details };
                    }
                    None => "its answer does not say `verified`".to_owned(),
                },
                None => "its answer is no JSON".to_owned(),
            },
            Ok(answer) => format!("it answered {}", answer.status().as_u16()),
            Err(error) if error.is_timeout() => "it took too long".to_owned(),
            Err(_) => "it could not be reached".to_owned(),
        };
        tracing::warn!(session = session_id, problem, "the verification hook failed");
        Outcome::Unavailable
    }
}

fn records(path: &Path) -> Result<Vec<Record>, VerifyError> {
    let failed = |problem: String| VerifyError::Records { path: path.display().to_string(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    // Serde's message would quote the file.
    let records: Vec<Record> =
        serde_json::from_str(&text).map_err(|error| failed(format!("line {} is no record", error.line())))?;
    let is_four = |digits: &str| digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    match records.iter().position(|record| !is_four(&record.digits)) {
        // No answer could ever match it.
        Some(index) => Err(failed(format!("the `digits` of record {} are not four digits", index + 1))),
        None => Ok(records),
    }
}

/// Compares with every record, so that the time reveals nothing.
fn inline(records: &[Record], utterance: &str, category: &str) -> Outcome {
    let mut matched = None;
    if let Some(said) = four_digits(utterance) {
        for record in records.iter().filter(|r| r.category.as_deref().is_none_or(|c| c == category)) {
            if bool::from(record.digits.as_bytes().ct_eq(said.as_bytes())) {
                matched = Some(record);
            }
        }
    }
    let key = matched.and_then(|record| record.sms_catalog_key.as_deref());
    let details = key.map_or(Value::Null, |key| json!({"sms_catalog_key": key}));
    Outcome::Checked { verified: matched.is_some(), source: Source::Inline, details }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(records: &str, disable_inline: bool, utterance: &str) -> Outcome {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), records).unwrap();
        let config = config::Verification {
            records: Some(file.path().to_owned()),
            disable_inline,
            ..config::Verification::default()
        };
        Verifier::open(&config).unwrap().check("sess_1", utterance, "patient_information").await
    }

    #[tokio::test]
    async fn the_matcher_knows_its_records_and_no_others() {
        let records = r#"[{"digits": "1234", "category": "patient_information", "sms_catalog_key": "forms"},
                          {"digits": "9999", "category": "other"}]"#;
        let checked = |verified, details| Outcome::Checked { verified, source: Source::Inline, details };
        let yes = checked(true, json!({"sms_catalog_key": "forms"}));
        assert_eq!(ask(records, false, "It is one two three four.").await, yes);
        assert_eq!(ask(records, false, "9999").await, checked(false, Value::Null));
        assert_eq!(ask("[]", false, "1234").await, checked(false, Value::Null));
        assert_eq!(ask(records, true, "1234").await, Outcome::Unavailable);
    }

    #[test]
    fn records_that_make_no_sense_are_an_error_that_quotes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"[{"digits": 4711}]"#).unwrap();
        let config =
            config::Verification { records: Some(file.path().to_owned()), ..config::Verification::default() };
        let error = Verifier::open(&config).err().unwrap().to_string();
        assert!(!error.contains("4711"), "{error}");
        std::fs::write(file.path(), r#"[{"digits": "1234"}, {"digits": "47110"}]"#).unwrap();
        let error = Verifier::open(&config).err().unwrap().to_string();
        assert!(error.contains("record 2") && !error.contains("4711"), "{error}");
    }
}
