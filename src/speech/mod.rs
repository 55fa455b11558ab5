//! Text to speech: the interface that the configuration names, else Kokoro if it is installed, else a program
//! on this machine, else none. [`Voice::name`] says which.
//!
//! ```text
//! sentence ─▶ pieces ─▶ wording ─▶ Remote | Kokoro (phonemes) | Program ─▶ samples at VOICE_RATE ─▶ encode
//! ```
//! Agents speak by a [`Voice`] themselves. [`Speech`] speaks for clients, as many as there is time for.
//!
//! [callbacks]: crate::jobs
#![doc = include_str!("README.md")]

mod config;
mod dictation;
pub mod encode;
mod error;
mod kokoro;
mod limits;
mod names;
mod pace;
mod phonemes;
mod pieces;
mod program;
mod remote;
mod sentences;
mod service;
mod stretch;
mod voice;
mod wav;
mod wording;

pub use config::{Config, EmbeddedVoice};
pub use dictation::{Dictation, Spoken, TooFarAhead};
pub use error::VoiceError;
pub use limits::Limits;
pub use sentences::Sentences;
pub use service::{Full, Place, SayError, Speech, Utterance};
pub use voice::{Manner, Unspoken, Voice};
pub use wav::VOICE_RATE;
