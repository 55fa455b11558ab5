//! `/console/api/jobs`: the jobs of all organisations.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use url::form_urlencoded;
use uuid::Uuid;

use super::guard::Admin;
use super::services::Services;
use crate::clock::rfc3339;
use crate::http::{Failure, Request, Response, json, whole};
use crate::jobs::{Attempt, Job, JobId, Phase, State};

/// Jobs in one answer.
const LISTED_MAX: u32 = 500;
const LISTED_DEFAULT: u32 = 100;

#[derive(Serialize)]
struct Jobs {
    jobs: Vec<Listed>,
    /// How many there are in each state.
    counts: Vec<Count>,
}

#[derive(Serialize)]
struct Count {
    state: &'static str,
    jobs: u64,
}

#[derive(Serialize)]
struct Listed {
    id: String,
    organisation: String,
    /// `queued`, `running`, `delivering`, `delivered` or `dead`.
    state: &'static str,
    /// Host and port of the callback.
    receiver: String,
    accepted: String,
    /// When it runs or is sent next.
    due: Option<String>,
    runs: u32,
    attempts: u32,
    /// The code of the last error.
    error: Option<String>,
    finished: Option<String>,
    ended: Option<String>,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    listed: Listed,
    /// The newest, oldest first.
    deliveries: Vec<Delivery>,
    /// Bytes of the result, if it is still there.
    result_bytes: Option<usize>,
    may_retry: bool,
}

#[derive(Serialize)]
struct Delivery {
    number: u32,
    ended: String,
    /// `delivered`, or the code of its error, such as `STATUS_503` or `TIMEOUT`.
    answer: String,
}

impl From<Job> for Listed {
    fn from(job: Job) -> Self {
        Self {
            id: job.id.to_string(),
            organisation: job.tenant.to_string(),
            state: job.state.name(),
            receiver: job.receiver,
            accepted: rfc3339(job.accepted),
            due: job.due.map(rfc3339),
            runs: job.runs,
            attempts: job.attempts,
            error: job.error,
            finished: job.finished.map(rfc3339),
            ended: job.ended.map(rfc3339),
        }
    }
}

impl From<Attempt> for Delivery {
    fn from(attempt: Attempt) -> Self {
        let answer = attempt.error.unwrap_or_else(|| "delivered".into());
        Self { number: attempt.number, ended: rfc3339(attempt.ended), answer }
    }
}

pub async fn list(services: Arc<Services>, _: Admin, request: Request) -> Result<Response, Failure> {
    let jobs = services.jobs()?;
    let (state, limit) = asked(request.uri.query().unwrap_or_default())?;
    let census = jobs.census().await?;
    let counts = State::ALL.map(|state| {
        let of_state = Phase::ALL.into_iter().filter(|phase| phase.state() == state);
        let jobs = of_state.filter_map(|phase| census.phases.get(&phase)).sum();
        Count { state: state.name(), jobs }
    });
    let listed = jobs.list(state, limit).await?.into_iter().map(Listed::from).collect();
    Ok(json(StatusCode::OK, &Jobs { jobs: listed, counts: counts.into() }))
}

fn asked(query: &str) -> Result<(Option<State>, u32), Failure> {
    let wrong = |message: &'static str| Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message);
    let (mut state, mut limit) = (None, LISTED_DEFAULT);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "state" if value.is_empty() => {}
            "state" => {
                let message = "`state` is queued, running, delivering, delivered or dead.";
                state = Some(State::parse(&value).ok_or_else(|| wrong(message))?);
            }
            "limit" => {
                limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=LISTED_MAX).contains(limit))
                    .ok_or_else(|| wrong("`limit` is a whole number from 1 to 500."))?;
            }
            _ => return Err(wrong("The parameters are `state` and `limit`.")),
        }
    }
    Ok((state, limit))
}

/// The job that the path names.
async fn named(services: &Services, request: &Request) -> Result<Job, Failure> {
    let nothing = || Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such job.");
    let id = request.captures.first().and_then(|(_, id)| Uuid::parse_str(id).ok()).ok_or_else(nothing)?;
    services.jobs()?.any(JobId(id)).await?.ok_or_else(nothing)
}

pub async fn one(services: Arc<Services>, _: Admin, request: Request) -> Result<Response, Failure> {
    let job = named(&services, &request).await?;
    let attempts = services.jobs()?.attempts(job.id).await?;
    let result_bytes = job.result.as_ref().map(Vec::len);
    // A waiting one is sent at once.
    let may_retry = result_bytes.is_some()
        && (job.state == State::Dead || (job.state == State::Delivering && job.due.is_some()));
    let deliveries = attempts.into_iter().map(Delivery::from).collect();
    Ok(json(StatusCode::OK, &Shown { listed: job.into(), deliveries, result_bytes, may_retry }))
}

/// The bytes that the receiver gets.
pub async fn result(services: Arc<Services>, _: Admin, request: Request) -> Result<Response, Failure> {
    let job = named(&services, &request).await?;
    let Some(result) = job.result else {
        let message = "The result is not there: the job has none yet, or it was delivered.";
        return Err(Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", message));
    };
    let mut response = whole("application/json", Bytes::from(result));
    let headers = response.headers_mut();
    if let Some(own) = job.media_type.and_then(|own| HeaderValue::try_from(own).ok()) {
        headers.insert(CONTENT_TYPE, own);
    }
    // No browser shows it: it holds what a client had written.
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

pub async fn retry(services: Arc<Services>, admin: Admin, request: Request) -> Result<Response, Failure> {
    let job = named(&services, &request).await?;
    if !services.jobs()?.redrive(job.id).await? {
        let message = "This job has no result that waits to be delivered.";
        return Err(Failure::new(StatusCode::CONFLICT, "NOT_WAITING", message));
    }
    tracing::info!(id = %job.id, by = %admin.session.key, "a job is delivered again");
    one(services, admin, request).await
}
