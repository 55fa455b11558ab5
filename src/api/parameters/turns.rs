//! The query parameters of a conversational stream (`/v2/listen`): its own, and those of other streams that have a meaning
//! there.
//!
//! Source of names, defaults and ranges: the wire format's AsyncAPI document (deepgram/deepgram-api-specs) and its pages on
//! end-of-turn parameters and `Configure`.

use std::ops::RangeInclusive;
use std::time::Duration;

use url::form_urlencoded;

use super::live::{LIVE_TABLE, Live, row};
use super::values::{ITEM_CHARACTERS_MAX, Once, Reader};
use super::{DetectLanguage, Error, Kind, Parameters, RedactMode, Redaction, TABLE};
use crate::live::Thresholds;

const END_DEFAULT: f64 = 0.7;
const END_RANGE: RangeInclusive<f64> = 0.5..=1.0;
const EAGER_RANGE: RangeInclusive<f64> = 0.3..=0.9;
const TIMEOUT_MS_DEFAULT: u64 = 5000;
const TIMEOUT_MS_RANGE: RangeInclusive<u32> = 500..=60_000;
const HINTS_MAX: usize = 100;
/// The wire format's model that knows only English, and takes no hints.
const ENGLISH: &str = "flux-general-en";

/// The parameters that only conversational streams have.
pub const TURNS_TABLE: &[Live] = &[
    row(
        "eot_threshold",
        Kind::Number { min: *END_RANGE.start(), max: *END_RANGE.end() },
        "0.7",
        "The confidence that ends a turn; 1 for none.",
    ),
    row(
        "eager_eot_threshold",
        Kind::Number { min: *EAGER_RANGE.start(), max: *EAGER_RANGE.end() },
        "",
        "The confidence that announces the end of a turn by `EagerEndOfTurn`; at most `eot_threshold`.",
    ),
    row(
        "eot_timeout_ms",
        Kind::Count { min: *TIMEOUT_MS_RANGE.start(), max: *TIMEOUT_MS_RANGE.end() },
        "5000",
        "The silence that ends a turn, whatever the confidence.",
    ),
    row(
        "language_hint",
        Kind::Items { most: HINTS_MAX },
        "",
        "BCP-47 tags of the languages to choose among. Not with `flux-general-en`.",
    ),
];

/// The parameters of other streams that have the same meaning here.
pub const OF_TURNS: &[&str] = &[
    "model",
    "version",
    "tier",
    "language",
    "lang",
    "encoding",
    "sample_rate",
    "channels",
    "keyterm",
    "numerals",
    "profanity_filter",
    "smart_format",
    "measurements",
    "punctuate",
    "redact",
    "redact_mode",
    "tag",
    "mip_opt_out",
];

#[derive(Debug, Clone, PartialEq)]
pub struct TurnParameters {
    pub common: Parameters,
    /// The model is the wire format's own for English.
    pub is_english: bool,
    pub thresholds: Thresholds,
    /// BCP-47 tags.
    pub language_hints: Vec<String>,
    pub redaction: Redaction,
    /// Known parameters that ask for something, and mean nothing here.
    pub idle: Vec<&'static str>,
}

