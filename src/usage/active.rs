//! The requests in progress, by kind, and how they ended: what operators of the wire format's own servers scale by.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::entry::Endpoint;
use crate::telemetry::hosted::{ACTIVE, BATCH_TIME, REQUESTS};

/// The kind of a request, in the words of the wire format's own servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, or a job.
    Batch,
    /// A live stream, or a conversation with an agent.
    Stream,
    /// Text to speech.
    Tts,
}

impl Kind {
    const NAMES: [&'static str; 3] = ["batch", "stream", "tts"];

    pub fn of(endpoint: Endpoint, is_stream: bool) -> Self {
        match endpoint {
            Endpoint::Listen if !is_stream => Self::Batch,
            Endpoint::Listen | Endpoint::Agent => Self::Stream,
            Endpoint::Speak => Self::Tts,
        }
    }

    fn label(self) -> (&'static str, &'static str) {
        ("kind", Self::NAMES[self as usize])
    }
}

/// Counts requests. Cheap to clone: clones share the counts.
#[derive(Clone, Default)]
pub(super) struct Active(Arc<[AtomicUsize; 3]>);

/// A request in progress, until it is dropped.
pub(super) struct InProgress {
    kind: Kind,
    active: Active,
}

impl Active {
    pub fn begin(&self, kind: Kind) -> InProgress {
        self.0[kind as usize].fetch_add(1, Relaxed);
        InProgress { kind, active: self.clone() }
    }

    pub fn set_gauges(&self) {
        for (name, count) in Kind::NAMES.into_iter().zip(self.0.iter()) {
            ACTIVE.with(&[("kind", name)]).set(count.load(Relaxed) as f64);
        }
    }
}

impl InProgress {
    /// Counts how it ended: with this status, `elapsed` after it came.
    pub fn ended(&self, code: u16, elapsed: Duration) {
        let class = match code / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        REQUESTS.with(&[self.kind.label(), ("response_status", class)]).increment(1);
        if self.kind == Kind::Batch && class == "2xx" {
            BATCH_TIME.with(&[]).record(elapsed);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.active.0[self.kind as usize].fetch_sub(1, Relaxed);
    }
}
