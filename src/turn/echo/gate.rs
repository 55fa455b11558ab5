//! Tells a speaker's voice from the agent's in one speaker's audio.

use std::collections::VecDeque;

use super::path::{Path, Share};
use super::{Analysis, Clock, DELAY_HOPS, EARLY_HOPS, HOP_SECONDS, Powers, Reference};

/// Hops of a speaker's audio that are compared at once: 0.64 s, and at least 0.32 s.
const COMPARED_HOPS: usize = 40;
const COMPARED_HOPS_MIN: usize = 20;
/// Audio that is so much like the agent's voice, at any delay, is its echo. Other speech reaches this in one case of 30, at
/// the best of 80 delays.
const LIKENESS: f32 = 0.72;
/// The same at the delay of an earlier echo, where other speech is not like it at all.
const LIKENESS_AT_DELAY: f32 = 0.55;
/// Hops of an echo that tell its delay: 0.5 s.
const TELLING_HOPS: usize = 32;
/// How much the delay of an echo changes: 48 ms.
const DELAY_CHANGE_HOPS: i64 = 3;
/// A path is sought in so many hops, 2.6 s and at least 0.8 s, every so often: 0.13 s.
const SOUGHT_HOPS: usize = 160;
const SOUGHT_HOPS_MIN: usize = 50;
const SEEK_HOPS: usize = 8;
/// A likeness that tells a path, in 0.8 s and in 1.3 s.
const PATH_LIKENESS: [(usize, f32); 2] = [(80, 0.6), (SOUGHT_HOPS_MIN, LIKENESS)];
/// A likeness that may be an echo's, while the agent has played too little for a path to be known.
const LIKENESS_UNCLEAR: f32 = 0.45;
/// This little: the longest delay, and 0.5 s.
const UNCLEAR_HOPS: usize = DELAY_HOPS as usize + 31;
/// Share of a frame's power that makes it the speaker's.
const OWN_SHARE: f32 = 0.35;
/// How much a quiet moment's power rises in a hop, as noise gets louder: it doubles in a second.
const NOISE_RISE: f32 = 1.011;
/// Its least: lines with digital silence have noise too once there is sound.
const NOISE_MIN: f32 = 1e-7;
/// A hop's power varies around the noise's by this factor.
const NOISE_RANGE: f32 = 4.0;

/// Whose voice a frame of speech is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Own,
    /// This frame is the agent's.
    Echo,
    /// So was the half second before it.
    EchoSoFar,
    /// It may be the agent's, of whose voice too little was heard yet.
    Unclear,
}

pub struct Gate {
    analysis: Analysis,
    clock: Clock,
    heard: VecDeque<(i64, Powers)>,
    /// How the last hops' power is split, as far as a path is known.
    shares: VecDeque<Share>,
    /// The power of a quiet moment.
    noise: Option<Powers>,
    /// The delay of the last sure echo, in hops.
    delay: Option<i64>,
    path: Option<Path>,
    /// Hops until a path is sought again.
    seek_in: usize,
}

impl Gate {
    pub fn new(rate: u32) -> Self {
        Self {
            analysis: Analysis::new(rate),
            clock: Clock { next: None },
            heard: VecDeque::new(),
            shares: VecDeque::new(),
            noise: None,
            delay: None,
            path: None,
            seek_in: SEEK_HOPS,
        }
    }

    /// Takes samples that begin at `seconds`, in which the agent's voice may be heard.
    pub fn hear(&mut self, seconds: f64, samples: &[f32], reference: &Reference) {
        let rate = self.analysis.hop as f64 / HOP_SECONDS;
        let pending = self.analysis.pending.len() as f64 / rate;
        let powers = self.analysis.push(samples);
        let first = self.clock.place(seconds - pending, powers.len());
        // Audio that comes faster or slower than it is spoken has no place on the clock.
        if self.heard.back().is_some_and(|(last, _)| last + 1 != first) {
            self.heard.clear();
            self.shares.clear();
        }
        for (hop, powers) in (first..).zip(powers) {
            self.hop(hop, powers, reference);
        }
        if reference.may_be_heard(seconds) && self.seek_in == 0 {
            self.seek_in = SEEK_HOPS;
            self.seek(reference);
        }
    }

