//! The members of a request's JSON object, read by name and kind. Refusals don't quote values.

use hyper::StatusCode;
use serde_json::{Map, Value};

use crate::http::{Body, Failure};

/// Limit of a request's or an answer's body: a start may contain documents.
pub const BODY_BYTES_MAX: u64 = 4 << 20;
const TEXT_BYTES_MAX: usize = 8 << 10;

pub struct Fields(pub Map<String, Value>);

impl Fields {
    /// # Errors
    /// 400 if the body is no JSON object; the errors of a body.
    pub async fn read(body: Body) -> Result<Self, Failure> {
        let body = body.collect_at_most(BODY_BYTES_MAX).await?;
        match serde_json::from_slice(&body.bytes()) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(_) | Err(_) => {
                Err(Failure::new(StatusCode::BAD_REQUEST, "INVALID_JSON", "The body must be a JSON object."))
            }
        }
    }

    /// A trimmed text; an empty one counts as missing, and so does `null`.
    ///
    /// # Errors
    /// 400 for another kind, or a text that is too long.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_BYTES_MAX => {
                Ok(Some(text.trim()).filter(|text| !text.is_empty()))
            }
            Some(_) => Err(invalid(format!("`{name}` must be a string of at most {TEXT_BYTES_MAX} bytes."))),
        }
    }

    /// # Errors
    /// As [`Self::text`], and 400 if it is missing.
    pub fn required(&self, name: &str) -> Result<&str, Failure> {
        self.text(name)?.ok_or_else(|| invalid(format!("`{name}` is missing.")))
    }

    /// The last four digits of a social security number.
    ///
    /// # Errors
    /// 400 unless the member is a string of four digits.
    pub fn ssn_last4(&self) -> Result<&str, Failure> {
        let digits = self.required("ssn_last4")?;
        if digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(digits);
        }
        Err(invalid("`ssn_last4` must be a string of four digits."))
    }
}

pub fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_FIELD", message)
}
