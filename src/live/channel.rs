//! One channel: decides when which window is recognised, and which results are sent. It has no clock and no
//! engine: the [`super::Session`] carries its requests to the engine and the answers back.

use std::collections::VecDeque;
use std::time::Duration;

use super::activity::Activity;
use super::closing::{Close, Reason, Work};
use super::event::{Event, Results};
use super::intake::{Intake, Mark};
use super::progress::{OpenSpan, Past};
use super::second_listening::{self, SecondListening};
use super::settings::Settings;
use super::span::{FRAME, Span, placed_beside_silence, to_samples, to_seconds};
use super::utterance::Utterance;
use super::voice::{Heard, Voice};
use crate::audio::{Pcm, SAMPLE_RATE};
use crate::engine::{DecodingOptions, LanguageChoice, Recognition, WINDOW_SAMPLES};
use crate::transcript::{Word, in_order};
use crate::turn;
use crate::vad::Endpointer;

const SECOND: u64 = SAMPLE_RATE as u64;
/// A span whose window is this long is closed in a pause of its second half, since the engine takes no more
/// than [`WINDOW_SAMPLES`].
const LONG: u64 = WINDOW_SAMPLES as u64 - SECOND;
/// After so much silence an empty result is sent.
const SILENT: u64 = 5 * SECOND;
/// Audio after the last voice that a window must hold to cover it.
const COVER: u64 = 2 * FRAME;
/// After a pause of this length the span may have ended, so it is recognised at once.
const PAUSE: u64 = 3 * FRAME;
/// An open span with less voice is not recognised.
const MIN_INTERIM: u64 = SECOND * 3 / 10;
/// The new hop, as a multiple of the time that recognising took.
const HOP_PER_SECOND_TAKEN: f64 = 1.5;
/// Up to this multiple of the least hop, the engine has time for windows that may turn out to be wasted.
const RELAXED_HOPS: u64 = 2;
/// A language detected over so much voice, with this probability, is kept.
const LANGUAGE_VOICE: u64 = 2 * SECOND;
const LANGUAGE_PROBABILITY: f32 = 0.5;

/// A window to recognise. It replaces the one before, if that is not recognised yet.
pub struct Request {
    pub pcm: Pcm,
    pub options: DecodingOptions,
}

pub struct Channel {
    index: usize,
    settings: Settings,
    /// The language of the last window.
    heard_language: Option<String>,
    intake: Intake,
    /// Frames before here have been looked at: a whole number of them.
    position: u64,
    endpointer: Endpointer,
    open: OpenSpan,
    work: Work,
    hop: u64,
    past: Past,
}

impl Channel {
    pub fn new(index: usize, settings: Settings, voice: Activity) -> Self {
        let utterance = Utterance::new(index, settings.speech_started, settings.gap);
        Self {
            index,
            hop: settings.least_hop,
            endpointer: Endpointer::new(settings.endpointing),
            settings,
            heard_language: None,
            intake: Intake::new(voice),
            position: 0,
            open: OpenSpan::new(Span::new(0)),
            work: Work::Idle,
            past: Past::new(utterance),
        }
    }

    /// Other settings from here on. A language that was detected is still expected, if it may be.
    pub fn configure(&mut self, mut settings: Settings) {
        if let LanguageChoice::Detect { among, expected } = &mut settings.language
            && let LanguageChoice::Detect { expected: Some(detected), .. } = &self.settings.language
            && (among.is_empty() || among.contains(detected))
        {
            *expected = Some(detected.clone());
        }
        self.past.utterance.configure(settings.speech_started, settings.gap);
        self.endpointer.configure(settings.endpointing);
        self.settings = settings;
    }

    pub fn duration(&self) -> f64 {
        to_seconds(self.intake.position())
    }

    /// Seconds of audio that wait to be recognised.
    pub fn waiting_seconds(&self) -> f64 {
        to_seconds(self.intake.position().saturating_sub(self.open.span.window_start(self.position)))
    }

    /// Seconds of voice before the last final result that gave no words.
    pub fn voice_without_words(&self) -> f64 {
        self.past.voice_without_words
    }

    /// Whether the last result was sent.
    pub fn has_ended(&self) -> bool {
        self.past.has_ended
    }

    pub fn push(&mut self, samples: &[f32]) {
        self.intake.push(samples);
    }

    /// Closes the span here, once all audio before is recognised.
    pub fn finalize(&mut self) {
        self.intake.finalize();
    }

    /// There is no more audio.
    pub fn end(&mut self) {
        self.intake.end();
    }

