//! A conversational stream's events as messages of the wire format. Pure.

use std::sync::Arc;

use uuid::Uuid;

use super::wire::{self, Event, Message, Trigger, TurnInfo, WarningKind};
use crate::api::answer::{format_options, warnings};
use crate::api::parameters::TurnParameters;
use crate::api::wire::{Warning, WarningKind as Kind};
use crate::engine::ModelInfo;
use crate::figures::{Probability, Score, Seconds};
use crate::format::redact::Redactor;
use crate::format::{self, FillerWords};
use crate::live::{self, TurnEvent, TurnKind};
use crate::transcript;

/// Characters of a member's name in a warning.
const NAME_CHARACTERS_MAX: usize = 64;

/// The stream's request.
pub struct Asked {
    pub request_id: Uuid,
    pub parameters: TurnParameters,
    /// The language is detected, not given.
    pub is_multilingual: bool,
}

/// Writes the turns of one stream, in order.
pub struct Writer {
    /// Remembers the numbers of past turns: one may go on in the next.
    redactor: Redactor,
    /// The words written last. Most events have the words of the event before.
    last: Option<Written>,
    /// Those of an announced end, which the end repeats even if `Configure` comes in between.
    announced: Option<Written>,
}

#[derive(Clone)]
struct Written {
    words: Arc<[transcript::Word]>,
    is_complete: bool,
    transcript: String,
    shown: Vec<wire::Word>,
}

impl Writer {
    pub fn new(parameters: &TurnParameters) -> Self {
        let redaction = &parameters.redaction;
        Self { redactor: Redactor::new(&redaction.classes, redaction.mode), last: None, announced: None }
    }

    pub fn message(&mut self, asked: &Asked, event: TurnEvent) -> Message {
        let is_end = matches!(event.kind, TurnKind::End(_));
        // The end of a turn has the text of its announcement.
        let is_complete = is_end || event.kind == TurnKind::EagerEnd;
        if is_end && let Some(announced) = self.announced.take() {
            self.last = Some(announced);
        }
        let written = self.write(asked, &event, is_complete);
        let announced = (event.kind == TurnKind::EagerEnd).then(|| written.clone());
        let message = TurnInfo {
            request_id: asked.request_id,
            event: kind(event.kind),
            turn_index: event.index,
            audio_window_start: Seconds::new(event.window.start),
            audio_window_end: Seconds::new(event.window.end),
            transcript: written.transcript.clone(),
            words: written.shown.clone(),
            end_of_turn_confidence: Probability::new(event.confidence),
            trigger: match event.kind {
                TurnKind::End(live::Trigger::Confidence) => Some(Trigger::Model),
                TurnKind::End(live::Trigger::Client) => Some(Trigger::Manual),
                TurnKind::End(live::Trigger::Timeout) => Some(Trigger::Timeout),
                _ => None,
            },
            languages: asked.is_multilingual.then_some(event.languages),
            languages_hinted: asked.parameters.language_hints.clone(),
        };
        match event.kind {
            TurnKind::EagerEnd => self.announced = announced,
            TurnKind::Resumed => self.announced = None,
            _ => {}
        }
        if is_end {
            // From here on, the turn's numbers are past ones.
            self.redactor.redact(format::gather(event.words.iter()), true);
            self.last = None;
        }
        Message::TurnInfo(Box::new(message))
    }

    fn write(&mut self, asked: &Asked, event: &TurnEvent, is_complete: bool) -> &Written {
        let is_written =
            |last: &Written| Arc::ptr_eq(&last.words, &event.words) && last.is_complete == is_complete;
        let last = self.last.take().filter(is_written);
        self.last.insert(last.unwrap_or_else(|| write(asked, event, is_complete, self.redactor.clone())))
    }
}

