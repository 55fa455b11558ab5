//! The error of loading a model and of running it.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} holds neither model.safetensors nor model.bin", folder.display())]
    NoWeights { folder: PathBuf },
    #[error("the weights are not those of a Whisper model: {0}")]
    BadWeights(String),
    #[error("{}: {reason}", path.display())]
    BadTokenizer { path: PathBuf, reason: String },
    #[error("{}", path.display())]
    BadJson { path: PathBuf, source: serde_json::Error },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("device cuda:{index} is not there: there are {devices}")]
    NoDevice { index: usize, devices: usize },
    #[error(
        "{needed} MiB of the device's memory are needed and {free} are free: {weights} for the model's weights, \
         {slots} for models.slots, {working} to work with; lower models.slots, set models.audio_cache = \"fp8\", or \
         choose a smaller models.model"
    )]
    DeviceMemory {
        needed: u64,
        free: u64,
        weights: u64,
        slots: u64,
        working: u64,
        /// The device has less memory in all.
        never: bool,
    },
    #[error("CUDA cannot be used")]
    NoCuda(#[from] crate::cuda::libraries::Absent),
    #[error("the device failed")]
    Device(#[from] crate::cuda::Error),
    #[error("libtorch failed")]
    Torch(#[from] tch::TchError),
}

impl From<Error> for crate::engine::Error {
    fn from(error: Error) -> Self {
        Self::ModelFailed(format!("{:#}", anyhow::Error::new(error)))
    }
}
