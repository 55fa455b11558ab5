//! The way of the agent's voice into a speaker's microphone: how late it arrives, and how loud in each band.
//!
//! Once it is known, the echo's loudness at each moment follows from what was played, and anything clearly louder is the
//! speaker's own voice, from its first frame on. Comparing ups and downs needs half a second, and fails where both speak.

use super::{BANDS, Powers, Reference};

/// Hops by which packets' delays change around the path's: 32 ms.
const JITTER_HOPS: i64 = 2;
/// Hops for which a room goes on sounding: 0.32 s.
const TAIL_HOPS: i64 = 20;
/// The share of its power that a room's sound keeps in a hop: it falls by 60 dB in 0.6 s.
const TAIL_DECAY: f32 = 0.69;
/// Share of an echo's hops that are below the loudness that is expected.
const QUANTILE: f32 = 0.85;
/// The same where the path is learnt, as a speaker may have spoken meanwhile.
const LEARNT_QUANTILE: f32 = 0.75;
/// Power below this share of the loudest band's tells nothing of a gain: 30 dB.
const AUDIBLE: f32 = 1e-3;
/// Hops of a band that tell its gain.
const LEARNT_HOPS_MIN: usize = 8;
/// How fast gains follow, as logarithms of power: 1.3 dB a hop at most.
const STEP: f32 = 0.3;
/// Sound is the speaker's as far as it is louder than the echo by this factor of power: 1.8 dB.
const MARGIN: f32 = 1.5;
/// An echo that is below this share of the expected power is missing: 12 dB.
const MISSING_SHARE: f32 = 0.06;
/// Hops in which an expected echo was missing, less those in which it was there, after which the path is no more: 1 s.
const MISSING_HOPS_MAX: usize = 62;

/// The power of a hop, and the part of it that neither the echo nor noise explains.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub own: f32,
    pub total: f32,
}

pub struct Path {
    /// In hops.
    pub delay: i64,
    /// Logarithms of power.
    gains: Powers,
    /// Hops without the expected echo, less those with it.
    missing: usize,
}

impl Path {
    /// Learns the gains of a path from an echo that is so late. `None` where too little of it was heard.
    pub fn learn(heard: &[(i64, Powers)], reference: &Reference, delay: i64) -> Option<Self> {
        let played: Vec<Powers> = heard.iter().map(|(hop, _)| arriving(reference, hop - delay)).collect();
        let audible = played.iter().flatten().copied().fold(0.0, f32::max) * AUDIBLE;
        let mut ratios: [Vec<f32>; BANDS] = std::array::from_fn(|_| Vec::new());
        for (played, (_, heard)) in played.iter().zip(heard) {
            for (band, ratios) in ratios.iter_mut().enumerate() {
                if played[band] > audible {
                    ratios.push((heard[band] / played[band]).max(1e-12).ln());
                }
            }
        }
        let mut gains: [Option<f32>; BANDS] = [None; BANDS];
        for (gain, ratios) in gains.iter_mut().zip(&mut ratios) {
            ratios.sort_by(f32::total_cmp);
            let at = (ratios.len() as f32 * LEARNT_QUANTILE) as usize;
            *gain = ratios.get(at).copied().filter(|_| ratios.len() >= LEARNT_HOPS_MIN);
        }
        let known: Vec<f32> = gains.iter().flatten().copied().collect();
        let loudest = known.iter().copied().reduce(f32::max)?;
        // A band that the agent has not used yet may be as loud as any.
        Some(Self { delay, gains: gains.map(|gain| gain.unwrap_or(loudest)), missing: 0 })
    }

    /// Splits the power of a hop. `noise`: the power of a quiet moment.
    pub fn split(&self, hop: i64, powers: &Powers, noise: &Powers, reference: &Reference) -> Share {
        let expected = self.expected(hop, reference);
        let own =
            (0..BANDS).map(|band| (powers[band] - MARGIN * (expected[band] + noise[band])).max(0.0)).sum();
        Share { own, total: powers.iter().sum() }
    }

    /// Follows changes of a path's loudness in a hop that is an echo.
    pub fn follow(&mut self, hop: i64, powers: &Powers, noise: &Powers, reference: &Reference) {
        let played = arriving(reference, hop - self.delay);
        for (((gain, played), heard), noise) in self.gains.iter_mut().zip(played).zip(powers).zip(noise) {
            let expected = played * gain.exp();
            if expected > *noise {
                let is_louder = *heard > expected;
                *gain += STEP * if is_louder { QUANTILE } else { QUANTILE - 1.0 };
            }
        }
        let expected: f32 = self.expected(hop, reference).iter().sum();
        let (heard, quiet): (f32, f32) = (powers.iter().sum(), noise.iter().sum());
        // An echo can be missed only where it would be audible.
        if expected * MISSING_SHARE > quiet {
            let is_missing = heard < expected * MISSING_SHARE;
            self.missing = if is_missing { self.missing + 1 } else { self.missing.saturating_sub(1) };
        }
    }

    /// Whether the echo stays away: the speaker has put on a headset.
    pub fn is_gone(&self) -> bool {
        self.missing >= MISSING_HOPS_MAX
    }

    fn expected(&self, hop: i64, reference: &Reference) -> Powers {
        let played = arriving(reference, hop - self.delay);
        std::array::from_fn(|band| played[band] * self.gains[band].exp())
    }
}

/// The power that may arrive from what was played around `hop`, and from the room's sound since.
fn arriving(reference: &Reference, hop: i64) -> Powers {
    let mut loudest = [0.0f32; BANDS];
    for late in -JITTER_HOPS..=TAIL_HOPS {
        let Some(powers) = reference.track.at(hop - late) else { continue };
        let kept = TAIL_DECAY.powi((late - JITTER_HOPS).max(0) as i32);
        for (loudest, power) in loudest.iter_mut().zip(powers) {
            *loudest = loudest.max(power * kept);
        }
    }
    loudest
}
