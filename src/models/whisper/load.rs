//! From a checkpoint, or from nothing but a shape, to a model on a device.

use std::path::Path;

use tch::{Device, Kind};

use super::decoder::{self, Decoder, Numbers, Placement};
use super::encoder::Encoder;
use super::features::DeviceLogMel;
use super::generation::Generation;
use super::rules::Rules;
use super::synthetic::Lengths;
use super::tokenizer::Tokenizer;
use super::{Slot, Whisper};
use crate::audio::LogMel;
use crate::cpu::{Instructions, Level, Threads};
use crate::cuda;
use crate::engine::ModelInfo;
use crate::models::weights::{self, Shape};
use crate::models::{AudioCache, AudioContext, ComputeType, Config, Error, footprint, place};

/// What a checkpoint holds.
pub struct Model {
    pub name: String,
    pub weights: weights::Weights,
    pub tokenizer: Tokenizer,
    pub generation: Generation,
}

/// Where a model runs: libtorch's device, and ours there.
pub struct Hall {
    pub place: Device,
    pub device: Option<Box<dyn cuda::Device>>,
    /// Of the device's own memory, where it is known.
    pub free_bytes: Option<u64>,
    /// For people.
    pub name: String,
}

/// Windows that a CUDA device encodes at once: more gain nothing.
const ENCODE_BATCH: usize = 8;

impl Hall {
    /// The device that `config` names. Comes before anything is placed on it.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let place = place::find(config)?;
        match place {
            // The kernels are written for bf16; the reference is libtorch's.
            Device::Cuda(ordinal) if config.compute_type != ComputeType::F32 => {
                let rows_max = decoder::device::rows_max(config.slots(true));
                let runner = cuda::Runner::new(ordinal, &config.kernel_dir, rows_max)?;
                let name = format!("cuda:{ordinal}, {}", runner.name());
                let free_bytes = runner.free_bytes();
                Ok(Self { place, device: Some(Box::new(runner)), free_bytes, name })
            }
            Device::Cuda(ordinal) => Ok(Self::without_kernels(place, format!("cuda:{ordinal}"))),
            _ => Ok(Self::without_kernels(place, "cpu".into())),
        }
    }

    pub fn without_kernels(place: Device, name: String) -> Self {
        Self { place, device: None, free_bytes: None, name }
    }
}

impl Whisper {
    pub fn load(folder: &Path, config: &Config) -> Result<Self, Error> {
        let hall = Hall::open(config)?;
        if let Some(free) = hall.free_bytes {
            footprint::check_device(&weights::dimensions(folder)?, config, ENCODE_BATCH, free)?;
        }
        let weights = weights::read(folder)?;
        let (vocabulary, _) = weights.token_embedding.size2()?;
        let model = Model {
            name: folder.file_name().map_or("whisper".into(), |name| name.to_string_lossy().into_owned()),
            tokenizer: Tokenizer::read(folder, vocabulary as usize)?,
            generation: Generation::read(folder)?,
            weights,
        };
        Self::build(model, config, hall)
    }

    /// Of a shape, with weights that mean nothing: every attempt is as long as `lengths` says.
    pub fn synthetic(shape: &Shape, lengths: Lengths, config: &Config) -> Result<Self, Error> {
        let hall = Hall::open(config)?;
        let kind = if hall.place.is_cuda() { Kind::BFloat16 } else { Kind::Float };
        let model = Model {
            name: shape.name.to_owned(),
            weights: weights::random(shape, weights::DEVIATION, (hall.place, kind))?,
            tokenizer: Tokenizer::synthetic(shape.vocabulary)?,
            generation: Generation::default(),
        };
        Ok(Self { lengths: Some(lengths), ..Self::build(model, config, hall)? })
    }

    pub fn build(model: Model, config: &Config, hall: Hall) -> Result<Self, Error> {
        let Model { name, mut weights, tokenizer, generation } = model;
        let Hall { place, device, name: hall, .. } = hall;
        let on_cuda = place.is_cuda();
        let compute_type = match config.compute_type {
            ComputeType::Auto if on_cuda => ComputeType::Bf16,
            // Without the instructions both are slower than f32.
            ComputeType::Auto if Level::detect().has(Instructions::Avx512Products) => ComputeType::Int8,
            ComputeType::Auto => ComputeType::F32,
            named => named,
        };
        let (kind, numbers) = match compute_type {
            ComputeType::F32 => (Kind::Float, Numbers::F32),
            ComputeType::Bf16 => (Kind::BFloat16, Numbers::BF16),
            ComputeType::Int8 | ComputeType::Auto => (Kind::BFloat16, Numbers::INT8),
        };
        let audio_kind = match config.audio_cache {
            AudioCache::Fp8 if device.is_some() => Kind::Float8e4m3fn,
            AudioCache::Fp8 => {
                tracing::warn!("models.audio_cache = \"fp8\" is for CUDA in bf16, and has no effect");
                kind
            }
            AudioCache::Auto => kind,
        };
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            threads => threads,
        };
        tch::set_num_threads(threads.try_into().unwrap_or(i32::MAX));
        let _guard = tch::no_grad_guard();

        let (text_positions, _) = weights.decoder_positions.size2()?;
        let (_, bands, _) = weights.conv1.weight.size3()?;
        let alignment_heads =
            generation.alignment_heads(weights.decoder_layers.len(), weights.decoder_heads)?;
        let languages = tokenizer.languages.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>();
        let info = ModelInfo {
            uuid: uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()),
            name,
            languages: if languages.is_empty() { vec!["en".into()] } else { languages },
            slots: config.slots(on_cuda),
            encode_batch: if on_cuda { ENCODE_BATCH } else { 1 },
            device: match place {
                Device::Cpu => format!("{hall}, {compute_type:?}, {threads} threads").to_lowercase(),
                _ if audio_kind != kind => format!("{hall}, {compute_type:?}, audio in fp8").to_lowercase(),
                _ => format!("{hall}, {compute_type:?}").to_lowercase(),
            },
        };
        let threads = Threads::new(threads);
        let rules = Rules::new(&tokenizer, generation.suppressed, generation.suppressed_first);
        let log_mel = LogMel::new(bands as usize);
        let device_log_mel = match &device {
            Some(_) => Some(DeviceLogMel::new(&log_mel, place)?),
            None => None,
        };
        let host = (place == Device::Cpu && device.is_none()).then(|| (numbers.weights, threads.clone()));
        let placement = Placement {
            slots: info.slots,
            place,
            kind,
            audio_kind,
            numbers,
            threads: threads.clone(),
            alignment_heads,
        };
        let on_device = device.map(|device| (device, rules.table(&tokenizer)));
        let encoder = Encoder::new(&weights, (place, kind), host)?;
        weights.encoder_layers.clear();
        Ok(Self {
            rules,
            log_mel,
            device_log_mel,
            full_context: match config.audio_context {
                AudioContext::Auto => on_cuda || compute_type == ComputeType::F32,
                AudioContext::Full => true,
                AudioContext::Short => false,
            },
            encoder,
            decoder: Decoder::new(weights, placement, on_device)?,
            slots: (0..info.slots).map(|_| Slot::default()).collect(),
            text_positions: text_positions as usize,
            lengths: None,
            biases: Vec::new(),
            info,
            tokenizer,
            threads,
        })
    }
}
