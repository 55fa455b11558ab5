//! The interface between the engine and a speech model. Whisper implements it on a device; tests script it.

use std::fmt;
use std::sync::Arc;

use super::error::Error;
use super::progress::Progress;
use super::window::{DecodingOptions, LanguageChoice, Task};
use crate::audio::{Pcm, SAMPLE_RATE};
use crate::transcript::{DetectedLanguage, Segment};

/// One row of the decode batch, with its share of the key-value caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub usize);

/// The most models that one server serves.
pub const MODELS_MAX: usize = 8;

/// The number of a model among those that share devices, below [`MODELS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(usize);

impl ModelId {
    pub const FIRST: Self = Self(0);

    /// `None` from [`MODELS_MAX`] on.
    pub fn new(index: usize) -> Option<Self> {
        (index < MODELS_MAX).then_some(Self(index))
    }

    pub fn index(self) -> usize {
        self.0
    }
}

#[derive(Debug, Clone)]
pub struct ModelInfo {
    /// `base`, or the folder's name.
    pub name: String,
    /// Stable for the same name and weights: clients see it as the model's id.
    pub uuid: uuid::Uuid,
    /// Language codes that a request may name; `["en"]` for an English-only model.
    pub languages: Vec<String>,
    pub slots: usize,
    /// The most windows that one call of [`SpeechModel::encode`] takes.
    pub encode_batch: usize,
    /// For people: `cpu, bf16, 2 threads`.
    pub device: String,
    /// The tokens that a prompt is to the model, of which it reads only the last ones.
    pub prompt_tokens: TokenCount,
}

/// Counts the tokens of a text.
#[derive(Clone)]
pub struct TokenCount(Arc<dyn Fn(&str) -> usize + Send + Sync>);

impl TokenCount {
    pub fn new(count: impl Fn(&str) -> usize + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }

    pub fn of(&self, text: &str) -> usize {
        (self.0)(text)
    }
}

/// Each word is a token.
impl Default for TokenCount {
    fn default() -> Self {
        Self::new(|text| text.split_whitespace().count())
    }
}

impl fmt::Debug for TokenCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenCount")
    }
}

impl ModelInfo {
    /// The id of a model of this name.
    pub fn uuid_of(name: &str) -> uuid::Uuid {
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes())
    }

    pub fn is_multilingual(&self) -> bool {
        self.languages.len() > 1
    }

    /// Whether `options` can be honoured, before anything is queued.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`], [`Error::EnglishOnly`].
    pub fn check(&self, options: &DecodingOptions) -> Result<(), Error> {
        let known = |code: &String| self.languages.contains(code);
        let unknown = match &options.language {
            LanguageChoice::Named(code) => Some(code).filter(|code| !known(code)),
            LanguageChoice::Detect { among, expected } => {
                among.iter().chain(expected).find(|code| !known(code))
            }
        };
        match unknown {
            Some(code) => Err(Error::UnknownLanguage(code.clone())),
            None if options.task == Task::Translate && !self.is_multilingual() => {
                Err(Error::EnglishOnly("translate"))
            }
            None => Ok(()),
        }
    }
}

/// A window on its way into a free slot.
pub struct EncodeRequest<'a> {
    pub slot: SlotId,
    pub pcm: &'a Pcm,
}

/// One try at decoding the window in a slot, which was encoded before.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub slot: SlotId,
    pub options: &'a DecodingOptions,
    /// 0 takes the likeliest token each time; above 0 tokens are sampled.
    pub temperature: f32,
}

/// Whether a slot's sequence goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    Running,
    Finished,
}

/// A finished attempt at one window.
#[derive(Debug, Clone)]
pub struct Hypothesis {
    pub segments: Vec<Segment>,
    pub language: DetectedLanguage,
    pub average_log_probability: f32,
    pub no_speech_probability: f32,
    pub compression_ratio: f32,
    /// See [`super::Recognition::consumed_samples`].
    pub consumed_samples: usize,
    /// The tokens that the segments came from, for [`SpeechModel::align`].
    pub tokens: Vec<Token>,
    /// For each segment, its range of `tokens`.
    pub ranges: Vec<std::ops::Range<usize>>,
    /// The model closed the last segment: nothing is said after it.
    pub ends_in_silence: bool,
}

/// The least progress of an attempt that ended in a loop: 5 s. What is left of its window is recognised by itself, and may
/// end in a loop too.
const LOOPED_ADVANCE_SAMPLES: usize = 5 * SAMPLE_RATE as usize;

impl Hypothesis {
    /// The samples of a window of `samples` that the text accounts for, see
    /// [`super::Recognition::consumed_samples`].
    pub fn consumed_in(&self, samples: usize) -> usize {
        if self.segments.iter().any(|segment| segment.looped) {
            self.consumed_samples.max(LOOPED_ADVANCE_SAMPLES.min(samples))
        } else {
            self.consumed_samples
        }
    }
}

/// A token and how likely it was among text tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    pub id: u32,
    pub probability: f32,
}

/// A model on one device, owned by one worker thread. A slot goes encode → begin → step … → finish → align;
/// `begin` may follow `finish` for another attempt at the same encoding. No call depends on which
/// other slots are in the batch: the same window gives the same tokens alone and in company.
pub trait SpeechModel {
    fn info(&self) -> &ModelInfo;

    /// Counts on during calls, where the model can tell how far it is.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// Log-mel and encoder; each window's cross-attention keys and values land in its slot. A device may only be
    /// given the work: [`Self::is_encoded`] says when it is done. What is given to it later runs later.
    fn encode(&mut self, requests: &[EncodeRequest]) -> Result<(), Error>;

    /// Whether the windows in `slots`, which were given to [`Self::encode`] together, are encoded. Does not wait.
    fn is_encoded(&mut self, _slots: &[SlotId]) -> Result<bool, Error> {
        Ok(true)
    }

    /// Waits until the windows in `slots`, which were given to [`Self::encode`] together, are encoded.
    fn wait_encoded(&mut self, _slots: &[SlotId]) -> Result<(), Error> {
        Ok(())
    }

    /// Starts attempts: detects languages where asked, runs the prompts. Waits for slots that are still being encoded.
    /// A first token may be known with a later step only.
    fn begin(&mut self, attempts: &[Attempt]) -> Result<(), Error>;

    /// One token for each of `slots`.
    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error>;

    /// The finished attempt of each slot.
    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error>;

    /// Begins the word times of accepted hypotheses, whose slots are still held and may be released once this has
    /// returned. One alignment for each of them; or none, if the hypotheses have their times already.
    fn align(&mut self, _accepted: &[(SlotId, &Hypothesis)]) -> Result<Vec<Box<dyn Alignment>>, Error> {
        Ok(Vec::new())
    }

    /// Frees the slot, whether or not its window is finished.
    fn release(&mut self, slot: SlotId);
}

/// The slow part of a window's word times: needs no slot, and runs on another thread than the model.
pub trait Alignment: Send {
    /// Sets the times of the words, of the segments, and the end of what is consumed.
    fn finish(self: Box<Self>, hypothesis: &mut Hypothesis) -> Result<(), Error>;
}