    fn hop(&mut self, hop: i64, powers: Powers, reference: &Reference) {
        let noise = self.noise.get_or_insert(powers);
        for (noise, power) in noise.iter_mut().zip(powers) {
            *noise = power.min(*noise * NOISE_RISE).max(NOISE_MIN);
        }
        let noise = noise.map(|noise| noise * NOISE_RANGE);
        let total = powers.iter().sum();
        let mut share = Share { own: total, total };
        if let Some(path) = &mut self.path {
            share = path.split(hop, &powers, &noise, reference);
            if share.own < share.total * OWN_SHARE {
                path.follow(hop, &powers, &noise, reference);
            }
        }
        if self.path.as_ref().is_some_and(Path::is_gone) {
            (self.path, self.delay) = (None, None);
        }
        self.heard.push_back((hop, powers));
        self.shares.push_back(share);
        if self.heard.len() > SOUGHT_HOPS {
            self.heard.pop_front();
        }
        if self.shares.len() > COMPARED_HOPS {
            self.shares.pop_front();
        }
        self.seek_in = self.seek_in.saturating_sub(1);
    }

    /// Looks for a path, or for its delay as it is now.
    fn seek(&mut self, reference: &Reference) {
        let Some((last, _)) = self.heard.back().copied() else { return };
        // As long as the agent has spoken: before that there is nothing to compare.
        let hops = reference.track.count(last - SOUGHT_HOPS as i64, last).min(self.heard.len());
        if hops < SOUGHT_HOPS_MIN {
            return;
        }
        let heard: Vec<_> = self.heard.iter().skip(self.heard.len() - hops).copied().collect();
        let (likeness, delay) = reference.likeness(&heard, -EARLY_HOPS..=DELAY_HOPS);
        let is_path = PATH_LIKENESS.iter().any(|(hops, least)| heard.len() >= *hops && likeness >= *least);
        match &mut self.path {
            _ if !is_path => {}
            Some(path) if (path.delay - delay).abs() <= DELAY_CHANGE_HOPS => path.delay = delay,
            path => {
                *path = Path::learn(&heard, reference, delay);
                self.split_again(reference);
            }
        }
    }

    /// Splits the last hops anew, by the path that was just learnt.
    fn split_again(&mut self, reference: &Reference) {
        let (Some(path), Some(noise)) = (&self.path, self.noise) else { return };
        let noise = noise.map(|noise| noise * NOISE_RANGE);
        let last = self.heard.iter().skip(self.heard.len().saturating_sub(COMPARED_HOPS));
        self.shares = last.map(|(hop, powers)| path.split(*hop, powers, &noise, reference)).collect();
    }

    /// Whether the agent's voice can be told from a speaker's frame by frame.
    pub fn knows_path(&self) -> bool {
        self.path.is_some()
    }

    /// How many of the last `frames` are the speaker's, of two hops each.
    pub fn own_frames(&self, frames: usize) -> usize {
        let last = self.shares.iter().skip(self.shares.len().saturating_sub(2 * frames));
        last.filter(|share| share.own >= share.total * OWN_SHARE).count().div_ceil(2)
    }

    /// Whose voice the last frame is, in a turn of so many `seconds`; none where it is too short to tell.
    pub fn verdict(&mut self, reference: &Reference, seconds: f64) -> Option<Verdict> {
        if self.path.is_some() {
            return self.verdict_by_path();
        }
        let hops = ((seconds / HOP_SECONDS) as usize).min(self.heard.len()).min(COMPARED_HOPS);
        if hops < COMPARED_HOPS_MIN {
            return None;
        }
        let last: Vec<_> = self.heard.iter().skip(self.heard.len() - hops).copied().collect();
        if let Some(delay) = self.delay {
            let around = delay - DELAY_CHANGE_HOPS..=delay + DELAY_CHANGE_HOPS;
            if reference.likeness(&last, around).0 >= LIKENESS_AT_DELAY {
                return Some(Verdict::EchoSoFar);
            }
        }
        let (likeness, delay) = reference.likeness(&last, -EARLY_HOPS..=DELAY_HOPS);
        if likeness >= LIKENESS {
            if hops >= TELLING_HOPS {
                self.delay = Some(delay);
            }
            return Some(Verdict::EchoSoFar);
        }
        let is_early = reference.played < UNCLEAR_HOPS;
        Some(if is_early && likeness >= LIKENESS_UNCLEAR { Verdict::Unclear } else { Verdict::Own })
    }

    fn verdict_by_path(&self) -> Option<Verdict> {
        let frame = self.shares.iter().rev().take(2);
        let (own, total) =
            frame.fold((0.0, 0.0), |(own, total), share| (own + share.own, total + share.total));
        (!self.shares.is_empty()).then_some(if own >= total * OWN_SHARE {
            Verdict::Own
        } else {
            Verdict::Echo
        })
    }
}