/// Redaction comes first, so that formatting cannot reveal what it hides.
fn write(asked: &Asked, event: &TurnEvent, is_complete: bool, mut redactor: Redactor) -> Written {
    let parameters = &asked.parameters.common;
    let language =
        event.languages.first().map_or(if asked.is_multilingual { "" } else { "en" }, String::as_str);
    // Fillers stay: a turn may consist of one.
    let options =
        format::Options { filler_words: FillerWords::AsHeard, ..format_options(parameters, language) };
    let words = redactor.redact(format::gather(event.words.iter()), is_complete);
    let words = format::format(words, &options);
    let strips = parameters.strips_punctuation();
    let shown = |word: &format::Word| wire::Word {
        word: if strips { word.bare.clone() } else { word.written.clone() },
        confidence: Probability::new(word.confidence),
        start: Seconds::new(word.start),
        end: Seconds::new(word.end),
    };
    Written {
        words: event.words.clone(),
        is_complete,
        transcript: if strips { format::bare_text(&words) } else { format::text(&words) },
        shown: words.iter().map(shown).collect(),
    }
}

fn kind(kind: TurnKind) -> Event {
    match kind {
        TurnKind::Update => Event::Update,
        TurnKind::Start => Event::StartOfTurn,
        TurnKind::EagerEnd => Event::EagerEndOfTurn,
        TurnKind::Resumed => Event::TurnResumed,
        TurnKind::End(_) => Event::EndOfTurn,
    }
}

/// The first messages of a stream.
pub fn greetings(asked: &Asked, model: &ModelInfo) -> Vec<Message> {
    let request_id = asked.request_id;
    let warning = |(code, description)| Message::Warning { request_id, code, description };
    let warnings = warned(asked, model).into_iter().map(warning);
    std::iter::once(Message::Connected { request_id }).chain(warnings).collect()
}

fn warned(asked: &Asked, model: &ModelInfo) -> Vec<(WarningKind, String)> {
    let parameters = &asked.parameters;
    let mut common = parameters.common.clone();
    // Its models name the protocol; the words are those of the model that is served.
    if common.asks_for_turns() {
        common.model = None;
    }
    let spoken = if asked.is_multilingual { None } else { Some("en") };
    let of_others = warnings(common.unsupported(), &common, spoken.into_iter(), model).into_iter();
    let kind = |warning: &Warning| match warning.kind {
        Kind::UnsupportedModel => WarningKind::UnsupportedModel,
        Kind::UnsupportedLanguage => WarningKind::UnsupportedLanguage,
        Kind::UnsupportedParameter => WarningKind::UnsupportedParameter,
        _ => WarningKind::WithoutEffect,
    };
    // Where the language is detected, what is spoken is not known yet.
    let is_known = |warning: &Warning| !asked.is_multilingual || warning.kind != Kind::UnsupportedLanguage;
    let of_others = of_others.filter(is_known).map(|warning| (kind(&warning), warning.message));
    let idle = parameters.idle.iter().map(|name| format!("`{name}` had no effect on turns."));
    let hints = (parameters.is_english && !parameters.language_hints.is_empty())
        .then(|| "`language_hint` had no effect on a model of English.".to_owned());
    of_others.chain(idle.chain(hints).map(|message| (WarningKind::WithoutEffect, message))).collect()
}

/// A warning about a member of `Configure`.
pub fn without_effect(request_id: Uuid, name: &str) -> Message {
    let name: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
    let description = format!("`{name}` had no effect on turns.");
    Message::Warning { request_id, code: WarningKind::WithoutEffect, description }
}

pub fn configured(asked: &Asked) -> Message {
    let TurnParameters { common, thresholds, language_hints, .. } = &asked.parameters;
    Message::ConfigureSuccess {
        request_id: asked.request_id,
        thresholds: wire::Thresholds {
            eager_eot_threshold: thresholds.eager_end.map(Score::new),
            eot_threshold: Score::new(thresholds.end),
            eot_timeout_ms: u64::try_from(thresholds.timeout.as_millis()).unwrap_or(u64::MAX),
        },
        keyterms: common.keyterms.clone(),
        language_hints: asked.is_multilingual.then(|| language_hints.clone()),
        numerals: common.numerals,
    }
}
