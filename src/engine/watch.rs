//! The watchdog of one worker, on a separate thread. It detects calls into the model, and alignments beside it, that hang
//! (a call that takes long and goes on does not) or fail, and sends half a second of silence as a probe after failures and after long idle time.
//!
//! ```text
//!            call > stall_seconds            the call is back
//! Working ─────────────────────────▶ Hung ────────────────────▶ Failing ──probe succeeds──▶ Working
//!    └────────────── probe fails ─────────────────────────────────▶┘
//! ```

use std::sync::Weak;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use tokio::sync::oneshot;

use super::board::{Condition, Stage};
use super::config::Config;
use super::error::Error;
use super::handle::WorkerHandle;
use super::window::Recognition;

/// Checks within [`Config::stall_seconds`]: a hang is detected late by at most one interval.
const LOOKS: u32 = 20;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);
/// Consecutive failed calls before a probe: single failures may be due to the input.
const FAILURES: u64 = 3;
/// The interval between probes while they fail.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

pub struct Watch {
    worker: Weak<WorkerHandle>,
    every: Duration,
    looked_at: Option<Instant>,
    /// The model call, the alignment and the wait for the device that were in progress at the last check, and for how long
    /// each has been seen not to go on.
    calls: [Option<(Stage, Duration)>; 3],
    /// How long the worker has been failing.
    failing: Duration,
    stall: Duration,
    quiet: Duration,
    probe: Option<oneshot::Receiver<Result<Recognition, Error>>>,
    probed_at: Option<Instant>,
}

