//! Listening again: to voice that gave no words, and to sound without voice that is as loud and uneven as speech.

use std::ops::Range;

use futures_util::future::try_join_all;

use super::languages::{self, Heard};
use super::spans::Plan;
use super::times::in_file;
use super::window_plan::WindowPlan;
use super::{Channel, Transcriber, Work, coverage};
use crate::audio::SAMPLE_RATE;
use crate::engine::{CONTEXT_SAMPLES, Error, LISTENINGS_MAX, LanguageChoice, WINDOW_SAMPLES};
use crate::transcript::{DetectedLanguage, Segment, Word, mean_log_probability, phrases};
use crate::vad::speech_like;

/// The mean log-probability of a phrase below which it is heard again. With what comes before them, such phrases are 1 % of
/// clean speech; below -0.3 they are 4 %, and 9 % fewer words are wrong in noise instead of 5 %.
const DOUBTFUL: f32 = -0.4;
/// How much surer the model must be of what it hears then, as a mean log-probability, and how many of the words there must
/// be at least: silence is surer than words.
const SURER: f32 = 0.1;
const KEPT_WORDS: f32 = 0.6;
/// Silence that is kept before and after a phrase.
const AROUND_SAMPLES: usize = SAMPLE_RATE as usize * 2 / 5;
/// After a longer silence the phrase before is no context: 2 s.
const NEAR_SAMPLES: usize = 2 * SAMPLE_RATE as usize;
/// The longest audio that ends with a phrase: 25 s.
const AUDIO_SAMPLES: usize = 25 * SAMPLE_RATE as usize;

/// A phrase that is to be heard again, in samples of the file.
#[derive(Debug, PartialEq)]
struct Phrase {
    /// It and the silence around it.
    place: Range<usize>,
    /// It with what comes before it.
    audio: Range<usize>,
    words: usize,
    log_probability: f32,
}

/// The phrases among `words` of whose words the model is unsure. The phrase before each goes with it, if it is near.
fn doubtful_phrases(words: &[Word], samples: usize) -> Vec<Phrase> {
    let sample = |seconds: f64| ((seconds * f64::from(SAMPLE_RATE)).max(0.0) as usize).min(samples);
    let phrases = phrases(words);
    let phrase = |index: usize| {
        let range = phrases[index].clone();
        let spoken = &words[range.clone()];
        let (start, end) = (sample(spoken.first()?.start), sample(spoken.last()?.end));
        let log_probability = mean_log_probability(spoken);
        let before = index.checked_sub(1).map(|before| &phrases[before]);
        let last_end = before.map_or(0, |before| sample(words[before.end - 1].end));
        let next_start = words.get(range.end).map_or(samples, |next| sample(next.start));
        let place = last_end.max(start.saturating_sub(AROUND_SAMPLES))..next_start.min(end + AROUND_SAMPLES);
        let near = before.filter(|_| start.saturating_sub(last_end) <= NEAR_SAMPLES);
        let context = near.map_or(place.start, |before| {
            sample(words[before.start].start).saturating_sub(AROUND_SAMPLES / 2)
        });
        let audio = context.max(place.end.saturating_sub(AUDIO_SAMPLES)).min(place.start)..place.end;
        let is_doubtful = log_probability < DOUBTFUL && audio.len() <= WINDOW_SAMPLES && !place.is_empty();
        is_doubtful.then_some(Phrase { place, audio, words: spoken.len(), log_probability })
    };
    (0..phrases.len()).filter_map(phrase).collect()
}

