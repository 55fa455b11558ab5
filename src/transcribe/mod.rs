//! Whole audio to a transcript: cut into windows, recognise them, stitch the results.

mod chunk;
mod window_plan;

pub use chunk::{Policy, plan_windows};
pub use window_plan::{Piece, WindowPlan};

use std::time::Instant;

use crate::audio::{Pcm, SAMPLE_RATE};
use crate::engine::{
    Admission, Class, DecodingOptions, Engine, Error, LanguageChoice, ModelInfo, Recognition, Task, TenantId,
    WINDOW_SAMPLES, Window,
};
use crate::transcript::{DetectedLanguage, Transcript};

/// What a caller wants of a transcription.
#[derive(Debug, Clone)]
pub struct TranscribeOptions {
    pub language: LanguageChoice,
    pub task: Task,
    /// Names and terms to expect, or the text before.
    pub prompt: Option<String>,
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
}

impl Transcriber {
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }

    pub fn model(&self) -> &ModelInfo {
        self.engine.model()
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Transcribes one channel.
    ///
    /// # Errors
    /// Those of [`Engine::admit`] and [`Engine::recognize`]. Nothing is returned in part.
    pub async fn transcribe(&self, pcm: Pcm, options: &TranscribeOptions) -> Result<Transcript, Error> {
        let admission = self.engine.admit(pcm.duration_seconds())?;
        self.sequential(pcm, options, &admission).await
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
            let consumed = recognition.consumed_samples;
            let offset = start as f64 / f64::from(SAMPLE_RATE);
            language.get_or_insert_with(|| recognition.language.clone());
            segments.extend(shifted(recognition, offset));
            admission.done(consumed as f64 / f64::from(SAMPLE_RATE));
            start += consumed;
        }
        let language = language.unwrap_or(DetectedLanguage { code: "en".into(), probability: 0.0 });
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
                word_times: options.word_times,
                ..DecodingOptions::default()
            },
            class: options.class,
            tenant: options.tenant,
            deadline: options.deadline,
        }
    }
}

/// The segments of a window that begins `offset` seconds into the file, in the file's time.
fn shifted(recognition: Recognition, offset: f64) -> impl Iterator<Item = crate::transcript::Segment> {
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
