//! Watches the engine's thread, from a thread of its own: a call into the model that does not come back, calls
//! that fail, and long quiet, after which a short piece of silence is sent through as a probe.
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

use super::board::Condition;
use super::window::{Class, DecodingOptions, LanguageChoice, Recognition, TenantId, Window};
use super::worker::Entry;
use super::{Config, Error, Shared};
use crate::audio::{Pcm, SAMPLE_RATE};

/// Looks in the time that a call may take: it is found out by so much too late.
const LOOKS: u32 = 20;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);
/// Calls that fail one after another before it is asked whether any would succeed: bad luck and bad input
/// come one at a time.
const FAILURES: u64 = 3;
/// From one failed probe to the next.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

pub struct Watch {
    shared: Weak<Shared>,
    stall: Duration,
    quiet: Duration,
    probe: Option<oneshot::Receiver<Result<Recognition, Error>>>,
    probed_at: Option<Instant>,
}

impl Watch {
    pub fn new(config: &Config, shared: Weak<Shared>) -> Self {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Self {
            shared,
            stall: seconds(config.stall_seconds),
            quiet: seconds(config.probe_seconds),
            probe: None,
            probed_at: None,
        }
    }

    /// Until `alive` is closed, by the last handle on the engine.
    pub fn run(mut self, alive: &Receiver<()>) {
        let every = (self.stall / LOOKS).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        while alive.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let Some(shared) = self.shared.upgrade() else { return };
            self.look(&shared, Instant::now());
        }
    }

    fn look(&mut self, shared: &Shared, now: Instant) {
        let board = &shared.board;
        let before = board.condition();
        let hangs = board.in_call(now).is_some_and(|call| call > self.stall);
        match (before, hangs) {
            (Condition::Ended, _) => {
                shared.hung.send_replace(true);
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
                shared.hung.send_replace(true);
                return;
            }
            (Condition::Hung, false) => {
                tracing::warn!("the call into the model came back");
                board.set_condition(Condition::Failing);
                self.probed_at = None;
                shared.hung.send_replace(false);
            }
            _ => {}
        }
        self.settle(shared);
        if self.probe.is_none() && self.wants_probe(shared, now) {
            self.probed_at = Some(now);
            self.probe = shared.probe();
        }
    }

    /// What the probe has found, if it is back.
    fn settle(&mut self, shared: &Shared) {
        let Some(probe) = &mut self.probe else { return };
        let result = match probe.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(oneshot::error::TryRecvError::Closed) => Err(Error::ShuttingDown),
        };
        self.probe = None;
        let failed_before = shared.board.condition() != Condition::Working;
        match result {
            Ok(()) if failed_before => {
                tracing::info!("the engine works again");
                shared.board.set_condition(Condition::Working);
            }
            Ok(()) => {}
            Err(error) => {
                if !failed_before {
                    tracing::error!(%error, "the engine fails");
                }
                shared.board.set_condition(Condition::Failing);
            }
        }
    }

    fn wants_probe(&self, shared: &Shared, now: Instant) -> bool {
        let since_probe = self.probed_at.map(|at| now.saturating_duration_since(at));
        let due = |pause: Duration| since_probe.is_none_or(|since| since >= pause);
        let board = &shared.board;
        if board.condition() != Condition::Working || board.failures() >= FAILURES {
            return due(PROBE_AGAIN);
        }
        board.since_recognised(now) >= self.quiet && due(self.quiet)
    }
}

/// Half a second of silence, decoded once and greedily, ahead of all that waits.
pub fn probe_window(language: &str) -> Window {
    Window {
        pcm: Pcm::new(vec![0.0; SAMPLE_RATE as usize / 2]),
        options: DecodingOptions {
            language: LanguageChoice::Named(language.to_owned()),
            temperatures: vec![0.0],
            ..DecodingOptions::default()
        },
        class: Class::Live,
        tenant: TenantId::default(),
        deadline: None,
    }
}

impl Shared {
    /// Sends a probe; `None` where the engine's thread is gone.
    pub(super) fn probe(&self) -> Option<oneshot::Receiver<Result<Recognition, Error>>> {
        let (reply, answer) = oneshot::channel();
        let window = probe_window(self.info.languages.first().map_or("en", String::as_str));
        let entry = Entry { window, reply, queued_at: Instant::now(), is_probe: true };
        self.commands.send(entry).ok().map(|()| answer)
    }
}
