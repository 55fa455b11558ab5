//! The speakers of one channel's words: a final result waits here until its words have them, and the channel's later
//! events wait behind it.
//!
//! The wait has a limit. A result that reaches it goes out with the speaker before, and so do those after it until the
//! networks have caught up; if they don't within [`GIVE_UP`], the rest of the stream has no speakers. So diarization
//! may delay a transcript by a known time, and never ends it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::{Sleep, sleep};

use super::event::{Event, Results};
use crate::audio::SAMPLE_RATE;
use crate::speakers;
use crate::telemetry::metrics;
use crate::transcript::{Speaker, Word};
use crate::voices::Naming;

/// The time after which an overdue answer is no longer waited for.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Results in a row that may fail.
const FAILURES_MAX: u32 = 3;
/// The speaker of words before any is known: labels begin with it.
const FIRST: Speaker = Speaker { index: 0, confidence: 0.0 };

/// Diarization of one channel's audio as it comes.
pub trait SpeakerStream: Send + 'static {
    /// Takes the next samples, 16 kHz.
    fn push(&mut self, samples: &[f32]);

    /// Passes over the audio before `seconds`, which has no words.
    fn pass_over(&mut self, seconds: f64);

    /// Labels words that are final.
    fn label<'a>(&'a mut self, words: &'a mut [Word]) -> BoxFuture<'a, Result<(), speakers::Error>>;

    /// The mean embedding of each speaker so far.
    fn voices(&self) -> Vec<Vec<f32>>;
}

impl SpeakerStream for speakers::Stream {
    fn push(&mut self, samples: &[f32]) {
        Self::push(self, samples);
    }

    fn pass_over(&mut self, seconds: f64) {
        Self::pass_over(self, seconds);
    }

    fn label<'a>(&'a mut self, words: &'a mut [Word]) -> BoxFuture<'a, Result<(), speakers::Error>> {
        Box::pin(Self::label(self, words))
    }

    fn voices(&self) -> Vec<Vec<f32>> {
        Self::voices(self)
    }
}

/// Results whose words lack the speakers that were asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// They have the speaker before.
    pub late: u32,
    /// They have none.
    pub failed: u32,
}

impl std::ops::AddAssign for Shortfall {
    fn add_assign(&mut self, other: Self) {
        self.late += other.late;
        self.failed += other.failed;
    }
}

struct Answer {
    stream: Box<dyn SpeakerStream>,
    words: Vec<Word>,
    result: Result<(), speakers::Error>,
}

enum Work {
    Idle(Box<dyn SpeakerStream>),
    Busy {
        answer: BoxFuture<'static, Answer>,
        /// For the result that waits or, once it has gone, for the answer.
        limit: Pin<Box<Sleep>>,
        begun: Instant,
    },
    GivenUp,
}

pub struct Labelling {
    work: Work,
    /// How long a result waits.
    patience: Duration,
    /// If names are looked for.
    naming: Option<Naming>,
    /// The final result whose words are being labelled, unless it has gone without.
    asked: Option<Results>,
    /// The events after it.
    waiting: VecDeque<Event>,
    /// Audio that came in the meantime, and the second before which there are no words.
    unheard: Vec<f32>,
    passed: f64,
    /// The speaker of the last final word.
    last: Option<Speaker>,
    shortfall: Shortfall,
    failures_in_a_row: u32,
}

impl Labelling {
    pub fn new(stream: Box<dyn SpeakerStream>, patience: Duration, naming: Option<Naming>) -> Self {
        Self {
            work: Work::Idle(stream),
            patience,
            naming,
            asked: None,
            waiting: VecDeque::new(),
            unheard: Vec::new(),
            passed: 0.0,
            last: None,
            shortfall: Shortfall::default(),
            failures_in_a_row: 0,
        }
    }

    pub fn push(&mut self, samples: &[f32]) {
        match &mut self.work {
            Work::Idle(stream) => stream.push(samples),
            Work::Busy { .. } => self.unheard.extend_from_slice(samples),
            Work::GivenUp => {}
        }
    }

    /// Seconds of audio that wait to be diarized.
    pub fn waiting_seconds(&self) -> f64 {
        self.unheard.len() as f64 / f64::from(SAMPLE_RATE)
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.asked.is_none() && self.waiting.is_empty()
    }

    pub fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    /// Takes the channel's next event; those that need not wait go to `ready`.
    pub fn take(&mut self, event: Event, ready: &mut VecDeque<Event>) {
        self.waiting.push_back(event);
        self.release(ready);
    }

