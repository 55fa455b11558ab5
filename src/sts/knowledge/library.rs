//! Reads what a session was given to answer from, beside the call: nobody waits for a website.
//!
//! Documents and websites are fetched in turn between organisations, and a session has one deadline for all of
//! them: slow hosts keep only their own documents back.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;

use super::crawl::{self, CrawlError, Site, crawl};
use super::reader::{ReadError, Reader};
use super::sections::Section;
use super::{Knowledge, Passage, html, of_sections, passages, sections};
use crate::fetch::Fetcher;
use crate::share::{Tenants, Turns};
use crate::sts::Error;
use crate::sts::config::Crawl;
use crate::sts::event::Event;
use crate::sts::held;
use crate::sts::session::{CrawlStatus, Session};
use crate::sts::sessions::{Live, Sessions};
use crate::sts::setup::{Content, Setup};

/// A website that was read is not read again for so long.
const SITE_FRESH: Duration = Duration::from_secs(3600);
const SITES_KEPT: usize = 100;
/// Pages and documents fetched at once, for all sessions together.
const FETCHES: usize = 8;
/// Documents fetched at once for one session.
const DOCUMENTS_AT_ONCE: usize = 4;
/// Where documents lie that `rag_doc_ids` names: a folder for each tenant.
const DOCUMENTS_FOLDER: &str = "documents";
const DOCUMENT_BYTES_MAX: u64 = 2 << 20;
/// Warnings show so much of an address that stands for a title.
const NAME_CHARACTERS_SHOWN: usize = 200;
const NO_ROOM: &str = "there is no room for it at present";

/// Cheap handle; clones share what was read.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Shared>,
}

struct Shared {
    fetcher: Fetcher,
    limits: Crawl,
    documents: PathBuf,
    sites: Mutex<HashMap<String, (Instant, Arc<Site>)>>,
    turns: Turns,
}

/// One session's reading.
struct Reading<'a> {
    sessions: &'a Sessions,
    live: &'a Live,
    found: Vec<Passage>,
    warnings: Vec<String>,
}

/// The warning about a `website_url` that gave nothing.
pub fn unread_website(error: &CrawlError) -> String {
    format!("`website_url` was not read: {error}")
}

impl Reading<'_> {
    /// Takes what a document holds, as far as there is room for it.
    fn take(&mut self, name: &str, passages: Vec<Passage>) {
        if self.sessions.may_hold_more(self.live, held::by_passages(&passages)) {
            self.found.extend(passages);
        } else {
            self.warn(name, NO_ROOM);
        }
    }

    fn warn(&mut self, name: &str, problem: &str) {
        self.warnings.push(format!("document `{name}`: {problem}"));
    }
}

impl Library {
    /// `fetcher` is bound to the limits for one page.
    pub fn new(fetcher: Fetcher, limits: Crawl, state_dir: &Path, tenants: Tenants) -> Self {
        let shared = Shared {
            fetcher,
            limits,
            documents: state_dir.join(DOCUMENTS_FOLDER),
            sites: Mutex::default(),
            turns: Turns::new(FETCHES, tenants),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether the website at `address` may be read, as far as its address says: no look-up happens.
    ///
    /// # Errors
    /// [`CrawlError`], whose text is for the client.
    pub fn judge(&self, address: &str) -> Result<(), CrawlError> {
        let url = crawl::normalized(address)?;
        Ok(self.shared.fetcher.judge(&url).map_err(ReadError::Fetch)?)
    }

    /// Reads all that `live` was started with. What is at hand is known at once; documents by address
    /// and the website follow, with progress in the snapshot. Dropping the future ends the reading.
    pub async fn read(&self, sessions: &Sessions, live: &Live) {
        let setup = live.setup();
        let mut reading = Reading { sessions, live, found: at_hand(&setup), warnings: Vec::new() };
        self.stored(&setup, &mut reading).await;
        live.learn(Knowledge::new(reading.found.clone(), setup.rationed()), false);
        sessions.show();

        let timeout = Duration::from_millis(self.shared.limits.reading_timeout_ms);
        let reader = Reader {
            fetcher: self.shared.fetcher.clone(),
            turns: self.shared.turns.clone(),
            tenant: live.tenant,
            deadline: tokio::time::Instant::now() + timeout,
        };
        let site = async {
            match &setup.website_url {
                Some(url) => Some(self.site(&reader, url).await),
                None => None,
            }
        };
        let (mut site, ()) = tokio::join!(site, documents(&reader, &setup, &mut reading));
        let is_refused = |site: &Arc<Site>| !sessions.may_hold_more(live, held::by_passages(&site.passages));
        if matches!(&site, Some(Ok(read)) if is_refused(read)) {
            site = Some(Err(CrawlError::NoRoom));
        }
        let Reading { mut found, warnings, .. } = reading;
        if let Some(Ok(site)) = &site {
            found.extend(site.passages.iter().cloned());
        }
        let count = found.len();
        live.learn(Knowledge::new(found, setup.rationed()), true);
        sessions.show();
        let noted = live.change(|session, _, events| {
            session.check_open()?;
            note(session, &setup, count, site.as_ref(), events);
            warnings.into_iter().for_each(|warning| session.warn(warning));
            Ok(())
        });
        match noted.await {
            // A session that has ended meanwhile needs to know nothing.
            Ok(()) | Err(Error::Ended) => {}
            Err(error) => tracing::error!(session = live.id, %error, "what was read could not be noted"),
        }
    }

    async fn site(&self, reader: &Reader, address: &str) -> Result<Arc<Site>, CrawlError> {
        let key = crawl::normalized(address)?.to_string();
        let sites = || self.shared.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, site)) = sites().get(&key)
            && read.elapsed() < SITE_FRESH
        {
            return Ok(site.clone());
        }
        let site = Arc::new(crawl(reader, address, &self.shared.limits).await?);
        // The next session may have more time.
        if site.is_cut {
            return Ok(site);
        }
        let mut sites = sites();
        if sites.len() >= SITES_KEPT {
            let oldest = sites.iter().min_by_key(|(_, (read, _))| *read).map(|(key, _)| key.clone());
            oldest.and_then(|key| sites.remove(&key));
        }
        sites.insert(key, (Instant::now(), site.clone()));
        Ok(site)
    }

