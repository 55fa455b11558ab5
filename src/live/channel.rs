//! One channel: what is to be recognised when, and what there is to tell. No clock and no engine: the
//! [`super::Session`] carries requests to the engine and answers back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::agreement::{Agreement, in_order};
use super::context::Context;
use super::recording::Recording;
use super::span::{Span, to_samples, to_seconds};
use super::utterance::Utterance;
use super::voice::Voice;
use super::{Config, Event, Options, Results};
use crate::audio::{Pcm, SAMPLE_RATE};
use crate::engine::{DecodingOptions, LanguageChoice, Recognition, Term, WINDOW_SAMPLES};
use crate::transcript::Word;
use crate::vad::FRAME_SAMPLES;

const FRAME: u64 = FRAME_SAMPLES as u64;
const SECOND: u64 = SAMPLE_RATE as u64;
/// A window so long is closed in a pause of its second half, since the engine takes no more than
/// [`WINDOW_SAMPLES`].
const LONG: u64 = WINDOW_SAMPLES as u64 - SECOND;
/// After so much silence a result says that nothing was said.
const SILENT: u64 = 5 * SECOND;
/// Audio after the last voice that a window must hold to be all of it.
const COVER: u64 = 2 * FRAME;
/// In a pause of so much the span may be at its end: it is recognised at once.
const PAUSE: u64 = 3 * FRAME;
/// Less voice is not recognised before the span is closed.
const MIN_INTERIM: u64 = SECOND * 3 / 10;
/// What is left of a window is recognised again where so many frames of it are surely voice.
const MIN_LEFT_FRAMES: usize = 10;
const MIN_ADVANCE: u64 = SECOND / 10;
/// The new hop, as a multiple of the time that recognising took.
const HOP_PER_SECOND_TAKEN: f64 = 1.5;
/// Under this hop the engine has time for windows that may turn out to be in vain.
const RELAXED_HOPS: u64 = 2;
/// Voice from which a language is told for good.
const LANGUAGE_VOICE: u64 = 2 * SECOND;
const LANGUAGE_PROBABILITY: f32 = 0.5;

/// A window to recognise. It replaces the one before, if that is not recognised yet.
pub struct Request {
    pub pcm: Pcm,
    pub options: DecodingOptions,
}

/// What the client said, at a position of the audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Finalize(u64),
    End(u64),
}

impl Mark {
    fn position(self) -> u64 {
        match self {
            Self::Finalize(position) | Self::End(position) => position,
        }
    }
}

/// Why a span is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Pause,
    Gap,
    Silence,
    Long,
    Finalize,
    End,
}

#[derive(Debug, Clone, Copy)]
struct Close {
    at: u64,
    reason: Reason,
}

enum Work {
    Idle,
    /// An open span is being recognised up to here.
    Open {
        start: u64,
        end: u64,
    },
    /// A span is closed as soon as its window is recognised.
    Closing {
        close: Close,
        start: u64,
        end: u64,
        words: Vec<Word>,
        is_thorough: bool,
    },
}

pub struct Channel {
    index: usize,
    endpoint: Option<u64>,
    gap: Option<u64>,
    interim_results: bool,
    least_hop: u64,
    language: LanguageChoice,
    /// What the model heard first.
    heard_language: Option<String>,
    prompt: Option<String>,
    bias: Arc<[Term]>,

    voice: Voice,
    audio: Recording,
    /// Of frames that were not looked at yet.
    probabilities: VecDeque<f32>,
    /// Looked at up to here: a whole number of frames.
    position: u64,
    is_speaking: bool,
    marks: VecDeque<Mark>,
    has_ended: bool,

    context: Context,
    span: Span,
    agreement: Agreement,
    work: Work,
    /// The last window of this span that was handed in ended here.
    asked: u64,
    /// All that the span says, if it ends as it is.
    complete: Option<(u64, Vec<Word>)>,
    hop: u64,
    last_word_end: f64,
    utterance: Utterance,
}

