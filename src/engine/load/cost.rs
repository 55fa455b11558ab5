//! The cost of work in engine time, learned from finished windows.
//!
//! A window's time is modelled as `a + b · seconds`: a short window costs nearly as much as a long one, as encoder and
//! prompt cost about the same for both. Work is therefore kept as windows and seconds and converted to time on
//! demand, so that nothing needs to be recounted when the model changes.

use crate::engine::WINDOW_SAMPLES;
use crate::engine::model::{MODELS_MAX, ModelId};

/// Weight of the past at each new window: about fifty windows are remembered.
const MEMORY: f64 = 0.98;
/// Windows, or busy seconds, below which an estimate is not used.
const MIN_WINDOWS: f64 = 8.0;
const MIN_BUSY_SECONDS: f64 = 0.5;
/// The spread of lengths, in seconds, that is needed to estimate the slope.
const MIN_SPREAD_SECONDS: f64 = 1.0;
/// The fixed part of a full window's cost until it is measured.
const FIRST_FIXED: f64 = 0.5;

/// A window counts with at most this multiple of its foreseen cost.
const OUTLIER: f64 = 10.0;

const WINDOW_SECONDS: f64 = WINDOW_SAMPLES as f64 / crate::audio::SAMPLE_RATE as f64;

/// Audio in windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Amount {
    windows: f64,
    /// Seconds of audio.
    seconds: f64,
}

/// Audio in windows, each model's by itself, as a window of one may cost many times that of another.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    amounts: [Amount; MODELS_MAX],
    /// Seconds of one core until it is decoded.
    pub reading: f64,
}

impl Work {
    fn of(model: ModelId, windows: f64, seconds: f64) -> Self {
        let mut work = Self::default();
        work.amounts[model.index()] = Amount { windows, seconds };
        work
    }

    pub fn window(model: ModelId, seconds: f64) -> Self {
        Self::of(model, 1.0, seconds)
    }

    /// `seconds` of audio in as few windows as can hold it; none for none.
    pub fn audio(model: ModelId, seconds: f64) -> Self {
        Self::of(model, (seconds / WINDOW_SECONDS).ceil(), seconds)
    }

    /// With so many seconds of one core until it is decoded.
    pub fn read_in(self, reading: f64) -> Self {
        Self { reading, ..self }
    }

    pub fn windows(&self) -> f64 {
        self.amounts.iter().map(|amount| amount.windows).sum()
    }

    /// Seconds of audio.
    pub fn seconds(&self) -> f64 {
        self.amounts.iter().map(|amount| amount.seconds).sum()
    }

    /// The work left after `work`. Less than a sample counts as nothing, as sums of fractions are inexact.
    pub fn without(self, part: Self) -> Self {
        let left = self + part.times(-1.0);
        let nothing_below = |least: f64, value: f64| if value < least { 0.0 } else { value };
        Self {
            amounts: left.amounts.map(|Amount { windows, seconds }| Amount {
                windows: nothing_below(1e-6, windows),
                seconds: nothing_below(1e-5, seconds),
            }),
            reading: nothing_below(1e-9, left.reading),
        }
    }

    pub fn times(self, factor: f64) -> Self {
        let times =
            |Amount { windows, seconds }| Amount { windows: windows * factor, seconds: seconds * factor };
        Self { amounts: self.amounts.map(times), reading: self.reading * factor }
    }
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for (amount, more) in self.amounts.iter_mut().zip(other.amounts) {
            amount.windows += more.windows;
            amount.seconds += more.seconds;
        }
        self.reading += other.reading;
        self
    }
}

/// The costs of all models.
#[derive(Default)]
pub struct Costs([Cost; MODELS_MAX]);

impl Costs {
    pub fn model(&self, model: ModelId) -> &Cost {
        &self.0[model.index()]
    }

    pub fn learn(&mut self, model: ModelId, seconds: f64, busy: f64) {
        self.0[model.index()].learn(seconds, busy);
    }

