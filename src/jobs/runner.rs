//! Transcribes jobs that are due, a few at once, through [`Work`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::capacity::Resource;
use super::schedule::rerun_after;
use super::shared::Shared;
use super::spool::{Unread, is_shortage};
use super::store::{Finished, JobId, Phase, Run};
use super::waiting::{insist, rest};
use super::watch::Watch;
use crate::patience;
use crate::telemetry::metrics;

/// How jobs are transcribed, and how their results are written.
pub trait Work: Send + Sync + 'static {
    /// Transcribes `input` as `task` asks. Dropping the future abandons the work.
    fn run<'a>(&'a self, task: &'a Task, input: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>>;

    /// The media type of a result of `task`; `None` for JSON, which errors always are.
    fn media_type(&self, task: &Task) -> Option<String> {
        let _ = task;
        None
    }

    /// The body that the receiver gets if the server gives the job up.
    fn given_up(&self, task: &Task, fault: Fault) -> Vec<u8>;
}

/// Why a job ends without a result or an error from its [`Work`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Its last run took too long or panicked, or its audio could not be read.
    Failed,
    /// Decoding its audio ended the process as often as is allowed.
    Crashed,
    /// Its audio is missing, or differs from what was sent.
    AudioLost,
}

/// A job as [`Work`] sees it.
pub struct Task {
    pub id: JobId,
    pub accepted: SystemTime,
    pub tenant: u64,
    /// As in [`super::Order`].
    pub query: String,
    pub words: bool,
    /// To be held while the audio is decoded.
    pub watch: Watch,
}

pub enum Input {
    Audio(Bytes),
    Url(String),
}

/// A run without a result.
pub struct Setback {
    /// Machine-readable: `REMOTE_CONTENT_ERROR`.
    pub error: String,
    /// The receiver gets this if it was the last run.
    pub body: Vec<u8>,
    pub again: Again,
}

/// Whether the job runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    Never,
    /// It does, and this run counts as a failure.
    Later,
    /// It does; it was not begun, for reasons that have nothing to do with it.
    Busy(Duration),
}

/// Pause before a job runs again whose audio could not be read for lack of file descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_secs(5);

pub async fn run(shared: &Arc<Shared>, work: Arc<dyn Work>, stop: &CancellationToken) {
    let mut runs = JoinSet::new();
    while !stop.is_cancelled() {
        let mut next = None;
        if runs.len() < shared.config.concurrency.max(1) {
            let now = shared.world.now();
            match shared.store.claim(now).await {
                Ok(Some(run)) => {
                    runs.spawn(one(shared.clone(), work.clone(), run, stop.clone()));
                    continue;
                }
                Ok(None) => next = shared.store.next_due(Phase::Queued, now).await.unwrap_or_default(),
                Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "cannot read jobs"),
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            Some(_) = runs.join_next() => {}
            () = rest(shared.world.as_ref(), &shared.queued, next) => {}
        }
    }
    // Each run sees `stop` and puts its job back.
    while runs.join_next().await.is_some() {}
}

async fn one(shared: Arc<Shared>, work: Arc<dyn Work>, run: Run, stop: CancellationToken) {
    let (id, tenant, bytes) = (run.id, run.tenant, run.stamp.bytes);
    let watch = Watch::new(shared.store.clone(), id);
    let audio = shared.audio.read(id, run.stamp);
    let worked = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        worked = transcribe(&shared, work.as_ref(), run, watch, audio) => Some(worked),
    };
    let outcome = match worked {
        None => {
            let given_back = shared.store.give_back(id, shared.world.now()).await;
            if let Err(error) = given_back {
                // The next start treats it as if the process had died here.
                tracing::error!(error = &error as &dyn std::error::Error, "cannot put a job back");
            }
            "given_back"
        }
        Some(After::Finish(finished)) => {
            let outcome = if finished.error.is_some() { "failed" } else { "finished" };
            let finish = || shared.store.finish(id, shared.world.now(), finished.clone());
            if insist(&stop, finish).await.is_some() {
                shared.audio.remove(id);
                shared.given_back(Resource::Bytes, tenant, bytes);
                shared.finished.notify_one();
            }
            outcome
        }
        Some(After::Again { after, error }) => {
            let due = shared.world.now() + after;
            insist(&stop, || shared.store.run_again(id, due, error.clone())).await;
            "again"
        }
        Some(After::Busy { after }) => {
            let due = shared.world.now() + after;
            insist(&stop, || shared.store.give_back(id, due)).await;
            "busy"
        }
    };
    tracing::info!(%id, outcome, "job run");
    metrics::JOBS_RUNS.with(&[("outcome", outcome)]).increment(1);
}

/// The next step for a job after a run.
pub enum After {
    Finish(Finished),
    Again { after: Duration, error: String },
    Busy { after: Duration },
}

/// Runs a job once. `audio` is that of a job without a URL.
pub async fn transcribe(
    shared: &Shared,
    work: &dyn Work,
    run: Run,
    watch: Watch,
    audio: impl Future<Output = Result<Bytes, Unread>>,
) -> After {
    let Run { id, accepted, tenant, query, words, url, stamp: _, failures } = run;
    let task = Task { id, accepted, tenant, query, words, watch };
    let given_up = |fault: Fault, error: &str| {
        After::Finish(Finished::failed(work.given_up(&task, fault), error.to_owned()))
    };
    if failures >= shared.config.runs_max {
        tracing::error!(%id, failures, "job given up");
        return given_up(Fault::Crashed, "GIVEN_UP");
    }
    let last = failures + 1 >= shared.config.runs_max;
    let again = |error: String, body: Option<Vec<u8>>| match body {
        _ if !last => After::Again { after: rerun_after(failures, shared.world.chance()), error },
        Some(body) => After::Finish(Finished::failed(body, error)),
        None => given_up(Fault::Failed, &error),
    };
    let input = match url {
        Some(url) => Input::Url(url),
        None => match audio.await {
            Ok(audio) => Input::Audio(audio),
            Err(Unread::Failed(error)) if is_shortage(&error) => {
                tracing::warn!(%id, %error, "cannot read a job's audio for now");
                return After::Busy { after: SHORTAGE_PAUSE };
            }
            Err(Unread::Failed(error)) => {
                tracing::error!(%id, %error, "cannot read a job's audio");
                return again("AUDIO_UNREADABLE".into(), None);
            }
            // Another run would not find it either.
            Err(error @ (Unread::Gone | Unread::Altered)) => {
                tracing::error!(%id, %error, "a job's audio is lost");
                return given_up(Fault::AudioLost, "AUDIO_LOST");
            }
        },
    };
    let limit = Duration::from_millis(shared.config.run_timeout_ms);
    let result = AssertUnwindSafe(patience::within(limit, work.run(&task, input))).catch_unwind().await;
    match result {
        Ok(Some(Ok(body))) => {
            After::Finish(Finished { body, media_type: work.media_type(&task), error: None })
        }
        Ok(Some(Err(Setback { error, body, again: when }))) => match when {
            Again::Never => After::Finish(Finished::failed(body, error)),
            Again::Later => again(error, Some(body)),
            Again::Busy(after) => After::Busy { after },
        },
        Ok(None) => again("TIMEOUT".into(), None),
        Err(_) => again("PANIC".into(), None),
    }
}
