//! A speech interface of OpenAI's form whose voice are the recordings that `./setup` has fetched: what it
//! is asked to say and somebody has said before, it says with their voice. Tests that hear the agent need
//! no program of the machine's.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::{Method, StatusCode};
use serde_json::Value;
use verbatim::audio::{Pcm, RateConverter};
use verbatim::engine::{Class, LanguageChoice, Task, TenantId};
use verbatim::http::{self, Failure, Response, Router};
use verbatim::secret::Secret;
use verbatim::speech::EmbeddedVoice;
use verbatim::sts::Recognize;
use verbatim::transcribe::{TranscribeOptions, Transcriber};
use verbatim::transcript::Transcript;

use super::doubles::Asked;
use super::room::clip;
use super::service::Setup;
use crate::server::Door;
use crate::speech::transcriber;

/// Sentences with a recording of each.
pub const MAN: (&str, &str) = ("He was not an ill-disposed young man.", "austen_0880.wav");
pub const AMIABLE: (&str, &str) = ("He might even have been made amiable himself.", "austen_0930.wav");
pub const FOX: (&str, &str) = ("The quick brown fox jumps over the lazy dog.", "en_quick_brown_fox.wav");
pub const COUNTRY: (&str, &str) = (
    "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country.",
    "jfk.wav",
);
const SPOKEN: [(&str, &str); 4] = [MAN, AMIABLE, FOX, COUNTRY];
/// Stands in for sentences without a recording: this much audio per letter.
const OTHER: &str = COUNTRY.1;
const SAMPLES_PER_LETTER: usize = 24_000 * 6 / 100;

pub struct Voice {
    pub asked: Asked,
    url: String,
    _door: Door,
}

impl Voice {
    pub async fn start() -> Self {
        let asked = Asked::default();
        let noted = asked.clone();
        let speak = move |request: http::Request| {
            let noted = noted.clone();
            async move {
                let body = request.body.collect().await?;
                let body = String::from_utf8(body.bytes().to_vec()).expect("text");
                let input = serde_json::from_str::<Value>(&body).expect("JSON")["input"].clone();
                noted.lock().expect("no test panics here").push((request.headers, body));
                let input = input.as_str().expect("a text");
                if input.starts_with("Unspeakable") {
                    return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "BROKEN", "No."));
                }
                Ok(response(linear16(input)))
            }
        };
        let router = Router::new().route(Method::POST, "/v1/audio/speech", speak);
        let door = Door::open(router, http::Config::default()).await;
        Self { asked, url: format!("http://{}/v1", door.address), _door: door }
    }

    /// The agent speaks by this voice, and no other.
    pub fn give(&self, setup: &mut Setup) {
        setup.config.speech.base_url = Some(self.url.clone());
        setup.config.speech.api_key = Some(Secret::from("voice-key"));
        setup.config.speech.model = "tts-1".into();
        setup.config.speech.voice = "alloy".into();
        setup.config.speech.embedded = EmbeddedVoice::None;
    }
}

fn response(bytes: Vec<u8>) -> Response {
    let body = Full::from(bytes).map_err(|never: std::convert::Infallible| match never {});
    Response::new(body.boxed_unsync())
}

fn linear16(text: &str) -> Vec<u8> {
    let known = SPOKEN.iter().find(|(said, _)| *said == text);
    let samples = clip(known.map_or(OTHER, |(_, file)| *file));
    let mut converter = RateConverter::new(16_000, 24_000).expect("usual rates");
    let mut samples = converter.push(samples.samples());
    samples.extend(converter.finish());
    if known.is_none() {
        samples.truncate(text.len() * SAMPLES_PER_LETTER);
    }
    samples.iter().flat_map(|sample| ((sample * 32_767.0) as i16).to_le_bytes()).collect()
}

/// Loaded aside: an agent that a test runs beside itself is not to stand still meanwhile.
async fn recogniser() -> Transcriber {
    tokio::task::spawn_blocking(transcriber).await.expect("no panic")
}

async fn transcript(pcm: Pcm) -> Transcript {
    let options = TranscribeOptions {
        language: LanguageChoice::Named("en".into()),
        task: Task::Transcribe,
        prompt: None,
        temperature: 0.0,
        bias: [].into(),
        class: Class::Live,
        tenant: TenantId(0),
        deadline: None,
    };
    recogniser().await.transcribe(pcm, &options).await.expect("transcribed")
}

/// The transcript of audio by this crate's recogniser.
pub async fn heard(pcm: Pcm) -> String {
    transcript(pcm).await.text()
}

/// Ears that use this crate's recogniser, except for utterances in `script`: there is no recording of what a speaker has
/// recorded every question.
pub fn ears(script: &[Option<&'static str>]) -> Recognize {
    let script = Arc::new(std::sync::Mutex::new(std::collections::VecDeque::from(script.to_vec())));
    Arc::new(move |utterance, _| {
        let scripted = script.lock().expect("no test panics here").pop_front().flatten();
        Box::pin(async move {
            match scripted {
                Some(text) => Ok(text.to_owned()),
                None => Ok(heard(utterance.pcm).await),
            }
        })
    })
}

/// «One two three four», cut out of a recording that counts to ten.
pub async fn one_to_four() -> Vec<i16> {
    let counting = clip("en_counting.wav");
    let transcript = transcript(counting.clone()).await;
    let words: Vec<_> = transcript.words().collect();
    let five = words.get(4).expect("ten words").start;
    let end = ((five - 0.05) * 16_000.0) as usize;
    super::room::turn(&counting.samples()[..end])
}

/// The wait for something that takes a model.
pub async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), work).await.expect("it comes about")
}
