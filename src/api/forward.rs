//! Requests that this server has no room for, sent on to the peer with the most of it.
//!
//! Only what would be refused for the server's own capacity goes on, never what a tenant or a key is refused for. A mark in
//! its head keeps a request from going on a second time; it grants nothing, so that a client that sets it only has its
//! request refused here. The caller's key goes along, and the peer judges it. Bodies pass as they come, in both directions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::http::{Body, BodyError, Failure, Response, relayed};
use crate::outbound;
use crate::patience::Deadline;
use crate::telemetry::metrics::FORWARDED;
use crate::telemetry::traces;

/// Ends the chain: a request with it goes no further.
const FORWARDED_BY_PEER: HeaderName = HeaderName::from_static("x-verbatim-forwarded");
/// How long a peer's word on its room holds.
const FRESH: Duration = Duration::from_secs(2);
/// How long a peer may take to tell it.
const STATUS_TIMEOUT: Duration = Duration::from_millis(700);
const STATUS: &str = "/v1/status/engine";
/// Headers of one connection only (RFC 9110, section 7.6.1), and those that each server sets by itself.
const NOT_PASSED_ON: [&str; 11] = [
    "connection",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-content-type-options",
];

/// Where requests without room here go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Addresses of other servers that have the same keys and models: `http://10.0.0.2:8000`. A `POST /v1/listen` that this
    /// server has no room for goes on to the one with the most. Default: none.
    pub peers: Vec<String>,
    /// Requests that may be on their way at once; further ones are refused as without peers. Default 64.
    pub requests_max: usize,
    /// Certificates of the authorities that signed the peers', in PEM. Default: the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate that this server shows to peers (`http.tls.client_ca` there), with its chain, and its key; in PEM.
    /// Default: none.
    pub certificate_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self { peers: Vec::new(), requests_max: 64, ca_file: None, certificate_file: None, key_file: None }
    }
}

impl Config {
    /// # Errors
    /// A file cannot be read, or TLS cannot be set up with it.
    fn client(&self) -> Result<reqwest::Client, String> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| format!("`{}` cannot be read: {error}", path.display()))
        };
        let authorities = self.ca_file.as_deref().map(read).transpose()?;
        let own = match (&self.certificate_file, &self.key_file) {
            (Some(certificate), Some(key)) => Some([read(certificate)?, read(key)?].join(&b'\n')),
            _ => None,
        };
        outbound::node_client(authorities.as_deref(), own.as_deref()).map_err(|error| error.to_string())
    }
}

pub(super) struct Forward {
    client: reqwest::Client,
    peers: Vec<Peer>,
    places: Arc<Semaphore>,
    /// Held while peers are asked, so that requests that come together ask once.
    asking: tokio::sync::Mutex<()>,
}

struct Peer {
    /// Without a slash at the end.
    base: String,
    seen: Mutex<Option<Seen>>,
}

/// A peer's last answer about its capacity.
#[derive(Clone, Copy)]
struct Seen {
    /// Requests that it would take.
    free: f64,
    at: Instant,
}

/// The part of `/v1/status/engine` that counts.
#[derive(Deserialize)]
struct Status {
    engine_connection_status: String,
    active_batch_requests: f64,
    max_batch_requests: f64,
}

/// A request to be sent on.
pub(super) struct Onward {
    pub uri: Uri,
    pub headers: HeaderMap,
    pub deadline: Deadline,
}

/// The part of a request's body that is still to be sent, and why it broke off.
struct Upload {
    pieces: BoxStream<'static, Result<Bytes, BodyError>>,
    broke_off: Arc<Mutex<Option<BodyError>>>,
}

impl Upload {
    /// # Errors
    /// 413 for a body that is declared too large.
    fn of(body: Body) -> Result<Self, Failure> {
        let broke_off = Arc::new(Mutex::new(None));
        let told = broke_off.clone();
        let pieces = stream::unfold(Some(body.chunks()?), move |chunks| {
            let told = told.clone();
            async move {
                let mut chunks = chunks?;
                match chunks.next().await {
                    Ok(Some(piece)) => Some((Ok(piece), Some(chunks))),
                    Ok(None) => None,
                    Err(error) => {
                        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                        Some((Err(error), None))
                    }
                }
            }
        });
        Ok(Self { pieces: pieces.boxed(), broke_off })
    }

    fn whole(bytes: Bytes) -> Self {
        Self { pieces: stream::iter([Ok(bytes)]).boxed(), broke_off: Arc::default() }
    }
}

impl Forward {
    /// `None` without peers, and if TLS cannot be set up, which the log says.
    pub(super) fn new(config: &Config) -> Option<Self> {
        if config.peers.is_empty() {
            return None;
        }
        let client = config.client().inspect_err(|error| {
            tracing::error!(%error, "requests will not go on to peers");
        });
        let peer =
            |base: &String| Peer { base: base.trim_end_matches('/').to_owned(), seen: Mutex::new(None) };
        Some(Self {
            client: client.ok()?,
            peers: config.peers.iter().map(peer).collect(),
            places: Arc::new(Semaphore::new(config.requests_max.min(Semaphore::MAX_PERMITS))),
            asking: tokio::sync::Mutex::new(()),
        })
    }

    /// Whether a request with these headers may go on: it has not done so before.
    pub(super) fn may_send(&self, headers: &HeaderMap) -> bool {
        !headers.contains_key(FORWARDED_BY_PEER)
    }

