//! Speech models on devices. Only `app` names this module: everyone else knows the engine.
#![doc = include_str!("README.md")]

mod footprint;
pub mod hub;
mod place;
mod weights;
mod whisper;

pub use footprint::{Footprint, footprint};
pub use place::each_device;
pub use weights::Shape;
pub use whisper::{Lengths, LogMel};

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::SpeechModel;

/// Which model, where, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A known name (`base`, `large-v3`, …) or a folder. Default `base`.
    pub model: String,
    /// Default `auto`: a CUDA device where one works, otherwise the CPU.
    pub device: DeviceChoice,
    /// Default `auto`: on CUDA bf16; on a CPU int8 where it multiplies int8 and bf16, otherwise f32.
    pub compute_type: ComputeType,
    /// Threads for inference on the CPU. Default 0: one for each core.
    pub threads: usize,
    /// How much of its 30 s the encoder sees where a window is shorter. Default `auto`: on a CPU in bf16
    /// and int8 `short`, otherwise `full`.
    pub audio_context: AudioContext,
    /// In what a slot keeps the audio's keys and values. Default `auto`: as `compute_type` says.
    pub audio_cache: AudioCache,
    /// Windows decoded side by side; each has its share of memory from the start. Default 0: 64 on CUDA, and
    /// 8 on a CPU, where more gain nothing.
    pub slots: usize,
    /// Folder with libtorch_cuda.so, the CUDA part of libtorch 2.11.0. Not set: beside the CPU part, and where the
    /// loader looks.
    pub libtorch_cuda: Option<PathBuf>,
    /// Where kernels are kept that were compiled for a GPU of this machine; empty: they are not. Default
    /// `$XDG_CACHE_HOME/verbatim/kernels`, or `~/.cache/verbatim/kernels`.
    pub kernel_dir: PathBuf,
    pub hub: hub::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: "base".into(),
            device: DeviceChoice::Auto,
            compute_type: ComputeType::Auto,
            threads: 0,
            audio_context: AudioContext::Auto,
            audio_cache: AudioCache::Auto,
            slots: 0,
            libtorch_cuda: None,
            kernel_dir: PathBuf::new(),
            hub: hub::Config::default(),
        }
    }
}

impl Config {
    /// Windows side by side, where this is not set: as many as the device makes use of.
    fn slots(&self, on_cuda: bool) -> usize {
        match self.slots {
            0 if on_cuda => 64,
            0 => 8,
            slots => slots,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// All CUDA devices where they work, otherwise the CPU.
    Auto,
    Cpu,
    /// All CUDA devices, or none but this one.
    Cuda(Option<usize>),
}

impl std::str::FromStr for DeviceChoice {
    type Err = String;

    /// `auto`, `cpu`, `cuda`, `cuda:N`
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(None)),
            Some(("cuda", index)) => index
                .parse()
                .map(|index| Self::Cuda(Some(index)))
                .map_err(|_| format!("`{text}`: no device index")),
            _ => Err(format!("`{text}` is none of auto, cpu, cuda, cuda:N")),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(device: DeviceChoice) -> Self {
        match device {
            DeviceChoice::Auto => "auto".into(),
            DeviceChoice::Cpu => "cpu".into(),
            DeviceChoice::Cuda(None) => "cuda".into(),
            DeviceChoice::Cuda(Some(index)) => format!("cuda:{index}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeType {
    Auto,
    /// The reference.
    F32,
    /// Weights and caches in bf16, sums in f32.
    Bf16,
    /// On a CPU the weights and the decoder's audio cache in int8, the rest as `bf16`.
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AudioContext {
    Auto,
    /// All of it, padded: what the model was trained on.
    Full,
    /// The audio and some padding: several times faster for a few seconds of audio. A window that is not
    /// understood so is encoded again in full.
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AudioCache {
    Auto,
    /// On CUDA in bf16: e4m3, in half the memory, of which a step reads half as much. Less exact: benches/RESULTS.md.
    Fp8,
}

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
    DeviceMemory { needed: u64, free: u64, weights: u64, slots: u64, working: u64 },
    #[error("CUDA cannot be used")]
    NoCuda(#[from] crate::cuda::libraries::Absent),
    #[error("the device failed")]
    Device(#[from] crate::cuda::Error),
    #[error("libtorch failed")]
    Torch(#[from] tch::TchError),
}

/// Reads the model in `folder` and places it on the configured device.
///
/// # Errors
/// See [`Error`]: the folder's contents, or the device.
pub fn load(folder: &Path, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
    Ok(Box::new(whisper::Whisper::load(folder, config)?))
}

/// A model of `shape` on the configured device, with weights that mean nothing: to measure with. Every attempt has
/// as many tokens as `lengths` says.
///
/// # Errors
/// See [`Error`]: the device.
pub fn synthetic(shape: &Shape, lengths: Lengths, config: &Config) -> Result<Box<dyn SpeechModel>, Error> {
    Ok(Box::new(whisper::Whisper::synthetic(shape, lengths, config)?))
}
