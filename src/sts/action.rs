//! The requests of `POST /STS/interactiveAgent`, typed (contract, section 4.2).

use serde_json::Value;

use super::failure::Error;
use crate::fields::{self, Fields};
use crate::identity::without_identity_within;
use crate::room::page_context;
use crate::session::{Notice, Start, caller_number, phone_number};

const NAME_BYTES_MAX: usize = 200;
const MESSAGE_BYTES_MAX: usize = 8 << 10;

const ACTIONS: [&str; 8] =
    ["start", "status", "bind_caller", "page_context", "verification", "completion", "transfer", "observe"];

#[derive(Debug, PartialEq)]
pub enum Action {
    Start(Box<Start>),
    /// A step of an existing session.
    Of {
        session_id: String,
        step: Step,
    },
}

#[derive(Debug, PartialEq)]
pub enum Step {
    Status,
    BindCaller {
        number: String,
    },
    PageContext(Value),
    Verification(Verdict),
    Completion(Notice),
    /// To this number, or to that of the start.
    Transfer {
        to: Option<String>,
    },
    /// Someone wants to listen in.
    Observe,
}

/// The client's verdict on a proof for a category.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub category: String,
    pub verified: bool,
    pub details: Value,
}

impl Action {
    /// # Errors
    /// The field that is invalid, and why.
    pub fn read(body: &Value) -> Result<Self, Error> {
        let fields = Fields::of(body)?;
        let name = fields.required_text("action", NAME_BYTES_MAX)?;
        if !ACTIONS.contains(&name) {
            return Err(Error::UnknownAction { known: ACTIONS.join(", ") });
        }
        if name == "start" {
            return Ok(Self::Start(Box::new(Start::read(fields)?)));
        }
        let session_id = fields.required_text("session_id", NAME_BYTES_MAX)?.to_owned();
        let step = match name {
            "bind_caller" => Step::BindCaller {
                number: caller_number(fields)?.ok_or(fields::Error::Missing("caller_number"))?,
            },
            "page_context" => Step::PageContext(page_context(fields)?),
            "verification" => {
                let key = fields.object("details")?.and_then(|details| details.any("sms_catalog_key"));
                if key.is_some_and(|key| !key.is_string()) {
                    let field = "details.sms_catalog_key";
                    return Err(fields::Error::Kind { field, expected: "a string" }.into());
                }
                Step::Verification(Verdict {
                    category: fields.required_text("category", NAME_BYTES_MAX)?.to_owned(),
                    verified: fields.flag("verified")?.ok_or(fields::Error::Missing("verified"))?,
                    details: bounded(fields, "details")?,
                })
            }
            "completion" => Step::Completion(Notice {
                status: fields.text("status", NAME_BYTES_MAX)?.unwrap_or("completed").to_owned(),
                message: fields.text("message", MESSAGE_BYTES_MAX)?.map(str::to_owned),
                updated_fields: bounded(fields, "updated_fields")?,
            }),
            "transfer" => Step::Transfer { to: transfer_number(fields)? },
            "observe" => Step::Observe,
            _ => Step::Status,
        };
        Ok(Self::Of { session_id, step })
    }
}

/// # Errors
/// It is no telephone number.
fn transfer_number(fields: Fields<'_>) -> Result<Option<String>, Error> {
    let Some(text) = fields.text("to", NAME_BYTES_MAX)? else { return Ok(None) };
    let expected = "a number in E.164 form, such as +14155552671";
    phone_number(text).map(Some).ok_or(fields::Error::Kind { field: "to", expected }.into())
}

/// A bounded member without the parts that identify a person.
fn bounded(fields: Fields<'_>, field: &'static str) -> Result<Value, Error> {
    Ok(without_identity_within(fields.bounded(field)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_requests_say_why() {
        let deep = (0..9).fold(json!({}), |inner, _| json!({ "a": inner }));
        for (body, expected) in [
            (json!([]), "object"),
            (json!({}), "`action`"),
            (json!({"action": 3}), "`action`"),
            (json!({"action": "Start"}), "bind_caller"),
            (json!({"action": "status"}), "`session_id`"),
            (json!({"action": "status", "session_id": 7}), "`session_id`"),
            (json!({"action": "bind_caller", "session_id": "s"}), "`caller_number`"),
            (json!({"action": "bind_caller", "session_id": "s", "caller_number": "me"}), "`caller_number`"),
            (json!({"action": "page_context", "session_id": "s"}), "`page_context`"),
            (json!({"action": "page_context", "session_id": "s", "page_context": []}), "`page_context`"),
            (json!({"action": "page_context", "session_id": "s", "page_context": deep}), "`page_context`"),
            (json!({"action": "verification", "session_id": "s", "verified": true}), "`category`"),
            (json!({"action": "verification", "session_id": "s", "category": "c"}), "`verified`"),
            (
                json!({"action": "verification", "session_id": "s", "category": "c", "verified": 1}),
                "`verified`",
            ),
            (
                json!({"action": "verification", "session_id": "s", "category": "c", "verified": true, "details": 1}),
                "`details`",
            ),
            (
                json!({"action": "verification", "session_id": "s", "category": "c", "verified": true, "details": {"sms_catalog_key": 1}}),
                "`details.sms_catalog_key`",
            ),
            (json!({"action": "completion", "session_id": "s", "status": 1}), "`status`"),
            (json!({"action": "transfer", "session_id": "s", "to": "the office"}), "`to`"),
        ] {
            let error = Action::read(&body).expect_err(expected).to_string();
            assert!(error.contains(expected), "{body}: {error}");
        }
    }
}
