//! The query parameters of a live stream: those of a file, and some that only streams have.

use std::time::Duration;

use url::form_urlencoded;

use super::values::{Once, Reader};
use super::{Error, Kind, Parameters};
use crate::format::redact;

/// The default pause that ends a span: the wire format's own.
const ENDPOINTING_DEFAULT: Duration = Duration::from_millis(10);
const PAUSE_MS_MAX: u32 = 60_000;
const UTTERANCE_END_MS_MIN: u32 = 100;

/// A parameter that only streams have.
pub struct Live {
    pub name: &'static str,
    pub kind: Kind,
    /// As written in a query; empty for none.
    pub default: &'static str,
    pub about: &'static str,
}

pub(super) const fn row(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Live {
    Live { name, kind, default, about }
}

/// The parameters that [`LiveParameters`] reads besides those of a file, and `redact`, which only streams
/// honour.
pub const LIVE_TABLE: &[Live] = &[
    row("interim_results", Kind::Flag, "false", "Send results before they are final."),
    row(
        "endpointing",
        Kind::Pause { max_ms: PAUSE_MS_MAX },
        "10",
        "The pause that ends a span, in milliseconds; or whether pauses end spans.",
    ),
    row(
        "utterance_end_ms",
        Kind::Count { min: UTTERANCE_END_MS_MIN, max: PAUSE_MS_MAX },
        "",
        "The gap after a word that ends an utterance; `UtteranceEnd` reports it.",
    ),
    row("vad_events", Kind::Flag, "false", "Report the beginning of speech by `SpeechStarted`."),
    row("no_delay", Kind::Flag, "false", "Results are always sent as soon as they exist."),
    row("redact", Kind::Items { most: 100 }, "", "What to redact: pci, ssn, numbers, aggressive_numbers."),
    row("redact_mode", Kind::OneOf(&["mask", "label"]), "mask", "The replacement: `*`, or `[PCI]`."),
];

#[derive(Debug, Clone, PartialEq)]
pub struct LiveParameters {
    pub common: Parameters,
    pub interim_results: bool,
    /// `None`: no pause ends a span.
    pub endpointing: Option<Duration>,
    pub utterance_end: Option<Duration>,
    pub vad_events: bool,
    pub redaction: Redaction,
}

/// The parts to redact, and their replacement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    pub classes: Vec<redact::Class>,
    pub mode: RedactMode,
}

pub use redact::Mode as RedactMode;

impl LiveParameters {
    /// Reads a query string, without its `?`.
    ///
    /// # Errors
    /// The first [`Error`] found.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let mut all = Self {
            common: Parameters::default(),
            interim_results: false,
            endpointing: Some(ENDPOINTING_DEFAULT),
            utterance_end: None,
            vad_events: false,
            redaction: Redaction::default(),
        };
        let mut once = Once::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.read(&mut once, &name, &value)?;
        }
        all.common.check_raw()?;
        all.common.check_keyterms()?;
        all.common.check_speakers()?;
        all.redaction.classes = all.common.take_redaction()?;
        Ok(all)
    }

    fn read(&mut self, once: &mut Once, name: &str, value: &str) -> Result<(), Error> {
        let given = Reader { name, value };
        match name {
            "interim_results" => once.of(name, &given, || given.flag(&mut self.interim_results)),
            "vad_events" => once.of(name, &given, || given.flag(&mut self.vad_events)),
            "endpointing" => once.of(name, &given, || given.pause(&mut self.endpointing)),
            "utterance_end_ms" => once.of(name, &given, || {
                let mut milliseconds = None;
                given.number(&mut milliseconds, UTTERANCE_END_MS_MIN..=PAUSE_MS_MAX)?;
                self.utterance_end = milliseconds.map(|ms| Duration::from_millis(u64::from(ms)));
                Ok(())
            }),
            "redact_mode" => once.of(name, &given, || {
                let mode = RedactMode::named(value);
                self.redaction.mode = mode.ok_or_else(|| given.invalid("mask or label"))?;
                Ok(())
            }),
            // A stream's messages may go to another WebSocket.
            "callback" => once
                .of(name, &given, || given.url(&["http", "https", "ws", "wss"], &mut self.common.callback)),
            // Results are sent as soon as they exist, whatever this says.
            "no_delay" => once.of(name, &given, || given.flag(&mut false)),
            _ => self.common.read(once, name, value),
        }
    }

    /// Parameters that were understood, ask for something, and are not honoured by this build.
    pub fn unsupported(&self) -> Vec<&'static str> {
        let common = &self.common;
        let of_files = [
            (common.paragraphs, "paragraphs"),
            (common.utterances, "utterances"),
            (common.utterance_split_seconds.is_some(), "utt_split"),
        ];
        let of_files = of_files.into_iter().filter_map(|(asked, name)| asked.then_some(name));
        common.unsupported().into_iter().chain(of_files).collect()
    }
}

