//! The thread that writes the log. Requests hand over their entries and never wait for the disk: if it does not
//! keep up, entries are dropped and counted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;

use super::config::Config;
use super::database::Database;
use super::message::Message;
use crate::telemetry::metrics;

/// Entries that wait for the disk.
const QUEUE_MAX: usize = 8192;
/// Entries of one transaction.
const BATCH_MAX: usize = 512;
/// Amendments that wait for their request.
const EARLY_MAX: usize = 256;
const PURGE_EVERY: Duration = Duration::from_secs(600);
/// Entries after which the log is cut to its bound, whatever the time.
const PURGE_AFTER: usize = 10_000;

/// Hands messages to the writer. Cheap to clone.
#[derive(Clone)]
pub(super) struct Queue(Arc<SyncSender<Message>>);

impl Queue {
    /// Drops the message if the queue is full.
    pub fn send(&self, message: Message) {
        if self.0.try_send(message).is_err() {
            metrics::USAGE_DROPPED.with(&[]).increment(1);
        }
    }

    /// Returns when everything that was sent before is written, or cannot be.
    pub async fn flush(&self) {
        let (sender, receiver) = oneshot::channel();
        self.send(Message::Flush(sender));
        // An error means that the flush itself was dropped: the log is behind anyway.
        let _ = receiver.await;
    }
}

/// Starts the thread. It ends when the last queue is dropped.
pub(super) fn start(database: Database, config: &Config) -> std::io::Result<Queue> {
    let (sender, receiver) = sync_channel(QUEUE_MAX);
    let mut writer = Writer {
        database,
        config: config.clone(),
        purged: None,
        written: 0,
        is_failing: false,
        early: Vec::new(),
    };
    std::thread::Builder::new().name("usage".into()).spawn(move || writer.run(&receiver))?;
    Ok(Queue(Arc::new(sender)))
}

struct Writer {
    database: Database,
    config: Config,
    purged: Option<Instant>,
    /// Entries since then.
    written: usize,
    is_failing: bool,
    /// Amendments that came before their request, which is answered while its job already runs.
    early: Vec<Message>,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<Message>) {
        while let Ok(first) = receiver.recv() {
            let rest = receiver.try_iter().take(BATCH_MAX - 1);
            let (flushes, batch): (Vec<_>, Vec<_>) =
                std::iter::once(first).chain(rest).partition(|message| matches!(message, Message::Flush(_)));
            let batch: Vec<_> = self.early.drain(..).chain(batch).collect();
            let entries = batch.len();
            let written = self.database.write(batch).map(|unmatched| self.early = unmatched);
            // Some requests never come: the oldest amendments give way.
            self.early.drain(..self.early.len().saturating_sub(EARLY_MAX));
            self.report(written, entries);
            self.written += entries;
            let is_due = self.purged.is_none_or(|purged| purged.elapsed() >= PURGE_EVERY);
            if is_due || self.written >= PURGE_AFTER {
                (self.purged, self.written) = (Some(Instant::now()), 0);
                let purged = self.database.purge(&self.config, SystemTime::now());
                self.report(purged, 0);
            }
            for flush in flushes {
                if let Message::Flush(done) = flush {
                    // A reader that has left needs no answer.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Logs the first of several errors in a row.
    fn report(&mut self, done: rusqlite::Result<()>, entries: usize) {
        let failed = done.err();
        if let Some(error) = &failed {
            metrics::USAGE_DROPPED.with(&[]).increment(entries as u64);
            if !self.is_failing {
                tracing::warn!(%error, "the log of requests cannot be written; entries are dropped");
            }
        }
        self.is_failing = failed.is_some();
    }
}
