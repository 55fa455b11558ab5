//! Spectral clustering on the graph of nearest neighbours, for recordings with many chunks.
//!
//! von Luxburg, "A tutorial on spectral clustering", Statistics and Computing 17 (2007); for speakers, Park et al.,
//! "Auto-tuning spectral clustering for speaker diarization using normalized maximum eigengap", IEEE Signal Processing
//! Letters 27 (2020).

use super::super::cosine::similarity;
use super::eigen::{Eigenpairs, Graph};
use super::kmeans::kmeans;

/// Neighbours of each chunk.
const NEIGHBOURS: usize = 15;
/// Speakers at the most, unless more are asked for.
pub const SPEAKERS_MAX: usize = 15;

/// The graph of chunks, decomposed.
pub struct Spectrum {
    pairs: Eigenpairs,
}

impl Spectrum {
    /// Decomposes the graph of `vectors`, which have unit length. `most` is the largest number of clusters that will be asked for.
    pub fn new(vectors: &[&[f32]], most: usize) -> Self {
        Self { pairs: graph(vectors).smallest(most + 1) }
    }

    /// The number of clusters, from `least` to `most`, after which the eigenvalues leap farthest.
    pub fn count(&self, least: usize, most: usize) -> usize {
        let values = &self.pairs.values;
        let gap = |count: usize| values[count] - values[count - 1];
        let most = most.min(values.len().saturating_sub(1));
        (least..=most).max_by(|&a, &b| gap(a).total_cmp(&gap(b)).then(b.cmp(&a))).unwrap_or(least)
    }

    /// The cluster, of `count`, of each chunk.
    pub fn clusters(&self, count: usize) -> Vec<usize> {
        let vectors = &self.pairs.vectors[..count.min(self.pairs.vectors.len())];
        let nodes = vectors.first().map_or(0, Vec::len);
        let rows: Vec<Vec<f64>> =
            (0..nodes).map(|node| vectors.iter().map(|vector| vector[node]).collect()).collect();
        kmeans(&rows, count)
    }
}

fn graph(vectors: &[&[f32]]) -> Graph {
    let mut neighbours: Vec<Vec<(usize, f64)>> = vec![Vec::new(); vectors.len()];
    let mut row: Vec<(f32, usize)> = Vec::with_capacity(vectors.len());
    for (at, vector) in vectors.iter().enumerate() {
        row.clear();
        row.extend(
            vectors
                .iter()
                .enumerate()
                .filter(|&(other, _)| other != at)
                .map(|(other, right)| (similarity(vector, right), other)),
        );
        // Each chunk is the nearest to itself.
        let count = (NEIGHBOURS - 1).min(row.len());
        if count > 0 {
            row.select_nth_unstable_by(count - 1, |a, b| b.0.total_cmp(&a.0));
        }
        for &(similarity, other) in row[..count].iter().filter(|edge| edge.0 > 0.0) {
            // Half from either side.
            neighbours[at].push((other, f64::from(similarity) / 2.0));
            neighbours[other].push((at, f64::from(similarity) / 2.0));
        }
    }
    Graph { neighbours }
}
