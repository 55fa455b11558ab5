//! The items of a session: which words belong to which item, and the events that say so. Pure.
//!
//! Audio is buffered until it is committed: by the client, or by the server at the end of speech. The stream
//! recognises audio before that, so that deltas of an item may come before its commit. A commit of the client ends the
//! stream's open span, and so does clearing, after which the words up to there are dropped.

use std::collections::VecDeque;

use super::event::{Event, Failed, Item, Language, LogProbability, Usage, id};
use super::request::Delay;
use super::transcript::{Added, Transcript};
use crate::api::openai::answer::letters;
use crate::live::Results;
use crate::transcript::Word;

/// After so much audio without a commit the server commits by itself: as long as OpenAI's longest transcription.
pub const ITEM_MS_MAX: u64 = 25 * 60 * 1000;
/// Beyond this many commits and clearings that wait for the audio before them, the socket is not read.
pub const WAITING_MAX: usize = 32;

/// A mark of the client in the audio, at which the stream closes its span.
#[derive(Debug)]
enum Mark {
    /// An item that was committed without turn detection: known at once.
    Committed {
        item_id: String,
        milliseconds: u64,
    },
    /// A commit under turn detection: of what is still open when the stream comes to it.
    Commit {
        milliseconds: u64,
    },
    Clear,
}

/// The item that is being heard.
#[derive(Debug, Default)]
struct Open {
    id: Option<String>,
    transcript: Transcript,
    /// The start of its speech, in milliseconds of the stream, if clients know of it.
    started: Option<u64>,
    /// Clients know that it is committed.
    is_committed: bool,
    language: Option<String>,
}

impl Open {
    fn id(&mut self) -> String {
        self.id.get_or_insert_with(|| id("item")).clone()
    }

    fn is_empty(&self) -> bool {
        self.id.is_none() && self.transcript.words().is_empty()
    }
}

/// Settings that events depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// The older beta's events.
    pub is_beta: bool,
    /// The server ends items at the end of speech, and says so.
    pub detects_turns: bool,
    /// Each pause ends one; otherwise [`Items::turn_ended`] says where.
    pub ends_at_pauses: bool,
    pub prefix_padding_ms: u64,
    pub delay: Delay,
    pub log_probabilities: bool,
    pub has_speakers: bool,
}

pub struct Items {
    pub style: Style,
    open: Open,
    marks: VecDeque<Mark>,
    /// The last item that was committed.
    previous: Option<String>,
    /// The audio up to here belongs to items, in milliseconds of the stream.
    taken_ms: u64,
}

impl Items {
    pub fn new(style: Style) -> Self {
        Self { style, open: Open::default(), marks: VecDeque::new(), previous: None, taken_ms: 0 }
    }

    /// Whether the client must wait before it marks the audio again.
    pub fn is_full(&self) -> bool {
        self.marks.len() >= WAITING_MAX
    }

