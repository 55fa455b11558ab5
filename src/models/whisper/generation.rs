//! The decoding settings in a checkpoint's configuration, in either layout.

use std::path::Path;

use serde::Deserialize;

use super::tokenizer::TokenId;
use crate::models::Error;

/// Every field is optional, as older checkpoints lack them.
#[derive(Debug, Default)]
pub struct Generation {
    /// (layer, head) whose cross-attention follows the audio in time.
    pub alignment_heads: Option<Vec<(usize, usize)>>,
    pub suppressed: Option<Vec<TokenId>>,
    pub suppressed_first: Option<Vec<TokenId>>,
}

#[derive(Debug, Default, Deserialize)]
struct File {
    alignment_heads: Option<Vec<(usize, usize)>>,
    // CTranslate2 and transformers name the same lists differently.
    #[serde(alias = "suppress_tokens")]
    suppress_ids: Option<Vec<i64>>,
    #[serde(alias = "begin_suppress_tokens")]
    suppress_ids_begin: Option<Vec<i64>>,
}

impl Generation {
    /// Reads `config.json` and, overriding it, `generation_config.json` if there is one.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let mut merged = File::default();
        for name in ["config.json", "generation_config.json"] {
            let path = folder.join(name);
            let text = match std::fs::read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(Error::Io { path, source }),
            };
            let file: File = serde_json::from_slice(&text)
                .map_err(|source| Error::BadJson { path: path.clone(), source })?;
            merged = File {
                alignment_heads: file.alignment_heads.or(merged.alignment_heads),
                suppress_ids: file.suppress_ids.or(merged.suppress_ids),
                suppress_ids_begin: file.suppress_ids_begin.or(merged.suppress_ids_begin),
            };
        }
        // A list of -1 alone stands for the tokenizer's own list.
        let tokens = |ids: Option<Vec<i64>>| {
            let tokens: Vec<TokenId> = ids?.into_iter().filter_map(|id| TokenId::try_from(id).ok()).collect();
            (!tokens.is_empty()).then_some(tokens)
        };
        Ok(Self {
            alignment_heads: merged.alignment_heads,
            suppressed: tokens(merged.suppress_ids),
            suppressed_first: tokens(merged.suppress_ids_begin),
        })
    }

    /// The alignment heads, checked against the model. By default all heads of the upper half of the layers
    /// (openai/whisper `model.py`).
    pub fn alignment_heads(&self, layers: usize, heads: usize) -> Result<Vec<(usize, usize)>, Error> {
        match &self.alignment_heads {
            Some(named) if named.iter().all(|&(layer, head)| layer < layers && head < heads) => {
                Ok(named.clone())
            }
            Some(_) => Err(Error::BadWeights("alignment_heads names a head that the model lacks".into())),
            None => {
                Ok((layers / 2..layers).flat_map(|layer| (0..heads).map(move |head| (layer, head))).collect())
            }
        }
    }
}
