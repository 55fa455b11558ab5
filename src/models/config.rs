//! The configuration of the model: its name, its device and its number formats.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cuda::StageTimes;
use crate::hub;

/// Prefix of the names of synthetic models: `synthetic:tiny`.
pub const SYNTHETIC: &str = "synthetic:";

/// The model to load, its device, and how to compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A known name (`base`, `large-v3`, …) or a folder. Default `base`. `synthetic:NAME` makes random weights of that
    /// model's shape, to measure with: its transcripts mean nothing.
    pub model: String,
    /// Further models to serve beside `model`, each a known name or a folder. Requests choose by the parameter `model`; those
    /// that name none of them get `model`. Default: none.
    pub serve: Vec<String>,
    /// When the models of `serve` are loaded: `start` or `first_use`. Default `start`.
    pub load: LoadTime,
    /// A model of `serve` that nothing has used for this long is unloaded; the next request loads it again. Seconds; 0:
    /// never. Default 0.
    pub idle_seconds: u64,
    /// Further names that requests may use, each with the name of a served model: `{ whisper-1 = "base" }`. Default: none.
    pub names: BTreeMap<String, String>,
    /// Tokens of each 30 s window of a synthetic model: `64`, or `20-220` to spread them evenly. Needed for such a model,
    /// and allowed for no other. Default: none.
    pub synthetic_tokens: Option<TokenRange>,
    /// Default `auto`: all CUDA devices if they work, otherwise the CPU. `none`: this node of a cluster has no model, and
    /// accepts jobs for those that have.
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
    /// Where the model adds the times of its stages: the device's on CUDA in bf16, the clock's on a CPU. For benchmarks.
    #[serde(skip)]
    pub stage_times: Option<StageTimes>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: "base".into(),
            serve: Vec::new(),
            load: LoadTime::Start,
            idle_seconds: 0,
            names: BTreeMap::new(),
            synthetic_tokens: None,
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
    /// The name of a synthetic model's shape, which may be unknown; `None` for a model that was trained.
    pub fn synthetic_shape(&self) -> Option<&str> {
        self.model.strip_prefix(SYNTHETIC)
    }

    /// The names of all served models, each with its place in `model` and `serve`: `model` first, and no name twice.
    pub fn served(&self) -> Vec<(String, &str)> {
        let mut served: Vec<(String, &str)> = Vec::new();
        for model in std::iter::once(&self.model).chain(&self.serve) {
            let name = Self::name_of(model);
            if served.iter().all(|(other, _)| *other != name) {
                served.push((name, model));
            }
        }
        served
    }

    /// The name under which requests know `model`: a known model's own, a folder's last part.
    pub fn name_of(model: &str) -> String {
        if model.starts_with(SYNTHETIC) {
            return model.to_owned();
        }
        let name = Path::new(model).file_name().map_or("whisper".into(), |name| name.to_string_lossy());
        let alias = hub::ALIASES.iter().find(|(alias, _)| *alias == model);
        alias.map_or(name.into_owned(), |(_, name)| (*name).to_owned())
    }

    /// The names of the shapes of all synthetic models that are served.
    pub fn synthetic_shapes(&self) -> Vec<&str> {
        let models = std::iter::once(&self.model).chain(&self.serve);
        models.filter_map(|model| model.strip_prefix(SYNTHETIC)).collect()
    }

    /// [`Config::slots`], or its default for the device.
    pub(super) fn slots(&self, on_cuda: bool) -> usize {
        match self.slots {
            0 if on_cuda => 64,
            0 => 8,
            slots => slots,
        }
    }
}

/// When models beside the default are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadTime {
    Start,
    FirstUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// All CUDA devices if they work, otherwise the CPU.
    Auto,
    Cpu,
    /// All CUDA devices, or the one with this index.
    Cuda(Option<usize>),
    /// No model is loaded: this node of a cluster accepts jobs, and others do them.
    None,
}

impl std::str::FromStr for DeviceChoice {
    type Err = String;

    /// `auto`, `cpu`, `cuda`, `cuda:N`, `none`
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(None)),
            None if text == "none" => Ok(Self::None),
            Some(("cuda", index)) => index
                .parse()
                .map(|index| Self::Cuda(Some(index)))
                .map_err(|_| format!("`{text}`: no device index")),
            _ => Err(format!("`{text}` is none of auto, cpu, cuda, cuda:N and none")),
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
            DeviceChoice::None => "none".into(),
            DeviceChoice::Cuda(Some(index)) => format!("cuda:{index}"),
        }
    }
}

/// Numbers of tokens, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "Written")]
pub struct TokenRange {
    pub min: usize,
    pub max: usize,
}

impl TokenRange {
    /// The most tokens of one attempt at a window.
    pub const MAX: usize = 224;

    pub fn mean(self) -> f64 {
        (self.min + self.max) as f64 / 2.0
    }
}

impl std::str::FromStr for TokenRange {
    type Err = String;

    /// `64`, `20-220`
    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.trim().parse::<usize>().ok().filter(|count| (1..=Self::MAX).contains(count));
        let range = match text.split_once('-') {
            Some((min, max)) => number(min).zip(number(max)).filter(|(min, max)| min <= max),
            None => number(text).map(|count| (count, count)),
        };
        range.map(|(min, max)| Self { min, max }).ok_or_else(|| {
            format!(
                "`{text}` is none of a number of tokens and a range such as 20-220, of 1 to {}",
                Self::MAX
            )
        })
    }
}

/// A [`TokenRange`] in a configuration file: `64`, `"64"` or `"20-220"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl TryFrom<Written> for TokenRange {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl std::fmt::Display for TokenRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { min, max } if min == max => write!(formatter, "{min}"),
            Self { min, max } => write!(formatter, "{min}-{max}"),
        }
    }
}

impl From<TokenRange> for String {
    fn from(range: TokenRange) -> Self {
        range.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_models_have_one_name_each() {
        let serve = ["tiny.en", "base", "large", "/models/own", "large-v3"];
        let config = Config { serve: serve.map(str::to_owned).to_vec(), ..Config::default() };
        let served = config.served();
        let expected =
            [("base", "base"), ("tiny.en", "tiny.en"), ("large-v3", "large"), ("own", "/models/own")];
        assert_eq!(served, expected.map(|(name, model)| (name.to_owned(), model)));
    }

    #[test]
    fn tokens_are_a_number_or_a_range_and_written_as_they_are_read() {
        for (text, min, max) in [("64", 64, 64), ("20-220", 20, 220), ("1-224", 1, 224)] {
            let range: TokenRange = text.parse().expect(text);
            assert_eq!((range, range.to_string().as_str()), (TokenRange { min, max }, text));
        }
        assert_eq!(TokenRange { min: 40, max: 87 }.mean(), 63.5);
        for wrong in ["", "0", "220-20", "20-", "-5", "many", "225", "1-1000"] {
            assert!(wrong.parse::<TokenRange>().is_err(), "{wrong}");
        }
    }
}
