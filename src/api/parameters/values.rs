//! The kinds of values that parameters take.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::{CallbackProblem, Error};
use crate::format::Replacement;

/// Longer values are shortened when they are shown to the client.
const SHOWN_CHARACTERS_MAX: usize = 80;
pub(super) const ITEM_CHARACTERS_MAX: usize = 128;
pub(super) const SECONDS_MAX: f64 = 3600.0;
/// Everything that asks for speaker labels.
const DIARIZE_NAMES: [&str; 4] = ["diarize", "diarization", "diarize_model", "diarize_version"];

/// `detect_language`: a switch, or the languages to choose among.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DetectLanguage {
    #[default]
    Off,
    Any,
    /// BCP-47 tags.
    Among(Vec<String>),
}

/// The encoding of samples without a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Linear16,
    /// The contract's name for `Linear16`, which has a default rate.
    S16le,
    Linear32,
    Mulaw,
    Alaw,
    Flac,
    AmrNb,
    AmrWb,
    Opus,
    OggOpus,
    WebmOpus,
    Mp3,
    Aac,
    Speex,
    G729,
}

impl Encoding {
    const NAMES: [(&'static str, Self); 15] = [
        ("linear16", Self::Linear16),
        ("s16le", Self::S16le),
        ("linear32", Self::Linear32),
        ("mulaw", Self::Mulaw),
        ("alaw", Self::Alaw),
        ("flac", Self::Flac),
        ("amr-nb", Self::AmrNb),
        ("amr-wb", Self::AmrWb),
        ("opus", Self::Opus),
        ("ogg-opus", Self::OggOpus),
        ("webm-opus", Self::WebmOpus),
        ("mp3", Self::Mp3),
        ("aac", Self::Aac),
        ("speex", Self::Speex),
        ("g729", Self::G729),
    ];

    pub(super) const fn names() -> [&'static str; Self::NAMES.len()] {
        let mut names = [""; Self::NAMES.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::NAMES[index].0;
            index += 1;
        }
        names
    }

    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, encoding)| *encoding == self).map_or("", |(name, _)| name)
    }

    /// Samples alone do not reveal their rate.
    pub(super) fn needs_sample_rate(self) -> bool {
        matches!(self, Self::Linear16 | Self::Linear32 | Self::Mulaw | Self::Alaw)
    }
}

/// The HTTP method that delivers a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallbackMethod {
    #[default]
    Post,
    Put,
}

/// The address of a callback.
///
/// # Errors
/// [`Error::Callback`].
pub fn callback_url(value: &str) -> Result<url::Url, Error> {
    url_of(value, &["http", "https"])
}

fn url_of(value: &str, schemes: &'static [&'static str]) -> Result<url::Url, Error> {
    let url = url::Url::parse(value).map_err(|_| Error::Callback(CallbackProblem::Syntax))?;
    if !schemes.contains(&url.scheme()) {
        return Err(Error::Callback(CallbackProblem::Scheme(schemes)));
    }
    if !url.has_host() {
        return Err(Error::Callback(CallbackProblem::Syntax));
    }
    Ok(url)
}

/// A keyword to expect.
#[derive(Debug, Clone, PartialEq)]
pub struct Keyword {
    pub word: String,
    /// 1 by default; more weighs more, 0 and less ask for no boost.
    pub intensifier: f64,
}

/// Remembers which single-valued parameters have been given.
#[derive(Default)]
pub(super) struct Once(HashSet<String>);

impl Once {
    pub(super) fn of(
        &mut self,
        name: &str,
        given: &Reader<'_>,
        read: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.0.insert(name.to_owned()) { read() } else { Err(Error::Duplicate(given.name.to_owned())) }
    }
}

/// A parameter as it was sent.
pub(super) struct Reader<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