    /// Whether the cost of any model is known.
    pub fn are_known(&self) -> bool {
        self.0.iter().any(|cost| cost.of_full_window().is_some())
    }

    /// Seconds of the engine that `work` takes; a second for a full window of a model of which nothing is known.
    pub fn of(&self, work: &Work) -> f64 {
        self.0.iter().zip(&work.amounts).map(|(cost, amount)| cost.of(*amount)).sum()
    }
}

/// Least squares over windows, newer ones weighing more.
pub struct Cost {
    count: f64,
    seconds: f64,
    seconds_squared: f64,
    busy: f64,
    seconds_busy: f64,
    /// The part of a full window's cost that does not depend on its length, 0 to 1.
    fixed: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            count: 0.0,
            seconds: 0.0,
            seconds_squared: 0.0,
            busy: 0.0,
            seconds_busy: 0.0,
            fixed: FIRST_FIXED,
        }
    }
}

impl Cost {
    /// The cost of `amount` in full windows.
    fn full_windows(&self, amount: Amount) -> f64 {
        self.fixed * amount.windows + (1.0 - self.fixed) * amount.seconds / WINDOW_SECONDS
    }

    /// Seconds of the engine that a full window takes, once that is known.
    pub fn of_full_window(&self) -> Option<f64> {
        let known = self.count >= MIN_WINDOWS || self.busy >= MIN_BUSY_SECONDS;
        let done = self.full_windows(Amount { windows: self.count, seconds: self.seconds });
        (known && done > 0.0).then(|| self.busy / done)
    }

    fn of(&self, amount: Amount) -> f64 {
        self.full_windows(amount) * self.of_full_window().unwrap_or(1.0)
    }

    /// A window of `seconds` took `busy` seconds of the engine's time, its share of batches counted.
    fn learn(&mut self, seconds: f64, busy: f64) {
        // A window that was suspended half-way, perhaps with the process, says nothing about the next.
        let foreseen = self
            .of_full_window()
            .map(|_| self.of(Amount { windows: 1.0, seconds }))
            .filter(|&foreseen| foreseen > 0.0);
        let busy = foreseen.map_or(busy, |foreseen| busy.min(OUTLIER * foreseen));
        self.count = self.count * MEMORY + 1.0;
        self.seconds = self.seconds * MEMORY + seconds;
        self.seconds_squared = self.seconds_squared * MEMORY + seconds * seconds;
        self.busy = self.busy * MEMORY + busy;
        self.seconds_busy = self.seconds_busy * MEMORY + seconds * busy;
        let (mean, mean_busy) = (self.seconds / self.count, self.busy / self.count);
        let variance = self.seconds_squared / self.count - mean * mean;
        if self.count < MIN_WINDOWS || variance < MIN_SPREAD_SECONDS * MIN_SPREAD_SECONDS || mean_busy <= 0.0
        {
            return;
        }
        // Neither part of a cost may be negative, however the samples lie.
        let slope =
            ((self.seconds_busy / self.count - mean * mean_busy) / variance).clamp(0.0, mean_busy / mean);
        let fixed = mean_busy - slope * mean;
        self.fixed = (fixed / (fixed + slope * WINDOW_SECONDS)).clamp(0.0, 1.0);
    }
}

/// Seconds of one core to decode a sample, until it is measured: between MP3 and FLAC.
const FIRST_READING: f64 = 2e-8;
/// Decoded samples before the measurement is used.
const MIN_SAMPLES: f64 = 1e6;

/// The time that decoding takes for each sample of a file, all of its channels counted.
#[derive(Default)]
pub struct Reading {
    samples: f64,
    seconds: f64,
}

impl Reading {
    /// Seconds of one core to decode `samples`.
    pub fn of(&self, samples: f64) -> f64 {
        let each = if self.samples < MIN_SAMPLES { FIRST_READING } else { self.seconds / self.samples };
        samples * each
    }

    pub fn learn(&mut self, samples: f64, seconds: f64) {
        self.samples = self.samples * MEMORY + samples;
        self.seconds = self.seconds * MEMORY + seconds;
    }
}

