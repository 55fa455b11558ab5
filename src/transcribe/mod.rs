//! Transcription of whole audio: cut into windows, recognise them, stitch the results.
#![doc = include_str!("README.md")]

mod chunk;
mod coverage;
mod languages;
mod listening;
mod options;
mod spans;
mod speakers;
mod streamed;
mod times;
mod window_plan;

pub use chunk::{Policy, plan_windows};
pub use options::{Config, TranscribeOptions, Windows};
pub use window_plan::{Piece, WindowPlan};

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::sync::Semaphore;

use self::languages::Heard;
use self::spans::{Plan, Speech};
use self::times::{in_file, place_words, shifted};
use crate::audio::{Pcm, SAMPLE_RATE, Sound};
use crate::engine::{
    Audio, AudioPermit, Class, DecodingOptions, Engine, Error, LanguageChoice, ModelInfo, Task,
    WINDOW_SAMPLES, Window,
};
use crate::telemetry::metrics;
use crate::transcript::{DetectedLanguage, Segment, Transcript, Word, in_order};
use crate::vad::{FRAME_SAMPLES, SURE_SPEECH, Vad, VadOptions, is_in_pieces};

/// Windows of one request in the engine at once, for each of its slots: enough to keep all slots busy while the
/// next windows are made, and the most that take up memory.
const WINDOWS_PER_SLOT: usize = 2;

/// A window with fewer frames of sure speech may hold no speech at all.
const SURE_FRAMES_MIN: usize = 3;

/// Cheap handle: clones share the engine.
#[derive(Clone)]
pub struct Transcriber {
    engine: Engine,
    /// `None`: sequential windows.
    speech: Option<Arc<Speech>>,
}

/// The state that all windows of one request share.
struct Work<'a> {
    options: &'a TranscribeOptions,
    admission: &'a AudioPermit,
    /// Every window in the engine holds a permit.
    room: Semaphore,
}

/// The audio of one channel, and the probability of speech in each of its frames.
#[derive(Clone, Copy)]
struct Channel<'a> {
    sound: &'a Sound,
    probabilities: &'a [f32],
}

impl Transcriber {
    /// Transcribes in sequential windows.
    pub fn new(engine: Engine) -> Self {
        Self { engine, speech: None }
    }

    /// Transcribes windows of the speech that `vad` finds.
    pub fn with_vad(engine: Engine, vad: Vad, options: VadOptions) -> Self {
        Self { engine, speech: Some(Arc::new(Speech::new(vad, options))) }
    }

    /// The same for the engine of another model.
    pub fn with_engine(&self, engine: Engine) -> Self {
        Self { engine, speech: self.speech.clone() }
    }

