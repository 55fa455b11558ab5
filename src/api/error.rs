//! Errors of each module over HTTP: status, code and a message for the client.
//!
//! | status | code                    | when |
//! |--------|-------------------------|------|
//! | 400    | INVALID_QUERY_PARAMETER | an invalid value of a parameter |
//! | 400    | INVALID_HEADER          | an invalid value of a header that the server reads |
//! | 400    | Bad Request             | a head that cannot be read; damaged or empty audio; JSON that is none; a language the model lacks; too many key terms |
//! | 400    | PAYLOAD_ERROR           | a body of `/v1/speak` that is no JSON with a `text`, or not UTF-8 |
//! | 400    | V2_MODEL_ON_V1_LISTEN_ENDPOINT | a conversational model (`flux-…`) on `/v1/listen` |
//! | 400    | V1_MODEL_ON_V2_LISTEN_ENDPOINT | one of the wire format's other models on `/v2/listen` |
//! | 400    | MODEL_TOO_LARGE         | a model that needs more memory than there is |
//! | 400    | REMOTE_CONTENT_ERROR    | a URL that may not or could not be fetched |
//! | 401    | INVALID_AUTH            | no key, no such key, or not presented as one |
//! | 400    | INVALID_JSON            | a JSON body of management or of a grant that cannot be read, or an invalid member |
//! | 403    | INSUFFICIENT_PERMISSIONS | the key lacks the scope that is named; a token where a key is needed |
//! | 404    | NOT_FOUND               | no such path or model; no such job, speaker, key or request, or another organisation's |
//! | 404    | PROJECT_NOT_FOUND       | another organisation's project, or none |
//! | 405    | METHOD_NOT_ALLOWED      | with `Allow` |
//! | 408    | REQUEST_TIMEOUT         | a body that came too slowly |
//! | 409    | NAME_TAKEN              | a speaker of this name is enrolled |
//! | 409    | LAST_MANAGING_KEY       | no other key of the organisation could make keys |
//! | 411    | LENGTH_REQUIRED         | a POST with neither a length nor chunks |
//! | 413    | PAYLOAD_TOO_LARGE       | more bytes than are taken, sent or fetched |
//! | 413    | Payload Too Large       | a text of more characters than are spoken at once |
//! | 414    | URI_TOO_LONG            | |
//! | 415    | UNSUPPORTED_MEDIA_TYPE  | audio of no known format; an encoded body; a form |
//! | 422    | AUDIO_TOO_LONG          | more seconds than are taken; nothing is ever cut silently |
//! | 422    | IDEMPOTENCY_KEY_REUSED  | a key under which something else was submitted |
//! | 422    | NO_SPEECH               | a clip to enrol in which no one speaks |
//! | 422    | CLIP_TOO_SHORT          | a clip to enrol with too little speech |
//! | 422    | SEVERAL_SPEAKERS        | a clip to enrol in which more than one person speaks |
//! | 422    | TOO_MANY_SPEAKERS       | the organisation has enrolled as many as it may |
//! | 422    | TOO_MANY_KEYS           | the organisation has as many keys as it may |
//! | 426    | UPGRADE_REQUIRED        | GET where a WebSocket is due; with `Upgrade` |
//! | 429    | TOO_MANY_REQUESTS       | the organisation holds its share of the server, or the key is at a limit of its own; with `Retry-After` |
//! | 431    | HEADERS_TOO_LARGE       | |
//! | 500    | INTERNAL_ERROR          | a fault of the server; the log knows more |
//! | 500    | AUDIO_LOST              | to receivers of callbacks only: the job's audio was lost or altered on the server |
//! | 501    | NOT_IMPLEMENTED         | understood, and not served by this build |
//! | 503    | Service Unavailable     | busy, stopping, not working, or no room for another job, with `Retry-After` |
//! | 503    | MODEL_LOADING           | a model that is being loaded, with `Retry-After` |
//! | 503    | MODEL_NO_MEMORY         | a model without memory beside those in use, with `Retry-After` |
//! | 503    | MODEL_FAILED            | a model that could not be loaded, with `Retry-After` |
//! | 504    | PROCESSING_TIMEOUT      | not done within the time for a request |
//!
//! Codes and messages that exist in the wire format are used word for word.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};

use super::language::UnknownLanguage;
use super::parameters::{self, CallbackProblem};
use super::speak::format::Unsupported;
use crate::http::Failure;
use crate::{audio, engine, fetch, jobs, keys, live, speakers, speech, usage, voices};

