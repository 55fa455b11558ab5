//! Estimates of the memory that a model will need, on the CPU or on a CUDA device, before it is loaded.

use super::weights::{AUDIO_POSITIONS, Dimensions, TEXT_POSITIONS};
use super::{AudioCacheType, ComputeType, Config, Error, devices};
use crate::cpu::{Instructions, Level};
use crate::cuda::{DeviceMemory, KEPT_ROWS};

/// Device memory for libtorch's and cuBLASLt's own use, logits, the slots' terms, and a batch's audio and features (21 MB
/// for 8 windows). An estimate.
const DEVICE_BYTES: usize = 768 << 20;
/// Bytes of the encoder's activations for each audio position and element of its width. An estimate: the residual in
/// f32 and, in bf16, a layer's norm, queries, keys and values, and the wide product before and after GELU.
const ENCODER_BYTES: usize = 32;

/// The memory that a model needs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub weights: u64,
    /// Keys and values of all slots.
    pub slots: u64,
}

/// The memory that a model of `dimensions` needs on the CPU; `None` on CUDA, where [`check_device`] applies once the
/// device is open.
///
/// # Errors
/// Those of `dimensions`, or a missing device.
pub fn footprint(
    dimensions: impl FnOnce() -> Result<Dimensions, Error>,
    config: &Config,
) -> Result<Option<Footprint>, Error> {
    if devices::find(config)?.is_cuda() {
        return Ok(None);
    }
    let number_bytes = match config.compute_type {
        ComputeType::F32 => 4,
        ComputeType::Auto if !Level::detect().has(Instructions::Avx512Products) => 4,
        ComputeType::Auto | ComputeType::Bf16 | ComputeType::Int8 => 2,
    };
    Ok(Some(Footprint::new(&dimensions()?, config.slots(false), number_bytes, number_bytes)))
}

/// Sizes that the working memory on a CUDA device depends on, beside the model's.
#[derive(Debug, Clone, Copy)]
pub struct Working {
    /// Windows that are encoded at once.
    pub encode_batch: usize,
    /// Alignment heads whose scores are kept.
    pub alignment_heads: usize,
}

/// Checks that the model in bf16 fits into the free memory of a CUDA device.
///
/// # Errors
/// [`Error::DeviceMemory`], which names settings that would help.
pub fn check_device(
    dimensions: &Dimensions,
    config: &Config,
    working: Working,
    memory: DeviceMemory,
) -> Result<(), Error> {
    let Working { encode_batch, alignment_heads } = working;
    let audio_bytes = if config.audio_cache == AudioCacheType::Fp8 { 1 } else { 2 };
    let Footprint { weights, slots } = Footprint::new(dimensions, config.slots(true), 2, audio_bytes);
    let scores = config.slots(true).saturating_mul(4 * KEPT_ROWS * AUDIO_POSITIONS * alignment_heads);
    let slots = slots.saturating_add(scores as u64);
    let encoder = (ENCODER_BYTES * AUDIO_POSITIONS * encode_batch).saturating_mul(dimensions.width);
    let working = DEVICE_BYTES.saturating_add(encoder) as u64;
    let needed = [weights, slots, working].into_iter().fold(0, u64::saturating_add);
    if needed <= memory.free {
        return Ok(());
    }
    let never = needed > memory.total;
    let [needed, free, weights, slots, working] =
        [needed, memory.free, weights, slots, working].map(|n| n >> 20);
    Err(Error::DeviceMemory { needed, free, weights, slots, working, never })
}

impl Footprint {
    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self {
            weights: self.weights.saturating_add(other.weights),
            slots: self.slots.saturating_add(other.slots),
        }
    }

    /// `number_bytes`: size of an element of the weights and the text cache. `audio_bytes`: of the audio cache.
    fn new(dimensions: &Dimensions, slots: usize, number_bytes: usize, audio_bytes: usize) -> Self {
        let &Dimensions { width, decoder_layers, elements } = dimensions;
        let positions = AUDIO_POSITIONS * audio_bytes + TEXT_POSITIONS * number_bytes;
        let slot = decoder_layers.saturating_mul(2 * positions).saturating_mul(width);
        Self {
            weights: elements.saturating_mul(number_bytes) as u64,
            slots: slot.saturating_mul(slots) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_room_is_refused_with_what_it_lacks() {
        // large-v3, whose slots have 245.76 MB of audio and 73.4 MB of text each.
        let large = Dimensions { width: 1280, decoder_layers: 32, elements: 1_543_490_560 };
        let config = |slots, audio_cache| Config { slots, audio_cache, ..Config::default() };
        let working = |alignment_heads| Working { encode_batch: 8, alignment_heads };
        let of = |gigabytes| DeviceMemory { free: gigabytes * 1_000_000_000, total: 80_000_000_000 };
        let fits = |slots, audio_cache, gigabytes: u64| {
            check_device(&large, &config(slots, audio_cache), working(0), of(gigabytes))
        };
        assert!(fits(0, AudioCacheType::Auto, 25).is_ok());
        assert!(fits(0, AudioCacheType::Auto, 24).is_err());
        assert!(fits(0, AudioCacheType::Fp8, 17).is_ok());
        let error = fits(128, AudioCacheType::Auto, 40).expect_err("too many").to_string();
        assert!(error.contains("38960 for models.slots"), "{error}");
        // Scores of 10 alignment heads: 15.36 MB for each slot, 1.97 GB.
        let config = config(128, AudioCacheType::Auto);
        let error = check_device(&large, &config, working(10), of(40)).expect_err("too many").to_string();
        assert!(error.contains("40835 for models.slots"), "{error}");
        // It fits on the device if nothing else is there, and a smaller device never has the room.
        let never = |memory| match check_device(&large, &config, working(10), memory) {
            Err(Error::DeviceMemory { never, .. }) => never,
            other => panic!("{other:?}"),
        };
        assert!(!never(of(1)));
        assert!(never(DeviceMemory { free: 1, total: 40_000_000_000 }));
    }
}
