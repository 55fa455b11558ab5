//! Chooses the parts of a span to hear once more, as in whole files, and the words to keep: voice that gave no words,
//! words in doubt, and sound without voice that is as loud and uneven as speech. Pure.

use std::ops::Range;

use super::levels::Levels;
use super::span::{PAD_SAMPLES, Span, to_samples};
use crate::engine::{
    CONTEXT_SAMPLES, DecodingOptions, Doubtful, LISTENINGS_MAX, Recognition, WINDOW_SAMPLES,
    doubtful_phrases, doubtful_runs,
};
use crate::transcript::{Word, without_neighbours};
use crate::vad::is_in_pieces;

/// A span that is to be closed, and the audio and the words that there are.
pub struct Heard<'a> {
    pub span: &'a Span,
    /// The end of the span.
    pub end: u64,
    pub words: &'a [Word],
    /// Those of the spans just before.
    pub before: &'a [Word],
    /// `None`: only voice counts.
    pub levels: Option<&'a Levels>,
    /// Samples of the stream that are still there.
    pub available: Range<u64>,
}

pub struct SecondListening {
    /// Samples of the window that the words are from.
    window: u64,
    rounds: usize,
    /// What is not heard yet, the last one first.
    waiting: Vec<Attempt>,
    tried: Vec<Range<u64>>,
    stage: Stage,
    current: Option<Attempt>,
}

/// The order of listening. Which phrases are in doubt is known once all voice has its words.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    VoiceWithoutWords,
    DoubtfulPhrases,
    DoubtfulRuns,
    WithoutVoice,
    Done,
}

#[derive(Clone)]
enum Attempt {
    VoiceWithoutWords { stretch: Range<u64>, with_context: bool },
    Doubtful(Doubtful),
    WithoutVoice(Range<u64>),
}

impl SecondListening {
    /// `window`: the samples of the window that the words are from.
    pub fn new(window: u64) -> Self {
        Self {
            window,
            rounds: 0,
            waiting: Vec::new(),
            tried: Vec::new(),
            stage: Stage::VoiceWithoutWords,
            current: None,
        }
    }

    /// The audio to recognise next; `None` once everything was tried.
    pub fn next(&mut self, heard: &Heard) -> Option<Range<u64>> {
        if let Some(Attempt::VoiceWithoutWords { stretch, with_context: with_context @ false }) =
            &mut self.current
        {
            *with_context = true;
            let context = CONTEXT_SAMPLES as u64;
            let around = stretch.start.saturating_sub(context)..stretch.end + context / 2;
            let around = around.start.max(heard.available.start)..around.end.min(heard.available.end);
            if fits_window(&around) {
                return Some(around);
            }
        }
        self.current = None;
        while self.waiting.is_empty() && self.stage != Stage::Done {
            self.waiting = self.round(heard);
            self.waiting.reverse();
        }
        let attempt = self.waiting.pop()?;
        let audio = match &attempt {
            Attempt::VoiceWithoutWords { stretch, .. } | Attempt::WithoutVoice(stretch) => stretch.clone(),
            Attempt::Doubtful(doubtful) => doubtful.audio.start as u64..doubtful.audio.end as u64,
        };
        self.current = Some(attempt);
        Some(audio)
    }

    /// What is heard in the next round; the stage goes on where that was the last of it.
    fn round(&mut self, heard: &Heard) -> Vec<Attempt> {
        match self.stage {
            Stage::VoiceWithoutWords => {
                self.rounds += 1;
                let mut stretches = heard.span.without_words(heard.words, heard.end).stretches;
                stretches.retain(|stretch| fits_window(stretch) && !self.tried.contains(stretch));
                if stretches.is_empty() || self.rounds == LISTENINGS_MAX {
                    self.stage = Stage::DoubtfulPhrases;
                }
                self.tried.extend(stretches.iter().cloned());
                let attempt = |stretch| Attempt::VoiceWithoutWords { stretch, with_context: false };
                stretches.into_iter().map(attempt).collect()
            }
            Stage::DoubtfulPhrases | Stage::DoubtfulRuns => {
                let is_first = self.stage == Stage::DoubtfulPhrases;
                let find = if is_first { doubtful_phrases } else { doubtful_runs };
                self.stage = if is_first { Stage::DoubtfulRuns } else { Stage::WithoutVoice };
                let words = [heard.before, heard.words].concat();
                let available = heard.available.start as usize..heard.available.end.min(heard.end) as usize;
                let mut doubtful = find(&words, available);
                // What was sent stays; the silence before a span may be heard.
                let own = heard.span.start as usize;
                doubtful.retain(|each| {
                    each.place.start + PAD_SAMPLES as usize >= own && each.differs_from(self.window as usize)
                });
                doubtful.iter_mut().for_each(|each| each.place.start = each.place.start.max(own));
                doubtful.into_iter().map(Attempt::Doubtful).collect()
            }
            Stage::WithoutVoice => {
                self.stage = Stage::Done;
                let Some(levels) = heard.levels else { return Vec::new() };
                let Range { start, end } = heard.span.start..heard.end;
                let sure_frames = heard.span.sure_frames_after(start);
                let voiced = heard.span.window_end(end).saturating_sub(heard.span.window_start(end));
                let in_pieces = is_in_pieces(sure_frames, voiced as usize);
                let words = if in_pieces { &[] } else { heard.words };
                let accounted = words.iter().flat_map(Word::plausible_times);
                let mut stretches = levels.speech_like(start.max(heard.available.start)..end, accounted);
                stretches.retain(fits_window);
                stretches.into_iter().map(Attempt::WithoutVoice).collect()
            }
            Stage::Done => Vec::new(),
        }
    }

