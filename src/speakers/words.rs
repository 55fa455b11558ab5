//! Turns to words: the speaker of each.
//!
//! A word has one speaker, so changes fall on word boundaries. Where speakers talk at once, the word's is the one
//! whose turns cover most of it, and in doubt the one who was talking already. The times of words and of turns are both
//! off by a tenth of a second or two; so a word that no turn covers well goes with its sentence.

use std::ops::Range;

use super::diarize::{Diarization, Turn};
use crate::transcript::script::is_unspaced;
use crate::transcript::{Speaker, Word};

/// Covered less than this, a word goes with its sentence.
const WELL_COVERED: f64 = 0.5;
/// A longer pause, in seconds, parts a word from its sentence.
const SENTENCE_PAUSE: f64 = 1.0;
/// Shares of a word that differ by less are the same.
const SAME_SHARE: f64 = 0.05;
/// The time given to words that have none, in seconds.
const WORD_SECONDS_MIN: f64 = 0.02;
/// The part of a turn's confidence that a word outside it keeps.
const OUTSIDE: f64 = 0.5;

impl Diarization {
    /// Sets the speaker of `words`, which are in order of time and on the clock of the turns. Every word gets one if
    /// there is any turn, and none otherwise.
    pub fn label<'a>(&self, words: impl IntoIterator<Item = &'a mut Word>) {
        if self.turns.is_empty() {
            return;
        }
        let mut words: Vec<&mut Word> = words.into_iter().collect();
        let units = units(&words);
        let mut speakers = self.speakers(&units);
        go_with_sentences(&units, &mut speakers);
        for (unit, chosen) in units.iter().zip(&speakers) {
            for word in words.get_mut(unit.pieces.clone()).unwrap_or_default() {
                word.speaker = Some(Speaker { index: chosen.index, confidence: chosen.confidence() });
            }
        }
    }

    /// The speaker of each of `units` by the turns alone.
    fn speakers(&self, units: &[Unit]) -> Vec<Chosen> {
        let mut chosen: Vec<Chosen> = Vec::with_capacity(units.len());
        let mut past = Past::default();
        for unit in units {
            past.advance(&self.turns, unit.start);
            let before = chosen.last().map(|before| before.index);
            chosen.push(past.choose(&self.turns, unit, before));
        }
        chosen
    }
}

/// A word as it is read: the model gives `3` and `.5` as two.
struct Unit {
    /// Indices of its words.
    pieces: Range<usize>,
    start: f64,
    end: f64,
    ends_sentence: bool,
}

impl Unit {
    fn seconds(&self) -> f64 {
        self.end - self.start
    }

    /// The seconds that `turn` covers.
    fn covered_by(&self, turn: &Turn) -> f64 {
        (self.end.min(turn.end) - self.start.max(turn.start)).max(0.0)
    }

    /// The seconds to `turn`, 0 if they touch.
    fn distance(&self, turn: &Turn) -> f64 {
        (turn.start - self.end).max(self.start - turn.end).max(0.0)
    }
}

fn units(words: &[&mut Word]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let end = word.end.max(word.start + WORD_SECONDS_MIN);
        let before = index.checked_sub(1).and_then(|before| words.get(before));
        let ends_sentence = ends_sentence(&word.text);
        match units.last_mut().filter(|_| before.is_some_and(|before| goes_on(&before.text, &word.text))) {
            Some(unit) => {
                unit.pieces.end = index + 1;
                unit.end = unit.end.max(end);
                unit.ends_sentence = ends_sentence;
            }
            None => units.push(Unit { pieces: index..index + 1, start: word.start, end, ends_sentence }),
        }
    }
    units
}

/// Whether `text` belongs to the word whose text is `before`.
fn goes_on(before: &str, text: &str) -> bool {
    let is_spaced = before.ends_with(char::is_whitespace) || text.starts_with(char::is_whitespace);
    let letter = |c: &char| c.is_alphanumeric();
    !is_spaced
        && !before.chars().rev().find(letter).is_some_and(is_unspaced)
        && !text.chars().find(letter).is_some_and(is_unspaced)
}

fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end_matches(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '”' | '’' | ')' | '»' | '」')
    });
    text.ends_with(['.', '!', '?', '…', '。', '！', '？', '؟', '।'])
}

/// The speaker of a word, and the reason.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    index: usize,
    /// The share of the word that the speaker's turns cover, 0 to 1.
    covered: f64,
    /// The speaker's part of all that turns cover of it, 0 to 1.
    alone: f64,
    /// Of the turn.
    confidence: f32,
}

impl Chosen {
    fn confidence(&self) -> f32 {
        let certainty = (OUTSIDE + (1.0 - OUTSIDE) * self.covered) * self.alone;
        (f64::from(self.confidence) * certainty).clamp(0.0, 1.0) as f32
    }
}

/// The turns that lie behind, so that each word looks at those near it alone.
#[derive(Default)]
struct Past {
    /// Turns before this ended before the word began.
    first: usize,
    /// The last of them to end.
    latest: Option<usize>,
    at: f64,
}

impl Past {
    fn advance(&mut self, turns: &[Turn], start: f64) {
        if start < self.at {
            *self = Self::default();
        }
        self.at = start;
        while let Some(turn) = turns.get(self.first).filter(|turn| turn.end <= start) {
            let latest = self.latest.and_then(|latest| turns.get(latest));
            if latest.is_none_or(|latest| latest.end <= turn.end) {
                self.latest = Some(self.first);
            }
            self.first += 1;
        }
    }

    /// The speaker of `unit`; `before` is that of the word before it.
    fn choose(&self, turns: &[Turn], unit: &Unit, before: Option<usize>) -> Chosen {
        let ahead = turns.get(self.first..).unwrap_or_default();
        // The first turn that begins after the word is the last that can be the nearest.
        let count =
            ahead.iter().position(|turn| turn.start >= unit.end).map_or(ahead.len(), |after| after + 1);
        let near = ahead.get(..count).unwrap_or_default();
        let mut shares: Vec<Share> = Vec::new();
        for turn in near {
            let seconds = unit.covered_by(turn);
            if seconds > 0.0 {
                match shares.iter_mut().find(|share| share.speaker == turn.speaker) {
                    Some(share) => share.add(seconds, turn),
                    None => shares.push(Share::of(seconds, turn)),
                }
            }
        }
        let most = shares.iter().map(|share| share.seconds).fold(0.0, f64::max);
        let level = most - SAME_SHARE * unit.seconds();
        let leading = || shares.iter().filter(|share| share.seconds >= level);
        let staying = leading().find(|share| Some(share.speaker) == before);
        let surest = || leading().max_by(|a, b| a.confidence().total_cmp(&b.confidence()));
        if let Some(share) = staying.or_else(surest) {
            let all: f64 = shares.iter().map(|share| share.seconds).sum();
            return Chosen {
                index: share.speaker,
                covered: (share.seconds / unit.seconds()).min(1.0),
                alone: share.seconds / all,
                confidence: share.confidence(),
            };
        }
        let latest = self.latest.and_then(|latest| turns.get(latest));
        let nearest =
            latest.into_iter().chain(near).min_by(|a, b| unit.distance(a).total_cmp(&unit.distance(b)));
        let (index, confidence) = nearest.map_or((0, 0.0), |turn| (turn.speaker, turn.confidence));
        Chosen { index, covered: 0.0, alone: 1.0, confidence }
    }
}

/// A speaker's part of a word.
struct Share {
    speaker: usize,
    seconds: f64,
    /// Seconds times the turn's confidence.
    weight: f64,
}

impl Share {
    fn of(seconds: f64, turn: &Turn) -> Self {
        Self { speaker: turn.speaker, seconds, weight: seconds * f64::from(turn.confidence) }
    }