    /// Goes on with the labelling; ready if `ready` or [`Self::waiting_seconds`] may have changed.
    pub fn poll(&mut self, context: &mut Context<'_>, ready: &mut VecDeque<Event>) -> Poll<()> {
        let Work::Busy { answer, limit, begun } = &mut self.work else { return Poll::Pending };
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            metrics::LABELLING.with(&[]).record(begun.elapsed().as_secs_f64());
            self.answered(answer, ready);
        } else if limit.as_mut().poll(context).is_ready() {
            match self.asked.take() {
                Some(results) => {
                    *limit = Box::pin(sleep(GIVE_UP));
                    self.send_late(results, ready);
                }
                None => self.give_up("it takes too long"),
            }
        } else {
            return Poll::Pending;
        }
        self.release(ready);
        Poll::Ready(())
    }

    fn answered(&mut self, answer: Answer, ready: &mut VecDeque<Event>) {
        let Answer { mut stream, mut words, result } = answer;
        stream.push(&std::mem::take(&mut self.unheard));
        stream.pass_over(self.passed);
        self.work = Work::Idle(stream);
        self.failures_in_a_row = if result.is_ok() { 0 } else { self.failures_in_a_row + 1 };
        let asked = self.asked.take();
        match result {
            Ok(()) => {
                self.last = fill(&mut words, self.last);
                if let (Some(naming), Work::Idle(stream)) = (&mut self.naming, &self.work) {
                    naming.update(&stream.voices());
                }
                if let Some(results) = asked {
                    self.send(Results { words, ..results }, ready);
                }
            }
            Err(error) => {
                if asked.is_some() {
                    self.failed(&error);
                }
                ready.extend(asked.map(Event::Results));
            }
        }
        if self.failures_in_a_row >= FAILURES_MAX {
            self.give_up("it fails again and again");
        }
    }

    fn failed(&mut self, error: &speakers::Error) {
        if self.shortfall.failed == 0 {
            tracing::warn!(%error, "words of a stream have no speakers");
        }
        self.shortfall.failed += 1;
        metrics::UNLABELLED.with(&[("reason", "failed")]).increment(1);
    }

    fn send_late(&mut self, mut results: Results, ready: &mut VecDeque<Event>) {
        if self.shortfall.late == 0 {
            tracing::warn!("speakers come late: words of a stream have the speaker before");
        }
        self.shortfall.late += 1;
        metrics::UNLABELLED.with(&[("reason", "late")]).increment(1);
        fill(&mut results.words, self.last);
        self.send(results, ready);
    }

    /// Sends a result whose words have speakers.
    fn send(&self, mut results: Results, ready: &mut VecDeque<Event>) {
        results.names = self.naming.as_ref().map_or_else(Vec::new, |naming| naming.names().to_vec());
        ready.push_back(Event::Results(results));
    }

    fn give_up(&mut self, reason: &'static str) {
        tracing::warn!(reason, "the rest of a stream has no speakers");
        self.work = Work::GivenUp;
        self.unheard = Vec::new();
    }

    /// Moves events on, up to the next one whose words must be labelled first.
    fn release(&mut self, ready: &mut VecDeque<Event>) {
        while self.asked.is_none()
            && let Some(event) = self.waiting.pop_front()
        {
            match event {
                Event::Results(results) if results.words.is_empty() => {
                    if results.is_final {
                        self.pass_over(results.start + results.duration);
                    }
                    ready.push_back(Event::Results(results));
                }
                Event::Results(results) => self.release_words(results, ready),
                event => ready.push_back(event),
            }
        }
    }

    /// A final result without words ends at `seconds`, so a silent stream need not be kept.
    fn pass_over(&mut self, seconds: f64) {
        self.passed = seconds;
        if let Work::Idle(stream) = &mut self.work {
            stream.pass_over(seconds);
        }
    }

    fn release_words(&mut self, mut results: Results, ready: &mut VecDeque<Event>) {
        match std::mem::replace(&mut self.work, Work::GivenUp) {
            Work::Idle(mut stream) if results.is_final => {
                let mut words = results.words.clone();
                let answer = Box::pin(async move {
                    let result = stream.label(&mut words).await;
                    Answer { stream, words, result }
                });
                let limit = Box::pin(sleep(self.patience));
                self.work = Work::Busy { answer, limit, begun: Instant::now() };
                self.asked = Some(results);
            }
            // The answer to an earlier result is overdue.
            work @ Work::Busy { .. } if results.is_final => {
                self.work = work;
                self.send_late(results, ready);
            }
            Work::GivenUp => {
                if results.is_final {
                    self.shortfall.failed += 1;
                    metrics::UNLABELLED.with(&[("reason", "failed")]).increment(1);
                }
                ready.push_back(Event::Results(results));
            }
            work => {
                self.work = work;
                fill(&mut results.words, self.last);
                self.send(results, ready);
            }
        }
    }
}

/// Gives each word without a speaker the one before, which at the beginning is `last`; returns the last one.
fn fill(words: &mut [Word], last: Option<Speaker>) -> Option<Speaker> {
    let mut before = last.unwrap_or(FIRST);
    for word in words.iter_mut() {
        before = *word.speaker.get_or_insert(Speaker { confidence: 0.0, ..before });
    }
    words.last().map_or(last, |word| word.speaker)
}

#[cfg(test)]
mod tests;