    /// How the audio is to be recognised, where `options` are those of one attempt.
    pub fn options(&self, options: DecodingOptions) -> DecodingOptions {
        match self.current {
            Some(Attempt::VoiceWithoutWords { .. }) => options.for_second_listening(),
            Some(Attempt::WithoutVoice(_)) => options.for_sound_without_voice(),
            Some(Attempt::Doubtful(_)) | None => options,
        }
    }

    /// Whether the language that was heard so far is that of the audio.
    pub fn knows_language(&self) -> bool {
        !matches!(self.current, Some(Attempt::WithoutVoice(_)))
    }

    /// Whether the model understood the audio.
    pub fn is_understood(&self, recognition: &Recognition, options: &DecodingOptions) -> bool {
        match self.current {
            Some(Attempt::Doubtful(_)) => !recognition.needs_fallback(options),
            _ => recognition.is_certain(options),
        }
    }

    /// Puts the words that were `heard` in that audio among the span's `words`, if they lie in their place and are sure;
    /// returns whether it did.
    pub fn take(
        &mut self,
        mut heard: Vec<Word>,
        options: &DecodingOptions,
        span: &Span,
        words: &mut Vec<Word>,
    ) -> bool {
        let lies_in =
            |word: &Word, place: &Range<u64>| place.contains(&to_samples(word.start.midpoint(word.end)));
        match &self.current {
            None => return false,
            Some(Attempt::VoiceWithoutWords { stretch, .. }) => {
                heard.retain(|word| lies_in(word, stretch));
                if !options.accept(&heard) {
                    return false;
                }
                // The same word where there is no voice was put there by alignment.
                let again = |word: &Word| heard.iter().any(|heard| heard.is_like(word));
                words.retain(|word| span.has_voice(word.start..word.end) || !again(word));
            }
            Some(Attempt::Doubtful(doubtful)) => {
                let place = doubtful.place.start as u64..doubtful.place.end as u64;
                heard.retain(|word| lies_in(word, &place));
                if !doubtful.gives_way_to(&heard.iter().collect::<Vec<_>>()) {
                    return false;
                }
                words.retain(|word| !lies_in(word, &place));
            }
            Some(Attempt::WithoutVoice(stretch)) => {
                if !options.accept(&heard) {
                    return false;
                }
                words.retain(|word| !lies_in(word, stretch));
            }
        }
        self.current = None;
        words.extend(without_neighbours(heard, words.iter()));
        words.sort_by(|a, b| a.start.total_cmp(&b.start));
        true
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

    /// A span of 20 s with voice in these.
    fn span(voiced: &[Range<u64>]) -> Span {
        let mut span = Span::new(0);
        for frame in 0..20 * SECOND / FRAME {
            let is_voiced = voiced.iter().any(|voiced| voiced.contains(&(frame * FRAME / SECOND)));
            span.push(frame * FRAME_SAMPLES as u64, if is_voiced { 0.9 } else { 0.01 }, is_voiced);
        }
        span
    }

    fn heard<'a>(span: &'a Span, words: &'a [Word]) -> Heard<'a> {
        Heard { span, end: 20 * SECOND, words, before: &[], levels: None, available: 0..20 * SECOND }
    }

    fn near(found: Option<Range<u64>>, expected: Range<u64>) -> bool {
        let differ = |a: u64, b: u64| a.abs_diff(b) > SECOND / 2;
        found.is_some_and(|found| !differ(found.start, expected.start) && !differ(found.end, expected.end))
    }

    #[test]
    fn each_stretch_is_heard_by_itself_and_then_with_what_is_around_it() {
        let mut listening = SecondListening::new(20 * SECOND);
        let span = span(&[2..4, 10..12]);
        let mut next = || listening.next(&Heard { available: SECOND..13 * SECOND, ..heard(&span, &[]) });
        assert!(near(next(), 2 * SECOND..4 * SECOND));
        assert!(near(next(), SECOND..6 * SECOND), "no more than there is");
        assert!(near(next(), 10 * SECOND..12 * SECOND));
        assert!(near(next(), 6 * SECOND..13 * SECOND));
        assert_eq!(next(), None, "the same stretches are not heard again");
    }

    #[test]
    fn what_is_left_of_a_stretch_is_heard_in_a_second_round_and_that_is_all() {
        let (mut listening, options) = (SecondListening::new(20 * SECOND), DecodingOptions::default());
        let span = span(&[0..9]);
        let mut words = vec![word(" a", 0.0, 0.5), word(" d", 8.5, 9.0)];
        assert!(near(listening.next(&heard(&span, &words)), SECOND / 2..8 * SECOND + SECOND / 2));
        let found = vec![word(" A", 0.4, 0.8), word(" b", 2.0, 2.5), word(" e", 12.0, 13.0)];
        assert!(listening.take(found, &options, &span, &mut words));
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, [" a", " b", " d"], "inside, and no neighbour again");
        assert!(near(listening.next(&heard(&span, &words)), SECOND / 2..2 * SECOND));
        listening.take(Vec::new(), &options, &span, &mut words);
        assert!(listening.next(&heard(&span, &words)).is_some(), "with context");
        listening.take(vec![word(" c", 1.0, 1.4)], &options, &span, &mut words);
        assert!(near(
            listening.next(&heard(&span, &words)),
            2 * SECOND + SECOND / 2..8 * SECOND + SECOND / 2
        ));
        listening.take(vec![word(" f", 5.0, 5.4)], &options, &span, &mut words);
        assert_eq!(listening.next(&heard(&span, &words)), None);
    }

