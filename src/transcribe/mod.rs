//! Whole audio to a transcript: cut into windows, recognise them, stitch the results.

mod chunk;
mod speech;
mod window_plan;

pub use chunk::{Policy, plan_windows};
pub use window_plan::{Piece, WindowPlan};

use std::sync::Arc;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use self::speech::{Plan, Speech};
use crate::audio::{Pcm, SAMPLE_RATE, Sound};
use crate::engine::{
    Audio, AudioPermit, Class, DecodingOptions, Engine, Error, LanguageChoice, ModelInfo, Recognition, Task,
    TenantId, Term, WINDOW_SAMPLES, Window,
};
use crate::patience::Deadline;
use crate::transcript::{DetectedLanguage, Segment, Transcript};
use crate::vad::{FRAME_SAMPLES, Vad, VadOptions};

/// Windows of one request that are in the engine at once, for each of its slots: all slots stay busy while
/// the next windows are made, and no more than these take up memory.
const WINDOWS_PER_SLOT: usize = 2;
/// A window of which less than this is accounted for is not tried again from so close by: the model
/// is stuck.
const MIN_ADVANCE_SAMPLES: usize = SAMPLE_RATE as usize / 10;
/// What is left of a window is tried again where so many frames of it are surely speech: 0.3 s.
const MIN_LEFT_FRAMES: usize = 10;
/// Surely speech, for that purpose.
const LEFT_PROBABILITY: f32 = 0.5;

/// How whole files are transcribed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Default `speech`.
    pub windows: Windows,
    /// What counts as speech.
    pub vad: VadOptions,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Windows {
    /// Windows of speech, cut in its pauses and recognised side by side. Silence costs nothing, and
    /// nothing is invented over it.
    #[default]
    Speech,
    /// The reference's way, for comparison: 30 s after 30 s, each from where the one before ended.
    Sequential,
}

/// What a caller wants of a transcription.
#[derive(Debug, Clone)]
pub struct TranscribeOptions {
    pub language: LanguageChoice,
    pub task: Task,
    /// The text before.
    pub prompt: Option<String>,
    /// Names and terms to expect.
    pub bias: Arc<[Term]>,
    /// Times for every word, not only for segments.
    pub word_times: bool,
    pub class: Class,
    pub tenant: TenantId,
    /// What has not begun by then fails: the search for speech, and each window.
    pub deadline: Option<Deadline>,
}

/// Cheap handle: clones share the engine.
#[derive(Clone)]
pub struct Transcriber {
    engine: Engine,
    /// None: sequential windows.
    speech: Option<Arc<Speech>>,
}

/// The part that is the same for all windows of one request.
struct Work<'a> {
    options: &'a TranscribeOptions,
    admission: &'a AudioPermit,
    /// A place here is needed for each window that is in the engine.
    room: Semaphore,
}

impl Transcriber {
    /// Transcribes in sequential windows.
    pub fn new(engine: Engine) -> Self {
        Self { engine, speech: None }
    }

    /// Transcribes windows of what `vad` finds to be speech.
    pub fn with_vad(engine: Engine, vad: Vad, options: VadOptions) -> Self {
        Self { engine, speech: Some(Arc::new(Speech::new(vad, options))) }
    }

