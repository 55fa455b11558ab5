//! A speech interface like OpenAI's: `POST {base}/audio/speech`.

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use url::Url;

use super::config::Config;
use super::error::VoiceError;
use super::wav::{AUDIO_BYTES_MAX, linear16, read_wav};
use crate::outbound;
use crate::secret::Secret;

pub struct Remote {
    client: Client,
    url: Url,
    key: Option<Secret>,
    model: String,
    voice: String,
}

impl Remote {
    /// The name of the configured voice.
    pub fn voice(&self) -> &str {
        &self.voice
    }

    /// # Errors
    /// [`VoiceError::Address`], [`VoiceError::Client`].
    pub fn open(base: &str, config: &Config) -> Result<Self, VoiceError> {
        let mut url = Url::parse(base).map_err(|_| VoiceError::Address)?;
        url.path_segments_mut().map_err(|()| VoiceError::Address)?.pop_if_empty().extend(["audio", "speech"]);
        Ok(Self {
            client: outbound::client()?,
            url,
            key: config.api_key.clone(),
            model: config.model.clone(),
            voice: config.voice.clone(),
        })
    }

    /// Asks for `pcm`: 16-bit little-endian mono at [`VOICE_RATE`](super::wav::VOICE_RATE).
    pub async fn speak(&self, text: &str, speed: f32) -> Option<Vec<f32>> {
        let mut body = json!({
            "model": self.model, "voice": self.voice, "input": text, "response_format": "pcm",
        });
        // Interfaces that know no `speed` still serve the usual one.
        if speed != 1.0 {
            body["speed"] = json!(speed);
        }
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