    /// Looks at the audio that has come in. A request replaces the one before.
    pub fn advance(&mut self, events: &mut VecDeque<Event>) -> Option<Request> {
        loop {
            if self.past.has_ended || matches!(self.work, Work::Closing { .. } | Work::ListeningAgain { .. })
            {
                return None;
            }
            if let Some(close) = self.due() {
                if self.settings.voice && close.reason == Reason::Pause {
                    let recent = self.intake.pcm(self.kept_for_turns()..self.position);
                    events.push_back(self.voice(Heard::Pause(recent)));
                }
                if let Some(request) = self.close(close, events) {
                    return Some(request);
                }
                continue;
            }
            let Some(probability) = self.intake.next_frame() else { break };
            self.step(probability, events);
        }
        self.forget();
        self.open_window()
    }

    /// Whether the span is to be closed before anything else is looked at.
    fn due(&mut self) -> Option<Close> {
        let at = self.position.max(self.open.span.start);
        if let Some(mark) = self.intake.due(self.position) {
            let reason = if matches!(mark, Mark::End(_)) { Reason::End } else { Reason::Finalize };
            return Some(Close { at: mark.position().max(self.open.span.start), reason });
        }
        let reason = match self.open.span.voice_end().map(|end| self.position.saturating_sub(end)) {
            Some(silence) if self.settings.endpoint.is_some_and(|endpoint| silence >= endpoint) => {
                Reason::Pause
            }
            Some(silence) if self.settings.gap.is_some_and(|gap| silence >= gap) => Reason::Gap,
            Some(_) if at - self.open.span.window_start(at).min(at) >= LONG => Reason::Long,
            None if at - self.open.span.start >= SILENT && !self.may_be_speaking(at) => Reason::Silence,
            _ => return None,
        };
        Some(Close { at, reason })
    }

    /// Whether a sound without voice that may be speech goes on at `at`.
    fn may_be_speaking(&self, at: u64) -> bool {
        let span = self.open.span.start..at;
        self.hears_by_level() && at - span.start < LONG && self.intake.levels().goes_on(span)
    }

    /// Turns depend on when there is voice, so they have no words without.
    fn hears_by_level(&self) -> bool {
        !self.settings.voice
    }

    /// Takes the next frame.
    fn step(&mut self, probability: f32, events: &mut VecDeque<Event>) {
        let frame = self.position;
        self.endpointer.frame(probability);
        let is_speaking = self.endpointer.is_speaking();
        self.open.span.push(frame, probability, is_speaking);
        self.position += FRAME;
        if self.open.span.voice_end().is_none() {
            self.past.context.fade(self.position);
        }
        self.past.utterance.step(frame, is_speaking, self.open.span.voice_end(), events);
        if self.settings.voice {
            events.push_back(self.voice(if is_speaking { Heard::Speech } else { Heard::Silence }));
        }
    }

    fn voice(&self, heard: Heard) -> Event {
        Event::Voice(Voice { channel: self.index, at: to_seconds(self.position), heard })
    }

    /// The start of the audio that the model of turns hears.
    fn kept_for_turns(&self) -> u64 {
        self.position.saturating_sub(turn::SAMPLES as u64)
    }

    /// Closes the span, or returns a request for the audio of it that is not recognised yet.
    fn close(&mut self, close: Close, events: &mut VecDeque<Event>) -> Option<Request> {
        if !self.open.span.is_voiced() {
            return self.listen_again(close, Vec::new(), SecondListening::new(0), events);
        }
        let covered = self.open.span.voice_end().map_or(0, |end| (end + COVER).min(close.at));
        if close.reason != Reason::Long {
            if let Some((end, words)) = self.open.complete.take_if(|(end, _)| *end >= covered) {
                return self.finish(close, words, end.saturating_sub(self.window_start(end)), events);
            }
            if let Work::Open { start, end } = self.work
                && end >= covered
            {
                self.work = Work::Closing { close, start, end, words: Vec::new(), is_thorough: false };
                return None;
            }
        }
        let start = self.window_start(close.at);
        self.closing(close, start, Vec::new())
    }

    /// The start of a window up to `end`, which includes the spans just before if that helps.
    fn window_start(&self, end: u64) -> u64 {
        self.past.context.window_start(self.open.span.window_start(self.position), end)
    }

    /// Asks for the window from `start` to the end of the span.
    fn closing(&mut self, close: Close, start: u64, words: Vec<Word>) -> Option<Request> {
        let end = self.open.span.window_end(close.at).min(start + WINDOW_SAMPLES as u64);
        self.work = Work::Closing { close, start, end, words, is_thorough: true };
        Some(self.request(start, end, true))
    }

