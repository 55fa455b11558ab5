//! Transcripts in the wire format. Pure, except for [`respond`], which picks the thread.
//!
//! The transcript is the model's text, with punctuation and capitals unless `punctuate=false`. A word's
//! `word` is always bare and in lower case: the users of the SDKs compare and search by it, in every mode of
//! the wire format. Its written form is `punctuated_word`, present as in the wire format: with `punctuate`,
//! `smart_format` and the parameters that imply them. [`crate::format`] documents the formatting, and how
//! words that become one keep their times.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tokio::task::JoinError;
use uuid::Uuid;

use super::parameters::{DetectLanguage, Parameters};
use super::{terms, wire};
use crate::clock::rfc3339;
use crate::engine::ModelInfo;
use crate::figures::{Probability, Seconds};
use crate::format::{self, FillerWords, Word};
use crate::speakers;
use crate::transcript::{Transcript, script};
use crate::voices::Identified;

/// The request that is answered.
pub struct Asked<'a> {
    pub request_id: Uuid,
    pub created: SystemTime,
    pub parameters: &'a Parameters,
    pub words: bool,
}

/// The result of its transcription.
pub struct Heard<'a> {
    /// SHA-256 of the bytes that were sent or fetched.
    pub sha256: [u8; 32],
    pub duration_seconds: f64,
    pub source_channels: u16,
    /// Some of the audio could not be decoded.
    pub damaged: bool,
    /// One for each channel that was transcribed separately.
    pub transcripts: &'a [Transcript],
    /// For each of them, the names of its speakers by number; empty unless names were asked for.
    pub names: &'a [Vec<Option<Identified>>],
    pub model: &'a ModelInfo,
}

pub fn response(asked: &Asked<'_>, heard: &Heard<'_>) -> wire::Response {
    let channel = |(index, transcript)| {
        let names = heard.names.get(index).map_or(&[][..], Vec::as_slice);
        Channel::of(asked.parameters, transcript, names)
    };
    let spoken: Vec<Channel<'_>> = heard.transcripts.iter().enumerate().map(channel).collect();
    let results = wire::Results {
        channels: spoken.iter().map(|channel| channel.entry(asked)).collect(),
        utterances: asked.parameters.utterances.then(|| utterances(asked, &spoken)),
    };
    wire::Response { metadata: metadata(asked, heard), results }
}

/// As [`response`], off the async threads if it may take long: a search reads the whole transcript, once for
/// each term.
///
/// # Errors
/// Only if `response` panicked.
pub async fn respond(asked: &Asked<'_>, heard: &Heard<'_>) -> Result<wire::Response, JoinError> {
    if asked.parameters.search.is_empty() {
        return Ok(response(asked, heard));
    }
    let (request_id, created, words) = (asked.request_id, asked.created, asked.words);
    let (sha256, duration_seconds) = (heard.sha256, heard.duration_seconds);
    let (source_channels, damaged) = (heard.source_channels, heard.damaged);
    let parameters = asked.parameters.clone();
    let (transcripts, names, model) = (heard.transcripts.to_vec(), heard.names.to_vec(), heard.model.clone());
    let work = move || {
        let asked = Asked { request_id, created, parameters: &parameters, words };
        let (transcripts, names, model) = (&*transcripts, &*names, &model);
        response(
            &asked,
            &Heard { sha256, duration_seconds, source_channels, damaged, transcripts, names, model },
        )
    };
    tokio::task::spawn_blocking(work).await
}

