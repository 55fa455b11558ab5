//! The options of a stream.

use std::sync::Arc;
use std::time::Duration;

use crate::audio::StreamFormat;
use crate::engine::{LanguageChoice, TenantId, Term};
use crate::speakers;
use crate::voices::Voice;

/// The client's options for one stream.
#[derive(Debug, Clone)]
pub struct Options {
    pub format: StreamFormat,
    /// Channels are recognised separately; otherwise their mean is.
    pub multichannel: bool,
    pub language: LanguageChoice,
    pub interim_results: bool,
    /// The pause that ends a span; `None`: pauses end none.
    pub endpointing: Option<Duration>,
    /// The gap after a word that ends an utterance; `None`: no [`super::Event::UtteranceEnd`] is sent.
    pub utterance_end: Option<Duration>,
    /// Send [`super::Event::SpeechStarted`].
    pub speech_started: bool,
    /// Send [`super::Event::Voice`].
    pub voice: bool,
    /// The probability from which a frame is voice, 0 to 1; `None`: as for whole files.
    pub voice_threshold: Option<f32>,
    /// Words of final results have speakers, numbered in each channel separately.
    pub speakers: Option<speakers::Options>,
    /// With `speakers`: those whose voices are among these have names.
    pub voices: Option<Arc<[Voice]>>,
    /// The text before the stream.
    pub prompt: Option<String>,
    /// Names and terms to expect.
    pub bias: Arc<[Term]>,
    pub tenant: TenantId,
}
