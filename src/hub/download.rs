//! Downloads of one file by HTTP: resumed after an interruption, and kept only if the checksum is right.
//!
//! The hub answers a request for a large file with a redirect to its storage. Size, SHA-256 and commit are in the
//! headers of the redirect and not in the storage's, so this client follows redirects itself; it believes the hub's
//! own headers alone.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, LOCATION, RANGE};
use reqwest::{Response, StatusCode, redirect};
use tokio::io::AsyncWriteExt;
use url::Url;

use super::error::{Error, io};
use super::sums;
use crate::fetch::policy;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS_MAX: usize = 5;
/// Requests for one file; each but the first continues where the one before was interrupted.
const REQUESTS_MAX: usize = 20;

pub(super) struct Client {
    http: reqwest::Client,
    token: Option<String>,
}

/// A file that is stored, whole and checked, under its name with `.part`.
pub(super) struct Download {
    pub sha256: String,
    /// The commit of its repository, if the server names one.
    pub commit: Option<String>,
}

/// Size and identity of a file, as the server announces them.
#[derive(Default)]
struct Announced {
    bytes: Option<u64>,
    sha256: Option<String>,
    commit: Option<String>,
}

impl Client {
    /// The download fails after `read_timeout` without a byte from the server.
    pub fn new(read_timeout: Duration) -> Result<Self, Error> {
        // Fails where a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("verbatim/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT)
                .read_timeout(read_timeout)
                .redirect(redirect::Policy::none())
        };
        // A machine without certificates of its own still fetches over http.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        Ok(Self {
            http: http.map_err(Error::Client)?,
            token: std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty()),
        })
    }

    /// Downloads `url` to `folder/file.part`, and checks it against `sha256`, or what the server announces.
    ///
    /// # Errors
    /// [`Error::Unreachable`] without an answer. [`Error::Interrupted`] if the body breaks off and a new request
    /// brings nothing more; the part is kept for the next attempt. [`Error::Checksum`]; the part is removed.
    pub async fn fetch(
        &self,
        url: &Url,
        sha256: Option<&str>,
        folder: &Path,
        file: &str,
    ) -> Result<Download, Error> {
        let part = folder.join(file).with_added_extension("part");
        let mut broke_off = None;
        for _ in 0..REQUESTS_MAX {
            let have = length(&part).await;
            let (response, announced) = self.open(url, have, folder).await?;
            let expected = sha256.map(str::to_owned).or(announced.sha256);
            let range = content_range(response.headers());
            let is_whole = match response.status() {
                StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                    expected.is_some() && announced.bytes.or(range.total) == Some(have)
                }
                StatusCode::PARTIAL_CONTENT if range.start != Some(have) => false,
                // Without a checksum to verify the result, never join two responses.
                StatusCode::PARTIAL_CONTENT if expected.is_none() => false,
                status if status.is_success() => match receive(response, &part, file).await? {
                    None => true,
                    Some(error) if length(&part).await > have => {
                        broke_off = Some(error);
                        continue;
                    }
                    error => return Err(Error::Interrupted { url: shown(url), source: error }),
                },
                status => return Err(Error::Refused { url: shown(url), status: status.as_u16() }),
            };
            if !is_whole {
                // The part belongs to another version, or is longer than the file.
                remove(&part).await?;
                continue;
            }
            let sha256 = sums::sha256(&part).await?;
            if expected.is_some_and(|expected| expected != sha256) {
                remove(&part).await?;
                return Err(Error::Checksum { url: shown(url) });
            }
            return Ok(Download { sha256, commit: announced.commit });
        }
        Err(Error::Interrupted { url: shown(url), source: broke_off })
    }

    /// The text at `url`, and its address after redirects.
    ///
    /// # Errors
    /// As [`Client::fetch`].
    pub async fn text(&self, url: &Url, folder: &Path) -> Result<(String, Url), Error> {
        let (response, _) = self.open(url, 0, folder).await?;
        if !response.status().is_success() {
            return Err(Error::Refused { url: shown(url), status: response.status().as_u16() });
        }
        let base = response.url().clone();
        let text = response.text().await.map_err(|error| unreachable(url, folder, error))?;
        Ok((text, base))
    }

    /// Requests `url` from byte `from` on and follows redirects, but never from https to http. `folder` is for the
    /// error without an answer.
    async fn open(&self, url: &Url, from: u64, folder: &Path) -> Result<(Response, Announced), Error> {
        let mut announced = Announced::default();
        let mut at = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let is_own = at.origin() == url.origin();
            let mut request = self.http.get(at.clone());
            if from > 0 {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            if let Some(token) = self.token.as_ref().filter(|_| is_own) {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.map_err(|error| unreachable(url, folder, error))?;
            if is_own {
                announced.read(response.headers());
            }
            if !response.status().is_redirection() {
                return Ok((response, announced));
            }
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| policy::redirect(&at, location).ok());
            at = next.ok_or_else(|| Error::Redirect { url: shown(url) })?;
        }
        Err(Error::Redirect { url: shown(url) })
    }
}