    fn add(&mut self, seconds: f64, turn: &Turn) {
        self.seconds += seconds;
        self.weight += seconds * f64::from(turn.confidence);
    }

    fn confidence(&self) -> f32 {
        (self.weight / self.seconds) as f32
    }
}

/// Gives words that no turn covers well to the speaker of the words beside them in their sentence: of the one before,
/// if both sides agree or if it ends the sentence, and of the one after if it begins the sentence.
fn go_with_sentences(units: &[Unit], speakers: &mut [Chosen]) {
    let belong = |index: usize| match (units.get(index), units.get(index + 1)) {
        (Some(unit), Some(next)) => !unit.ends_sentence && next.start - unit.end < SENTENCE_PAUSE,
        _ => false,
    };
    for index in 0..speakers.len() {
        let Some(chosen) = speakers.get(index).filter(|chosen| chosen.covered < WELL_COVERED) else {
            continue;
        };
        let before = index.checked_sub(1).filter(|before| belong(*before)).and_then(|at| speakers.get(at));
        let after = speakers.get(index + 1).filter(|_| belong(index));
        let sides = match (before, after) {
            (Some(before), Some(after)) if before.index != after.index => continue,
            (Some(side), _) | (None, Some(side)) => *side,
            (None, None) => continue,
        };
        if sides.index != chosen.index {
            let smoothed = Chosen { covered: 0.0, alone: 1.0, ..sides };
            if let Some(chosen) = speakers.get_mut(index) {
                *chosen = smoothed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turn(speaker: usize, start: f64, end: f64) -> Turn {
        Turn { speaker, start, end, confidence: 0.8 }
    }

    fn diarization(turns: &[Turn]) -> Diarization {
        Diarization { turns: turns.to_vec(), ..Diarization::default() }
    }

    /// Words by their texts and times.
    fn words(spoken: &[(&str, f64, f64)]) -> Vec<Word> {
        let word = |&(text, start, end): &(&str, f64, f64)| Word {
            text: text.into(),
            start,
            end,
            probability: 0.9,
            speaker: None,
        };
        spoken.iter().map(word).collect()
    }

    fn labelled(turns: &[Turn], spoken: &[(&str, f64, f64)]) -> Vec<usize> {
        let mut words = words(spoken);
        diarization(turns).label(&mut words);
        words.iter().map(|word| word.speaker.expect("a speaker").index).collect()
    }

    #[test]
    fn a_change_falls_between_words() {
        let spoken = [
            (" How", 0.0, 0.4),
            (" are", 0.4, 0.7),
            (" you?", 0.7, 1.1),
            (" Fine", 1.1, 1.6),
            (" thanks.", 1.6, 2.0),
        ];
        for change in [0.95, 1.1, 1.3] {
            let turns = [turn(0, 0.0, change), turn(1, change, 2.0)];
            assert_eq!(labelled(&turns, &spoken), [0, 0, 0, 1, 1], "{change}");
        }
    }

    #[test]
    fn where_two_talk_the_one_who_covers_most_of_the_word_has_it() {
        let turns = [turn(0, 0.0, 1.5), turn(1, 1.0, 3.0)];
        let spoken = [(" a", 0.2, 0.8), (" b", 1.0, 1.4), (" c", 1.3, 2.0), (" d", 2.1, 2.5)];
        // Both cover `b`: the one who was talking goes on.
        assert_eq!(labelled(&turns, &spoken), [0, 0, 1, 1]);
    }

    #[test]
    fn a_word_hardly_within_another_turn_is_no_island() {
        let turns = [turn(0, 0.0, 0.9), turn(1, 1.0, 1.1), turn(0, 1.5, 3.0)];
        let sentence = [(" We", 0.0, 0.5), (" all", 0.5, 0.9), (" go", 0.95, 1.45), (" home.", 1.5, 2.0)];
        assert_eq!(labelled(&turns, &sentence), [0; 4]);
        // By itself, and covered, it is an answer.
        let turns = [turn(0, 0.0, 0.9), turn(1, 0.95, 1.45), turn(0, 1.5, 3.0)];
        let answered = [(" You", 0.0, 0.5), (" go?", 0.5, 0.9), (" Yes.", 0.95, 1.45), (" Good.", 1.5, 2.0)];
        assert_eq!(labelled(&turns, &answered), [0, 0, 1, 0]);
    }

    #[test]
    fn the_first_and_the_last_word_of_a_sentence_stay_in_it() {
        let turns = [turn(0, 0.0, 1.0), turn(1, 2.2, 4.0)];
        let spoken = [
            (" Come", 0.2, 0.6),
            (" here", 0.6, 1.0),
            (" now.", 1.65, 1.9),
            (" I", 1.9, 2.1),
            (" come.", 2.3, 2.8),
        ];
        assert_eq!(labelled(&turns, &spoken), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn words_outside_all_turns_have_the_nearest_speaker() {
        let turns = [turn(0, 1.0, 2.0), turn(1, 5.0, 6.0)];
        let spoken = [(" a", 0.0, 0.3), (" b.", 3.0, 3.2), (" c", 4.6, 4.8), (" d", 9.0, 9.0)];
        assert_eq!(labelled(&turns, &spoken), [0, 0, 1, 1]);
        let mut none = words(&spoken);
        diarization(&[]).label(&mut none);
        assert!(none.iter().all(|word| word.speaker.is_none()));
    }

    #[test]
    fn pieces_of_a_word_have_one_speaker_and_characters_each_their_own() {
        let turns = [turn(0, 0.0, 1.0), turn(1, 1.0, 3.0)];
        assert_eq!(labelled(&turns, &[(" 3", 0.6, 1.0), (".5", 1.0, 1.2), (" I", 2.0, 2.2)]), [0, 0, 1]);
        assert_eq!(labelled(&turns, &[("私", 0.6, 1.0), ("は", 1.0, 1.2), ("。", 1.2, 1.3)]), [0, 1, 1]);
    }

    #[test]
    fn a_word_is_surer_the_more_of_it_one_speaker_alone_covers() {
        let turns = [turn(0, 0.0, 2.0), turn(1, 1.0, 2.0)];
        let mut words = words(&[(" a", 0.2, 0.8), (" b", 1.2, 1.8), (" c", 3.0, 3.5)]);
        diarization(&turns).label(&mut words);
        let confidences: Vec<f32> = words.iter().filter_map(|word| Some(word.speaker?.confidence)).collect();
        assert_eq!(confidences, [0.8, 0.4, 0.4]);
    }

    proptest! {
        #[test]
        fn every_word_has_a_speaker_of_the_turns(
            turns in prop::collection::vec((0usize..4, 0.0f64..60.0, 0.0f64..9.0, 0.0f32..=1.0), 1..40),
            spoken in prop::collection::vec((" [a-z]{1,3}[.]?|[a-z]", 0.0f64..60.0, 0.0f64..2.0), 0..80),
        ) {
            let mut turns: Vec<Turn> = turns
                .into_iter()
                .map(|(speaker, start, seconds, confidence)| Turn { speaker, start, end: start + seconds, confidence })
                .collect();
            turns.sort_by(|a, b| a.start.total_cmp(&b.start));
            let mut words: Vec<Word> = spoken
                .into_iter()
                .map(|(text, start, seconds)| Word { text, start, end: start + seconds, probability: 1.0, speaker: None })
                .collect();
            words.sort_by(|a, b| a.start.total_cmp(&b.start));
            diarization(&turns).label(&mut words);
            for word in &words {
                let speaker = word.speaker.expect("a speaker");
                prop_assert!(turns.iter().any(|turn| turn.speaker == speaker.index));
                prop_assert!((0.0..=1.0).contains(&speaker.confidence));
            }
        }
    }
}
