//! The format of audio without a container.
//!
//! The wire format names an encoding and a rate. The contract has one form of raw audio, s16le, and no
//! parameter for its rate: the defaults are 16 kHz and one channel, as speech is recorded for recognition. A
//! container is read as one whatever the request announces. Bytes that are no container and come unannounced
//! are refused: noise cannot be told from speech by looking at it.

use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;

use super::error;
use super::parameters::{Encoding, Parameters};
use crate::audio::{Bare, RawEncoding, RawFormat, SpeechCoding, StreamFormat};
use crate::http::Failure;

const S16LE_RATE_HZ: u32 = 16_000;

/// Media types that clients use for raw samples. `audio/L16` is not among them: its samples are big-endian
/// (RFC 2586).
const S16LE_TYPES: [&str; 6] =
    ["audio/s16le", "audio/x-s16le", "audio/pcm", "audio/x-pcm", "audio/raw", "audio/x-raw"];

/// The default sample rate of Speex, as in telephony.
const SPEEX_RATE_HZ: u32 = 8_000;

/// The format that the query names; `None` if the bytes are a container.
pub(super) fn of_parameters(parameters: &Parameters) -> Option<Bare> {
    let named = parameters.encoding?;
    let encoding = match named {
        Encoding::Linear16 | Encoding::S16le => RawEncoding::Linear16,
        Encoding::Linear32 => RawEncoding::Linear32,
        Encoding::Mulaw => RawEncoding::Mulaw,
        Encoding::Alaw => RawEncoding::Alaw,
        // These come in containers that identify them.
        Encoding::Flac
        | Encoding::Opus
        | Encoding::OggOpus
        | Encoding::WebmOpus
        | Encoding::Mp3
        | Encoding::Aac => return None,
        Encoding::AmrNb => return Some(Bare::Speech(SpeechCoding::AmrNarrow)),
        Encoding::AmrWb => return Some(Bare::Speech(SpeechCoding::AmrWide)),
        Encoding::G729 => return Some(Bare::Speech(SpeechCoding::G729)),
        Encoding::Speex => {
            let sample_rate_hz = parameters.sample_rate_hz.unwrap_or(SPEEX_RATE_HZ);
            return Some(Bare::Speech(SpeechCoding::Speex { sample_rate_hz }));
        }
    };
    let rate = parameters.sample_rate_hz.or((named == Encoding::S16le).then_some(S16LE_RATE_HZ));
    let channels = parameters.channels.unwrap_or(1);
    rate.map(|sample_rate_hz| Bare::Samples(RawFormat { encoding, sample_rate_hz, channels }))
}

/// The format that the query of a request with a file names, or its media type. A rate alone announces s16le.
///
/// # Errors
/// 400 for a media type with an invalid rate or number of channels.
pub(super) fn of_request(headers: &HeaderMap, parameters: &Parameters) -> Result<Option<Bare>, Failure> {
    if parameters.encoding.is_some() {
        return Ok(of_parameters(parameters));
    }
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = media_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let mut format = RawFormat {
        encoding: RawEncoding::Linear16,
        sample_rate_hz: parameters.sample_rate_hz.unwrap_or(S16LE_RATE_HZ),
        channels: parameters.channels.unwrap_or(1),
    };
    if !S16LE_TYPES.iter().any(|name| name.eq_ignore_ascii_case(essence)) {
        return Ok(parameters.sample_rate_hz.map(|_| Bare::Samples(format)));
    }
    let pairs = parts.filter_map(|part| part.split_once('='));
    for (name, value) in pairs.map(|(name, value)| (name.trim(), value.trim().trim_matches('"'))) {
        // With the wording and the bounds of the equivalent parameters.
        let said = |name| Parameters::parse(&format!("{name}={value}")).map_err(|_| invalid_type());
        if name.eq_ignore_ascii_case("rate") {
            format.sample_rate_hz = said("sample_rate")?.sample_rate_hz.ok_or_else(invalid_type)?;
        } else if name.eq_ignore_ascii_case("channels") {
            format.channels = said("channels")?.channels.ok_or_else(invalid_type)?;
        }
    }
    Ok(Some(Bare::Samples(format)))
}

/// The format of a stream's bytes.
///
/// # Errors
/// 415 for an encoding that is not supported at the given sample rate.
pub(super) fn of_stream(parameters: &Parameters) -> Result<StreamFormat, Failure> {
    Ok(match (of_parameters(parameters), parameters.encoding) {
        (Some(Bare::Samples(raw)), _) => StreamFormat::Raw(raw),
        (Some(Bare::Speech(coding)), _) => {
            coding.check()?;
            StreamFormat::Speech(coding)
        }
        (None, Some(Encoding::Mp3)) => StreamFormat::Mpeg,
        (None, Some(Encoding::Aac)) => StreamFormat::Adts,
        (None, Some(Encoding::Opus)) => StreamFormat::Opus { channels: parameters.channels.unwrap_or(1) },
        (None, _) => StreamFormat::Container,
    })
}

fn invalid_type() -> Failure {
    error::invalid_header("content-type", "expected such as `audio/pcm;rate=16000;channels=1`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, media_type: &str) -> Option<(u32, u16)> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, media_type.parse().unwrap())]);
        let format = match of_request(&headers, &Parameters::parse(query).unwrap()).unwrap()? {
            Bare::Samples(format) => format,
            other => panic!("{other:?}"),
        };
        assert_eq!(format.encoding, RawEncoding::Linear16);
        Some((format.sample_rate_hz, format.channels))
    }

    #[test]
    fn s16le_is_told_by_a_name_a_type_or_a_rate() {
        for (query, media_type, expected) in [
            ("", "", None),
            ("", "audio/wav", None),
            ("", "application/octet-stream", None),
            ("", "audio/L16;rate=16000", None),
            ("channels=2", "", None),
            ("encoding=s16le", "", Some((16_000, 1))),
            ("encoding=S16LE&sample_rate=8000&channels=2", "audio/pcm;rate=44100", Some((8000, 2))),
            ("encoding=linear16&sample_rate=8000", "", Some((8000, 1))),
            ("sample_rate=8000", "", Some((8000, 1))),
            ("sample_rate=8000&channels=2", "audio/wav", Some((8000, 2))),
            ("", "audio/pcm", Some((16_000, 1))),
            ("", "Audio/X-S16LE; Rate=44100 ; channels=\"2\"", Some((44_100, 2))),
            ("sample_rate=8000&channels=2", "audio/raw", Some((8000, 2))),
            ("sample_rate=8000", "audio/raw;rate=24000;codec=pcm", Some((24_000, 1))),
        ] {
            assert_eq!(read(query, media_type), expected, "{query} {media_type}");
        }
    }

    #[test]
    fn a_type_whose_rate_means_nothing_is_refused() {
        for value in ["rate=", "rate=0", "rate=x", "rate=1e4", "rate=9999999", "channels=0", "channels=1%262"]
        {
            let media_type = format!("audio/pcm;{value}");
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, media_type.parse().unwrap())]);
            let failure = of_request(&headers, &Parameters::default()).unwrap_err();
            assert_eq!(failure.code(), "INVALID_HEADER", "{value}");
        }
    }
}
