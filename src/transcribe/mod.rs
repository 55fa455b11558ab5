//! Whole audio to a transcript: cut into windows, recognise them, stitch the results.

mod chunk;
mod window_plan;

pub use chunk::{Policy, plan_windows};
pub use window_plan::{Piece, WindowPlan};

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use crate::audio::{Pcm, SAMPLE_RATE};
use crate::engine::{
    Admission, Class, DecodingOptions, Engine, Error, LanguageChoice, ModelInfo, Recognition, Task, TenantId,
    Term, WINDOW_SAMPLES, Window,
};
use crate::transcript::{DetectedLanguage, Segment, Transcript};
use crate::vad::{FRAME_SAMPLES, Vad, VadOptions, speech_spans};

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
    /// Windows that have not begun by then fail.
    pub deadline: Option<Instant>,
}

/// Cheap handle: clones share the engine.
#[derive(Clone)]
pub struct Transcriber {
    engine: Engine,
    /// None: sequential windows.
    speech: Option<Arc<Speech>>,
}

struct Speech {
    vad: Vad,
    options: VadOptions,
}

impl Transcriber {
    /// Transcribes in sequential windows.
    pub fn new(engine: Engine) -> Self {
        Self { engine, speech: None }
    }

    /// Transcribes windows of what `vad` finds to be speech.
    pub fn with_vad(engine: Engine, vad: Vad, options: VadOptions) -> Self {
        Self { engine, speech: Some(Arc::new(Speech { vad, options })) }
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

    /// Transcribes one channel.
    ///
    /// # Errors
    /// Those of [`Engine::admit`] and [`Engine::recognize`]. Nothing is returned in part.
    pub async fn transcribe(&self, pcm: Pcm, options: &TranscribeOptions) -> Result<Transcript, Error> {
        let admission = match options.class {
            Class::Live | Class::Interactive => self.engine.admit(options.tenant, pcm.duration_seconds())?,
            Class::Job => self.engine.admit_job(),
        };
        let transcript = match &self.speech {
            Some(speech) => self.parallel(speech, pcm, options, &admission).await,
            None => self.sequential(pcm, options, &admission).await,
        }?;
        // Rounding, and what decoding left because nobody speaks there.
        admission.done(f64::INFINITY);
        Ok(transcript)
    }

    /// Windows of speech, side by side.
    async fn parallel(
        &self,
        speech: &Arc<Speech>,
        pcm: Pcm,
        options: &TranscribeOptions,
        admission: &Admission,
    ) -> Result<Transcript, Error> {
        let (plans, probabilities) = {
            let (speech, pcm) = (speech.clone(), pcm.clone());
            let plan = move || {
                let probabilities = speech.vad.probabilities(&pcm);
                let spans = speech_spans(&probabilities, pcm.len(), &speech.options);
                (plan_windows(&spans, &probabilities, pcm.len(), Policy::default()), probabilities)
            };
            tokio::task::spawn_blocking(plan).await.map_err(|error| Error::ModelFailed(error.to_string()))?
        };
        let seconds = |samples: usize| samples as f64 / f64::from(SAMPLE_RATE);
        admission.cut(plans.iter().map(|plan| seconds(plan.samples())));
        let mut plans = plans.into_iter();
        let Some(first) = plans.next() else {
            let language = match &options.language {
                LanguageChoice::Named(code) => DetectedLanguage { code: code.clone(), probability: 1.0 },
                LanguageChoice::Detect { .. } => unknown_language(),
            };
            return Ok(Transcript { segments: Vec::new(), language, duration: pcm.duration_seconds() });
        };
        // The first window names the language of them all: it must not change in the middle.
        let detects = matches!(options.language, LanguageChoice::Detect { .. });
        let (language, mut segments, rest) = if detects {
            let (language, segments) =
                self.planned(first, &pcm, &probabilities, options, None, admission).await?;
            (Some(language), segments, None)
        } else {
            (None, Vec::new(), Some(first))
        };
        let windows = rest
            .into_iter()
            .chain(plans)
            .map(|plan| self.planned(plan, &pcm, &probabilities, options, language.as_ref(), admission));
        let mut language = language.clone();
        for (named, found) in try_join_all(windows).await? {
            language.get_or_insert(named);
            segments.extend(found);
        }
        let language = language.unwrap_or_else(unknown_language);
        in_order(&mut segments);
        Ok(Transcript { segments, language, duration: pcm.duration_seconds() })
    }

    /// One planned window, and what decoding left of it, until all of its speech is accounted for.
    async fn planned(
        &self,
        plan: WindowPlan,
        pcm: &Pcm,
        probabilities: &[f32],
        options: &TranscribeOptions,
        language: Option<&DetectedLanguage>,
        admission: &Admission,
    ) -> Result<(DetectedLanguage, Vec<Segment>), Error> {
        let mut language = language.cloned();
        let mut segments = Vec::new();
        let seconds = |samples: usize| samples as f64 / f64::from(SAMPLE_RATE);
        let mut next = Some(plan);
        while let Some(plan) = next {
            let window = self.window(plan.pcm(pcm), options, language.as_ref());
            let recognition = self.engine.recognize(admission, window).await?;
            let consumed = recognition.consumed_samples.max(MIN_ADVANCE_SAMPLES);
            language.get_or_insert(recognition.language);
            segments.extend(recognition.segments.into_iter().map(|segment| in_file(segment, &plan)));
            admission.done(seconds(consumed.min(plan.samples())));
            next = plan.after(consumed).filter(|rest| holds_speech(rest, probabilities));
        }
        Ok((language.unwrap_or_else(unknown_language), segments))
    }

    /// The reference's way: each window begins where the one before it says that it ended.
    async fn sequential(
        &self,
        pcm: Pcm,
        options: &TranscribeOptions,
        admission: &Admission,
    ) -> Result<Transcript, Error> {
        let mut language = None::<DetectedLanguage>;
        let mut segments = Vec::new();
        let mut start = 0;
        while start < pcm.len() {
            let samples = pcm.slice(start..start + WINDOW_SAMPLES);
            let window = self.window(samples, options, language.as_ref());
            let recognition = self.engine.recognize(admission, window).await?;
            let consumed = recognition.consumed_samples.max(MIN_ADVANCE_SAMPLES);
            let offset = start as f64 / f64::from(SAMPLE_RATE);
            language.get_or_insert_with(|| recognition.language.clone());
            segments.extend(shifted(recognition, offset));
            admission.done(consumed as f64 / f64::from(SAMPLE_RATE));
            start += consumed;
        }
        in_order(&mut segments);
        let language = language.unwrap_or_else(unknown_language);
        Ok(Transcript { segments, language, duration: pcm.duration_seconds() })
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
