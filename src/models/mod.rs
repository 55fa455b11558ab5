//! Speech models on devices. Only `app` names this module: everyone else knows the engine.
#![doc = include_str!("README.md")]

mod config;
mod devices;
mod error;
mod footprint;
mod weights;
mod whisper;

pub use config::{AudioCacheType, AudioContext, ComputeType, Config, DeviceChoice};
pub use devices::each_device;
pub use error::Error;
pub use footprint::{Footprint, footprint};
pub use weights::Shape;
pub use whisper::{Lengths, LogMel};

use std::path::Path;

use crate::engine::SpeechModel;

/// Loads the model in `folder` onto the configured device.
///
/// # Errors
/// See [`Error`]: the folder's contents, or the device.
pub fn load(folder: &Path, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
    Ok(Box::new(whisper::Whisper::load(folder, config)?))
}

/// A model of `shape` with random weights on the configured device, for benchmarks. `lengths` sets the number of
/// tokens of each attempt.
///
/// # Errors
/// See [`Error`]: the device.
pub fn synthetic(shape: &Shape, lengths: Lengths, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
    Ok(Box::new(whisper::Whisper::synthetic(shape, lengths, config)?))
}
