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
/// but after so many seconds of new speech at the earliest.
const NEW_SECONDS: f32 = 1.0;
/// Seconds of speech that a new speaker needs.
const SPEAKER_SECONDS: f32 = 1.0;
/// A cluster with little speech is a new speaker only if its cosine with all speakers is below this. In noise, sentences of
/// one speaker have 0.41 to 0.47 where whole clusters of that speaker have 0.9.
const SAME_AT_FIRST: f32 = 0.35;
/// With as many seconds of speech, whole recordings' limit holds, [`SAME_SPEAKER`]; in between it rises evenly.
const SURE_SECONDS: f32 = 8.0;

/// The speakers of one stream.
#[derive(Debug, Default, Clone)]
pub struct Memory {
    chunks: Vec<Embedded>,
    /// The label that each chunk was given.
    labels: Vec<usize>,
    /// Chunks since the last clustering, and their seconds of speech.
    new: usize,
    new_seconds: f32,
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
        self.new_seconds += chunks.iter().map(|chunk| chunk.clean_seconds * STEP_PART).sum::<f32>();
        let unknown =
            |chunk: &Embedded| self.voices.iter().all(|voice| similarity(voice, &chunk.vector) < UNKNOWN);
        let is_due = self.new as f32 > NEW_SHARE * first as f32 || chunks.iter().any(unknown);
        let may_be = self.voices.is_empty() || self.new_seconds >= NEW_SECONDS;
        self.chunks.extend(chunks);
        if is_due && may_be && !self.chunks.is_empty() {
            self.cluster(first, count);
            (self.new, self.new_seconds) = (0, 0.0);
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
        // A stream begins before all of its speakers have talked.
        let found = centres(&self.chunks, Count { least: 1, ..count });
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
            let same = self.same_speaker(*seconds, count);
            let is_known = self.voices.iter().any(|voice| similarity(voice, centre) >= same);
            let is_room = self.voices.len() < count.most;
            if label.is_none()
                && is_room
                && (self.voices.is_empty() || (!is_known && *seconds >= SPEAKER_SECONDS))
            {
                self.voices.push(centre.clone());
            }
        }
    }

    /// The cosine from which a cluster with so many seconds of speech is one of the known speakers. A label that was
    /// given stays, so a speaker too many costs more than some words of a new one that the nearest has; but as many
    /// speakers as are sure to be there need no proof.
    fn same_speaker(&self, seconds: f32, count: Count) -> f32 {
        if self.voices.len() < count.least.max(if count.saw_two { 2 } else { 1 }) {
            return SAME_SPEAKER;
        }
        let sure = ((seconds - SPEAKER_SECONDS) / (SURE_SECONDS - SPEAKER_SECONDS)).clamp(0.0, 1.0);
        SAME_AT_FIRST + (SAME_SPEAKER - SAME_AT_FIRST) * sure
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` chunks with this cosine to the first axis: one second of speech for two.
    fn chunks(count: usize, cosine: f32) -> Vec<Embedded> {
        let vector = vec![cosine, (1.0 - cosine * cosine).sqrt()];
        vec![Embedded { vector, clean_seconds: 1.5 }; count]
    }

    fn count(least: usize, saw_two: bool) -> Count {
        Count { least, most: usize::MAX, saw_two }
    }

    #[test]
    fn a_sentence_that_sounds_a_little_different_makes_no_new_speaker_and_many_do() {
        let mut memory = Memory::default();
        memory.learn(chunks(5, 1.0), count(1, false));
        memory.learn(chunks(4, 0.5), count(1, false));
        assert_eq!(memory.voices().len(), 1);
        memory.learn(chunks(14, 0.5), count(1, false));
        assert_eq!(memory.voices().len(), 2);
        // Both were labelled by then: what was given stays.
        assert_eq!(memory.labels[..9], [0; 9]);
    }

    #[test]
    fn speakers_who_are_sure_to_be_there_need_no_proof() {
        for sure in [count(2, false), count(1, true)] {
            let mut memory = Memory::default();
            memory.learn(chunks(5, 1.0), sure);
            memory.learn(chunks(4, 0.5), sure);
            assert_eq!(memory.voices().len(), 2);
        }
    }

    #[test]
    fn a_clearly_different_voice_is_new_at_once() {
        let mut memory = Memory::default();
        memory.learn(chunks(5, 1.0), count(1, false));
        let similarities = memory.learn(chunks(4, 0.1), count(1, false));
        assert_eq!(memory.voices().len(), 2);
        assert!(similarities.iter().all(|chunk| chunk[1] > chunk[0]));
    }
}
