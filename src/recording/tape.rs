//! The recording of one talk while it goes on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use tokio::time::Instant;

use super::tracks::Tracks;
use crate::audio::SAMPLE_RATE;

/// Bytes that go to the disk at once, about a second.
const PIECE_BYTES: usize = SAMPLE_RATE as usize * 4;

/// The name of a recording: its tenant's, and its session's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    pub tenant: u64,
    pub session: String,
}

/// Work for the thread that writes.
pub enum Work {
    Append {
        name: Name,
        bytes: Vec<u8>,
        is_over: Arc<AtomicBool>,
    },
    Close(Name),
    /// Answered once everything before it is written.
    Flush(tokio::sync::oneshot::Sender<()>),
}

/// Records until it is dropped. It never waits for the disk: if that cannot keep up, the recording ends.
pub struct Tape {
    tracks: Tracks,
    name: Name,
    pending: Vec<u8>,
    desk: SyncSender<Work>,
    /// Deleted, or without room.
    is_over: Arc<AtomicBool>,
}

impl Tape {
    pub(super) fn new(tracks: Tracks, name: Name, desk: SyncSender<Work>, is_over: Arc<AtomicBool>) -> Self {
        Self { tracks, name, pending: Vec::new(), desk, is_over }
    }

    /// Whether it still records.
    pub fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Audio of a caller, at [`SAMPLE_RATE`].
    pub fn hear(&mut self, seat: u64, samples: &[f32]) {
        if self.is_running() {
            self.tracks.hear(seat, samples, Instant::now());
        }
    }

    /// The same time without the caller's voice.
    pub fn hear_nothing(&mut self, seat: u64, samples: usize) {
        self.hear(seat, &vec![0.0; samples]);
    }

    /// Audio of the agent, at [`crate::speech::VOICE_RATE`].
    pub fn say(&mut self, samples: &[f32], range: &Range<usize>) {
        if self.is_running() {
            self.tracks.say(samples.get(range.clone()).unwrap_or_default(), Instant::now());
        }
    }

    /// The agent fell silent.
    pub fn cut(&mut self) {
        self.tracks.cut(Instant::now());
    }

    /// To be called every few seconds.
    pub fn roll(&mut self, now: Instant) {
        if !self.is_running() {
            return;
        }
        let settled = self.tracks.take(now);
        self.pending.extend(settled);
        if self.pending.len() >= PIECE_BYTES {
            self.write();
        }
    }

    fn write(&mut self) {
        let (name, bytes) = (self.name.clone(), std::mem::take(&mut self.pending));
        if self.desk.try_send(Work::Append { name, bytes, is_over: self.is_over.clone() }).is_err() {
            tracing::warn!(
                session = self.name.session,
                "the disk is too slow: the talk is not recorded any more"
            );
            self.is_over.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if self.is_running() {
            let rest = self.tracks.finish(Instant::now());
            self.pending.extend(rest);
            self.write();
        }
        // If the queue is full, the name stays marked as in progress until the next start, which changes nothing else.
        let _ = self.desk.try_send(Work::Close(self.name.clone()));
    }
}
