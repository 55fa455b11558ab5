//! The subject of a measurement: the engine in this process, or a server.

use std::collections::HashMap;

use anyhow::{Context, bail};
use bytes::Bytes;

use crate::api::{Parameters, language};
use crate::audio::{self, DecodeOptions};
use crate::config::Config;
use crate::engine;
use crate::telemetry::metrics;
use crate::transcribe::{TranscribeOptions, Transcriber};

pub enum Subject {
    InProcess { transcriber: Transcriber, limits: audio::Limits },
    Server { client: reqwest::Client, url: String, key: String },
}

/// The answer for one file.
pub enum Answer {
    Heard {
        text: String,
        audio_seconds: f64,
    },
    /// 503: the server is full.
    Refused,
}

/// Counts since the subject's start, if it reports them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub windows: Option<f64>,
    pub tokens: Option<f64>,
    pub peak_bytes: Option<f64>,
}

impl Subject {
    pub async fn in_process(mut config: Config) -> anyhow::Result<Self> {
        // The number of files in progress bounds the work already, so the engine need not refuse any.
        config.engine =
            engine::Config { stall_seconds: config.engine.stall_seconds, ..engine::Config::unbounded() };
        let transcriber = crate::app::transcriber(&config).await?;
        Ok(Self::InProcess { transcriber, limits: config.audio })
    }

    pub fn server(url: &str, key: String) -> anyhow::Result<Self> {
        // Fails if one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self::Server { client, url: url.trim_end_matches('/').to_owned(), key })
    }

    pub fn name(&self) -> String {
        match self {
            Self::InProcess { transcriber, .. } => {
                let model = transcriber.model();
                format!("in process: {}, {}", model.name, model.device)
            }
            Self::Server { url, .. } => format!("server: {url}"),
        }
    }

    /// # Errors
    /// Audio can't be read, the model fails, or the status is neither 200 nor 503.
    pub async fn transcribe(&self, bytes: Bytes, language: Option<&str>) -> anyhow::Result<Answer> {
        match self {
            Self::InProcess { transcriber, limits } => {
                let asked = Parameters { language: language.map(str::to_owned), ..Parameters::default() };
                let options = TranscribeOptions::new(language::choice(&asked, transcriber.model())?);
                let decoding = DecodeOptions { raw: None, split_channels: false, limits: limits.clone() };
                let decoded = tokio::task::spawn_blocking(move || audio::decode(bytes, &decoding)).await??;
                let pcm = decoded.channels.into_iter().next().context("no audio")?;
                let transcript = transcriber.transcribe(pcm, &options).await?;
                Ok(Answer::Heard { text: transcript.text(), audio_seconds: decoded.duration_seconds })
            }
            Self::Server { client, url, key } => {
                let query = language.map(|language| format!("?language={language}")).unwrap_or_default();
                let request = client.post(format!("{url}/v1/listen{query}")).bearer_auth(key).body(bytes);
                let response = request.send().await?;
                match response.status().as_u16() {
                    200 => {}
                    503 => return Ok(Answer::Refused),
                    status => bail!("the server answered {status}"),
                }
                let body: serde_json::Value = serde_json::from_slice(&response.bytes().await?)?;
                let text = body.pointer("/results/channels/0/alternatives/0/transcript");
                let duration = body.pointer("/metadata/duration");
                match (text.and_then(|text| text.as_str()), duration.and_then(|seconds| seconds.as_f64())) {
                    (Some(text), Some(audio_seconds)) => {
                        Ok(Answer::Heard { text: text.to_owned(), audio_seconds })
                    }
                    _ => bail!("the server's answer is no transcript"),
                }
            }
        }
    }

    /// The counts at a server's `/metrics`, if it serves them.
    pub async fn counted(&self) -> Counted {
        match self {
            Self::InProcess { transcriber, .. } => {
                let counts = transcriber.engine().counts();
                Counted {
                    windows: Some(counts.windows as f64),
                    tokens: Some(counts.tokens as f64),
                    peak_bytes: metrics::memory().map(|memory| memory.peak as f64),
                }
            }
            Self::Server { client, url, key } => {
                let request = client.get(format!("{url}/metrics")).bearer_auth(key);
                let Ok(response) = request.send().await else { return Counted::default() };
                if !response.status().is_success() {
                    return Counted::default();
                }
                counted(&response.text().await.unwrap_or_default())
            }
        }
    }
}

/// Sums over labels, in the text format of Prometheus.
fn counted(exposition: &str) -> Counted {
    let mut sums: HashMap<&str, f64> = HashMap::new();
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let counts = name != "stt_windows_total" || labels.contains("outcome=\"recognised\"");
        if let (true, Ok(value)) = (counts, value.parse::<f64>()) {
            *sums.entry(name).or_default() += value;
        }
    }
    let sum = |name: &str| sums.get(name).copied();
    Counted {
        windows: sum("stt_windows_total"),
        tokens: sum("stt_tokens_total"),
        peak_bytes: sum("process_resident_memory_peak_bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_is_summed_over_labels() {
        let text = "# TYPE stt_windows_total counter\n\
            stt_windows_total{class=\"live\",outcome=\"recognised\"} 3\n\
            stt_windows_total{class=\"job\",outcome=\"recognised\"} 4\n\
            stt_windows_total{class=\"job\",outcome=\"failed\"} 5\n\
            stt_tokens_total 100\n";
        let counted = counted(text);
        assert_eq!((counted.windows, counted.tokens, counted.peak_bytes), (Some(7.0), Some(100.0), None));
    }
}