impl Channel {
    pub fn new(index: usize, options: &Options, voice: Voice, config: &Config) -> Self {
        let samples = |time: Duration| to_samples(time.as_secs_f64());
        let least_pause = u64::from(config.min_pause_ms) * SECOND / 1000;
        let least_hop = u64::from(config.hop_ms.max(100)) * SECOND / 1000;
        let gap = options.utterance_end.map(|gap| samples(gap).max(least_pause));
        Self {
            index,
            endpoint: options.endpointing.map(|pause| samples(pause).max(least_pause)),
            gap,
            interim_results: options.interim_results,
            least_hop,
            language: options.language.clone(),
            heard_language: None,
            prompt: options.prompt.clone(),
            bias: options.bias.clone(),
            voice,
            audio: Recording::default(),
            probabilities: VecDeque::new(),
            position: 0,
            is_speaking: false,
            marks: VecDeque::new(),
            has_ended: false,
            context: Context::default(),
            span: Span::new(0),
            agreement: Agreement::default(),
            work: Work::Idle,
            asked: 0,
            complete: None,
            hop: least_hop,
            last_word_end: 0.0,
            utterance: Utterance::new(index, options.speech_started, gap),
        }
    }

    pub fn set_bias(&mut self, bias: Arc<[Term]>) {
        self.bias = bias;
    }

    pub fn duration(&self) -> f64 {
        to_seconds(self.audio.end())
    }

    /// Seconds of audio that wait to be recognised.
    pub fn waiting_seconds(&self) -> f64 {
        to_seconds(self.audio.end().saturating_sub(self.span.window_start(self.position)))
    }

