//! What a model takes up in the machine's memory, before it is loaded.

use std::path::Path;

use super::weights::{self, Dimensions};
use super::{ComputeType, Config, Error, place};
use crate::cpu::Level;

/// Encoder positions and text positions whose keys and values a slot holds for each decoder layer.
const SLOT_POSITIONS: usize = 1500 + 448;

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub weights: u64,
    /// Keys and values of all slots.
    pub slots: u64,
}

/// `None` for a model that goes to a device with memory of its own.
///
/// # Errors
/// A folder without weights, or with damaged ones; a device that is not there.
pub fn footprint(folder: &Path, config: &Config) -> Result<Option<Footprint>, Error> {
    if place::find(config)?.is_cuda() {
        return Ok(None);
    }
    let number_bytes = match config.compute_type {
        ComputeType::F32 => 4,
        ComputeType::Auto if Level::detect() < Level::Avx512Products => 4,
        ComputeType::Auto | ComputeType::Bf16 | ComputeType::Int8 => 2,
    };
    let Dimensions { width, decoder_layers, elements } = weights::dimensions(folder)?;
    Ok(Some(Footprint {
        weights: elements.saturating_mul(number_bytes) as u64,
        slots: (2 * decoder_layers * SLOT_POSITIONS * number_bytes)
            .saturating_mul(width)
            .saturating_mul(config.slots(false)) as u64,
    }))
}
