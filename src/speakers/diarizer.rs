//! The handle on diarization.

use std::path::Path;

use tch::{Device, Kind};

use crate::audio::Sound;
use crate::share::Tenants;
use crate::vad::Vad;

use super::batching::Batcher;
use super::diarize::{Diarization, Options, diarize};
use super::error::Error;
use super::live::Stream;
use super::processor::Processor;
use super::torch::Torch;

/// Diarization on one device, for one tenant. Clones share the networks and their thread.
#[derive(Clone)]
pub struct Diarizer {
    batcher: Batcher,
    vad: Option<Vad>,
}

impl Diarizer {
    /// Loads the networks of `folder` onto `device`: the processor, where they have `threads` threads of their own, or a
    /// CUDA device that libtorch can use, where they compute in f32.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`], [`Error::Thread`]; [`Error::Failed`] if the
    /// device has no memory for them.
    pub fn load(folder: &Path, device: Device, threads: usize) -> Result<Self, Error> {
        let folder = folder.to_owned();
        let batcher = match device {
            Device::Cpu => Batcher::start(move || Processor::load(&folder, threads)),
            device => Batcher::start(move || Torch::load(&folder, device, Kind::Float)),
        };
        batcher.map(Self::new)
    }

    /// On networks that are loaded already.
    pub(super) fn new(batcher: Batcher) -> Self {
        Self { batcher, vad: None }
    }

    /// With `vad`, which hears voices that segmentation passes over: quiet ones, and those of telephones.
    pub fn with_vad(self, vad: Option<Vad>) -> Self {
        Self { vad, ..self }
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
        diarize(&self.batcher, self.vad.as_ref(), sound, *options).await
    }

    /// A stream of audio whose speakers are found as its words become final.
    pub fn stream(&self, options: Options) -> Stream {
        Stream::new(self.batcher.for_streams(), self.vad.as_ref(), options)
    }
}