impl Transcriber {
    /// Recognises voice that has no words again, by itself: among other speech the model passes over sentences that
    /// are quieter, or that are said twice.
    pub(super) async fn listen_again(
        &self,
        plan: &WindowPlan,
        channel: Channel<'_>,
        language: &DetectedLanguage,
        segments: &mut Vec<Segment>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let mut tried = Vec::new();
        // A second round hears what is left of a long stretch.
        for _ in 0..LISTENINGS_MAX {
            let words: Vec<Word> = segments.iter().flat_map(|segment| &segment.words).cloned().collect();
            let mut stretches = coverage::without_words(plan.pieces(), channel.probabilities, &words);
            stretches.retain(|stretch| !tried.contains(stretch));
            if stretches.is_empty() {
                break;
            }
            let heard = stretches.iter().map(|stretch| self.heard_in(stretch, channel, language, work));
            for found in try_join_all(heard).await? {
                coverage::put(segments, found);
            }
            tried = stretches;
        }
        Ok(())
    }

    /// The words of `stretch`, if the model understands it by itself, or else among what is around it.
    async fn heard_in(
        &self,
        stretch: &Range<usize>,
        Channel { sound, probabilities }: Channel<'_>,
        language: &DetectedLanguage,
        work: &Work<'_>,
    ) -> Result<Vec<Segment>, Error> {
        let end = (stretch.end + CONTEXT_SAMPLES / 2).min(sound.len());
        let around = stretch.start.saturating_sub(CONTEXT_SAMPLES)..end;
        let audible = [stretch.clone(), around].into_iter().filter(|audio| audio.len() <= WINDOW_SAMPLES);
        for audio in audible {
            let plan = WindowPlan::new([audio]);
            let mut window =
                self.window(plan.pcm(sound), work.options, &work.options.language, Some(language));
            window.options = window.options.for_second_listening();
            let options = window.options.clone();
            let recognition = self.engine.recognize(work.admission, window).await?;
            if !recognition.is_certain(&options) {
                continue;
            }
            let of_file = |segment| in_file(segment, &plan, probabilities);
            let found = recognition.segments.into_iter().map(of_file).collect();
            let found = coverage::within(found, stretch);
            if options.accept(found.iter().flat_map(|segment| &segment.words)) {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Recognises phrases of whose words the model is unsure once more, with a little of what comes before them: cut
    /// elsewhere, it hears many of them otherwise, and what it is surer of is right more often.
    pub(super) async fn hear_doubtful_phrases(
        &self,
        plan: &WindowPlan,
        channel: Channel<'_>,
        language: &DetectedLanguage,
        segments: &mut Vec<Segment>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let words: Vec<Word> = segments.iter().flat_map(|segment| &segment.words).cloned().collect();
        let mut doubtful = doubtful_phrases(&words, channel.sound.len());
        // Nearly the same audio again would tell nearly the same.
        doubtful.retain(|phrase| phrase.audio.len() < plan.samples() / 10 * 9);
        let heard = doubtful.iter().map(|phrase| self.phrase(phrase, channel, language, work));
        for (phrase, found) in doubtful.iter().zip(try_join_all(heard).await?) {
            if let Some(found) = found {
                coverage::remove(segments, &phrase.place);
                coverage::put(segments, found);
            }
        }
        Ok(())
    }

    /// What is heard in `phrase` now, if the model is surer of it.
    async fn phrase(
        &self,
        phrase: &Phrase,
        Channel { sound, probabilities }: Channel<'_>,
        language: &DetectedLanguage,
        work: &Work<'_>,
    ) -> Result<Option<Vec<Segment>>, Error> {
        let plan = WindowPlan::new([phrase.audio.clone()]);
        let mut window = self.window(plan.pcm(sound), work.options, &work.options.language, Some(language));
        window.options.temperatures.truncate(1);
        let options = window.options.clone();
        let recognition = self.engine.recognize(work.admission, window).await?;
        if recognition.needs_fallback(&options) {
            return Ok(None);
        }
        let of_file = |segment| in_file(segment, &plan, probabilities);
        let found = coverage::within(recognition.segments.into_iter().map(of_file).collect(), &phrase.place);
        let words = || found.iter().flat_map(|segment| &segment.words);
        let is_surer = mean_log_probability(words()) >= phrase.log_probability + SURER;
        Ok((is_surer && words().count() as f32 >= KEPT_WORDS * phrase.words as f32).then_some(found))
    }

    /// Asks the model about sound in which the detector hears no voice: words stay where the model itself hears
    /// speech and is sure of them.
    pub(super) async fn listen_by_level(
        &self,
        plan: &Plan,
        channel: Channel<'_>,
        heard: &[Heard],
        work: &Work<'_>,
    ) -> Result<Vec<Heard>, Error> {
        let heard_whole = heard.iter().filter(|heard| !heard.in_pieces);
        let words = heard_whole.flat_map(|heard| &heard.segments).flat_map(|segment| &segment.words);
        let accounted: Vec<Range<f64>> = words.flat_map(Word::plausible_times).collect();
        let stretches = speech_like(&plan.levels, &accounted, WINDOW_SAMPLES);
        let choice = match (&work.options.language, languages::main(heard)) {
            (LanguageChoice::Detect { among, .. }, Some(main)) => {
                LanguageChoice::Detect { among: among.clone(), expected: Some(main.code) }
            }
            (choice, _) => choice.clone(),
        };
        let heard = stretches.into_iter().map(|stretch| self.by_level(stretch, channel, &choice, work));
        Ok(try_join_all(heard).await?.into_iter().flatten().collect())
    }

    async fn by_level(
        &self,
        stretch: Range<usize>,
        Channel { sound, probabilities }: Channel<'_>,
        choice: &LanguageChoice,
        work: &Work<'_>,
    ) -> Result<Option<Heard>, Error> {
        let _place = work.room.acquire().await.ok();
        let plan = WindowPlan::new([stretch]);
        let mut window = self.window(plan.pcm(sound), work.options, choice, None);
        window.options = window.options.for_sound_without_voice();
        let options = window.options.clone();
        let recognition = self.engine.recognize(work.admission, window).await?;
        let words = recognition.segments.iter().flat_map(|segment| &segment.words);
        if !recognition.is_certain(&options) || !options.accept(words) {
            return Ok(None);
        }
        let language = recognition.language;
        let segments = recognition.segments.into_iter();
        let segments = segments.map(|segment| in_file(segment, &plan, probabilities)).collect();
        Ok(Some(Heard { plan, language, segments, voice_without_words: 0.0, in_pieces: false }))
    }
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
        let words = [word(2.0, 3.0, 0.9), word(4.0, 4.5, 0.3), word(4.5, 5.0, 0.5), word(8.0, 9.0, 0.9)];
        let found = doubtful_phrases(&words, 20 * SECOND);
        assert_eq!(found.len(), 1, "{found:?}");
        let Phrase { place, audio, words: count, .. } = &found[0];
        assert_eq!((place, *count), (&(4 * SECOND - AROUND_SAMPLES..5 * SECOND + AROUND_SAMPLES), 2));
        assert_eq!(*audio, 2 * SECOND - AROUND_SAMPLES / 2..place.end);
        assert_eq!(doubtful_phrases(&[], 0), []);
        let apart = [word(2.0, 3.0, 0.9), word(8.0, 9.0, 0.3)];
        let found = doubtful_phrases(&apart, 20 * SECOND);
        assert_eq!(found[0].audio, found[0].place, "after a long silence");
    }

    #[test]
    fn the_audio_of_a_phrase_stays_in_the_file_and_fits_a_window() {
        let first = doubtful_phrases(&[word(0.1, 0.9, 0.1)], SECOND);
        assert_eq!((first[0].place.clone(), first[0].audio.clone()), (0..SECOND, 0..SECOND));
        let words = [word(0.0, 20.0, 0.9), word(21.0, 30.0, 0.2)];
        let second = doubtful_phrases(&words, 40 * SECOND);
        assert!(second[0].audio.len() <= AUDIO_SAMPLES, "{second:?}");
        let long = [word(0.0, 40.0, 0.1)];
        assert_eq!(doubtful_phrases(&long, 60 * SECOND), [], "longer than a window");
    }
}
