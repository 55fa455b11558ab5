//! Speech that is delivered later: texts are kept and spoken as jobs.
//!
//! A job keeps the request's query, without the callback, and the voice that it was accepted for.

use bytes::Bytes;
use hyper::StatusCode;
use url::form_urlencoded;

use super::answer::{Order, whole};
use super::format::TEXT_CHARACTERS_MAX;
use super::parameters::Parameters;
use super::text;
use super::voices::{self, voice_of};
use crate::api::parameters::CallbackMethod;
use crate::api::services::Services;
use crate::api::submission::{idempotency, jobs_for};
use crate::api::wire;
use crate::http::{Caller, Failure, Request, Response, json};
use crate::jobs::{self, JobId};
use crate::usage;

/// The name of a job's voice, in its kept query. No job of another kind may keep it.
pub const ACCEPTED_VOICE: &str = "accepted_voice";

/// Accepts a request whose speech will be delivered. The job is on disk before its id is returned.
///
/// # Errors
/// 400, 401, 413, 415, 422, 429, 500, 501, 503.
pub async fn accept(
    services: &Services,
    request: Request,
    caller: Caller,
    parameters: Parameters,
    voice: &str,
) -> Result<Response, Failure> {
    let Some(callback) = parameters.callback else {
        return Err(Failure::internal("a request without callback"));
    };
    let (jobs, key, _coming) = jobs_for(services, &callback, &request, &caller).await?;
    usage::is_async();
    let _active = services.activity.begin();
    let asked = request.uri.query().unwrap_or_default().to_owned();
    let query = kept_query(&asked, voice);
    let text = text::read(&request.headers, request.body.charged_to(caller.tenant)).await?;
    text::check(&text, TEXT_CHARACTERS_MAX)?;
    let text = Bytes::from(text);
    let order = jobs::Order {
        id: JobId(request.id),
        accepted: std::time::SystemTime::now(),
        tenant: caller.tenant,
        key: caller.key.to_string(),
        query,
        words: false,
        source: jobs::Source::Spooled { bytes: text.len() as u64 },
        callback,
        method: match parameters.callback_method {
            CallbackMethod::Post => reqwest::Method::POST,
            CallbackMethod::Put => reqwest::Method::PUT,
        },
        idempotency: idempotency(key, asked, String::new(), text.clone()).await?,
    };
    let JobId(request_id) = jobs.submit(order, Some(text)).await?;
    Ok(json(StatusCode::OK, &wire::Acknowledgement { request_id }))
}

/// The query of a job: without the callback, which is kept separately, as it may hold a password; with the voice.
fn kept_query(query: &str, voice: &str) -> String {
    let is_kept = |name: &str| !matches!(name, "callback" | "callback_method" | "model" | ACCEPTED_VOICE);
    let kept = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| is_kept(name));
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(kept);
    query.append_pair(ACCEPTED_VOICE, voice);
    query.finish()
}

/// The voice of a job's kept query; `None` if the job is no speech.
pub fn voice_of_job(query: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == ACCEPTED_VOICE).map(|(_, voice)| voice.into_owned())
}

/// The media type of a job's speech.
pub fn media_type(query: &str) -> Option<String> {
    voice_of_job(query)?;
    // `/v2/speak` takes all that `/v1/speak` does.
    Some(Parameters::of_turn(query).ok()?.wanted.format().ok()?.content_type())
}

/// Speaks the text of a job in `voice`, or in the default voice if that is no longer installed.
///
/// # Errors
/// 429, 500, 501, 503, 504.
pub async fn spoken(
    services: &Services,
    tenant: u64,
    query: &str,
    voice: &str,
    text: &[u8],
) -> Result<Vec<u8>, Failure> {
    let parameters = Parameters::of_turn(query)?;
    let format = parameters.wanted.format()?;
    let installed = voice_of(services, Some(voice))?;
    let voice = match installed {
        Some(voice) => voice,
        None => voices::voice(services, None)?,
    };
    let text = String::from_utf8_lossy(text).into_owned();
    whole(
        services,
        Order { tenant, connection: None, text, voice, speed: parameters.speed.unwrap_or(1.0), format },
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_keeps_its_parameters_and_its_voice_and_no_callback() {
        let query = "callback=https%3A%2F%2Fuser%3Asecret%40c.example%2F&model=aura-2-zeus-en&encoding=linear16\
                     &sample_rate=8000&speed=1.2&callback_method=put";
        let kept = kept_query(query, "am_michael");
        assert!(!kept.contains("secret") && !kept.contains("callback"), "{kept}");
        assert_eq!(voice_of_job(&kept).as_deref(), Some("am_michael"));
        assert_eq!(Parameters::parse(&kept).unwrap().wanted, Parameters::parse(query).unwrap().wanted);
        assert_eq!(media_type(&kept).as_deref(), Some("audio/wav"));
        assert_eq!(media_type(&kept_query("", "a")).as_deref(), Some("audio/mpeg"));
        assert_eq!((voice_of_job("model=base"), media_type("encoding=linear16")), (None, None));
        // A client's own mark does not count.
        assert_eq!(voice_of_job(&kept_query("accepted_voice=x", "a")).as_deref(), Some("a"));
    }
}
