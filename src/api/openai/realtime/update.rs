//! Updates of a session, with the model that they choose.

use super::request::{Invalid, Update};
use super::settings::{Server, Settings};
use crate::api::openai::models::is_served;
use crate::api::services::Services;
use crate::http::Failure;
use crate::patience::Deadline;
use crate::registry::Loaded;

/// The model of this name, otherwise `current`. Waits while it is loaded.
///
/// # Errors
/// [`Invalid`].
pub async fn chosen(services: &Services, name: Option<&str>, current: &Loaded) -> Result<Loaded, Invalid> {
    let param = "transcription.model";
    let Some(name) = name else { return Ok(current.clone()) };
    if !is_served(services, name) {
        return Err(Invalid::new("model_not_found", Some(param), "This model is not served."));
    }
    let deadline = Deadline::after(services.processing_timeout);
    let chosen = services.models.choose(Some(name), Some(deadline)).await;
    chosen.map_err(|unavailable| Invalid::value(param, Failure::from(unavailable).message()))
}

/// Makes the whole update, or none of it.
///
/// # Errors
/// [`Invalid`].
pub fn update(
    services: &Services,
    model: &Loaded,
    settings: &mut Settings,
    update: &Update,
) -> Result<(), Invalid> {
    let can_diarize = model.live().can_diarize();
    let serves = |name: &str| is_served(services, name);
    settings.update(update, Server { model: model.model(), can_diarize, serves: &serves })
}
