//! Sessions of other nodes: where they are, the way there, and their adoption when their node has died.
//!
//! ```text
//! request ─▶ its session here? ─▶ no ─▶ cluster::Places ─▶ another node has it: the request goes there, once
//!                                                      └▶ its node has died: this one takes it over
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode, Uri};
use reqwest::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::host::Host;
use crate::cluster::{News, Places, Whereabouts};
use crate::http::websocket::tunnel;
use crate::http::{Failure, Request, Response};
use crate::outbound;
use crate::session::{Asked, Copied, Error, Handle, Part, Told};

/// Says that a node sent the request on: it is not sent on again.
const FORWARDED: HeaderName = HeaderName::from_static("x-verbatim-forwarded");
/// When to ask again while the broker, or a session's node, cannot be reached.
const RETRY: Duration = Duration::from_secs(2);
/// How long the start of a session may wait for the broker.
const ANNOUNCE_MAX: Duration = Duration::from_secs(1);
/// Tries while other nodes take the same session over.
const TRIES: usize = 4;
const NEWS_MAX: usize = 1024;

/// Headers of a connection, and not of the request on it (RFC 9110, section 7.6.1).
const OF_THE_CONNECTION: [HeaderName; 7] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING];
/// Headers of another node's answer that its client sees.
const ANSWERED: [HeaderName; 7] = [
    ALLOW,
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
];

/// The sessions of the cluster, and this node's way to the other nodes.
pub struct Abroad {
    pub places: Places,
    client: Client,
    /// Held while a session is taken over: requests that come meanwhile find it here.
    adopting: tokio::sync::Mutex<()>,
}

/// A session that a request is about.
pub enum Found {
    Open(Arc<Handle>),
    Ended,
    /// Another node has it.
    At(There),
}

/// The way to the node that has a session.
pub struct There {
    address: String,
    client: Client,
    /// Of that node.
    lease: Duration,
}

/// The part of a request that goes to another node.
pub struct Passed {
    method: Method,
    target: String,
    headers: HeaderMap,
    /// It comes from another node.
    is_forwarded: bool,
}

impl Passed {
    pub fn of(request: &Request) -> Self {
        Self {
            method: request.method.clone(),
            target: request.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            headers: request.headers.clone(),
            is_forwarded: request.headers.contains_key(FORWARDED),
        }
    }
}

fn unreachable(cause: impl std::fmt::Display) -> Failure {
    Failure::busy(RETRY).because(cause)
}

impl Abroad {
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(places: Places) -> Result<Self, reqwest::Error> {
        Ok(Self { places, client: outbound::http1_client()?, adopting: tokio::sync::Mutex::default() })
    }
}

impl There {
    /// The address of that node.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request on.
    ///
    /// # Errors
    /// 503 if that cannot be reached: its sessions can be taken over once its lease is over.
    pub async fn pass(&self, passed: Passed, body: Bytes) -> Result<Response, Failure> {
        let answer = self.request(&passed, false).body(body).send().await;
        let answer = answer.map_err(|error| self.lost(&error))?;
        let status = answer.status();
        let mut headers = HeaderMap::new();
        for name in ANSWERED {
            headers.extend(answer.headers().get(&name).map(|value| (name, value.clone())));
        }
        let frames = answer.bytes_stream().map(|piece| piece.map(Frame::data).map_err(std::io::Error::other));
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Connects a WebSocket with the node.
    ///
    /// # Errors
    /// As [`Self::pass`]; the other node's own refusal is an answer.
    pub async fn tunnel(&self, request: Request) -> Result<Response, Failure> {
        let passed = Passed::of(&request);
        let answer = self.request(&passed, true).send().await;
        let answer = answer.map_err(|error| self.lost(&error))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return self.pass(passed, Bytes::new()).await;
        }
        let headers = answer.headers().clone();
        let there = answer.upgrade().await.map_err(|error| self.lost(&error))?;
        Ok(tunnel(request, &headers, there))
    }

    fn request(&self, passed: &Passed, is_upgrade: bool) -> reqwest::RequestBuilder {
        let mut headers = passed.headers.clone();
        for name in OF_THE_CONNECTION {
            headers.remove(name);
        }
        if is_upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        } else {
            headers.remove(UPGRADE);
        }
        // Signatures of providers, and origins, are judged by the name that the client used.
        headers.extend(passed.headers.get(HOST).map(|host| (HOST, host.clone())));
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        let url = format!("{}{}", self.address, passed.target);
        self.client.request(passed.method.clone(), url).headers(headers)
    }

    fn lost(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() {
            return Failure::busy(self.lease).because("the session's node cannot be reached");
        }
        // Its text would hold the address, and that a token.
        let problem = if error.is_timeout() { "took too long" } else { "did not answer" };
        unreachable(format!("the session's node {problem}"))
    }
}

impl Host {
    /// The address for clients of the sessions here: that of this very node, if there are others.
    pub fn room_base(&self, headers: &HeaderMap, uri: &Uri) -> String {
        match &self.abroad {
            Some(abroad) => abroad.places.address().to_owned(),
            None => self.base(headers, uri),
        }
    }

