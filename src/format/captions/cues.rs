//! Captions: the words that share one, and its time on the screen.
//!
//! The words are cut by a shortest path over all places where a caption may end: the cost of a caption comes
//! from its time, its reading speed and the place of its break, so a good break does not leave a bad one after it.
//! Then the times are stretched into the silence around the speech, as far as needed.

use super::atoms::{Atom, atoms};
use super::layout::{columns, fitting, lines};
use super::phrases::{ends_clause, ends_sentence, leans_on_next};
use crate::transcript::Transcript;

/// One caption. Its text is never empty, nor its time, and captions do not overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    pub start_ms: u64,
    pub end_ms: u64,
    pub lines: Vec<String>,
    /// With diarization.
    pub speaker: Option<usize>,
}

pub const MAX_SECONDS: f64 = 7.0;
/// Seconds, if the audio leaves room.
pub const GOOD_SECONDS: f64 = 1.0;
/// Seconds in any case, except for words that the model gives no time at all.
pub const MIN_SECONDS: f64 = 5.0 / 6.0;
pub const MIN_GAP_SECONDS: f64 = 0.083;
/// A shorter gap is flicker.
const FLICKER_SECONDS: f64 = 0.5;
pub const COLUMNS_PER_SECOND: f64 = 20.0;
const EARLY_SECONDS: f64 = 0.5;
const LATE_SECONDS: f64 = 1.5;
/// A pause within a caption shows words long before they are said.
const PAUSE_SECONDS: f64 = 0.6;

/// Costs. A further caption costs 1.
const OVERLONG_SECOND: f64 = 40.0;
const SHORT_SECOND: f64 = 30.0;
const MISSING_SECOND: f64 = 6.0;
const PAUSED_SECOND: f64 = 4.0;
const ENDS_IN_CLAUSE: f64 = 1.2;
const ENDS_IN_PHRASE: f64 = 2.4;
const ENDS_ON_LEANING_WORD: f64 = 3.2;
/// A sentence that ends within a caption.
const INNER_SENTENCE: f64 = 1.2;
/// Each second below two: the eye has to find every new caption.
const BRIEF_SECOND: f64 = 0.5;
const BRIEF_SECONDS: f64 = 2.0;

pub fn cues(transcript: &Transcript) -> Vec<Cue> {
    let atoms = atoms(transcript);
    let parts = parts(&atoms);
    let times = times(&parts);
    let mut last = 0;
    let rounded = parts.iter().zip(times).map(|(part, (start, end))| {
        let start_ms = milliseconds(start).max(last);
        let end_ms = milliseconds(end).max(start_ms + 1);
        last = end_ms;
        Cue { start_ms, end_ms, lines: lines(part), speaker: part.first().and_then(|atom| atom.speaker) }
    });
    rounded.collect()
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}

/// The cheapest cut of `atoms` into captions, each of one speaker.
fn parts(atoms: &[Atom]) -> Vec<&[Atom]> {
    // best[n]: the cost of the first n atoms, and the start of their last caption.
    let mut best: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); atoms.len() + 1];
    if let Some(first) = best.first_mut() {
        first.0 = 0.0;
    }
    for start in 0..atoms.len() {
        let Some(&(before, _)) = best.get(start) else { continue };
        let rest = atoms.get(start..).unwrap_or_default();
        let most = fitting(rest);
        let mut body = Body::default();
        let speaker = rest.first().and_then(|atom| atom.speaker);
        let same = rest.iter().take(most).take_while(|atom| atom.speaker == speaker);
        for (index, atom) in same.enumerate() {
            body.push(rest.get(index.wrapping_sub(1)), atom);
            let end = start + index + 1;
            let cost = before + body.cost(rest.get(index + 1));
            if let Some(known) = best.get_mut(end).filter(|known| cost < known.0) {
                *known = (cost, start);
            }
        }
    }
    let mut parts = Vec::new();
    let mut end = atoms.len();
    while end > 0 {
        let start = best.get(end).map_or(0, |(_, start)| *start);
        parts.push(atoms.get(start..end).unwrap_or_default());
        end = start;
    }
    parts.reverse();
    parts
}

