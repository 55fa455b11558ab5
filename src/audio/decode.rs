//! Bytes to PCM: raw 16-bit samples at 16 kHz only, until containers are read here.

use bytes::Bytes;

use super::{Pcm, SAMPLE_RATE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawEncoding {
    Linear16,
    Linear32,
    Mulaw,
    Alaw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFormat {
    pub encoding: RawEncoding,
    pub sample_rate_hz: u32,
    pub channels: u16,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub max_seconds: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_seconds: 600.0 }
    }
}

#[derive(Debug, Clone)]
pub struct DecodeOptions {
    pub raw: Option<RawFormat>,
    pub split_channels: bool,
    pub limits: Limits,
}

#[derive(Debug)]
pub struct Decoded {
    pub channels: Vec<Pcm>,
    pub source_channels: u16,
    pub source_sample_rate_hz: u32,
    pub duration_seconds: f64,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the format is none of those that are read")]
    Unsupported,
    #[error("the audio is corrupt: {0}")]
    Corrupt(String),
    #[error("there is no audio")]
    Empty,
    #[error("the audio is longer than {limit_seconds} s")]
    TooLong { limit_seconds: f64 },
}

pub fn decode(bytes: Bytes, options: &DecodeOptions) -> Result<Decoded, Error> {
    let Some(RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: SAMPLE_RATE, channels }) =
        options.raw
    else {
        return Err(Error::Unsupported);
    };
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    let width = usize::from(channels.max(1));
    let samples: Vec<f32> =
        bytes.as_chunks().0.iter().map(|pair| f32::from(i16::from_le_bytes(*pair)) / 32768.0).collect();
    let duration_seconds = samples.len() as f64 / width as f64 / f64::from(SAMPLE_RATE);
    if duration_seconds > options.limits.max_seconds {
        return Err(Error::TooLong { limit_seconds: options.limits.max_seconds });
    }
    let frames = samples.chunks_exact(width);
    let channels_out = if options.split_channels {
        (0..width)
            .map(|channel| Pcm::new(frames.clone().map(|frame| frame[channel]).collect::<Vec<_>>()))
            .collect()
    } else {
        vec![Pcm::new(frames.map(|frame| frame.iter().sum::<f32>() / width as f32).collect::<Vec<_>>())]
    };
    Ok(Decoded {
        channels: channels_out,
        source_channels: channels,
        source_sample_rate_hz: SAMPLE_RATE,
        duration_seconds,
    })
}
