//! The query parameters of `/v1/speak`, typed. Pure.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use url::{Url, form_urlencoded};

use super::format::{CONTAINERS, ENCODINGS, STREAM_ENCODINGS, Wanted};
use crate::api::parameters::{CallbackMethod, Error, callback_url};

/// The paces of the wire format.
const SPEEDS: RangeInclusive<f32> = 0.7..=1.5;
/// Those of `/v2/speak`.
pub const TURN_SPEEDS: RangeInclusive<f32> = 0.5..=1.5;
/// From calm to animated.
const EXPRESSIVITIES: RangeInclusive<i8> = -2..=2;
const NAME_CHARACTERS_MAX: usize = 128;
const TAGS_MAX: usize = 100;
const TAG_CHARACTERS_MAX: usize = 128;
/// Longer values are shortened when they are shown to the client.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// A parameter, for the description of the interface.
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub is_of_streams: bool,
}

/// All parameters. Others are ignored, as on `/v1/listen`.
pub const TABLE: [Parameter; 10] = [
    Parameter { name: "model", about: "The voice.", is_of_streams: true },
    Parameter { name: "encoding", about: "Default mp3; on streams linear16.", is_of_streams: true },
    Parameter { name: "container", about: "A file around the audio.", is_of_streams: false },
    Parameter { name: "sample_rate", about: "In hertz.", is_of_streams: true },
    Parameter { name: "bit_rate", about: "In bits per second.", is_of_streams: false },
    Parameter { name: "speed", about: "A factor of the pace, 0.7 to 1.5.", is_of_streams: true },
    Parameter { name: "tag", about: "A label of the request.", is_of_streams: true },
    Parameter { name: "mip_opt_out", about: "No text is ever kept to train on.", is_of_streams: true },
    Parameter {
        name: "callback",
        about: "Where to send the speech; the request is answered at once.",
        is_of_streams: false,
    },
    Parameter { name: "callback_method", about: "The HTTP method for sending it.", is_of_streams: false },
];

/// Those that `/v2/speak` has beside them.
pub const TURN_TABLE: [Parameter; 2] = [
    Parameter {
        name: "expressivity",
        about: "From -2 (calm) to 2 (animated): taken, and without effect, as the voices have one delivery.",
        is_of_streams: true,
    },
    Parameter { name: "priority", about: "`low`: taken, and without effect.", is_of_streams: false },
];

/// The parameters of `/v1/speak` or `/v2/speak`.
pub fn of_version(version: u8) -> impl Iterator<Item = &'static Parameter> {
    let more = if version == 2 { &TURN_TABLE[..] } else { &[] };
    TABLE.iter().chain(more)
}

/// The parameters of a request. Absent ones have their documented defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// The name of a voice.
    pub model: Option<String>,
    pub wanted: Wanted,
    /// `None`: the voice's own.
    pub speed: Option<f32>,
    pub callback: Option<Url>,
    pub callback_method: CallbackMethod,
}

impl Parameters {
    /// # Errors
    /// [`Error`].
    pub fn parse(query: &str) -> Result<Self, Error> {
        Self::read(query, &ENCODINGS, 1)
    }

