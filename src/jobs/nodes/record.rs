//! What the broker knows of a job: one value, which nodes change only if it is still as they read it.
//!
//! ```text
//! queued ─▶ running ─▶ finished ─▶ delivering ─▶ delivered
//!    ▲         │                        │
//!    └─────────┘                        ▼
//!  busy, stopped, dead                 dead
//! ```
//! A worker that begins a job raises its `epoch`. From then on no older worker of the job can change the record, so a
//! result of a worker that was given up for dead is refused, however late it comes.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::{from_unix_ms, unix_ms};
use crate::jobs::ledger::Entry;
use crate::jobs::store::{INTERRUPTIONS_MAX, Job, JobId, Phase, Run, Source, Stamp, State};

/// The version of records that this program writes. It reads all up to this one, and leaves newer ones alone.
pub const VERSION: u32 = 1;

/// A job, as all nodes know it. No `Debug`: addresses may hold passwords, queries names.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    /// The node that accepted the job and delivers its result.
    pub owner: String,
    pub tenant: u64,
    pub key: String,
    pub accepted_ms: i64,
    /// As in [`crate::jobs::Order`]; empty once the job has ended, as the addresses are.
    pub query: String,
    pub words: bool,
    pub url: Option<String>,
    pub bytes: u64,
    pub sha256: Option<[u8; 32]>,
    pub callback: String,
    pub method: String,
    /// Host and port of the callback.
    pub receiver: String,
    pub progress: Progress,
    /// How often the job was begun, by whichever node.
    pub epoch: u64,
    pub runs: u32,
    pub failures: u32,
    /// How often a worker died while it decoded the audio, since that was last decoded to its end.
    pub crashes: u32,
    /// Deaths in a row during the rest of the job's runs.
    pub interruptions: u32,
    pub error: Option<String>,
    #[serde(default)]
    pub audio: Audio,
    #[serde(default)]
    pub attempts: u32,
}

/// Whether the audio of a job can be had; nothing for a job by URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audio {
    #[default]
    There,
    /// The broker has it no more: its owner has to bring it again.
    Wanted,
    /// Its owner has it no more either.
    Lost,
}

/// Bytes that the broker keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    pub object: String,
    pub sha256: [u8; 32],
    pub media_type: Option<String>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Progress {
    /// Begins no earlier than this.
    Queued {
        due_ms: i64,
    },
    /// A worker has it, for as long as it changes the record within the time of a lease.
    Running {
        worker: Worker,
        is_decoding: bool,
        renewals: u64,
    },
    /// The broker has the result.
    Finished {
        result: Stored,
        finished_ms: i64,
    },
    /// Its owner has the result too; the broker keeps its copy until the job has ended.
    Delivering {
        result: Option<Stored>,
        finished_ms: i64,
    },
    Delivered {
        finished_ms: i64,
        ended_ms: i64,
    },
    Dead {
        finished_ms: i64,
        ended_ms: i64,
    },
}

/// A process that works on jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub node: String,
    /// Another one each time that the node starts.
    pub incarnation: Uuid,
}

/// What becomes of a job whose worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphaned {
    /// It may be begun at once.
    Free,
    /// Decoding its audio may have ended the worker: it waits before it is begun again.
    Suspected { wait: Duration },
}

impl Record {
    pub fn new(entry: &Entry, owner: &str) -> Self {
        let (bytes, url) = match &entry.source {
            Source::Spooled { bytes } => (*bytes, None),
            Source::Url(url) => (0, Some(url.clone())),
        };
        let finished_ms = entry.finished.map(unix_ms).unwrap_or_default();
        let ended_ms = entry.ended.map(unix_ms).unwrap_or_default();
        let progress = match entry.phase {
            Phase::Queued | Phase::Running => Progress::Queued { due_ms: unix_ms(entry.due) },
            Phase::Waiting | Phase::Sending => Progress::Delivering { result: None, finished_ms },
            Phase::Delivered => Progress::Delivered { finished_ms, ended_ms },
            Phase::Dead => Progress::Dead { finished_ms, ended_ms },
        };
        Self {
            version: VERSION,
            owner: owner.to_owned(),
            tenant: entry.tenant,
            key: entry.key.clone(),
            accepted_ms: unix_ms(entry.accepted),
            query: entry.query.clone(),
            words: entry.words,
            url,
            bytes,
            sha256: entry.sha256,
            callback: entry.callback.clone(),
            method: entry.method.clone(),
            receiver: entry.receiver.clone(),
            progress,
            epoch: 0,
            runs: entry.runs,
            failures: entry.failures,
            crashes: 0,
            interruptions: 0,
            error: entry.error.clone(),
            audio: Audio::There,
            attempts: entry.attempts,
        }
    }

    /// The broker's copy of the result.
    pub fn result(&self) -> Option<&Stored> {
        match &self.progress {
            Progress::Finished { result, .. } => Some(result),
            Progress::Delivering { result, .. } => result.as_ref(),
            _ => None,
        }
    }

