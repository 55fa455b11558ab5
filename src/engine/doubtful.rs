//! Phrases, and runs of words within them, of which the model is unsure: what whole files and streams have in common.
//! Pure.
//!
//! Cut elsewhere, the model hears many of them otherwise, and what it is surer of is right more often.

use std::ops::Range;

use crate::audio::SAMPLE_RATE;
use crate::transcript::{Word, mean_log_probability, phrases};

/// The mean log-probability of a phrase below which it is heard again. With what comes before them, such phrases are 1 % of
/// clean speech, and below -0.3 they are 4 %.
const DOUBTFUL: f32 = -0.4;
/// The same of the least sure words of a phrase, so many in a row. In clean speech this adds nothing; in babble there are
/// as many such phrases again.
const DOUBTFUL_RUN: f32 = -0.8;
const RUN_WORDS: usize = 4;
/// The least number of words that their confidences expect to be wrong. However short, what is heard again costs as much as
/// 10 s of audio: in read speech that `base` finds hard, phrases with fewer, most of them two or three words, were a
/// fifth of all windows and changed nothing for the better.
const WRONG_WORDS: f32 = 2.0;
/// How much surer the model must be of what it hears then, as a mean log-probability, and how many of the words there must
/// be at least: silence is surer than words. Of few words it must be surer.
const SURER: f32 = 0.1;
const SURER_OF_RUN: f32 = 0.15;
const KEPT_WORDS: f32 = 0.6;
/// Silence that is kept before and after a phrase.
const AROUND_SAMPLES: usize = SAMPLE_RATE as usize * 2 / 5;
/// After a longer silence the phrase before is no context: 2 s.
const NEAR_SAMPLES: usize = 2 * SAMPLE_RATE as usize;
/// The longest audio that is heard again: 12 s. Of a longer phrase, the runs of doubtful words are.
const AUDIO_SAMPLES: usize = 12 * SAMPLE_RATE as usize;
/// The widest gap among so many words beside a run is where it is replaced, ...
const GAP_WORDS: usize = 3;
/// ... and that among the words which begin so many seconds before is where its audio begins. After so many it ends.
const CONTEXT_SECONDS: std::ops::RangeInclusive<f64> = 2.0..=6.0;
/// A run with less before it in its phrase, 1.5 s, is heard with so much of the phrase before: 3 s.
const LITTLE_SAMPLES: usize = SAMPLE_RATE as usize * 3 / 2;
const BEFORE_SAMPLES: usize = 3 * SAMPLE_RATE as usize;

/// Words that are to be heard again, in samples of the file or stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Doubtful {
    /// They and the silence around them.
    pub place: Range<usize>,
    /// They with what comes before them.
    pub audio: Range<usize>,
    words: usize,
    log_probability: f32,
    surer: f32,
}

impl Doubtful {
    /// Whether hearing them again in an audio of their own can tell more than the window did that they are from, of so
    /// many samples: nearly the same audio again would tell nearly the same.
    pub fn differs_from(&self, window: usize) -> bool {
        self.audio.len() < window / 10 * 9
    }

    /// Whether the model is surer of `words`, which it heard in their place the second time.
    pub fn gives_way_to(&self, words: &[&Word]) -> bool {
        let mean = mean_log_probability(words.iter().copied());
        mean >= self.log_probability + self.surer && words.len() as f32 >= KEPT_WORDS * self.words as f32
    }
}

/// The phrases among `words` of whose words the model is unsure. The phrase before each goes with it, if it is near.
/// `available`: the samples of the audio that is there.
pub fn doubtful_phrases(words: &[Word], available: Range<usize>) -> Vec<Doubtful> {
    let found = places(words, available).into_iter().filter_map(|phrase| {
        let spoken = &words[phrase.words.clone()];
        let log_probability = mean_log_probability(spoken);
        let is_doubtful = log_probability < DOUBTFUL || !runs(spoken).is_empty();
        let is_worth_it = is_doubtful && wrong_words(spoken) >= WRONG_WORDS;
        let doubtful = Doubtful {
            place: phrase.place,
            audio: phrase.audio,
            words: spoken.len(),
            log_probability,
            surer: SURER,
        };
        is_worth_it.then_some(doubtful)
    });
    found.filter(is_audible).collect()
}

