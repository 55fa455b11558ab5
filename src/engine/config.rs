//! The bounds of the engine, as configured.

use serde::{Deserialize, Serialize};

/// Bounds on the engine's work, and the timeouts of its watchdog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// New audio is refused while the audio in hand would take longer than this at the measured speed.
    /// Seconds, default 30.
    pub max_wait_seconds: f64,
    /// The most audio in memory at once, including that of jobs, from its decoding until its transcript is done. 32 kB of memory a second, and 64 kB more while its window is in the engine. Seconds, default 14400.
    pub max_held_seconds: f64,
    /// Admitted requests without an answer yet. Default 1024.
    pub max_requests: usize,
    /// A model call that stands still for longer counts as hung: waiting windows fail, and new work is refused until it
    /// returns. On a GPU that is the time of the whole call; raise it if one can take that long. Seconds, default 15.
    pub stall_seconds: f64,
    /// When a call has hung, or every call has failed, for this long, `/livez` fails, so that a supervisor restarts
    /// the process: nothing else ends the call, or brings back a failed device. Seconds, default 180.
    pub give_up_seconds: f64,
    /// After this long without a recognised window, a short silence is sent through the model to check it.
    /// Seconds, default 60.
    pub probe_seconds: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_wait_seconds: 30.0,
            max_held_seconds: 14_400.0,
            max_requests: 1024,
            stall_seconds: 15.0,
            give_up_seconds: 180.0,
            probe_seconds: 60.0,
        }
    }
}

impl Config {
    /// Refuses nothing: for a caller that bounds its own work and prefers to wait.
    pub fn unbounded() -> Self {
        Self {
            max_wait_seconds: f64::INFINITY,
            max_held_seconds: f64::INFINITY,
            max_requests: usize::MAX,
            ..Self::default()
        }
    }
}
