//! `POST /v1/listen` and its three aliases: audio in, transcript out.
//!
//! Refusals that need no body come before it is read: no key, bad parameters, a full engine. A request with
//! `callback` goes on in `jobs.rs`; both end in `transcription.rs`.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hyper::header::{HeaderName, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, StatusCode};
use tokio::time::timeout;

use super::asker::asker;
use super::decode::{Fetched, Origin};
use super::forward::Onward;
use super::parameters::Parameters;
use super::services::Services;
use super::source::{self, Source};
use super::transcription::{Understood, Urgency, fetch, transcribe};
use super::{error, jobs, raw};
use crate::engine::{self, RequestPermit, TenantId};
use crate::http::{Caller, Failure, Request, Response, Scheme, json};
use crate::patience::Deadline;

/// The contract's header that asks for words with their times.
const TIMESTAMPS: &str = "timestamps";
/// Audio that takes longer to arrive is no longer expected: others may have its room.
const EXPECTED_WITHIN: Duration = Duration::from_secs(1);
const DG_MODEL_NAME: HeaderName = HeaderName::from_static("dg-model-name");
const DG_MODEL_UUID: HeaderName = HeaderName::from_static("dg-model-uuid");

pub(super) async fn listen(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (deadline, created) = (Deadline::after(services.processing_timeout), SystemTime::now());
    let caller = services.authenticator.caller(&request.headers).await?;
    let parameters = Parameters::parse(request.uri.query().unwrap_or_default())?;
    if parameters.asks_for_turns() {
        return Err(error::conversational());
    }
    let words = wants_words(&caller, &request.headers, &parameters)?;
    let raw = raw::of_request(&request.headers, &parameters)?;
    let limit = Some(deadline);
    let understood = Understood::new(&services, request.id, created, parameters, (words, raw), limit).await?;
    if understood.parameters.callback.is_some() {
        return jobs::accept(&services, request, caller, understood).await;
    }
    services.refuse_without_model()?;
    let tenant = TenantId(caller.tenant);
    // A request that has gone on to this server goes no further.
    let forward = services.forward.as_ref().filter(|forward| forward.may_send(&request.headers));
    let onward = || Onward { uri: request.uri.clone(), headers: request.headers.clone(), deadline };
    let permit = understood.model.transcriber().engine().enter(tenant, asker(&caller, &request)).await;
    let mut permit = match (permit.map_err(Failure::from), forward) {
        (Ok(permit), _) => permit,
        (Err(failure), Some(forward)) if failure.may_go_elsewhere() => {
            return forward.unread(onward(), request.body, failure).await;
        }
        (Err(failure), _) => return Err(failure),
    };
    let _active = services.activity.begin();
    let onward = forward.filter(|_| !source::is_json(&request.headers)).map(|forward| (forward, onward()));
    let mut audio = while_expected(&mut permit, read(&services, request, tenant, deadline)).await?;
    // Kept, with its room, until it is clear that there is room for the audio itself.
    let kept = onward.map(|onward| {
        let held = Arc::new(Mutex::new(std::mem::replace(&mut audio.held, Box::new(()))));
        audio.held = Box::new(held.clone());
        (onward, audio.bytes.clone(), held)
    });
    let urgency = Urgency { tenant, deadline: Some(deadline), origin: Origin::Request(permit) };
    let answer = match (transcribe(&services, &understood, urgency, audio).await, kept) {
        (Ok(answer), _) => answer,
        (Err(failure), Some(((forward, onward), bytes, _held))) if failure.may_go_elsewhere() => {
            return forward.read(onward, bytes, failure).await;
        }
        (Err(failure), _) => return Err(failure),
    };
    let mut response = json(StatusCode::OK, &answer);
    let model = understood.model.model();
    let out = response.headers_mut();
    if let (Ok(name), Ok(uuid)) = (model.name.parse::<HeaderValue>(), model.uuid.to_string().parse()) {
        out.insert(DG_MODEL_NAME, name);
        out.insert(DG_MODEL_UUID, uuid);
    }
    Ok(response)
}

/// Waits for `reading`, a request's audio. Room is kept for the usual work of a request, but not for audio that is slow to
/// arrive.
pub(super) async fn while_expected<T>(permit: &mut RequestPermit, reading: impl Future<Output = T>) -> T {
    let mut reading = pin!(reading);
    let reservation = permit.take_reservation();
    let in_time = timeout(EXPECTED_WITHIN, reading.as_mut()).await;
    drop(reservation);
    match in_time {
        Ok(audio) => audio,
        Err(_) => reading.await,
    }
}

