//! Chunks: the stretches of a region that get an embedding each, and the pieces in which the trunk hears the region.
//!
//! The trunk computes each piece once; the statistics of all chunks are pooled over its rows, which costs next to nothing
//! beside it. CAM++: Wang et al., "CAM++: A fast and efficient network for speaker verification using context-aware
//! masking", Interspeech 2023.

use std::ops::Range;

use super::filter_bank::{FRAME as BANK_WINDOW, HOP as BANK_SAMPLES};
use super::frames::{Tally, frame_at, start_of};
use super::network::{CHANNELS, MEL_BINS};

/// A chunk's length, and the time between chunks, in seconds.
const CHUNK_SECONDS: f64 = 1.5;
const STEP_SECONDS: f64 = 0.5;
/// The part of a chunk's seconds that no other chunk stands for: chunks overlap.
pub const STEP_PART: f32 = (STEP_SECONDS / CHUNK_SECONDS) as f32;
/// A region up to this long is one chunk, in seconds.
const SINGLE_SECONDS: f64 = 2.0;
/// Shorter regions get no chunk, in seconds.
const SHORTEST_SECONDS: f64 = 0.35;
/// The longest piece, in seconds.
const PIECE_SECONDS: f64 = 6.0;
/// Rows of one speaker with which a chunk can leave out those of overlap: half a second.
const CLEAN_ROWS: usize = 25;

/// Seconds between frames of filter banks.
const BANK_SECONDS: f64 = BANK_SAMPLES as f64 / 16_000.0;
/// Frames of filter banks to a row of the trunk's output.
const STRIDE: usize = 2;
/// Seconds between rows of the trunk's output.
const ROW_SECONDS: f64 = STRIDE as f64 * BANK_SECONDS;

/// A stretch of a region with an embedding of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// Index of the region.
    pub region: usize,
    /// Frames of segmentation.
    pub frames: Range<usize>,
    /// Rows of the trunk's output, counted from the start of the recording.
    rows: Vec<usize>,
    /// Seconds in which one speaker talks.
    pub clean_seconds: f32,
}

/// A stretch of a region that the trunk hears at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Frames of filter banks, counted from the start of the recording; it begins at an even one.
    banks: Range<usize>,
}

/// The chunks of `region`, which spans `frames`.
pub fn chunks(region: usize, frames: &Range<usize>, tally: &Tally) -> Vec<Chunk> {
    let (start, end) = (start_of(frames.start), start_of(frames.end));
    let length = end - start;
    if length < SHORTEST_SECONDS {
        return Vec::new();
    }
    let chunk = |start: f64, end: f64| {
        let rows = row_at(start)..row_at(end);
        let frame_of = |row: usize| frame_at(row as f64 * ROW_SECONDS + middle_of_first());
        let clean: Vec<usize> = rows.clone().filter(|&row| tally.is_clean(frame_of(row))).collect();
        let clean_seconds = (clean.len() as f64 * ROW_SECONDS) as f32;
        let rows = if clean.len() >= CLEAN_ROWS { clean } else { rows.collect() };
        let within = |frame: usize| frame.clamp(frames.start, frames.end);
        Chunk { region, frames: within(frame_at(start))..within(frame_at(end) + 1), rows, clean_seconds }
    };
    if length <= SINGLE_SECONDS {
        return vec![chunk(start, end)];
    }
    let spare = length - CHUNK_SECONDS;
    let steps = (spare / STEP_SECONDS).ceil().max(1.0);
    let starts = (0..=steps as usize).map(|step| start + step as f64 * spare / steps);
    starts.map(|start| chunk(start, start + CHUNK_SECONDS)).collect()
}

/// The pieces of a region that spans `frames`, of a recording of `samples`.
pub fn pieces(frames: &Range<usize>, samples: usize) -> Vec<Piece> {
    let (start, end) = (start_of(frames.start), start_of(frames.end));
    let last = (samples + BANK_SAMPLES).saturating_sub(BANK_WINDOW) / BANK_SAMPLES;
    let count = ((end - start) / PIECE_SECONDS).ceil().max(1.0);
    let bound = |index: usize| {
        let seconds = start + index as f64 * (end - start) / count;
        ((seconds / ROW_SECONDS).round() as usize * STRIDE).min(last)
    };
    let bounds = (0..count as usize).map(|index| Piece { banks: bound(index)..bound(index + 1) });
    bounds.filter(|piece| piece.banks.len() >= STRIDE).collect()
}

impl Piece {
    /// The samples that it is made of.
    pub fn samples(&self) -> Range<usize> {
        self.banks.start * BANK_SAMPLES..(self.banks.end - 1) * BANK_SAMPLES + BANK_WINDOW
    }

    /// The trunk's input: filter banks of [`Self::samples`], less their means.
    pub fn normalized(mut filter_banks: Vec<f32>) -> Vec<f32> {
        let frames = filter_banks.len() / MEL_BINS;
        for bin in 0..MEL_BINS {
            let values = filter_banks.iter().skip(bin).step_by(MEL_BINS);
            let mean = values.map(|&value| f64::from(value)).sum::<f64>() / frames.max(1) as f64;
            filter_banks.iter_mut().skip(bin).step_by(MEL_BINS).for_each(|value| *value -= mean as f32);
        }
        filter_banks
    }
}

/// The input of the embedding for `chunk`: mean and deviation of each channel of the trunk over the chunk's rows, from the
/// trunk's output for each of the region's pieces. `None` if no row lies in them.
pub fn statistics<'a>(
    chunk: &Chunk,
    pieces: impl IntoIterator<Item = (&'a Piece, &'a [f32])>,
) -> Option<Vec<f32>> {
    let mut sums = vec![0.0f64; CHANNELS];
    let mut squares = vec![0.0f64; CHANNELS];
    let mut count = 0.0f64;
    for (piece, features) in pieces {
        let first = piece.banks.start / STRIDE;
        let rows = chunk.rows.iter().filter_map(|row| row.checked_sub(first));
        for row in rows.filter_map(|row| features.get(row * CHANNELS..(row + 1) * CHANNELS)) {
            count += 1.0;
            for ((value, sum), square) in row.iter().zip(&mut sums).zip(&mut squares) {
                let value = f64::from(*value);
                *sum += value;
                *square += value * value;
            }
        }
    }
    if count == 0.0 {
        return None;
    }
    let deviation = |(sum, square): (&f64, &f64)| {
        ((square - sum * sum / count).max(0.0) / (count - 1.0).max(1.0)).sqrt() as f32
    };
    let means = sums.iter().map(|sum| (sum / count) as f32);
    Some(means.chain(sums.iter().zip(&squares).map(deviation)).collect())
}

/// The first row whose middle lies at `seconds` or later.
fn row_at(seconds: f64) -> usize {
    ((seconds - middle_of_first()) / ROW_SECONDS).ceil() as usize
}

/// The second in the middle of the first row.
fn middle_of_first() -> f64 {
    BANK_WINDOW as f64 / 2.0 / 16_000.0
}
