//! Listening again: to voice that gave no words, and to sound without voice that is as loud and uneven as speech.

use std::ops::Range;

use futures_util::future::try_join_all;

use super::languages::{self, Heard};
use super::spans::Plan;
use super::times::in_file;
use super::window_plan::WindowPlan;
use super::{Channel, Transcriber, Work, coverage};
use crate::engine::{
    CONTEXT_SAMPLES, Doubtful, Error, LISTENINGS_MAX, LanguageChoice, WINDOW_SAMPLES, doubtful_phrases,
    doubtful_runs,
};
use crate::transcript::{DetectedLanguage, Segment, Word};
use crate::vad::speech_like;

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

    /// Recognises words of which the model is unsure once more, first whole phrases, then what is left of such words in
    /// them: cut elsewhere, it hears many of them otherwise, and what it is surer of is right more often.
    pub(super) async fn hear_doubtful(
        &self,
        plan: &WindowPlan,
        channel: Channel<'_>,
        language: &DetectedLanguage,
        segments: &mut Vec<Segment>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        for find in [doubtful_phrases, doubtful_runs] {
            let words: Vec<Word> = segments.iter().flat_map(|segment| &segment.words).cloned().collect();
            let mut doubtful = find(&words, 0..channel.sound.len());
            doubtful.retain(|doubtful| doubtful.differs_from(plan.samples()));
            let heard = doubtful.iter().map(|doubtful| self.surer(doubtful, channel, language, work));
            for (doubtful, found) in doubtful.iter().zip(try_join_all(heard).await?) {
                if let Some(found) = found {
                    coverage::remove(segments, &doubtful.place);
                    coverage::put(segments, found);
                }
            }
        }
        Ok(())
    }

    /// What is heard in place of the `doubtful` words now, if the model is surer of it.
    async fn surer(
        &self,
        doubtful: &Doubtful,
        Channel { sound, probabilities }: Channel<'_>,
        language: &DetectedLanguage,
        work: &Work<'_>,
    ) -> Result<Option<Vec<Segment>>, Error> {
        let plan = WindowPlan::new([doubtful.audio.clone()]);
        let mut window = self.window(plan.pcm(sound), work.options, &work.options.language, Some(language));
        window.options.temperatures.truncate(1);
        let options = window.options.clone();
        let recognition = self.engine.recognize(work.admission, window).await?;
        if recognition.needs_fallback(&options) {
            return Ok(None);
        }
        let of_file = |segment| in_file(segment, &plan, probabilities);
        let found =
            coverage::within(recognition.segments.into_iter().map(of_file).collect(), &doubtful.place);
        let words: Vec<&Word> = found.iter().flat_map(|segment| &segment.words).collect();
        Ok(doubtful.gives_way_to(&words).then_some(found))
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
