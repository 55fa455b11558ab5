//! Formats of speech.

/// A format of speech: mono always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub coding: Coding,
    pub sample_rate_hz: u32,
    /// Put it into a WAVE file; only for [`Coding::Linear16`], [`Coding::Mulaw`] and [`Coding::Alaw`].
    pub is_wave: bool,
}

/// How samples become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Signed 16-bit, little-endian.
    Linear16,
    /// G.711 μ-law.
    Mulaw,
    /// G.711 A-law.
    Alaw,
    /// Rates and bit rates are those of layer III at 16 to 24 kHz.
    Mp3 { bits_per_second: u32 },
    /// AAC-LC in ADTS.
    Aac { bits_per_second: u32 },
    /// 16 bits.
    Flac,
    /// In Ogg; at 48 kHz.
    Opus { bits_per_second: u32 },
}

impl Format {
    /// Whether a file says at its beginning how long it is.
    pub fn has_length(&self) -> bool {
        self.is_wave || self.coding == Coding::Flac
    }

    /// The media type, as the wire format has it.
    pub fn content_type(&self) -> String {
        let rate = self.sample_rate_hz;
        match self.coding {
            _ if self.is_wave => "audio/wav".into(),
            Coding::Linear16 => format!("audio/l16;rate={rate}"),
            Coding::Mulaw => format!("audio/mulaw;rate={rate}"),
            Coding::Alaw => format!("audio/alaw;rate={rate}"),
            Coding::Mp3 { .. } => "audio/mpeg".into(),
            Coding::Aac { .. } => "audio/aac".into(),
            Coding::Flac => "audio/flac".into(),
            Coding::Opus { .. } => "audio/ogg;codecs=opus".into(),
        }
    }
}