impl TurnParameters {
    /// Reads a query string, without its `?`.
    ///
    /// # Errors
    /// The first [`Error`] found.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let timeout = Duration::from_millis(TIMEOUT_MS_DEFAULT);
        let mut all = Self {
            common: Parameters::default(),
            is_english: false,
            thresholds: Thresholds { end: END_DEFAULT, eager_end: None, timeout },
            language_hints: Vec::new(),
            redaction: Redaction::default(),
            idle: Vec::new(),
        };
        let mut once = Once::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.read(&mut once, &name, &value)?;
        }
        let model = all.common.model.as_deref().unwrap_or_default();
        all.is_english = model.eq_ignore_ascii_case(ENGLISH);
        all.common.check_raw()?;
        all.common.check_keyterms()?;
        check(&all.thresholds)?;
        all.redaction.classes = all.common.take_redaction()?;
        Ok(all)
    }

    fn read(&mut self, once: &mut Once, name: &str, value: &str) -> Result<(), Error> {
        let given = Reader { name, value };
        match name {
            "eot_threshold" => once.of(name, &given, || {
                self.thresholds.end = given.within(END_RANGE, "0.5 to 1.0")?;
                Ok(())
            }),
            "eager_eot_threshold" => once.of(name, &given, || {
                self.thresholds.eager_end = Some(given.within(EAGER_RANGE, "0.3 to 0.9")?);
                Ok(())
            }),
            "eot_timeout_ms" => once.of(name, &given, || {
                let ms = value.parse().ok().filter(|ms| TIMEOUT_MS_RANGE.contains(ms));
                let ms: u32 = ms.ok_or_else(|| given.invalid("500 to 60000 milliseconds"))?;
                self.thresholds.timeout = Duration::from_millis(ms.into());
                Ok(())
            }),
            "language_hint" => given.items(&mut self.language_hints, HINTS_MAX, ITEM_CHARACTERS_MAX),
            "redact_mode" => once.of(name, &given, || {
                let mode = RedactMode::named(value);
                self.redaction.mode = mode.ok_or_else(|| given.invalid("mask or label"))?;
                Ok(())
            }),
            name if OF_TURNS.contains(&name) => self.common.read(once, name, value),
            _ => {
                self.pass_over(&given);
                Ok(())
            }
        }
    }

    /// Remembers a parameter of other streams, or of files, that asks for something.
    fn pass_over(&mut self, given: &Reader<'_>) {
        let of_files = TABLE.iter().find(|row| row.name == given.name || row.aliases.contains(&given.name));
        let of_streams = || LIVE_TABLE.iter().find(|row| row.name == given.name).map(|row| row.name);
        let known = of_files.map(|row| row.name).or_else(of_streams);
        if let Some(known) = known
            && given.boolean() != Some(false)
            && !given.value.is_empty()
            && !self.idle.contains(&known)
        {
            self.idle.push(known);
        }
    }

    /// The parameters by which [`crate::api::language::choice`] chooses the language.
    pub fn of_language(&self) -> Parameters {
        let mut chosen = Parameters { language: self.common.language.clone(), ..Parameters::default() };
        if self.is_english {
            chosen.language = Some("en".to_owned());
        } else if !self.language_hints.is_empty() {
            chosen.detect_language = DetectLanguage::Among(self.language_hints.clone());
        }
        chosen
    }

    /// Replaces the thresholds that are given.
    ///
    /// # Errors
    /// As [`Self::parse`]; nothing is changed then.
    pub fn replace_thresholds(
        &mut self,
        end: Option<f64>,
        eager_end: Option<f64>,
        timeout_ms: Option<u64>,
    ) -> Result<(), Error> {
        let mut changed = self.thresholds;
        let outside = |name: &str, value: &dyn std::fmt::Display, expected| Error::Value {
            parameter: name.to_owned(),
            value: value.to_string(),
            expected,
        };
        if let Some(end) = end {
            changed.end = Some(end)
                .filter(|end| END_RANGE.contains(end))
                .ok_or_else(|| outside("eot_threshold", &end, "0.5 to 1.0"))?;
        }
        if let Some(eager) = eager_end {
            let inside = EAGER_RANGE.contains(&eager);
            changed.eager_end = Some(
                Some(eager)
                    .filter(|_| inside)
                    .ok_or_else(|| outside("eager_eot_threshold", &eager, "0.3 to 0.9"))?,
            );
        }
        if let Some(ms) = timeout_ms {
            let inside = u32::try_from(ms).is_ok_and(|ms| TIMEOUT_MS_RANGE.contains(&ms));
            if !inside {
                return Err(outside("eot_timeout_ms", &ms, "500 to 60000 milliseconds"));
            }
            changed.timeout = Duration::from_millis(ms);
        }
        check(&changed)?;
        self.thresholds = changed;
        Ok(())
    }

    /// Replaces the languages to choose among.
    ///
    /// # Errors
    /// As [`Self::parse`]; nothing is changed then.
    pub fn replace_language_hints(&mut self, hints: &[String]) -> Result<(), Error> {
        let mut changed = Vec::new();
        for value in hints {
            let given = Reader { name: "language_hint", value };
            given.items(&mut changed, HINTS_MAX, ITEM_CHARACTERS_MAX)?;
        }
        self.language_hints = changed;
        Ok(())
    }
}

/// An end cannot be announced by more confidence than ends the turn.
fn check(thresholds: &Thresholds) -> Result<(), Error> {
    match thresholds.eager_end {
        Some(eager) if eager > thresholds.end => Err(Error::EagerThreshold),
        _ => Ok(()),
    }
}

