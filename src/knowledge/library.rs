//! The library: reads a session's sources in the background, so that no call waits for a website.
//!
//! Tenants take turns in fetching documents and websites, and one deadline covers all sources of a session: a
//! slow host delays only its own documents.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;

use super::config::Config;
use super::crawl::{self, CrawlError, Site, crawl};
use super::passage::{Passage, indexed_bytes_of, of_sections, passages};
use super::reader::{ReadError, Reader};
use super::sections::Section;
use super::sources::{Content, Sources};
use super::{html, sections};
use crate::fetch::Fetcher;
use crate::share::{Tenants, Turns};

/// A website is not read again within this time.
const SITE_FRESH: Duration = Duration::from_secs(3600);
const SITES_KEPT: usize = 100;
/// Pages and documents fetched at once, for all sessions together.
const FETCHES: usize = 8;
/// Documents fetched at once for one session.
const DOCUMENTS_AT_ONCE: usize = 4;
/// Holds a folder for each tenant, with the documents that `rag_doc_ids` names.
const DOCUMENTS_FOLDER: &str = "documents";
const DOCUMENT_BYTES_MAX: u64 = 2 << 20;
/// Characters of an address that a warning shows in place of a title.
const NAME_CHARACTERS_SHOWN: usize = 200;
const NO_ROOM: &str = "there is no room for it at present";

/// Cheap handle; clones share the websites read so far.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Shared>,
}

struct Shared {
    fetcher: Fetcher,
    limits: Config,
    documents: PathBuf,
    sites: Mutex<HashMap<String, (Instant, Arc<Site>)>>,
    turns: Turns,
}

/// Reserves memory, in bytes, for more passages of the session; false if there is none left.
type Reserve<'a> = &'a (dyn Fn(u64) -> bool + Send + Sync);

/// The sources of one session, being read.
pub struct Reading<'a> {
    library: &'a Library,
    sources: Sources<'a>,
    reserve: Reserve<'a>,
    passages: Vec<Passage>,
    warnings: Vec<String>,
}

/// The result of reading all sources.
pub struct Found {
    pub passages: Vec<Passage>,
    /// How many pages of the website were read; none if the sources name no website.
    pub website: Option<Result<usize, CrawlError>>,
    /// For the client: documents that could not be read.
    pub warnings: Vec<String>,
}

/// The warning about a `website_url` that could not be read.
pub fn unread_website(error: &CrawlError) -> String {
    format!("`website_url` was not read: {error}")
}

