//! Text to speech: by the interface or the program that the configuration names, by Kokoro and Piper if they are
//! installed, else by a program on this machine. [`Voice::voices`] says which voices there are.
//!
//! ```text
//! sentence ─▶ pieces ─▶ wording ─▶ a Synthesizer ─▶ parts of samples at VOICE_RATE ─▶ encode
//!                                  Remote | Program | Kokoro (front ─▶ windows of the vocoder) | Piper
//! ```
//! Agents speak by a [`Voice`] themselves. [`Speech`] speaks for clients, as many as there is time for.
//!
//! [callbacks]: crate::jobs
#![doc = include_str!("README.md")]

mod admission;
mod caption;
mod config;
mod dictation;
pub mod encode;
mod error;
mod espeak;
mod kokoro;
mod limits;
mod memory;
mod names;
mod pace;
mod phonemes;
mod pieces;
mod piper;
mod program;
mod remote;
mod sentences;
mod service;
mod stretch;
mod synthesizer;
mod voice;
mod wav;
mod wording;

pub use admission::Full;
pub use caption::Caption;
pub use config::{Config, EmbeddedVoice};
pub use dictation::{Dictation, Spoken, TooFarAhead};
pub use error::VoiceError;
pub use limits::Limits;
pub use sentences::Sentences;
pub use service::{Piece, Place, SayError, Speech, Utterance};
pub use synthesizer::Part;
pub use voice::{Manner, Saying, Unspoken, Voice};
pub use wav::VOICE_RATE;