    /// Those of `POST /v2/speak`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn of_turn(query: &str) -> Result<Self, Error> {
        Self::read(query, &ENCODINGS, 2)
    }

    /// Those of a stream, which has no containers.
    ///
    /// # Errors
    /// [`Error`].
    pub fn of_stream(query: &str) -> Result<Self, Error> {
        Self::streamed(query, 1)
    }

    /// Those of a session of turns.
    ///
    /// # Errors
    /// [`Error`].
    pub fn of_turns(query: &str) -> Result<Self, Error> {
        Self::streamed(query, 2)
    }

    fn streamed(query: &str, version: u8) -> Result<Self, Error> {
        let mut parameters = Self::read(query, &STREAM_ENCODINGS, version)?;
        let refused = |parameter: &str, expected| {
            let values = form_urlencoded::parse(query.as_bytes());
            let value = values.into_iter().find(|(name, _)| name == parameter).map(|(_, value)| value);
            let value = value.unwrap_or_default().chars().take(SHOWN_CHARACTERS_MAX).collect();
            Error::Value { parameter: parameter.to_owned(), value, expected }
        };
        if parameters.wanted.container.is_some_and(|container| container != "none") {
            return Err(refused("container", "none: a stream has no container"));
        }
        if parameters.wanted.bits_per_second.is_some() {
            return Err(refused("bit_rate", "no value: the encodings of a stream have no bit rate"));
        }
        if parameters.callback.is_some() {
            return Err(refused("callback", "no value: a stream answers over its socket"));
        }
        parameters.wanted.encoding.get_or_insert("linear16");
        parameters.wanted.container = Some("none");
        parameters.wanted.bits_per_second = None;
        Ok(parameters)
    }

    fn read(query: &str, encodings: &[&'static str], version: u8) -> Result<Self, Error> {
        let mut all = Self {
            model: None,
            wanted: Wanted::default(),
            speed: None,
            callback: None,
            callback_method: CallbackMethod::Post,
        };
        let (mut seen, mut tags) = (HashSet::new(), 0);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let invalid = |expected| Error::Value {
                parameter: name.to_string(),
                value: value.chars().take(SHOWN_CHARACTERS_MAX).collect(),
                expected,
            };
            if name == "tag" {
                tags += 1;
                if tags > TAGS_MAX {
                    return Err(Error::TooMany { parameter: "tag".into(), limit: TAGS_MAX });
                }
                if value.chars().count() > TAG_CHARACTERS_MAX {
                    return Err(invalid("at most 128 characters"));
                }
                continue;
            }
            let Some(known) = of_version(version).find(|row| row.name == name) else { continue };
            if !seen.insert(known.name) {
                return Err(Error::Duplicate(known.name.to_owned()));
            }
            match known.name {
                // An old SDK sends the text `None` for a model that is not set.
                "model" if value.is_empty() || value == "None" => {}
                "model" if value.chars().count() > NAME_CHARACTERS_MAX => {
                    return Err(invalid("the name of a voice"));
                }
                "model" => all.model = Some(value.into_owned()),
                "encoding" => {
                    all.wanted.encoding = Some(one_of(encodings, &value).ok_or_else(|| {
                        invalid(if encodings.len() == ENCODINGS.len() {
                            "linear16, mulaw, alaw, mp3, opus, flac or aac"
                        } else {
                            "linear16, mulaw or alaw"
                        })
                    })?);
                }
                "container" => {
                    all.wanted.container =
                        Some(one_of(&CONTAINERS, &value).ok_or_else(|| invalid("none, wav or ogg"))?);
                }
                "sample_rate" => {
                    all.wanted.sample_rate_hz =
                        Some(whole(&value).ok_or_else(|| invalid("a rate in hertz"))?);
                }
                "bit_rate" => {
                    all.wanted.bits_per_second =
                        Some(whole(&value).ok_or_else(|| invalid("a rate in bits per second"))?);
                }
                "speed" => {
                    let (speeds, expected) = match version {
                        2 => (TURN_SPEEDS, "a number from 0.5 to 1.5"),
                        _ => (SPEEDS, "a number from 0.7 to 1.5"),
                    };
                    let speed = value.parse().ok().filter(|speed| speeds.contains(speed));
                    all.speed = Some(speed.ok_or_else(|| invalid(expected))?);
                }
                "expressivity" if !value.parse().is_ok_and(|degree| EXPRESSIVITIES.contains(&degree)) => {
                    return Err(invalid("a whole number from -2 to 2"));
                }
                "priority" if value != "low" => return Err(invalid("low, or nothing")),
                "mip_opt_out"
                    if !matches!(&*value.to_ascii_lowercase(), "true" | "false" | "" | "1" | "0") =>
                {
                    return Err(invalid("true or false"));
                }
                "callback" => all.callback = Some(callback_url(&value)?),
                "callback_method" if value.eq_ignore_ascii_case("put") => {
                    all.callback_method = CallbackMethod::Put;
                }
                "callback_method" if !value.eq_ignore_ascii_case("post") => {
                    return Err(invalid("POST or PUT"));
                }
                _ => {}
            }
        }
        Ok(all)
    }
}

/// A whole number; SDKs send some of them as `24000.0`.
fn whole(value: &str) -> Option<u32> {
    value.strip_suffix(".0").unwrap_or(value).parse().ok()
}

fn one_of(names: &[&'static str], value: &str) -> Option<&'static str> {
    names.iter().copied().find(|name| name.eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_others_are_ignored() {
        let parameters = Parameters::parse(
            "model=aura-2-thalia-en&encoding=Linear16&container=none&sample_rate=16000.0&speed=0.9&tag=a&tag=b&x=y",
        )
        .unwrap();
        assert_eq!(parameters.model.as_deref(), Some("aura-2-thalia-en"));
        assert_eq!(parameters.speed, Some(0.9));
        assert_eq!(
            parameters.wanted,
            Wanted {
                encoding: Some("linear16"),
                container: Some("none"),
                sample_rate_hz: Some(16_000),
                bits_per_second: None
            }
        );
        assert_eq!(Parameters::parse("model=None").unwrap().model, None);
        let stream =
            Parameters::of_stream("mip_opt_out=false&container=none").unwrap().wanted.format().unwrap();
        assert!(!stream.is_wave && stream.sample_rate_hz == 24_000);
    }

    #[test]
    fn turns_have_their_own_bounds() {
        let turns = Parameters::of_turns("model=flux-alexis-en&speed=0.5&expressivity=-2").unwrap();
        assert_eq!((turns.model.as_deref(), turns.speed), (Some("flux-alexis-en"), Some(0.5)));
        assert!(Parameters::of_turn("model=a&encoding=mp3&priority=low").is_ok());
        for query in ["speed=0.4", "expressivity=3", "expressivity=0.5", "encoding=mp3", "container=wav"] {
            assert!(Parameters::of_turns(query).is_err(), "{query}");
        }
        assert!(Parameters::of_turn("priority=high").is_err());
        assert!(Parameters::of_stream("expressivity=many").is_ok(), "unknown there");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in [
            "encoding=wma",
            "container=mp4",
            "sample_rate=fast",
            "bit_rate=-1",
            "speed=0.1",
            "speed=NaN",
            "speed=2",
            "mip_opt_out=perhaps",
            "callback=here",
            "callback=ftp://a.example/",
            "callback=https://a.example/&callback_method=GET",
            "model=a&model=b",
        ] {
            assert!(Parameters::parse(query).is_err(), "{query}");
        }
        for query in
            ["encoding=mp3", "container=wav", "bit_rate=48000", "callback=https%3A%2F%2Fa.example%2F"]
        {
            assert!(Parameters::of_stream(query).is_err(), "{query}");
        }
        let long = format!("tag={}", "x".repeat(129));
        assert!(Parameters::parse(&long).is_err());
        assert!(Parameters::parse(&"tag=a&".repeat(101)).is_err());
    }
}
