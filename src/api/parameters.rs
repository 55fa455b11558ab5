//! The query parameters of a transcription, typed. Pure.
//!
//! [`Parameters::parse`] knows every parameter of the contract and of the wire format from the table in
//! `table.rs`. It checks and keeps each value; unknown names are ignored, as in the wire format. A valid
//! parameter is either honoured or listed by [`Parameters::unsupported`], and so in the response's warnings:
//! none is dropped silently.
//!
//! A parameter with one value may be given only once: the server does not guess between two.

mod error;
mod live;
mod table;
mod turns;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use url::form_urlencoded;

pub use error::{CallbackProblem, Error};
pub use live::{LIVE_TABLE, Live, LiveParameters, RedactMode, Redaction};
pub use table::{Effect, Kind, Parameter, TABLE};
pub use turns::{OF_TURNS, TURNS_TABLE, TurnParameters};
pub use values::{CallbackMethod, DetectLanguage, Encoding, Keyword, callback_url};

use values::{Once, Reader};

use crate::format::Replacement;
use crate::speakers;

/// The parameters of a request. Absent ones have their documented defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    pub language: Option<String>,
    pub detect_language: DetectLanguage,
    pub model: Option<String>,
    pub version: Option<String>,
    pub tier: Option<String>,
    pub multichannel: bool,
    pub alternatives: Option<u32>,

    /// `None`: as the model writes, which is with punctuation.
    pub punctuate: Option<bool>,
    pub smart_format: bool,
    pub paragraphs: bool,
    pub utterances: bool,
    pub utterance_split_seconds: Option<f64>,
    /// `diarize`, `diarize_model`, `diarize_version` and the contract's `diarization` are one switch: those
    /// of them that turned it on.
    pub diarize: BTreeSet<&'static str>,
    pub speakers: speakers::Options,
    /// Speakers whose voices are enrolled have names.
    pub identify_speakers: bool,
    pub numerals: bool,
    pub measurements: bool,
    pub dictation: bool,
    pub profanity_filter: bool,
    pub filler_words: bool,
    /// For streams only.
    pub redact: Vec<String>,
    pub replace: Vec<Replacement>,
    pub search: Vec<String>,
    pub keywords: Vec<Keyword>,
    pub keyterms: Vec<String>,

    /// For raw audio, with `sample_rate_hz`.
    pub encoding: Option<Encoding>,
    pub sample_rate_hz: Option<u32>,
    pub channels: Option<u16>,

    pub callback: Option<url::Url>,
    pub callback_method: CallbackMethod,
    /// Passed through to the result unchanged: a text, JSON or not, that the server does not interpret.
    pub metadata: Option<String>,
    pub tags: Vec<String>,
    pub extra: BTreeMap<String, String>,

    /// Requested audio intelligence, by parameter; never served.
    pub intelligence: BTreeSet<&'static str>,
}

/// The wire format refuses more than this. A word is at least one token.
const KEYTERM_TOKENS_MAX: usize = 500;

