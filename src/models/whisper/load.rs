//! Loading: a checkpoint, or a mere shape, becomes a model on its hardware.

use std::path::Path;
use std::sync::Arc;

use tch::{Device, Kind};

use super::backend::{Backend, CudaBackend, HostBackend, Sampler, TorchBackend};
use super::decoder::{device, host, torch};
use super::generation::Generation;
use super::rules::Rules;
use super::sequence::Sequences;
use super::synthetic::Lengths;
use super::tokenizer::Tokenizer;
use super::{Slot, Whisper, prompt_tokens, prompt_tokens_max};
use crate::cpu::{Instructions, Level, Threads};
use crate::cuda::{self, DeviceMemory, StageTimes};
use crate::engine::{ModelInfo, Progress, TokenCount};
use crate::models::weights::{self, Dimensions, Shape};
use crate::models::{
    AudioCacheType, AudioContext, ComputeType, Config, Error, SYNTHETIC, devices, footprint,
};

/// The contents of a checkpoint.
pub struct Model {
    pub name: String,
    pub weights: weights::Weights,
    pub tokenizer: Tokenizer,
    pub generation: Generation,
}

/// The hardware that a model runs on, opened; each kind has its [`Backend`].
pub enum Hardware {
    Cpu,
    /// A CUDA device in f32, which only libtorch computes in.
    Torch(Device),
    /// A device that runs the kernels of [`crate::cuda`].
    Kernels(Accelerator),
}

/// A device that runs the kernels of [`crate::cuda`], on memory that libtorch allocates.
pub struct Accelerator {
    pub torch_device: Device,
    pub device: Box<dyn cuda::Device>,
    /// Free bytes of the device's own memory, where they are known.
    pub memory: Option<DeviceMemory>,
    /// For people.
    pub name: String,
}

/// How a model is placed on its hardware.
struct Plan {
    slots: usize,
    /// Not `Auto`.
    compute_type: ComputeType,
    /// Whether the audio caches are in e4m3.
    is_fp8: bool,
    /// Threads on the CPU.
    threads: usize,
    /// Of what they compute.
    progress: Progress,
    /// (layer, head), by layer.
    alignment_heads: Vec<(usize, usize)>,
    stage_times: Option<StageTimes>,
}

impl Plan {
    fn numbers(&self) -> host::Numbers {
        match self.compute_type {
            ComputeType::F32 => host::Numbers::F32,
            ComputeType::Bf16 => host::Numbers::BF16,
            ComputeType::Int8 | ComputeType::Auto => host::Numbers::INT8,
        }
    }

    fn on_torch(self, torch_device: Device) -> torch::Placement {
        let Self { slots, alignment_heads, .. } = self;
        let kind = if self.compute_type == ComputeType::F32 { Kind::Float } else { Kind::BFloat16 };
        let audio_kind = if self.is_fp8 { Kind::Float8e4m3fn } else { kind };
        torch::Placement { slots, torch_device, kind, audio_kind, alignment_heads }
    }
}

/// Windows that a CUDA device encodes at once; more gain nothing.
const ENCODE_BATCH: usize = 8;