/// Reads the audio that `request` sends or names.
pub(super) async fn read(
    services: &Services,
    request: Request,
    tenant: TenantId,
    deadline: Deadline,
) -> Result<Fetched, Failure> {
    let body = request.body.charged_to(tenant.0);
    match source::read(request.version, &request.headers, body).await? {
        Source::Audio(body) => Ok(Fetched { bytes: body.bytes(), held: Box::new(body) }),
        Source::Url(url) => {
            let fetched = deadline.wait(fetch(services, &url, tenant)).await;
            Ok(fetched.ok_or(engine::Error::DeadlineExceeded)??)
        }
    }
}

/// Whether the response has `words`.
///
/// The contract has them only with `timestamps: true`; SDKs of the wire format expect them always, and one
/// fails without. So they are left out only for a request in the contract's own form: `Bearer`, no SDK's
/// header, and no parameter that shows in words. `timestamps: false` leaves them out for every client, unless
/// a feature shows in words only. The contract's own name for that feature, `diarization`, requires them.
///
/// # Errors
/// 400 for a `timestamps` that is neither true nor false, and for one that is false with `diarization`.
fn wants_words(caller: &Caller, headers: &HeaderMap, parameters: &Parameters) -> Result<bool, Failure> {
    let mut fields = headers.get_all(TIMESTAMPS).iter();
    let asked = fields.next();
    if fields.any(|field| Some(field) != asked) {
        return Err(error::invalid_header(TIMESTAMPS, "it is there twice, with different values"));
    }
    match asked.map(HeaderValue::as_bytes) {
        None => Ok(is_of_the_wire(caller) || is_sdk(headers) || parameters.implies_words()),
        Some(value) if value.eq_ignore_ascii_case(b"true") => Ok(true),
        Some(value) if value.eq_ignore_ascii_case(b"false") => match parameters.diarize.get("diarization") {
            Some(name) => Err(error::needs_words(name)),
            None => Ok(parameters.needs_words()),
        },
        Some(_) => Err(error::invalid_header(TIMESTAMPS, "expected true or false")),
    }
}

/// The contract has neither the scheme `Token` nor tokens.
fn is_of_the_wire(caller: &Caller) -> bool {
    caller.scheme == Scheme::Token || caller.is_token
}

/// SDKs of the wire format identify themselves, in one way or another.
pub(super) fn is_sdk(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    agent.to_ascii_lowercase().contains("deepgram")
        || headers
            .keys()
            .any(|name| name.as_str().starts_with("x-deepgram-") || name.as_str().starts_with("x-fern-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Identity, Limits, Scopes, Secret};

    fn caller(scheme: Scheme) -> Caller {
        let key = Secret::generate().id().clone();
        let identity = Identity {
            limits: Limits::NONE,
            account: key.clone(),
            key,
            tenant: 1,
            is_operator: false,
            scopes: Scopes::of_a_client(),
            is_token: false,
            expires: None,
        };
        Caller { identity, scheme }
    }

    fn words(scheme: Scheme, headers: &[(&str, &str)], query: &str) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        wants_words(&caller(scheme), &headers, &Parameters::parse(query).unwrap()).unwrap()
    }

    #[test]
    fn words_are_left_out_only_for_the_contracts_own_form() {
        assert!(!words(Scheme::Bearer, &[], ""));
        assert!(!words(Scheme::Bearer, &[("timestamps", "false"), ("user-agent", "curl/8")], "language=es"));
        for (name, value) in [
            ("timestamps", "true"),
            ("timestamps", "True"),
            ("user-agent", "@deepgram/sdk/3.1"),
            ("user-agent", "Deepgram-SDK"),
            ("x-fern-language", "Python"),
            ("x-deepgram-session-id", "x"),
        ] {
            assert!(words(Scheme::Bearer, &[(name, value)], ""), "{name}: {value}");
        }
        for query in [
            "punctuate=true",
            "smart_format=true",
            "diarization=true",
            "utterances=true",
            "paragraphs=true",
            "search=a",
        ] {
            assert!(words(Scheme::Bearer, &[], query), "{query}");
        }
        assert!(words(Scheme::Token, &[], ""));
    }

    #[test]
    fn a_timestamps_header_that_means_nothing_is_refused() {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(TIMESTAMPS), "yes".parse().unwrap())]);
        let failure = wants_words(&caller(Scheme::Bearer), &headers, &Parameters::default()).unwrap_err();
        assert_eq!((failure.status(), failure.code()), (StatusCode::BAD_REQUEST, "INVALID_HEADER"));
    }
}
