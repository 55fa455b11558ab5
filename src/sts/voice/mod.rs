//! The agent's voice: an interface of OpenAI's form where one is configured, otherwise Kokoro where it is
//! installed, otherwise a program of this machine, otherwise none — and then the snapshot says so.

mod kokoro;
mod phonemes;
mod pieces;
mod program;
mod wording;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use url::Url;

use super::config::{EmbeddedVoice, Secret, Speech};
use super::outbound;
use crate::audio::RateConverter;
use crate::onnx;
use kokoro::Kokoro;
use program::Program;
use wording::Wording;

/// Samples a second of all speech on its way out; what speech interfaces give without being asked.
pub const VOICE_RATE: u32 = 24_000;

/// How long one sentence may take.
const SENTENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long Kokoro may take where nothing else can say it: on a crowded machine late is better than never.
const LAST_TIMEOUT: Duration = Duration::from_secs(60);
/// A sentence has no more audio than this: a minute.
const AUDIO_BYTES_MAX: usize = 60 * VOICE_RATE as usize * 4;
/// Greetings and prompts come again and again.
const CACHED_MAX: usize = 64;
const CACHED_CHARACTERS_MAX: usize = 300;

#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    #[error("`sts.speech.base_url` is no http or https address")]
    Address,
    #[error("`{0}` is not installed")]
    Missing(&'static str),
    #[error("the voice `{0}` is not one of Kokoro's names, such as `af_heart`")]
    Name(String),
    #[error("the voice cannot be read ({})", path.display())]
    Unreadable {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the voice has not {kokoro} rows", kokoro = kokoro::STYLES)]
    Malformed,
    #[error("the voice's model cannot be used (`./setup voice` installs it)")]
    Model(#[from] onnx::Error),
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Speaks sentences. Cheap handle.
#[derive(Clone)]
pub struct Voice(Arc<Speaker>);

struct Speaker {
    wording: Wording,
    remote: Option<Remote>,
    kokoro: Option<Kokoro>,
    /// Speaks where the others fail, too.
    program: Option<Program>,
    spoken: Mutex<HashMap<String, Arc<[f32]>>>,
}

struct Remote {
    client: Client,
    url: Url,
    key: Option<Secret>,
    model: String,
    voice: String,
}

impl Voice {
    /// `models`: the folder of models.
    ///
    /// # Errors
    /// [`VoiceError`].
    pub fn open(config: &Speech, models: &Path) -> Result<Self, VoiceError> {
        let remote = match &config.base_url {
            None => None,
            Some(base) => {
                let mut url = Url::parse(base).map_err(|_| VoiceError::Address)?;
                url.path_segments_mut()
                    .map_err(|()| VoiceError::Address)?
                    .pop_if_empty()
                    .extend(["audio", "speech"]);
                Some(Remote {
                    client: outbound::client()?,
                    url,
                    key: config.api_key.clone(),
                    model: config.model.clone(),
                    voice: config.voice.clone(),
                })
            }
        };
        let (kokoro, program) = match config.embedded {
            EmbeddedVoice::None => (None, None),
            EmbeddedVoice::Kokoro => (Some(Kokoro::open(models, &config.embedded_voice)?), None),
            EmbeddedVoice::Flite => (None, Some(Program::flite()?)),
            EmbeddedVoice::EspeakNg => (None, Some(Program::espeak_ng()?)),
            EmbeddedVoice::Auto => {
                let kokoro = Kokoro::open(models, &config.embedded_voice)
                    .inspect_err(|error| {
                        let error: &dyn std::error::Error = error;
                        tracing::info!(
                            error,
                            "voice agents speak without Kokoro: `./setup voice` installs it"
                        );
                    })
                    .ok();
                (kokoro, Program::flite().or_else(|_| Program::espeak_ng()).ok())
            }
        };
        let wording = Wording::new(&config.say_as);
        let voice = Self(Arc::new(Speaker { wording, remote, kokoro, program, spoken: Mutex::default() }));
        match voice.name() {
            "none" => {
                tracing::warn!(
                    "voice agents have no voice: run `./setup voice`, install flite, or set sts.speech"
                );
            }
            name => tracing::info!(voice = name, "voice agents speak"),
        }
        Ok(voice)
    }

    /// For the snapshot: `none` where the agent only writes.
    pub fn name(&self) -> &'static str {
        match (&self.0.remote, &self.0.kokoro, &self.0.program) {
            (Some(_), _, _) => "endpoint",
            (None, Some(_), _) => "kokoro",
            (None, None, Some(program)) => program.name,
            (None, None, None) => "none",
        }
    }

    /// A sentence in the pieces in which to [`speak`](Self::speak) it, so that its first is heard soon.
    pub fn pieces<'t>(&self, sentence: &'t str) -> Vec<&'t str> {
        // The others are quick, or have their own way of being so.
        if self.name() == "kokoro" { pieces::of(sentence) } else { vec![sentence] }
    }

    /// One sentence, or a piece of one, as samples at [`VOICE_RATE`]; none where no voice can say it.
    pub async fn speak(&self, text: &str) -> Arc<[f32]> {
        let cache = || self.0.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(samples) = cache().get(text) {
            return samples.clone();
        }
        let samples: Arc<[f32]> = self.synthesize(&self.0.wording.of(text)).await.unwrap_or_default().into();
        if !samples.is_empty() && text.len() <= CACHED_CHARACTERS_MAX {
            let mut spoken = cache();
            if spoken.len() >= CACHED_MAX {
                spoken.clear();
            }
            spoken.insert(text.to_owned(), samples.clone());
        }
        samples
    }

    async fn synthesize(&self, text: &str) -> Option<Vec<f32>> {
        if !text.contains(char::is_alphanumeric) {
            return None;
        }
        if let Some(remote) = &self.0.remote {
            match tokio::time::timeout(SENTENCE_TIMEOUT, remote.speak(text)).await {
                Ok(Some(samples)) => return Some(samples),
                _ => tracing::warn!("the speech interface failed"),
            }
        }
        if let Some(kokoro) = &self.0.kokoro {
            kokoro.prepare().await;
            let limit = if self.0.program.is_some() { SENTENCE_TIMEOUT } else { LAST_TIMEOUT };
            match tokio::time::timeout(limit, kokoro.speak(text.to_owned())).await {
                Ok(Some(samples)) => return Some(samples),
                _ => tracing::warn!(voice = "kokoro", "the voice failed, or took too long"),
            }
        }
        let program = self.0.program.as_ref()?;
        match tokio::time::timeout(SENTENCE_TIMEOUT, program.speak(text)).await {
            Ok(Ok(wav)) => read_wav(&wav),
            Ok(Err(error)) => {
                tracing::warn!(voice = program.name, %error, "the voice failed");
                None
            }
            Err(_) => {
                tracing::warn!(voice = program.name, "the voice took too long");
                None
            }
        }
    }
}