fn metadata(asked: &Asked<'_>, heard: &Heard<'_>) -> wire::Metadata {
    let languages = heard.transcripts.iter().map(|transcript| transcript.language.code.as_str());
    let unsupported = asked.parameters.unsupported();
    let mut warnings = warnings(unsupported, asked.parameters, languages, heard.model);
    if heard.damaged {
        let message = format!(
            "The audio is damaged or breaks off: {:.2} s of it could be decoded and were transcribed.",
            heard.duration_seconds
        );
        warnings.push(wire::Warning { parameter: "audio", kind: wire::WarningKind::DamagedAudio, message });
    }
    let voice_without_words: f64 =
        heard.transcripts.iter().map(|transcript| transcript.voice_without_words).sum();
    wire::Metadata {
        transaction_key: "deprecated",
        request_id: asked.request_id,
        sha256: data_encoding::HEXLOWER.encode(&heard.sha256),
        created: rfc3339(asked.created),
        duration: Seconds::of_audio(heard.duration_seconds),
        channels: heard.source_channels,
        models: vec![heard.model.uuid],
        model_info: BTreeMap::from([(heard.model.uuid, model_info(heard.model))]),
        diarize_info: asked.parameters.speakers().map(|_| diarize_info()),
        voice_without_words: (voice_without_words > 0.0).then(|| Seconds::new(voice_without_words)),
        warnings,
        extra: asked.parameters.extra.clone(),
        tags: asked.parameters.tags.clone(),
        metadata: asked.parameters.metadata.clone(),
    }
}

/// The architecture of all models.
pub(super) const ARCHITECTURE: &str = "whisper";

pub(super) fn model_info(model: &ModelInfo) -> wire::ModelInfo {
    wire::ModelInfo {
        name: model.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arch: ARCHITECTURE,
    }
}

fn diarize_info() -> wire::DiarizeInfo {
    // As models get theirs.
    let model_uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, speakers::MODEL.as_bytes());
    wire::DiarizeInfo { model_uuid, arch: speakers::MODEL }
}

/// Warnings about parameters without effect, for audio in `languages`.
pub(super) fn warnings<'a>(
    unsupported: Vec<&'static str>,
    parameters: &Parameters,
    mut languages: impl Iterator<Item = &'a str>,
    model: &ModelInfo,
) -> Vec<wire::Warning> {
    let warning = |parameter, kind, message| wire::Warning { parameter, kind, message };
    let mut warnings: Vec<_> = unsupported
        .into_iter()
        .map(|parameter| {
            let message = format!("`{parameter}` is not supported and had no effect.");
            warning(parameter, wire::WarningKind::UnsupportedParameter, message)
        })
        .collect();
    if !languages.any(format::is_english) {
        warnings.extend(parameters.english_only().into_iter().map(|parameter| {
            let message = format!("`{parameter}` knows English and had no effect on other languages.");
            warning(parameter, wire::WarningKind::UnsupportedLanguage, message)
        }));
    }
    warnings.extend(parameters.idle_speaker_limits().into_iter().map(|parameter| {
        let message = format!("`{parameter}` had no effect without `diarize`.");
        warning(parameter, wire::WarningKind::WithoutEffect, message)
    }));
    let without_effect = terms::keywords_without_effect(parameters);
    if without_effect > 0 {
        let message = format!("{without_effect} values of `keywords` had no effect: their intensifier is 0.");
        warnings.push(warning("keywords", wire::WarningKind::PartlyUsed, message));
    }
    // A name that is served is that of the model by now.
    if parameters.model.as_ref().is_some_and(|asked| *asked != model.name) {
        let name = &model.name;
        let message = format!("The model asked for is not served here; `{name}` was used.");
        warnings.push(warning("model", wire::WarningKind::UnsupportedModel, message));
    }
    warnings
}

/// How to write words in `language` for `parameters`.
pub(super) fn format_options<'a>(parameters: &'a Parameters, language: &'a str) -> format::Options<'a> {
    format::Options {
        language,
        filler_words: if parameters.filler_words { FillerWords::Spelled } else { FillerWords::Stripped },
        dictation: parameters.dictation,
        smart: parameters.smart_format,
        numerals: parameters.numerals,
        measurements: parameters.measurements,
        replace: &parameters.replace,
        profanity_filter: parameters.profanity_filter,
    }
}

/// The words of one channel, as the request wants them.
struct Channel<'a> {
    parameters: &'a Parameters,
    transcript: &'a Transcript,
    /// Names of speakers, by their number.
    names: &'a [Option<Identified>],
    /// As the model heard them.
    heard: Vec<Word>,
    /// As they are shown.
    shown: Vec<Word>,
}

