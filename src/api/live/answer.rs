//! Events of a stream to messages of the wire format. Pure.

use std::collections::BTreeMap;
use std::time::SystemTime;

use uuid::Uuid;

use super::wire::{Alternative, Channel, Message, Metadata, Results, ResultsMetadata};
use crate::api::answer::{bare_text, confidence, model_info, rounded, warnings, word};
use crate::api::parameters::LiveParameters;
use crate::engine::ModelInfo;
use crate::format::redact;
use crate::live::{self, Event};
use crate::transcript::Word;

/// What the client said.
pub struct Asked {
    pub request_id: Uuid,
    pub created: SystemTime,
    pub parameters: LiveParameters,
}

/// What came of the whole stream.
pub struct Heard {
    pub sha256: [u8; 32],
    pub duration_seconds: f64,
    pub source_channels: u16,
}

/// The message for `event`, of a stream with so many channels.
pub fn message(asked: &Asked, event: Event, channels: usize, model: &ModelInfo) -> Message {
    match event {
        Event::Results(heard) => Message::Results(results(asked, heard, channels, model)),
        Event::SpeechStarted { channel, at } => {
            Message::SpeechStarted { channel: [channel, channels], timestamp: seconds(at) }
        }
        Event::UtteranceEnd { channel, last_word_end } => {
            Message::UtteranceEnd { channel: [channel, channels], last_word_end: seconds(last_word_end) }
        }
    }
}

fn results(asked: &Asked, mut heard: live::Results, channels: usize, model: &ModelInfo) -> Results {
    let parameters = &asked.parameters.common;
    shape(&mut heard.words, asked);
    let words = &heard.words;
    let text = if parameters.strips_punctuation() {
        bare_text(words)
    } else {
        words.iter().map(|word| word.text.as_str()).collect::<String>().trim().to_owned()
    };
    let probabilities: f32 = words.iter().map(|word| word.probability).sum();
    let is_multilingual =
        parameters.language.as_deref().is_some_and(|language| language.eq_ignore_ascii_case("multi"));
    let alternative = Alternative {
        transcript: text,
        confidence: confidence(probabilities / words.len().max(1) as f32),
        languages: is_multilingual.then(|| heard.language.into_iter().collect()),
        words: words.iter().map(|spoken| word(spoken, parameters.shows_punctuation())).collect(),
    };
    // The next span starts where this one ends, in what is written as well.
    let (start, end) = (seconds(heard.start), seconds(heard.start + heard.duration));
    Results {
        channel_index: [heard.channel, channels],
        duration: seconds(end - start),
        start,
        is_final: heard.is_final,
        speech_final: heard.speech_final,
        channel: Channel { alternatives: [alternative] },
        metadata: ResultsMetadata {
            request_id: asked.request_id,
            model_info: model_info(model),
            model_uuid: model.uuid,
            extra: parameters.extra.clone(),
        },
        from_finalize: heard.from_finalize,
    }
}

/// The words of a result as they are to be shown: the one place for all that changes text.
fn shape(words: &mut [Word], asked: &Asked) {
    let redaction = &asked.parameters.redaction;
    redact::redact(words, &redaction.classes, redaction.mode);
}

pub fn metadata(asked: &Asked, heard: &Heard, model: &ModelInfo) -> Message {
    let parameters = &asked.parameters.common;
    Message::Metadata(Box::new(Metadata {
        transaction_key: "deprecated",
        request_id: asked.request_id,
        sha256: data_encoding::HEXLOWER.encode(&heard.sha256),
        created: humantime::format_rfc3339_millis(asked.created).to_string(),
        duration: rounded(heard.duration_seconds, 1e6),
        channels: heard.source_channels,
        models: [model.uuid],
        model_info: BTreeMap::from([(model.uuid, model_info(model))]),
        warnings: warnings(asked.parameters.unsupported(), parameters, model),
        extra: parameters.extra.clone(),
        tags: parameters.tags.clone(),
    }))
}

fn seconds(value: f64) -> f64 {
    rounded(value, 1e3)
}