    /// The end was reached and told.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub fn push(&mut self, samples: &[f32]) {
        self.audio.push(samples);
        self.probabilities.extend(self.voice.push(samples));
    }

    /// Closes the span here, when all before is recognised.
    pub fn finalize(&mut self) {
        self.marks.push_back(Mark::Finalize(self.audio.end()));
    }

    /// There is no more audio.
    pub fn end(&mut self) {
        self.marks.push_back(Mark::End(self.audio.end()));
    }

    /// Looks at what has come. A request replaces the one before.
    pub fn advance(&mut self, events: &mut VecDeque<Event>) -> Option<Request> {
        loop {
            if self.has_ended || matches!(self.work, Work::Closing { .. }) {
                return None;
            }
            if let Some(close) = self.due() {
                if let Some(request) = self.close(close, events) {
                    return Some(request);
                }
                continue;
            }
            let Some(probability) = self.probabilities.pop_front() else { break };
            self.step(probability, events);
        }
        self.forget();
        self.open_window()
    }

    /// Whether the span is to be closed before anything else is looked at.
    fn due(&mut self) -> Option<Close> {
        let at = self.position.max(self.span.start);
        if let Some(&mark) = self.marks.front()
            && mark.position() < self.position + FRAME
        {
            self.marks.pop_front();
            let reason = if matches!(mark, Mark::End(_)) { Reason::End } else { Reason::Finalize };
            return Some(Close { at: mark.position().max(self.span.start), reason });
        }
        let reason = match self.span.voice_end().map(|end| self.position.saturating_sub(end)) {
            Some(silence) if self.endpoint.is_some_and(|endpoint| silence >= endpoint) => Reason::Pause,
            Some(silence) if self.gap.is_some_and(|gap| silence >= gap) => Reason::Gap,
            Some(_) if at - self.span.window_start(at).min(at) >= LONG => Reason::Long,
            None if at - self.span.start >= SILENT => Reason::Silence,
            _ => return None,
        };
        Some(Close { at, reason })
    }

    /// Takes the next frame.
    fn step(&mut self, probability: f32, events: &mut VecDeque<Event>) {
        let frame = self.position;
        let was_speaking = self.is_speaking;
        self.is_speaking = self.span.push(frame, probability, was_speaking);
        self.position += FRAME;
        if self.span.voice_end().is_none() {
            self.context.fade(self.position);
        }
        self.utterance.step(frame, self.is_speaking, self.span.voice_end(), events);
    }

    /// Closes the span, or asks for what is still to be recognised of it.
    fn close(&mut self, close: Close, events: &mut VecDeque<Event>) -> Option<Request> {
        if !self.span.is_voiced() {
            self.work = Work::Idle;
            self.told(close, Vec::new(), events);
            return None;
        }
        let covered = self.span.voice_end().map_or(0, |end| (end + COVER).min(close.at));
        if close.reason != Reason::Long {
            if let Some((_, words)) = self.complete.take_if(|(end, _)| *end >= covered) {
                self.work = Work::Idle;
                self.told(close, words, events);
                return None;
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

    /// Where a window up to `end` begins: with what was said just before, where that helps.
    fn window_start(&self, end: u64) -> u64 {
        self.context.window_start(self.span.window_start(self.position), end)
    }

    /// Asks for the window from `start` to the end of the span.
    fn closing(&mut self, close: Close, start: u64, words: Vec<Word>) -> Option<Request> {
        let end = self.span.window_end(close.at).min(start + WINDOW_SAMPLES as u64);
        self.work = Work::Closing { close, start, end, words, is_thorough: true };
        Some(self.request(start, end, true))
    }

    /// A window of the span as it is, where it is time for one.
    fn open_window(&mut self) -> Option<Request> {
        let voice_end = self.span.voice_end()?;
        if !matches!(self.work, Work::Idle)
            || self.span.voice_samples() < MIN_INTERIM
            || !self.span.is_voiced()
        {
            return None;
        }
        let own_start = self.span.window_start(self.position);
        let end = self.position;
        let start = self.window_start(end);
        let is_new = voice_end > self.asked;
        let hops = self.interim_results && is_new && end - self.asked.max(own_start) >= self.hop;
        // In a pause that may be the end, what is recognised now need not be waited for later.
        let may_end = self.endpoint.is_some()
            && end.saturating_sub(voice_end) >= PAUSE
            && voice_end + COVER > self.asked
            && self.hop <= self.least_hop * RELAXED_HOPS;
        if !(hops || may_end) || end <= own_start {
            return None;
        }
        self.asked = end;
        self.work = Work::Open { start, end };
        Some(self.request(start, end, false))
    }

    fn request(&self, start: u64, end: u64, is_thorough: bool) -> Request {
        let mut options = DecodingOptions {
            language: self.language.clone(),
            prompt: self.prompt.clone(),
            bias: self.bias.clone(),
            word_times: true,
            ..DecodingOptions::default()
        };
        if !is_thorough {
            options.temperatures.truncate(1);
        }
        Request { pcm: self.audio.pcm(start..end), options }
    }

    /// Takes the answer to the last request, which took so long.
    pub fn recognised(
        &mut self,
        recognition: Recognition,
        took: Duration,
        events: &mut VecDeque<Event>,
    ) -> Option<Request> {
        let taken = to_samples(took.as_secs_f64() * HOP_PER_SECOND_TAKEN);
        self.hop = taken.max(self.least_hop);
        self.settle_language(&recognition);
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Idle => None,
            Work::Open { start, end } => {
                let is_good = is_good(&recognition) && is_consumed(&recognition, start, end, &self.span);
                let words = self.words(recognition, start);
                self.complete = is_good.then(|| (end, words.clone()));
                self.agreement.update(words);
                if self.interim_results {
                    let results = self.results(end, self.agreement.words());
                    events.push_back(Event::Results(results));
                }
                None
            }
            Work::Closing { close, start, is_thorough: false, .. } if !is_good(&recognition) => {
                self.closing(close, start, Vec::new())
            }
            Work::Closing { close, start, end, mut words, .. } => {
                let rest = (start + (recognition.consumed_samples as u64).max(MIN_ADVANCE)).min(end);
                let is_consumed = is_consumed(&recognition, start, end, &self.span);
                words.extend(self.words(recognition, start));
                if !is_consumed && rest < end {
                    return self.closing(close, rest, words);
                }
                self.closed(close, words, events);
                None
            }
        }
    }

    /// All of the span is recognised.
    fn closed(&mut self, mut close: Close, mut words: Vec<Word>, events: &mut VecDeque<Event>) {
        if close.reason == Reason::Long {
            let from = self.span.window_start(self.position);
            let range =
                from.midpoint(close.at)..close.at.saturating_sub(SECOND).max(from.midpoint(close.at) + 1);
            close.at = self.span.cut(range, &words);
            let at = to_seconds(close.at);
            words.retain(|word| word.start.midpoint(word.end) < at);
        }
        self.told(close, words, events);
    }

    /// Tells what the span says, and begins the next one.
    fn told(&mut self, close: Close, mut words: Vec<Word>, events: &mut VecDeque<Event>) {
        let (from, to) = (self.last_word_end.max(to_seconds(self.span.start)), to_seconds(close.at));
        for word in &mut words {
            word.start = word.start.clamp(from, to.max(from));
            word.end = word.end.clamp(from, to.max(from));
        }
        in_order(&mut words);
        if let Some(last) = words.last() {
            self.last_word_end = last.end;
            self.utterance.said(last.end);
        }
        match self.span.voice_end() {
            // The cut is no pause, and the window before it was long enough.
            _ if close.reason == Reason::Long => self.context.clear(),
            Some(voice_end) if !words.is_empty() => {
                self.context.push(self.span.window_start(self.position), voice_end, words.clone());
            }
            _ => {}
        }
        let is_empty = close.at == self.span.start && words.is_empty();
        if !(is_empty && close.reason == Reason::End) {
            let mut results = self.results(close.at, words);
            results.is_final = true;
            results.speech_final = close.reason == Reason::Pause;
            results.from_finalize = close.reason == Reason::Finalize;
            events.push_back(Event::Results(results));
        }
        self.span =
            if close.reason == Reason::Long { self.span.after(close.at) } else { Span::new(close.at) };
        self.agreement = Agreement::default();
        self.asked = close.at;
        self.complete = None;
        self.has_ended = close.reason == Reason::End;
        self.forget();
    }

    fn results(&self, end: u64, words: Vec<Word>) -> Results {
        Results {
            channel: self.index,
            start: to_seconds(self.span.start),
            duration: to_seconds(end - self.span.start),
            words,
            is_final: false,
            speech_final: false,
            from_finalize: false,
            language: self.heard_language.clone(),
        }
    }

    /// The words of a window that began at `start`, in the stream's time, without those told before.
    fn words(&self, recognition: Recognition, start: u64) -> Vec<Word> {
        let offset = to_seconds(start);
        let words = recognition.segments.into_iter().flat_map(|segment| segment.words);
        let mut words: Vec<Word> =
            words.map(|word| Word { start: word.start + offset, end: word.end + offset, ..word }).collect();
        in_order(&mut words);
        if start < self.span.start {
            words.drain(..self.context.told(&words, start, self.span.start));
        }
        words
    }

    /// A language that was detected over enough voice stays.
    fn settle_language(&mut self, recognition: &Recognition) {
        let language = &recognition.language;
        if self.span.voice_samples() >= LANGUAGE_VOICE
            && language.probability >= LANGUAGE_PROBABILITY
            && matches!(self.language, LanguageChoice::Detect { .. })
        {
            self.language = LanguageChoice::Named(language.code.clone());
        }
        self.heard_language = Some(language.code.clone());
    }

    /// Forgets audio that no window will hold.
    fn forget(&mut self) {
        let own = self.span.window_start(self.position);
        self.audio.forget(self.context.start().map_or(own, |start| start.min(own)));
    }
}

/// Whether a single attempt is as good as any (openai/whisper `decode_with_fallback`).
fn is_good(recognition: &Recognition) -> bool {
    let options = DecodingOptions::default();
    recognition.segments.iter().all(|segment| {
        let repeats =
            options.compression_ratio_threshold.is_some_and(|most| segment.compression_ratio > most);
        let improbable =
            options.log_probability_threshold.is_some_and(|least| segment.average_log_probability < least);
        !repeats && !improbable
    })
}

/// Whether a window from `start` to `end` said all that it holds.
fn is_consumed(recognition: &Recognition, start: u64, end: u64, span: &Span) -> bool {
    let rest = start + recognition.consumed_samples as u64;
    rest >= end || span.sure_frames_after(rest) < MIN_LEFT_FRAMES
}
