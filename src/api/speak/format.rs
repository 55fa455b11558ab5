//! The formats of speech in the wire format: which containers and rates an encoding may have, and what they are if the
//! request does not say.
//!
//! Source: developers.deepgram.com/docs/tts-media-output-settings, «Audio Format Combinations».

use crate::speech::encode::{Coding, Format};

/// Characters of one text.
pub const TEXT_CHARACTERS_MAX: usize = 2000;
/// The encodings, by name.
pub const ENCODINGS: [&str; 7] = ["linear16", "mulaw", "alaw", "mp3", "opus", "flac", "aac"];
/// Those of streams.
pub const STREAM_ENCODINGS: [&str; 3] = ["linear16", "mulaw", "alaw"];
pub const CONTAINERS: [&str; 3] = ["none", "wav", "ogg"];

/// A combination that does not exist: the wire format's own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("`{parameter}` is not applicable when `encoding={encoding}`")]
    NotApplicable { parameter: &'static str, encoding: &'static str },
    #[error("`container={container}` is invalid when `encoding={encoding}`")]
    Container { container: String, encoding: &'static str },
    #[error("`{parameter}` must be {valid} when `encoding={encoding}`")]
    Value { parameter: &'static str, valid: &'static str, encoding: &'static str },
}

/// The format in a request. Values are not checked yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// One of [`ENCODINGS`].
    pub encoding: Option<&'static str>,
    /// One of [`CONTAINERS`].
    pub container: Option<&'static str>,
    pub sample_rate_hz: Option<u32>,
    pub bits_per_second: Option<u32>,
}

