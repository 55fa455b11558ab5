//! The agent's voice: an interface of OpenAI's form where one is configured, otherwise a program of this
//! machine, otherwise none — and then the snapshot says so.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use url::Url;

use super::config::{EmbeddedVoice, Secret, Speech};
use super::outbound;
use crate::audio::RateConverter;

/// Samples a second of all speech on its way out; what speech interfaces give without being asked.
pub const VOICE_RATE: u32 = 24_000;

/// How long one sentence may take.
const SENTENCE_TIMEOUT: Duration = Duration::from_secs(10);
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
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Speaks sentences. Cheap handle.
#[derive(Clone)]
pub struct Voice(Arc<Speaker>);

struct Speaker {
    remote: Option<Remote>,
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

/// A program that reads text and writes a WAV file.
struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: &'static [&'static str],
    /// Where it writes its files, one for each sentence: a folder of ours alone. None: to its output.
    folder: Option<PathBuf>,
}

/// It writes a header alone where its output is a pipe: the file's name is to follow.
const FLITE: (&str, &[&str], bool) = ("flite", &["-voice", "slt", "-f", "/dev/stdin", "-o"], true);
const ESPEAK: (&str, &[&str], bool) =
    ("espeak-ng", &["--stdin", "--stdout", "-v", "en-us", "-s", "160"], false);

impl Voice {
    /// # Errors
    /// [`VoiceError`].
    pub fn open(config: &Speech) -> Result<Self, VoiceError> {
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
        let find = |(name, arguments, writes_files): (&'static str, &'static [&'static str], bool)| {
            Program::find(name, arguments, writes_files).ok_or(VoiceError::Missing(name))
        };
        let program = match config.embedded {
            EmbeddedVoice::None => None,
            EmbeddedVoice::Flite => Some(find(FLITE)?),
            EmbeddedVoice::EspeakNg => Some(find(ESPEAK)?),
            EmbeddedVoice::Auto => find(FLITE).or_else(|_| find(ESPEAK)).ok(),
        };
        if remote.is_none() && program.is_none() {
            tracing::warn!("voice agents have no voice: install flite or espeak-ng, or set sts.speech");
        }
        Ok(Self(Arc::new(Speaker { remote, program, spoken: Mutex::default() })))
    }

    /// For the snapshot: `none` where the agent only writes.
    pub fn name(&self) -> &'static str {
        match (&self.0.remote, &self.0.program) {
            (Some(_), _) => "endpoint",
            (None, Some(program)) => program.name,
            (None, None) => "none",
        }
    }

    /// One sentence as samples at [`VOICE_RATE`]; none where no voice can say it.
    pub async fn speak(&self, text: &str) -> Arc<[f32]> {
        let cache = || self.0.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(samples) = cache().get(text) {
            return samples.clone();
        }
        let samples: Arc<[f32]> = self.synthesize(&speakable(text)).await.unwrap_or_default().into();
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

impl Program {
    fn find(name: &'static str, arguments: &'static [&'static str], writes_files: bool) -> Option<Self> {
        let folders = std::env::var_os("PATH")?;
        let path =
            std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())?;
        let folder = match writes_files {
            false => None,
            true => {
                let folder =
                    std::env::temp_dir().join(format!("verbatim-voice-{:016x}", rand::random::<u64>()));
                DirBuilder::new().mode(0o700).create(&folder).ok()?;
                Some(folder)
            }
        };
        Some(Self { name, path, arguments, folder })
    }

    /// Text goes in by a pipe: arguments are seen by every user of the machine.
    async fn speak(&self, text: &str) -> std::io::Result<Vec<u8>> {
        let file = self
            .folder
            .as_ref()
            .map(|folder| Written(folder.join(format!("{:016x}", rand::random::<u64>()))));
        let mut child = Command::new(&self.path)
            .args(self.arguments)
            .args(file.as_ref().map(|file| &file.0))
            .stdin(Stdio::piped())
            .stdout(if file.is_some() { Stdio::null() } else { Stdio::piped() })
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes()).await?;
        }
        let mut wav = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(AUDIO_BYTES_MAX as u64).read_to_end(&mut wav).await?;
        }
        child.wait().await?;
        if let Some(file) = &file {
            tokio::fs::File::open(&file.0).await?.take(AUDIO_BYTES_MAX as u64).read_to_end(&mut wav).await?;
        }
        Ok(wav)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // Empty by now; where it is not, the system clears it some day.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A file that goes when it has been read, or nobody waits for it any more.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
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

/// `text` as it is to be said: telephone numbers digit by digit, addresses without their scheme.
fn speakable(text: &str) -> String {
    let word = |word: &str| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_number = digits >= 7
            && word
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '(' | ')' | '.' | ',' | '?' | '!'));
        if is_number {
            let spelled: Vec<String> = word.chars().filter(char::is_ascii_digit).map(String::from).collect();
            let end = if word.ends_with(['.', '?', '!']) { "." } else { "" };
            return spelled.join(" ") + end;
        }
        word.trim_start_matches("https://").trim_start_matches("http://").replace(['*', '#', '`', '_'], " ")
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_and_markup_is_not_read() {
        assert_eq!(speakable("Call 415-555-2671."), "Call 4 1 5 5 5 5 2 6 7 1.");
        assert_eq!(speakable("See https://a.example/x  for **more**."), "See a.example/x for   more  .");
        assert_eq!(speakable("It costs 49.99, 24/7"), "It costs 49.99, 24/7");
    }

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
            let Ok(voice) = Voice::open(&Speech { embedded, ..Speech::default() }) else {
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
