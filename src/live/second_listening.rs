//! The second listening to voice of a span that gave no words: which audio is heard again, and which of its words are
//! kept. As in whole files. Pure.

use std::ops::Range;

use super::span::{Span, to_samples};
use crate::engine::{CONTEXT_SAMPLES, DecodingOptions, LISTENINGS_MAX, WINDOW_SAMPLES};
use crate::transcript::{Word, without_neighbours};

#[derive(Default)]
pub struct SecondListening {
    rounds: usize,
    /// Stretches of this round that are not heard yet, the last one first.
    waiting: Vec<Range<u64>>,
    tried: Vec<Range<u64>>,
    current: Option<Attempt>,
}

struct Attempt {
    stretch: Range<u64>,
    with_context: bool,
}

impl SecondListening {
    /// The audio to recognise next, of what is `available` of the stream; `None` once everything was tried. `stretches`:
    /// voice without words, in samples of the stream.
    pub fn next(
        &mut self,
        stretches: impl FnOnce() -> Vec<Range<u64>>,
        available: Range<u64>,
    ) -> Option<Range<u64>> {
        if let Some(Attempt { stretch, with_context: with_context @ false }) = &mut self.current {
            *with_context = true;
            let context = CONTEXT_SAMPLES as u64;
            let around = stretch.start.saturating_sub(context)..stretch.end + context / 2;
            let around = around.start.max(available.start)..around.end.min(available.end);
            if fits_window(&around) {
                return Some(around);
            }
        }
        self.current = None;
        if self.waiting.is_empty() && self.rounds < LISTENINGS_MAX {
            self.rounds += 1;
            self.waiting = stretches();
            self.waiting.retain(|stretch| fits_window(stretch) && !self.tried.contains(stretch));
            self.waiting.reverse();
            self.tried.extend(self.waiting.iter().cloned());
        }
        let stretch = self.waiting.pop()?;
        self.current = Some(Attempt { stretch: stretch.clone(), with_context: false });
        Some(stretch)
    }

    /// Puts the words that were `heard` in that audio among the span's `words`, if they lie in the stretch and are sure.
    pub fn take(
        &mut self,
        mut heard: Vec<Word>,
        options: &DecodingOptions,
        span: &Span,
        words: &mut Vec<Word>,
    ) {
        let Some(Attempt { stretch, .. }) = &self.current else { return };
        heard.retain(|word| stretch.contains(&to_samples(word.start.midpoint(word.end))));
        if !options.accept(&heard) {
            return;
        }
        self.current = None;
        // The same word where there is no voice was put there by alignment.
        let again = |word: &Word| heard.iter().any(|heard| heard.is_like(word));
        words.retain(|word| span.has_voice(word.start..word.end) || !again(word));
        words.extend(without_neighbours(heard, words.iter()));
        words.sort_by(|a, b| a.start.total_cmp(&b.start));
    }
}

fn fits_window(audio: &Range<u64>) -> bool {
    audio.end.saturating_sub(audio.start) <= WINDOW_SAMPLES as u64
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one stretch")]
mod tests {
    use super::*;
    use crate::live::span::FRAME;
    use crate::vad::FRAME_SAMPLES;

    const SECOND: u64 = 16_000;

    fn word(text: &str, start: f64, end: f64) -> Word {
        Word { text: text.into(), start, end, probability: 0.9, speaker: None }
    }

    /// A span with voice in all of its 20 s.
    fn span() -> Span {
        let mut span = Span::new(0);
        (0..20 * SECOND / FRAME).for_each(|frame| span.push(frame * FRAME_SAMPLES as u64, 0.9, true));
        span
    }

    #[test]
    fn each_stretch_is_heard_by_itself_and_then_with_what_is_around_it() {
        let mut listening = SecondListening::default();
        let stretches = || vec![2 * SECOND..4 * SECOND, 10 * SECOND..12 * SECOND];
        let mut next = || listening.next(stretches, SECOND..13 * SECOND);
        assert_eq!(next(), Some(2 * SECOND..4 * SECOND));
        assert_eq!(next(), Some(SECOND..6 * SECOND), "no more than there is");
        assert_eq!(next(), Some(10 * SECOND..12 * SECOND));
        assert_eq!(next(), Some(6 * SECOND..13 * SECOND));
        assert_eq!(next(), None, "the same stretches are not heard again");
    }

    #[test]
    fn what_is_left_of_a_stretch_is_heard_in_a_second_round_and_that_is_all() {
        let (mut listening, span, options) = (SecondListening::default(), span(), DecodingOptions::default());
        let mut words = vec![word(" a", 0.0, 2.0), word(" d", 9.0, 9.5)];
        let whole = 0..20 * SECOND;
        assert_eq!(
            listening.next(|| vec![2 * SECOND..9 * SECOND], whole.clone()),
            Some(2 * SECOND..9 * SECOND)
        );
        let heard = vec![word(" A", 1.9, 2.2), word(" b", 3.0, 4.0), word(" e", 12.0, 13.0)];
        listening.take(heard, &options, &span, &mut words);
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, [" a", " b", " d"], "inside, and no neighbour again");
        assert_eq!(
            listening.next(|| vec![5 * SECOND..9 * SECOND], whole.clone()),
            Some(5 * SECOND..9 * SECOND)
        );
        listening.take(vec![word(" c", 6.0, 7.0)], &options, &span, &mut words);
        assert_eq!(listening.next(|| vec![7 * SECOND..9 * SECOND], whole), None);
    }

    #[test]
    fn words_that_are_not_sure_are_dropped() {
        let (mut listening, span) = (SecondListening::default(), span());
        let options = DecodingOptions::default().for_second_listening();
        let mut words = Vec::new();
        assert!(listening.next(|| vec![0..3 * SECOND], 0..20 * SECOND).is_some());
        listening.take(vec![Word { probability: 0.3, ..word(" a", 1.0, 2.0) }], &options, &span, &mut words);
        assert_eq!(words, []);
        assert!(listening.next(Vec::new, 0..20 * SECOND).is_some(), "with context");
    }
}