impl Watch {
    pub fn new(config: &Config, worker: Weak<WorkerHandle>) -> Self {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let stall = seconds(config.stall_seconds);
        Self {
            worker,
            every: (stall / LOOKS).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX),
            looked_at: None,
            calls: [None; 3],
            failing: Duration::ZERO,
            stall,
            quiet: seconds(config.probe_seconds),
            probe: None,
            probed_at: None,
        }
    }

    /// Runs until the last handle on the engine closes `alive`.
    pub fn run(mut self, alive: &Receiver<()>) {
        while alive.recv_timeout(self.every) == Err(RecvTimeoutError::Timeout) {
            let Some(worker) = self.worker.upgrade() else { return };
            self.look(&worker, Instant::now());
        }
    }

    /// The time since the last check. A gap counts as two intervals at most: if the process or the machine was
    /// suspended, the model did not hang.
    fn since_look(&mut self, now: Instant) -> Duration {
        let since =
            self.looked_at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        since.min(2 * self.every)
    }

    /// For how long the one of `calls` has not gone on that stands still for longest.
    fn watched(&mut self, calls: [Option<Stage>; 3], since_look: Duration) -> Duration {
        for (watched, call) in self.calls.iter_mut().zip(calls) {
            let before = watched.take();
            *watched = call.map(|stage| match before {
                Some((same, time)) if same == stage => (stage, time + since_look),
                _ => (stage, Duration::ZERO),
            });
        }
        self.calls.iter().flatten().map(|&(_, time)| time).max().unwrap_or_default()
    }

    fn look(&mut self, worker: &WorkerHandle, now: Instant) {
        let board = &worker.board;
        let before = board.condition();
        let since_look = self.since_look(now);
        let watched = self.watched([board.in_call(), board.in_alignment(), board.in_wait()], since_look);
        let hangs = watched > self.stall;
        self.failing = if before == Condition::Failing { self.failing + since_look } else { Duration::ZERO };
        board.set_unwell_for(watched.saturating_sub(self.stall).max(self.failing));
        match (before, hangs) {
            (Condition::Ended, _) => {
                worker.hung.send_replace(true);
                return;
            }
            (Condition::Hung, true) => return,
            (_, true) => {
                tracing::error!(
                    seconds = self.stall.as_secs_f64(),
                    "a call into the model does not come back"
                );
                board.set_condition(Condition::Hung);
                self.probe = None;
                worker.hung.send_replace(true);
                return;
            }
            (Condition::Hung, false) => {
                tracing::warn!("the call into the model came back");
                board.set_condition(Condition::Failing);
                self.probed_at = None;
                worker.hung.send_replace(false);
            }
            _ => {}
        }
        self.settle(worker);
        if self.probe.is_none() && self.wants_probe(worker, now) {
            self.probed_at = Some(now);
            self.probe = worker.send_probe();
        }
    }

    /// Updates the condition from the probe's result, once there is one.
    fn settle(&mut self, worker: &WorkerHandle) {
        let Some(probe) = &mut self.probe else { return };
        let result = match probe.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(oneshot::error::TryRecvError::Closed) => Err(Error::ShuttingDown),
        };
        self.probe = None;
        let failed_before = worker.board.condition() != Condition::Working;
        match result {
            Ok(()) if failed_before => {
                tracing::info!("the engine works again");
                worker.board.set_condition(Condition::Working);
            }
            Ok(()) => {}
            Err(error) => {
                if !failed_before {
                    tracing::error!(%error, "the engine fails");
                }
                worker.board.set_condition(Condition::Failing);
            }
        }
    }

    fn wants_probe(&self, worker: &WorkerHandle, now: Instant) -> bool {
        let since_probe = self.probed_at.map(|at| now.saturating_duration_since(at));
        let due = |pause: Duration| since_probe.is_none_or(|since| since >= pause);
        let board = &worker.board;
        if board.condition() != Condition::Working || board.failures() >= FAILURES {
            return due(PROBE_AGAIN);
        }
        board.since_recognised(now) >= self.quiet && due(self.quiet)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::board::Board;
    use crate::engine::progress::{DeviceProgress, Progress};

    fn call(number: u64) -> Option<Stage> {
        Some(Stage { number, steps: 0 })
    }

    #[test]
    fn a_call_is_as_long_as_it_was_watched() {
        let config = Config { stall_seconds: 10.0, ..Config::default() };
        let mut watch = Watch::new(&config, Weak::new());
        let (start, every) = (Instant::now(), watch.every);
        let mut now = start;
        let mut longest = |call: Option<Stage>, looks: u32, between: Duration| {
            let mut watched = Duration::ZERO;
            for _ in 0..looks {
                now += between;
                let since_look = watch.since_look(now);
                watched = watch.watched([call, None, None], since_look);
            }
            watched
        };
        assert_eq!(longest(None, 100, every), Duration::ZERO);
        // The first check of a call cannot know when it began.
        assert_eq!(longest(call(1), 1, every), Duration::ZERO);
        assert_eq!(longest(call(1), 20, every), 20 * every);
        // Another call, and then an hour without a check.
        assert_eq!(longest(call(3), 5, every), 4 * every);
        assert_eq!(longest(call(3), 1, Duration::from_secs(3600)), 6 * every);
        assert_eq!(longest(None, 1, every), Duration::ZERO);
    }

    #[test]
    fn a_slow_call_that_goes_on_does_not_hang_and_nor_does_what_waits_for_it() {
        let (device, model) = (Arc::new(DeviceProgress::default()), Progress::default());
        device.add(&model);
        let (computes, waits) = (Board::new(device.clone()), Board::new(device));
        computes.call_begins();
        waits.turn_wait_begins();
        let mut watch = Watch::new(&Config::default(), Weak::new());
        let every = watch.every;
        for look in 0..100 {
            if look % 2 == 0 {
                model.step();
            }
            let longest = watch.watched([computes.in_call(), None, waits.in_wait()], every);
            assert!(longest <= every, "{longest:?} at look {look}");
        }
        for _ in 0..20 {
            watch.watched([computes.in_call(), None, waits.in_wait()], every);
        }
        assert!(watch.watched([computes.in_call(), None, None], every) >= 20 * every, "it stands still");
    }

    #[test]
    fn an_alignment_that_does_not_come_back_is_seen_while_calls_go_on() {
        let mut watch = Watch::new(&Config::default(), Weak::new());
        let every = watch.every;
        let mut longest = Duration::ZERO;
        for number in 0..10 {
            longest = watch.watched([call(2 * number + 1), call(7), None], every);
        }
        assert_eq!(longest, 9 * every);
        assert_eq!(watch.watched([call(21), call(8), None], every), Duration::ZERO);
    }

    #[test]
    fn an_alignment_that_does_not_come_back_is_seen_while_others_do() {
        let (board, mut watch) = (Board::new(Arc::default()), Watch::new(&Config::default(), Weak::new()));
        let every = watch.every;
        let mut before = board.alignment_begins();
        let hangs = board.alignment_begins();
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            board.alignment_ends(std::mem::replace(&mut before, board.alignment_begins()));
            longest = watch.watched([None, board.in_alignment(), None], every);
        }
        assert_eq!(longest, 9 * every);
        board.alignment_ends(hangs);
        assert_eq!(watch.watched([None, board.in_alignment(), None], every), Duration::ZERO);
        board.alignment_ends(before);
        assert_eq!(board.in_alignment(), None);
    }
}