    pub fn model(&self) -> &ModelInfo {
        self.engine.model()
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What tells speech from silence; `None` where windows are sequential.
    pub fn vad(&self) -> Option<&Vad> {
        self.speech.as_ref().map(|speech| &speech.vad)
    }

    /// Leave to transcribe so much audio, all channels counted. A job waits for it.
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
    /// Those of [`Engine::admit`] and [`Engine::recognize`]. Nothing is returned in part.
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

    /// Transcribes all channels of a file under one admission, and returns their transcripts in order. Only of
    /// windows that are in the engine is there a copy in `f32`; dropping the future ends all work.
    ///
    /// # Errors
    /// Those of [`Engine::recognize`]. Nothing is returned in part.
    pub async fn transcribe_all(
        &self,
        channels: Vec<Sound>,
        admission: AudioPermit,
        options: &TranscribeOptions,
    ) -> Result<Vec<Transcript>, Error> {
        // Dropped before the admission, in which its memory is counted.
        let channels: Arc<[Sound]> = channels.into();
        let windows = WINDOWS_PER_SLOT * self.model().slots.max(1);
        let room = Semaphore::new(windows.min(Semaphore::MAX_PERMITS));
        let work = Work { options, admission: &admission, room };
        let transcripts = match &self.speech {
            Some(speech) => self.parallel(speech, &channels, &work).await,
            None => try_join_all(channels.iter().map(|sound| self.sequential(sound, &work))).await,
        }?;
        // Rounding, and what decoding left because nobody speaks there.
        admission.done(f64::INFINITY);
        Ok(transcripts)
    }

    /// Windows of speech, side by side.
    async fn parallel(
        &self,
        speech: &Arc<Speech>,
        channels: &[Sound],
        work: &Work<'_>,
    ) -> Result<Vec<Transcript>, Error> {
        let mut plans = Vec::with_capacity(channels.len());
        // One after another: a file of many channels keeps no more processors busy than one of a single channel.
        for sound in channels {
            plans.push(speech.plan(sound, work).await?);
        }
        // From here on, silence is not held.
        let windows = plans.iter().flat_map(|plan| &plan.windows);
        work.admission.cut(windows.map(|window| seconds(window.samples())));
        let planned = channels.iter().zip(&plans);
        try_join_all(planned.map(|(sound, plan)| self.side_by_side(sound, plan, work))).await
    }

    /// The planned windows of one channel.
    async fn side_by_side(&self, sound: &Sound, plan: &Plan, work: &Work<'_>) -> Result<Transcript, Error> {
        let duration = sound.duration_seconds();
        let Some((first, others)) = plan.windows.split_first() else {
            let language = match &work.options.language {
                LanguageChoice::Named(code) => DetectedLanguage { code: code.clone(), probability: 1.0 },
                LanguageChoice::Detect { .. } => unknown_language(),
            };
            return Ok(Transcript { segments: Vec::new(), language, duration });
        };
        let probabilities = plan.probabilities.as_slice();
        // The first window names the language of them all: it must not change in the middle.
        let detects = matches!(work.options.language, LanguageChoice::Detect { .. });
        let (mut language, mut segments, rest) = if detects {
            let (language, segments) = self.planned(first, sound, probabilities, None, work).await?;
            (Some(language), segments, others)
        } else {
            (None, Vec::new(), plan.windows.as_slice())
        };
        let known = language.clone();
        let windows =
            rest.iter().map(|window| self.planned(window, sound, probabilities, known.as_ref(), work));
        for (named, found) in try_join_all(windows).await? {
            language.get_or_insert(named);
            segments.extend(found);
        }
        let language = language.unwrap_or_else(unknown_language);
        in_order(&mut segments);
        Ok(Transcript { segments, language, duration })
    }

    /// One planned window, and what decoding left of it, until all of its speech is accounted for. Windows take
    /// their turns in the order in which they first ask.
    async fn planned(
        &self,
        plan: &WindowPlan,
        sound: &Sound,
        probabilities: &[f32],
        language: Option<&DetectedLanguage>,
        work: &Work<'_>,
    ) -> Result<(DetectedLanguage, Vec<Segment>), Error> {
        // The semaphore is never closed; if it were, there would be a window too many, and no more.
        let _place = work.room.acquire().await.ok();
        let mut language = language.cloned();
        let mut segments = Vec::new();
        let mut next = Some(plan.clone());
        while let Some(plan) = next {
            let window = self.window(plan.pcm(sound), work.options, language.as_ref());
            let recognition = self.engine.recognize(work.admission, window).await?;
            let consumed = recognition.consumed_samples.max(MIN_ADVANCE_SAMPLES);
            language.get_or_insert(recognition.language);
            segments.extend(recognition.segments.into_iter().map(|segment| in_file(segment, &plan)));
            work.admission.done(seconds(consumed.min(plan.samples())));
            next = plan.after(consumed).filter(|rest| holds_speech(rest, probabilities));
        }
        Ok((language.unwrap_or_else(unknown_language), segments))
    }

    /// The reference's way: each window begins where the one before it says that it ended.
    async fn sequential(&self, sound: &Sound, work: &Work<'_>) -> Result<Transcript, Error> {
        let mut language = None::<DetectedLanguage>;
        let mut segments = Vec::new();
        let mut start = 0;
        while start < sound.len() {
            let pcm = sound.pcm(start..start + WINDOW_SAMPLES);
            let window = self.window(pcm, work.options, language.as_ref());
            let recognition = self.engine.recognize(work.admission, window).await?;
            let consumed = recognition.consumed_samples.max(MIN_ADVANCE_SAMPLES);
            language.get_or_insert_with(|| recognition.language.clone());
            segments.extend(shifted(recognition, seconds(start)));
            work.admission.done(seconds(consumed));
            start += consumed;
        }
        in_order(&mut segments);
        let language = language.unwrap_or_else(unknown_language);
        Ok(Transcript { segments, language, duration: sound.duration_seconds() })
    }

    fn window(&self, pcm: Pcm, options: &TranscribeOptions, language: Option<&DetectedLanguage>) -> Window {
        let language = match language {
            Some(known) => LanguageChoice::Named(known.code.clone()),
            None => options.language.clone(),
        };
        Window {
            pcm,
            options: DecodingOptions {
                language,
                task: options.task,
                prompt: options.prompt.clone(),
                bias: options.bias.clone(),
                word_times: options.word_times,
                ..DecodingOptions::default()
            },
            class: options.class,
            tenant: options.tenant,
            deadline: options.deadline,
        }
    }
}

fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}

