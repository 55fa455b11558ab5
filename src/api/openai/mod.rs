//! Routes that OpenAI's clients know: transcriptions, translations, speech, models and transcription sessions (`realtime`).
//!
//! ```text
//! form.rs ─ request.rs ─▶ transcription.rs, transcribe ─▶ answer.rs ─ wire.rs
//!  multipart  parameters    as for /v1/listen           └▶ events.rs, as text becomes final
//! ```
//! Shapes are those of OpenAI's API reference and its SDKs' types (openai/openai-openapi, openai/openai-python). Failures
//! take that API's form too: `error.rs` rewrites every [`crate::http::Failure`].

mod answer;
pub(super) mod error;
mod events;
mod form;
mod known_speakers;
pub mod language_names;
mod models;
pub mod names;
pub mod realtime;
mod request;
pub mod speech;
mod transcriptions;
mod wire;

use bytes::Bytes;

use crate::engine::{ModelInfo, Task};

pub(super) use models::{list, one};
pub(super) use request::RESPONSE_FORMATS;
pub(super) use transcriptions::{transcribe, translate};

/// Whether these pieces of a body are a form that asks for a transcript, for tests that send anything.
pub async fn asks_for_transcript(pieces: Vec<Bytes>, boundary: &str, model: &ModelInfo) -> bool {
    match form::of_pieces(pieces, boundary, request::FIELDS).await {
        Ok(form) => request::Asked::parse(form.fields, Task::Transcribe, model).is_ok(),
        Err(_) => false,
    }
}