    pub fn model(&self) -> &ModelInfo {
        self.engine.model()
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The detector of speech; `None` if windows are sequential.
    pub fn vad(&self) -> Option<&Vad> {
        self.speech.as_ref().map(|speech| &speech.vad)
    }

    /// Admits so much audio, all channels counted. A job waits for it.
    ///
    /// # Errors
    /// Those of [`Engine::admit`].
    pub async fn admit(
        &self,
        audio: impl Into<Audio>,
        options: &TranscribeOptions,
    ) -> Result<AudioPermit, Error> {
        match options.class {
            Class::Live | Class::Interactive => self.engine.admit(options.tenant, audio),
            Class::Job => Ok(self.engine.admit_job(options.tenant, audio).await),
        }
    }

    /// Transcribes one channel.
    ///
    /// # Errors
    /// Those of [`Engine::admit`] and [`Engine::recognize`]. There are no partial results.
    pub async fn transcribe(
        &self,
        sound: impl Into<Sound>,
        options: &TranscribeOptions,
    ) -> Result<Transcript, Error> {
        let sound = sound.into();
        let admission = self.admit(sound.duration_seconds(), options).await?;
        let transcripts = self.transcribe_all(vec![sound], admission, options).await?;
        let no_transcript = || Error::ModelFailed("a channel without a transcript".into());
        transcripts.into_iter().next().ok_or_else(no_transcript)
    }

    /// Transcribes all channels of a file under one admission, and returns their transcripts in order. Only the
    /// windows in the engine are copied to `f32`. Dropping the future ends all work.
    ///
    /// # Errors
    /// Those of [`Engine::recognize`]. There are no partial results.
    pub async fn transcribe_all(
        &self,
        channels: Vec<Sound>,
        admission: AudioPermit,
        options: &TranscribeOptions,
    ) -> Result<Vec<Transcript>, Error> {
        // Dropped before the admission, in which its memory is counted.
        let channels: Arc<[Sound]> = channels.into();
        self.recognise(&channels, &admission, options).await
    }

    async fn recognise(
        &self,
        channels: &[Sound],
        admission: &AudioPermit,
        options: &TranscribeOptions,
    ) -> Result<Vec<Transcript>, Error> {
        let windows = WINDOWS_PER_SLOT * self.model().slots.max(1);
        let room = Semaphore::new(windows.min(Semaphore::MAX_PERMITS));
        let work = Work { options, admission, room };
        let transcripts = match &self.speech {
            Some(speech) => self.parallel(speech, channels, &work).await,
            None => try_join_all(channels.iter().map(|sound| self.sequential(sound, &work))).await,
        }?;
        // Rounding, and rests of windows that hold no speech.
        admission.done(f64::INFINITY);
        Ok(transcripts)
    }

    /// Windows of speech, in parallel.
    async fn parallel(
        &self,
        speech: &Arc<Speech>,
        channels: &[Sound],
        work: &Work<'_>,
    ) -> Result<Vec<Transcript>, Error> {
        let mut plans = Vec::with_capacity(channels.len());
        // One after the other, so that a file of many channels occupies no more processors than one of a single one.
        for sound in channels {
            plans.push(speech.plan(sound, work.options, work.admission.memory()).await?);
        }
        // From here on, silence no longer counts as admitted audio.
        let windows = plans.iter().flat_map(|plan| &plan.windows);
        work.admission.cut(windows.map(|window| seconds(window.samples())));
        let planned = channels.iter().zip(&plans);
        try_join_all(planned.map(|(sound, plan)| self.side_by_side(sound, plan, work))).await
    }

    /// The planned windows of one channel.
    async fn side_by_side(&self, sound: &Sound, plan: &Plan, work: &Work<'_>) -> Result<Transcript, Error> {
        let duration = sound.duration_seconds();
        let channel = Channel { sound, probabilities: &plan.probabilities };
        let heard = match &work.options.language {
            named @ LanguageChoice::Named(_) => {
                let windows = plan.windows.iter();
                try_join_all(windows.map(|window| self.first(window, channel, named, work))).await?
            }
            LanguageChoice::Detect { among, .. } => {
                self.detecting(&plan.windows, channel, among, work).await?
            }
        };
        let faint = self.listen_by_level(plan, channel, &heard, work).await?;
        let said = if heard.iter().any(Heard::has_words) { &heard } else { &faint };
        let language = languages::main(said).unwrap_or_else(|| match &work.options.language {
            LanguageChoice::Named(code) => DetectedLanguage { code: code.clone(), probability: 1.0 },
            LanguageChoice::Detect { .. } => unknown_language(),
        });
        let languages = languages::changes(said);
        let voice_without_words = heard.iter().map(|heard| heard.voice_without_words).sum();
        let mut segments: Vec<Segment> = heard.into_iter().flat_map(|heard| heard.segments).collect();
        for faint in faint {
            let places = faint.plan.pieces().iter().map(|piece| piece.file.clone());
            places.for_each(|place| coverage::remove(&mut segments, &place));
            coverage::put(&mut segments, faint.segments);
        }
        place_words(&mut segments, &plan.levels);
        metrics::VOICE_WITHOUT_WORDS.with(&[]).record(voice_without_words);
        Ok(Transcript { segments, language, languages, duration, voice_without_words })
    }

    /// Windows whose language is not known: see [`languages`].
    async fn detecting(
        &self,
        windows: &[WindowPlan],
        channel: Channel<'_>,
        among: &[String],
        work: &Work<'_>,
    ) -> Result<Vec<Heard>, Error> {
        let Some((first, others)) = windows.split_first() else { return Ok(Vec::new()) };
        let detect = |expected| LanguageChoice::Detect { among: among.to_vec(), expected };
        let first = self.first(first, channel, &detect(None), work).await?;
        let choice = detect(languages::expected(&first));
        let others = others.iter().map(|window| self.first(window, channel, &choice, work));
        let mut heard = vec![first];
        heard.extend(try_join_all(others).await?);
        if let Some(main) = languages::main(&heard) {
            let again = heard.iter_mut().filter(|window| languages::is_misheard(window, &main));
            let again = again.map(|window| async {
                *window = self.again(&window.plan, main.clone(), channel, work).await?;
                Ok::<_, Error>(())
            });
            try_join_all(again).await?;
        }
        let may_change = languages::may_change(&heard);
        let settled = heard.into_iter().zip(may_change).map(|(window, may_change)| async move {
            if may_change { self.by_language(window, channel, among, work).await } else { Ok(vec![window]) }
        });
        Ok(try_join_all(settled).await?.into_iter().flatten().collect())
    }

    /// A window that may hold several languages, divided where they change.
    async fn by_language(
        &self,
        window: Heard,
        channel: Channel<'_>,
        among: &[String],
        work: &Work<'_>,
    ) -> Result<Vec<Heard>, Error> {
        let parts = window.plan.parts(channel.probabilities);
        if parts.len() < 2 {
            return Ok(vec![window]);
        }
        let choice = LanguageChoice::Detect { among: among.to_vec(), expected: None };
        let found =
            try_join_all(parts.iter().map(|part| self.language(part, channel, &choice, work))).await?;
        let stretches = languages::stretches(parts, &found, &window.language);
        if stretches.iter().all(|(language, _)| language.code == window.language.code) {
            // More context is better where nothing changes.
            return Ok(vec![window]);
        }
        let heard = stretches
            .into_iter()
            .map(|(language, plan)| async move { self.again(&plan, language, channel, work).await });
        try_join_all(heard).await
    }

    /// The language of `part`, by one attempt at it.
    async fn language(
        &self,
        part: &WindowPlan,
        channel: Channel<'_>,
        choice: &LanguageChoice,
        work: &Work<'_>,
    ) -> Result<DetectedLanguage, Error> {
        let _place = work.room.acquire().await.ok();
        let mut window = self.window(part.pcm(channel.sound), work.options, choice, None);
        window.options.temperatures.truncate(1);
        window.options.word_times = false;
        Ok(self.engine.recognize(work.admission, window).await?.language)
    }

    /// A window that was not recognised before.
    async fn first(
        &self,
        plan: &WindowPlan,
        channel: Channel<'_>,
        choice: &LanguageChoice,
        work: &Work<'_>,
    ) -> Result<Heard, Error> {
        let heard = self.planned(plan, channel, choice, work).await?;
        work.admission.done(seconds(plan.samples()));
        Ok(heard)
    }

    /// Audio that was recognised before, in a `language` that was detected since.
    async fn again(
        &self,
        plan: &WindowPlan,
        language: DetectedLanguage,
        channel: Channel<'_>,
        work: &Work<'_>,
    ) -> Result<Heard, Error> {
        let choice = LanguageChoice::Named(language.code.clone());
        Ok(Heard { language, ..self.planned(plan, channel, &choice, work).await? })
    }

    /// One planned window, and the rests that decoding leaves of it, until all of its speech is accounted for.
    /// Windows get their permits in the order in which they first ask.
    async fn planned(
        &self,
        whole: &WindowPlan,
        channel: Channel<'_>,
        choice: &LanguageChoice,
        work: &Work<'_>,
    ) -> Result<Heard, Error> {
        // The semaphore is never closed; if it were, the only harm would be a window too many.
        let _place = work.room.acquire().await.ok();
        let mut language = None::<DetectedLanguage>;
        let mut segments = Vec::new();
        let mut next = Some(whole.clone());
        while let Some(plan) = next {
            let window = self.window(plan.pcm(channel.sound), work.options, choice, language.as_ref());
            let options = window.options.clone();
            let mut recognition = self.engine.recognize(work.admission, window).await?;
            let is_doubtful = sure_frames(&plan, channel.probabilities) < SURE_FRAMES_MIN;
            if is_doubtful && !recognition.is_certain(&options) {
                recognition.segments.clear();
            }
            let sure_frames_after =
                |sample| plan.after(sample).map_or(0, |rest| sure_frames(&rest, channel.probabilities));
            let rest = recognition.rest(plan.samples(), sure_frames_after);
            language.get_or_insert(recognition.language);
            let of_file = |segment| in_file(segment, &plan, channel.probabilities);
            segments.extend(recognition.segments.into_iter().map(of_file));
            next = rest.and_then(|sample| plan.after(sample));
        }
        let language = language.unwrap_or_else(unknown_language);
        if work.options.task == Task::Transcribe {
            self.listen_again(whole, channel, &language, &mut segments, work).await?;
            self.hear_doubtful(whole, channel, &language, &mut segments, work).await?;
        }
        let words: Vec<Word> = segments.iter().flat_map(|segment| &segment.words).cloned().collect();
        let voice_without_words =
            coverage::seconds_without_words(whole.pieces(), channel.probabilities, &words);
        let in_pieces = is_in_pieces(sure_frames(whole, channel.probabilities), whole.samples());
        Ok(Heard { plan: whole.clone(), language, segments, voice_without_words, in_pieces })
    }

    /// As the reference does: each window begins where the text of the one before it ended.
    async fn sequential(&self, sound: &Sound, work: &Work<'_>) -> Result<Transcript, Error> {
        let mut language = None::<DetectedLanguage>;
        let mut segments = Vec::new();
        let mut start = 0;
        while start < sound.len() {
            let (found, consumed) = self.sequel(sound, start, &mut language, work).await?;
            segments.extend(found);
            start += consumed;
        }
        in_order(segments.iter_mut().flat_map(|segment| &mut segment.words));
        let language = language.unwrap_or_else(unknown_language);
        let duration = sound.duration_seconds();
        Ok(Transcript { segments, language, languages: Vec::new(), duration, voice_without_words: 0.0 })
    }

    /// The segments of the window that begins at sample `start`, and how many samples they account for. `language` is
    /// the one that the windows before it are in, and set by the first.
    async fn sequel(
        &self,
        sound: &Sound,
        start: usize,
        language: &mut Option<DetectedLanguage>,
        work: &Work<'_>,
    ) -> Result<(Vec<Segment>, usize), Error> {
        let pcm = sound.pcm(start..start + WINDOW_SAMPLES);
        let window = self.window(pcm, work.options, &work.options.language, language.as_ref());
        let recognition = self.engine.recognize(work.admission, window).await?;
        let consumed = recognition.advance();
        language.get_or_insert_with(|| recognition.language.clone());
        work.admission.done(seconds(consumed));
        Ok((shifted(recognition, seconds(start)).collect(), consumed))
    }

    /// `language`: as it is already known of this window.
    fn window(
        &self,
        pcm: Pcm,
        options: &TranscribeOptions,
        choice: &LanguageChoice,
        language: Option<&DetectedLanguage>,
    ) -> Window {
        let language = match language {
            Some(known) => LanguageChoice::Named(known.code.clone()),
            None => choice.clone(),
        };
        Window {
            pcm,
            options: DecodingOptions {
                language,
                task: options.task,
                prompt: options.prompt.clone(),
                bias: options.bias.clone(),
                word_times: true,
                ..DecodingOptions::default()
            }
            .from_temperature(options.temperature),
            class: options.class,
            tenant: options.tenant,
            deadline: options.deadline,
        }
    }
}

fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}

/// The language of audio without speech.
fn unknown_language() -> DetectedLanguage {
    DetectedLanguage { code: "en".into(), probability: 0.0 }
}

/// Whole frames of `rest` that are surely speech.
fn sure_frames(rest: &WindowPlan, probabilities: &[f32]) -> usize {
    let frames = rest.pieces().iter().flat_map(|piece| {
        let range = piece.file.start.div_ceil(FRAME_SAMPLES)..piece.file.end / FRAME_SAMPLES;
        probabilities.get(range).unwrap_or_default()
    });
    frames.filter(|&&probability| probability >= SURE_SPEECH).count()
}