    /// Audio up to `now_ms` that belongs to no item yet, in milliseconds.
    pub fn buffered_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.taken_ms)
    }

    /// The client commits all audio up to `now_ms`. The stream must be finalized.
    pub fn commit(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        let milliseconds = self.buffered_ms(now_ms);
        self.taken_ms = now_ms;
        if self.style.detects_turns {
            self.marks.push_back(Mark::Commit { milliseconds });
            return;
        }
        // Words before the mark belong to this item, which is the open one unless earlier marks are pending.
        let item_id = if self.marks.is_empty() { self.open.id() } else { id("item") };
        self.committed(item_id.clone(), events);
        self.marks.push_back(Mark::Committed { item_id, milliseconds });
    }

    /// The client drops all audio up to `now_ms` that is not committed. The stream must be finalized.
    pub fn clear(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        self.taken_ms = now_ms;
        self.marks.push_back(Mark::Clear);
        events.push(Event::Cleared);
    }

    /// Speech begins.
    pub fn speech_started(&mut self, at: f64, events: &mut Vec<Event>) {
        if self.style.detects_turns && !self.is_dropped() {
            self.start(at, events);
        }
    }

    /// A pause, `at` which speech ends. Its words are still to come.
    pub fn paused(&mut self, at: f64, events: &mut Vec<Event>) {
        if self.style.ends_at_pauses && self.open.started.is_some() && !self.is_dropped() {
            self.speech_stopped(at, events);
            let item_id = self.open.id();
            self.committed(item_id, events);
            self.open.is_committed = true;
        }
    }

    /// The turn is over, and all of its words have come.
    pub fn turn_ended(&mut self, at: f64, events: &mut Vec<Event>) {
        if !self.open.is_empty() && !self.is_dropped() {
            self.stop(at, events);
        }
    }

    /// The stream's words.
    pub fn results(&mut self, results: &Results, events: &mut Vec<Event>) {
        if results.language.is_some() {
            self.open.language.clone_from(&results.language);
        }
        if self.is_dropped() {
            if results.from_finalize {
                self.marks.pop_front();
                self.open = Open::default();
            }
            return;
        }
        if let (true, Some(first)) = (self.style.detects_turns, results.words.first()) {
            self.start(first.start, events);
        }
        self.words(results, events);
        let end = results.start + results.duration;
        if results.from_finalize {
            match self.marks.pop_front() {
                Some(Mark::Committed { item_id, milliseconds }) => {
                    self.open.id = Some(item_id);
                    self.complete(milliseconds, events);
                }
                Some(Mark::Commit { milliseconds }) => self.finish(end, milliseconds, events),
                _ => {}
            }
        } else if results.is_final && self.style.detects_turns && self.is_over(results, end) {
            self.stop(end, events);
        }
    }

    /// Whether the open item ends with this final result.
    fn is_over(&self, results: &Results, end: f64) -> bool {
        let is_long = |started: u64| milliseconds(end).saturating_sub(started) >= ITEM_MS_MAX;
        // Without words and without a pause before it: long silence, or noise.
        let is_ended = self.style.ends_at_pauses && (results.speech_final || results.words.is_empty());
        !self.open.is_empty() && (is_ended || self.open.started.is_some_and(is_long))
    }

    /// There is no more audio: what is open is committed.
    pub fn ended(&mut self, end: f64, events: &mut Vec<Event>) {
        if !self.open.is_empty() && !self.is_dropped() {
            self.stop(end, events);
        }
    }

    /// Recognition failed: no item will be completed any more.
    pub fn failed(&mut self, failed: &Failed, events: &mut Vec<Event>) {
        let waiting = std::mem::take(&mut self.marks).into_iter().filter_map(|mark| match mark {
            Mark::Committed { item_id, .. } => Some(item_id),
            Mark::Commit { .. } | Mark::Clear => None,
        });
        let mut ids: Vec<String> = waiting.collect();
        ids.extend(self.open.id.take().filter(|open| !ids.contains(open)));
        let failed = |item_id| Event::Failed { item_id, content_index: 0, error: failed.clone() };
        events.extend(ids.into_iter().map(failed));
    }

    /// Whether the words that come now are before a clearing.
    fn is_dropped(&self) -> bool {
        matches!(self.marks.front(), Some(Mark::Clear))
    }

    /// Makes the start of the open item's speech known, once.
    fn start(&mut self, at: f64, events: &mut Vec<Event>) {
        if self.open.started.is_some() {
            return;
        }
        let at = milliseconds(at);
        let start = at.saturating_sub(self.style.prefix_padding_ms).max(self.taken_ms.min(at));
        self.open.started = Some(start);
        events.push(Event::SpeechStarted { audio_start_ms: start, item_id: self.open.id() });
    }

    fn words(&mut self, results: &Results, events: &mut Vec<Event>) {
        let added = if results.is_final {
            self.open.transcript.close(&results.words)
        } else {
            self.open.transcript.interim(&results.words, self.style.delay)
        };
        if !added.text.is_empty() {
            self.delta(added, events);
        }
    }

    fn delta(&mut self, added: Added, events: &mut Vec<Event>) {
        let item_id = match self.marks.front() {
            Some(Mark::Committed { item_id, .. }) => item_id.clone(),
            _ => self.open.id(),
        };
        if self.style.has_speakers {
            events.extend(segments(&item_id, &added.words));
        }
        let logprobs = self.style.log_probabilities.then(|| log_probabilities(&added.words));
        events.push(Event::Delta { item_id, content_index: 0, delta: added.text, logprobs });
    }

    /// Ends the open item at `end`, in seconds of the stream, with its speech.
    fn stop(&mut self, end: f64, events: &mut Vec<Event>) {
        if self.open.started.is_some() && !self.open.is_committed {
            self.speech_stopped(end, events);
        }
        self.finish(end, self.buffered_ms(milliseconds(end)), events);
    }

    fn speech_stopped(&mut self, at: f64, events: &mut Vec<Event>) {
        events.push(Event::SpeechStopped { audio_end_ms: milliseconds(at), item_id: self.open.id() });
    }

    /// Ends the open item at `end`, in seconds of the stream; it has so much audio unless the start of its speech is
    /// known.
    fn finish(&mut self, end: f64, audio_ms: u64, events: &mut Vec<Event>) {
        let end = milliseconds(end);
        if !self.open.is_committed {
            let item_id = self.open.id();
            self.committed(item_id, events);
        }
        self.taken_ms = self.taken_ms.max(end);
        self.complete(self.open.started.map_or(audio_ms, |start| end.saturating_sub(start)), events);
    }

    fn committed(&mut self, item_id: String, events: &mut Vec<Event>) {
        let previous_item_id = self.previous.replace(item_id.clone());
        events
            .push(Event::Committed { previous_item_id: previous_item_id.clone(), item_id: item_id.clone() });
        let item = Item::new(item_id);
        if self.style.is_beta {
            events.push(Event::ItemCreated { previous_item_id, item });
        } else {
            events.push(Event::ItemAdded { previous_item_id: previous_item_id.clone(), item: item.clone() });
            events.push(Event::ItemDone { previous_item_id, item });
        }
    }

    fn complete(&mut self, milliseconds: u64, events: &mut Vec<Event>) {
        let mut open = std::mem::take(&mut self.open);
        let logprobs = self.style.log_probabilities.then(|| log_probabilities(open.transcript.words()));
        events.push(Event::Completed {
            item_id: open.id(),
            content_index: 0,
            transcript: open.transcript.text().to_owned(),
            logprobs,
            languages: open.language.into_iter().map(|code| Language { code }).collect(),
            usage: Usage::Duration { seconds: milliseconds as f64 / 1000.0 },
        });
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round().max(0.0) as u64
}

