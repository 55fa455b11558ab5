//! Speakers that a request names, with a clip of each one's voice: `known_speaker_names` and `known_speaker_references`.

use std::time::SystemTime;

use data_encoding::BASE64;
use uuid::Uuid;

use super::super::decode::{Fetched, Origin, decode};
use super::super::services::Services;
use super::error::invalid;
use super::request::KnownSpeaker;
use crate::audio::{DecodeOptions, Limits};
use crate::engine::{self, Engine};
use crate::http::Failure;
use crate::patience::by;
use crate::speakers::{Diarization, Diarizer, Options};
use crate::transcribe::TranscribeOptions;
use crate::voices::{Voice, enrolled, identify};

const REFERENCES: &str = "known_speaker_references";
/// The length of a clip (openai/openai-openapi: 2 to 10 s), with tolerance.
const CLIP_SECONDS_MAX: f64 = 11.0;

/// The voices of `known`, for this request alone.
///
/// # Errors
/// 400 for a clip that is no data URL, not audio, or not of one voice; otherwise as for the file.
pub async fn voices(
    (services, engine): (&Services, &Engine),
    diarizer: &Diarizer,
    known: &[KnownSpeaker],
    options: &TranscribeOptions,
    origin: &Origin,
) -> Result<Vec<Voice>, Failure> {
    let limits =
        Limits { max_seconds: services.audio.max_seconds.min(CLIP_SECONDS_MAX), ..services.audio.clone() };
    let mut voices = Vec::with_capacity(known.len());
    for KnownSpeaker { name, clip } in known {
        let at_fault = |problem: &str| invalid(REFERENCES, format!("The clip of `{name}`: {problem}"));
        let bytes = bytes_of(clip).ok_or_else(|| at_fault("expected `data:audio/…;base64,…`."))?;
        let clip = Fetched { bytes: bytes.into(), held: Box::new(()) };
        let decode_options = DecodeOptions { raw: None, split_channels: false, limits: limits.clone() };
        let decoded =
            decode((services, engine), clip, decode_options, (options.tenant, options.deadline), origin)
                .await;
        let decoded = decoded.map_err(|failure| match failure.status().as_u16() {
            400 | 415 | 422 => at_fault("it is no audio of 2 to 10 seconds in a known format."),
            _ => failure,
        })?;
        let Some(sound) = decoded.decoded.channels.first() else { return Err(at_fault("it is empty.")) };
        let speaking = diarizer.for_tenant(options.tenant.0);
        let found = by(options.deadline, speaking.diarize(sound, &Options::default())).await;
        let found = found.ok_or(engine::Error::DeadlineExceeded)??;
        let embedding = enrolled(&found).map_err(|unfit| at_fault(&unfit.to_string()))?;
        let (id, created) = (Uuid::new_v4(), SystemTime::now());
        voices.push(Voice { id, name: name.clone(), created, embedding });
    }
    Ok(voices)
}

/// The names of the speakers of `found`, by their number.
pub fn names(voices: &[Voice], found: &Diarization) -> Vec<Option<String>> {
    let named = identify(voices, &found.voices).into_iter();
    named.map(|name| name.map(|name| name.name.to_string())).collect()
}

/// The bytes of a data URL (RFC 2397) in Base64.
fn bytes_of(url: &str) -> Option<Vec<u8>> {
    let (media_type, data) = url.trim().strip_prefix("data:")?.split_once(',')?;
    media_type.to_ascii_lowercase().ends_with(";base64").then_some(())?;
    BASE64.decode(data.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_urls_in_base64_are_read() {
        assert_eq!(bytes_of("data:audio/wav;base64,UklGRg==").as_deref(), Some(&b"RIFF"[..]));
        assert_eq!(bytes_of(" data:;BASE64,").as_deref(), Some(&b""[..]));
        for other in [
            "",
            "UklGRg==",
            "data:audio/wav,RIFF",
            "data:audio/wav;base64",
            "data:audio/wav;base64,%%",
            "https://a/b.wav",
        ] {
            assert_eq!(bytes_of(other), None, "{other}");
        }
    }
}