impl Parameters {
    /// Reads a query string, without its `?`.
    ///
    /// # Errors
    /// The first [`Error`] found.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let mut all = Self::default();
        let mut once = Once::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.read(&mut once, &name, &value)?;
        }
        all.check_raw()?;
        all.check_keyterms()?;
        all.check_speakers()?;
        if !all.redact.is_empty() {
            return Err(Error::StreamingOnly("redact"));
        }
        Ok(all)
    }

    /// `sample_rate` and `channels` describe raw audio; a container states both itself.
    fn check_raw(&self) -> Result<(), Error> {
        match self.encoding {
            Some(encoding) if encoding.needs_sample_rate() && self.sample_rate_hz.is_none() => {
                Err(Error::NoSampleRate)
            }
            _ => Ok(()),
        }
    }

    fn check_keyterms(&self) -> Result<(), Error> {
        let words: usize = self.keyterms.iter().map(|term| term.split_whitespace().count()).sum();
        if words > KEYTERM_TOKENS_MAX { Err(Error::KeytermTokens) } else { Ok(()) }
    }

    /// `speakers_expected` lies within `min_speakers` and `max_speakers`, and these in order.
    fn check_speakers(&self) -> Result<(), Error> {
        let speakers::Options { min_speakers, max_speakers, speakers_expected } = self.speakers;
        let pairs = [
            (("min_speakers", min_speakers), ("max_speakers", max_speakers)),
            (("min_speakers", min_speakers), ("speakers_expected", speakers_expected)),
            (("speakers_expected", speakers_expected), ("max_speakers", max_speakers)),
        ];
        let wrong = pairs
            .into_iter()
            .find(|((_, low), (_, high))| matches!((low, high), (Some(low), Some(high)) if low > high));
        match wrong {
            Some(((less, _), (more, _))) => Err(Error::Speakers { less, more }),
            None => Ok(()),
        }
    }

    /// Limits on the number of speakers, if speakers are asked for.
    pub fn speakers(&self) -> Option<speakers::Options> {
        (!self.diarize.is_empty()).then_some(self.speakers)
    }

    /// Limits on the number of speakers without a request for speakers.
    pub fn idle_speaker_limits(&self) -> Vec<&'static str> {
        let speakers::Options { min_speakers, max_speakers, speakers_expected } = self.speakers;
        let limits = [
            (min_speakers, "min_speakers"),
            (max_speakers, "max_speakers"),
            (speakers_expected, "speakers_expected"),
        ];
        let given = limits.into_iter().filter_map(|(limit, name)| limit.map(|_| name));
        if self.diarize.is_empty() { given.collect() } else { Vec::new() }
    }

    /// Turns a feature that shapes the text on or off; false if `name` is not one.
    pub fn switch(&mut self, name: &str, on: bool) -> bool {
        let switch = match name {
            "numerals" => &mut self.numerals,
            "smart_format" => &mut self.smart_format,
            "profanity_filter" => &mut self.profanity_filter,
            "filler_words" => &mut self.filler_words,
            "measurements" => &mut self.measurements,
            "dictation" => &mut self.dictation,
            "punctuate" => self.punctuate.get_or_insert(on),
            _ => return false,
        };
        *switch = on;
        true
    }

    /// Replaces the terms to expect.
    ///
    /// # Errors
    /// As [`Self::parse`] for `keyterm`; after an error the terms must not be used.
    pub fn replace_keyterms(&mut self, keyterms: &[String]) -> Result<(), Error> {
        self.keyterms.clear();
        for value in keyterms {
            Reader { name: "keyterm", value }.text_item(&mut self.keyterms)?;
        }
        self.check_keyterms()
    }

    /// Whether the model is one of those that the wire format serves on `/v2/listen` alone.
    pub fn asks_for_turns(&self) -> bool {
        self.model.as_deref().is_some_and(|model| is_of(model, "flux"))
    }

    /// Whether the model is one of those that the wire format serves on `/v1/listen` alone. Names that models of this server
    /// have too are not among them.
    pub fn asks_for_no_turns(&self) -> bool {
        let model = self.model.as_deref().unwrap_or_default();
        ["nova", "enhanced"].into_iter().any(|family| is_of(model, family))
    }

    /// `language=multi`: words and alternatives name their language.
    pub fn is_multilingual(&self) -> bool {
        self.language.as_deref().is_some_and(|tag| tag.eq_ignore_ascii_case("multi"))
    }

    /// Whether the response shows punctuation word by word.
    pub fn shows_punctuation(&self) -> bool {
        self.punctuate == Some(true) || self.smart_format || self.paragraphs || self.dictation
    }

    /// Whether punctuation and capitals are to be left out.
    pub fn strips_punctuation(&self) -> bool {
        self.punctuate == Some(false) && !self.shows_punctuation()
    }

    /// Whether a requested feature shows in words only.
    pub fn needs_words(&self) -> bool {
        !self.diarize.is_empty()
    }

    /// Whether a requested feature shows in words.
    pub fn implies_words(&self) -> bool {
        !self.diarize.is_empty() || self.utterances || !self.search.is_empty() || self.shows_punctuation()
    }

    /// Requested features without effect on languages other than English.
    pub fn english_only(&self) -> Vec<&'static str> {
        let asked = [
            (self.numerals, "numerals"),
            (self.measurements, "measurements"),
            (self.dictation, "dictation"),
            (self.profanity_filter, "profanity_filter"),
        ];
        asked.into_iter().filter_map(|(asked, name)| asked.then_some(name)).collect()
    }

    /// Parameters that were understood, ask for something, and are not honoured by this build.
    pub fn unsupported(&self) -> Vec<&'static str> {
        let asked = [
            (self.alternatives.is_some_and(|count| count > 1), "alternatives"),
            (self.version.as_deref().is_some_and(|version| version != "latest"), "version"),
            (self.tier.is_some(), "tier"),
        ];
        let asked = asked.into_iter().filter_map(|(asked, name)| asked.then_some(name));
        asked.chain(self.intelligence.iter().copied()).collect()
    }
}

/// Whether `model` is of `family`: `nova`, `nova-3`, `nova-3-general`.
fn is_of(model: &str, family: &str) -> bool {
    model.split('-').next().is_some_and(|first| first.eq_ignore_ascii_case(family))
}

#[cfg(test)]
mod tests;