fn log_probabilities(words: &[Word]) -> Vec<LogProbability> {
    let of = |word: &Word| LogProbability {
        token: word.text.clone(),
        bytes: word.text.clone().into_bytes(),
        logprob: f64::from(word.probability.max(f32::MIN_POSITIVE)).ln(),
    };
    words.iter().map(of).collect()
}

/// The words of each speaker in turn.
fn segments(item_id: &str, words: &[Word]) -> Vec<Event> {
    let index = |word: &Word| word.speaker.map(|speaker| speaker.index);
    let segment = |turn: &[Word]| {
        let text: String = turn.iter().map(|word| word.text.as_str()).collect();
        let (first, last) = (turn.first()?, turn.last()?);
        Some(Event::Segment {
            item_id: item_id.to_owned(),
            content_index: 0,
            id: id("seg"),
            text: text.trim().to_owned(),
            speaker: letter(index(first)),
            start: rounded(first.start),
            end: rounded(last.end),
        })
    };
    words.chunk_by(|a, b| index(a) == index(b)).filter_map(segment).collect()
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// As in answers to whole files; `unknown` where speakers could not be told apart.
fn letter(speaker: Option<usize>) -> String {
    speaker.map_or_else(|| "unknown".to_owned(), letters)
}

#[cfg(test)]
mod tests;
