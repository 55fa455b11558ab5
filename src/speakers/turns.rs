//! Turns: who talks from when to when, put together from segmentation and the speakers of chunks.

use std::collections::BTreeMap;
use std::ops::Range;

use super::chunks::Chunk;
use super::frames::{FRAME_SECONDS, LOCAL_SPEAKERS, Tally, Window, start_of};
use super::regions::runs;

/// How sharply a chunk's vote falls with the distance to a centre.
const SHARPNESS: f32 = 6.0;
/// A speaker's pause up to this long, in seconds, in which no other talks does not end the turn.
const BRIDGED_SECONDS: f64 = 1.5;
/// The shortest turn, in seconds.
const TURN_SECONDS: f64 = 0.1;
/// Frames in which a local speaker of a window must talk alone before it is known who it is: 0.1 s.
const SOLO_FRAMES: usize = 6;

/// A stretch of time in which one speaker talks. Turns of different speakers may overlap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Numbered from 0 in the order of first appearance.
    pub speaker: usize,
    /// Seconds.
    pub start: f64,
    pub end: f64,
    /// 0 to 1.
    pub confidence: f32,
}

/// The speakers of one frame.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Talking {
    speaker: Option<usize>,
    /// The other speaker of an overlap.
    second: Option<usize>,
    confidence: f32,
}

impl Talking {
    fn has(&self, speaker: usize) -> bool {
        self.speaker == Some(speaker) || self.second == Some(speaker)
    }
}

/// The speakers of some frames of a recording.
pub struct Timeline {
    first: usize,
    frames: Vec<Talking>,
}

impl Timeline {
    /// The speaker of each of `frames`, from how near each chunk of their `regions` is to each speaker's centre.
    ///
    /// A frame has the speaker for which the chunks around it vote, those in whose middle it lies the most. A region
    /// without chunks has the speaker of the frame nearest to it.
    pub fn new(
        frames: Range<usize>,
        regions: &[Range<usize>],
        chunks: &[Chunk],
        similarities: &[Vec<f32>],
        tally: &Tally,
    ) -> Self {
        let mut timeline = Self { first: frames.start, frames: vec![Talking::default(); frames.len()] };
        let mut voting = chunks.iter().zip(similarities).peekable();
        for (index, region) in regions.iter().enumerate() {
            let mut votes: Vec<Vec<f32>> = vec![Vec::new(); region.len()];
            while let Some((chunk, similarities)) = voting.next_if(|(chunk, _)| chunk.region == index) {
                let shares = shares(similarities);
                for frame in chunk.frames.clone() {
                    let votes = &mut votes[frame - region.start];
                    votes.resize(shares.len(), 0.0);
                    let weight = hann(frame - chunk.frames.start, chunk.frames.len());
                    votes.iter_mut().zip(&shares).for_each(|(vote, share)| *vote += weight * share);
                }
            }
            for (frame, votes) in region.clone().zip(&votes) {
                let best = votes.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
                if let Some((speaker, vote)) = best.filter(|_| tally.is_speech(frame)) {
                    let confidence = vote / votes.iter().sum::<f32>();
                    timeline.frames[frame - frames.start] =
                        Talking { speaker: Some(speaker), second: None, confidence };
                }
            }
        }
        timeline.adopt(tally);
        timeline
    }

    /// Gives frames of speech without a speaker that of the nearest frame.
    fn adopt(&mut self, tally: &Tally) {
        let speaker = |at: &usize| self.frames[*at].speaker.is_some();
        let known: Vec<usize> = (0..self.frames.len()).filter(speaker).collect();
        for at in 0..self.frames.len() {
            if self.frames[at].speaker.is_some() || !tally.is_speech(self.first + at) {
                continue;
            }
            let after = known.partition_point(|&known| known < at);
            let neighbours = [after.checked_sub(1), Some(after)]
                .into_iter()
                .flatten()
                .filter_map(|index| known.get(index));
            if let Some(&nearest) = neighbours.min_by_key(|known| known.abs_diff(at)) {
                self.frames[at] = self.frames[nearest];
            }
        }
    }

