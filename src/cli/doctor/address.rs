//! Checks of the public address: TLS, the server behind it, WebSockets through its proxy, the provider's signature.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use reqwest::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Client, StatusCode};
use serde_json::Value;
use sha1::{Digest as _, Sha1};
use url::{Host, Url};

use super::certificate::time_left;
use super::check::{Check, plain};
use super::clock::Clocks;
use crate::config::Config;
use crate::outbound;
use crate::sts::provider_signature;

const TIMEOUT: Duration = Duration::from_secs(10);
const SETTING: &str = "sts.public_url";
/// Certificates are renewed a month before their end, or not at all.
const DAYS_LEFT_MIN: u64 = 14;
const UPGRADE_PATH: &str = "/api/twilio/media";
const CALL_PATH: &str = "/api/twilio/incoming-call";
const PASS_ON: &str = "let the proxy pass WebSockets on: HTTP/1.1 to this server, with the request's `Upgrade` and \
    `Connection` (nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \
    \"upgrade\")";

/// The checks of the public address, in order; later ones only if the address answers.
pub async fn all(config: &Config, clocks: &mut Clocks) -> Vec<Check> {
    const NAME: &str = "public address";
    let Some(address) = &config.sts.public_url else {
        let message = "not set: clients are sent to the `Host` of their request";
        return vec![match config.sts.twilio.auth_token {
            Some(_) => Check::failed(
                NAME,
                "not set, and the telephony provider signs the address that it calls",
                format!("set `{SETTING}` to the address that the provider calls, https://…"),
            ),
            None => Check::ok(NAME, message),
        }];
    };
    let (Ok(url), Ok(client)) = (Url::parse(address), outbound::http1_client()) else {
        return vec![Check::failed(NAME, "it is no address", format!("set `{SETTING}`"))];
    };
    let base = Base { shown: shown(&url), address: address.trim_end_matches('/').to_owned(), client };
    let reached = base.reached(url.scheme() == "https" || is_near(&url), clocks).await;
    let mut checks = vec![reached];
    if checks.iter().any(|check| check.status == super::check::Status::Failed) {
        return checks;
    }
    checks.push(base.upgrades().await);
    if let Some(token) = &config.sts.twilio.auth_token {
        checks.push(base.takes_signatures(token.expose()).await);
    }
    checks
}

struct Base {
    /// Without user and query.
    shown: String,
    address: String,
    client: Client,
}

/// An address without the parts that may be secret.
pub fn shown(url: &Url) -> String {
    url.origin().ascii_serialization() + url.path().trim_end_matches('/')
}

/// Whether it is on this machine, where TLS protects nothing.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

impl Base {
    async fn reached(&self, is_safe: bool, clocks: &mut Clocks) -> Check {
        const NAME: &str = "public address";
        let shown = &self.shown;
        let response = match self.client.get(format!("{}/health", self.address)).timeout(TIMEOUT).send().await
        {
            Ok(response) => response,
            Err(error) => {
                let text = plain(error);
                let mend = if text.contains("certificate") {
                    "give the server (`http.tls`) or its proxy a valid certificate for this name, with its whole chain"
                } else {
                    "start the server, and let the name, the firewall and the proxy lead to `listen`"
                };
                return Check::failed(
                    NAME,
                    format!("{shown} cannot be reached: {text}"),
                    format!("{mend}; or set `{SETTING}`"),
                );
            }
        };
        clocks.note(&self.shown, response.headers());
        let left = time_left(&response, SystemTime::now());
        let status = response.status();
        if status.is_redirection() {
            let message = format!("{shown} redirects ({})", status.as_u16());
            return Check::failed(NAME, message, format!("set `{SETTING}` to the address that it leads to"));
        }
        let health = outbound::read_json(response).await;
        let is_ready = health.as_ref().and_then(|health| health.get("ready")).and_then(Value::as_bool);
        let Some(is_ready) = is_ready else {
            let message = format!("{shown} answers {}, and is not this program", status.as_u16());
            return Check::failed(
                NAME,
                message,
                format!("let its proxy lead to `listen`, or set `{SETTING}`"),
            );
        };
        if !is_ready {
            let message = format!("{shown} is reached, and the server takes no requests yet");
            return Check::failed(NAME, message, "wait until its model is loaded, and look at its log");
        }
        if !is_safe {
            let message = format!(
                "{shown} has no TLS: browsers give a page there no microphone, and the provider no call"
            );
            return Check::failed(
                NAME,
                message,
                format!("put TLS before it, and set `{SETTING}` to https://…"),
            );
        }
        let days = left.map(|left| left.as_secs() / 86_400);
        match days {
            None => Check::ok(NAME, format!("{shown} is reached, without TLS")),
            Some(days) if days < DAYS_LEFT_MIN => Check::warning(
                NAME,
                format!("{shown} is reached; its certificate is valid for {days} more days"),
                "renew it, and let something renew it in time from now on",
            ),
            Some(days) => {
                Check::ok(NAME, format!("{shown} is reached; its certificate is valid for {days} more days"))
            }
        }
    }