    #[test]
    fn words_that_are_not_sure_are_dropped() {
        let mut listening = SecondListening::new(20 * SECOND);
        let span = span(&[0..3]);
        let mut words = Vec::new();
        assert!(listening.next(&heard(&span, &words)).is_some());
        let options = listening.options(DecodingOptions::default());
        let unsure = Word { probability: 0.3, ..word(" a", 1.0, 2.0) };
        assert!(!listening.take(vec![unsure], &options, &span, &mut words));
        assert_eq!(words, []);
        assert!(listening.next(&heard(&span, &words)).is_some(), "with context");
    }

    #[test]
    fn a_phrase_in_doubt_is_heard_with_the_words_before_the_span() {
        let before = [word(" a", -3.0, -2.0), word(" b", -2.0, -1.0)].map(|word| Word {
            start: word.start + 10.0,
            end: word.end + 10.0,
            ..word
        });
        let span = Span::new(10 * SECOND - SECOND / 2);
        let three = |text, probability| {
            [(10.0, 10.3), (10.3, 10.6), (10.6, 11.0)]
                .map(|(start, end)| Word { probability, ..word(text, start, end) })
        };
        let mut words = Vec::new();
        let options = DecodingOptions::default();
        for (window, surer, kept) in [(20, 0.6, " d d d"), (20, 0.31, " c c c"), (4, 0.6, " c c c")] {
            words = three(" c", 0.3).to_vec();
            let mut listening = SecondListening::new(window * SECOND);
            let asked = listening.next(&Heard { before: &before, ..heard(&span, &words) });
            if window < 5 {
                assert_eq!(asked, None, "nearly the same audio");
                continue;
            }
            assert!(near(asked.clone(), 7 * SECOND..11 * SECOND + SECOND / 2), "{asked:?}");
            let found = [vec![before[1].clone()], three(" d", surer).to_vec()].concat();
            listening.take(found, &options, &span, &mut words);
            assert_eq!(words.iter().map(|word| word.text.as_str()).collect::<String>(), kept);
            let run = listening.next(&heard(&span, &words));
            assert_eq!(run.is_some(), kept == " c c c", "by themselves, if they are still in doubt");
        }
        words.clear();
        let doubted = before.map(|word| Word { probability: 0.0, ..word });
        let asked =
            SecondListening::new(20 * SECOND).next(&Heard { before: &doubted, ..heard(&span, &words) });
        assert_eq!(asked, None, "what was sent stays");
    }

    #[test]
    fn sound_without_voice_gives_words_of_which_the_model_is_surer_than_usual() {
        let syllable = |n: u64| if n % 4000 < 2800 { 0.1 } else { 0.01 };
        let loud = |n: u64| if (5 * SECOND..9 * SECOND).contains(&n) { syllable(n) } else { 1e-4 };
        let sound: Vec<f32> = (0..20 * SECOND).map(|n| if n % 2 == 0 { loud(n) } else { -loud(n) }).collect();
        let mut levels = Levels::default();
        levels.push(&sound);
        let span = Span::new(0);
        for (probability, words) in [(0.9, 1), (0.5, 0)] {
            let mut listening = SecondListening::new(0);
            let mut kept = Vec::new();
            let audio = listening.next(&Heard { levels: Some(&levels), ..heard(&span, &kept) });
            assert!(near(audio.clone(), 5 * SECOND..9 * SECOND), "{audio:?}");
            let options = listening.options(DecodingOptions::default());
            let found = vec![Word { probability, ..word(" a", 6.0, 7.0) }];
            listening.take(found, &options, &span, &mut kept);
            assert_eq!(kept.len(), words);
            assert_eq!(listening.next(&Heard { levels: Some(&levels), ..heard(&span, &kept) }), None);
        }
    }
}
