//! The answer to a text: its speech, sent while the rest of it is still being spoken.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use uuid::Uuid;

use super::super::readiness::Active;
use super::super::services::Services;
use crate::http::{Failure, Response};
use crate::share::{Asker, Turn};
use crate::speech::encode::{self, Encoder, Format};
use crate::speech::{Manner, SayError, Utterance, VOICE_RATE};
use crate::telemetry::metrics;
use crate::usage::{self, Ending, Work};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

const DG_MODEL_NAME: HeaderName = HeaderName::from_static("dg-model-name");
const DG_MODEL_UUID: HeaderName = HeaderName::from_static("dg-model-uuid");
const DG_CHAR_COUNT: HeaderName = HeaderName::from_static("dg-char-count");
/// The speech of a text without a word, such as `…`: a tenth of a second of silence.
const SILENCE: usize = VOICE_RATE as usize / 10;

/// A text to be spoken, checked.
pub struct Order {
    pub tenant: u64,
    /// `None`: a job's.
    pub connection: Option<SocketAddr>,
    pub text: String,
    /// The voice that speaks.
    pub voice: String,
    pub speed: f32,
    pub format: Format,
}

/// Speaks the text of `order`. The status is decided by its first piece.
///
/// # Errors
/// 429, 500, 503, 504.
pub async fn speak(services: &Services, order: Order) -> Result<Response, Failure> {
    let content_type = order.format.content_type();
    let (speaking, mut headers) = begin(services, order).await?;
    headers.insert(CONTENT_TYPE, value(&content_type));
    let mut response = Response::new(StreamBody::new(speaking.frames()).boxed_unsync());
    *response.headers_mut() = headers;
    Ok(response)
}

/// Speaks the first piece of `order`: the rest, and the headers that say who speaks.
///
/// # Errors
/// As [`speak`].
pub async fn begin(services: &Services, order: Order) -> Result<(Speaking, HeaderMap), Failure> {
    let Order { tenant, connection, text, voice, speed, format } = order;
    let (begun, active) = (Instant::now(), services.activity.begin());
    let manner = Manner { voice: Some(voice.clone()), speed };
    let mut utterance = services.speech.begin((tenant, Asker::new(&text, connection)), &text, manner)?;
    let mut first = first(&mut utterance).await?;
    // A file that says how long it is waits for the whole of a short text.
    while format.has_length() && utterance.is_last_piece() && !utterance.is_over() {
        first.extend(utterance.next().await.transpose()?.unwrap_or_default());
    }
    metrics::TTS_FIRST_AUDIO.with(&[("surface", "request")]).record(begun.elapsed().as_secs_f64());
    let whole = utterance.is_over().then_some(first.len());
    let encoder = Encoder::new(format, whole).map_err(Failure::internal)?;
    let characters = text.chars().count();
    usage::worked(Work { characters: characters as u64, model: Some(model(&voice)), ..Work::default() });
    let headers = HeaderMap::from_iter([
        (DG_CHAR_COUNT, characters.into()),
        (DG_MODEL_UUID, value(&uuid(&voice).to_string())),
        (DG_MODEL_NAME, value(&voice)),
    ]);
    let speaking = Speaking {
        utterance,
        next: Some(first),
        encoder: Some(encoder),
        samples: 0,
        ending: Ending::of_current(),
        _active: active,
    };
    Ok((speaking, headers))
}

/// Speaks all of `order`: the audio of known length.
///
/// # Errors
/// As [`speak`].
pub async fn whole(services: &Services, order: Order) -> Result<Vec<u8>, Failure> {
    let Order { tenant, connection, text, voice, speed, format } = order;
    let manner = Manner { voice: Some(voice.clone()), speed };
    let mut utterance = services.speech.begin((tenant, Asker::new(&text, connection)), &text, manner)?;
    let mut samples = first(&mut utterance).await?;
    while let Some(more) = utterance.next().await {
        samples.extend(more?);
    }
    let encode = move || {
        let mut encoder = Encoder::new(format, Some(samples.len()))?;
        let mut bytes = encoder.push(&samples)?;
        bytes.extend(encoder.finish()?);
        Ok::<_, encode::Error>(bytes)
    };
    let encoded = tokio::task::spawn_blocking(encode).await.map_err(Failure::internal)?;
    let bytes = encoded.map_err(Failure::internal)?;
    let characters = text.chars().count() as u64;
    usage::worked(Work { characters, model: Some(model(&voice)), ..Work::default() });
    Ok(bytes)
}