impl Hardware {
    /// Opens the device that `config` names; call it before placing tensors there.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let torch_device = devices::find(config)?;
        match torch_device {
            // The kernels are written for bf16; the reference is libtorch's.
            Device::Cuda(ordinal) if config.compute_type != ComputeType::F32 => {
                let runner = cuda::Runner::new(ordinal, &config.kernel_dir)?;
                Ok(Self::Kernels(Accelerator {
                    torch_device,
                    name: format!("cuda:{ordinal}, {}", runner.name()),
                    memory: runner.memory(),
                    device: Box::new(runner),
                }))
            }
            Device::Cuda(_) => Ok(Self::Torch(torch_device)),
            _ => Ok(Self::Cpu),
        }
    }

    fn torch_device(&self) -> Device {
        match self {
            Self::Cpu => Device::Cpu,
            Self::Torch(torch_device) | Self::Kernels(Accelerator { torch_device, .. }) => *torch_device,
        }
    }

    fn memory(&self) -> Option<DeviceMemory> {
        match self {
            Self::Cpu | Self::Torch(_) => None,
            Self::Kernels(accelerator) => accelerator.memory,
        }
    }

    /// For people.
    fn name(&self) -> String {
        match self {
            Self::Kernels(accelerator) => accelerator.name.clone(),
            Self::Torch(Device::Cuda(ordinal)) => format!("cuda:{ordinal}"),
            Self::Torch(_) | Self::Cpu => "cpu".into(),
        }
    }

    /// Places the network here.
    fn place(
        self,
        weights: weights::Weights,
        plan: Plan,
        tokenizer: &Tokenizer,
        rules: Rules,
    ) -> Result<Box<dyn Backend>, Error> {
        let (text_positions, _) = weights.decoder_positions.size2()?;
        let sampler = |rules| Sampler {
            rules,
            no_speech: tokenizer.special.no_speech,
            text_positions: text_positions as usize,
        };
        let progress = plan.progress.clone();
        let threads = || Threads::new(plan.threads).reporting(move || progress.step());
        Ok(match self {
            Self::Cpu => {
                let (numbers, threads) = (plan.numbers(), threads());
                let Plan { slots, alignment_heads, stage_times, .. } = plan;
                let placement = host::Placement { slots, numbers, threads, alignment_heads };
                Box::new(HostBackend::new(weights, placement, sampler(rules))?.timed_by(stage_times))
            }
            Self::Torch(torch_device) => {
                let threads = threads();
                let placement = plan.on_torch(torch_device);
                Box::new(TorchBackend::new(weights, placement, threads, sampler(rules))?)
            }
            Self::Kernels(Accelerator { torch_device, device, .. }) => {
                let stage_times = plan.stage_times.clone();
                let placement = plan.on_torch(torch_device);
                let batch = ENCODE_BATCH.min(placement.slots);
                let mut backend = CudaBackend::new(weights, placement, device, rules.table(tokenizer))?;
                if torch_device.is_cuda() {
                    backend.warm_up(batch)?;
                }
                if let Some(times) = stage_times {
                    backend.measure(times);
                }
                Box::new(backend)
            }
        })
    }
}

/// Checks that a model of `dimensions` fits into the free memory of a CUDA device.
fn check_device(
    dimensions: &Dimensions,
    generation: &Generation,
    config: &Config,
    memory: DeviceMemory,
) -> Result<(), Error> {
    let (layers, heads) = (dimensions.decoder_layers, dimensions.width / cuda::HEAD);
    let alignment_heads = generation.alignment_heads(layers, heads)?.len();
    let working = footprint::Working {
        encode_batch: ENCODE_BATCH,
        alignment_heads: device::kept_heads(alignment_heads),
    };
    footprint::check_device(dimensions, config, working, memory)
}

impl Whisper {
    pub fn load(folder: &Path, config: &Config) -> Result<Self, Error> {
        let hardware = Hardware::open(config)?;
        let generation = Generation::read(folder)?;
        if let Some(memory) = hardware.memory() {
            check_device(&weights::dimensions(folder)?, &generation, config, memory)?;
        }
        let weights = weights::read(folder)?;
        let (vocabulary, _) = weights.token_embedding.size2()?;
        let model = Model {
            name: folder.file_name().map_or("whisper".into(), |name| name.to_string_lossy().into_owned()),
            tokenizer: Tokenizer::read(folder, vocabulary as usize)?,
            generation,
            weights,
        };
        Self::build(model, config, hardware)
    }

