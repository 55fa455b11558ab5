//! Endpoints for the telephony provider: a redirected call is answered with TwiML that connects its audio to the
//! session's room (contract, section 4.5).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Full};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use sha1::Sha1;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

use super::abroad::{Found, Passed};
use super::host::Host;
use super::wire::websocket_base;
use crate::clock::now;
use crate::http::websocket::{self, Socket};
use crate::http::{Failure, Request, Response};
use crate::room::Kind;
use crate::room::phone::{self, Over};
use crate::room::websocket::LIMITS;
use crate::session::{Call, Handle};

const X_TWILIO_SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
const BODY_BYTES_MAX: u64 = 64 << 10;

type Pairs = Vec<(String, String)>;

/// A request of the provider: where it went, and its parameters.
struct Asked {
    base: String,
    /// The address of this very node.
    room_base: String,
    query: Pairs,
    form: Pairs,
    /// The request itself, for another node.
    passed: Passed,
    body: Bytes,
}

impl Asked {
    /// # Errors
    /// 403 if it is not signed, and the provider's token is known.
    async fn read(host: &Host, request: Request) -> Result<Self, Failure> {
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let base = host.base(&request.headers, &request.uri);
        let room_base = host.room_base(&request.headers, &request.uri);
        let passed = Passed::of(&request);
        let signature = request.headers.get(X_TWILIO_SIGNATURE).cloned();
        let query = pairs(request.uri.query().unwrap_or_default().as_bytes());
        let body = request.body.collect_at_most(BODY_BYTES_MAX).await?.bytes();
        let form = pairs(&body);
        if let Some(token) = &host.config.twilio.auth_token {
            let signature =
                signature.as_ref().and_then(|signature| signature.to_str().ok()).unwrap_or_default();
            if !is_signed(token.expose(), &format!("{base}{target}"), &form, signature) {
                return Err(Failure::new(
                    StatusCode::FORBIDDEN,
                    "INVALID_SIGNATURE",
                    "The request is not signed by the provider.",
                ));
            }
        }
        Ok(Self { base, room_base, query, form, passed, body })
    }

    /// The first parameter of one of these names.
    fn any(&self, names: &[&str]) -> Option<&str> {
        let mut all = self.query.iter().chain(&self.form);
        all.find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.as_str())
    }
}

/// `POST` and `GET /api/twilio/incoming-call?session_id=…&room_name=…&to=…&from=…`.
///
/// A call without a session is answered too: the caller hears an apology instead of a failing line.
pub async fn incoming_call(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let asked = Asked::read(&host, request).await?;
    let handle = match host.called(&asked).await {
        Some(Found::At(place)) => return place.pass(asked.passed, asked.body).await,
        Some(Found::Open(handle)) => Some(handle),
        Some(Found::Ended) | None => None,
    };
    // The provider has no key. Knowing the room proves as much: its name is as hard to guess.
    let handle = handle
        .filter(|handle| asked.any(&["room_name"]) == Some(handle.room_name.as_str()))
        .filter(|handle| !handle.read(|session| session.is_guest));
    let Some(handle) = handle.filter(|handle| handle.read(|session| session.check_open()).is_ok()) else {
        return Ok(twiml(
            "<Say>We are sorry, this call cannot be connected. Please call again.</Say><Hangup/>",
        ));
    };
    let from = asked.any(&["from", "From"]).unwrap_or_default();
    // An unescaped `+` in the query arrives as a space.
    let from = if from.starts_with(' ') { format!("+{}", from.trim_start()) } else { from.to_owned() };
    host.bind(&handle, &from).await;
    let token = host.token(&handle, Kind::Phone);
    let url = format!("{}/api/twilio/media", websocket_base(&asked.room_base));
    Ok(twiml(&format!(
        "<Connect{}><Stream url=\"{}\"><Parameter name=\"session_id\" value=\"{}\"/>\
         <Parameter name=\"token\" value=\"{}\"/></Stream></Connect>",
        after(&host, &handle, &asked.base),
        escaped(&url),
        escaped(&handle.id),
        escaped(&token),
    )))
}