impl<'a> Channel<'a> {
    fn of(parameters: &'a Parameters, transcript: &'a Transcript, names: &'a [Option<Identified>]) -> Self {
        let heard = format::gather(transcript.words());
        let shown = formatted(parameters, transcript, &heard);
        Self { parameters, transcript, names, heard, shown }
    }

    fn entry(&self, asked: &Asked<'_>) -> wire::Channel {
        let Self { parameters, transcript, shown, .. } = self;
        let multilingual = parameters.is_multilingual();
        let detects = parameters.detect_language != DetectLanguage::Off || multilingual;
        let language = &transcript.language;
        let divides = parameters.paragraphs || (parameters.smart_format && script::is_spaced(&language.code));
        let alternative = wire::Alternative {
            transcript: self.text(shown),
            confidence: Probability::new(format::confidence(shown)),
            words: asked.words.then(|| self.words(shown)),
            paragraphs: divides.then(|| paragraphs(shown, self.names)),
            languages: multilingual.then(|| spoken(transcript)),
        };
        wire::Channel {
            search: (!parameters.search.is_empty())
                .then(|| search(parameters, runs(transcript, &self.heard))),
            detected_language: detects.then(|| language.code.clone()),
            language_confidence: detects.then(|| Probability::new(language.probability)),
            alternatives: vec![alternative],
        }
    }

    fn text(&self, words: &[Word]) -> String {
        if self.parameters.strips_punctuation() { format::bare_text(words) } else { format::text(words) }
    }

    fn words(&self, words: &[Word]) -> Vec<wire::Word> {
        let names = self.parameters.is_multilingual();
        let shows = self.parameters.shows_punctuation();
        let language = |word: &Word| names.then(|| self.transcript.language_at(word.start).to_owned());
        let word = |each| wire::Word { language: language(each), ..word(each, shows, self.names) };
        words.iter().map(word).collect()
    }
}

/// The languages of a transcript, that of most of it first.
fn spoken(transcript: &Transcript) -> Vec<String> {
    let mut spoken = vec![transcript.language.code.clone()];
    for change in &transcript.languages {
        if !spoken.contains(&change.code) {
            spoken.push(change.code.clone());
        }
    }
    spoken
}

/// Words in the order of time, formatted as their languages are.
fn formatted(parameters: &Parameters, transcript: &Transcript, heard: &[Word]) -> Vec<Word> {
    let shown = |(words, language): (&[Word], &str)| {
        format::format(words.to_vec(), &format_options(parameters, language))
    };
    runs(transcript, heard).flat_map(shown).collect()
}

/// Words in a row in the same language, with its code.
fn runs<'a>(transcript: &'a Transcript, words: &'a [Word]) -> impl Iterator<Item = (&'a [Word], &'a str)> {
    let language = |word: &Word| transcript.language_at(word.start);
    let runs = words.chunk_by(move |one, next| language(one) == language(next));
    runs.filter_map(move |run| Some((run, language(run.first()?))))
}

/// Searches the words as heard, since numbers are searched for as they are spoken; but shows nothing that is
/// masked in the transcript.
pub(super) fn search<'a>(
    parameters: &Parameters,
    heard: impl IntoIterator<Item = (&'a [Word], &'a str)>,
) -> Vec<wire::Search> {
    let masked = |(words, language): (&[Word], &str)| {
        let options = format::Options {
            language,
            profanity_filter: parameters.profanity_filter,
            ..format::Options::default()
        };
        format::format(words.to_vec(), &options)
    };
    let words: Vec<Word> = heard.into_iter().flat_map(masked).collect();
    let searcher = format::Searcher::new(&words);
    let hit = |hit: format::Hit| wire::Hit {
        confidence: Probability::new(hit.confidence),
        start: Seconds::new(hit.start),
        end: Seconds::new(hit.end),
        snippet: hit.snippet,
    };
    let search = |query: &String| wire::Search {
        query: query.clone(),
        hits: searcher.hits(query).into_iter().map(hit).collect(),
    };
    parameters.search.iter().map(search).collect()
}

