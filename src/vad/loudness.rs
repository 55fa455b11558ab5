//! Stretches that are as loud and as uneven as speech. The detector knows no whisper, and little of voices on a bad
//! radio: where it hears nothing and such a stretch has no words, somebody may speak all the same. Pure.

use std::collections::VecDeque;
use std::ops::Range;

use super::edges::LEVEL_SAMPLES;
use crate::audio::SAMPLE_RATE;

/// Levels in a second.
const PER_SECOND: usize = SAMPLE_RATE as usize / LEVEL_SAMPLES;
/// Levels whose mean power counts: 50 ms, as the ear follows a syllable.
const SMOOTHED_LEVELS: usize = 5;

/// Speech is so many decibels above the quiet moments of the 30 s around it, ...
const ABOVE_FLOOR: f32 = 12.0;
/// ... which are quieter than nine tenths of all, ...
const FLOOR_TENTH: usize = 10;
/// ... and no quieter than this, in decibels below full scale.
const LEAST_FLOOR: f32 = -70.0;
/// No speech is quieter than this, in decibels below full scale.
pub const LEAST_SPEECH_LEVEL: f32 = LEAST_FLOOR + ABOVE_FLOOR;
/// Levels with one floor: 10 s. It is that of those before and after, too.
const FLOOR_LEVELS: usize = 10 * PER_SECOND;

/// A longer quiet divides two stretches: 0.5 s.
const DIVIDING_LEVELS: usize = PER_SECOND / 2;
/// A quiet of no more than this is kept between stretches that are heard together: 2 s.
const JOINING_LEVELS: usize = 2 * PER_SECOND;
/// Shorter sounds are no words: 1 s.
const LEAST_LEVELS: usize = PER_SECOND;
/// Quiet around a stretch that is kept: 0.3 s.
const CONTEXT_LEVELS: usize = PER_SECOND * 3 / 10;
/// The share of a stretch that is loud. Keys and knocks are quiet most of the time.
const LOUD_SHARE: f32 = 0.55;
/// A syllable ends in a fall of so many decibels, ...
const FALL: f32 = 6.0;
/// ... and so many come in a second. Noise and tones have fewer, machines and alarms more.
const FALLS_PER_SECOND: std::ops::RangeInclusive<f32> = 1.2..=7.0;

/// The stretches, in samples, that lie outside of the `accounted` seconds; neighbours are joined, and none has more than
/// `longest` samples. `levels`: see [`super::levels`].
pub fn speech_like(levels: &[f32], accounted: &[Range<f64>], longest: usize) -> Vec<Range<usize>> {
    let mut is_free = vec![true; levels.len()];
    for span in accounted {
        let [start, end] =
            [span.start, span.end].map(|at| ((at.max(0.0) * PER_SECOND as f64) as usize).min(levels.len()));
        is_free.get_mut(start..end).unwrap_or_default().fill(false);
    }
    let smoothed = smoothed(levels);
    let is_loud = is_loud(levels, &smoothed);
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut is_open = false;
    for index in 0..levels.len() {
        if !is_free[index] {
            is_open = false;
        } else if is_loud[index] {
            match found.last_mut() {
                Some(last) if is_open && index - last.end < DIVIDING_LEVELS => last.end = index + 1,
                _ => found.push(index..index + 1),
            }
            is_open = true;
        }
    }
    found.retain(|stretch| {
        stretch.len() >= LEAST_LEVELS && is_uneven(&smoothed[stretch.clone()], &is_loud[stretch.clone()])
    });
    let mut found: VecDeque<Range<usize>> =
        found.into_iter().map(|stretch| with_context(stretch, &is_free)).collect();
    let longest = (longest / LEVEL_SAMPLES).max(1);
    let mut joined: Vec<Range<usize>> = Vec::new();
    while let Some(mut stretch) = found.pop_front() {
        if stretch.len() > longest {
            let places = stretch.start + longest / 2..stretch.start + longest;
            let cut = places.min_by(|a, b| smoothed[*a].total_cmp(&smoothed[*b])).unwrap_or(stretch.end);
            found.push_front(cut..stretch.end);
            stretch.end = cut;
        }
        match joined.last_mut() {
            Some(last)
                if stretch.start.saturating_sub(last.end) <= JOINING_LEVELS
                    && stretch.end - last.start <= longest
                    && is_free[last.end.min(stretch.start)..stretch.start].iter().all(|&is_free| is_free) =>
            {
                last.end = stretch.end;
            }
            _ => joined.push(stretch),
        }
    }
    joined.into_iter().map(|stretch| stretch.start * LEVEL_SAMPLES..stretch.end * LEVEL_SAMPLES).collect()
}

/// `stretch` with some of what is around it, as far as `is_free`.
fn with_context(stretch: Range<usize>, is_free: &[bool]) -> Range<usize> {
    let is_context = |index: &usize| is_free[*index];
    let before = (0..stretch.start).rev().take(CONTEXT_LEVELS).take_while(is_context).count();
    let after = (stretch.end..is_free.len()).take(CONTEXT_LEVELS).take_while(is_context).count();
    stretch.start - before..stretch.end + after
}

