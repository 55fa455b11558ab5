//! Clustering of chunks for a number of speakers that is not known.

mod eigen;
mod kmeans;
mod labels;
mod linkage;
mod random;
mod spectral;

use std::ops::RangeInclusive;

use self::labels::compact;
use self::linkage::Linkage;
use self::spectral::{SPEAKERS_MAX, Spectrum};
use super::chunks::STEP_PART;
use super::cosine::{best, normalize, similarity};

/// Seconds of one speaker with which a chunk takes part in finding the clusters.
const CLEAN_SECONDS: f32 = 1.0;
/// Seconds of speech that a speaker needs, and share of all.
const SPEAKER_SECONDS: f32 = 1.2;
const SPEAKER_SHARE: f32 = 0.02;
/// Chunks that clusters are found from, at the most; the others are assigned to their centres.
const CLUSTERED_MAX: usize = 1_500;
/// With as many chunks the spectrum tells the number of speakers, with fewer the distances.
const SPECTRAL_CHUNKS: usize = 60;
/// Cosine of centres above which two clusters are one speaker. On made conversations and telephone calls the centres of
/// different speakers come up to 0.54, and parts of one speaker's chunks down to 0.74.
pub const SAME_SPEAKER: f32 = 0.70;
/// The same for the last two clusters where segmentation saw two speakers: a telephone brings voices nearer to each other,
/// while parts of a monologue in a room with echo, where it errs, come from 0.84 up.
const SAME_SPEAKER_AFTER_ALL: f32 = 0.78;
/// Where linkage stops: this part of the distance that nine of ten pairs of chunks don't exceed, within bounds. If
/// segmentation saw no two speakers, the lower bound is the last.
const CUT_PART: f32 = 0.75;
const CUT: RangeInclusive<f32> = 0.36..=0.56;
const CUT_ALONE: f32 = 0.48;
/// Rounds of spherical k-means.
const ROUNDS: usize = 2;

/// An embedded chunk.
#[derive(Debug, Clone)]
pub struct Embedded {
    /// Its embedding, of unit length.
    pub vector: Vec<f32>,
    /// Seconds in which one speaker talks.
    pub clean_seconds: f32,
}

/// How many speakers there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// Bounds that hold wherever there are enough chunks.
    pub least: usize,
    pub most: usize,
    /// Whether segmentation saw two speakers in enough windows.
    pub saw_two: bool,
}

/// The centres of the speakers among `chunks`, of unit length.
pub fn centres(chunks: &[Embedded], count: Count) -> Vec<Vec<f32>> {
    let chosen = representative(chunks);
    let vectors: Vec<&[f32]> = chosen.iter().map(|&at| chunks[at].vector.as_slice()).collect();
    if vectors.is_empty() {
        return Vec::new();
    }
    let weights: Vec<f32> = chosen.iter().map(|&at| chunks[at].clean_seconds * STEP_PART).collect();
    let least = count.least.min(count.most).min(vectors.len());
    let most = count.most.min(vectors.len()).max(least);
    let labels = if vectors.len() >= SPECTRAL_CHUNKS {
        spectral(&vectors, &weights, least, most, count.saw_two)
    } else {
        linked(&vectors, &weights, least, most, count.saw_two)
    };
    refined(&vectors, labels)
}

/// The chunks that clusters are found from.
fn representative(chunks: &[Embedded]) -> Vec<usize> {
    let finite = |at: &usize| chunks[*at].vector.iter().all(|value| value.is_finite());
    let usable: Vec<usize> = (0..chunks.len()).filter(finite).collect();
    let clean = |seconds: f32| -> Vec<usize> {
        usable.iter().copied().filter(|&at| chunks[at].clean_seconds >= seconds).collect()
    };
    let mut chosen = clean(CLEAN_SECONDS);
    if chosen.len() < 2 {
        let mut by_length: Vec<f32> = usable.iter().map(|&at| chunks[at].clean_seconds).collect();
        by_length.sort_by(|a, b| b.total_cmp(a));
        chosen = by_length
            .get(1.min(by_length.len().saturating_sub(1)))
            .map_or(Vec::new(), |&seconds| clean(seconds));
    }
    if chosen.len() > CLUSTERED_MAX {
        chosen = (0..CLUSTERED_MAX).map(|at| chosen[at * (chosen.len() - 1) / (CLUSTERED_MAX - 1)]).collect();
    }
    chosen
}

fn spectral(vectors: &[&[f32]], weights: &[f32], least: usize, most: usize, saw_two: bool) -> Vec<usize> {
    let bound = most.min(SPEAKERS_MAX).max(least);
    let spectrum = Spectrum::new(vectors, bound);
    // Two local speakers may still be one, as they sometimes are in a room with echo: then they are joined below.
    let labels = spectrum.clusters(spectrum.count(least.max(if saw_two { 2 } else { 1 }).min(bound), bound));
    merged(vectors, largest(&labels, weights, least), least, saw_two)
}

