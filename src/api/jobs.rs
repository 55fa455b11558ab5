//! Requests with `callback`, which are acknowledged at once and answered later; and `GET
//! /v1/listen/jobs/{request_id}`. Texts to speak are accepted in `speak/callback.rs`.
//!
//! A job keeps the request's query, without the callback, and parses it again when it runs. So anything that
//! would be refused then is refused here, unless the server changes in between. It keeps the name of its model
//! too: if that is no longer served when it runs, it gets the default, with a warning.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::StatusCode;
use url::{Url, form_urlencoded};
use uuid::Uuid;

use super::decode::{Fetched, Origin};
use super::model::MODEL_FAILED;
use super::parameters::CallbackMethod;
use super::services::Services;
use super::source::{self, Source};
use super::speak::callback::{self, ACCEPTED_VOICE};
use super::submission::{idempotency, jobs_for};
use super::transcription::{Understood, Urgency, fetch, transcribe};
use super::{Parameters, error, raw, wire};
use crate::audio::{Bare, RawFormat};
use crate::clock::rfc3339;
use crate::engine::TenantId;
use crate::http::{Buffered, Caller, Failure, Request, Response, json, limited};
use crate::jobs::{Again, Fault, Input, JobId, Order, Setback, Task, Work};
use crate::keys::public_id;
use crate::telemetry::traces;
use crate::{audio, fetch as fetching, jobs, usage};

/// The pause before a job runs again that the server had no capacity for.
const BUSY_PAUSE: Duration = Duration::from_secs(5);

/// Accepts a request whose answer will be delivered. The job is on disk before its id is returned.
pub(super) async fn accept(
    services: &Services,
    request: Request,
    caller: Caller,
    understood: Understood,
) -> Result<Response, Failure> {
    let Some(callback) = understood.parameters.callback.clone() else {
        return Err(Failure::internal("a request without callback"));
    };
    let (jobs, idempotency_key, _coming) = jobs_for(services, &callback, &request, &caller).await?;
    usage::is_async();
    let _active = services.activity.begin();

    let asked = request.uri.query().unwrap_or_default().to_owned();
    let told = match understood.raw {
        Some(Bare::Samples(format)) if understood.parameters.encoding.is_none() => Some(format),
        _ => None,
    };
    let model = match &understood.parameters.model {
        // The one in its place has the name of the default.
        Some(name) if services.models.is_absent() && services.models.serves(name) => name,
        _ => &understood.model.model().name,
    };
    let mut query = kept_query(&asked, told, model);
    if !caller.limits.are_none() {
        query += &format!("&{ACCEPTED_ACCOUNT}={}", public_id::of_key(&caller.account));
    }
    let (source, body) = match source::read(
        request.version,
        &request.headers,
        request.body.charged_to(caller.tenant),
    )
    .await?
    {
        Source::Audio(body) => {
            audio::check(&body.bytes(), understood.raw)?;
            (jobs::Source::Spooled { bytes: body.bytes().len() as u64 }, Some(body))
        }
        Source::Url(url) => {
            let parsed = Url::parse(&url).map_err(|_| fetching::Error::InvalidUrl)?;
            services.fetcher.check(&parsed).await?;
            (jobs::Source::Url(url), None)
        }
    };
    let audio = body.as_ref().map(Buffered::bytes).unwrap_or_default();
    let url = match &source {
        jobs::Source::Url(url) => url.clone(),
        jobs::Source::Spooled { .. } => String::new(),
    };
    let idempotency = idempotency(idempotency_key, asked, url, audio).await?;
    let order = Order {
        id: JobId(understood.request_id),
        accepted: understood.created,
        tenant: caller.tenant,
        key: caller.key.to_string(),
        query,
        words: understood.words,
        source,
        callback,
        method: match understood.parameters.callback_method {
            CallbackMethod::Post => reqwest::Method::POST,
            CallbackMethod::Put => reqwest::Method::PUT,
        },
        idempotency,
    };
    let JobId(request_id) = jobs.submit(order, body.as_ref().map(|body| body.bytes())).await?;
    Ok(json(StatusCode::OK, &wire::Acknowledgement { request_id }))
}

/// The name of a job's model, in its kept query.
const ACCEPTED_MODEL: &str = "accepted_model";
/// The account that a job's audio is charged to, in its kept query, if its key has limits.
const ACCEPTED_ACCOUNT: &str = "accepted_account";

