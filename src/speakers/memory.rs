//! A stream's memory of its speakers: chunks heard so far, clustered again and again, under labels that never change.

use super::chunks::STEP_PART;
use super::clustering::{Count, Embedded, SAME_SPEAKER, centres};
use super::cosine::{best, similarity};

/// Chunks that are remembered. Those of the speaker who has the most give way first, the oldest before the others, so
/// that a speaker who has been silent for long is known again.
const REMEMBERED_MAX: usize = 600;
/// The chunks are clustered again once this share of them is new,
const NEW_SHARE: f32 = 0.05;
/// or as soon as a chunk is no nearer than this to any speaker.
const UNKNOWN: f32 = 0.5;
/// Seconds of speech that a new speaker needs.
const NEW_SECONDS: f32 = 1.0;

/// The speakers of one stream.
#[derive(Debug, Default, Clone)]
pub struct Memory {
    chunks: Vec<Embedded>,
    /// The label that each chunk was given.
    labels: Vec<usize>,
    /// Chunks since the last clustering.
    new: usize,
    /// Each label's centre, as it last was.
    voices: Vec<Vec<f32>>,
}

impl Memory {
    /// Remembers `chunks`, and says how near each is to each label's centre. A label once given means the same speaker
    /// from then on: each cluster takes the label that most of its earlier speech was given.
    pub fn learn(&mut self, chunks: Vec<Embedded>, count: Count) -> Vec<Vec<f32>> {
        let chunks: Vec<Embedded> =
            chunks.into_iter().filter(|chunk| chunk.vector.iter().all(|value| value.is_finite())).collect();
        let first = self.chunks.len();
        self.new += chunks.len();
        let unknown =
            |chunk: &Embedded| self.voices.iter().all(|voice| similarity(voice, &chunk.vector) < UNKNOWN);
        let is_due = self.new as f32 > NEW_SHARE * first as f32 || chunks.iter().any(unknown);
        self.chunks.extend(chunks);
        if is_due && !self.chunks.is_empty() {
            self.cluster(first, count);
            self.new = 0;
        }
        let similarities: Vec<Vec<f32>> = self.chunks[first..]
            .iter()
            .map(|chunk| self.voices.iter().map(|voice| similarity(voice, &chunk.vector)).collect())
            .collect();
        self.labels.truncate(first);
        self.labels.extend(self.chunks[first..].iter().map(|chunk| best(&chunk.vector, &self.voices)));
        self.forget();
        similarities
    }

    /// The mean embedding of each label's speaker, of unit length.
    pub fn voices(&self) -> &[Vec<f32>] {
        &self.voices
    }

    /// Clusters all chunks, of which those before `first` have labels, and moves the voices.
    fn cluster(&mut self, first: usize, count: Count) {
        let found = centres(&self.chunks, count);
        let clusters: Vec<usize> = self.chunks.iter().map(|chunk| best(&chunk.vector, &found)).collect();
        let mut earlier = vec![vec![0.0f32; self.voices.len()]; found.len()];
        let mut seconds = vec![0.0f32; found.len()];
        for ((chunk, cluster), label) in
            self.chunks.iter().zip(&clusters).zip(self.labels.iter().map(Some).chain(std::iter::repeat(None)))
        {
            seconds[*cluster] += chunk.clean_seconds * STEP_PART;
            if let Some(label) = label {
                earlier[*cluster][*label] += chunk.clean_seconds;
            }
        }
        debug_assert_eq!(self.labels.len(), first);
        let mut claims: Vec<(f32, usize, usize)> = Vec::new();
        for (cluster, earlier) in earlier.iter().enumerate() {
            claims.extend(
                earlier
                    .iter()
                    .enumerate()
                    .filter(|claim| *claim.1 > 0.0)
                    .map(|(label, &seconds)| (seconds, cluster, label)),
            );
        }
        claims.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut label_of: Vec<Option<usize>> = vec![None; found.len()];
        for (_, cluster, label) in claims {
            if label_of[cluster].is_none() && !label_of.contains(&Some(label)) {
                label_of[cluster] = Some(label);
            }
        }
        // Voices that are known move first: a new one must differ from where they are now.
        for (centre, label) in found.iter().zip(&label_of) {
            if let Some(label) = label {
                self.voices[*label].clone_from(centre);
            }
        }
        for ((centre, label), seconds) in found.iter().zip(&label_of).zip(&seconds) {
            let is_known = self.voices.iter().any(|voice| similarity(voice, centre) >= SAME_SPEAKER);
            let is_room = self.voices.len() < count.most;
            if label.is_none()
                && is_room
                && (self.voices.is_empty() || (!is_known && *seconds >= NEW_SECONDS))
            {
                self.voices.push(centre.clone());
            }
        }
    }

    fn forget(&mut self) {
        let Some(excess) = self.chunks.len().checked_sub(REMEMBERED_MAX).filter(|&excess| excess > 0) else {
            return;
        };
        let mut counts = vec![0usize; self.voices.len()];
        self.labels.iter().for_each(|&label| counts[label] += 1);
        let mut over = vec![0usize; counts.len()];
        for _ in 0..excess {
            if let Some(most) = (0..counts.len()).max_by_key(|&label| counts[label]) {
                counts[most] -= 1;
                over[most] += 1;
            }
        }
        let keeps: Vec<bool> = self
            .labels
            .iter()
            .map(|&label| {
                let goes = over[label] > 0;
                over[label] -= usize::from(goes);
                !goes
            })
            .collect();
        let mut kept = keeps.iter();
        self.chunks.retain(|_| *kept.next().unwrap_or(&true));
        let mut kept = keeps.iter();
        self.labels.retain(|_| *kept.next().unwrap_or(&true));
    }
}