/// While the server stops: about as long as a restart takes.
const STOPPING_RETRY: Duration = Duration::from_secs(5);
const READER_RETRY: Duration = Duration::from_secs(1);
/// About one sentence of a voice that is slow because there is much to do.
const VOICE_RETRY: Duration = Duration::from_secs(30);
/// While another program locks the job database, or memory is short: about one such wait.
const DATABASE_RETRY: Duration = Duration::from_secs(5);

/// While the engine hangs or fails: it retries every second, and may be restarted.
const UNWELL_RETRY: Duration = Duration::from_secs(15);

fn bad_request(message: &'static str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message)
}

/// The message in a header as well: browsers and some SDKs show nothing else of a refused handshake.
pub(super) fn of_handshake(failure: Failure) -> Failure {
    match HeaderValue::from_str(failure.message()) {
        Ok(message) => failure.header(HeaderName::from_static("dg-error"), message),
        Err(_) => failure,
    }
}

/// A model that is served on `/v2/listen` alone.
pub(super) fn conversational() -> Failure {
    Failure::new(
        StatusCode::BAD_REQUEST,
        "V2_MODEL_ON_V1_LISTEN_ENDPOINT",
        "Flux models are not supported on the `/v1/listen` endpoint. Please use `/v2/listen`.",
    )
}

/// A model that is served on `/v1/listen` alone.
pub(super) fn not_conversational() -> Failure {
    Failure::new(
        StatusCode::BAD_REQUEST,
        "V1_MODEL_ON_V2_LISTEN_ENDPOINT",
        "Only flux models are supported on the `/v2/listen` endpoint. Please use `/v1/listen`.",
    )
}

pub(super) fn invalid_json() -> Failure {
    bad_request("Content-type was application/json, but we could not process the JSON payload.")
}

/// `problem` names what was expected where; it may quote the client, and goes to no log.
pub(super) fn invalid_body(problem: &serde_json::Error) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_JSON", format!("Invalid JSON submitted: {problem}."))
}

/// An invalid value of a member of a JSON body.
pub(super) fn invalid_member(name: &str, problem: &str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_JSON", format!("Invalid value of `{name}`: {problem}."))
}

/// An invalid value of a parameter that only management has.
pub(super) fn invalid_query(name: &str, problem: &str) -> Failure {
    let message = format!("Failed to deserialize query parameters: `{name}` {problem}");
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_QUERY_PARAMETER", message)
}

/// Also for another organisation's.
pub(super) fn no_such_project() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "PROJECT_NOT_FOUND", "Project not found.")
}

/// `thing` begins with a capital.
pub(super) fn nothing_such(thing: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", format!("{thing} not found."))
}

pub(super) fn invalid_header(name: &'static str, problem: &str) -> Failure {
    Failure::new(
        StatusCode::BAD_REQUEST,
        "INVALID_HEADER",
        format!("Invalid value of header `{name}`: {problem}."),
    )
}

/// `parameter` asks for speakers, and there are no models for that.
pub(super) fn no_speakers(parameter: &str) -> Failure {
    let message = format!("`{parameter}` is not available: this server has no speaker models.");
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_QUERY_PARAMETER", message)
        .because("there are no speaker models; `./setup speakers` brings them")
}

/// `parameter` shows in words, which the request leaves out.
pub(super) fn needs_words(parameter: &str) -> Failure {
    let message = format!("`{parameter}` requires word timestamps, which `timestamps: false` leaves out.");
    Failure::new(StatusCode::BAD_REQUEST, "INVALID_QUERY_PARAMETER", message)
}

pub(super) fn length_required() -> Failure {
    Failure::new(
        StatusCode::LENGTH_REQUIRED,
        "LENGTH_REQUIRED",
        "A body is required: audio, or JSON with a `url`. Send it with Content-Length or in chunks.",
    )
}

pub(super) fn encoded_body() -> Failure {
    Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "Bodies with a Content-Encoding are not accepted: send the audio unencoded.",
    )
}

pub(super) fn form_body() -> Failure {
    Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "A form is not taken: send the audio itself as the body.",
    )
}

/// The client learns which kind of address is accepted; the log tells operators which setting allows others.
pub(super) fn invalid_callback(error: &fetch::Error) -> Failure {
    let (problem, cause) = match error {
        fetch::Error::InvalidUrl => (CallbackProblem::TooLong, "the callback is too long"),
        _ => (
            CallbackProblem::NotPublic,
            "the callback leads to an address or a port that is not public; `fetch.allow` lists those that may be \
             reached all the same",
        ),
    };
    Failure::from(parameters::Error::Callback(problem)).because(cause)
}

pub(super) fn no_such_job() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such job.")
}