impl Library {
    /// `fetcher` already enforces the limits for one page.
    pub fn new(fetcher: Fetcher, limits: Config, state_dir: &Path, tenants: Tenants) -> Self {
        let shared = Shared {
            fetcher,
            limits,
            documents: state_dir.join(DOCUMENTS_FOLDER),
            sites: Mutex::default(),
            turns: Turns::new(FETCHES, tenants),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Checks whether the address alone permits reading the website at `address`; no name is resolved.
    ///
    /// # Errors
    /// [`CrawlError`], whose text is for the client.
    pub fn judge(&self, address: &str) -> Result<(), CrawlError> {
        let url = crawl::normalized(address)?;
        Ok(self.shared.fetcher.judge(&url).map_err(ReadError::Fetch)?)
    }

    /// Reads the sources that need no network. [`Reading::finish`] reads the others.
    pub async fn read_local<'a>(&'a self, sources: Sources<'a>, reserve: Reserve<'a>) -> Reading<'a> {
        let passages = inline_passages(&sources);
        let mut reading = Reading { library: self, sources, reserve, passages, warnings: Vec::new() };
        for id in sources.stored {
            match self.stored_sections(sources.tenant, id).await {
                Some(sections) => reading.add(id, of_sections(id, id, &sections)),
                None => reading.warnings.push(format!("document `{id}` is not there")),
            }
        }
        reading
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
        // Not cached: the next session may have more time.
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

    async fn stored_sections(&self, tenant: u64, id: &str) -> Option<Vec<Section>> {
        // Other characters could lead out of the folder.
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

impl Reading<'_> {
    /// The passages read so far.
    pub fn passages(&self) -> &[Passage] {
        &self.passages
    }

    /// Reads documents by address and the website. Dropping the future stops the reading.
    pub async fn finish(mut self) -> Found {
        let (library, sources) = (self.library, self.sources);
        let shared = &library.shared;
        let timeout = Duration::from_millis(shared.limits.reading_timeout_ms);
        let reader = Reader {
            fetcher: shared.fetcher.clone(),
            turns: shared.turns.clone(),
            tenant: sources.tenant,
            deadline: tokio::time::Instant::now() + timeout,
        };
        let site = async {
            match sources.website_url {
                Some(url) => Some(library.site(&reader, url).await),
                None => None,
            }
        };
        let (site, ()) = tokio::join!(site, self.documents(&reader));
        let website = site.map(|site| {
            let site = site?;
            if !(self.reserve)(indexed_bytes_of(&site.passages)) {
                return Err(CrawlError::NoRoom);
            }
            self.passages.extend(site.passages.iter().cloned());
            Ok(site.pages)
        });
        Found { passages: self.passages, website, warnings: self.warnings }
    }

    async fn documents(&mut self, reader: &Reader) {
        let documents = self.sources.documents;
        let addressed = documents.iter().filter_map(|document| match &document.content {
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
                Ok(passages) => self.add(&name, passages),
                Err(problem) => self.warn(&name, &problem),
            }
        }
    }

    /// Adds the passages of a document if there is memory for them.
    fn add(&mut self, name: &str, passages: Vec<Passage>) {
        if (self.reserve)(indexed_bytes_of(&passages)) {
            self.passages.extend(passages);
        } else {
            self.warn(name, NO_ROOM);
        }
    }

    fn warn(&mut self, name: &str, problem: &str) {
        self.warnings.push(format!("document `{name}`: {problem}"));
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

/// The passages of texts that came with the start request itself.
fn inline_passages(sources: &Sources<'_>) -> Vec<Passage> {
    let mut found = Vec::new();
    if let Some(instructions) = sources.instructions {
        found.extend(passages("instructions", "", instructions));
    }
    for document in sources.documents {
        if let Content::Text(text) = &document.content {
            found.extend(passages(&document.title, &document.title, text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::knowledge::Document;

    use super::*;

    #[tokio::test]
    async fn stored_documents_are_read_while_there_is_memory_and_never_from_outside_the_folder() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = state.path().join(DOCUMENTS_FOLDER).join("7");
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("hours.txt"), "We open at nine.").expect("written");
        std::fs::write(state.path().join("secret.txt"), "secret").expect("written");
        let fetcher = Fetcher::new(&crate::fetch::Config::default()).expect("set up");
        let library = Library::new(fetcher, Config::default(), state.path(), Tenants::default());
        let documents = [Document { title: "Parking".into(), content: Content::Text("It is free.".into()) }];
        let stored = ["hours".to_owned(), "../../secret".to_owned()];
        let sources = Sources {
            tenant: 7,
            instructions: Some("Be kind."),
            documents: &documents,
            stored: &stored,
            website_url: None,
        };
        let found = library.read_local(sources, &|_| true).await.finish().await;
        let texts: Vec<&str> = found.passages.iter().map(|passage| passage.text.as_str()).collect();
        assert_eq!(texts, ["Be kind.", "It is free.", "We open at nine."]);
        assert_eq!(found.warnings, ["document `../../secret` is not there"]);
        assert!(found.website.is_none());

        let found = library.read_local(sources, &|_| false).await.finish().await;
        assert_eq!(found.passages.len(), 2);
        assert_eq!(found.warnings[0], format!("document `hours`: {NO_ROOM}"));
    }
}