    /// The code of the error that the receiver gets; `None` for a transcript, whatever happened to earlier runs.
    pub fn error_of_result(&self) -> Option<String> {
        self.error.clone()
    }

    pub fn with_audio(&self, audio: Audio) -> Self {
        Self { audio, ..self.clone() }
    }

    /// Whether `worker` has the job in this epoch.
    pub fn is_of(&self, worker: &Worker, epoch: u64) -> bool {
        self.epoch == epoch
            && matches!(&self.progress, Progress::Running { worker: own, .. } if own == worker)
    }

    /// Whether the job is suspected of ending the processes that decode its audio.
    pub fn is_suspect(&self) -> bool {
        self.crashes > 0 || self.interruptions > INTERRUPTIONS_MAX
    }

    /// Given to `worker`.
    pub fn begun(&self, worker: &Worker) -> Self {
        let progress = Progress::Running { worker: worker.clone(), is_decoding: false, renewals: 0 };
        Self { progress, epoch: self.epoch + 1, runs: self.runs + 1, ..self.clone() }
    }

    /// With the mark of decoding set or taken away. Audio that was decoded to its end did not end the process.
    pub fn decoding(&self, is_now: bool) -> Self {
        let mut record = self.clone();
        if let Progress::Running { is_decoding, .. } = &mut record.progress {
            *is_decoding = is_now;
            if !is_now {
                record.crashes = 0;
            }
        }
        record
    }

    pub fn renewed(&self) -> Self {
        let mut record = self.clone();
        if let Progress::Running { renewals, .. } = &mut record.progress {
            *renewals += 1;
        }
        record
    }

    /// Back in line as if it had not been begun.
    pub fn given_back(&self, due: SystemTime) -> Self {
        let runs = self.runs.saturating_sub(1);
        Self { runs, interruptions: 0, ..self.queued(due) }
    }

    /// Back in line with one more failure.
    pub fn failed(&self, due: SystemTime, error: String) -> Self {
        let failures = self.failures + 1;
        Self { failures, interruptions: 0, error: Some(error), ..self.queued(due) }
    }

    /// Back in line; also from a result that is lost.
    pub fn queued(&self, due: SystemTime) -> Self {
        // A new epoch: whoever had the job has it no more.
        Self { progress: Progress::Queued { due_ms: unix_ms(due) }, epoch: self.epoch + 1, ..self.clone() }
    }

    /// After the death of the worker that had it; the same rules as for one server that died.
    pub fn orphaned(&self, now: SystemTime) -> (Self, Orphaned) {
        let is_decoding = matches!(self.progress, Progress::Running { is_decoding: true, .. });
        if !is_decoding && self.interruptions < INTERRUPTIONS_MAX {
            return (Self { interruptions: self.interruptions + 1, ..self.queued(now) }, Orphaned::Free);
        }
        // The first time, something else may have ended it; from then on the job ran alone.
        let before = self.crashes.max(self.interruptions.saturating_sub(INTERRUPTIONS_MAX));
        let wait = Duration::from_secs(1 << (2 * before.min(5)));
        let record = Self {
            failures: self.failures + u32::from(before > 0),
            crashes: self.crashes + u32::from(is_decoding),
            interruptions: self.interruptions + u32::from(!is_decoding),
            error: Some("CRASHED".into()),
            ..self.queued(now + wait)
        };
        (record, Orphaned::Suspected { wait })
    }

    /// With a result, or the error that the receiver gets instead.
    pub fn finished(&self, result: Stored, error: Option<String>, now: SystemTime) -> Self {
        let progress = Progress::Finished { result, finished_ms: unix_ms(now) };
        Self { progress, error, interruptions: 0, crashes: 0, ..self.clone() }
    }

    /// As its owner knows it, whose database has the result or the end of the job.
    pub fn known_to_owner(&self, entry: &Entry) -> Self {
        let Self { progress, error, attempts, .. } = Self::new(entry, &self.owner);
        let mut record = Self { progress, error, attempts, ..self.clone() };
        if let Progress::Delivering { result, .. } = &mut record.progress {
            *result = self.result().cloned();
        }
        if matches!(record.progress, Progress::Delivered { .. } | Progress::Dead { .. }) {
            record.query = String::new();
            record.url = None;
            record.callback = String::new();
        }
        record
    }

    pub fn run(&self, id: JobId) -> Run {
        Run {
            id,
            accepted: from_unix_ms(self.accepted_ms),
            tenant: self.tenant,
            query: self.query.clone(),
            words: self.words,
            url: self.url.clone(),
            stamp: Stamp { bytes: self.bytes, sha256: self.sha256 },
            failures: self.failures,
        }
    }