/// The query without the callback, which is kept separately, as it may hold a password; with the format of raw
/// audio, if a header named it; and with the model that the job was accepted for.
fn kept_query(query: &str, told: Option<RawFormat>, model: &str) -> String {
    let is_kept = |name: &str| match name {
        "callback" | "callback_method" | ACCEPTED_MODEL | ACCEPTED_ACCOUNT | ACCEPTED_VOICE => false,
        "sample_rate" | "channels" => told.is_none(),
        _ => true,
    };
    let kept = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| is_kept(name));
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(kept);
    if let Some(RawFormat { sample_rate_hz, channels, .. }) = told {
        query.append_pair("encoding", "s16le");
        query.append_pair("sample_rate", &sample_rate_hz.to_string());
        query.append_pair("channels", &channels.to_string());
    }
    query.append_pair(ACCEPTED_MODEL, model);
    query.finish()
}

/// The account that the audio of a job with this kept query is charged to.
fn account_of_job(query: &str) -> Option<Uuid> {
    let account = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == ACCEPTED_ACCOUNT);
    account.and_then(|(_, account)| Uuid::parse_str(&account).ok())
}

/// The status of a job, for the organisation that owns it; for others it does not exist.
pub(super) async fn status(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    let id = request.capture("request_id").and_then(|id| Uuid::parse_str(id).ok());
    let id = id.ok_or_else(error::no_such_job)?;
    let Some(jobs) = &services.jobs else { return Err(error::no_such_job()) };
    let job = jobs.job(JobId(id), caller.tenant).await?.ok_or_else(error::no_such_job)?;
    let status = wire::Job {
        request_id: id,
        state: job.state.name(),
        created: rfc3339(job.accepted),
        next: job.due.map(rfc3339),
        finished: job.finished.map(rfc3339),
        ended: job.ended.map(rfc3339),
        runs: job.runs,
        attempts: job.attempts,
        last_error: job.error,
        result: job.result.and_then(|result| serde_json::from_slice(&result).ok()),
    };
    Ok(json(StatusCode::OK, &status))
}

/// The work of [`crate::jobs`]: the same transcription as for a request that waits for its answer, or the same speech.
pub struct JobWork(Arc<Services>);

impl JobWork {
    pub fn new(services: Arc<Services>) -> Self {
        Self(services)
    }

    /// The parameters of `task`, with the model that it was accepted for. A model that was asked for and not served stays
    /// as it is, so that the client is warned again.
    fn parameters(&self, task: &Task) -> Result<Parameters, Failure> {
        let mut parameters = Parameters::parse(&task.query)?;
        let accepted = form_urlencoded::parse(task.query.as_bytes()).find(|(name, _)| name == ACCEPTED_MODEL);
        // Jobs of earlier versions have none.
        let Some((_, accepted)) = accepted else { return Ok(parameters) };
        let models = &self.0.models;
        let was_served = models.name_of(parameters.model.as_deref()).is_some();
        let is_default = models.default().model().name == accepted;
        if was_served || !models.serves(&accepted) || !is_default {
            parameters.model = Some(accepted.into_owned());
        }
        Ok(parameters)
    }

    async fn transcribe(&self, task: &Task, input: Input) -> Result<Vec<u8>, Setback> {
        let services = &self.0;
        let understand = async {
            let parameters = self.parameters(task)?;
            let raw = raw::of_parameters(&parameters);
            let (id, accepted) = (task.id.0, task.accepted);
            Understood::new(services, id, accepted, parameters, (task.words, raw), None).await
        };
        let understood = understand.await.map_err(|failure: Failure| setback(task, &failure))?;
        let audio = match input {
            Input::Audio(bytes) => Fetched { bytes, held: Box::new(()) },
            Input::Url(url) => {
                let fetched = fetch(services, &url, TenantId(task.tenant)).await.map_err(|error| {
                    let again = if may_pass(&error) { Again::Later } else { Again::Never };
                    Setback { again, ..setback(task, &error.into()) }
                })?;
                // A job may wait long for memory, and clients need the turns at downloading meanwhile.
                Fetched { bytes: fetched.bytes, held: Box::new(()) }
            }
        };
        // No client waits, so there is no deadline; the runner's time limit applies.
        let origin = Origin::Job(task.watch.clone());
        let urgency = Urgency { tenant: TenantId(task.tenant), deadline: None, origin };
        let answer = transcribe(services, &understood, urgency, audio).await;
        let answer = answer.map_err(|failure| setback(task, &failure))?;
        serde_json::to_vec(&answer).map_err(|error| setback(task, &Failure::internal(error)))
    }

    async fn speak(&self, task: &Task, voice: &str, input: Input) -> Result<Vec<u8>, Setback> {
        let spoken = async {
            match input {
                Input::Audio(text) => callback::spoken(&self.0, task.tenant, &task.query, voice, &text).await,
                Input::Url(_) => Err(Failure::internal("a text is never a URL")),
            }
        };
        spoken.await.map_err(|failure| setback(task, &failure))
    }
}

