//! The networks on the processor.

use std::path::Path;

use crate::cpu::{Level, Threads};

use super::embedding::Embedding;
use super::error::Error;
use super::network::{LogProbabilities, Networks};
use super::segmentation::Segmentation;

/// Both networks, and the threads that they compute on.
pub struct Processor {
    segmentation: Segmentation,
    embedding: Embedding,
    threads: Threads,
}

impl Processor {
    /// Reads the weights from `folder`. The networks compute on `threads` threads.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`].
    pub fn load(folder: &Path, threads: usize) -> Result<Self, Error> {
        let level = Level::detect();
        Ok(Self {
            segmentation: Segmentation::load(folder, level)?,
            embedding: Embedding::load(folder, level)?,
            threads: Threads::new(threads),
        })
    }
}

impl Networks for Processor {
    fn segment(&self, windows: &[Vec<f32>]) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        self.segmentation.segment(&self.threads, windows)
    }

    fn trunk(&self, pieces: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        self.embedding.trunk(&self.threads, pieces)
    }

    fn embed(&self, statistics: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        self.embedding.embed(statistics)
    }
}