/// The cluster of each chunk once clusters of one speaker are joined, as long as more than `least` are left.
fn merged(vectors: &[&[f32]], mut labels: Vec<Option<usize>>, least: usize, saw_two: bool) -> Vec<usize> {
    while let Some((a, b, nearness)) = nearest(&centres_of(vectors, &labels)) {
        let last_two = saw_two && clusters(&labels) == 2;
        let same = if last_two { SAME_SPEAKER_AFTER_ALL } else { SAME_SPEAKER };
        if clusters(&labels) <= least || nearness < same {
            break;
        }
        labels.iter_mut().flatten().filter(|label| **label == b).for_each(|label| *label = a);
        labels = compact(labels);
    }
    assigned(vectors, &labels)
}

fn linked(vectors: &[&[f32]], weights: &[f32], least: usize, most: usize, saw_two: bool) -> Vec<usize> {
    let (linkage, mut distances) =
        Linkage::new(vectors.len(), |a, b| 1.0 - similarity(vectors[a], vectors[b]));
    distances.sort_by(f32::total_cmp);
    let ninth = distances.get(distances.len() * 9 / 10).copied().unwrap_or_default();
    let cut = (CUT_PART * ninth).clamp(if saw_two { *CUT.start() } else { CUT_ALONE }, *CUT.end());
    let labels = largest(&linkage.within(cut), weights, 1);
    let found = clusters(&labels);
    if found < least || found > most {
        let wanted = found.clamp(least, most);
        // As few clusters as leave so many with speech enough: those beyond are single chunks that resemble no other.
        let cuts = (wanted..=vectors.len()).map(|count| largest(&linkage.clusters(count), weights, 1));
        let fitting = cuts.into_iter().find(|labels| clusters(labels) == wanted);
        return fitting.map_or_else(|| linkage.clusters(wanted), |labels| assigned(vectors, &labels));
    }
    // With so few chunks segmentation knows better than their centres whether there are two.
    merged(vectors, labels, if saw_two { least.max(2).min(most) } else { least }, saw_two)
}

/// `labels` of the clusters with speech enough, or of the `least` largest; the others' chunks have none.
fn largest(labels: &[usize], weights: &[f32], least: usize) -> Vec<Option<usize>> {
    let mut seconds: Vec<(f32, usize)> =
        (0..labels.iter().max().map_or(0, |max| max + 1)).map(|label| (0.0, label)).collect();
    for (label, weight) in labels.iter().zip(weights) {
        seconds[*label].0 += weight;
    }
    let all: f32 = weights.iter().sum();
    seconds.sort_by(|a, b| b.0.total_cmp(&a.0));
    let enough = SPEAKER_SECONDS.max(SPEAKER_SHARE * all);
    let kept = seconds.iter().filter(|cluster| cluster.0 >= enough).count().max(least).max(1);
    let kept: Vec<usize> = seconds.iter().take(kept).map(|cluster| cluster.1).collect();
    compact(labels.iter().map(|label| kept.contains(label).then_some(*label)).collect())
}

fn clusters(labels: &[Option<usize>]) -> usize {
    labels.iter().flatten().max().map_or(0, |max| max + 1)
}

/// The two nearest centres, and the cosine between them.
fn nearest(centres: &[Vec<f32>]) -> Option<(usize, usize, f32)> {
    let pairs = (0..centres.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    pairs.map(|(a, b)| (a, b, similarity(&centres[a], &centres[b]))).max_by(|a, b| a.2.total_cmp(&b.2))
}

/// `labels`, and for chunks without one that of the nearest centre.
fn assigned(vectors: &[&[f32]], labels: &[Option<usize>]) -> Vec<usize> {
    let centres = centres_of(vectors, labels);
    let label = |(vector, label): (&&[f32], &Option<usize>)| label.unwrap_or_else(|| best(vector, &centres));
    vectors.iter().zip(labels).map(label).collect()
}

/// The centres after some rounds of spherical k-means: Dhillon and Modha, "Concept decompositions for large sparse text
/// data using clustering", Machine Learning 42 (2001).
fn refined(vectors: &[&[f32]], labels: Vec<usize>) -> Vec<Vec<f32>> {
    let mut centres = centres_of(vectors, &labels.into_iter().map(Some).collect::<Vec<_>>());
    for _ in 0..ROUNDS {
        let labels: Vec<Option<usize>> = vectors.iter().map(|vector| Some(best(vector, &centres))).collect();
        let mut moved = centres_of(vectors, &labels);
        // A centre without chunks stays where it was.
        moved.resize(centres.len(), Vec::new());
        for (centre, moved) in
            centres.iter_mut().zip(moved).filter(|(_, moved)| moved.iter().any(|value| *value != 0.0))
        {
            *centre = moved;
        }
    }
    centres
}

fn centres_of(vectors: &[&[f32]], labels: &[Option<usize>]) -> Vec<Vec<f32>> {
    let width = vectors.first().map_or(0, |vector| vector.len());
    let mut centres = vec![vec![0.0f32; width]; clusters(labels)];
    for (vector, label) in vectors.iter().zip(labels) {
        if let Some(label) = label {
            centres[*label].iter_mut().zip(*vector).for_each(|(sum, value)| *sum += value);
        }
    }
    centres.iter_mut().for_each(|centre| normalize(centre));
    centres
}
