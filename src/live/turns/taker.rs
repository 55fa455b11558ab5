//! Turn taking: where turns begin and end in a stream's voice and words. Pure: a function of what it is handed, in the order
//! of the audio, so that the same audio makes the same turns however fast it comes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{Kind, Trigger, TurnEvent};
use super::thresholds::Thresholds;
use crate::live::event::Results;
use crate::transcript::Word;
use crate::turn::Judgement;

/// At most so many seconds of audio lie between two events: 8 frames.
const UPDATE_SECONDS: f64 = 0.25;
/// Frames of speech in a row after which speech has resumed: 96 ms, as for a start of speech.
const RESUMED_FRAMES: u32 = 3;
/// A longer turn is ended, even within speech: every event repeats all words of the turn.
const TURN_SECONDS_MAX: f64 = 300.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No turn has begun.
    Between,
    Ongoing,
    /// Its end is announced.
    EndAnnounced,
}

/// The stream's voice so far. All times are in seconds.
#[derive(Debug, Default)]
struct Heard {
    /// The end of the audio.
    position: f64,
    /// Frames of speech in a row, up to here.
    speech_frames: u32,
    /// The end of the last speech.
    speech_end: f64,
    /// The end of the last speech that gave words.
    words_end: f64,
    /// The beginning of the turn's speech.
    speech_start: Option<f64>,
    /// There is speech that no final result covers yet.
    is_open: bool,
}

impl Heard {
    /// Seconds since the last speech. Speech that turned out to hold no words counts as silence.
    fn silence(&self) -> f64 {
        self.position - if self.is_open { self.speech_end } else { self.words_end }
    }
}

/// Tells turns apart. Its events are taken by [`Self::pop`].
pub struct Taker {
    thresholds: Thresholds,
    /// Of every new pause.
    unjudged: Judgement,
    judgement: Judgement,
    phase: Phase,
    index: u64,
    /// The end of the turn before.
    window_start: f64,
    heard: Heard,
    /// Words of final results.
    settled: Vec<Word>,
    /// Words of the last interim result, and its end.
    open: Vec<Word>,
    recognised_to: f64,
    /// Both, as the events have them.
    words: Arc<[Word]>,
    /// The languages of final results, each with its words.
    languages: Vec<(String, usize)>,
    /// Why final results were asked for, in order.
    asked: VecDeque<Trigger>,
    /// The time of the last event.
    told: f64,
    events: VecDeque<TurnEvent>,
}

impl Taker {
    /// `has_model`: every pause is judged, by [`Self::judged`].
    pub fn new(thresholds: Thresholds, has_model: bool) -> Self {
        let unjudged = if has_model { Judgement::Awaited } else { Judgement::Unknown };
        Self {
            thresholds,
            unjudged,
            judgement: unjudged,
            phase: Phase::Between,
            index: 0,
            window_start: 0.0,
            heard: Heard::default(),
            settled: Vec::new(),
            open: Vec::new(),
            recognised_to: 0.0,
            words: Arc::new([]),
            languages: Vec::new(),
            asked: VecDeque::new(),
            told: 0.0,
            events: VecDeque::new(),
        }
    }

    pub fn pop(&mut self) -> Option<TurnEvent> {
        self.events.pop_front()
    }

    /// Holds from the next audio on.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// The beginning of the speech of the turn, which a model is to judge.
    pub fn speech_start(&self) -> f64 {
        self.heard.speech_start.unwrap_or(self.window_start)
    }

    /// Takes a frame that ends at `position`. True if a final result is due, which [`Self::ask`] announces.
    pub fn frame(&mut self, position: f64, is_speech: bool) -> bool {
        self.heard.position = self.heard.position.max(position);
        if is_speech {
            self.heard.speech_frames += 1;
            self.heard.speech_end = position;
            self.heard.speech_start.get_or_insert(position);
            self.heard.is_open = true;
        } else {
            self.heard.speech_frames = 0;
        }
        if self.heard.speech_frames == RESUMED_FRAMES {
            self.judgement = self.unjudged;
            self.resume();
        }
        self.decide();
        if position - self.told >= UPDATE_SECONDS {
            self.tell(Kind::Update);
        }
        self.is_overdue()
    }

    /// Whether the pause that begins here is to be judged. One after a click is the pause before, which goes on.
    pub fn awaits_judgement(&self) -> bool {
        self.judgement == Judgement::Awaited
    }

    /// The judgement on the last pause: the probability that the speaker has finished; `None` if there is none.
    pub fn judged(&mut self, probability: Option<f32>) {
        self.judgement = match probability {
            Some(probability) => {
                Judgement::Complete { probability: probability.into(), after: self.heard.silence() }
            }
            None => Judgement::Unknown,
        };
        self.decide();
    }

