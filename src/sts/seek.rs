//! Sessions of several nodes: where they are, and their adoption when their node has died.
//!
//! ```text
//! request ─▶ its session here? ─▶ no ─▶ cluster::Places ─▶ another node has it: the request goes there, once
//!                                                      └▶ its node has died: this one takes it over
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::Uri;
use hyper::header::HeaderMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::abroad::{Abroad, Found, Passed, RETRY, ROOM_NEWS, unreachable};
use super::host::Host;
use super::room_news::{self, Word};
use crate::cluster::{News, Whereabouts};
use crate::http::Failure;
use crate::session::{Asked, Copied, Error, Handle, Part, Told};

/// How long the start of a session may wait for the broker.
const ANNOUNCE_MAX: Duration = Duration::from_secs(1);
/// Tries while other nodes take the same session over.
const TRIES: usize = 4;
const NEWS_MAX: usize = 1024;

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
                    return Ok(Found::At(abroad.way(address)));
                }
                // It moves at this moment.
                Whereabouts::At(_) => {
                    return Err(Failure::busy(RETRY).because("the session is at a third node"));
                }
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
        let hearing = async {
            loop {
                match abroad.places.told(ROOM_NEWS).await {
                    Ok(mut words) => {
                        while let Some(word) = words.next().await {
                            if let Ok(word) = serde_json::from_str::<Word>(&word) {
                                room_news::hear(&self, &word);
                            }
                        }
                    }
                    Err(error) => tracing::warn!(%error, "events of rooms at other nodes are not heard"),
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        let hearing = stop.run_until_cancelled(hearing);
        tokio::join!(abroad.places.clone().run(sender, stop.clone()), following, hearing);
    }
}