impl Work for JobWork {
    fn run<'a>(&'a self, task: &'a Task, input: Input) -> BoxFuture<'a, Result<Vec<u8>, Setback>> {
        let work = async move {
            match callback::voice_of_job(&task.query) {
                Some(voice) => self.speak(task, &voice, input).await,
                None => self.transcribe(task, input).await,
            }
        };
        let ticket = self.0.usage.ticket_of_job(task.id.0);
        if let Some(account) = account_of_job(&task.query) {
            ticket.pays_from(limited::account(self.0.authenticator.keys(), account));
        }
        let traced = async {
            let trace = traces::work(task.id.0, traces::Kind::Consumer);
            let done = traces::within(trace.as_ref(), work).await;
            if let Some(trace) = trace {
                trace.end("job".to_owned(), Vec::new(), done.is_err());
            }
            done
        };
        usage::within(Some(ticket), traced).boxed()
    }

    fn media_type(&self, task: &Task) -> Option<String> {
        callback::media_type(&task.query)
    }

    fn given_up(&self, task: &Task, fault: Fault) -> Vec<u8> {
        let failure = match fault {
            Fault::AudioLost => error::audio_lost(),
            Fault::Failed | Fault::Crashed => Failure::internal("given up"),
        };
        setback(task, &failure).body
    }
}

/// Whether a retry in a minute may succeed: a host that is down, a name that does not resolve. Names that
/// resolve to internal addresses are retried as often, so that clients cannot tell them from names that do
/// not exist.
fn may_pass(error: &fetching::Error) -> bool {
    use fetching::Error::{ClientError, Failed, NotRoutable, Unresolvable};
    matches!(error, Failed | NotRoutable | Unresolvable | ClientError(408 | 425 | 429))
}

fn setback(task: &Task, failure: &Failure) -> Setback {
    let echo = |parameters| {
        let Parameters { extra, tags, metadata, .. } = parameters;
        let says_nothing = extra.is_empty() && tags.is_empty() && metadata.is_none();
        (!says_nothing).then_some(wire::Echo { extra, tags, metadata })
    };
    let metadata = Parameters::parse(&task.query).ok().and_then(echo);
    let body = wire::JobError { error: failure.body(task.id.0), metadata };
    let again = match failure.status() {
        // The server is busy, or this organisation holds its share: a job has time.
        StatusCode::SERVICE_UNAVAILABLE if failure.code() == MODEL_FAILED => Again::Later,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Again::Busy(BUSY_PAUSE),
        status if status.is_server_error() => Again::Later,
        _ => Again::Never,
    };
    if matches!(again, Again::Never) {
        usage::ended(failure.status().as_u16());
    }
    // Numbers and texts always serialize.
    Setback { error: failure.code().to_owned(), body: serde_json::to_vec(&body).unwrap_or_default(), again }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_query_means_the_same_without_its_callback() {
        let query =
            "callback=https%3A%2F%2Fuser%3Asecret%40c.example%2F&tag=a%26b&callback_method=put&tag=c+d&x";
        let kept = kept_query(query, None, "base");
        assert!(!kept.contains("secret") && !kept.contains("callback"), "{kept}");
        assert_eq!(callback::voice_of_job(&kept_query("accepted_voice=x", None, "base")), None);
        let whole = Parameters::parse(query).unwrap();
        let expected = Parameters { callback: None, callback_method: CallbackMethod::Post, ..whole };
        assert_eq!(Parameters::parse(&kept).unwrap(), expected);
    }

    #[test]
    fn the_kept_query_holds_what_a_header_told() {
        let told = RawFormat { encoding: audio::RawEncoding::Linear16, sample_rate_hz: 8000, channels: 2 };
        let kept = Parameters::parse(&kept_query("sample_rate=16000&tag=a", Some(told), "base")).unwrap();
        assert_eq!(raw::of_parameters(&kept), Some(Bare::Samples(told)));
        assert_eq!(kept.tags, ["a"]);
    }

    #[test]
    fn only_what_passes_is_waited_for() {
        for error in [
            fetching::Error::Failed,
            fetching::Error::Unresolvable,
            fetching::Error::NotRoutable,
            fetching::Error::ClientError(429),
        ] {
            assert!(may_pass(&error), "{error}");
        }
        for error in [fetching::Error::ClientError(404), fetching::Error::TooLarge { limit: 1 }] {
            assert!(!may_pass(&error), "{error}");
        }
    }
}
