//! The configuration of the model: its name, its device and its number formats.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cuda::StageTimes;
use crate::hub;

/// The model to load, its device, and how to compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A known name (`base`, `large-v3`, …) or a folder. Default `base`.
    pub model: String,
    /// Default `auto`: all CUDA devices if they work, otherwise the CPU.
    pub device: DeviceChoice,
    /// Default `auto`: bf16 on CUDA; on a CPU int8 if it has instructions for products of int8 and bf16, otherwise
    /// f32.
    pub compute_type: ComputeType,
    /// Threads for inference on the CPU. Default 0: one for each core.
    pub threads: usize,
    /// How much of its 30 s context the encoder sees of a shorter window. Default `auto`: `short` on a CPU in bf16
    /// and int8, otherwise `full`.
    pub audio_context: AudioContext,
    /// The number format of the slots' audio caches. Default `auto`: that of `compute_type`.
    pub audio_cache: AudioCacheType,
    /// Windows decoded side by side, each with memory allocated at the start. Default 0: 64 on CUDA, 8 on a CPU,
    /// where more gain nothing.
    pub slots: usize,
    /// Folder with libtorch_cuda.so, the CUDA part of libtorch 2.11.0. Default: beside the CPU part, then the
    /// loader's search path.
    pub libtorch_cuda: Option<PathBuf>,
    /// Cache folder of kernels compiled for this machine's GPUs; empty for no cache. Default
    /// `$XDG_CACHE_HOME/verbatim/kernels`, or `~/.cache/verbatim/kernels`.
    pub kernel_dir: PathBuf,
    pub hub: hub::Config,
    /// Where the model adds the device's times of its stages, on CUDA in bf16; for benchmarks.
    #[serde(skip)]
    pub stage_times: Option<StageTimes>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: "base".into(),
            device: DeviceChoice::Auto,
            compute_type: ComputeType::Auto,
            threads: 0,
            audio_context: AudioContext::Auto,
            audio_cache: AudioCacheType::Auto,
            slots: 0,
            libtorch_cuda: None,
            kernel_dir: PathBuf::new(),
            hub: hub::Config::default(),
            stage_times: None,
        }
    }
}

impl Config {
    /// [`Config::slots`], or its default for the device.
    pub(super) fn slots(&self, on_cuda: bool) -> usize {
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
    /// All CUDA devices if they work, otherwise the CPU.
    Auto,
    Cpu,
    /// All CUDA devices, or the one with this index.
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
    /// f32 throughout: the reference.
    F32,
    /// Weights and caches in bf16, sums in f32.
    Bf16,
    /// Weights and audio cache in int8 on a CPU, the rest as `bf16`.
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AudioContext {
    Auto,
    /// The full context with padding, as in training.
    Full,
    /// The audio and some padding: several times faster for a few seconds of audio. A window whose first attempt
    /// fails is encoded again in full.
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AudioCacheType {
    Auto,
    /// e4m3 on CUDA in bf16: half the memory and half the reads of each step, but less exact (benches/RESULTS.md).
    Fp8,
}
