//! Endpoints for the telephony provider: a redirected call is answered with TwiML that connects its audio to the
//! session's room (contract, section 4.5).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Full};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use sha1::Sha1;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

use super::host::Host;
use super::wire::websocket_base;
use crate::clock::now;
use crate::http::websocket::{self, Socket};
use crate::http::{Failure, Request, Response};
use crate::room::Kind;
use crate::room::phone::{self, Over};
use crate::room::websocket::LIMITS;
use crate::session::{Call, Handle, phone_number};

const X_TWILIO_SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
const BODY_BYTES_MAX: u64 = 64 << 10;

type Pairs = Vec<(String, String)>;

/// `POST` and `GET /api/twilio/incoming-call?session_id=…&room_name=…&to=…&from=…`.
///
/// A call without a session is answered too: the caller hears an apology instead of a failing line.
pub async fn incoming_call(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let base = host.base(&request.headers, &request.uri);
    let signature = request.headers.get(X_TWILIO_SIGNATURE).cloned();
    let query = pairs(request.uri.query().unwrap_or_default().as_bytes());
    let body = request.body.collect_at_most(BODY_BYTES_MAX).await?;
    let form = pairs(&body.bytes());
    if let Some(token) = &host.config.twilio.auth_token {
        let signature = signature.as_ref().and_then(|signature| signature.to_str().ok()).unwrap_or_default();
        if !is_signed(token.expose(), &format!("{base}{target}"), &form, signature) {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                "INVALID_SIGNATURE",
                "The request is not signed by the provider.",
            ));
        }
    }
    let asked = |names: &[&str]| {
        let mut all = query.iter().chain(&form);
        all.find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.as_str())
    };
    let handle = asked(&["session_id"]).and_then(|id| host.tools.sessions.get(id));
    // The provider has no key. Knowing the room proves as much: its name is as hard to guess.
    let handle = handle.filter(|handle| asked(&["room_name"]) == Some(handle.room_name.as_str()));
    let Some(handle) = handle.filter(|handle| handle.read(|session| session.check_open()).is_ok()) else {
        return Ok(twiml(
            "<Say>We are sorry, this call cannot be connected. Please call again.</Say><Hangup/>",
        ));
    };
    bind(&host, &handle, asked(&["from", "From"]).unwrap_or_default()).await;
    let token = host.token(&handle, Kind::Phone);
    let url = format!("{}/api/twilio/media", websocket_base(&base));
    Ok(twiml(&format!(
        "<Connect><Stream url=\"{}\"><Parameter name=\"session_id\" value=\"{}\"/>\
         <Parameter name=\"token\" value=\"{}\"/></Stream></Connect>",
        escaped(&url),
        escaped(&handle.id),
        escaped(&token),
    )))
}

/// Binds the calling number, if it is valid and none is bound yet.
async fn bind(host: &Arc<Host>, handle: &Arc<Handle>, from: &str) {
    // An unescaped `+` in the query arrives as a space.
    let from = if from.starts_with(' ') { format!("+{}", from.trim_start()) } else { from.to_owned() };
    let Some(number) = phone_number(&from) else { return };
    let bound = handle.change(|session, _, events| {
        session.check_open()?;
        if session.caller_number.is_none() {
            session.bind_caller(&number, events);
        }
        Ok(())
    });
    if let Err(error) = bound.await {
        tracing::warn!(session = handle.id, %error, "the caller is not bound");
    }
    host.tools.deliver(handle.clone());
}

/// `GET /api/twilio/media`: the stream of a call. Its token comes with the first frames.
pub async fn media(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    websocket::accept(request, LIMITS, None, move |mut socket, stop| async move {
        let _ = serve_call(&host, &mut socket, stop).await;
        let _ = socket.close(Some(1000), "").await;
    })
}

async fn serve_call(
    host: &Arc<Host>,
    socket: &mut Socket,
    stop: CancellationToken,
) -> Result<Infallible, Over> {
    let start = phone::start(socket).await?;
    let claims = host.signer.check(&start.token, now() / 1000).filter(|claims| claims.kind == Kind::Phone);
    let handle = claims.as_ref().and_then(|claims| host.tools.sessions.get(&claims.session)).ok_or(Over)?;
    let call = Call { call_sid: start.call, stream_sid: start.stream.clone(), started: now(), ended: None };
    let begun = handle.change(|session, _, _| {
        session.check_open()?;
        session.call = Some(call);
        Ok(())
    });
    begun.await.map_err(|_| Over)?;
    let mut seat = host.join(&handle, Kind::Phone, "caller").await.map_err(|_| Over)?;
    let idle = Duration::from_millis(host.config.phone_idle_timeout_ms);
    let over = phone::serve(socket, &mut seat, start.stream, idle, stop).await;
    let ended = handle.change(|session, now, _| {
        if let Some(call) = &mut session.call {
            call.ended.get_or_insert(now);
        }
        Ok(())
    });
    if let Err(error) = ended.await {
        tracing::warn!(session = handle.id, %error, "the call's end is not noted");
    }
    over
}

fn pairs(encoded: &[u8]) -> Pairs {
    form_urlencoded::parse(encoded).into_owned().collect()
}

/// Whether `signature` belongs to a form sent to `url`: base64(HMAC-SHA1(token, URL, then each parameter's name and
/// value, sorted)), as the provider documents it, with or without the default port.
fn is_signed(token: &str, url: &str, form: &Pairs, signature: &str) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else { return false };
    let mut form: Vec<&(String, String)> = form.iter().collect();
    form.sort();
    form.dedup();
    let matches = |url: &str| {
        let mut mac = Hmac::<Sha1>::new_from_slice(token.as_bytes())
            .expect("HMAC takes a key of any length; this is a bug");
        mac.update(url.as_bytes());
        for (name, value) in &form {
            mac.update(name.as_bytes());
            mac.update(value.as_bytes());
        }
        mac.verify_slice(&signature).is_ok()
    };
    matches(url) || with_other_port(url).is_some_and(|url| matches(&url))
}

/// The same address with the default port added, or removed.
fn with_other_port(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let port = if scheme == "https" { ":443" } else { ":80" };
    match host.strip_suffix(port) {
        Some(host) => Some(format!("{scheme}://{host}{path}")),
        None if !host.contains(':') => Some(format!("{scheme}://{host}{port}{path}")),
        None => None,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn twiml(verbs: &str) -> Response {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>{verbs}</Response>");
    let body = Full::from(body).map_err(|never: std::convert::Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by the provider's own library.
    const SIGNATURE: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";
    const URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";

    fn form() -> Pairs {
        pairs(b"CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212")
    }

    #[test]
    fn signatures_are_those_of_the_provider() {
        assert!(is_signed("12345", URL, &form(), SIGNATURE));
        assert!(is_signed("12345", "https://mycompany.com:443/myapp.php?foo=1&bar=2", &form(), SIGNATURE));
        assert!(!is_signed("12346", URL, &form(), SIGNATURE));
        assert!(!is_signed("12345", "https://mycompany.com/myapp.php?foo=1&bar=3", &form(), SIGNATURE));
        assert!(!is_signed("12345", URL, &form()[1..].to_vec(), SIGNATURE));
        for other in ["", "x", "AAAA"] {
            assert!(!is_signed("12345", URL, &form(), other));
        }
    }
}