/// For each level whether it is clearly above the quiet moments around it.
fn is_loud(levels: &[f32], smoothed: &[f32]) -> Vec<bool> {
    let blocks = smoothed.chunks(FLOOR_LEVELS).enumerate();
    blocks
        .flat_map(|(block, smoothed)| {
            let start = (block * FLOOR_LEVELS).saturating_sub(FLOOR_LEVELS);
            let end = ((block + 2) * FLOOR_LEVELS).min(levels.len());
            let least = floor(&levels[start..end]) + ABOVE_FLOOR;
            smoothed.iter().map(move |level| *level >= least)
        })
        .collect()
}

/// Each level as the mean power of those around it.
fn smoothed(levels: &[f32]) -> Vec<f32> {
    let power: Vec<f32> = levels.iter().map(|level| 10_f32.powf(level / 10.0)).collect();
    let each_side = SMOOTHED_LEVELS / 2;
    let around = |index: usize| {
        let near = &power[index.saturating_sub(each_side)..(index + each_side + 1).min(power.len())];
        10.0 * (near.iter().sum::<f32>() / near.len() as f32 + 1e-10).log10()
    };
    (0..levels.len()).map(around).collect()
}

/// The level of the quiet moments among `levels`.
fn floor(levels: &[f32]) -> f32 {
    let mut levels = levels.to_vec();
    let index = levels.len() / FLOOR_TENTH;
    if levels.is_empty() {
        return LEAST_FLOOR;
    }
    levels.select_nth_unstable_by(index, f32::total_cmp).1.max(LEAST_FLOOR)
}

/// Whether the levels of a stretch rise and fall as those of speech do.
fn is_uneven(levels: &[f32], is_loud: &[bool]) -> bool {
    let loud = is_loud.iter().filter(|&&is_loud| is_loud).count();
    let (mut falls, mut is_rising) = (0, true);
    let (mut highest, mut lowest) = (f32::NEG_INFINITY, f32::INFINITY);
    for &level in levels {
        if is_rising {
            highest = highest.max(level);
            if level < highest - FALL {
                falls += 1;
                (is_rising, lowest) = (false, level);
            }
        } else {
            lowest = lowest.min(level);
            if level > lowest + FALL {
                (is_rising, highest) = (true, level);
            }
        }
    }
    let per_second = falls as f32 * PER_SECOND as f32 / levels.len() as f32;
    loud as f32 >= LOUD_SHARE * levels.len() as f32 && FALLS_PER_SECOND.contains(&per_second)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one span is a list of spans too")]
mod tests {
    use super::*;

    /// 20 s at `floor`, and from 5 s on 6 s of `sound` by hundredths of a second.
    fn levels(floor: f32, sound: impl Fn(usize) -> f32) -> Vec<f32> {
        (0..2000).map(|n| if (500..1100).contains(&n) { sound(n).max(floor) } else { floor }).collect()
    }

    /// Four syllables a second.
    fn syllables(n: usize) -> f32 {
        if n % 25 < 17 { -25.0 } else { -45.0 }
    }

    fn found(levels: &[f32], accounted: &[Range<f64>]) -> Vec<(f64, f64)> {
        let seconds = |sample: usize| (sample as f64 / f64::from(SAMPLE_RATE) * 10.0).round() / 10.0;
        speech_like(levels, accounted, 30 * 16_000)
            .iter()
            .map(|range| (seconds(range.start), seconds(range.end)))
            .collect()
    }

    #[test]
    fn syllables_above_the_noise_may_be_speech() {
        for (floor, end) in [(-100.0, 11.3), (-60.0, 11.3), (-40.0, 11.2)] {
            assert_eq!(found(&levels(floor, syllables), &[]), [(4.7, end)], "{floor}");
        }
        assert_eq!(found(&levels(-30.0, syllables), &[]), [], "in noise");
        assert_eq!(found(&[], &[]), []);
    }

    #[test]
    fn what_words_account_for_is_left_out() {
        let levels = levels(-70.0, syllables);
        assert_eq!(found(&levels, &[4.0..12.0]), []);
        assert_eq!(found(&levels, &[4.0..8.0]), [(8.0, 11.3)]);
        assert_eq!(found(&levels, &[4.0..8.0, 8.5..12.0]), [], "too short");
        assert_eq!(found(&levels, &[4.0..12.0, 21.0..22.0]), [], "beyond the end");
    }

    #[test]
    fn neighbours_are_heard_together_and_long_stretches_divided() {
        let apart = |n: usize| if (700..800).contains(&n) { -70.0 } else { syllables(n) };
        assert_eq!(found(&levels(-70.0, apart), &[]), [(4.7, 11.3)]);
        let levels = levels(-70.0, syllables);
        let parts = speech_like(&levels, &[], 4 * 16_000);
        assert!(parts.len() >= 2 && parts.iter().all(|part| part.len() <= 4 * 16_000), "{parts:?}");
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
    }

    #[test]
    fn steady_sounds_and_short_ones_are_not() {
        assert_eq!(found(&levels(-70.0, |_| -20.0), &[]), [], "noise");
        assert_eq!(found(&levels(-70.0, |n| if n < 560 { syllables(n) } else { -70.0 }), &[]), [], "a cough");
        assert_eq!(found(&levels(-70.0, |n| if n % 25 < 5 { -20.0 } else { -70.0 }), &[]), [], "keys");
        assert_eq!(found(&levels(-70.0, |n| if n % 12 < 7 { -20.0 } else { -45.0 }), &[]), [], "an alarm");
    }
}