impl Host {
    /// The session that the provider asks for, at whichever node. A call is answered in any case, so failures are none.
    async fn called(self: &Arc<Self>, asked: &Asked) -> Option<Found> {
        self.seek(asked.any(&["session_id"])?, None, &asked.passed).await.ok()
    }
}

/// Where the provider asks what comes after the stream, if calls can be handed over at all.
fn after(host: &Host, handle: &Handle, base: &str) -> String {
    if host.config.transfer.numbers.is_empty() {
        return String::new();
    }
    let (id, room) = (&handle.id, &handle.room_name);
    let address = format!("{base}/api/twilio/stream-ended?session_id={id}&room_name={room}");
    format!(" action=\"{}\"", escaped(&address))
}

/// `POST` and `GET /api/twilio/stream-ended?session_id=…&room_name=…`: dials the number that the caller is handed over
/// to, or hangs up.
pub async fn stream_ended(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let asked = Asked::read(&host, request).await?;
    if let Some(Found::At(place)) = host.called(&asked).await {
        return place.pass(asked.passed, asked.body).await;
    }
    let remains = match asked.any(&["session_id"]) {
        Some(id) => host.tools.sessions.remains(id).await.ok(),
        None => None,
    };
    let session = remains.map(|remains| remains.session);
    let session = session.filter(|session| asked.any(&["room_name"]) == Some(session.room.as_str()));
    Ok(twiml(&match session.as_ref().and_then(|session| session.transfer_due(now())) {
        Some(transfer) => format!("<Dial>{}</Dial>", escaped(&transfer.to)),
        None => "<Hangup/>".to_owned(),
    }))
}

/// `GET /api/twilio/media`: the stream of a call. Its token comes with the first frames.
pub async fn media(host: Arc<Host>, request: Request) -> Result<Response, Failure> {
    let passed = Passed::of(&request);
    websocket::accept(request, LIMITS, None, move |mut socket, stop| async move {
        let _ = serve_call(&host, &mut socket, &passed, stop).await;
        let _ = socket.close(Some(1000), "").await;
    })
}

async fn serve_call(
    host: &Arc<Host>,
    socket: &mut Socket,
    passed: &Passed,
    stop: CancellationToken,
) -> Result<Infallible, Over> {
    let start = phone::start(socket).await?;
    let claims = host.signer.check(&start.token, now() / 1000).filter(|claims| claims.kind == Kind::Phone);
    let claims = claims.ok_or(Over)?;
    let handle = match host.seek(&claims.session, None, passed).await {
        Ok(Found::Open(handle)) => handle,
        Ok(Found::At(place)) => {
            // The TwiML names the node that has the session, so a proxy has led the stream astray.
            let (session, node) = (&claims.session, place.address());
            tracing::warn!(session, node, "a call's stream reached another node than its address named");
            return Err(Over);
        }
        _ => return Err(Over),
    };
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

/// The provider's signature of a form sent to `url`: base64(HMAC-SHA1(token, URL, then each parameter's name and value,
/// sorted)), as the provider documents it.
pub fn signature(token: &str, url: &str, form: &[(String, String)]) -> String {
    STANDARD.encode(signing(token, url, form).finalize().into_bytes())
}

fn signing(token: &str, url: &str, form: &[(String, String)]) -> Hmac<Sha1> {
    let mut form: Vec<&(String, String)> = form.iter().collect();
    form.sort();
    form.dedup();
    let mut mac = Hmac::<Sha1>::new_from_slice(token.as_bytes())
        .expect("HMAC takes a key of any length; this is a bug");
    mac.update(url.as_bytes());
    for (name, value) in &form {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    mac
}

/// Whether `signature` belongs to a form sent to `url`, with or without the default port.
fn is_signed(token: &str, url: &str, form: &Pairs, signature: &str) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else { return false };
    let matches = |url: &str| signing(token, url, form).verify_slice(&signature).is_ok();
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
        assert_eq!(signature("12345", URL, &form()), SIGNATURE);
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
