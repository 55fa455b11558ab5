//! The telephony provider's webhooks (contract, section 4.5).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::StatusCode;
use hyper::header::{HOST, HeaderName, HeaderValue};
use serde_json::{Value, json};
use sha1::Sha1;
use tokio::time::timeout;
use url::form_urlencoded;

use super::backend::Demo;
use super::reply::{Refusal, whole};
use super::visits;
use crate::http::{Failure, Request, Response, authority, json as json_response};

const X_TWILIO_SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
const FORM_BYTES_MAX: u64 = 64 << 10;
/// The provider gives up after 15 s; both timeouts together stay below that.
const START_TIME_MAX: Duration = Duration::from_secs(8);
const BIND_TIME_MAX: Duration = Duration::from_secs(4);

/// `POST /webhooks/twilio/incoming-call`: starts a session for a call, and sends the call there. If that fails, the caller
/// hears an apology; an error status would sound like a fault of the line.
pub async fn incoming_call(demo: Arc<Demo>, request: Request) -> Result<Response, Failure> {
    let form = Form::read(&demo, request).await?;
    let (from, to) = (form.get("From"), form.get("To"));
    let started = timeout(START_TIME_MAX, start(&demo)).await;
    let session = match started.unwrap_or_else(|_| Err(slow())) {
        Ok(session) => session,
        Err(refusal) => {
            tracing::warn!(reason = reason(&refusal), "no session for a call");
            return Ok(twiml(
                "<Say>We are sorry, nobody can take your call. Please call again.</Say><Hangup/>",
            ));
        }
    };
    if let Some(number) = phone_number(from) {
        let bind = json!({"action": "bind_caller", "session_id": session.id, "caller_number": number});
        let bound = timeout(BIND_TIME_MAX, demo.voice.act(&bind)).await;
        if let Err(refusal) = bound.unwrap_or_else(|_| Err(slow())) {
            // The call works without it.
            tracing::warn!(session = session.id, reason = reason(&refusal), "the caller is not bound");
        }
    }
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("session_id", &session.id)
        .append_pair("room_name", &session.room_name)
        .append_pair("to", to)
        .append_pair("from", from)
        .finish();
    let url = format!("{}/api/twilio/incoming-call?{query}", demo.voice.base);
    Ok(twiml(&format!("<Redirect method=\"POST\">{}</Redirect>", escaped(&url))))
}

/// `POST /webhooks/twilio/call-status`: echoes the call's id and status.
pub async fn call_status(demo: Arc<Demo>, request: Request) -> Result<Response, Failure> {
    let form = Form::read(&demo, request).await?;
    let reply = json!({"ok": true, "call_sid": form.get("CallSid"), "call_status": form.get("CallStatus")});
    Ok(json_response(StatusCode::OK, &reply))
}

struct Session {
    id: String,
    room_name: String,
}

async fn start(demo: &Demo) -> Result<Session, Refusal> {
    let code = visits::code();
    let reply = demo.voice.act(&start_payload(demo, &code)).await?;
    let text = |name: &str| reply.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(id), Some(room_name)) = (text("session_id"), text("room_name")) else {
        let message = "The voice service's answer has no session.";
        return Err(Failure::new(StatusCode::BAD_GATEWAY, "STS_UNAVAILABLE", message).into());
    };
    demo.visits.insert(code, id.clone());
    demo.sessions.insert(&id);
    Ok(Session { id, room_name })
}

fn start_payload(demo: &Demo, visit: &str) -> Value {
    let link = |path: &str, title: &str, keywords: &[&str]| json!({"url": format!("{}{path}?visit={visit}", demo.frontend), "title": title, "keywords": keywords});
    json!({
        "action": "start",
        "channel": "phone",
        "greeting": "Welcome to the demo clinic. How can I help you?",
        "website_url": demo.config.website_url,
        "link_catalog": {
            "forms": link("/forms", "Sign up", &["form", "sign up", "register"]),
            "patient_information": link("/patients", "Your patient information", &["patient", "records"]),
            "privacy": link("/privacy", "Privacy", &["privacy", "data"]),
            "default": link("/", "The demo clinic", &[]),
        },
        "verification_rules": {
            "patient_information": {
                "voice_prompt": "To see your patient information, please say the last four digits of your \
                                 social security number.",
                "voice_prompt_short": "The last four digits, please.",
                "keywords": ["patient information", "my records", "test results"],
                "sms_catalog_key": "patient_information",
            },
        },
        "sms_enabled": true,
        "page_guidance_enabled": true,
    })
}