    /// A model of `shape` with random weights, whose attempts are as long as `lengths` says.
    pub fn synthetic(shape: &Shape, lengths: Lengths, config: &Config) -> Result<Self, Error> {
        let hardware = Hardware::open(config)?;
        let tokenizer = Tokenizer::synthetic(shape.vocabulary)?;
        let generation = Generation {
            alignment_heads: shape.alignment_heads().map(<[_]>::to_vec),
            suppressed: Some(tokenizer.synthetic_suppressed()),
            ..Generation::default()
        };
        if let Some(memory) = hardware.memory() {
            check_device(&shape.dimensions(), &generation, config, memory)?;
        }
        let torch_device = hardware.torch_device();
        let kind = if torch_device.is_cuda() { Kind::BFloat16 } else { Kind::Float };
        let model = Model {
            name: format!("{SYNTHETIC}{}", shape.name),
            weights: weights::random(shape, weights::DEVIATION, (torch_device, kind))?,
            generation,
            tokenizer,
        };
        Ok(Self { lengths: Some(lengths), ..Self::build(model, config, hardware)? })
    }

    /// Places `model` on `hardware` as `config` says.
    pub fn build(model: Model, config: &Config, hardware: Hardware) -> Result<Self, Error> {
        let Model { name, weights, tokenizer, generation } = model;
        let torch_device = hardware.torch_device();
        let on_cuda = torch_device.is_cuda();
        let compute_type = match config.compute_type {
            ComputeType::Auto if on_cuda => ComputeType::Bf16,
            // Without the instructions both are slower than f32.
            ComputeType::Auto if Level::detect().has(Instructions::Avx512Products) => ComputeType::Int8,
            ComputeType::Auto => ComputeType::F32,
            named => named,
        };
        let is_fp8 = config.audio_cache == AudioCacheType::Fp8 && matches!(hardware, Hardware::Kernels(_));
        if config.audio_cache == AudioCacheType::Fp8 && !is_fp8 {
            tracing::warn!("models.audio_cache = \"fp8\" is for CUDA in bf16, and has no effect");
        }
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            threads => threads,
        };
        tch::set_num_threads(threads.try_into().unwrap_or(i32::MAX));
        let _guard = tch::no_grad_guard();

        let (text_positions, _) = weights.decoder_positions.size2()?;
        let alignment_heads =
            generation.alignment_heads(weights.decoder_layers.len(), weights.decoder_heads)?;
        let languages = tokenizer.languages.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>();
        let described = hardware.name();
        let tokenizer = Arc::new(tokenizer);
        let (reader, most) = (tokenizer.clone(), prompt_tokens_max(text_positions as usize));
        let prompt_tokens = TokenCount::new(move |text| prompt_tokens(&reader, text).len().min(most));
        let info = ModelInfo {
            uuid: ModelInfo::uuid_of(&name),
            name,
            languages: if languages.is_empty() { vec!["en".into()] } else { languages },
            slots: config.slots(on_cuda),
            encode_batch: if on_cuda { ENCODE_BATCH } else { 1 },
            device: match torch_device {
                Device::Cpu => format!("{described}, {compute_type:?}, {threads} threads").to_lowercase(),
                _ if is_fp8 => format!("{described}, {compute_type:?}, audio in fp8").to_lowercase(),
                _ => format!("{described}, {compute_type:?}").to_lowercase(),
            },
            prompt_tokens,
        };
        let rules = Rules::new(&tokenizer, generation.suppressed, generation.suppressed_first);
        let slots = info.slots;
        let stage_times = config.stage_times.clone();
        let progress = Progress::default();
        let plan = Plan {
            slots,
            compute_type,
            is_fp8,
            threads,
            progress: progress.clone(),
            alignment_heads,
            stage_times,
        };
        let backend = hardware.place(weights, plan, &tokenizer, rules)?;
        Ok(Self {
            full_context: match config.audio_context {
                AudioContext::Auto => on_cuda || compute_type == ComputeType::F32,
                AudioContext::Full => true,
                AudioContext::Short => false,
            },
            backend,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            sequences: Sequences::new(slots),
            text_positions: text_positions as usize,
            lengths: None,
            biases: Vec::new(),
            progress,
            info,
            tokenizer,
        })
    }
}
