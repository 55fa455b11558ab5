//! The query parameters of a transcription, all of them, typed. Pure.
//!
//! [`Parameters::parse`] knows every parameter of the contract and of the wire format, checks its value
//! and keeps it; names that neither knows are ignored, as the wire format does. A parameter whose value
//! was understood is either honoured or named by [`Parameters::unsupported`], and so in the response's
//! warnings: nothing is dropped in silence. To honour one more, use its field and delete its line there.
//!
//! A parameter that takes one value may be given once: of two values neither is guessed at.

mod live;
mod values;

use std::collections::BTreeMap;

use url::form_urlencoded;

pub use live::{LiveParameters, RedactMode, Redaction};
pub use values::{CallbackMethod, DetectLanguage, Encoding, Replacement};

use values::{Once, Reader};

/// Why a query was refused. The text names the parameter and what it takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid value `{value}` for `{parameter}`: expected {expected}")]
    Value { parameter: String, value: String, expected: &'static str },
    #[error("duplicate field `{0}`")]
    Duplicate(String),
    #[error("too many values for `{parameter}`: at most {limit}")]
    TooMany { parameter: String, limit: usize },
    #[error("missing field `sample_rate`: samples of this `encoding` do not say their rate")]
    NoSampleRate,
    #[error("the callback is no http or https URL")]
    Callback,
}

/// What a request asks for. Absent parameters have their documented defaults.
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
    /// `diarize`, `diarize_model`, `diarize_version` and the contract's `diarization`: one switch.
    pub diarize: bool,
    pub numerals: bool,
    pub measurements: bool,
    pub dictation: bool,
    pub profanity_filter: bool,
    pub filler_words: bool,
    pub redact: Vec<String>,
    pub replace: Vec<Replacement>,
    pub search: Vec<String>,
    pub keywords: Vec<String>,
    pub keyterms: Vec<String>,

    /// For raw audio, with `sample_rate_hz`.
    pub encoding: Option<Encoding>,
    pub sample_rate_hz: Option<u32>,
    pub channels: Option<u16>,

    pub callback: Option<url::Url>,
    pub callback_method: CallbackMethod,
    /// Handed through to the callback.
    pub metadata: Option<String>,
    pub tags: Vec<String>,
    pub extra: BTreeMap<String, String>,

    /// Audio intelligence that was asked for, by parameter; never served.
    pub intelligence: Vec<&'static str>,
}

const SEARCH_MAX: usize = 50;
const REPLACE_MAX: usize = 200;
const KEYWORDS_MAX: usize = 100;
/// The wire format counts 500 tokens; a term has one at least.
const KEYTERMS_MAX: usize = 500;
const TAG_CHARACTERS_MAX: usize = 128;
const EXTRA_CHARACTERS_MAX: usize = 2048;
/// For lists that the wire format gives no bound.
const LIST_MAX: usize = 100;