/// Busy seconds of the engine after which a measurement has lost most of its weight.
const REMEMBERED_BUSY_SECONDS: f64 = 15.0;
/// Bounds of a plausible throughput; anything else is a failed measurement.
const THROUGHPUT: std::ops::RangeInclusive<f64> = 0.1..=2.0;

/// Foreseen seconds of work done in a second of the engine's busy time. Below 1 while the engine also does work that
/// is not counted here. Idle time does not count.
#[derive(Default)]
pub struct Throughput {
    busy: f64,
    foreseen: f64,
    audio: f64,
}

impl Throughput {
    /// Returns the part of all earlier measurements that still counts.
    pub fn busy(&mut self, seconds: f64) -> f64 {
        let kept = (-seconds / REMEMBERED_BUSY_SECONDS).exp();
        self.busy = self.busy * kept + seconds;
        self.foreseen *= kept;
        self.audio *= kept;
        kept
    }

    /// Busy seconds that still count; `None` if too few for an estimate.
    pub fn busy_seconds(&self) -> Option<f64> {
        (self.busy >= MIN_BUSY_SECONDS).then_some(self.busy)
    }

    /// Records that work is done whose foreseen cost was `foreseen` seconds.
    pub fn done(&mut self, foreseen: f64, audio_seconds: f64) {
        self.foreseen += foreseen;
        self.audio += audio_seconds;
    }

    fn measured(&self, sum: f64) -> Option<f64> {
        (self.busy >= MIN_BUSY_SECONDS && sum > 0.0).then(|| sum / self.busy)
    }

    /// Foreseen seconds in a second; 1 before it is measured.
    pub fn get(&self) -> f64 {
        self.measured(self.foreseen)
            .map_or(1.0, |throughput| throughput.clamp(*THROUGHPUT.start(), *THROUGHPUT.end()))
    }

    /// Audio seconds in a second.
    pub fn audio(&self) -> Option<f64> {
        self.measured(self.audio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_through_noise_and_followed_when_it_changes() {
        for fixed in [0.9, 0.2, 0.6] {
            let mut cost = Cost::default();
            for round in 0..400 {
                let seconds = 1.0 + f64::from(round * 7 % 29);
                let noise = 1.0 + 0.2 * f64::from(round * 13 % 11 - 5) / 5.0;
                cost.learn(seconds, noise * 0.3 * (fixed + (1.0 - fixed) * seconds / 30.0));
            }
            assert!((cost.fixed - fixed).abs() < 0.12, "{} for {fixed}", cost.fixed);
            let full = cost.of_full_window().expect("measured");
            assert!((full - 0.3).abs() < 0.03, "{full} for 0.3");
            assert!((cost.of(Amount { windows: 3.0, seconds: 90.0 }) - 3.0 * full).abs() < 1e-9);
            assert_eq!(cost.of(Amount::default()), 0.0);
        }
    }

    #[test]
    fn windows_of_one_length_tell_their_cost_and_no_slope() {
        let mut cost = Cost::default();
        assert_eq!(cost.of_full_window(), None);
        for _ in 0..100 {
            cost.learn(10.0, 0.1);
        }
        assert_eq!(cost.fixed, FIRST_FIXED);
        assert!((cost.of(Amount { windows: 1.0, seconds: 10.0 }) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn each_models_work_has_its_own_cost() {
        let (small, large) = (ModelId::FIRST, ModelId::new(1).expect("there may be two"));
        let mut costs = Costs::default();
        for _ in 0..100 {
            costs.learn(small, 30.0, 0.1);
            costs.learn(large, 30.0, 2.0);
        }
        let both = Work::audio(small, 60.0) + Work::window(large, 30.0);
        assert!((costs.of(&both) - 2.2).abs() < 1e-9);
        assert_eq!((both.windows(), both.seconds()), (3.0, 90.0));
        let left = both.without(Work::audio(small, 60.0));
        assert_eq!(left, Work::window(large, 30.0));
    }
}