/// Voices cannot be enrolled without the models that tell speakers apart.
pub(super) fn no_enrolment() -> Failure {
    not_implemented("Speakers are not enrolled here: this server has no speaker models.")
        .because("there are no speaker models; `./setup speakers` brings them")
}

pub(super) fn no_such_speaker() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such speaker.")
}

pub(super) fn no_audio() -> Failure {
    audio::Error::Empty.into()
}

/// Delivered to the receiver, since nothing else can be done with the job.
pub(super) fn audio_lost() -> Failure {
    Failure::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "AUDIO_LOST",
        "The server lost the audio of this job, or it was altered on its disk. Send it again.",
    )
}

pub(super) fn not_implemented(what: &'static str) -> Failure {
    Failure::new(StatusCode::NOT_IMPLEMENTED, "NOT_IMPLEMENTED", what)
}

pub(super) fn stopping() -> Failure {
    Failure::busy(STOPPING_RETRY)
}

/// Asking this node again will not help, so there is no `Retry-After`.
pub(super) fn no_model() -> Failure {
    Failure::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Service Unavailable",
        "This node has no model: it takes requests with `callback`. Please send others to another node.",
    )
    .because("this node has no model")
}

impl From<live::Full> for Failure {
    fn from(full: live::Full) -> Self {
        let failure = if full.is_over_share { Self::too_many } else { Self::busy };
        failure(full.retry_after).because(full)
    }
}

impl From<parameters::Error> for Failure {
    fn from(error: parameters::Error) -> Self {
        let message = match error {
            parameters::Error::KeytermTokens => {
                return Self::new(StatusCode::BAD_REQUEST, "Bad Request", error.to_string());
            }
            parameters::Error::Callback(_) => error.to_string(),
            error => format!("Failed to deserialize query parameters: {error}"),
        };
        Self::new(StatusCode::BAD_REQUEST, "INVALID_QUERY_PARAMETER", message)
    }
}

impl From<UnknownLanguage> for Failure {
    fn from(_: UnknownLanguage) -> Self {
        bad_request("No such model/language/tier combination found.").because("no such language")
    }
}

impl From<fetch::Error> for Failure {
    fn from(error: fetch::Error) -> Self {
        let message = error.to_string();
        match error {
            fetch::Error::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message)
            }
            fetch::Error::NotRoutable => {
                Self::new(StatusCode::BAD_REQUEST, "REMOTE_CONTENT_ERROR", message).because(
                    "the URL leads to an address or a port that is not public; `fetch.allow` lists those that may \
                     be reached all the same",
                )
            }
            fetch::Error::Unresolvable => {
                Self::new(StatusCode::BAD_REQUEST, "REMOTE_CONTENT_ERROR", message)
                    .because("the URL's host has no address at present")
            }
            _ => Self::new(StatusCode::BAD_REQUEST, "REMOTE_CONTENT_ERROR", message),
        }
    }
}

impl From<Unsupported> for Failure {
    fn from(error: Unsupported) -> Self {
        let message = format!("Unsupported audio format: {error}");
        Self::new(StatusCode::BAD_REQUEST, "INVALID_QUERY_PARAMETER", message)
    }
}

impl From<speech::Full> for Failure {
    fn from(full: speech::Full) -> Self {
        Self::refused(full.refused, full.retry_after)
    }
}

impl From<speech::SayError> for Failure {
    fn from(error: speech::SayError) -> Self {
        match error {
            speech::SayError::Unspoken(late @ speech::Unspoken::TooLate) => {
                Self::busy(VOICE_RETRY).because(late)
            }
            speech::SayError::Unspoken(error) => Self::internal(error),
            speech::SayError::TooLate => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "PROCESSING_TIMEOUT",
                "The text was not spoken within the time limit for a request.",
            ),
        }
    }
}

impl From<jobs::Error> for Failure {
    fn from(error: jobs::Error) -> Self {
        match error {
            jobs::Error::Full { retry_after } => Self::busy(retry_after).because(error),
            jobs::Error::OverShare { retry_after } => Self::too_many(retry_after).because(error),
            jobs::Error::Away { retry_after } => Self::busy(retry_after).because(error),
            jobs::Error::Broker(_) => Self::busy(DATABASE_RETRY).because(error),
            jobs::Error::Exhausted(_) => Self::busy(DATABASE_RETRY).because(error),
            jobs::Error::Conflict => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "IDEMPOTENCY_KEY_REUSED",
                "Something else was submitted under the same `Idempotency-Key`.",
            ),
            error => Self::internal(error),
        }
    }
}