    /// A final result was asked for, which ends the turn.
    pub fn ask(&mut self, why: Trigger) {
        self.asked.push_back(why);
    }

    pub fn results(&mut self, results: Results) {
        self.recognised_to = results.start + results.duration;
        if !results.is_final {
            self.open = results.words;
            return self.words_changed();
        }
        self.open = Vec::new();
        self.heard.position = self.heard.position.max(self.recognised_to);
        // The speech of a span that was cut goes on.
        self.heard.is_open &= !(results.speech_final || results.from_finalize);
        if !results.words.is_empty() {
            self.heard.words_end = self.heard.speech_end;
            self.count(results.language, results.words.len());
            self.settled.extend(results.words);
        } else if self.phase == Phase::Between && !self.heard.is_open {
            self.heard.speech_start = None;
        }
        self.words_changed();
        let why = if results.from_finalize { self.asked.pop_front() } else { None };
        match why {
            Some(why) if self.phase != Phase::Between => self.end_turn(why),
            _ => self.decide(),
        }
    }

    /// There is no more audio, and all of it is recognised: a turn that is going on ends.
    pub fn end(&mut self) {
        if self.phase != Phase::Between {
            self.end_turn(Trigger::Client);
        }
    }

    fn count(&mut self, language: Option<String>, words: usize) {
        let Some(language) = language else { return };
        match self.languages.iter_mut().find(|(known, _)| *known == language) {
            Some((_, count)) => *count += words,
            None => self.languages.push((language, words)),
        }
        self.languages.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    }

    fn words_changed(&mut self) {
        if self.settled.iter().chain(&self.open).eq(self.words.iter()) {
            return;
        }
        let said = |words: &mut dyn Iterator<Item = &Word>| -> String {
            words.map(|word| word.text.as_str()).collect()
        };
        let before = said(&mut self.words.iter());
        self.words = self.settled.iter().chain(&self.open).cloned().collect();
        if said(&mut self.words.iter()) == before {
            return;
        }
        self.resume();
        match self.phase {
            Phase::Between => {
                self.phase = Phase::Ongoing;
                self.tell(Kind::Start);
            }
            _ => self.tell(Kind::Update),
        }
    }

    fn resume(&mut self) {
        if self.phase == Phase::EndAnnounced {
            self.phase = Phase::Ongoing;
            self.tell(Kind::Resumed);
        }
    }

    fn confidence(&self) -> f64 {
        if self.phase == Phase::Between || self.heard.speech_frames > 0 {
            return 0.0;
        }
        self.judgement.confidence(self.heard.silence())
    }

    /// Ends the turn, or announces its end, if it is time. Nothing is decided while there is speech that may hold words, or
    /// words that may change.
    fn decide(&mut self) {
        if self.phase == Phase::Between || self.heard.is_open || !self.open.is_empty() {
            return;
        }
        let confidence = self.confidence();
        let ends = self.thresholds.ends(confidence);
        // An end is always announced first, so that a client may rely on either.
        if self.thresholds.announces_end(confidence) && self.phase == Phase::Ongoing && !self.words.is_empty()
        {
            self.phase = Phase::EndAnnounced;
            self.tell(Kind::EagerEnd);
        }
        if ends {
            self.end_turn(Trigger::Confidence);
        } else if self.heard.silence() >= self.thresholds.timeout.as_secs_f64() {
            self.end_turn(Trigger::Timeout);
        }
    }

    /// Whether the turn has gone on for too long, or for as long as it may pause without words in what sounds like speech.
    fn is_overdue(&self) -> bool {
        if self.phase == Phase::Between || !self.asked.is_empty() || !self.heard.is_open {
            return false;
        }
        let last_word = self.words.last().map_or(self.window_start, |word| word.end);
        self.recognised_to - last_word >= self.thresholds.timeout.as_secs_f64()
            || self.heard.position - self.speech_start() >= TURN_SECONDS_MAX
    }

    fn end_turn(&mut self, trigger: Trigger) {
        self.tell(Kind::End(trigger));
        self.index += 1;
        self.phase = Phase::Between;
        self.window_start = self.heard.position;
        self.heard.speech_start = None;
        self.judgement = self.unjudged;
        self.settled.clear();
        self.open.clear();
        self.languages.clear();
        self.words = Arc::new([]);
    }

    fn tell(&mut self, kind: Kind) {
        self.told = self.heard.position;
        self.events.push_back(TurnEvent {
            kind,
            index: self.index,
            window: self.window_start..self.heard.position,
            words: self.words.clone(),
            confidence: self.confidence(),
            languages: self.languages.iter().map(|(language, _)| language.clone()).collect(),
        });
    }
}

#[cfg(test)]
mod tests;
