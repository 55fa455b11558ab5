//! A speech interface like OpenAI's: `POST {base}/audio/speech`.

use futures_util::stream::{self, StreamExt as _};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use serde_json::json;
use url::Url;

use super::config::Config;
use super::error::VoiceError;
use super::synthesizer::{Failed, Line, Part, Parts, Speaker, Synthesizer};
use super::wav::{AUDIO_BYTES_MAX, VOICE_RATE, linear16, read_wav};
use crate::outbound;
use crate::secret::Secret;

/// Bytes of a part: 0.2 s. Interfaces send what they have, which may be a few samples.
const PART_BYTES: usize = VOICE_RATE as usize / 5 * 2;
/// Characters of a second of speech, to guess how much of a text was said.
const CHARACTERS_A_SECOND: f32 = 15.0;

pub struct Remote {
    client: Client,
    url: Url,
    key: Option<Secret>,
    model: String,
    speakers: Vec<Speaker>,
}

impl Remote {
    /// # Errors
    /// [`VoiceError::Address`], [`VoiceError::Client`].
    pub fn open(base: &str, config: &Config) -> Result<Self, VoiceError> {
        let mut url = Url::parse(base).map_err(|_| VoiceError::Address)?;
        url.path_segments_mut().map_err(|()| VoiceError::Address)?.pop_if_empty().extend(["audio", "speech"]);
        let first = if config.voice.is_empty() { UNNAMED } else { &config.voice };
        let names = std::iter::once(first).chain(config.voices.iter().map(String::as_str));
        let speakers = names.map(|name| Speaker { name: name.to_owned(), language: "" }).collect();
        Ok(Self {
            client: outbound::client()?,
            url,
            key: config.api_key.clone(),
            model: config.model.clone(),
            speakers,
        })
    }
}

/// The name of the interface's own voice, where the configuration names none.
const UNNAMED: &str = "endpoint";

impl Synthesizer for Remote {
    fn kind(&self) -> &'static str {
        "endpoint"
    }

    fn speakers(&self) -> &[Speaker] {
        &self.speakers
    }

    fn is_remote(&self) -> bool {
        true
    }

    /// Asks for `pcm`: 16-bit little-endian mono at [`VOICE_RATE`].
    fn speak(&self, line: Line) -> Parts {
        let first = self.speakers.first().map(|speaker| speaker.name.clone());
        let voice = line.voice.or(first).filter(|name| name != UNNAMED).unwrap_or_default();
        let seconds = line.text.chars().count() as f32 / CHARACTERS_A_SECOND / line.speed;
        let mut body = json!({
            "model": self.model, "voice": voice, "input": line.text, "response_format": "pcm",
        });
        // Interfaces that know no `speed` still serve the usual one.
        if line.speed != 1.0 {
            body["speed"] = json!(line.speed);
        }
        let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose());
        }
        let request = request.body(body.to_string());
        let begun = async move {
            let response = request.send().await.ok().filter(|response| response.status().is_success());
            let answer = response.map(|response| Answer {
                response,
                bytes: Vec::new(),
                taken: 0,
                expected: seconds * VOICE_RATE as f32 * 2.0,
                is_over: false,
            });
            match answer {
                None => stream::once(async { Err(Failed) }).boxed(),
                Some(answer) => stream::unfold(Some(answer), Answer::step).boxed(),
            }
        };
        stream::once(begun).flatten().boxed()
    }
}

/// An answer that is coming in.
struct Answer {
    response: Response,
    /// Not yet given out.
    bytes: Vec<u8>,
    /// Bytes that came.
    taken: usize,
    /// Bytes that may come in all.
    expected: f32,
    is_over: bool,
}

impl Answer {
    async fn step(this: Option<Self>) -> Option<(Result<Part, Failed>, Option<Self>)> {
        let mut answer = this?;
        match answer.part().await {
            Ok(part) => part.map(|part| (Ok(part), Some(answer))),
            Err(failed) => Some((Err(failed), None)),
        }
    }

    /// The next part; none after the last.
    async fn part(&mut self) -> Result<Option<Part>, Failed> {
        loop {
            let is_wav = self.bytes.starts_with(b"RIFF") && self.bytes.len() == self.taken;
            if !self.is_over && (is_wav || self.bytes.len() < PART_BYTES) {
                match self.response.chunk().await {
                    Ok(Some(chunk)) => {
                        self.taken += chunk.len();
                        if self.taken > AUDIO_BYTES_MAX {
                            return Err(Failed);
                        }
                        self.bytes.extend_from_slice(&chunk);
                    }
                    Ok(None) => self.is_over = true,
                    Err(_) => return Err(Failed),
                }
                continue;
            }
            if self.bytes.is_empty() {
                return Ok(None);
            }
            let samples = if is_wav {
                read_wav(&std::mem::take(&mut self.bytes)).ok_or(Failed)?
            } else {
                // Half a sample waits for its other half.
                let odd = self.bytes.split_off(self.bytes.len() & !1);
                linear16(&std::mem::replace(&mut self.bytes, odd))
            };
            let until = match self.is_over {
                true => {
                    self.bytes.clear();
                    1.0
                }
                false => ((self.taken - self.bytes.len()) as f32 / self.expected.max(1.0)).min(0.95),
            };
            return Ok(Some(Part { samples, until }));
        }
    }
}