    async fn upgrades(&self) -> Check {
        const NAME: &str = "websocket";
        match self.echo().await {
            Ok(took) => {
                Check::ok(NAME, format!("opens at {}, and answers in {} ms", self.shown, took.as_millis()))
            }
            Err(problem) => Check::failed(NAME, format!("{}: {problem}", self.shown), PASS_ON),
        }
    }

    /// Opens a WebSocket where calls are, and waits for the answer to a ping.
    async fn echo(&self) -> Result<Duration, String> {
        let key = STANDARD.encode(rand::random::<[u8; 16]>());
        let request = self
            .client
            .get(format!("{}{UPGRADE_PATH}", self.address))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .timeout(TIMEOUT);
        let response = request.send().await.map_err(plain)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(format!("the handshake is answered with {}", response.status().as_u16()));
        }
        // RFC 6455, section 4.1.
        let expected = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
        if response
            .headers()
            .get(SEC_WEBSOCKET_ACCEPT)
            .is_none_or(|accept| accept.as_bytes() != expected.as_bytes())
        {
            return Err("the handshake is not answered by a server of WebSockets".into());
        }
        let upgraded = response.upgrade().await.map_err(plain)?;
        let mut socket = WebSocket::after_handshake(upgraded, Role::Client);
        socket.set_auto_pong(false);
        let begun = std::time::Instant::now();
        let exchange = async {
            let ping = Frame::new(true, OpCode::Ping, None, Payload::Borrowed(b"doctor"));
            socket.write_frame(ping).await.map_err(|error| error.to_string())?;
            loop {
                let frame = socket.read_frame().await.map_err(|error| error.to_string())?;
                match frame.opcode {
                    OpCode::Pong => return Ok(begun.elapsed()),
                    OpCode::Close => return Err("it is closed at once".to_owned()),
                    _ => {}
                }
            }
        };
        let echoed = tokio::time::timeout(TIMEOUT, exchange).await;
        // The check is done, whether or not this arrives.
        let _ = socket.write_frame(Frame::close(1000, b"")).await;
        echoed.unwrap_or_else(|_| Err("it opens, and nothing comes back".into()))
    }

    /// Asks as the provider does about a call that has no session, signed rightly and wrongly.
    async fn takes_signatures(&self, token: &str) -> Check {
        const NAME: &str = "signature";
        const MEND: &str = "set `sts.public_url` to the address exactly as the provider calls it (scheme, port, path), and \
            `sts.twilio.auth_token` on the running server as here";
        let form = vec![("CallSid".to_owned(), "CAdoctor".to_owned())];
        let url = format!("{}{CALL_PATH}", self.address);
        let right = provider_signature(token, &url, &form);
        let wrong = provider_signature(&format!("{token}x"), &url, &form);
        match (self.calls(&url, &right).await, self.calls(&url, &wrong).await) {
            (Err(problem), _) | (_, Err(problem)) => Check::failed(NAME, problem, MEND),
            (Ok(StatusCode::OK), Ok(StatusCode::FORBIDDEN)) => {
                Check::ok(NAME, "the provider's signature is taken, and a wrong one refused")
            }
            (Ok(StatusCode::OK), Ok(status)) => Check::failed(
                NAME,
                format!("a wrong signature is answered with {}", status.as_u16()),
                "set `sts.twilio.auth_token` on the running server: it checks no signatures",
            ),
            (Ok(status), _) => Check::failed(
                NAME,
                format!("the provider's signature is answered with {}", status.as_u16()),
                MEND,
            ),
        }
    }

    async fn calls(&self, url: &str, signature: &str) -> Result<StatusCode, String> {
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("x-twilio-signature", signature)
            .timeout(TIMEOUT)
            .body("CallSid=CAdoctor");
        Ok(request.send().await.map_err(plain)?.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url = |text: &str| Url::parse(text).expect("an address");
        assert_eq!(shown(&url("https://user:secret@voice.example/a/?key=b")), "https://voice.example/a");
        for (near, text) in
            [(true, "http://127.0.0.1:1"), (true, "http://localhost"), (false, "http://voice.example")]
        {
            assert_eq!(is_near(&url(text)), near, "{text}");
        }
    }
}
