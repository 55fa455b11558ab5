//! Regions: stretches of speech without a pause in which, as far as segmentation sees, one speaker talks.

use std::ops::Range;

use super::frames::Tally;

/// Pauses that are shorter don't end a region, in frames: 0.25 s.
pub const PAUSE_FRAMES: usize = 15;
/// The share of windows that must see a change of speaker.
const CHANGE_SHARE: f32 = 0.5;
/// Frames at either side of a change, at the least: 0.1 s.
const EDGE_FRAMES: usize = 6;
/// The shortest region, in frames: 0.07 s.
const REGION_FRAMES_MIN: usize = 4;

/// The regions among `frames`, in order, as frames of the recording. Longer ones than `longest` frames are cut into equal
/// parts.
pub fn regions(tally: &Tally, frames: Range<usize>, longest: usize) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for run in runs(frames.clone(), |frame| tally.is_seen(frame)) {
        match joined.last_mut() {
            Some(last) if run.start - last.end < PAUSE_FRAMES => last.end = run.end,
            _ => joined.push(run),
        }
    }
    // Speech that the windows pass over stays apart: it doesn't change the chunks that clusters are found from.
    let mut found: Vec<Range<usize>> = joined.into_iter().flat_map(|speech| cut(tally, speech)).collect();
    found.retain(|region| region.len() >= REGION_FRAMES_MIN);
    // A shorter stretch may lie in a pause that doesn't end a region.
    let passed_over = runs(frames, |frame| tally.is_speech(frame) && !tally.is_seen(frame));
    found.extend(passed_over.filter(|run| run.len() >= PAUSE_FRAMES));
    found.sort_by_key(|region| region.start);
    let parts = found.into_iter().flat_map(|region| {
        let parts = region.len().div_ceil(longest);
        let (start, length) = (region.start, region.len());
        let bound = move |part: usize| start + part * length / parts;
        (0..parts).map(move |part| bound(part)..bound(part + 1))
    });
    parts.collect()
}

/// Cuts `speech` where the speaker changes.
fn cut(tally: &Tally, speech: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = speech.start;
    let changes = runs(speech.clone(), |frame| tally.change(frame) >= CHANGE_SHARE);
    let middles = changes.map(|run| run.start.midpoint(run.end));
    for middle in middles.filter(|&at| at > speech.start + EDGE_FRAMES && at + EDGE_FRAMES < speech.end) {
        parts.push(start..middle);
        start = middle;
    }
    parts.push(start..speech.end);
    parts
}

/// The longest runs of frames for which `holds`.
pub fn runs(frames: Range<usize>, holds: impl Fn(usize) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut at = frames.start;
    std::iter::from_fn(move || {
        let start = (at..frames.end).find(|&frame| holds(frame))?;
        at = (start..frames.end).find(|&frame| !holds(frame)).unwrap_or(frames.end);
        Some(start..at)
    })
}