    /// The documents that lie ready on this machine.
    async fn stored(&self, setup: &Setup, reading: &mut Reading<'_>) {
        for id in &setup.rag_doc_ids {
            match self.stored_sections(reading.live.tenant, id).await {
                Some(sections) => reading.take(id, of_sections(id, id, &sections)),
                None => reading.warnings.push(format!("document `{id}` is not there")),
            }
        }
    }

    async fn stored_sections(&self, tenant: u64, id: &str) -> Option<Vec<Section>> {
        // Anything else could be a way out of the folder.
        let is_name = !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let folder = self.shared.documents.join(tenant.to_string());
        for ending in ["txt", "md", "html"].into_iter().filter(|_| is_name) {
            let path = folder.join(format!("{id}.{ending}"));
            let is_file =
                tokio::fs::metadata(&path).await.is_ok_and(|m| m.is_file() && m.len() <= DOCUMENT_BYTES_MAX);
            if is_file && let Ok(text) = tokio::fs::read_to_string(&path).await {
                let is_html = ending == "html";
                return Some(if is_html { html::read(&text).sections } else { sections::of_text(&text) });
            }
        }
        None
    }
}

/// Reads the documents of `setup` that have an address.
async fn documents(reader: &Reader, setup: &Setup, reading: &mut Reading<'_>) {
    let addressed = setup.documents.iter().filter_map(|document| match &document.content {
        Content::Url(url) => Some((document.title.clone(), url.clone())),
        Content::Text(_) => None,
    });
    let addressed: Vec<(String, String)> = addressed.collect();
    let read = |(title, url): (String, String)| {
        let reader = reader.clone();
        async move {
            let read = document(&reader, &url, &title).await;
            let name = if title.is_empty() { url } else { title };
            (name.chars().take(NAME_CHARACTERS_SHOWN).collect::<String>(), read)
        }
    };
    let mut all = stream::iter(addressed).map(read).buffered(DOCUMENTS_AT_ONCE);
    while let Some((name, read)) = all.next().await {
        match read {
            Ok(passages) => reading.take(&name, passages),
            Err(problem) => reading.warn(&name, &problem),
        }
    }
}

async fn document(reader: &Reader, url: &str, title: &str) -> Result<Vec<Passage>, String> {
    let download = reader.fetch(url).await.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&download.bytes);
    let page = match download.media_type.as_deref() {
        None | Some("text/html" | "application/xhtml+xml") => html::read(&text),
        Some(kind) if kind.starts_with("text/") || kind == "application/json" => {
            html::Page { sections: sections::of_text(&text), ..html::Page::default() }
        }
        Some(_) => return Err("it is no text".into()),
    };
    let title = if title.is_empty() { &page.title } else { title };
    Ok(of_sections(url, title, &page.sections))
}

/// Notes in the session how far it was read.
fn note(
    session: &mut Session,
    setup: &Setup,
    passages: usize,
    site: Option<&Result<Arc<Site>, CrawlError>>,
    events: &mut Vec<Event>,
) {
    let knowledge = &mut session.knowledge;
    (knowledge.is_ready, knowledge.passages) = (true, passages);
    knowledge.documents = setup.documents.len() + setup.rag_doc_ids.len();
    let mut status = None;
    if let (Some(website), Some(site)) = (&mut knowledge.website, site) {
        match site {
            Ok(site) => (website.status, website.pages) = (CrawlStatus::Ready, site.pages),
            Err(error) => {
                website.status = CrawlStatus::Failed;
                website.error = Some(error.to_string());
                session.warn(unread_website(error));
            }
        }
        status = Some(if site.is_ok() { "ready" } else { "failed" });
    }
    events.push(Event::KnowledgeUpdated { passages, website: status });
}

/// What came with the request itself.
fn at_hand(setup: &Setup) -> Vec<Passage> {
    let mut found = Vec::new();
    if let Some(instructions) = &setup.instructions {
        found.extend(passages("instructions", "", instructions));
    }
    for document in &setup.documents {
        if let Content::Text(text) = &document.content {
            found.extend(passages(&document.title, &document.title, text));
        }
    }
    found
}
