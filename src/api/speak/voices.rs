//! The voice that speaks, by the name that a client gives.

use hyper::StatusCode;

use crate::api::error;
use crate::api::services::Services;
use crate::http::Failure;

/// The installed voice for a name, or the default one without a name; `None` if no installed voice has that name.
///
/// # Errors
/// 501 without a voice.
pub fn voice_of(services: &Services, name: Option<&str>) -> Result<Option<String>, Failure> {
    let voices = services.speech.voices();
    let default = voices.first().ok_or_else(|| {
        error::not_implemented("Text is not spoken here: this server has no voice.")
            .because("there is no voice; `./setup voice` brings one")
    })?;
    Ok(match name {
        None => Some((*default).to_owned()),
        Some(name) => services.speech.find(name).map(str::to_owned),
    })
}

/// As [`voice_of`], for a client of the wire format.
///
/// # Errors
/// 400 if no installed voice has that name; 501 without voices.
pub fn voice(services: &Services, name: Option<&str>) -> Result<String, Failure> {
    let refuse = || {
        let message = "Bad Request: No such model/version combination found.";
        let message = match name.and_then(|name| services.speech.unread(name)) {
            Some(reason) => format!("{message} The voice is installed. {reason}"),
            None => message.to_owned(),
        };
        Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message).because("no such voice")
    };
    voice_of(services, name)?.ok_or_else(refuse)
}
