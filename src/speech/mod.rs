//! Text to speech: the interface that the configuration names, else Kokoro if it is installed, else a program
//! on this machine, else none. [`Voice::name`] says which.
//!
//! ```text
//! sentence ─▶ pieces ─▶ wording ─▶ Remote | Kokoro (phonemes) | Program ─▶ samples at VOICE_RATE
//! ```

mod config;
mod error;
mod kokoro;
mod phonemes;
mod pieces;
mod program;
mod remote;
mod voice;
mod wav;
mod wording;

pub use config::{Config, EmbeddedVoice};
pub use error::VoiceError;
pub use voice::Voice;
pub use wav::VOICE_RATE;