    /// Tells the other nodes of a session that starts: once its client knows it, any node can be asked for it. Without the
    /// broker they learn of it later.
    pub async fn announce(&self, id: &str) {
        let Some(abroad) = &self.abroad else { return };
        let told = tokio::time::timeout(ANNOUNCE_MAX, abroad.places.write(id)).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::warn!(session = id, "the other nodes do not know of this session yet");
        }
    }

    /// The session `id`, of `tenant` if that is given: here, or of another node. A session whose node has died is taken over.
    ///
    /// # Errors
    /// 404; 503 if that cannot be found out at present.
    pub async fn seek(
        self: &Arc<Self>,
        id: &str,
        tenant: Option<u64>,
        passed: &Passed,
    ) -> Result<Found, Failure> {
        let Some(abroad) = &self.abroad else { return Ok(self.here(id, tenant)?) };
        for _ in 0..TRIES {
            match self.here(id, tenant) {
                Err(Error::NoSession) => {}
                found => return Ok(found?),
            }
            let there = abroad.places.find(id).await.map_err(unreachable)?;
            let orphan = match there {
                Whereabouts::Unknown => return Err(Error::NoSession.into()),
                Whereabouts::At(address) if !passed.is_forwarded => {
                    let (client, lease) = (abroad.client.clone(), abroad.places.lease());
                    return Ok(Found::At(There { address, client, lease }));
                }
                // It moves at this moment.
                Whereabouts::At(_) => return Err(Failure::busy(RETRY).because("the session is at a third node")),
                Whereabouts::Here { tenant } => (tenant, None),
                Whereabouts::Orphaned(orphan) => (orphan.tenant, Some(orphan)),
            };
            if tenant.is_some_and(|tenant| tenant != orphan.0) {
                return Err(Error::NoSession.into());
            }
            let _adopting = abroad.adopting.lock().await;
            if self.here(id, tenant).is_ok() {
                continue;
            }
            let is_mine = match &orphan.1 {
                Some(orphan) => abroad.places.take_over(id, orphan).await.map_err(unreachable)?,
                None => true,
            };
            if is_mine {
                self.adopt(abroad, id).await?;
            }
        }
        Err(Failure::busy(RETRY).because("the session moves from node to node"))
    }

    fn here(&self, id: &str, tenant: Option<u64>) -> Result<Found, Error> {
        let sessions = &self.tools.sessions;
        match tenant {
            Some(tenant) => sessions.find(id, tenant).map(|asked| match asked {
                Asked::Open(handle) => Found::Open(handle),
                Asked::Ended => Found::Ended,
            }),
            None => match sessions.enter(id) {
                Ok(handle) => Ok(Found::Open(handle)),
                Err(Error::Ended) => Ok(Found::Ended),
                Err(error) => Err(error),
            },
        }
    }

    async fn adopt(self: &Arc<Self>, abroad: &Abroad, id: &str) -> Result<(), Failure> {
        let part = async |part: Part| abroad.places.part(id, part.name()).await.map_err(unreachable);
        let ended = part(Part::Ended).await?;
        let copy = match ended {
            Some(_) => Copied { ended, ..Copied::default() },
            None => Copied {
                setup: part(Part::Setup).await?,
                state: part(Part::State).await?,
                passages: part(Part::Passages).await?,
                ended,
            },
        };
        if let Some(handle) = self.tools.sessions.adopt(copy).await? {
            self.resume(handle);
        }
        Ok(())
    }

    /// Keeps copies of all sessions for the other nodes from now on, and gives up those that others have taken over while this
    /// node was away.
    pub async fn join_cluster(self: &Arc<Self>) {
        let Some(abroad) = &self.abroad else { return };
        for handle in self.tools.sessions.all() {
            match abroad.places.find(&handle.id).await {
                Ok(Whereabouts::At(_) | Whereabouts::Orphaned(_)) => self.give_up(&handle).await,
                Ok(Whereabouts::Here { .. } | Whereabouts::Unknown) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "sessions of before go on without a look at the cluster");
                    break;
                }
            }
        }
        let places = abroad.places.clone();
        self.tools.sessions.mirror(Arc::new(move |id, told| match told {
            Told::Here { tenant } => places.own(id, tenant),
            Told::Part(part, text) => places.keep(id, part.name(), text.map(str::to_owned)),
            Told::Forgotten => places.forget(id, &[Part::Ended.name()]),
        }));
        self.tools.sessions.all().iter().for_each(|handle| self.tools.sessions.tell_all(handle));
    }

    async fn give_up(&self, handle: &Handle) {
        if let Err(error) = self.tools.sessions.give_up(handle).await {
            tracing::error!(session = handle.id, %error, "a session of another node stays on disk");
        }
    }

    /// Follows the places of sessions until `stop`.
    pub async fn follow_cluster(self: Arc<Self>, stop: CancellationToken) {
        let Some(abroad) = &self.abroad else { return };
        let (sender, mut news) = mpsc::channel(NEWS_MAX);
        let following = async {
            while let Some(news) = news.recv().await {
                match news {
                    News::Elsewhere(id) => {
                        if let Some(handle) = self.tools.sessions.get(&id) {
                            self.give_up(&handle).await;
                        }
                    }
                    News::Known(known) => {
                        let sessions = self.tools.sessions.all();
                        let unknown = sessions.iter().filter(|handle| !known.contains(&handle.id));
                        unknown.for_each(|handle| self.tools.sessions.tell_all(handle));
                    }
                }
            }
        };
        tokio::join!(abroad.places.clone().run(sender, stop), following);
    }
}
