//! Reads what a session was given to answer from, beside the call: nobody waits for a website.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::crawl::{self, CrawlError, Site, crawl};
use super::sections::Section;
use super::{Knowledge, Passage, html, of_sections, passages, sections};
use crate::fetch::Fetcher;
use crate::sts::config::Crawl;
use crate::sts::event::Event;
use crate::sts::session::CrawlStatus;
use crate::sts::sessions::Live;
use crate::sts::setup::{Content, Setup};

/// A website that was read is not read again for so long.
const SITE_FRESH: Duration = Duration::from_secs(3600);
const SITES_KEPT: usize = 100;
/// Websites and documents read at once, of all sessions together.
const READERS: usize = 8;
/// Where documents lie that `rag_doc_ids` names: a folder for each tenant.
const DOCUMENTS_FOLDER: &str = "documents";
const DOCUMENT_BYTES_MAX: u64 = 2 << 20;

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
    readers: tokio::sync::Semaphore,
}

/// The warning about a `website_url` that gave nothing.
pub fn unread_website(error: &CrawlError) -> String {
    format!("`website_url` was not read: {error}")
}

impl Library {
    /// `fetcher` is bound to the limits for one page.
    pub fn new(fetcher: Fetcher, limits: Crawl, state_dir: &Path) -> Self {
        let shared = Shared {
            fetcher,
            limits,
            documents: state_dir.join(DOCUMENTS_FOLDER),
            sites: Mutex::default(),
            readers: tokio::sync::Semaphore::new(READERS),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether the website at `address` may be read, as far as its address says: no look-up happens.
    ///
    /// # Errors
    /// [`CrawlError`], whose text is for the client.
    pub fn judge(&self, address: &str) -> Result<(), CrawlError> {
        let url = crawl::normalized(address)?;
        let judged = self.shared.fetcher.judge(&url);
        judged.map_err(|error| CrawlError::Unreachable(crawl::reason(&error).into()))
    }

    /// Reads all that `live` was started with. What is at hand is known at once; documents by address
    /// and the website follow, with progress in the snapshot.
    pub async fn read(&self, live: &Live) {
        let setup = &live.setup;
        let mut warnings = Vec::new();
        let mut found = at_hand(setup);
        found.extend(self.stored(setup, live.tenant, &mut warnings).await);
        live.learn(Knowledge::new(found.clone(), setup.rationed()), false);

        let Ok(_turn) = self.shared.readers.acquire().await else { return };
        for document in &setup.documents {
            let Content::Url(url) = &document.content else { continue };
            match self.document(url, &document.title).await {
                Ok(passages) => found.extend(passages),
                Err(reason) => warnings.push(format!("document `{}`: {reason}", document.title)),
            }
        }
        let site = match &setup.website_url {
            None => None,
            Some(url) => Some(self.site(url).await),
        };
        if let Some(Ok(site)) = &site {
            found.extend(site.passages.iter().cloned());
        }
        let count = found.len();
        live.learn(Knowledge::new(found, setup.rationed()), true);
        let noted = live
            .change(|session, _, events| {
                let knowledge = &mut session.knowledge;
                (knowledge.is_ready, knowledge.passages, knowledge.documents) =
                    (true, count, setup.documents.len() + setup.rag_doc_ids.len());
                let mut status = None;
                if let (Some(website), Some(site)) = (&mut knowledge.website, &site) {
                    match site {
                        Ok(site) => (website.status, website.pages) = (CrawlStatus::Ready, site.pages),
                        Err(error) => {
                            website.status = CrawlStatus::Failed;
                            website.error = Some(error.to_string());
                            let warning = unread_website(error);
                            // Told before where the address alone says it.
                            if !session.warnings.contains(&warning) {
                                session.warnings.push(warning);
                            }
                        }
                    }
                    status = Some(if site.is_ok() { "ready" } else { "failed" });
                }
                session.warnings.extend(warnings);
                events.push(Event::KnowledgeUpdated { passages: count, website: status });
                Ok(())
            })
            .await;
        if let Err(error) = noted {
            tracing::error!(session = live.id, %error, "what was read could not be noted");
        }
    }

    async fn site(&self, address: &str) -> Result<Arc<Site>, CrawlError> {
        let key = crawl::normalized(address)?.to_string();
        let sites = || self.shared.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, site)) = sites().get(&key)
            && read.elapsed() < SITE_FRESH
        {
            return Ok(site.clone());
        }
        let site = Arc::new(crawl(&self.shared.fetcher, address, &self.shared.limits).await?);
        let mut sites = sites();
        if sites.len() >= SITES_KEPT {
            let oldest = sites.iter().min_by_key(|(_, (read, _))| *read).map(|(key, _)| key.clone());
            oldest.and_then(|key| sites.remove(&key));
        }
        sites.insert(key, (Instant::now(), site.clone()));
        Ok(site)
    }

    async fn document(&self, url: &str, title: &str) -> Result<Vec<Passage>, &'static str> {
        let download = self.shared.fetcher.fetch(url).await.map_err(|error| crawl::reason(&error))?;
        let text = String::from_utf8_lossy(&download.bytes);
        let page = match download.media_type.as_deref() {
            None | Some("text/html" | "application/xhtml+xml") => html::read(&text),
            Some(kind) if kind.starts_with("text/") || kind == "application/json" => {
                html::Page { sections: sections::of_text(&text), ..html::Page::default() }
            }
            Some(_) => return Err("it is no text"),
        };
        let title = if title.is_empty() { &page.title } else { title };
        Ok(of_sections(url, title, &page.sections))
    }

    /// The documents that lie ready on this machine.
    async fn stored(&self, setup: &Setup, tenant: u64, warnings: &mut Vec<String>) -> Vec<Passage> {
        let mut found = Vec::new();
        for id in &setup.rag_doc_ids {
            let Some(sections) = self.stored_sections(tenant, id).await else {
                warnings.push(format!("document `{id}` is not there"));
                continue;
            };
            found.extend(of_sections(id, id, &sections));
        }
        found
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
