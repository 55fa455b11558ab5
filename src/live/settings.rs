//! The settings of one channel: the client's options within the server's bounds, in samples.

use std::sync::Arc;
use std::time::Duration;

use super::options::Options;
use super::span::{endpointing, to_samples};
use crate::audio::SAMPLE_RATE;
use crate::engine::{DecodingOptions, LanguageChoice, Term};
use crate::vad::Endpointing;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The pause that ends a span.
    pub endpoint: Option<u64>,
    /// The gap after a word that ends an utterance.
    pub gap: Option<u64>,
    pub interim_results: bool,
    pub speech_started: bool,
    pub voice: bool,
    /// What counts as voice.
    pub endpointing: Endpointing,
    /// New audio before an open span is recognised again.
    pub least_hop: u64,
    pub language: LanguageChoice,
    pub prompt: Option<String>,
    pub bias: Arc<[Term]>,
}

impl Settings {
    /// Pauses and gaps are at least `min_pause_ms`, hops at least `hop_ms`.
    pub fn new(options: &Options, min_pause_ms: u32, hop_ms: u32) -> Self {
        let milliseconds = |ms: u32| u64::from(ms) * u64::from(SAMPLE_RATE) / 1000;
        let least_pause = milliseconds(min_pause_ms);
        let at_least = |pause: Duration| to_samples(pause.as_secs_f64()).max(least_pause);
        Self {
            endpoint: options.endpointing.map(at_least),
            gap: options.utterance_end.map(at_least),
            interim_results: options.interim_results,
            speech_started: options.speech_started,
            voice: options.voice,
            endpointing: endpointing(options.voice_threshold),
            least_hop: milliseconds(hop_ms.max(100)),
            language: options.language.clone(),
            prompt: options.prompt.clone(),
            bias: options.bias.clone(),
        }
    }

    /// `is_thorough`: attempts at higher temperatures may follow the first.
    pub fn decoding(&self, is_thorough: bool) -> DecodingOptions {
        let mut options = DecodingOptions {
            language: self.language.clone(),
            prompt: self.prompt.clone(),
            bias: self.bias.clone(),
            word_times: true,
            ..DecodingOptions::default()
        };
        if !is_thorough {
            options.temperatures.truncate(1);
        }
        options
    }
}