impl Wanted {
    /// The format of an answer.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub fn format(&self) -> Result<Format, Unsupported> {
        let encoding = self.encoding.unwrap_or("mp3");
        let rate = |default, valid: &[u32], text| self.sample_rate(encoding, default, valid, text);
        match encoding {
            "linear16" => {
                let valid = [8_000, 16_000, 24_000, 32_000, 48_000];
                let sample_rate_hz = rate(24_000, &valid, "8000, 16000, 24000, 32000 or 48000")?;
                self.bare(encoding, Coding::Linear16, sample_rate_hz)
            }
            "mulaw" | "alaw" => {
                let coding = if encoding == "mulaw" { Coding::Mulaw } else { Coding::Alaw };
                let sample_rate_hz = rate(8_000, &[8_000, 16_000], "8000 or 16000")?;
                self.bare(encoding, coding, sample_rate_hz)
            }
            "opus" => {
                if let Some(container) = self.container.filter(|container| *container != "ogg") {
                    return Err(Unsupported::Container { container: container.into(), encoding });
                }
                let sample_rate_hz = self.fixed_rate(encoding, 48_000)?;
                let bits_per_second = self.bit_rate(encoding, 12_000, 4_000..=650_000, "4000 to 650000")?;
                Ok(Format { coding: Coding::Opus { bits_per_second }, sample_rate_hz, is_wave: false })
            }
            "flac" => {
                self.no_container(encoding)?;
                self.no_bit_rate(encoding)?;
                // 24000 is what the voice has: an addition to the table, and the default.
                let valid = [8_000, 16_000, 22_050, 24_000, 32_000, 48_000];
                let sample_rate_hz = rate(24_000, &valid, "8000, 16000, 22050, 24000, 32000 or 48000")?;
                Ok(Format { coding: Coding::Flac, sample_rate_hz, is_wave: false })
            }
            "aac" => {
                self.no_container(encoding)?;
                let sample_rate_hz = self.fixed_rate(encoding, 22_050)?;
                let bits_per_second = self.bit_rate(encoding, 48_000, 4_000..=192_000, "4000 to 192000")?;
                Ok(Format { coding: Coding::Aac { bits_per_second }, sample_rate_hz, is_wave: false })
            }
            _ => {
                self.no_container(encoding)?;
                let sample_rate_hz = self.fixed_rate(encoding, 22_050)?;
                let bits_per_second = match self.bits_per_second {
                    None => 48_000,
                    Some(bits @ (32_000 | 48_000)) => bits,
                    Some(_) => {
                        return Err(Unsupported::Value {
                            parameter: "bit_rate",
                            valid: "32000 or 48000",
                            encoding,
                        });
                    }
                };
                Ok(Format { coding: Coding::Mp3 { bits_per_second }, sample_rate_hz, is_wave: false })
            }
        }
    }

    /// An encoding that may be in a WAVE file, and is by default.
    fn bare(
        &self,
        encoding: &'static str,
        coding: Coding,
        sample_rate_hz: u32,
    ) -> Result<Format, Unsupported> {
        self.no_bit_rate(encoding)?;
        match self.container {
            None | Some("wav") => Ok(Format { coding, sample_rate_hz, is_wave: true }),
            Some("none") => Ok(Format { coding, sample_rate_hz, is_wave: false }),
            Some(container) => Err(Unsupported::Container { container: container.into(), encoding }),
        }
    }

    fn sample_rate(
        &self,
        encoding: &'static str,
        default: u32,
        valid: &[u32],
        text: &'static str,
    ) -> Result<u32, Unsupported> {
        match self.sample_rate_hz {
            None => Ok(default),
            Some(rate) if valid.contains(&rate) => Ok(rate),
            Some(_) => Err(Unsupported::Value { parameter: "sample_rate", valid: text, encoding }),
        }
    }

    /// A rate that cannot be chosen; a request may still name it.
    fn fixed_rate(&self, encoding: &'static str, rate: u32) -> Result<u32, Unsupported> {
        match self.sample_rate_hz {
            Some(other) if other != rate => {
                Err(Unsupported::NotApplicable { parameter: "sample_rate", encoding })
            }
            _ => Ok(rate),
        }
    }

    fn bit_rate(
        &self,
        encoding: &'static str,
        default: u32,
        range: std::ops::RangeInclusive<u32>,
        valid: &'static str,
    ) -> Result<u32, Unsupported> {
        match self.bits_per_second {
            None => Ok(default),
            Some(bits) if range.contains(&bits) => Ok(bits),
            Some(_) => Err(Unsupported::Value { parameter: "bit_rate", valid, encoding }),
        }
    }

    fn no_bit_rate(&self, encoding: &'static str) -> Result<(), Unsupported> {
        match self.bits_per_second {
            None => Ok(()),
            Some(_) => Err(Unsupported::NotApplicable { parameter: "bit_rate", encoding }),
        }
    }

    /// `none` says what is so in any case.
    fn no_container(&self, encoding: &'static str) -> Result<(), Unsupported> {
        match self.container {
            None | Some("none") => Ok(()),
            Some(_) => Err(Unsupported::NotApplicable { parameter: "container", encoding }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(encoding: &'static str) -> Wanted {
        Wanted { encoding: Some(encoding), ..Wanted::default() }
    }

    #[test]
    fn each_encoding_has_the_defaults_of_the_table() {
        for (encoding, rate, content_type) in [
            ("linear16", 24_000, "audio/wav"),
            ("mulaw", 8_000, "audio/wav"),
            ("alaw", 8_000, "audio/wav"),
            ("mp3", 22_050, "audio/mpeg"),
            ("opus", 48_000, "audio/ogg;codecs=opus"),
            ("flac", 24_000, "audio/flac"),
            ("aac", 22_050, "audio/aac"),
        ] {
            let format = wanted(encoding).format().unwrap();
            assert_eq!(
                (format.sample_rate_hz, format.content_type().as_str()),
                (rate, content_type),
                "{encoding}"
            );
        }
        assert_eq!(Wanted::default().format(), wanted("mp3").format());
        let bare = Wanted { container: Some("none"), sample_rate_hz: Some(16_000), ..wanted("mulaw") };
        assert_eq!(bare.format().unwrap().content_type(), "audio/mulaw;rate=16000");
    }

    #[test]
    fn other_combinations_are_refused_with_a_reason() {
        for (wanted, message) in [
            (
                Wanted { container: Some("wav"), ..wanted("mp3") },
                "`container` is not applicable when `encoding=mp3`",
            ),
            (
                Wanted { container: Some("ogg"), ..wanted("mulaw") },
                "`container=ogg` is invalid when `encoding=mulaw`",
            ),
            (
                Wanted { container: Some("none"), ..wanted("opus") },
                "`container=none` is invalid when `encoding=opus`",
            ),
            (
                Wanted { sample_rate_hz: Some(24_000), ..wanted("aac") },
                "`sample_rate` is not applicable when `encoding=aac`",
            ),
            (
                Wanted { sample_rate_hz: Some(24_000), ..wanted("alaw") },
                "`sample_rate` must be 8000 or 16000 when `encoding=alaw`",
            ),
            (
                Wanted { bits_per_second: Some(48_000), ..wanted("flac") },
                "`bit_rate` is not applicable when `encoding=flac`",
            ),
            (
                Wanted { bits_per_second: Some(64_000), ..wanted("mp3") },
                "`bit_rate` must be 32000 or 48000 when `encoding=mp3`",
            ),
            (
                Wanted { bits_per_second: Some(3_999), ..wanted("opus") },
                "`bit_rate` must be 4000 to 650000 when `encoding=opus`",
            ),
        ] {
            assert_eq!(wanted.format().unwrap_err().to_string(), message);
        }
    }
}
