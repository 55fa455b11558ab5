//! Sources of models: a folder with a checkpoint, or random weights of a shape.

use std::path::PathBuf;

use super::weights::{self, Dimensions, Shape};
use super::whisper::{Lengths, Whisper, languages_of};
use super::{Config, Error, Footprint, footprint};
use crate::engine::SpeechModel;

/// The origin of a model's weights.
#[derive(Debug, Clone)]
pub enum Source {
    Folder(PathBuf),
    /// Random weights, for measurements. Only a configuration that names them gets them.
    Synthetic(Shape, Lengths),
}

impl Source {
    /// The synthetic model that `config` names; `None` if it names another, or lacks the number of tokens.
    pub fn synthetic(config: &Config) -> Option<Self> {
        let shape = Shape::named(config.synthetic_shape()?)?;
        let tokens = config.synthetic_tokens?;
        Some(Self::Synthetic(shape, Lengths::between(tokens.min, tokens.max).in_proportion()))
    }

    /// Loads the model onto the configured device.
    ///
    /// # Errors
    /// See [`Error`]: a folder's contents, or the device.
    pub fn load(&self, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
        Ok(Box::new(match self {
            Self::Folder(folder) => Whisper::load(folder, config)?,
            Self::Synthetic(shape, lengths) => Whisper::synthetic(shape, lengths.clone(), config)?,
        }))
    }

    /// The memory that the model needs on the CPU; `None` on CUDA, where it is compared once the device is open.
    ///
    /// # Errors
    /// A folder without weights or with damaged ones, or a missing device.
    pub fn footprint(&self, config: &Config) -> Result<Option<Footprint>, Error> {
        footprint::footprint(|| self.dimensions(), config)
    }

    /// The languages that the model knows, as far as its files tell without the weights.
    pub fn languages(&self) -> Option<Vec<String>> {
        match self {
            Self::Folder(folder) => languages_of(folder),
            Self::Synthetic(..) => None,
        }
    }

    fn dimensions(&self) -> Result<Dimensions, Error> {
        match self {
            Self::Folder(folder) => weights::dimensions(folder),
            Self::Synthetic(shape, _) => Ok(shape.dimensions()),
        }
    }
}
