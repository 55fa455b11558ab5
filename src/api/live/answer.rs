//! A stream's events as messages of the wire format. Pure.

use std::collections::BTreeMap;
use std::time::SystemTime;

use uuid::Uuid;

use super::wire::{Alternative, Channel, Message, Metadata, Results, ResultsMetadata};
use crate::api::answer::{format_options, model_info, search, warnings, word};
use crate::api::parameters::{LiveParameters, Parameters, Redaction};
use crate::api::wire;
use crate::clock::rfc3339;
use crate::engine::ModelInfo;
use crate::figures::{Probability, Seconds};
use crate::format::redact::Redactor;
use crate::format::{self, Word};
use crate::live::{self, Event, Shortfall};

/// The stream's request.
pub struct Asked {
    pub request_id: Uuid,
    pub created: SystemTime,
    pub parameters: LiveParameters,
}

/// Facts about the whole stream.
pub struct Heard {
    pub sha256: [u8; 32],
    pub duration_seconds: f64,
    pub source_channels: u16,
    /// With speakers: results that lack them.
    pub shortfall: Shortfall,
    /// Seconds.
    pub voice_without_words: f64,
    /// When the last words were recognised.
    pub language: Option<String>,
}

/// Hides numbers, separately in each channel: one may begin in one result and end in the next.
#[derive(Default)]
pub struct Redactors(Vec<Redactor>);

impl Redactors {
    fn of(&mut self, channel: usize, redaction: &Redaction) -> &mut Redactor {
        while self.0.len() <= channel {
            self.0.push(Redactor::new(&redaction.classes, redaction.mode));
        }
        &mut self.0[channel]
    }
}

/// The message for `event`, of a stream with this many channels; `None` for one that clients don't see.
pub fn message(
    asked: &Asked,
    redactors: &mut Redactors,
    event: Event,
    channels: usize,
    model: &ModelInfo,
) -> Option<Message> {
    let message = match event {
        Event::Results(heard) => {
            let redactor = redactors.of(heard.channel, &asked.parameters.redaction);
            Message::Results(Box::new(results(asked, redactor, heard, channels, model)))
        }
        Event::SpeechStarted { channel, at } => {
            Message::SpeechStarted { channel: [channel, channels], timestamp: Seconds::new(at) }
        }
        Event::UtteranceEnd { channel, last_word_end } => {
            Message::UtteranceEnd { channel: [channel, channels], last_word_end: Seconds::new(last_word_end) }
        }
        Event::Voice(_) => return None,
    };
    Some(message)
}

fn results(
    asked: &Asked,
    redactor: &mut Redactor,
    heard: live::Results,
    channels: usize,
    model: &ModelInfo,
) -> Results {
    let parameters = &asked.parameters.common;
    let (words, search) = shape(&heard, parameters, redactor);
    let text = if parameters.strips_punctuation() { format::bare_text(&words) } else { format::text(&words) };
    let language = heard.language.clone().filter(|_| parameters.is_multilingual());
    let shows = parameters.shows_punctuation();
    // Results of streams have no confidence of speakers.
    let each = |shown: &Word| wire::Word {
        language: language.clone(),
        speaker_confidence: None,
        ..word(shown, shows, &heard.names)
    };
    let alternative = Alternative {
        transcript: text,
        confidence: Probability::new(format::confidence(&words)),
        words: words.iter().map(each).collect(),
        languages: parameters.is_multilingual().then(|| language.into_iter().collect()),
    };
    // The next span starts where this one ends, in the written text as well.
    let (start, end) = (Seconds::new(heard.start), Seconds::new(heard.start + heard.duration));
    Results {
        channel_index: [heard.channel, channels],
        duration: start.until(end),
        start,
        is_final: heard.is_final,
        speech_final: heard.speech_final,
        channel: Channel { alternatives: [alternative], search },
        metadata: ResultsMetadata {
            request_id: asked.request_id,
            model_info: model_info(model),
            model_uuid: model.uuid,
            extra: parameters.extra.clone(),
        },
        from_finalize: heard.from_finalize,
    }
}

/// The words of a result as they are shown, and the search hits in them: the only place that changes text.
/// Redaction comes first, so that neither formatting nor search can reveal what it hides.
fn shape(
    heard: &live::Results,
    parameters: &Parameters,
    redactor: &mut Redactor,
) -> (Vec<Word>, Option<Vec<wire::Search>>) {
    let words = redactor.redact(format::gather(&heard.words), heard.is_final);
    let language = heard.language.as_deref().unwrap_or_default();
    let search = (!parameters.search.is_empty()).then(|| search(parameters, [(words.as_slice(), language)]));
    (format::format(words, &format_options(parameters, language)), search)
}

pub fn metadata(asked: &Asked, heard: &Heard, model: &ModelInfo) -> Message {
    let parameters = &asked.parameters.common;
    let mut warnings = warnings(
        asked.parameters.unsupported(),
        parameters,
        heard.language.iter().map(String::as_str),
        model,
    );
    warnings.extend(
        parameters.diarize.first().and_then(|parameter| without_speakers(parameter, heard.shortfall)),
    );
    Message::Metadata(Box::new(Metadata {
        transaction_key: "deprecated",
        request_id: asked.request_id,
        sha256: data_encoding::HEXLOWER.encode(&heard.sha256),
        created: rfc3339(asked.created),
        duration: Seconds::of_audio(heard.duration_seconds),
        channels: heard.source_channels,
        models: [model.uuid],
        model_info: BTreeMap::from([(model.uuid, model_info(model))]),
        voice_without_words: (heard.voice_without_words > 0.0)
            .then(|| Seconds::new(heard.voice_without_words)),
        warnings,
        extra: parameters.extra.clone(),
        tags: parameters.tags.clone(),
        metadata: parameters.metadata.clone(),
    }))
}

/// The warning about results without the speakers that `parameter` asked for.
fn without_speakers(parameter: &'static str, shortfall: Shortfall) -> Option<wire::Warning> {
    let Shortfall { late, failed } = shortfall;
    let lacking = [
        (late, "carry the speaker before, since theirs was not known in time"),
        (failed, "have no speakers, since they could not be told apart"),
    ];
    let lacking = lacking.into_iter().filter(|(count, _)| *count > 0);
    let lacking: Vec<String> =
        lacking.map(|(count, how)| format!("the words of {count} final results {how}")).collect();
    (!lacking.is_empty()).then(|| wire::Warning {
        parameter,
        kind: wire::WarningKind::PartlyUsed,
        message: format!("`{parameter}`: {}.", lacking.join("; ")),
    })
}
