//! The verification hook, which the voice-agent service calls (contract, section 4.6).

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::fields::Fields;
use super::{Demo, Refusal};
use crate::http::Failure;

/// `POST /api/hooks/voice-verify`: `{session_id, utterance, category}`, and `patient_id` where the caller
/// is known by it already. A category that is not allowed is refused: nobody has failed anything.
pub async fn voice_verify(demo: Arc<Demo>, fields: Fields) -> Result<Value, Refusal> {
    let session_id = fields.required("session_id")?;
    let category = fields.required("category")?;
    let utterance = fields.text("utterance")?.unwrap_or_default();
    let allowed = &demo.config.voice_verify_allowed_categories;
    if !allowed.iter().any(|allowed| allowed == "*" || allowed == category) {
        let message = "This category is not verified here.";
        return Err(Failure::new(StatusCode::FORBIDDEN, "CATEGORY_NOT_ALLOWED", message).into());
    }
    let patient = match fields.text("patient_id")? {
        Some(id) => demo.records.patient(&super::digits::digits(utterance), Some(id)),
        None => demo.records.speaker(utterance, demo.config.voice_verify_require_patient_id),
    };
    tracing::info!(session_id, verified = patient.is_some(), "spoken verification");
    let key = patient.map(|patient| &patient.sms_catalog_key);
    Ok(json!({"verified": patient.is_some(), "details": {"sms_catalog_key": key}}))
}