impl Announced {
    /// The tag of a large file is its SHA-256; that of a small one is a Git hash, which is ignored.
    fn read(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_hash = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let tag = text("x-linked-etag").or_else(|| text(ETAG.as_str())).unwrap_or_default();
        let tag = tag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
        let bytes = text("x-linked-size").and_then(|bytes| bytes.parse().ok());
        let commit = text("x-repo-commit").filter(|commit| is_hash(commit, 40)).map(str::to_owned);
        self.sha256 = self.sha256.take().or(Some(tag).filter(|tag| is_hash(tag, 64)));
        self.bytes = self.bytes.or(bytes);
        self.commit = self.commit.take().or(commit);
    }
}

/// Writes a body to `part`, appended if the response is partial. Returns the error that interrupted it, if any.
async fn receive(response: Response, part: &Path, file: &str) -> Result<Option<reqwest::Error>, Error> {
    let is_rest = response.status() == StatusCode::PARTIAL_CONTENT;
    let have = if is_rest { length(part).await } else { 0 };
    let bytes = response.content_length().map(|rest| have + rest);
    tracing::info!(file, bytes, from = have, "fetching");
    let progress = progress_bar(file, bytes);
    progress.set_position(have);
    let mut options = tokio::fs::OpenOptions::new();
    options.create(true).write(true).append(is_rest).truncate(!is_rest);
    let mut output = options.open(part).await.map_err(io(part))?;
    let mut body = response.bytes_stream();
    let mut broke_off = None;
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) => {
                output.write_all(&chunk).await.map_err(io(part))?;
                progress.inc(chunk.len() as u64);
            }
            Err(error) => {
                broke_off = Some(error.without_url());
                break;
            }
        }
    }
    output.sync_all().await.map_err(io(part))?;
    progress.finish_and_clear();
    Ok(broke_off)
}

async fn length(path: &Path) -> u64 {
    tokio::fs::metadata(path).await.map_or(0, |metadata| metadata.len())
}

async fn remove(path: &Path) -> Result<(), Error> {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(path)(error)),
        _ => Ok(()),
    }
}

/// `Content-Range: bytes START-END/TOTAL`, or `bytes */TOTAL` (RFC 9110, §14.4).
struct ContentRange {
    start: Option<u64>,
    total: Option<u64>,
}

fn content_range(headers: &HeaderMap) -> ContentRange {
    let text = headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
    let (range, total) = text.trim_start_matches("bytes ").split_once('/').unwrap_or((text, ""));
    let start = range.split('-').next().and_then(|start| start.parse().ok());
    ContentRange { start, total: total.parse().ok() }
}

fn unreachable(url: &Url, folder: &Path, source: reqwest::Error) -> Error {
    Error::Unreachable { folder: folder.to_owned(), url: shown(url), source: source.without_url() }
}

/// `url` without its user and password.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for URLs that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Visible on a terminal only (indicatif sees to that).
fn progress_bar(file: &str, bytes: Option<u64>) -> ProgressBar {
    let bar = bytes.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(file.to_owned())
}