/// A voice, as the log of requests has it.
pub fn model(voice: &str) -> usage::Model {
    usage::Model { id: uuid(voice), name: voice.to_owned() }
}

/// The number of a voice, which follows from its name.
pub fn uuid(voice: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, voice.as_bytes())
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// The first samples of a text, silence if it has no word.
async fn first(utterance: &mut Utterance) -> Result<Vec<f32>, Failure> {
    while let Some(samples) = utterance.next().await {
        let samples = samples?;
        if !samples.is_empty() {
            return Ok(samples);
        }
    }
    Ok(vec![0.0; SILENCE])
}

/// Speech on its way to a client.
pub struct Speaking {
    utterance: Utterance,
    /// Samples that are not yet encoded.
    next: Option<Vec<f32>>,
    /// None: all was sent.
    encoder: Option<Encoder>,
    /// Spoken so far, at [`VOICE_RATE`].
    samples: u64,
    ending: Ending,
    _active: Active,
}

impl Speaking {
    /// Made when they are asked for: a client that takes nothing in, or has left, causes no more work.
    pub fn frames(self) -> impl Stream<Item = std::io::Result<Frame<Bytes>>> + Send {
        stream::unfold(self, |mut speaking| async move {
            let bytes = speaking.bytes().await.transpose()?;
            let frame = bytes.map(|bytes| Frame::data(Bytes::from(bytes))).map_err(|error| {
                tracing::warn!(error = &*error, "speech broke off");
                std::io::Error::other("speech broke off")
            });
            Some((frame, speaking))
        })
    }

    /// Seconds of speech so far.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(VOICE_RATE)
    }

    /// The next bytes; none after the last.
    ///
    /// # Errors
    /// The speech broke off.
    pub async fn bytes(&mut self) -> Result<Option<Vec<u8>>, BoxError> {
        let bytes = self.encode_next().await;
        match &bytes {
            Ok(_) if self.encoder.is_some() => {}
            Ok(_) => self.ending.complete(),
            Err(error) => self.ending.broke_off(status_of(&**error)),
        }
        bytes
    }

    async fn encode_next(&mut self) -> Result<Option<Vec<u8>>, BoxError> {
        while let Some(encoder) = self.encoder.take() {
            let samples = match self.next.take() {
                Some(samples) => Some(samples),
                None => self.utterance.next().await.transpose()?,
            };
            self.samples += samples.as_ref().map_or(0, |samples| samples.len() as u64);
            let turn = self.utterance.turn().await?;
            let (encoder, bytes) = encoded(encoder, samples, turn).await?;
            self.encoder = encoder;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// The status of an answer that ends so before it has begun.
fn status_of(error: &(dyn std::error::Error + Send + Sync + 'static)) -> u16 {
    let failure = error.downcast_ref::<SayError>().copied().map(Failure::from);
    failure.map_or(StatusCode::INTERNAL_SERVER_ERROR, |failure| failure.status()).as_u16()
}

/// Encodes `samples`, or ends the stream. Some codecs take a good part of real time, so none runs on a task's thread,
/// and each waits for its `turn`.
async fn encoded(
    mut encoder: Encoder,
    samples: Option<Vec<f32>>,
    turn: Turn,
) -> Result<(Option<Encoder>, Vec<u8>), BoxError> {
    let work = move || -> Result<_, encode::Error> {
        let _turn = turn;
        match samples {
            Some(samples) => {
                let bytes = encoder.push(&samples)?;
                Ok((Some(encoder), bytes))
            }
            None => Ok((None, encoder.finish()?)),
        }
    };
    Ok(tokio::task::spawn_blocking(work).await??)
}