impl Parameters {
    /// Reads a query string, without its `?`.
    ///
    /// # Errors
    /// The first [`Error`] met.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let mut all = Self::default();
        let mut once = Once::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            all.read(&mut once, &name, &value)?;
        }
        all.check_raw()?;
        Ok(all)
    }

    fn read(&mut self, once: &mut Once, name: &str, value: &str) -> Result<(), Error> {
        let given = Reader { name, value };
        match name {
            "language" | "lang" => once.of("language", &given, || given.text(&mut self.language)),
            "detect_language" => given.detect_language(&mut self.detect_language),
            "model" => once.of(name, &given, || given.text(&mut self.model)),
            "version" => once.of(name, &given, || given.text(&mut self.version)),
            "tier" => once.of(name, &given, || given.text(&mut self.tier)),
            "multichannel" => once.of(name, &given, || given.flag(&mut self.multichannel)),
            "alternatives" => once.of(name, &given, || given.number(&mut self.alternatives, 1..=100)),

            "punctuate" => once.of(name, &given, || given.flag(self.punctuate.insert(false))),
            "smart_format" => once.of(name, &given, || given.flag(&mut self.smart_format)),
            "paragraphs" => once.of(name, &given, || given.flag(&mut self.paragraphs)),
            "utterances" => once.of(name, &given, || given.flag(&mut self.utterances)),
            "utt_split" => once.of(name, &given, || given.seconds(&mut self.utterance_split_seconds)),
            "diarize" | "diarization" => once.of(name, &given, || given.switch(&mut self.diarize)),
            "diarize_model" | "diarize_version" => once.of(name, &given, || given.named(&mut self.diarize)),
            "numerals" => once.of(name, &given, || given.flag(&mut self.numerals)),
            "measurements" => once.of(name, &given, || given.flag(&mut self.measurements)),
            "dictation" => once.of(name, &given, || given.flag(&mut self.dictation)),
            "profanity_filter" => once.of(name, &given, || given.flag(&mut self.profanity_filter)),
            "filler_words" => once.of(name, &given, || given.flag(&mut self.filler_words)),
            "redact" => given.redaction(&mut self.redact, LIST_MAX),
            "replace" => given.replacement(&mut self.replace, REPLACE_MAX),
            "search" => given.item(&mut self.search, SEARCH_MAX),
            "keywords" => given.item(&mut self.keywords, KEYWORDS_MAX),
            "keyterm" => given.item(&mut self.keyterms, KEYTERMS_MAX),

            "encoding" => once.of(name, &given, || given.encoding(&mut self.encoding)),
            "sample_rate" => {
                once.of(name, &given, || given.number(&mut self.sample_rate_hz, 4_000..=384_000))
            }
            "channels" => once.of(name, &given, || given.number(&mut self.channels, 1..=20)),

            "callback" => once.of(name, &given, || given.callback(&mut self.callback)),
            "callback_method" => once.of(name, &given, || given.callback_method(&mut self.callback_method)),
            "metadata" => once.of(name, &given, || given.text(&mut self.metadata)),
            "tag" => given.tag(&mut self.tags, LIST_MAX, TAG_CHARACTERS_MAX),
            "extra" => given.pair(&mut self.extra, LIST_MAX, EXTRA_CHARACTERS_MAX),
            // Nothing of a request is kept to train on, whatever is said here.
            "mip_opt_out" => once.of(name, &given, || given.flag(&mut false)),

            "summarize" => given.intelligence("summarize", &mut self.intelligence),
            "sentiment" => given.intelligence("sentiment", &mut self.intelligence),
            "topics" => given.intelligence("topics", &mut self.intelligence),
            "intents" => given.intelligence("intents", &mut self.intelligence),
            "detect_entities" => given.intelligence("detect_entities", &mut self.intelligence),
            "custom_topic" => given.intelligence("custom_topic", &mut self.intelligence),
            "custom_intent" => given.intelligence("custom_intent", &mut self.intelligence),
            // They say how to read the two above and ask for nothing by themselves.
            "custom_topic_mode" | "custom_intent_mode" => Ok(()),
            _ => Ok(()),
        }
    }

    /// `sample_rate` and `channels` describe raw audio; a container says both itself.
    fn check_raw(&self) -> Result<(), Error> {
        match self.encoding {
            Some(encoding) if encoding.needs_sample_rate() && self.sample_rate_hz.is_none() => {
                Err(Error::NoSampleRate)
            }
            _ => Ok(()),
        }
    }

    /// Whether the response shall show punctuation word by word.
    pub fn shows_punctuation(&self) -> bool {
        self.punctuate == Some(true) || self.smart_format || self.paragraphs || self.dictation
    }

    /// Whether punctuation and capitals were asked to be left out.
    pub fn strips_punctuation(&self) -> bool {
        self.punctuate == Some(false) && !self.shows_punctuation()
    }

    /// Whether what was asked for is told word by word.
    pub fn implies_words(&self) -> bool {
        self.diarize || self.utterances || self.shows_punctuation()
    }

    /// Parameters that were understood, ask for something, and are not honoured by this build.
    pub fn unsupported(&self) -> Vec<&'static str> {
        let asked = [
            (self.smart_format, "smart_format"),
            (self.paragraphs, "paragraphs"),
            (self.utterances, "utterances"),
            (self.utterance_split_seconds.is_some(), "utt_split"),
            (self.diarize, "diarize"),
            (self.numerals, "numerals"),
            (self.measurements, "measurements"),
            (self.dictation, "dictation"),
            (self.profanity_filter, "profanity_filter"),
            (self.filler_words, "filler_words"),
            (!self.redact.is_empty(), "redact"),
            (!self.replace.is_empty(), "replace"),
            (!self.search.is_empty(), "search"),
            (!self.keywords.is_empty(), "keywords"),
            (!self.keyterms.is_empty(), "keyterm"),
            (self.alternatives.is_some_and(|count| count > 1), "alternatives"),
            (self.version.as_deref().is_some_and(|version| version != "latest"), "version"),
            (self.tier.is_some(), "tier"),
        ];
        let asked = asked.into_iter().filter_map(|(asked, name)| asked.then_some(name));
        asked.chain(self.intelligence.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests;
