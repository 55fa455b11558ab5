//! The handle on diarization.

use std::path::Path;

use crate::audio::Sound;
use crate::share::Tenants;

use super::batching::Batcher;
use super::diarize::{Diarization, Options, diarize};
use super::error::Error;
use super::live::Stream;
use super::processor::Processor;

/// Diarization on one device, for one tenant. Clones share the networks and their thread.
#[derive(Clone)]
pub struct Diarizer {
    batcher: Batcher,
}

impl Diarizer {
    /// Loads the networks of `folder` for the processor, with `threads` threads of their own.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`], [`Error::Thread`].
    pub fn load(folder: &Path, threads: usize) -> Result<Self, Error> {
        let folder = folder.to_owned();
        Batcher::start(move || Processor::load(&folder, threads)).map(Self::new)
    }

    /// On networks that are loaded already.
    pub fn new(batcher: Batcher) -> Self {
        Self { batcher }
    }

    /// With places that are shared between `tenants`.
    pub fn shared_between(mut self, tenants: &Tenants) -> Self {
        self.batcher = self.batcher.shared_between(tenants);
        self
    }

    /// The same for `tenant`; one that has just been loaded is for 0.
    pub fn for_tenant(&self, tenant: u64) -> Self {
        let mut diarizer = self.clone();
        diarizer.batcher = self.batcher.for_tenant(tenant);
        diarizer
    }

    /// The turns of `sound`, one channel of a recording. Waits for its places as long as it takes.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn diarize(&self, sound: &Sound, options: &Options) -> Result<Diarization, Error> {
        diarize(&self.batcher, sound, *options).await
    }

    /// A stream of audio whose speakers are found as its words become final.
    pub fn stream(&self, options: Options) -> Stream {
        Stream::new(self.batcher.for_streams(), options)
    }
}