impl Reader<'_> {
    pub(super) fn invalid(&self, expected: &'static str) -> Error {
        let value = self.value.chars().take(SHOWN_CHARACTERS_MAX).collect();
        Error::Value { parameter: self.name.to_owned(), value, expected }
    }

    /// Some SDKs write booleans with a capital.
    pub(super) fn boolean(&self) -> Option<bool> {
        match self.value {
            _ if self.value.eq_ignore_ascii_case("true") => Some(true),
            _ if self.value.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }
    }

    pub(super) fn flag(&self, into: &mut bool) -> Result<(), Error> {
        *into = self.boolean().ok_or_else(|| self.invalid("true or false"))?;
        Ok(())
    }

    /// One of several flags with the same meaning: each can turn it on, none off.
    pub(super) fn switch(&self, into: &mut BTreeSet<&'static str>) -> Result<(), Error> {
        if self.boolean().ok_or_else(|| self.invalid("true or false"))? {
            into.extend(DIARIZE_NAMES.iter().find(|name| **name == self.name));
        }
        Ok(())
    }

    /// Naming a model for a feature turns it on.
    pub(super) fn named(&self, into: &mut BTreeSet<&'static str>) -> Result<(), Error> {
        if !self.value.is_empty() && self.boolean() != Some(false) {
            into.extend(DIARIZE_NAMES.iter().find(|name| **name == self.name));
        }
        Ok(())
    }

    pub(super) fn text(&self, into: &mut Option<String>) -> Result<(), Error> {
        *into = Some(self.value.to_owned());
        Ok(())
    }

    pub(super) fn number<T: FromStr + PartialOrd>(
        &self,
        into: &mut Option<T>,
        range: RangeInclusive<T>,
    ) -> Result<(), Error> {
        let number = self.value.parse().ok().filter(|number| range.contains(number));
        *into = Some(number.ok_or_else(|| self.invalid("a whole number within bounds"))?);
        Ok(())
    }

    pub(super) fn seconds(&self, into: &mut Option<f64>) -> Result<(), Error> {
        let seconds = self.value.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
        *into = Some(seconds.ok_or_else(|| self.invalid("seconds"))?);
        Ok(())
    }

    fn push<T>(&self, into: &mut Vec<T>, limit: usize, item: T) -> Result<(), Error> {
        if into.len() >= limit {
            return Err(Error::TooMany { parameter: self.name.to_owned(), limit });
        }
        into.push(item);
        Ok(())
    }

    /// The items between the commas, at least one.
    fn split(&self, characters: usize) -> Result<Vec<&str>, Error> {
        let items: Vec<&str> = self.value.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        if items.is_empty() {
            return Err(self.invalid("a word or more"));
        }
        if items.iter().any(|item| item.chars().count() > characters) {
            return Err(self.invalid("at most 128 characters"));
        }
        Ok(items)
    }

    pub(super) fn items(&self, into: &mut Vec<String>, limit: usize, characters: usize) -> Result<(), Error> {
        self.split(characters)?.into_iter().try_for_each(|item| self.push(into, limit, item.to_owned()))
    }

    /// A non-empty text, which may hold commas.
    pub(super) fn text_item(&self, into: &mut Vec<String>) -> Result<(), Error> {
        if self.value.trim().is_empty() || self.value.chars().count() > ITEM_CHARACTERS_MAX {
            return Err(self.invalid("at most 128 characters"));
        }
        into.push(self.value.to_owned());
        Ok(())
    }

    /// `WORD` or `WORD:INTENSIFIER`.
    pub(super) fn keywords(&self, into: &mut Vec<Keyword>, limit: usize) -> Result<(), Error> {
        for item in self.split(ITEM_CHARACTERS_MAX)? {
            let (word, intensifier) = match item.rsplit_once(':') {
                Some((word, number)) => {
                    let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
                    (word, number.ok_or_else(|| self.invalid("WORD:INTENSIFIER"))?)
                }
                None => (item, 1.0),
            };
            if word.trim().is_empty() {
                return Err(self.invalid("WORD:INTENSIFIER"));
            }
            self.push(into, limit, Keyword { word: word.to_owned(), intensifier })?;
        }
        Ok(())
    }

    pub(super) fn tag(&self, into: &mut Vec<String>, limit: usize, characters: usize) -> Result<(), Error> {
        if self.value.chars().count() > characters {
            return Err(self.invalid("at most 128 characters"));
        }
        self.push(into, limit, self.value.to_owned())
    }

    /// `key:value`; the last value of a key counts.
    pub(super) fn pair(
        &self,
        into: &mut BTreeMap<String, String>,
        limit: usize,
        characters: usize,
    ) -> Result<(), Error> {
        if self.value.chars().count() > characters {
            return Err(self.invalid("at most 2048 characters"));
        }
        let (key, value) = self.value.split_once(':').ok_or_else(|| self.invalid("KEY:VALUE"))?;
        if into.len() >= limit && !into.contains_key(key) {
            return Err(Error::TooMany { parameter: self.name.to_owned(), limit });
        }
        into.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// `false` asks for none; `true` is the wire format's older word for `numbers`.
    pub(super) fn redaction(&self, into: &mut Vec<String>, limit: usize) -> Result<(), Error> {
        match self.boolean() {
            Some(false) => Ok(()),
            Some(true) => self.push(into, limit, "numbers".to_owned()),
            None => self.items(into, limit, ITEM_CHARACTERS_MAX),
        }
    }

    pub(super) fn replacement(
        &self,
        into: &mut Vec<Replacement>,
        limit: usize,
        characters: usize,
    ) -> Result<(), Error> {
        if self.value.chars().count() > characters {
            return Err(self.invalid("at most 2048 characters"));
        }
        let (find, replace) = match self.value.split_once(':') {
            Some((find, replace)) => (find, Some(replace.to_owned()).filter(|replace| !replace.is_empty())),
            None => (self.value, None),
        };
        if find.trim().is_empty() {
            return Err(self.invalid("FIND:REPLACE"));
        }
        self.push(into, limit, Replacement { find: find.to_owned(), replace })
    }

    pub(super) fn detect_language(&self, into: &mut DetectLanguage, limit: usize) -> Result<(), Error> {
        match (self.boolean(), &mut *into) {
            (Some(true), DetectLanguage::Off) => *into = DetectLanguage::Any,
            // A list is more specific than a switch.
            (Some(_), _) => {}
            (None, DetectLanguage::Among(tags)) => return self.items(tags, limit, ITEM_CHARACTERS_MAX),
            (None, _) => {
                let mut tags = Vec::new();
                self.items(&mut tags, limit, ITEM_CHARACTERS_MAX)?;
                *into = DetectLanguage::Among(tags);
            }
        }
        Ok(())
    }

    pub(super) fn encoding(&self, into: &mut Option<Encoding>) -> Result<(), Error> {
        let known = Encoding::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(self.value));
        let (_, encoding) = known.ok_or_else(|| self.invalid("the name of an encoding, such as linear16"))?;
        *into = Some(*encoding);
        Ok(())
    }

    pub(super) fn callback(&self, into: &mut Option<url::Url>) -> Result<(), Error> {
        *into = Some(callback_url(self.value)?);
        Ok(())
    }

    pub(super) fn url(
        &self,
        schemes: &'static [&'static str],
        into: &mut Option<url::Url>,
    ) -> Result<(), Error> {
        *into = Some(url_of(self.value, schemes)?);
        Ok(())
    }

    pub(super) fn callback_method(&self, into: &mut CallbackMethod) -> Result<(), Error> {
        *into = match self.value {
            _ if self.value.eq_ignore_ascii_case("post") => CallbackMethod::Post,
            _ if self.value.eq_ignore_ascii_case("put") => CallbackMethod::Put,
            _ => return Err(self.invalid("POST or PUT")),
        };
        Ok(())
    }

    /// Anything but `false` asks for it: `summarize` takes `v2`, the custom ones take texts.
    pub(super) fn intelligence(
        &self,
        name: &'static str,
        into: &mut BTreeSet<&'static str>,
    ) -> Result<(), Error> {
        if self.boolean() != Some(false) && !self.value.is_empty() {
            into.insert(name);
        }
        Ok(())
    }
}
