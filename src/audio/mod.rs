//! Audio in any supported container, to mono PCM at [`SAMPLE_RATE`].
#![doc = include_str!("README.md")]

mod aac;
mod budget;
mod container;
mod decode;
mod error;
mod estimate;
pub mod g711;
mod gather;
mod limits;
mod log_mel;
mod mp4;
mod ogg;
mod options;
mod opus;
mod pcm;
mod rate;
mod raw;
mod resample;
mod sniff;
mod sound;
mod stream;
mod voice_codecs;
mod wave;

pub use budget::Budget;
pub use decode::{check, decode, decode_within};
pub use error::Error;
pub use estimate::{Estimate, estimate};
pub use gather::{Decoded, Progress};
pub use limits::Limits;
pub use log_mel::{FFT_SAMPLES, HOP_SAMPLES, LogMel, clamp_log_mel};
pub use options::{Bare, DecodeOptions, SpeechCoding};
pub use pcm::{Pcm, SAMPLE_RATE};
pub use rate::RateConverter;
pub use raw::{RawEncoding, RawFormat};
pub use sound::{SOUND_BYTES_PER_SECOND, Sound};
pub use stream::{PcmStream, Piece, StreamFormat, StreamOptions};
