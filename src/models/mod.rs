//! Speech models on devices. Besides the configuration and the command line, only `app` names this module: all others know
//! the engine.
//!
//! [admission and load]: crate::engine
#![doc = include_str!("README.md")]

mod absent;
mod ceilings;
mod config;
mod devices;
mod error;
mod footprint;
mod source;
mod weights;
mod whisper;

pub use absent::Absent;
pub use ceilings::{Ceilings, ceilings};
pub use config::{
    AudioCacheType, AudioContext, ComputeType, Config, DeviceChoice, LoadTime, SYNTHETIC, TokenRange,
};
pub use devices::{each_device, find as first_device};
pub use error::Error;
pub use footprint::Footprint;
pub use source::Source;
pub use weights::Shape;
pub use whisper::{Lengths, LogMel};

use std::path::Path;

use crate::engine::SpeechModel;

/// Loads the model in `folder` onto the configured device.
///
/// # Errors
/// See [`Error`]: the folder's contents, or the device.
pub fn load(folder: &Path, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
    Source::Folder(folder.to_owned()).load(config)
}

/// A model of `shape` with random weights on the configured device, for measurements. `lengths` sets the number of tokens of
/// each attempt.
///
/// # Errors
/// See [`Error`]: the device.
pub fn synthetic(shape: &Shape, lengths: Lengths, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
    Source::Synthetic(*shape, lengths).load(config)
}