impl Remote {
    /// The interface's `pcm` is 16-bit little-endian mono at [`VOICE_RATE`].
    async fn speak(&self, text: &str) -> Option<Vec<f32>> {
        let body = json!({
            "model": self.model, "voice": self.voice, "input": text, "response_format": "pcm",
        });
        let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose());
        }
        let mut response = request.body(body.to_string()).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            if bytes.len() + chunk.len() > AUDIO_BYTES_MAX {
                return None;
            }
            bytes.extend_from_slice(&chunk);
        }
        if bytes.starts_with(b"RIFF") { read_wav(&bytes) } else { Some(linear16(&bytes)) }
    }
}

fn linear16(bytes: &[u8]) -> Vec<f32> {
    let (samples, _) = bytes.as_chunks::<2>();
    samples.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32_768.0).collect()
}

/// Mono 16-bit WAV, whatever its header says of the length: programs that write to a pipe do not know
/// it.
fn read_wav(bytes: &[u8]) -> Option<Vec<f32>> {
    let rest = bytes.strip_prefix(b"RIFF")?.get(4..)?.strip_prefix(b"WAVE")?;
    let mut rate_hz = None;
    let mut rest = rest;
    loop {
        let (head, body) = rest.split_at_checked(8)?;
        let (name, length) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        if name == b"fmt " {
            let [1, 0, 1, 0, a, b, c, d] = *body.get(..8)? else { return None };
            let [16, 0] = *body.get(14..16)? else { return None };
            rate_hz = Some(u32::from_le_bytes([a, b, c, d]));
        }
        if name == b"data" {
            let samples = linear16(body.get(..length).unwrap_or(body));
            let mut converter = RateConverter::new(rate_hz?, VOICE_RATE).ok()?;
            let mut output = converter.push(&samples);
            output.extend(converter.finish());
            return Some(if rate_hz == Some(VOICE_RATE) { samples } else { output });
        }
        rest = body.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_of_unknown_length_is_read() {
        let mut wav = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        wav.extend(VOICE_RATE.to_le_bytes());
        wav.extend([0, 0, 0, 0, 2, 0, 16, 0]);
        wav.extend(b"data\xff\xff\xff\x7f\0\x40\0\xc0");
        assert_eq!(read_wav(&wav), Some(vec![0.5, -0.5]));
        for at in 0..wav.len() - 4 {
            assert!(read_wav(&wav[..at]).is_none_or(|samples| samples.is_empty()), "{at}");
        }
    }

    #[tokio::test]
    async fn a_program_of_this_machine_speaks() {
        for (embedded, name) in [(EmbeddedVoice::Flite, "flite"), (EmbeddedVoice::EspeakNg, "espeak-ng")] {
            let Ok(voice) = Voice::open(&Speech { embedded, ..Speech::default() }, Path::new(".")) else {
                eprintln!("{name} is not installed: its voice is not tested");
                continue;
            };
            assert_eq!(voice.name(), name);
            let samples = voice.speak("We are open from nine to five.").await;
            let seconds = samples.len() as f64 / f64::from(VOICE_RATE);
            assert!((1.0..5.0).contains(&seconds), "{name}: {seconds} s");
            assert!(samples.iter().any(|sample| sample.abs() > 0.05), "{name} is silent");
        }
    }
}