    /// Finds the second speaker of each frame of overlap: the local speakers of `windows`, which are in order, are those
    /// that the timeline has where they talk alone.
    pub fn find_overlaps(&mut self, windows: &[Window], tally: &Tally) {
        let names: Vec<[Option<usize>; LOCAL_SPEAKERS]> =
            windows.iter().map(|window| std::array::from_fn(|local| self.name(window, local))).collect();
        let mut from = 0;
        for (at, talking) in self.frames.iter_mut().enumerate() {
            let frame = self.first + at;
            while windows.get(from).is_some_and(|window| window.end() <= frame) {
                from += 1;
            }
            let Some(speaker) = talking.speaker.filter(|_| tally.is_overlap(frame)) else { continue };
            let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
            let seeing =
                windows[from..].iter().zip(&names[from..]).take_while(|(window, _)| window.start <= frame);
            for (window, names) in seeing {
                let bits = window.speakers.get(frame - window.start).copied().unwrap_or_default();
                let locals = (0..LOCAL_SPEAKERS).filter(|local| bits & (1 << local) != 0);
                for name in locals.filter(|_| bits.count_ones() > 1).filter_map(|local| names[local]) {
                    *votes.entry(name).or_default() += 1;
                }
            }
            votes.remove(&speaker);
            talking.second = votes.into_iter().max_by_key(|vote| vote.1).map(|vote| vote.0);
        }
    }

    /// The speaker that most frames have in which a window's local speaker talks alone.
    fn name(&self, window: &Window, local: usize) -> Option<usize> {
        let frames = window.solo(local).filter_map(|frame| self.frames.get(frame.checked_sub(self.first)?));
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for speaker in frames.filter_map(|frame| frame.speaker) {
            *counts.entry(speaker).or_default() += 1;
        }
        (counts.values().sum::<usize>() >= SOLO_FRAMES).then_some(())?;
        counts.into_iter().max_by_key(|count| count.1).map(|count| count.0)
    }

    /// The turns, in order of start, up to `end` seconds.
    pub fn turns(&self, end: f64) -> Vec<Turn> {
        let mut turns = Vec::new();
        let speakers = self.frames.iter().flat_map(|frame| [frame.speaker, frame.second]).flatten();
        for speaker in 0..speakers.max().map_or(0, |max| max + 1) {
            let mut joined: Vec<Range<usize>> = Vec::new();
            for run in runs(0..self.frames.len(), |at| self.frames[at].has(speaker)) {
                match joined.last_mut() {
                    Some(last) if self.is_bridged(last.end..run.start) => last.end = run.end,
                    _ => joined.push(run),
                }
            }
            turns.extend(joined.into_iter().map(|run| Turn {
                speaker,
                start: start_of(self.first + run.start),
                end: start_of(self.first + run.end).min(end),
                confidence: self.confidence(run, speaker),
            }));
        }
        turns.retain(|turn| turn.end - turn.start > TURN_SECONDS);
        turns.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.speaker.cmp(&b.speaker)));
        turns
    }

    /// Whether a pause of a speaker is short, and no other talks in it.
    fn is_bridged(&self, pause: Range<usize>) -> bool {
        pause.len() as f64 * FRAME_SECONDS <= BRIDGED_SECONDS
            && self.frames[pause].iter().all(|frame| frame.speaker.is_none())
    }

    /// The mean confidence of the frames in which `speaker` talks.
    fn confidence(&self, run: Range<usize>, speaker: usize) -> f32 {
        let own = self.frames[run].iter().filter(|frame| frame.has(speaker));
        let (sum, count) = own.fold((0.0, 0u32), |(sum, count), frame| (sum + frame.confidence, count + 1));
        sum / count.max(1) as f32
    }
}

/// What part of a chunk's vote each speaker gets.
fn shares(similarities: &[f32]) -> Vec<f32> {
    let best = similarities.iter().copied().fold(f32::MIN, f32::max);
    let votes: Vec<f32> =
        similarities.iter().map(|similarity| (SHARPNESS * (similarity - best)).exp()).collect();
    let sum: f32 = votes.iter().sum();
    votes.iter().map(|vote| vote / sum).collect()
}

/// The weight of a chunk's vote at one of its frames; a little even at its ends.
fn hann(at: usize, length: usize) -> f32 {
    let phase = std::f32::consts::TAU * (at + 1) as f32 / (length + 1) as f32;
    0.55 - 0.5 * phase.cos()
}