    /// A window of the open span, if it is time for one.
    fn open_window(&mut self) -> Option<Request> {
        let voice_end = self.open.span.voice_end()?;
        if !matches!(self.work, Work::Idle)
            || self.open.span.voice_samples() < MIN_INTERIM
            || !self.open.span.is_voiced()
        {
            return None;
        }
        let own_start = self.open.span.window_start(self.position);
        let end = self.position;
        let start = self.window_start(end);
        let is_new = voice_end > self.open.asked;
        let hops =
            self.settings.interim_results && is_new && end - self.open.asked.max(own_start) >= self.hop;
        // In a pause that may be the span's end, recognising now saves waiting later.
        let may_end = self.settings.endpoint.is_some()
            && end.saturating_sub(voice_end) >= PAUSE
            && voice_end + COVER > self.open.asked
            && self.hop <= self.settings.least_hop * RELAXED_HOPS;
        if !(hops || may_end) || end <= own_start {
            return None;
        }
        self.open.asked = end;
        self.work = Work::Open { start, end };
        Some(self.request(start, end, false))
    }

    fn request(&self, start: u64, end: u64, is_thorough: bool) -> Request {
        Request { pcm: self.intake.pcm(start..end), options: self.settings.decoding(is_thorough) }
    }

    /// Takes the answer to the last request, and how long it took.
    pub fn recognised(
        &mut self,
        recognition: Recognition,
        took: Duration,
        events: &mut VecDeque<Event>,
    ) -> Option<Request> {
        let taken = to_samples(took.as_secs_f64() * HOP_PER_SECOND_TAKEN);
        self.hop = taken.max(self.settings.least_hop);
        if !matches!(self.work, Work::ListeningAgain { .. }) {
            self.settle_language(&recognition);
        }
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Idle => None,
            Work::Open { start, end } => {
                let is_complete = !recognition.needs_fallback(&DecodingOptions::default())
                    && self.rest(&recognition, start, end).is_none();
                let words = self.words(recognition, start);
                self.open.complete = is_complete.then(|| (end, words.clone()));
                self.open.agreement.update(words);
                if self.settings.interim_results {
                    let results = self.results(end, self.open.agreement.words());
                    events.push_back(Event::Results(results));
                }
                None
            }
            Work::Closing { close, start, is_thorough: false, .. }
                if recognition.needs_fallback(&DecodingOptions::default()) =>
            {
                self.closing(close, start, Vec::new())
            }
            Work::Closing { close, start, end, mut words, .. } => {
                let rest = self.rest(&recognition, start, end);
                words.extend(self.words(recognition, start));
                if let Some(rest) = rest {
                    return self.closing(close, rest, words);
                }
                self.finish(close, words, end.saturating_sub(start), events)
            }
            Work::ListeningAgain { close, mut words, mut listening, audio } => {
                let options = listening.options(self.settings.decoding(false));
                let is_understood = listening.is_understood(&recognition, &options);
                let language = recognition.language.code.clone();
                let heard = if is_understood { self.placed(recognition, audio.start) } else { Vec::new() };
                if listening.take(heard, &options, &self.open.span, &mut words) {
                    self.heard_language.get_or_insert(language);
                }
                self.listen_again(close, words, listening, events)
            }
        }
    }

    /// Closes a span whose windows are recognised, the last of them of `window` samples, once what may be wrong in it was
    /// heard again.
    fn finish(
        &mut self,
        mut close: Close,
        mut words: Vec<Word>,
        window: u64,
        events: &mut VecDeque<Event>,
    ) -> Option<Request> {
        if close.reason == Reason::Long {
            // The part after the cut comes again.
            let from = self.open.span.window_start(self.position);
            let range =
                from.midpoint(close.at)..close.at.saturating_sub(SECOND).max(from.midpoint(close.at) + 1);
            close.at = self.open.span.cut(range, &words);
            let at = to_seconds(close.at);
            words.retain(|word| word.start.midpoint(word.end) < at);
        }
        self.listen_again(close, words, SecondListening::new(window), events)
    }

    fn listen_again(
        &mut self,
        close: Close,
        words: Vec<Word>,
        mut listening: SecondListening,
        events: &mut VecDeque<Event>,
    ) -> Option<Request> {
        let heard = second_listening::Heard {
            span: &self.open.span,
            end: close.at,
            words: &words,
            before: &self.past.context.words(),
            levels: Some(self.intake.levels()).filter(|_| self.hears_by_level()),
            available: self.intake.available(),
        };
        let Some(audio) = listening.next(&heard) else {
            self.work = Work::Idle;
            self.emit(close, words, events);
            return None;
        };
        let mut request = self.request(audio.start, audio.end, false);
        request.options = listening.options(request.options);
        if let Some(code) = self.heard_language.as_ref().filter(|_| listening.knows_language()) {
            request.options.language = LanguageChoice::Named(code.clone());
        }
        self.work = Work::ListeningAgain { close, words, listening, audio };
        Some(request)
    }

    /// The position from which a window from `start` to `end` has to be recognised again, if it has to.
    fn rest(&self, recognition: &Recognition, start: u64, end: u64) -> Option<u64> {
        let sure_frames_after = |sample: usize| self.open.span.sure_frames_after(start + sample as u64);
        let rest = recognition.rest(end.saturating_sub(start) as usize, sure_frames_after)?;
        Some(start + rest as u64)
    }

    /// Sends the span's words, and opens the next span.
    fn emit(&mut self, close: Close, mut words: Vec<Word>, events: &mut VecDeque<Event>) {
        let (from, to) =
            (self.past.last_word_end.max(to_seconds(self.open.span.start)), to_seconds(close.at));
        for word in &mut words {
            word.start = word.start.clamp(from, to.max(from));
            word.end = word.end.clamp(from, to.max(from));
        }
        in_order(&mut words);
        self.past.voice_without_words += self.open.span.without_words(&words, close.at).voiced_seconds;
        let origin = self.open.span.window_start(self.position);
        // Words without voice may lie before.
        let origin = words.first().map_or(origin, |word| origin.min(to_samples(word.start)));
        let origin = origin.max(self.intake.available().start);
        let audio = self.intake.pcm(origin..to_samples(to.max(from)).max(origin));
        let placed = placed_beside_silence(&words, from..to.max(from), origin, &audio);
        if let Some(last) = placed.last() {
            self.past.last_word_end = last.end;
            self.past.utterance.said(last.end);
        }
        match self.open.span.voice_end() {
            // A cut is not a pause, and the next window will be long enough without context.
            _ if close.reason == Reason::Long => self.past.context.clear(),
            Some(voice_end) if !words.is_empty() => {
                self.past.context.push(self.open.span.window_start(self.position), voice_end, words.clone());
            }
            _ => {}
        }
        let is_empty = close.at == self.open.span.start && words.is_empty();
        if !(is_empty && close.reason == Reason::End) {
            let mut results = self.results(close.at, placed);
            results.is_final = true;
            results.speech_final = close.reason == Reason::Pause;
            results.from_finalize = close.reason == Reason::Finalize;
            events.push_back(Event::Results(results));
        }
        let is_long = close.reason == Reason::Long;
        self.open = OpenSpan::new(if is_long {
            self.open.span.after(close.at, self.settings.endpointing)
        } else {
            Span::new(close.at)
        });
        self.past.has_ended = close.reason == Reason::End;
        self.forget();
    }

    fn results(&self, end: u64, words: Vec<Word>) -> Results {
        Results {
            channel: self.index,
            start: to_seconds(self.open.span.start),
            duration: to_seconds(end - self.open.span.start),
            words,
            is_final: false,
            speech_final: false,
            from_finalize: false,
            names: Vec::new(),
            language: self.heard_language.clone(),
        }
    }

    /// The words of a window that began at `start`, in the stream's time, without those already sent.
    fn words(&self, recognition: Recognition, start: u64) -> Vec<Word> {
        let mut words = self.placed(recognition, start);
        if start < self.open.span.start {
            words.drain(..self.past.context.told(&words, start, self.open.span.start));
        }
        words
    }

    /// All words of a window that began at `start`, in the stream's time.
    fn placed(&self, recognition: Recognition, start: u64) -> Vec<Word> {
        let offset = to_seconds(start);
        let words = recognition.segments.into_iter().flat_map(|segment| segment.words);
        let placed = |word: Word| {
            let times = self.open.span.voiced_part(word.start + offset..word.end + offset);
            Word { start: times.start, end: times.end, ..word }
        };
        let mut words: Vec<Word> = words.map(placed).collect();
        in_order(&mut words);
        words
    }

    /// Expects a language that was detected over enough voice, until another is surely spoken.
    fn settle_language(&mut self, recognition: &Recognition) {
        let language = &recognition.language;
        if self.open.span.voice_samples() >= LANGUAGE_VOICE
            && language.probability >= LANGUAGE_PROBABILITY
            && let LanguageChoice::Detect { expected, .. } = &mut self.settings.language
        {
            *expected = Some(language.code.clone());
        }
        self.heard_language = Some(language.code.clone());
    }

    /// Drops audio that no window will need.
    fn forget(&mut self) {
        let mut own = self.open.span.window_start(self.position);
        if self.settings.voice {
            own = own.min(self.kept_for_turns());
        }
        let span = self.open.span.start;
        let loud = self.intake.levels().loud_since(span).filter(|_| self.hears_by_level());
        let kept = [self.past.context.start(), loud].into_iter().flatten().fold(own, u64::min);
        self.intake.forget(kept, span);
    }
}
