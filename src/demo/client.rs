//! What a client's own pages report: form events, credentials, completion.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::fields::{Fields, invalid};
use super::identity::without_identity;
use super::records::{Credentials, Records};
use super::{Demo, Refusal};
use crate::http::Failure;

/// The form for people whom no number is known of yet.
const SIGNUP: &str = "healthcare_signup";
const PATIENT_INFORMATION: &str = "patient_information";
/// Members of a form event that are not the page's state.
const NOT_PAGE: [&str; 2] = ["session_id", "visit"];

/// `POST /api/client/form-event`: the payload becomes the `page_context`.
pub async fn form_event(demo: Arc<Demo>, fields: Fields) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    fields.text("page")?;
    fields.text("form_name")?;
    if fields.0.get("sections").is_some_and(|s| !(s.is_array() || s.is_object() || s.is_null())) {
        return Err(invalid("`sections` must be an array or an object.").into());
    }
    let is_page = |name: &str, value: &Value| !NOT_PAGE.contains(&name) && !value.is_null();
    let page: Map<String, Value> =
        fields.0.into_iter().filter(|(name, value)| is_page(name, value)).collect();
    let page = without_identity(page);
    if !["page", "step", "form_name", "sections"].iter().any(|name| page.contains_key(*name)) {
        return Err(invalid("One of `page`, `step`, `form_name` and `sections` must be there.").into());
    }
    let action = json!({"action": "page_context", "session_id": session_id, "page_context": page});
    demo.voice.act(&action).await?;
    Ok(json!({"ok": true, "session_id": session_id, "page_context": page}))
}

/// `POST /api/client/verify-and-submit`: `session_id`, `form_name`, `ssn_last4`, `date_of_birth`,
/// `caller_number` unless somebody signs up, and optional `category`, `message`, `updated_fields`.
pub async fn verify_and_submit(demo: Arc<Demo>, fields: Fields) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    let form_name = fields.required("form_name")?;
    let (category, caller_number) = if form_name == SIGNUP {
        ("form", None)
    } else {
        (fields.text("category")?.unwrap_or(PATIENT_INFORMATION), Some(fields.required("caller_number")?))
    };
    let credentials = Credentials {
        ssn_last4: fields.ssn_last4()?,
        date_of_birth: fields.required("date_of_birth")?,
        caller_number,
    };
    let completion = completion(&session_id, &fields)?;
    demo.prove(&session_id, |records| records.knows(&credentials).then_some(()))?.ok_or_else(not_verified)?;
    let verification = json!({
        "action": "verification", "session_id": session_id, "category": category, "verified": true,
        "details": {"form_name": form_name},
    });
    demo.voice.act(&verification).await?;
    demo.voice.act(&completion).await?;
    Ok(json!({
        "ok": true, "session_id": session_id, "verified": true, "category": category, "completed": true,
    }))
}

/// `POST /api/client/verify-patient-info-demo`: `session_id`, `ssn_last4`, optional `patient_id`.
pub async fn verify_patient(demo: Arc<Demo>, fields: Fields) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    let (ssn_last4, id) = (fields.ssn_last4()?, fields.text("patient_id")?);
    let look = |records: &Records| Some(records.patient(ssn_last4, id)?.sms_catalog_key.clone());
    let key = demo.prove(&session_id, look)?.ok_or_else(not_verified)?;
    let details = json!({"sms_catalog_key": key});
    let verification = json!({
        "action": "verification", "session_id": session_id, "category": PATIENT_INFORMATION,
        "verified": true, "details": details,
    });
    demo.voice.act(&verification).await?;
    Ok(json!({
        "ok": true, "session_id": session_id, "verified": true, "category": PATIENT_INFORMATION,
        "details": details,
    }))
}

/// `POST /api/client/form-completed`: `session_id`, optional `status`, `message`, `updated_fields`.
pub async fn form_completed(demo: Arc<Demo>, fields: Fields) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    demo.voice.act(&completion(&session_id, &fields)?).await?;
    Ok(json!({"ok": true, "session_id": session_id, "completed": true}))
}

fn completion(session_id: &str, fields: &Fields) -> Result<Value, Failure> {
    let mut action = Map::new();
    action.insert("action".into(), "completion".into());
    action.insert("session_id".into(), session_id.into());
    action.insert("status".into(), fields.text("status")?.unwrap_or("completed").into());
    if let Some(message) = fields.text("message")? {
        action.insert("message".into(), message.into());
    }
    if let Some(updated) = fields.0.get("updated_fields") {
        action.insert("updated_fields".into(), updated.clone());
    }
    Ok(action.into())
}

/// The session that is meant, by its id or by the visit of a link.
fn session(demo: &Demo, fields: &Fields) -> Result<String, Failure> {
    match fields.text("visit")? {
        None => fields.required("session_id").map(str::to_owned),
        Some(code) => demo.visits.session(code).ok_or_else(|| {
            Failure::new(StatusCode::NOT_FOUND, "VISIT_NOT_FOUND", "The link is no longer known.")
        }),
    }
}

fn not_verified() -> Refusal {
    Failure::new(StatusCode::FORBIDDEN, "NOT_VERIFIED", "The credentials match no record.").into()
}