impl From<keys::Error> for Failure {
    fn from(error: keys::Error) -> Self {
        let message = error.to_string();
        match error {
            keys::Error::Label => invalid_member("comment", &message),
            keys::Error::Tags => invalid_member("tags", &message),
            keys::Error::NoScope => invalid_member("scopes", &message),
            keys::Error::Expired | keys::Error::Endless => invalid_member("expiration_date", &message),
            keys::Error::Name => invalid_member("name", &message),
            keys::Error::LimitRange | keys::Error::Shared { .. } => invalid_member("limits", &message),
            keys::Error::Escalation => Self::new(
                StatusCode::FORBIDDEN,
                "INSUFFICIENT_PERMISSIONS",
                format!("User does not have sufficient permissions: {message}."),
            ),
            keys::Error::TooMany => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "TOO_MANY_KEYS",
                format!("No key was made: {message}. Delete one first."),
            ),
            keys::Error::LastManager => Self::new(
                StatusCode::CONFLICT,
                "LAST_MANAGING_KEY",
                format!("The key was not deleted: {message}. Make one of the scope `keys:write` first."),
            ),
            error => Self::internal(error),
        }
    }
}

impl From<usage::Error> for Failure {
    fn from(error: usage::Error) -> Self {
        match error {
            usage::Error::Busy => Self::too_many(READER_RETRY).because(error),
            error => Self::internal(error),
        }
    }
}

impl From<voices::Error> for Failure {
    fn from(error: voices::Error) -> Self {
        match error {
            voices::Error::Name => Self::new(
                StatusCode::BAD_REQUEST,
                "INVALID_QUERY_PARAMETER",
                format!(
                    "Failed to deserialize query parameters: `name` must have 1 to {} printable characters",
                    voices::NAME_CHARACTERS_MAX
                ),
            ),
            voices::Error::NameTaken => Self::new(
                StatusCode::CONFLICT,
                "NAME_TAKEN",
                "A speaker of this name is enrolled. Delete that one first, or choose another name.",
            ),
            voices::Error::Full { most } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "TOO_MANY_SPEAKERS",
                format!("An organisation may enrol {most} speakers. Delete one first."),
            ),
            error => Self::internal(error),
        }
    }
}

impl From<speakers::Error> for Failure {
    fn from(error: speakers::Error) -> Self {
        Self::internal(error)
    }
}

impl From<voices::Unfit> for Failure {
    fn from(unfit: voices::Unfit) -> Self {
        let code = match unfit {
            voices::Unfit::NoSpeech => "NO_SPEECH",
            voices::Unfit::TooShort { .. } => "CLIP_TOO_SHORT",
            voices::Unfit::SeveralSpeakers => "SEVERAL_SPEAKERS",
        };
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, unfit.to_string())
    }
}

const SUPPORTED: &str = "Supported are MP3, MP2, AAC, ALAC, FLAC, WAV, AIFF, CAF, OGG (Opus, Vorbis, FLAC, Speex), \
    WebM, Matroska, M4A, MP4, 3GP and AMR, and raw audio with `encoding`, such as `encoding=s16le`.";

impl From<audio::Error> for Failure {
    fn from(error: audio::Error) -> Self {
        match error {
            audio::Error::Unsupported(found) => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UNSUPPORTED_MEDIA_TYPE",
                format!("What was sent is {found}, which is not supported. {SUPPORTED}"),
            ),
            audio::Error::TooLong { limit_seconds } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "AUDIO_TOO_LONG",
                format!("The audio is longer than the {limit_seconds} seconds that one request may hold."),
            ),
            audio::Error::Busy | audio::Error::Stopped => Self::busy(READER_RETRY).because(error),
            // The wire format has one text for both.
            error @ (audio::Error::Corrupt(_) | audio::Error::Empty) => {
                bad_request("Bad Request: failed to process audio: corrupt or unsupported data")
                    .because(error)
            }
        }
    }
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Overloaded { retry_after } => {
                Self::busy(retry_after).because(error).or_elsewhere()
            }
            engine::Error::OverShare { retry_after } => Self::too_many(retry_after).because(error),
            engine::Error::Unwell => Self::busy(UNWELL_RETRY).because(error).or_elsewhere(),
            engine::Error::ShuttingDown => Self::busy(STOPPING_RETRY).because(error),
            engine::Error::DeadlineExceeded => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "PROCESSING_TIMEOUT",
                "The audio was not transcribed within the time limit for a request.",
            ),
            engine::Error::UnknownLanguage(code) => UnknownLanguage(code).into(),
            error @ engine::Error::EnglishOnly(_) => {
                bad_request("No such model/language/tier combination found.").because(error)
            }
            error @ (engine::Error::ModelFailed(_) | engine::Error::WindowTooLong) => Self::internal(error),
        }
    }
}