fn utterances(asked: &Asked<'_>, channels: &[Channel<'_>]) -> Vec<wire::Utterance> {
    let split = asked.parameters.utterance_split_seconds.unwrap_or(format::SPLIT_SECONDS);
    let of_channel = |(index, channel): (usize, &Channel<'_>)| {
        let named = |words: &[Word]| name(words.first().and_then(speaker), channel.names);
        let utterance = |(place, words): (usize, &[Word])| wire::Utterance {
            start: Seconds::new(words.first().map_or(0.0, |word| word.start)),
            end: Seconds::new(words.last().map_or(0.0, |word| word.end)),
            confidence: Probability::new(format::confidence(words)),
            channel: index,
            transcript: channel.text(words),
            words: channel.words(words),
            speaker: words.first().and_then(speaker),
            speaker_name: named(words).map(name_of),
            speaker_name_confidence: named(words).map(sureness),
            // The same answer has the same ids, however often it is made.
            id: Uuid::new_v5(&asked.request_id, format!("utterance {index} {place}").as_bytes()),
        };
        format::utterances(&channel.shown, split).enumerate().map(utterance).collect::<Vec<_>>()
    };
    let mut utterances: Vec<_> = channels.iter().enumerate().flat_map(of_channel).collect();
    utterances.sort_by(|a, b| a.start.get().total_cmp(&b.start.get()));
    utterances
}

/// `names`: of speakers, by number.
fn paragraphs(words: &[Word], names: &[Option<Identified>]) -> wire::Paragraphs {
    let paragraphs = format::paragraphs(words);
    let sentence = |sentence: &format::Sentence| wire::Sentence {
        text: sentence.text.clone(),
        start: Seconds::new(sentence.start),
        end: Seconds::new(sentence.end),
        speaker: sentence.speaker,
        speaker_name: name(sentence.speaker, names).map(name_of),
        speaker_name_confidence: name(sentence.speaker, names).map(sureness),
    };
    let paragraph = |paragraph: &format::Paragraph| wire::Paragraph {
        sentences: paragraph.sentences.iter().map(sentence).collect(),
        num_words: paragraph.words,
        start: Seconds::new(paragraph.start),
        end: Seconds::new(paragraph.end),
        speaker: paragraph.speaker,
        speaker_name: name(paragraph.speaker, names).map(name_of),
        speaker_name_confidence: name(paragraph.speaker, names).map(sureness),
    };
    wire::Paragraphs {
        transcript: format::paragraphs_text(&paragraphs),
        paragraphs: paragraphs.iter().map(paragraph).collect(),
    }
}

fn speaker(word: &Word) -> Option<usize> {
    word.speaker.map(|speaker| speaker.index)
}

fn name(speaker: Option<usize>, names: &[Option<Identified>]) -> Option<&Identified> {
    names.get(speaker?)?.as_ref()
}

fn name_of(identified: &Identified) -> String {
    identified.name.to_string()
}

fn sureness(identified: &Identified) -> Probability {
    Probability::new(identified.confidence)
}

/// `punctuated`: with `punctuated_word`; `names`: of speakers, by number.
pub(super) fn word(shown: &Word, punctuated: bool, names: &[Option<Identified>]) -> wire::Word {
    let identified = name(speaker(shown), names);
    wire::Word {
        word: shown.bare.clone(),
        start: Seconds::new(shown.start),
        end: Seconds::new(shown.end),
        confidence: Probability::new(shown.confidence),
        punctuated_word: punctuated.then(|| shown.written.clone()),
        speaker: speaker(shown),
        speaker_confidence: shown.speaker.map(|speaker| Probability::new(speaker.confidence)),
        speaker_name: identified.map(name_of),
        speaker_name_confidence: identified.map(sureness),
        language: None,
    }
}

#[cfg(test)]
mod tests;