/// The runs of words of which the model is unsure. Each is heard from a few seconds before it to the end of its phrase.
pub fn doubtful_runs(words: &[Word], available: Range<usize>) -> Vec<Doubtful> {
    let places = places(words, available);
    let found = places.iter().flat_map(|phrase| {
        let spoken = &words[phrase.words.clone()];
        let gap = |at: usize| match (at.checked_sub(1).and_then(|before| spoken.get(before)), spoken.get(at))
        {
            (Some(before), Some(after)) => after.start - before.end,
            _ => f64::INFINITY,
        };
        let widest =
            |places: &mut dyn Iterator<Item = usize>| places.max_by(|a, b| gap(*a).total_cmp(&gap(*b)));
        let mut taken = 0;
        let mut doubtful = Vec::new();
        for run in runs(spoken) {
            let first = widest(&mut (run.start.saturating_sub(GAP_WORDS)..=run.start)).unwrap_or(run.start);
            let after = (run.end + GAP_WORDS).min(spoken.len());
            let last = widest(&mut (run.end..=after).rev()).unwrap_or(run.end);
            if first < taken {
                continue;
            }
            taken = last;
            let middle = |at: usize| phrase.sample(spoken[at - 1].end.midpoint(spoken[at].start));
            let start = if first > 0 { middle(first) } else { phrase.place.start };
            let end = if last < spoken.len() { middle(last) } else { phrase.place.end };
            let before = |at: &usize| CONTEXT_SECONDS.contains(&(spoken[first].start - spoken[*at].start));
            let begin = widest(&mut (0..first).filter(before)).unwrap_or(0);
            let audio_start = match begin {
                0 if start - phrase.place.start.min(start) < LITTLE_SAMPLES => {
                    phrase.audio.start.max(phrase.place.start.saturating_sub(BEFORE_SAMPLES))
                }
                0 => phrase.place.start,
                _ => phrase.sample(spoken[begin].start).saturating_sub(AROUND_SAMPLES / 2).max(middle(begin)),
            };
            let after = |at: &usize| CONTEXT_SECONDS.contains(&(spoken[*at].start - spoken[last - 1].end));
            let audio_end = widest(&mut (last..spoken.len()).filter(after)).map_or(phrase.place.end, middle);
            let replaced = &spoken[first..last];
            if wrong_words(replaced) < WRONG_WORDS {
                continue;
            }
            doubtful.push(Doubtful {
                place: start..end.max(start),
                audio: audio_start.min(start)..audio_end.max(end).max(start),
                words: replaced.len(),
                log_probability: mean_log_probability(replaced),
                surer: SURER_OF_RUN,
            });
        }
        doubtful
    });
    found.filter(is_audible).collect()
}

/// How many of `words` are wrong if their confidences are right.
fn wrong_words(words: &[Word]) -> f32 {
    words.iter().map(|word| 1.0 - word.probability).sum()
}

fn is_audible(doubtful: &Doubtful) -> bool {
    doubtful.audio.len() <= AUDIO_SAMPLES && !doubtful.place.is_empty()
}

/// The indices of words in a row of which the model is unsure.
fn runs(words: &[Word]) -> Vec<Range<usize>> {
    let length = RUN_WORDS.min(words.len()).max(1);
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, window) in words.windows(length).enumerate() {
        if mean_log_probability(window) >= DOUBTFUL_RUN {
            continue;
        }
        match runs.last_mut() {
            Some(last) if index <= last.end + GAP_WORDS => last.end = index + length,
            _ => runs.push(index..index + length),
        }
    }
    runs
}

/// A phrase in the audio.
struct Place {
    words: Range<usize>,
    /// It and the silence around it.
    place: Range<usize>,
    /// It with the phrase before it, if that is near.
    audio: Range<usize>,
    available: Range<usize>,
}

impl Place {
    fn sample(&self, seconds: f64) -> usize {
        sample(seconds, &self.available)
    }
}

fn sample(seconds: f64, available: &Range<usize>) -> usize {
    let sample = (seconds * f64::from(SAMPLE_RATE)).max(0.0) as usize;
    sample.min(available.end).max(available.start)
}

