//! Whisper checkpoints: reads either layout on disk into one set of named tensors.
//!
//! | folder | files |
//! |---|---|
//! | Hugging Face | `model.safetensors` (or shards with an index), `config.json`, `tokenizer.json` |
//! | CTranslate2 | `model.bin`, `config.json`, `tokenizer.json` |

mod ctranslate2;
mod random;
mod safetensors;
mod tensors;

use std::path::Path;

use super::Error;

#[cfg(test)]
pub use random::of_numbers;
pub use random::{DEVIATION, Shape, random};
pub use tensors::{AUDIO_POSITIONS, Dimensions, FeedForward, LayerNorm, Linear, TEXT_POSITIONS, Weights};

/// The dimensions of the model in `folder`, without reading its weights.
///
/// # Errors
/// As [`read`], where the file's table of contents shows it.
pub fn dimensions(folder: &Path) -> Result<Dimensions, Error> {
    if folder.join("model.bin").is_file() {
        ctranslate2::dimensions(&folder.join("model.bin"))
    } else {
        safetensors::dimensions(folder)
    }
}

/// Reads the checkpoint in `folder`, in either layout.
///
/// # Errors
/// [`Error::NoWeights`] without a file of weights; [`Error::BadWeights`] if the file is damaged, or a tensor is missing
/// or has a shape that contradicts the others.
pub fn read(folder: &Path) -> Result<Weights, Error> {
    let weights = if folder.join("model.bin").is_file() {
        ctranslate2::read(&folder.join("model.bin"))?
    } else if folder.join("model.safetensors").is_file()
        || folder.join("model.safetensors.index.json").is_file()
    {
        safetensors::read(folder)?
    } else {
        return Err(Error::NoWeights { folder: folder.to_owned() });
    };
    weights.check()?;
    Ok(weights)
}