    /// The status, for nodes that did not accept the job.
    pub fn job(&self, id: JobId) -> Job {
        let (state, due, finished, ended) = match &self.progress {
            Progress::Queued { due_ms } => (State::Queued, Some(*due_ms), None, None),
            Progress::Running { .. } => (State::Running, None, None, None),
            Progress::Finished { finished_ms, .. } | Progress::Delivering { finished_ms, .. } => {
                (State::Delivering, None, Some(*finished_ms), None)
            }
            Progress::Delivered { finished_ms, ended_ms } => {
                (State::Delivered, None, Some(*finished_ms), Some(*ended_ms))
            }
            Progress::Dead { finished_ms, ended_ms } => {
                (State::Dead, None, Some(*finished_ms), Some(*ended_ms))
            }
        };
        Job {
            id,
            tenant: self.tenant,
            state,
            receiver: self.receiver.clone(),
            accepted: from_unix_ms(self.accepted_ms),
            due: due.map(from_unix_ms),
            runs: self.runs,
            attempts: self.attempts,
            error: self.error.clone(),
            finished: finished.map(from_unix_ms),
            ended: ended.map(from_unix_ms),
            result: None,
            media_type: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u128) -> Worker {
        Worker { node: "a".into(), incarnation: Uuid::from_u128(number) }
    }

    fn record() -> Record {
        let entry = Entry {
            id: JobId(Uuid::from_u128(1)),
            phase: Phase::Queued,
            accepted: SystemTime::UNIX_EPOCH,
            due: SystemTime::UNIX_EPOCH,
            tenant: 7,
            key: "k".into(),
            query: "tag=a".into(),
            words: true,
            source: Source::Spooled { bytes: 3 },
            sha256: Some([1; 32]),
            callback: "https://user:secret@c.example/".into(),
            method: "POST".into(),
            receiver: "c.example:443".into(),
            idempotency: None,
            is_confirmed: true,
            runs: 0,
            failures: 0,
            attempts: 0,
            error: None,
            finished: None,
            ended: None,
        };
        Record::new(&entry, "owner")
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_so_is_that_of_a_newer_program() {
        let running = record().begun(&worker(1));
        let mut text = serde_json::to_value(&running).unwrap();
        assert!(serde_json::from_value::<Record>(text.clone()).unwrap() == running);
        text["something_new"] = 1.into();
        assert!(serde_json::from_value::<Record>(text).unwrap() == running);
    }

    #[test]
    fn a_job_that_was_begun_again_is_its_first_workers_no_more() {
        let first = record().begun(&worker(1));
        assert!(first.is_of(&worker(1), 1) && !first.is_of(&worker(2), 1));
        let (freed, orphaned) = first.orphaned(SystemTime::UNIX_EPOCH);
        assert_eq!(orphaned, Orphaned::Free);
        assert!(!freed.is_of(&worker(1), 1));
        let second = freed.begun(&worker(1));
        assert!(!second.is_of(&worker(1), 1) && second.is_of(&worker(1), second.epoch));
        assert_eq!((second.runs, second.interruptions), (2, 1));
    }

    #[test]
    fn decoding_that_ends_workers_is_suspected_and_kills_are_not() {
        let now = SystemTime::UNIX_EPOCH;
        let mut record = record();
        for deaths in 1..=INTERRUPTIONS_MAX {
            record = record.begun(&worker(1)).orphaned(now).0;
            assert_eq!((record.interruptions, record.failures, record.is_suspect()), (deaths, 0, false));
        }
        let (suspect, orphaned) = record.begun(&worker(1)).orphaned(now);
        assert!(suspect.is_suspect() && matches!(orphaned, Orphaned::Suspected { .. }));

        let crashed = |record: &Record| record.begun(&worker(1)).decoding(true).orphaned(now);
        let (once, _) = crashed(&self::record());
        assert_eq!((once.crashes, once.failures, once.is_suspect()), (1, 0, true));
        let (twice, orphaned) = crashed(&once);
        assert_eq!((twice.crashes, twice.failures), (2, 1));
        assert_eq!(orphaned, Orphaned::Suspected { wait: Duration::from_secs(4) });
        let decoded = once.begun(&worker(1)).decoding(true).decoding(false);
        assert_eq!(decoded.crashes, 0, "it was decoded to its end");
    }

    #[test]
    fn a_job_that_has_ended_holds_no_addresses() {
        let record = record();
        let ended = Entry {
            phase: Phase::Delivered,
            finished: Some(SystemTime::UNIX_EPOCH),
            ended: Some(SystemTime::UNIX_EPOCH),
            ..entry_of(&record)
        };
        let text = serde_json::to_string(&record.known_to_owner(&ended)).unwrap();
        assert!(!text.contains("secret") && !text.contains("tag=a"), "{text}");
    }

    fn entry_of(record: &Record) -> Entry {
        Entry {
            id: JobId(Uuid::from_u128(1)),
            phase: Phase::Queued,
            accepted: from_unix_ms(record.accepted_ms),
            due: SystemTime::UNIX_EPOCH,
            tenant: record.tenant,
            key: record.key.clone(),
            query: record.query.clone(),
            words: record.words,
            source: Source::Spooled { bytes: record.bytes },
            sha256: record.sha256,
            callback: record.callback.clone(),
            method: record.method.clone(),
            receiver: record.receiver.clone(),
            idempotency: None,
            is_confirmed: true,
            runs: 0,
            failures: 0,
            attempts: 1,
            error: None,
            finished: None,
            ended: None,
        }
    }
}