impl Reader<'_> {
    fn within(&self, range: RangeInclusive<f64>, expected: &'static str) -> Result<f64, Error> {
        let number = self.value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.invalid(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::redact;

    fn parse(query: &str) -> TurnParameters {
        TurnParameters::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    #[test]
    fn defaults_are_those_of_the_wire_format() {
        let Thresholds { end, eager_end, timeout } = parse("model=flux-general-en").thresholds;
        assert_eq!((end, eager_end, timeout), (0.7, None, Duration::from_secs(5)));
    }

    /// Every parameter of the table is read, and its default changes nothing.
    #[test]
    fn the_table_is_true() {
        for row in TURNS_TABLE {
            let query = format!("{}=%20", row.name);
            assert!(TurnParameters::parse(&query).is_err(), "{} is not looked at", row.name);
            if !row.default.is_empty() {
                assert_eq!(parse(&format!("{}={}", row.name, row.default)), parse(""), "{}", row.name);
            }
        }
    }

    #[test]
    fn values_are_read() {
        let all = parse(
            "model=flux-general-multi&encoding=linear16&sample_rate=16000&eager_eot_threshold=0.4&eot_threshold=0.8\
             &eot_timeout_ms=60000&keyterm=a&keyterm=b+c&language_hint=en&language_hint=es&numerals=true\
             &redact=numbers&tag=x&mip_opt_out=True&profanity_filter=false",
        );
        assert_eq!((all.thresholds.end, all.thresholds.eager_end), (0.8, Some(0.4)));
        assert_eq!(all.thresholds.timeout, Duration::from_secs(60));
        assert_eq!(all.common.keyterms, ["a", "b c"]);
        assert_eq!(all.language_hints, ["en", "es"]);
        assert_eq!(all.of_language().detect_language, DetectLanguage::Among(all.language_hints.clone()));
        assert_eq!(all.redaction.classes, [redact::Class::Numbers]);
        assert!(all.common.numerals && all.idle.is_empty());
        let english = parse("model=flux-general-en&language_hint=es").of_language();
        assert_eq!((english.language.as_deref(), english.detect_language), (Some("en"), DetectLanguage::Off));
    }

    /// A plugin's defaults for other streams are no reason to refuse it.
    #[test]
    fn what_means_nothing_here_is_passed_over_and_remembered() {
        let all = parse(
            "no_delay=true&endpointing=25&vad_events=true&filler_words=true&interim_results=true&diarize_model=latest\
             &dictation=false&detect_language=&unheard_of=1&endpointing=soon&diarization=true",
        );
        assert_eq!(
            all.idle,
            [
                "no_delay",
                "endpointing",
                "vad_events",
                "filler_words",
                "interim_results",
                "diarize_model",
                "diarize"
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in [
            "eot_threshold=0.49",
            "eot_threshold=1.01",
            "eot_threshold=NaN",
            "eot_threshold=high",
            "eager_eot_threshold=0.29",
            "eager_eot_threshold=0.91",
            "eager_eot_threshold=0.8",
            "eot_threshold=0.5&eager_eot_threshold=0.6",
            "eot_timeout_ms=499",
            "eot_timeout_ms=60001",
            "eot_timeout_ms=1e3",
            "eot_threshold=0.7&eot_threshold=0.7",
            "language_hint=",
            "redact=name",
            "encoding=linear16",
            "keyterm=",
        ] {
            assert!(TurnParameters::parse(query).is_err(), "{query}");
        }
    }

    #[test]
    fn a_change_of_thresholds_is_made_whole_or_not_at_all() {
        let mut all = parse("eager_eot_threshold=0.5");
        for (end, eager, timeout) in [
            (Some(0.4), None, None),
            (None, Some(0.8), None),
            (Some(0.8), None, Some(10)),
            (Some(0.5), Some(0.6), None),
        ] {
            let before = all.thresholds;
            assert!(all.replace_thresholds(end, eager, timeout).is_err());
            assert_eq!(all.thresholds, before);
        }
        assert_eq!(all.replace_thresholds(Some(1.0), Some(0.9), Some(500)), Ok(()));
        assert_eq!((all.thresholds.end, all.thresholds.eager_end), (1.0, Some(0.9)));
    }
}
