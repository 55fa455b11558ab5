//! A worker of LiveKit's dispatch: the server offers it jobs, each of them an agent's in one room.
//!
//! ```text
//! register ─▶   ◀─ availability?   yes, as this participant ─▶   ◀─ assignment   job runs … is done ─▶
//! ```
//! A job goes on when the worker's connection breaks: its agent has one of its own.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::server::LiveKit;
use super::socket::{SignalError, Socket};
use super::worker_protocol::{
    AVAILABLE, Availability, FAILED, FULL, FromServer, FromWorker, Job, ROOM, RUNNING, Register, SUCCESS,
    ServerMessage, UpdateJob, UpdateWorker, WorkerMessage, WorkerPing,
};
use crate::clock::now;
use crate::room::reception::{Agency, Commission, RoomEnd};

const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Pings in a row without any message from the server.
const UNANSWERED_MAX: u32 = 3;
/// Time from a promise to the job. The server waits less for the promise.
const ASSIGNMENT_WAIT: Duration = Duration::from_secs(20);
/// The pause between two connections, which doubles up to a limit.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Shown at the LiveKit server.
const VERSION: &str = env!("CARGO_PKG_VERSION");

type Wire = Socket<WorkerMessage, ServerMessage>;

impl LiveKit {
    /// Takes jobs for the agent `name`, until it is dropped.
    pub async fn work(&self, name: &str, agency: &dyn Agency) {
        let mut jobs = Jobs { agency, promised: HashMap::new(), running: HashMap::new() };
        let mut talks = JoinSet::new();
        let mut pause = PAUSE_MIN;
        loop {
            let begun = Instant::now();
            let Err(error) = self.work_once(name, &mut jobs, &mut talks).await;
            tracing::warn!(
                agent = name,
                error = &error as &dyn std::error::Error,
                "the connection for jobs of the LiveKit server is lost"
            );
            if begun.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn work_once(
        &self,
        name: &str,
        jobs: &mut Jobs<'_>,
        talks: &mut JoinSet<(String, RoomEnd)>,
    ) -> Result<std::convert::Infallible, SignalError> {
        let token = self.account().worker(now() / 1000);
        let mut wire: Wire = Socket::open(self, self.address("agent"), &token).await?;
        let register = Register {
            r#type: ROOM,
            version: VERSION.into(),
            ping_interval: PING_INTERVAL.as_secs() as u32,
            agent_name: name.to_owned(),
        };
        send(&wire, FromWorker::Register(register)).await?;
        let mut ticks = interval(PING_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unanswered = 0;
        loop {
            tokio::select! {
                message = wire.next() => {
                    unanswered = 0;
                    if let Some(message) = message?.message {
                        for reply in jobs.take(message, talks).await {
                            send(&wire, reply).await?;
                        }
                    }
                }
                Some(done) = talks.join_next() => {
                    // A panic ends the talk, which the session's end tells.
                    if let Ok((id, end)) = done {
                        jobs.running.remove(&id);
                        send(&wire, FromWorker::UpdateJob(report(id, end))).await?;
                    }
                }
                _ = ticks.tick() => {
                    if unanswered >= UNANSWERED_MAX {
                        return Err(SignalError::Closed);
                    }
                    unanswered += 1;
                    jobs.forget_promises(Instant::now()).await;
                    let timestamp = i64::try_from(now()).unwrap_or_default();
                    send(&wire, FromWorker::Ping(WorkerPing { timestamp })).await?;
                    send(&wire, FromWorker::UpdateWorker(jobs.load(talks.len()))).await?;
                }
            }
        }
    }
}

async fn send(wire: &Wire, message: FromWorker) -> Result<(), SignalError> {
    wire.send(WorkerMessage { message: Some(message) }).await.map_err(|_| SignalError::Closed)
}

fn report(job_id: String, end: RoomEnd) -> UpdateJob {
    match end {
        RoomEnd::SessionOver | RoomEnd::Closed => UpdateJob { job_id, status: SUCCESS, error: String::new() },
        RoomEnd::Failed(error) => UpdateJob { job_id, status: FAILED, error },
    }
}

struct Jobs<'a> {
    agency: &'a dyn Agency,
    /// Sessions of jobs that were promised, and since when, keyed by job.
    promised: HashMap<String, (String, Instant)>,
    /// Sessions of jobs that run, keyed by job.
    running: HashMap<String, String>,
}

impl Jobs<'_> {
    async fn take(&mut self, message: FromServer, talks: &mut JoinSet<(String, RoomEnd)>) -> Vec<FromWorker> {
        match message {
            FromServer::Registered(registered) => {
                tracing::info!(worker = registered.worker_id, "the LiveKit server may dispatch the agent");
                vec![FromWorker::UpdateWorker(self.load(talks.len()))]
            }
            FromServer::Availability(asked) => {
                let Some(job) = asked.job else { return Vec::new() };
                vec![FromWorker::Availability(self.promise(job).await)]
            }
            FromServer::Assignment(assigned) => {
                let Some(Job { id, .. }) = assigned.job else { return Vec::new() };
                let Some((session, _)) = self.promised.remove(&id) else { return Vec::new() };
                let (talk, job) = (self.agency.serve(&session), id.clone());
                talks.spawn(async move { (job, talk.await) });
                self.running.insert(id.clone(), session);
                vec![
                    FromWorker::UpdateJob(UpdateJob { job_id: id, status: RUNNING, error: String::new() }),
                    FromWorker::UpdateWorker(self.load(talks.len())),
                ]
            }
            FromServer::Termination(ended) => {
                let promised = self.promised.remove(&ended.job_id).map(|(session, _)| session);
                if let Some(session) = promised.or_else(|| self.running.get(&ended.job_id).cloned()) {
                    self.agency.end(&session).await;
                }
                Vec::new()
            }
            FromServer::Pong(_) => Vec::new(),
        }
    }

    async fn promise(&mut self, job: Job) -> Availability {
        let room = job.room.unwrap_or_default().name;
        let commission = Commission { room, metadata: job.metadata };
        let refusal = Availability { job_id: job.id.clone(), ..Availability::default() };
        if self.promised.contains_key(&job.id) || self.running.contains_key(&job.id) {
            return refusal;
        }
        let Some(session) = self.agency.accept(commission).await else { return refusal };
        let participant_identity = super::link::agent_of(&session);
        self.promised.insert(job.id, (session, Instant::now()));
        Availability { available: true, participant_name: "agent".into(), participant_identity, ..refusal }
    }

    /// Gives up jobs that another worker has got.
    async fn forget_promises(&mut self, now: Instant) {
        let late = self.promised.extract_if(|_, (_, since)| now >= *since + ASSIGNMENT_WAIT);
        let late: Vec<String> = late.map(|(_, (session, _))| session).collect();
        for session in late {
            self.agency.end(&session).await;
        }
    }

    fn load(&self, count: usize) -> UpdateWorker {
        let load = self.agency.load();
        let status = if load >= 1.0 { FULL } else { AVAILABLE };
        UpdateWorker { status: Some(status), load, job_count: u32::try_from(count).unwrap_or(u32::MAX) }
    }
}
