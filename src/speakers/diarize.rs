//! Diarization of whole recordings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::audio::Sound;
use crate::vad::Vad;

use super::batching::Batcher;
use super::chunks::{self, Chunk};
use super::clustering::{self, Count, Embedded};
use super::cosine::similarity;
use super::error::Error;
use super::frames::{FRAME_SAMPLES, Tally, Window, local_speakers};
use super::network::WINDOW_SAMPLES;
use super::regions::regions;
use super::turns::Timeline;
pub use super::turns::Turn;
use super::vectors::{Pending, blocking, embed};
use super::voice::Voice;

/// Frames between windows: 5 s, so that two windows see each frame.
pub const HOP_FRAMES: usize = 296;
/// Windows that are segmented at once, and pieces that the trunk hears at once: memory, and work for all threads.
const WINDOWS_AT_ONCE: usize = 16;
const PIECES_AT_ONCE: usize = 16;
/// The longest region, in frames: 30 s. Its chunks are computed at once.
pub const REGION_FRAMES_MAX: usize = 1_778;
/// The share of windows with two local speakers from which on there are two in the recording.
pub const LOCAL_SHARE: f64 = 0.3;

/// The number of speakers, as far as the client knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    pub min_speakers: Option<usize>,
    pub max_speakers: Option<usize>,
    /// Exactly as many; the bounds don't matter then.
    pub speakers_expected: Option<usize>,
}

/// Who talks when.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diarization {
    /// In order of start.
    pub turns: Vec<Turn>,
    /// The mean embedding of each speaker, of unit length.
    pub voices: Vec<Vec<f32>>,
}

/// Segmentation of a whole recording.
struct Segmented {
    windows: Vec<Window>,
    tally: Tally,
    regions: Vec<Range<usize>>,
}

/// The turns of `sound`, one channel of a recording. `vad` hears speech that segmentation passes over.
///
/// # Errors
/// As the networks'.
pub async fn diarize(
    batcher: &Batcher,
    vad: Option<&Vad>,
    sound: &Sound,
    options: Options,
) -> Result<Diarization, Error> {
    let windows = segment(batcher, sound).await?;
    let (vad, listened) = (vad.cloned(), sound.clone());
    let segmented = blocking(move || {
        let mut tally = Tally::default();
        windows.iter().for_each(|window| tally.add(window));
        let mut voice = Voice::default();
        voice.extend(vad.and_then(|vad| vad.probabilities_while(&listened, || true)).into_iter().flatten());
        for unheard in voice.unheard(&tally, 0..tally.end()) {
            tally.hear(unheard);
        }
        let regions = regions(&tally, 0..tally.end(), REGION_FRAMES_MAX);
        Segmented { windows, tally, regions }
    });
    let segmented = Arc::new(segmented.await?);
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut embedded: Vec<Embedded> = Vec::new();
    let mut pending: Vec<Pending> = Vec::new();
    for (index, region) in segmented.regions.iter().enumerate() {
        let region = Pending {
            chunks: chunks::chunks(index, region, &segmented.tally),
            pieces: chunks::pieces(region, sound.len()),
        };
        if !region.chunks.is_empty() {
            pending.push(region);
        }
        let pieces: usize = pending.iter().map(|region| region.pieces.len()).sum();
        if pieces >= PIECES_AT_ONCE || index + 1 == segmented.regions.len() {
            let (more, vectors) =
                embed(batcher, std::mem::take(&mut pending), |range| samples(sound, range)).await?;
            chunks.extend(more);
            embedded.extend(vectors);
        }
    }
    let end = sound.duration_seconds();
    let turn = batcher.clustering().await;
    let assemble = move || {
        // Held until the end, even if nothing waits for it any more.
        let _turn = turn;
        assemble(&segmented, &chunks, &embedded, options, end)
    };
    blocking(assemble).await
}

async fn segment(batcher: &Batcher, sound: &Sound) -> Result<Vec<Window>, Error> {
    let hop = HOP_FRAMES * FRAME_SAMPLES;
    let count =
        if sound.is_empty() { 0 } else { 1 + sound.len().saturating_sub(WINDOW_SAMPLES).div_ceil(hop) };
    let mut windows = Vec::with_capacity(count);
    while windows.len() < count {
        let batch = windows.len()..(windows.len() + WINDOWS_AT_ONCE).min(count);
        let place = batcher.place().await;
        let audio =
            batch.clone().map(|index| samples(sound, index * hop..index * hop + WINDOW_SAMPLES)).collect();
        let classes = place.segment(audio).await?;
        let found = batch.zip(&classes);
        windows.extend(
            found.map(|(index, classes)| Window {
                start: index * HOP_FRAMES,
                speakers: local_speakers(classes),
            }),
        );
    }
    Ok(windows)
}

/// The samples of `range`, followed by silence where it reaches beyond the end.
fn samples(sound: &Sound, range: Range<usize>) -> Vec<f32> {
    let length = range.len();
    let mut samples = Vec::with_capacity(length);
    sound.append(range, &mut samples);
    samples.resize(length, 0.0);
    samples
}

fn assemble(
    segmented: &Segmented,
    chunks: &[Chunk],
    embedded: &[Embedded],
    options: Options,
    end: f64,
) -> Diarization {
    let centres = clustering::centres(embedded, options.count(see_two(&segmented.windows)));
    let similarities: Vec<Vec<f32>> = embedded
        .iter()
        .map(|chunk| centres.iter().map(|centre| similarity(&chunk.vector, centre)).collect())
        .collect();
    let mut timeline =
        Timeline::new(0..segmented.tally.end(), &segmented.regions, chunks, &similarities, &segmented.tally);
    timeline.find_overlaps(&segmented.windows, &segmented.tally);
    Diarization { turns: timeline.turns(end), voices: centres }.by_first_appearance()
}

/// Whether enough windows hold two local speakers.
fn see_two(windows: &[Window]) -> bool {
    let counts: Vec<usize> = windows.iter().map(Window::locals).filter(|&count| count > 0).collect();
    let two = counts.iter().filter(|&&count| count > 1).count();
    two > 0 && two as f64 >= LOCAL_SHARE * counts.len() as f64
}

impl Options {
    fn count(&self, saw_two: bool) -> Count {
        match self.speakers_expected {
            Some(expected) => Count { least: expected.max(1), most: expected.max(1), saw_two },
            None => {
                let least = self.min_speakers.unwrap_or(1).max(1);
                Count { least, most: self.max_speakers.unwrap_or(usize::MAX).max(least), saw_two }
            }
        }
    }
}

impl Diarization {
    /// The same, with speakers numbered by first appearance; those without turns are left out.
    fn by_first_appearance(mut self) -> Self {
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        for turn in &mut self.turns {
            let next = numbers.len();
            turn.speaker = *numbers.entry(turn.speaker).or_insert(next);
        }
        let mut voices = vec![Vec::new(); numbers.len()];
        for (old, new) in numbers {
            voices[new] = std::mem::take(&mut self.voices[old]);
        }
        Self { turns: self.turns, voices }
    }
}
