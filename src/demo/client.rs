//! Reports from a client's own pages: form events, credentials, completion.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::backend::Demo;
use super::fields::{Fields, invalid};
use super::records::{Credentials, Records};
use super::reply::Refusal;
use crate::http::Failure;
use crate::identity::{without_identity, without_identity_within};

/// The form for people whose number isn't known yet.
const SIGNUP: &str = "healthcare_signup";
const PATIENT_INFORMATION: &str = "patient_information";
/// Members of a form event that don't belong to the page's state.
const NOT_PAGE: [&str; 2] = ["session_id", "visit"];
/// Limits that the voice service sets on a completion.
const STATUS_BYTES_MAX: usize = 200;
const UPDATED_BYTES_MAX: usize = 32 << 10;
const DEPTH_MAX: usize = 8;

/// `POST /api/client/form-event`: the payload becomes the `page_context`.
pub async fn form_event(demo: Arc<Demo>, fields: Fields, _: IpAddr) -> Result<Value, Refusal> {
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

/// `POST /api/client/verify-and-submit`: `session_id`, `form_name`, `ssn_last4`, `date_of_birth`, and optional
/// `category`, `message`, `updated_fields`. Except at sign-up, the number that is bound to the session must
/// be the person's own; a number in the request is ignored.
pub async fn verify_and_submit(demo: Arc<Demo>, fields: Fields, address: IpAddr) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    let form_name = fields.required("form_name")?;
    let is_signup = form_name == SIGNUP;
    let category = if is_signup { "form" } else { fields.text("category")?.unwrap_or(PATIENT_INFORMATION) };
    let (ssn_last4, date_of_birth) = (fields.ssn_last4()?, fields.required("date_of_birth")?);
    fields.text("caller_number")?;
    let completion = completion(&session_id, &fields)?;
    let bound = if is_signup {
        demo.expect(&session_id).await?;
        None
    } else {
        Some(bound_number(&demo, &session_id).await?)
    };
    let credentials = Credentials { ssn_last4, date_of_birth, caller_number: bound.as_deref() };
    let look = |records: &Records| records.knows(&credentials).then_some(());
    demo.prove(&session_id, Some(address), look)?.ok_or_else(not_verified)?;
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

/// The number of the session's caller, by the voice service.
async fn bound_number(demo: &Demo, session_id: &str) -> Result<String, Refusal> {
    let status = demo.status(session_id).await?;
    let number = status.get("caller_number").and_then(Value::as_str);
    number.map(str::to_owned).ok_or_else(|| {
        let message = "No number is bound to the session, so that it cannot be a known caller's.";
        Failure::new(StatusCode::FORBIDDEN, "NOT_VERIFIED", message).into()
    })
}

/// `POST /api/client/verify-patient-info-demo`: `session_id`, `ssn_last4`, optional `patient_id`.
pub async fn verify_patient(demo: Arc<Demo>, fields: Fields, address: IpAddr) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    let (ssn_last4, id) = (fields.ssn_last4()?, fields.text("patient_id")?);
    demo.expect(&session_id).await?;
    let look = |records: &Records| Some(records.patient(ssn_last4, id)?.sms_catalog_key.clone());
    let key = demo.prove(&session_id, Some(address), look)?.ok_or_else(not_verified)?;
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
pub async fn form_completed(demo: Arc<Demo>, fields: Fields, _: IpAddr) -> Result<Value, Refusal> {
    let session_id = session(&demo, &fields)?;
    demo.voice.act(&completion(&session_id, &fields)?).await?;
    Ok(json!({"ok": true, "session_id": session_id, "completed": true}))
}

/// Refuses here, before anything is done, everything that the voice service would refuse, so that no form is verified and
/// then not completed.
fn completion(session_id: &str, fields: &Fields) -> Result<Value, Failure> {
    let mut action = Map::new();
    action.insert("action".into(), "completion".into());
    action.insert("session_id".into(), session_id.into());
    let status = fields.text("status")?.unwrap_or("completed");
    if status.len() > STATUS_BYTES_MAX {
        return Err(too_long("`status` is too long."));
    }
    action.insert("status".into(), status.into());
    if let Some(message) = fields.text("message")? {
        action.insert("message".into(), unidentified(message, fields).into());
    }
    if let Some(updated) = fields.0.get("updated_fields") {
        if depth(updated) > DEPTH_MAX {
            return Err(invalid("`updated_fields` has more than 8 levels."));
        }
        if updated.to_string().len() > UPDATED_BYTES_MAX {
            return Err(too_long("`updated_fields` is too long."));
        }
        action.insert("updated_fields".into(), without_identity_within(updated.clone()));
    }
    Ok(action.into())
}

/// A message without the proof that the same request contains.
fn unidentified(message: &str, fields: &Fields) -> String {
    let proofs = ["ssn_last4", "date_of_birth"].into_iter().filter_map(|name| fields.0.get(name)?.as_str());
    let proofs = proofs.map(str::trim).filter(|proof| !proof.is_empty());
    proofs.fold(message.to_owned(), |message, proof| message.replace(proof, "••••"))
}

/// The session that a request names, by its id or by the visit of a link.
fn session(demo: &Demo, fields: &Fields) -> Result<String, Failure> {
    match fields.text("visit")? {
        None => fields.required("session_id").map(str::to_owned),
        Some(code) => demo.visits.session(code).ok_or_else(|| {
            Failure::new(StatusCode::NOT_FOUND, "VISIT_NOT_FOUND", "The link is no longer known.")
        }),
    }
}

/// Levels of arrays and objects in `value`; 0 for a plain value.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn too_long(message: &'static str) -> Failure {
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message)
}

fn not_verified() -> Refusal {
    Failure::new(StatusCode::FORBIDDEN, "NOT_VERIFIED", "The credentials match no record.").into()
}