/// The part of a refusal that may be logged.
fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Failed(failure) => failure.code().to_owned(),
        Refusal::Passed(reply) => format!("the voice service answered {}", reply.status.as_u16()),
    }
}

fn slow() -> Refusal {
    Failure::new(StatusCode::GATEWAY_TIMEOUT, "STS_TIMEOUT", "The voice service did not answer in time.")
        .into()
}

/// A number of ITU-T E.164; callers may also be `anonymous` or an address.
fn phone_number(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('+')?;
    let is_number = (8..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(text)
}

/// The fields of a form, in order of names.
struct Form(Vec<(String, String)>);

impl Form {
    /// # Errors
    /// 403 if a token is configured and the provider's signature is missing or wrong, or if none is configured and the request
    /// is not from this machine; 400 without `CallSid`; the errors of a body.
    async fn read(demo: &Demo, request: Request) -> Result<Self, Failure> {
        let token = demo.config.twilio_auth_token.as_ref().filter(|token| !token.expose().is_empty());
        if token.is_none() && (request.is_foreign || !authority::is_loopback(&request.headers, &request.uri))
        {
            let message = "Without `demo.twilio_auth_token` calls are taken from this machine alone.";
            return Err(Failure::new(StatusCode::FORBIDDEN, "INVALID_SIGNATURE", message));
        }
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let base = demo.config.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        let base = base.unwrap_or_else(|| format!("http://{host}"));
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        let url = format!("{base}{target}");
        let signature = request.headers.get(X_TWILIO_SIGNATURE).cloned();
        let body = request.body.collect_at_most(FORM_BYTES_MAX).await?;
        let mut pairs: Vec<_> = form_urlencoded::parse(&body.bytes()).into_owned().collect();
        pairs.sort();
        pairs.dedup();
        let form = Self(pairs);
        if let Some(token) = token {
            let signature = signature.as_ref().and_then(|signature| signature.to_str().ok());
            if !form.is_signed(token.expose(), &url, signature.unwrap_or_default()) {
                let message = "The provider's signature is missing or wrong.";
                return Err(Failure::new(StatusCode::FORBIDDEN, "INVALID_SIGNATURE", message));
            }
        }
        if form.get("CallSid").is_empty() {
            return Err(super::fields::invalid("`CallSid` is missing."));
        }
        Ok(form)
    }

    /// Empty if the field is missing.
    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Base64 of HMAC-SHA1(token, URL and then each field's name and value), of the URL with or without
    /// its port (<https://www.twilio.com/docs/usage/webhooks/webhooks-security>).
    fn is_signed(&self, token: &str, url: &str, signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let matches = |url: &str| {
            let mut mac = Hmac::<Sha1>::new_from_slice(token.as_bytes())
                .expect("HMAC takes a key of any length; this is a bug");
            mac.update(url.as_bytes());
            for (name, value) in &self.0 {
                mac.update(name.as_bytes());
                mac.update(value.as_bytes());
            }
            mac.verify_slice(&signature).is_ok()
        };
        matches(url) || other_port(url).is_some_and(|url| matches(&url))
    }
}

/// The same URL, with its scheme's default port written out or left out.
fn other_port(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let port = if scheme == "https" { ":443" } else { ":80" };
    match host.strip_suffix(port) {
        Some(host) => Some(format!("{scheme}://{host}{target}")),
        None => (!host.contains(':')).then(|| format!("{scheme}://{host}{port}{target}")),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn twiml(verbs: &str) -> Response {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>{verbs}</Response>");
    whole(StatusCode::OK, HeaderValue::from_static("text/xml"), body)
}
