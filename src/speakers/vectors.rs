//! Embeddings of the chunks of regions, computed some regions at a time.

use std::ops::Range;

use super::batching::Batcher;
use super::chunks::{self, Chunk, Piece};
use super::clustering::Embedded;
use super::error::Error;
use super::filter_bank::filter_banks;

/// A region with its chunks, waiting for their embeddings.
pub struct Pending {
    pub chunks: Vec<Chunk>,
    pub pieces: Vec<Piece>,
}

/// The embeddings of the chunks of all `regions`, in order, and the chunks. `samples` gives the audio of a range.
///
/// # Errors
/// As the networks'.
pub async fn embed(
    batcher: &Batcher,
    regions: Vec<Pending>,
    samples: impl Fn(Range<usize>) -> Vec<f32>,
) -> Result<(Vec<Chunk>, Vec<Embedded>), Error> {
    if regions.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let place = batcher.place().await;
    let audio: Vec<Vec<f32>> =
        regions.iter().flat_map(|region| &region.pieces).map(|piece| samples(piece.samples())).collect();
    let banks =
        blocking(move || audio.iter().map(|audio| Piece::normalized(filter_banks(audio))).collect()).await?;
    let features = place.trunk(banks).await?;
    let pooled = blocking(move || pool(regions, &features)).await?;
    let (chunks, statistics): (Vec<Chunk>, Vec<Vec<f32>>) = pooled.into_iter().unzip();
    let vectors = batcher.place().await.embed(statistics).await?;
    let embedded = chunks.iter().zip(vectors);
    let embedded =
        embedded.map(|(chunk, vector)| Embedded { vector, clean_seconds: chunk.clean_seconds }).collect();
    Ok((chunks, embedded))
}

fn pool(regions: Vec<Pending>, mut features: &[Vec<f32>]) -> Vec<(Chunk, Vec<f32>)> {
    let mut pooled = Vec::new();
    for region in regions {
        let (own, rest) = features.split_at(region.pieces.len().min(features.len()));
        features = rest;
        for chunk in region.chunks {
            let pieces = region.pieces.iter().zip(own.iter().map(Vec::as_slice));
            if let Some(statistics) = chunks::statistics(&chunk, pieces) {
                pooled.push((chunk, statistics));
            }
        }
    }
    pooled
}

/// Runs `work` on a thread that may block.
///
/// # Errors
/// [`Error::Failed`] if it panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Failed)
}