/// A caption under construction.
#[derive(Default)]
struct Body {
    start: f64,
    end: f64,
    columns: usize,
    paused: f64,
    sentences: usize,
    is_leaning: bool,
    ends: End,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum End {
    #[default]
    Word,
    Clause,
    Sentence,
}

impl Body {
    fn push(&mut self, before: Option<&Atom>, atom: &Atom) {
        match before {
            None => (self.start, self.columns) = (atom.start, atom.columns),
            Some(before) => {
                self.columns += atom.columns_after();
                self.paused += (atom.start - before.end - PAUSE_SECONDS).max(0.0);
                self.sentences += usize::from(self.ends == End::Sentence && atom.is_spaced);
            }
        }
        self.end = atom.end.max(atom.start);
        self.is_leaning = leans_on_next(&atom.text);
        self.ends = match atom.text.as_str() {
            // The full stop of `Mr.` does not end a sentence.
            _ if self.is_leaning => End::Word,
            text if ends_sentence(text) => End::Sentence,
            text if ends_clause(text) => End::Clause,
            _ => End::Word,
        };
    }

    /// The cost of the cue as it is, with `next` behind it.
    fn cost(&self, next: Option<&Atom>) -> f64 {
        let latest = self.end + LATE_SECONDS;
        let room = next.map_or(latest, |next| latest.min(next.start - MIN_GAP_SECONDS)) - self.start;
        let spoken = (self.end - self.start).max(0.0);
        let needed = self.columns as f64 / COLUMNS_PER_SECOND;
        let pause = next.map_or(f64::INFINITY, |next| next.start - self.end);
        let ends = match self.ends {
            _ if pause >= PAUSE_SECONDS => 0.0,
            End::Sentence => 0.0,
            End::Clause => ENDS_IN_CLAUSE,
            End::Word if self.is_leaning => ENDS_ON_LEANING_WORD,
            End::Word => ENDS_IN_PHRASE,
        };
        1.0 + ends
            + OVERLONG_SECOND * (spoken - MAX_SECONDS).max(0.0)
            + SHORT_SECOND * (GOOD_SECONDS - room).max(0.0)
            + BRIEF_SECOND * (BRIEF_SECONDS - room).max(0.0)
            + MISSING_SECOND * (needed.min(MAX_SECONDS) - room).max(0.0)
            + PAUSED_SECOND * self.paused
            + INNER_SENTENCE * self.sentences as f64
    }
}

/// The time of each of `parts` on the screen.
fn times(parts: &[&[Atom]]) -> Vec<(f64, f64)> {
    let spoken: Vec<(f64, f64)> = parts
        .iter()
        .map(|part| match (part.first(), part.last()) {
            (Some(first), Some(last)) => (first.start, last.end.max(first.start)),
            _ => (0.0, 0.0),
        })
        .collect();
    let starts = starts(&spoken);
    let mut times: Vec<(f64, f64)> = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let (mut start, speech_end) = (starts[index], spoken[index].1.max(starts[index]));
        let wanted = (columns(part) as f64 / COLUMNS_PER_SECOND).clamp(GOOD_SECONDS, MAX_SECONDS);
        let limit = starts.get(index + 1).map_or(f64::INFINITY, |next| next - MIN_GAP_SECONDS);
        let late = (start + wanted).min(speech_end + LATE_SECONDS);
        let mut end = speech_end.max(late).min(limit).min(start + MAX_SECONDS);
        let free = times.last().map_or(0.0, |last| last.1 + MIN_GAP_SECONDS);
        if end - start < wanted {
            start = (end - wanted).max(start - EARLY_SECONDS).max(free).min(start);
        }
        if limit - end < FLICKER_SECONDS {
            end = limit.min(start + MAX_SECONDS);
        }
        times.push((start, end));
    }
    times
}

/// The start of each caption: with its speech, but late enough after the one before that that one can be read at
/// all. Many words that the model gives no time spread into the time before them, or else after.
fn starts(spoken: &[(f64, f64)]) -> Vec<f64> {
    let slot = MIN_SECONDS + MIN_GAP_SECONDS;
    let mut starts: Vec<f64> = spoken.iter().map(|(start, _)| *start).collect();
    for index in (1..starts.len()).rev() {
        let latest = starts[index] - slot;
        let earliest = spoken[index - 1].0 - EARLY_SECONDS;
        starts[index - 1] = starts[index - 1].min(latest.max(earliest)).max(0.0);
    }
    for index in 1..starts.len() {
        starts[index] = starts[index].max(starts[index - 1] + slot);
    }
    starts
}
