//! Transcription of one channel whose text is handed over window by window, while later windows are recognised.
//!
//! The windows are those of [`Transcriber::transcribe_all`], recognised side by side in the same way. What was handed over
//! is never changed, so a language is settled with the windows up to the next one, not with all of them: where languages
//! change, the text may differ from that of the whole file.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tokio::sync::Semaphore;

use super::languages::{self, Heard};
use super::spans::{Plan, Speech};
use super::times::place_words;
use super::{Channel, TranscribeOptions, Transcriber, WINDOWS_PER_SLOT, Work, seconds, unknown_language};
use crate::audio::Sound;
use crate::engine::{AudioPermit, Error, LanguageChoice};
use crate::telemetry::metrics;
use crate::transcript::{DetectedLanguage, Segment, Transcript};

/// Windows in the engine at first. Each that is handed over makes room for one more: windows of one batch are ready at the
/// same time, and the first text should not wait for so many.
const FIRST_WINDOWS: usize = 2;

/// The segments handed over so far.
struct Delivery<'a> {
    deliver: &'a mut (dyn FnMut(&[Segment]) + Send),
    /// Gets a permit more with each window, until none is `left`.
    room: &'a Semaphore,
    left: usize,
    segments: Vec<Segment>,
    /// The end of the last word.
    end: f64,
}

impl Delivery<'_> {
    /// Hands over the `segments` of a window, with times that go on from those before.
    fn add(&mut self, mut segments: Vec<Segment>) {
        if self.left > 0 {
            self.left -= 1;
            self.room.add_permits(1);
        }
        for word in segments.iter_mut().flat_map(|segment| &mut segment.words) {
            word.start = word.start.max(self.end);
            word.end = word.end.max(word.start);
            self.end = word.end;
        }
        if !segments.is_empty() {
            (self.deliver)(&segments);
            self.segments.extend(segments);
        }
    }
}

impl Transcriber {
    /// As [`Self::transcribe_all`], for one channel; `deliver` gets the segments of each window as soon as those of all
    /// windows before it are known. The transcript has the same segments. Dropping the future ends all work.
    ///
    /// # Errors
    /// Those of [`Self::transcribe_all`]; what was delivered until then stands.
    pub async fn transcribe_streamed(
        &self,
        sound: &Sound,
        admission: &AudioPermit,
        options: &TranscribeOptions,
        deliver: &mut (dyn FnMut(&[Segment]) + Send),
    ) -> Result<Transcript, Error> {
        let windows = (WINDOWS_PER_SLOT * self.model().slots.max(1)).min(Semaphore::MAX_PERMITS);
        let first = FIRST_WINDOWS.min(windows);
        let work = Work { options, admission, room: Semaphore::new(first) };
        let mut delivery =
            Delivery { deliver, room: &work.room, left: windows - first, segments: Vec::new(), end: 0.0 };
        let transcript = match &self.speech {
            Some(speech) => self.windows_in_turn(speech, sound, &work, &mut delivery).await?,
            None => self.sequels_in_turn(sound, &work, &mut delivery).await?,
        };
        admission.done(f64::INFINITY);
        Ok(transcript)
    }

    async fn sequels_in_turn(
        &self,
        sound: &Sound,
        work: &Work<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Result<Transcript, Error> {
        let (mut language, mut start) = (None::<DetectedLanguage>, 0);
        while start < sound.len() {
            let (found, consumed) = self.sequel(sound, start, &mut language, work).await?;
            delivery.add(found);
            start += consumed;
        }
        let (language, duration) = (language.unwrap_or_else(unknown_language), sound.duration_seconds());
        let segments = std::mem::take(&mut delivery.segments);
        Ok(Transcript { segments, language, languages: Vec::new(), duration, voice_without_words: 0.0 })
    }

    async fn windows_in_turn(
        &self,
        speech: &Arc<Speech>,
        sound: &Sound,
        work: &Work<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Result<Transcript, Error> {
        let plan = speech.plan(sound, work.options, work.admission.memory()).await?;
        work.admission.cut(plan.windows.iter().map(|window| seconds(window.samples())));
        let channel = Channel { sound, probabilities: &plan.probabilities };
        let heard = match &work.options.language {
            named @ LanguageChoice::Named(_) => {
                let mut windows: FuturesOrdered<_> =
                    plan.windows.iter().map(|window| self.first(window, channel, named, work)).collect();
                let mut heard = Vec::with_capacity(plan.windows.len());
                while let Some(window) = windows.next().await {
                    heard.push(handed_over(window?, &plan, delivery));
                }
                heard
            }
            LanguageChoice::Detect { among, .. } => {
                self.detecting_in_turn(&plan, channel, among, work, delivery).await?
            }
        };
        let language = languages::main(&heard).unwrap_or_else(|| match &work.options.language {
            LanguageChoice::Named(code) => DetectedLanguage { code: code.clone(), probability: 1.0 },
            LanguageChoice::Detect { .. } => unknown_language(),
        });
        let languages = languages::changes(&heard);
        let voice_without_words = heard.iter().map(|heard| heard.voice_without_words).sum();
        metrics::VOICE_WITHOUT_WORDS.with(&[]).record(voice_without_words);
        let (segments, duration) = (std::mem::take(&mut delivery.segments), sound.duration_seconds());
        Ok(Transcript { segments, language, languages, duration, voice_without_words })
    }

    /// Windows whose language is not known: each is handed over once its neighbours' languages are known too.
    async fn detecting_in_turn(
        &self,
        plan: &Plan,
        channel: Channel<'_>,
        among: &[String],
        work: &Work<'_>,
        delivery: &mut Delivery<'_>,
    ) -> Result<Vec<Heard>, Error> {
        let Some((first, others)) = plan.windows.split_first() else { return Ok(Vec::new()) };
        let detect = |expected| LanguageChoice::Detect { among: among.to_vec(), expected };
        let first = self.first(first, channel, &detect(None), work).await?;
        let choice = detect(languages::expected(&first));
        let mut windows: FuturesOrdered<_> =
            others.iter().map(|window| self.first(window, channel, &choice, work)).collect();
        // A room of its own: windows that wait for nothing but to be asked may hold all permits of the other one.
        let revision =
            Work { options: work.options, admission: work.admission, room: Semaphore::new(FIRST_WINDOWS) };
        // Those of `heard` before `settled` were handed over.
        let (mut heard, mut delivered) = (vec![first], Vec::new());
        let mut settled = 0;
        while settled < heard.len() {
            if let Some(window) = windows.next().await {
                let mut window = window?;
                if let Some(main) = languages::main(&heard)
                    && languages::is_misheard(&window, &main)
                {
                    window = self.again(&window.plan, main, channel, &revision).await?;
                }
                heard.push(window);
            }
            let may_change = languages::may_change(&heard).get(settled).copied().unwrap_or_default();
            let window = heard[settled].clone();
            let parts = match may_change {
                true => self.by_language(window, channel, among, &revision).await?,
                false => vec![window],
            };
            delivered.extend(parts.into_iter().map(|part| handed_over(part, plan, delivery)));
            settled += 1;
        }
        Ok(delivered)
    }
}

/// `heard`, after its segments were handed over with their words where their voice is.
fn handed_over(heard: Heard, plan: &Plan, delivery: &mut Delivery<'_>) -> Heard {
    let mut segments = heard.segments.clone();
    place_words(&mut segments, &plan.levels);
    delivery.add(segments);
    heard
}
