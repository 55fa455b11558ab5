//! How windows leave the engine: their callers get an answer, and it is counted. Shared by the worker's thread and those
//! that align words beside it.

use std::sync::Arc;
use std::time::Instant;

use super::board::Board;
use super::entry::{Entry, Recognised};
use super::error::Error;
use super::load::Load;
use super::meters::{Meters, Outcome};
use super::window::{Recognition, Timings};
use crate::audio::SAMPLE_RATE;

pub struct Answers {
    pub meters: Meters,
    pub load: Arc<Load>,
    pub board: Arc<Board>,
}

impl Answers {
    pub fn new(model: &str, load: Arc<Load>, board: Arc<Board>) -> Self {
        Self { meters: Meters::new(model), load, board }
    }

    pub fn recognised(&self, recognised: Recognised) {
        let Recognised { occupant, hypothesis } = recognised;
        let now = Instant::now();
        let encoded_at = occupant.encoded_at.unwrap_or(occupant.started_at);
        let timings = Timings {
            queued: occupant.started_at.saturating_duration_since(occupant.entry.queued_at),
            encoded: encoded_at.saturating_duration_since(occupant.started_at),
            decoded: now.saturating_duration_since(encoded_at),
            busy: occupant.busy,
        };
        let window = &occupant.entry.window;
        let consumed_samples = hypothesis.consumed_in(window.pcm.len());
        if !occupant.entry.is_probe {
            let seconds = consumed_samples.min(window.pcm.len()) as f64 / f64::from(SAMPLE_RATE);
            self.meters.recognised(window.class, seconds, timings.decoded);
            self.load.learn(window.pcm.duration_seconds(), occupant.busy.as_secs_f64());
            self.board.recognised(now);
        }
        let recognition = Recognition {
            segments: hypothesis.segments,
            language: hypothesis.language,
            consumed_samples,
            timings,
        };
        answer(occupant.entry, Ok(recognition));
    }

    pub fn failed(&self, entry: Entry, error: Error) {
        if !entry.is_probe {
            self.meters.left(entry.window.class, Outcome::Failed);
        }
        answer(entry, Err(error));
    }

    pub fn expired(&self, entry: Entry) {
        self.meters.left(entry.window.class, Outcome::Expired);
        answer(entry, Err(Error::DeadlineExceeded));
    }

    /// Whether the caller of `entry` has gone; if so, that is counted, and `entry` is to be dropped.
    pub fn is_abandoned(&self, entry: &Entry) -> bool {
        let abandoned = entry.reply.is_closed();
        if abandoned && !entry.is_probe {
            self.meters.left(entry.window.class, Outcome::Abandoned);
        }
        abandoned
    }
}

fn answer(entry: Entry, result: Result<Recognition, Error>) {
    // Fails if the caller has gone, which is not an error.
    let _ = entry.reply.send(result);
}