impl Parameters {
    /// The classes that `redact` names.
    pub(super) fn take_redaction(&mut self) -> Result<Vec<redact::Class>, Error> {
        let named = |class: &String| {
            let given = Reader { name: "redact", value: class };
            redact::Class::named(class).ok_or_else(|| given.invalid(redact::CLASSES))
        };
        let asked = std::mem::take(&mut self.redact);
        asked.iter().filter(|class| !class.eq_ignore_ascii_case("false")).map(named).collect()
    }
}

impl Reader<'_> {
    /// Milliseconds, or a switch.
    fn pause(&self, into: &mut Option<Duration>) -> Result<(), Error> {
        *into = match self.boolean() {
            Some(true) => Some(ENDPOINTING_DEFAULT),
            Some(false) => None,
            None => {
                let ms = self.value.parse::<u32>().ok().filter(|ms| *ms <= PAUSE_MS_MAX);
                let ms = ms.ok_or_else(|| self.invalid("milliseconds, true or false"))?;
                Some(Duration::from_millis(u64::from(ms)))
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> LiveParameters {
        LiveParameters::parse(query).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_wire_format() {
        let parameters = parse("");
        assert_eq!(parameters.endpointing, Some(Duration::from_millis(10)));
        assert_eq!(
            (parameters.interim_results, parameters.vad_events, parameters.utterance_end),
            (false, false, None)
        );
        assert_eq!(parameters.redaction, Redaction::default());
    }

    /// Every parameter of the table is read, and its default changes nothing.
    #[test]
    fn the_table_is_true() {
        for row in LIVE_TABLE {
            let query = format!("{}=%20", row.name);
            assert!(LiveParameters::parse(&query).is_err(), "{} is not looked at", row.name);
            if !row.default.is_empty() {
                assert_eq!(parse(&format!("{}={}", row.name, row.default)), parse(""), "{}", row.name);
            }
        }
    }

    #[test]
    fn values_are_read() {
        for (value, expected) in [("300", Some(300)), ("true", Some(10)), ("False", None), ("0", Some(0))] {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(parse(&format!("endpointing={value}")).endpointing, expected, "{value}");
        }
        let parameters = parse(
            "interim_results=true&vad_events=True&utterance_end_ms=1000&no_delay=true&encoding=mp3&punctuate=true&tag=a",
        );
        assert!(parameters.interim_results && parameters.vad_events);
        assert_eq!(parameters.utterance_end, Some(Duration::from_secs(1)));
        assert_eq!(parameters.common.tags, ["a"]);
        let redaction = parse("redact=pci&redact=true&redact=ssn&redact_mode=label").redaction;
        assert_eq!(redaction.classes, [redact::Class::Pci, redact::Class::Numbers, redact::Class::Ssn]);
        assert_eq!(redaction.mode, RedactMode::Label);
        assert_eq!(parse("redact=false").redaction, Redaction::default());
        for callback in ["http://a.example/x", "https://a.example/", "ws://a.example/", "wss://a.example/x"] {
            assert_eq!(parse(&format!("callback={callback}")).common.callback.unwrap().as_str(), callback);
        }
        assert!(parse("search=a&search=b").unsupported().is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in [
            "endpointing=soon",
            "endpointing=-1",
            "endpointing=60001",
            "utterance_end_ms=0",
            "utterance_end_ms=true",
            "interim_results=1",
            "interim_results=true&interim_results=true",
            "redact=name",
            "redact=pii",
            "redact_mode=burn",
            "callback=ftp://a.example/",
            "callback=ws://a.example/&callback=ws://a.example/",
            "encoding=linear16",
            "punctuate=perhaps",
        ] {
            assert!(LiveParameters::parse(query).is_err(), "{query}");
        }
    }
}