fn places(words: &[Word], available: Range<usize>) -> Vec<Place> {
    let sample = |seconds: f64| sample(seconds, &available);
    let phrases = phrases(words);
    let place = |index: usize| {
        let range = phrases[index].clone();
        let spoken = &words[range.clone()];
        let (start, end) = (sample(spoken.first()?.start), sample(spoken.last()?.end));
        let before = index.checked_sub(1).map(|before| &phrases[before]);
        let last_end = before.map_or(available.start, |before| sample(words[before.end - 1].end));
        let next_start = words.get(range.end).map_or(available.end, |next| sample(next.start));
        let place = last_end.max(start.saturating_sub(AROUND_SAMPLES))..next_start.min(end + AROUND_SAMPLES);
        let near = before.filter(|_| start.saturating_sub(last_end) <= NEAR_SAMPLES);
        let context = near.map_or(place.start, |before| {
            sample(words[before.start].start).saturating_sub(AROUND_SAMPLES / 2).max(available.start)
        });
        let audio = context.max(place.end.saturating_sub(AUDIO_SAMPLES)).min(place.start)..place.end;
        Some(Place { words: range, place, audio, available: available.clone() })
    };
    (0..phrases.len()).filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: usize = SAMPLE_RATE as usize;

    fn word(start: f64, end: f64, probability: f32) -> Word {
        Word { text: " a".into(), start, end, probability, speaker: None }
    }

    #[test]
    fn a_doubtful_phrase_is_heard_with_the_one_before_it() {
        let words = [
            word(2.0, 3.0, 0.9),
            word(4.0, 4.5, 0.3),
            word(4.5, 4.8, 0.3),
            word(4.8, 5.0, 0.3),
            word(8.0, 9.0, 0.9),
        ];
        let found = doubtful_phrases(&words, 0..20 * SECOND);
        assert_eq!(found.len(), 1, "{found:?}");
        let Doubtful { place, audio, words: count, .. } = &found[0];
        assert_eq!((place, *count), (&(4 * SECOND - AROUND_SAMPLES..5 * SECOND + AROUND_SAMPLES), 3));
        assert_eq!(*audio, 2 * SECOND - AROUND_SAMPLES / 2..place.end);
        assert_eq!(doubtful_phrases(&[], 0..0), []);
        let apart = [word(2.0, 3.0, 0.9), word(8.0, 8.2, 0.3), word(8.2, 8.4, 0.3), word(8.4, 9.0, 0.3)];
        let found = doubtful_phrases(&apart, 0..20 * SECOND);
        assert_eq!(found[0].audio, found[0].place, "after a long silence");
        assert_eq!(doubtful_phrases(&apart[..3], 0..20 * SECOND), [], "too few words to be worth it");
    }

    /// So many words of the same length.
    fn doubted(seconds: std::ops::Range<f64>, count: u32) -> Vec<Word> {
        let length = (seconds.end - seconds.start) / f64::from(count);
        let start = |n: u32| seconds.start + f64::from(n) * length;
        (0..count).map(|n| word(start(n), start(n + 1), 0.3)).collect()
    }

    #[test]
    fn the_audio_of_a_phrase_is_there_and_bounded() {
        let first = doubtful_phrases(&doubted(0.1..0.9, 3), 0..SECOND);
        assert_eq!((first[0].place.clone(), first[0].audio.clone()), (0..SECOND, 0..SECOND));
        let words = [vec![word(0.0, 10.0, 0.9)], doubted(11.0..20.0, 20)].concat();
        let second = doubtful_phrases(&words, 0..40 * SECOND);
        assert_eq!(second[0].audio.len(), AUDIO_SAMPLES, "{second:?}");
        let later = doubtful_phrases(&words, 10 * SECOND..40 * SECOND);
        assert_eq!(later[0].audio.start, 10 * SECOND, "no more than there is: {later:?}");
        let long = doubted(0.0..13.0, 30);
        assert_eq!(doubtful_phrases(&long, 0..60 * SECOND), [], "too long");
    }

    #[test]
    fn a_run_in_a_long_phrase_is_heard_with_some_seconds_on_each_side() {
        let mut words = doubted(0.0..20.0, 50);
        for word in words.iter_mut().enumerate().filter(|(n, _)| !(20..26).contains(n)).map(|(_, word)| word)
        {
            word.probability = 0.95;
        }
        let found = doubtful_runs(&words, 0..60 * SECOND);
        assert_eq!(found.len(), 1, "{found:?}");
        let Doubtful { place, audio, .. } = &found[0];
        assert!(place.start - audio.start >= 2 * SECOND && audio.end - place.end >= SECOND, "{found:?}");
        assert!(audio.len() <= AUDIO_SAMPLES && audio.end < 20 * SECOND, "{found:?}");
    }

    #[test]
    fn what_is_surer_and_not_much_shorter_is_believed() {
        let said = [0.4, 0.5, 0.4, 0.5].map(|probability| word(1.0, 2.0, probability));
        let phrase = &doubtful_phrases(&said, 0..4 * SECOND)[0];
        let surer = [word(1.0, 1.5, 0.8), word(1.5, 2.0, 0.7)];
        assert!(phrase.gives_way_to(&[&surer[0], &surer[1], &surer[1]]));
        assert!(!phrase.gives_way_to(&[&surer[0], &surer[1]]), "half of the words");
        assert!(!phrase.gives_way_to(&[]));
        let as_sure = word(1.0, 1.5, 0.45);
        assert!(!phrase.gives_way_to(&[&as_sure, &as_sure, &as_sure]));
        assert!(phrase.differs_from(4 * SECOND) && !phrase.differs_from(SECOND));
    }

    /// A phrase from second 10 on of 24 words, 0.4 s each, the sixth to last of which are doubted; a pause after the 16th.
    fn long_phrase() -> Vec<Word> {
        let mut words = vec![word(8.0, 9.0, 0.9)];
        words.extend((0..24).map(|n| {
            let start = 10.0 + f64::from(n) * 0.4;
            word(
                start,
                start + if n == 15 { 0.25 } else { 0.4 },
                if (18..22).contains(&n) { 0.3 } else { 0.95 },
            )
        }));
        words
    }

    #[test]
    fn a_run_of_doubtful_words_is_heard_with_some_seconds_before_it() {
        let words = long_phrase();
        let phrase = &doubtful_phrases(&words, 0..40 * SECOND)[0];
        assert_eq!(phrase.words, 24, "the phrase is in doubt for their sake");
        let found = doubtful_runs(&words, 0..40 * SECOND);
        assert_eq!(found.len(), 1, "{found:?}");
        let run = &found[0];
        let seconds = |sample: usize| sample as f64 / SECOND as f64;
        // Replaced from the pause on; the audio goes to the end of the phrase.
        assert!((16.2..16.45).contains(&seconds(run.place.start)), "{run:?}");
        assert!((18.7..20.1).contains(&seconds(run.place.end)), "{run:?}");
        assert!((2.0..6.5).contains(&(seconds(run.place.start) - seconds(run.audio.start))), "{run:?}");
        assert_eq!(run.audio.end, phrase.place.end);
        let one = word(17.3, 17.5, 0.2);
        let mut words = words;
        words[19] = one;
        for word in &mut words[20..23] {
            word.probability = 0.95;
        }
        assert_eq!(doubtful_runs(&words, 0..40 * SECOND), [], "one word among sure ones");
    }

    #[test]
    fn a_run_at_the_start_of_its_phrase_is_heard_with_some_of_the_phrase_before() {
        let words = [word(2.0, 7.0, 0.9), word(8.0, 8.4, 0.3), word(8.4, 8.8, 0.3), word(8.8, 9.0, 0.3)];
        let found = doubtful_runs(&words, 0..20 * SECOND);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].audio.start, found[0].place.start - BEFORE_SAMPLES);
        assert_eq!(doubtful_runs(&[], 0..0), []);
    }

    proptest::proptest! {
        #[test]
        fn a_place_holds_its_words_and_no_others(
            said in proptest::collection::vec((0.0f64..0.9, 0.05f64..0.6, 0.05f32..1.0), 0..60), silence in 0usize..50_000,
        ) {
            let mut at = 0.0;
            let words: Vec<Word> = said.iter().map(|(gap, length, probability)| {
                let start = at + gap;
                at = start + length;
                word(start, at, *probability)
            }).collect();
            let samples = (at * SECOND as f64) as usize + silence;
            for found in [doubtful_phrases(&words, 0..samples), doubtful_runs(&words, 0..samples)] {
                for Doubtful { place, audio, words: count, .. } in &found {
                    proptest::prop_assert!(audio.start <= place.start && place.end <= audio.end && audio.end <= samples);
                    let middles = words.iter().map(|word| (word.start.midpoint(word.end) * SECOND as f64) as usize);
                    proptest::prop_assert_eq!(middles.filter(|middle| place.contains(middle)).count(), *count);
                }
            }
        }
    }
}