    /// Sends a request on whose body is unread, and that is refused here with `failure`.
    ///
    /// # Errors
    /// `failure` if no peer has room either, with the shorter wait; 408, 413 and 400 for a body that breaks off.
    pub(super) async fn unread(
        &self,
        onward: Onward,
        body: Body,
        failure: Failure,
    ) -> Result<Response, Failure> {
        let Some(peer) = self.roomiest().await else { return Err(failure) };
        self.send(peer, onward, Upload::of(body)?, failure).await
    }

    /// As [`Self::unread`], with a body that was read.
    ///
    /// # Errors
    /// As [`Self::unread`].
    pub(super) async fn read(
        &self,
        onward: Onward,
        body: Bytes,
        failure: Failure,
    ) -> Result<Response, Failure> {
        let Some(peer) = self.roomiest().await else { return Err(failure) };
        let mut onward = onward;
        // The body may have come in chunks.
        onward.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        self.send(peer, onward, Upload::whole(body), failure).await
    }

    /// The peer with the most room, if any has some.
    async fn roomiest(&self) -> Option<&Peer> {
        let asking = self.asking.lock().await;
        let stale = self.peers.iter().filter(|peer| peer.free(Instant::now()).is_none());
        join_all(stale.map(|peer| peer.ask(&self.client))).await;
        drop(asking);
        let now = Instant::now();
        let free = |peer: &&Peer| peer.free(now).unwrap_or(0.0);
        let peer = self.peers.iter().max_by(|a, b| free(a).total_cmp(&free(b)))?;
        (free(&peer) >= 1.0).then_some(peer)
    }

    async fn send(
        &self,
        peer: &Peer,
        onward: Onward,
        Upload { pieces, broke_off }: Upload,
        failure: Failure,
    ) -> Result<Response, Failure> {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(failure) };
        let outcome = |outcome: &'static str| FORWARDED.with(&[("outcome", outcome)]).increment(1);
        peer.takes_one();
        let Onward { uri, headers, deadline } = onward;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut passed = passed_on(&headers);
        passed.insert(FORWARDED_BY_PEER, HeaderValue::from_static("1"));
        let traceparent = traces::traceparent().and_then(|text| HeaderValue::from_str(&text).ok());
        if let Some(traceparent) = traceparent {
            passed.insert(HeaderName::from_static("traceparent"), traceparent);
        }
        let body = reqwest::Body::wrap_stream(pieces);
        let asked = self.client.post(format!("{}{target}", peer.base)).headers(passed).body(body).send();
        let answered = deadline.wait(asked).await;
        if let Some(error) = broke_off.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error.into());
        }
        let answer = match answered {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                outcome("failed");
                peer.is_gone();
                let (is_connect, is_timeout) = (error.is_connect(), error.is_timeout());
                tracing::warn!(is_connect, is_timeout, "a peer did not answer a request that was sent on");
                return Err(failure);
            }
            None => {
                outcome("failed");
                return Err(failure);
            }
        };
        match answer.status() {
            StatusCode::SERVICE_UNAVAILABLE => {
                outcome("refused");
                peer.is_full();
                let wait =
                    answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
                return Err(match wait {
                    Some(seconds) => failure.retry_within(Duration::from_secs(seconds)),
                    None => failure,
                });
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                outcome("failed");
                tracing::error!("a peer does not know a key of this server: peers need the same keys");
                return Err(failure);
            }
            _ => outcome("served"),
        }
        let (status, headers) = (answer.status(), passed_on(answer.headers()));
        let pieces = answer.bytes_stream().map(move |piece| {
            // Held until the answer has passed.
            let _ = &place;
            piece.map_err(std::io::Error::other)
        });
        Ok(relayed(status, headers, pieces))
    }
}

impl Peer {
    fn seen(&self) -> std::sync::MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that it would take; `None` if it said nothing lately.
    fn free(&self, now: Instant) -> Option<f64> {
        self.seen().filter(|seen| now.saturating_duration_since(seen.at) < FRESH).map(|seen| seen.free)
    }

    /// One that has just been sent there.
    fn takes_one(&self) {
        if let Some(seen) = &mut *self.seen() {
            seen.free -= 1.0;
        }
    }

    /// It refused a request, whatever it said before.
    fn is_full(&self) {
        *self.seen() = Some(Seen { free: 0.0, at: Instant::now() });
    }

    fn is_gone(&self) {
        self.is_full();
    }

    async fn ask(&self, client: &reqwest::Client) {
        let status = async {
            let answer = client.get(format!("{}{STATUS}", self.base)).send().await.ok()?;
            serde_json::from_value::<Status>(outbound::read_json(answer).await?).ok()
        };
        let status = tokio::time::timeout(STATUS_TIMEOUT, status).await.ok().flatten();
        let works = status.filter(|status| status.engine_connection_status == "Connected");
        let free = works.map_or(0.0, |status| status.max_batch_requests - status.active_batch_requests);
        *self.seen() = Some(Seen { free, at: Instant::now() });
    }
}

/// The headers that go from end to end.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    // `Connection` names further headers of one connection.
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_passed = |name: &HeaderName| {
        !NOT_PASSED_ON.contains(&name.as_str())
            && !name.as_str().starts_with("access-control-")
            && !named.iter().any(|named| named == name.as_str())
    };
    headers
        .iter()
        .filter(|(name, _)| is_passed(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_stay_there() {
        let headers = [
            ("host", "a"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("authorization", "Bearer k"),
            ("content-type", "audio/wav"),
            ("timestamps", "true"),
            ("traceparent", "00-1-2-01"),
        ];
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let passed = passed_on(&headers);
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "content-type", "timestamps", "traceparent"]);
    }
}
