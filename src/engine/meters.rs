//! The engine's metrics, as handles that cost one addition per update.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::board::Board;
use super::load::Load;
use super::model::ModelInfo;
use super::window::Class;
use crate::telemetry::metrics;

const CLASSES: [&str; 3] = ["live", "interactive", "job"];

/// How a window left the engine.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    Recognised,
    Failed,
    Expired,
    Abandoned,
}

/// A counter of seconds: carries the fractions that the counter itself, of whole numbers, cannot.
struct Seconds {
    total_micros: AtomicU64,
    counter: ::metrics::Counter,
}

impl Seconds {
    fn add(&self, seconds: f64) {
        let micros = (seconds * 1e6).round() as u64;
        let before = self.total_micros.fetch_add(micros, Relaxed);
        self.counter.increment((before + micros) / 1_000_000 - before / 1_000_000);
    }
}

struct OfClass {
    outcomes: [::metrics::Counter; 4],
    audio_in: Seconds,
    audio_done: Seconds,
    queued: ::metrics::Histogram,
    decoded: ::metrics::Histogram,
}

/// The metrics that a worker's thread updates, and the threads beside it.
pub struct Meters {
    classes: [OfClass; 3],
    tokens: ::metrics::Counter,
    steps: ::metrics::Counter,
    busy: Seconds,
    /// The model's own part of [`Self::busy`] and of the audio done.
    model_busy: Seconds,
    model_audio_done: Seconds,
    encode: ::metrics::Histogram,
}

impl Meters {
    pub fn new(model: &str) -> Self {
        let of_model = |metric: &metrics::Counter| Seconds {
            total_micros: AtomicU64::new(0),
            counter: metric.with_owned(vec![metrics::model(model)]),
        };
        let seconds = |metric: &metrics::Counter, labels: metrics::Labels| Seconds {
            total_micros: AtomicU64::new(0),
            counter: metric.with(labels),
        };
        let of_class = |class| {
            let class = ("class", class);
            OfClass {
                // In the order of `Outcome`.
                outcomes: ["recognised", "failed", "expired", "abandoned"]
                    .map(|outcome| metrics::WINDOWS.with(&[class, ("outcome", outcome)])),
                audio_in: seconds(&metrics::AUDIO_IN, &[class]),
                audio_done: seconds(&metrics::AUDIO_DONE, &[class]),
                queued: metrics::QUEUE_WAIT.with(&[class]),
                decoded: metrics::DECODE.with(&[class]),
            }
        };
        Self {
            classes: CLASSES.map(of_class),
            tokens: metrics::TOKENS.with(&[]),
            steps: metrics::STEPS.with(&[]),
            busy: seconds(&metrics::BUSY, &[]),
            model_busy: of_model(&metrics::MODEL_BUSY),
            model_audio_done: of_model(&metrics::MODEL_AUDIO_DONE),
            encode: metrics::ENCODE.with(&[]),
        }
    }

    pub fn arrived(&self, class: Class, seconds: f64) {
        self.classes[class as usize].audio_in.add(seconds);
    }

    pub fn left(&self, class: Class, outcome: Outcome) {
        self.classes[class as usize].outcomes[outcome as usize].increment(1);
    }

    pub fn recognised(&self, class: Class, seconds: f64, decoded: Duration) {
        let of_class = &self.classes[class as usize];
        of_class.audio_done.add(seconds);
        self.model_audio_done.add(seconds);
        of_class.decoded.record(decoded);
        self.left(class, Outcome::Recognised);
    }

    pub fn queued(&self, class: Class, waited: Duration) {
        self.classes[class as usize].queued.record(waited);
    }

    pub fn encoded(&self, took: Duration) {
        self.encode.record(took);
    }

    pub fn busy(&self, seconds: f64) {
        self.busy.add(seconds);
        self.model_busy.add(seconds);
    }

    pub fn stepped(&self, tokens: u64) {
        self.steps.increment(1);
        self.tokens.increment(tokens);
    }
}

/// The state of the engine of one model.
pub struct OfEngine<'a> {
    pub model: &'a ModelInfo,
    pub boards: Vec<&'a Board>,
    pub works: bool,
}

/// Sets the gauges of all engines to the current values; call before the metrics are read.
pub fn set_gauges(engines: &[OfEngine], load: &Load) {
    let now = Instant::now();
    let mut waiting = [0; CLASSES.len()];
    let mut ages = [Duration::ZERO; CLASSES.len()];
    let active = |boards: &[&Board]| boards.iter().map(|board| board.active()).sum::<u64>() as f64;
    for board in engines.iter().flat_map(|engine| &engine.boards) {
        waiting.iter_mut().zip(board.waiting()).for_each(|(sum, count)| *sum += count);
        ages.iter_mut().zip(board.oldest_ages(now)).for_each(|(oldest, age)| *oldest = age.max(*oldest));
    }
    for ((class, count), age) in CLASSES.into_iter().zip(waiting).zip(ages) {
        metrics::QUEUE_WINDOWS.with(&[("class", class)]).set(count as f64);
        // The age may be older than the length.
        let age = if count > 0 { age.as_secs_f64() } else { 0.0 };
        metrics::QUEUE_AGE.with(&[("class", class)]).set(age);
    }
    for OfEngine { model, boards, .. } in engines {
        let waiting: u64 = boards.iter().flat_map(|board| board.waiting()).sum();
        let label = || vec![metrics::model(&model.name)];
        metrics::MODEL_SLOTS_ACTIVE.with_owned(label()).set(active(boards));
        metrics::MODEL_QUEUE_WINDOWS.with_owned(label()).set(waiting as f64);
    }
    let snapshot = load.snapshot();
    let works = engines.iter().all(|engine| engine.works);
    for (gauge, value) in [
        (&metrics::SLOTS, engines.iter().map(|engine| engine.model.slots).sum::<usize>() as f64),
        (&metrics::SLOTS_ACTIVE, engines.iter().map(|engine| active(&engine.boards)).sum()),
        (&metrics::HELD_REQUESTS, snapshot.requests as f64),
        (&metrics::HELD_AUDIO, snapshot.audio_seconds),
        (&metrics::HELD_WAIT, snapshot.wait_seconds.unwrap_or(0.0)),
        (&metrics::REAL_TIME_FACTOR, snapshot.real_time_factor.unwrap_or(0.0)),
        (&metrics::ENGINE_WORKS, f64::from(u8::from(works))),
    ] {
        gauge.with(&[]).set(value);
    }
}