/// Of audio in which nobody speaks.
fn unknown_language() -> DetectedLanguage {
    DetectedLanguage { code: "en".into(), probability: 0.0 }
}

/// Whether enough of `rest` is speech to listen again.
fn holds_speech(rest: &WindowPlan, probabilities: &[f32]) -> bool {
    let frames = rest.pieces().iter().flat_map(|piece| {
        let range = piece.file.start.div_ceil(FRAME_SAMPLES)..piece.file.end / FRAME_SAMPLES;
        probabilities.get(range).unwrap_or_default()
    });
    frames.filter(|&&probability| probability >= LEFT_PROBABILITY).count() >= MIN_LEFT_FRAMES
}

/// Makes word times go forward: alignment of one word at a time, and of windows apart from each other,
/// lets neighbours overlap by a few hundredths.
fn in_order(segments: &mut [Segment]) {
    let mut last = 0.0;
    for segment in segments {
        for word in &mut segment.words {
            word.start = word.start.max(last);
            word.end = word.end.max(word.start);
            last = word.end;
        }
    }
}

/// A segment of a planned window, in the file's time.
fn in_file(mut segment: Segment, plan: &WindowPlan) -> Segment {
    for word in &mut segment.words {
        let times = plan.word_to_file(word.start..word.end);
        (word.start, word.end) = (times.start, times.end);
    }
    segment.start = plan.to_file_time(segment.start);
    segment.end = plan.to_file_end(segment.end).max(segment.start);
    segment
}

/// The segments of a window that begins `offset` seconds into the file, in the file's time.
fn shifted(recognition: Recognition, offset: f64) -> impl Iterator<Item = Segment> {
    recognition.segments.into_iter().map(move |mut segment| {
        segment.start += offset;
        segment.end += offset;
        for word in &mut segment.words {
            word.start += offset;
            word.end += offset;
        }
        segment
    })
}
