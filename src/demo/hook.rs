//! The verification hook, which the voice-agent service calls (contract, section 4.6).

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::backend::Demo;
use super::digits::digits;
use super::fields::Fields;
use super::records::Records;
use super::reply::Refusal;
use crate::http::Failure;

/// `POST /api/hooks/voice-verify`: `{session_id, utterance, category}`, and `patient_id` where the caller
/// is known by it already. A category that isn't allowed is refused, and doesn't count as a wrong answer.
pub async fn voice_verify(demo: Arc<Demo>, fields: Fields, address: IpAddr) -> Result<Value, Refusal> {
    let session_id = fields.required("session_id")?;
    let category = fields.required("category")?;
    let utterance = fields.text("utterance")?.unwrap_or_default();
    let allowed = &demo.config.voice_verify_allowed_categories;
    if !allowed.iter().any(|allowed| allowed == "*" || allowed == category) {
        let message = "This category is not verified here.";
        return Err(Failure::new(StatusCode::FORBIDDEN, "CATEGORY_NOT_ALLOWED", message).into());
    }
    let id = fields.text("patient_id")?;
    let look = |records: &Records| {
        let patient = match id {
            Some(id) => records.patient(&digits(utterance), Some(id)),
            None => records.speaker(utterance, demo.config.voice_verify_require_patient_id),
        };
        Some(patient?.sms_catalog_key.clone())
    };
    // The voice service asks for all its callers from one address. A session that this backend knows counts by itself;
    // confirming other sessions with the service would keep the caller waiting.
    let address = if demo.sessions.has(session_id) { None } else { Some(address) };
    // Words without a digit don't count as a guess.
    let key = if digits(utterance).is_empty() { None } else { demo.prove(session_id, address, look)? };
    tracing::info!(verified = key.is_some(), "spoken verification");
    Ok(json!({"verified": key.is_some(), "details": {"sms_catalog_key": key}}))
}
