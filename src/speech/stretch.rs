//! Faster or slower speech of the same pitch: overlapping frames of it, each moved to where it continues the one before
//! (WSOLA; Verhelst and Roelands, ICASSP 1993).

use super::wav::VOICE_RATE;

/// Samples of a frame: 30 ms, two periods of a deep voice.
const FRAME: usize = VOICE_RATE as usize * 30 / 1000;
/// Frames overlap by half.
const HOP: usize = FRAME / 2;
/// How far a frame may be moved: 10 ms, a period of a deep voice.
const REACH: usize = VOICE_RATE as usize / 100;
/// Places are compared in steps of this many samples; speech has little above the frequency that this passes over.
const STEP: usize = 2;

/// `samples` at `speed` times their pace.
pub fn stretched(samples: &[f32], speed: f32) -> Vec<f32> {
    if samples.len() < 2 * FRAME || !(speed.is_finite() && speed > 0.0) {
        return samples.to_vec();
    }
    let length = (samples.len() as f64 / f64::from(speed)) as usize;
    let mut output = vec![0.0; length + FRAME];
    // Where the frame before would go on.
    let mut next = 0;
    for at in (0..length).step_by(HOP) {
        let wanted = (at as f64 * f64::from(speed)) as usize;
        let from = if at == 0 { 0 } else { like(samples, next, wanted) };
        let frame = samples.get(from..).unwrap_or_default();
        for (index, (out, sample)) in output[at..at + FRAME].iter_mut().zip(frame).enumerate() {
            *out += sample * weight(index, at == 0);
        }
        next = from + HOP;
    }
    output.truncate(length);
    output
}

/// Hann's window, half of which the first frame has no predecessor for.
fn weight(index: usize, is_first: bool) -> f32 {
    if is_first && index < HOP {
        return 1.0;
    }
    0.5 - 0.5 * (index as f32 / FRAME as f32 * std::f32::consts::TAU).cos()
}

/// The place near `wanted` whose samples are most like those at `next`.
fn like(samples: &[f32], next: usize, wanted: usize) -> usize {
    let Some(target) = samples.get(next..next + HOP) else { return wanted.min(samples.len()) };
    let places = (wanted.saturating_sub(REACH)..=wanted + REACH).step_by(STEP);
    let likeness = |from: usize| {
        let other = samples.get(from..from + HOP)?;
        let (mut product, mut power) = (0.0_f32, 1e-6_f32);
        for (a, b) in target.iter().zip(other).step_by(STEP) {
            product += a * b;
            power += b * b;
        }
        Some((from, product / power.sqrt()))
    };
    let best = places.filter_map(likeness).max_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(wanted.min(samples.len()), |(from, _)| from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone of one second.
    fn tone(hz: f32) -> Vec<f32> {
        (0..VOICE_RATE).map(|n| (n as f32 / VOICE_RATE as f32 * hz * std::f32::consts::TAU).sin()).collect()
    }

    #[test]
    fn a_tone_keeps_its_pitch_and_its_level_at_every_pace() {
        for speed in [0.36, 0.7, 1.0, 1.5, 2.8] {
            for hz in [90.0, 220.0, 1000.0] {
                let output = stretched(&tone(hz), speed);
                let seconds = output.len() as f32 / VOICE_RATE as f32;
                assert!((seconds - 1.0 / speed).abs() < 0.001, "{speed}: {seconds} s");
                let middle = &output[output.len() / 10..output.len() * 9 / 10];
                let crossings = middle.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
                let heard = crossings as f32 / (middle.len() as f32 / VOICE_RATE as f32);
                assert!((heard - hz).abs() < hz * 0.06 + 3.0, "{hz} Hz became {heard} at {speed}");
                let power = middle.iter().map(|sample| sample * sample).sum::<f32>() / middle.len() as f32;
                assert!((0.35..0.6).contains(&power), "{hz} Hz at {speed}: power {power}");
            }
        }
    }

    #[test]
    fn what_is_too_short_stays_as_it_is() {
        assert_eq!(stretched(&[0.5; 10], 2.0), [0.5; 10]);
        assert!(stretched(&[], 2.0).is_empty());
    }
}
