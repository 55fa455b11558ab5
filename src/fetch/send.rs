//! Sends one message, or opens a WebSocket for many: with the same checks as downloads, no redirects, and an
//! answer that is hardly read.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{
    CONNECTION, HeaderMap, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use reqwest::{Method, Response, StatusCode, Upgraded};
use sha1::{Digest as _, Sha1};
use url::{Host, Url};

use super::policy::{self, without_user};
use super::{Error, Fetcher};
use crate::patience::within;

/// This much of an answer's body is read and dropped, out of politeness.
const ANSWER_BYTES_MAX: usize = 8 << 10;
/// How long a check waits for a look-up. If it takes longer, the address is judged when it is used.
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(2);

/// A message and its destination.
pub struct Message {
    pub method: Method,
    /// A user in it is sent as Basic authentication (RFC 7617).
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The head of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// The answer's `Retry-After`, from now.
    pub retry_after: Option<Duration>,
}

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("no answer in time")]
    Timeout,
    #[error(transparent)]
    Refused(#[from] Error),
}

impl Fetcher {
    /// Checks `url` by its text alone.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn judge(&self, url: &Url) -> Result<(), Error> {
        policy::check(&without_user(url), &self.reachable).map(drop)
    }

    /// Checks `url` as far as is possible now: by its text, and by the addresses of its host if they are
    /// known soon. It is checked again each time it is used. A name that does not resolve is refused like one
    /// that resolves to an internal address, so that clients learn no internal names.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], [`Error::NotRoutable`], [`Error::Unresolvable`].
    pub async fn check(&self, url: &Url) -> Result<(), Error> {
        if url.as_str().len() > policy::URL_BYTES_MAX {
            return Err(Error::InvalidUrl);
        }
        let reach = policy::check(&without_user(url), &self.reachable)?;
        let Some(Host::Domain(host)) = url.host() else { return Ok(()) };
        match tokio::time::timeout(LOOK_UP_TIME_MAX, (self.look_up)(host.to_owned())).await {
            Ok(Ok(addresses)) => policy::may_connect(&addresses, reach, &self.reachable),
            Ok(Err(_)) => Err(Error::Unresolvable),
            Err(_) => Ok(()),
        }
    }

    /// Sends `message` and waits for the head of the answer. A redirect is an answer like any other. Dropping
    /// the future closes the connection.
    ///
    /// # Errors
    /// [`SendError`]; of [`Error`], the refusals and [`Error::Failed`].
    pub async fn send(&self, message: Message, timeout: Duration) -> Result<Reply, SendError> {
        let client = self.client(&without_user(&message.url))?;
        let request = client
            .request(message.method, message.url)
            .headers(message.headers)
            .body(message.body)
            .timeout(timeout);
        let response = request.send().await.map_err(|error| match super::download::verdict(&error) {
            Error::Failed if error.is_timeout() => SendError::Timeout,
            verdict => SendError::Refused(verdict),
        })?;
        let reply = Reply {
            status: response.status().as_u16(),
            retry_after: retry_after(response.headers(), SystemTime::now()),
        };
        drain(response).await;
        Ok(reply)
    }
}

impl Fetcher {
    /// Opens a WebSocket at `url` (`ws` or `wss`) and returns its byte stream after the handshake.
    ///
    /// # Errors
    /// As [`Self::send`]; [`Error::Failed`] if the server does not open one.
    pub async fn connect(
        &self,
        url: &Url,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<Upgraded, SendError> {
        let mut url = url.clone();
        let scheme = if url.scheme() == "wss" { "https" } else { "http" };
        url.set_scheme(scheme).map_err(|()| Error::InvalidUrl)?;
        let client = self.upgrading.of(&without_user(&url), &self.reachable)?;
        let key = STANDARD.encode(rand::random::<[u8; 16]>());
        let request = client
            .get(url)
            .headers(headers)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key);
        let opening = async {
            let response = request.send().await.map_err(|error| super::download::verdict(&error))?;
            // RFC 6455, section 4.1.
            let expected =
                STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
            let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
            if response.status() != StatusCode::SWITCHING_PROTOCOLS
                || accept.is_none_or(|accept| accept.as_bytes() != expected.as_bytes())
            {
                return Err(Error::Failed);
            }
            response.upgrade().await.map_err(|_| Error::Failed)
        };
        Ok(within(timeout, opening).await.ok_or(SendError::Timeout)??)
    }
}

/// The delay in `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default()),
    }
}

/// Within the request's own time limit; the answer is known, whatever happens here.
async fn drain(mut response: Response) {
    let mut taken = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        taken += chunk.len();
        if taken >= ANSWER_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<Duration> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 60);
        retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]), now)
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(read("Sat, 06 Nov 1993 08:49:37 GMT"), Some(Duration::ZERO));
        for nothing in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_user_is_taken_out() {
        let url = |text| Url::parse(text).unwrap();
        assert_eq!(without_user(&url("https://u:p@a.example/x?y")), url("https://a.example/x?y"));
        assert_eq!(without_user(&url("https://u@a.example/")), url("https://a.example/"));
    }
}
