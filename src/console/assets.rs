//! The pages: the files of `assets/` as they are embedded in the program, compressed at the first use.
//!
//! All files are served under one folder whose name is a hash of them all, `/console/HASH/…`. So a module's relative
//! imports lead to files of its own version, and browsers keep every file for good.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH, VARY,
};
use hyper::{HeaderMap, StatusCode};
use sha2::{Digest as _, Sha256};

use super::policy;
use crate::http::{Failure, Request, Response, empty, whole};

/// The length of the hash, in hexadecimal digits.
const HASH_CHARACTERS: usize = 16;
/// Stands in `index.html` for the folder of the other files.
const FOLDER: &str = "{assets}";

macro_rules! embedded {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_bytes!(concat!("assets/", $path)).as_slice())),*]
    };
}

const INDEX: &str = include_str!("assets/index.html");
/// Path within the folder, and content.
const FILES: &[(&str, &[u8])] = &embedded![
    "agent/conversation.js",
    "agent/facts.js",
    "agent/setup.js",
    "agent/visitor.js",
    "api.js",
    "app.js",
    "controls.js",
    "elements.js",
    "formats.js",
    "icon.svg",
    "live/heard.js",
    "live/plot.js",
    "live/sources.js",
    "live/stream.js",
    "live/view.js",
    "pages/agent.js",
    "pages/jobs.js",
    "pages/keys.js",
    "pages/live.js",
    "pages/operations.js",
    "pages/playground.js",
    "playground/caption-lines.js",
    "playground/caption-phrases.js",
    "playground/captions.js",
    "playground/code-panel.js",
    "playground/code.js",
    "playground/controls.js",
    "playground/json-view.js",
    "playground/parameters.js",
    "playground/peaks.js",
    "playground/player.js",
    "playground/result.js",
    "playground/slices.js",
    "playground/source.js",
    "playground/transcript-view.js",
    "playground/transcript.js",
    "playground/upload.js",
    "playground/waveform.js",
    "plot.js",
    "sign-in.js",
    "style.css",
    "text.js",
    "voice/capture-worklet.js",
    "voice/jitter.js",
    "voice/latency.js",
    "voice/loudness.js",
    "voice/playback-worklet.js",
    "voice/resampler.js",
    "voice/room.js",
    "voice/service.js",
    "voice/sound.js",
    "voice/talk.js",
];

static PAGES: LazyLock<Pages> = LazyLock::new(Pages::new);

/// All files, ready to be sent.
struct Pages {
    hash: String,
    index: File,
    files: HashMap<&'static str, File>,
}

struct File {
    media_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
    /// Strong, and another one for each encoding (RFC 9110, section 8.8.3.3).
    etags: [HeaderValue; 2],
}

impl Pages {
    fn new() -> Self {
        let mut all = Sha256::new();
        for (path, content) in FILES.iter().chain([&("index.html", INDEX.as_bytes())]) {
            all.update((path.len() as u64).to_le_bytes());
            all.update(path);
            all.update((content.len() as u64).to_le_bytes());
            all.update(content);
        }
        let mut hash = HEXLOWER.encode(&all.finalize());
        hash.truncate(HASH_CHARACTERS);
        let index = INDEX.replace(FOLDER, &format!("/console/{hash}"));
        let files = FILES.iter().map(|(path, content)| (*path, File::new(path, Bytes::from_static(content))));
        Self { files: files.collect(), index: File::new("index.html", index.into()), hash }
    }
}

impl File {
    fn new(path: &str, plain: Bytes) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // A vector takes everything.
        let _ = encoder.write_all(&plain);
        let gzip = Bytes::from(encoder.finish().unwrap_or_default());
        let mut hash = HEXLOWER.encode(&Sha256::digest(&plain));
        hash.truncate(HASH_CHARACTERS);
        let etag = |suffix| HeaderValue::try_from(format!("\"{hash}{suffix}\""));
        let etags = [etag(""), etag("-gzip")].map(|tag| tag.unwrap_or(HeaderValue::from_static("\"\"")));
        Self { media_type: media_type(path), plain, gzip, etags }
    }

    /// The file, or 304 for a browser that has it.
    fn answer(&self, headers: &HeaderMap, cache: &'static str) -> Response {
        let is_gzip = accepts_gzip(headers) && self.gzip.len() < self.plain.len();
        let [plain_tag, gzip_tag] = &self.etags;
        let (body, etag) = if is_gzip { (&self.gzip, gzip_tag) } else { (&self.plain, plain_tag) };
        let mut response = match is_known(headers, etag) {
            true => empty(StatusCode::NOT_MODIFIED),
            false => whole(self.media_type, body.clone()),
        };
        let is_whole = response.status() == StatusCode::OK;
        let out = response.headers_mut();
        if is_gzip && is_whole {
            out.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        out.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        out.insert(ETAG, etag.clone());
        out.append(VARY, HeaderValue::from_static("accept-encoding"));
        policy::mark_page(out);
        response
    }
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

/// Whether `gzip` is among the codings that a client takes (RFC 9110, section 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.any(|part| {
            part.strip_prefix("q=")
                .is_some_and(|weight| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        });
        is_named && !is_refused
    })
}

fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let fields = headers.get_all(IF_NONE_MATCH).iter().filter_map(|field| field.to_str().ok());
    let etag = etag.to_str().unwrap_or_default();
    fields.flat_map(|field| field.split(',')).map(str::trim).any(|tag| {
        // The comparison is weak (RFC 9110, section 13.1.2).
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag
    })
}

/// The name of the folder of this version's files.
pub fn hash() -> &'static str {
    &PAGES.hash
}

/// `GET /`.
pub async fn index(request: Request) -> Result<Response, Failure> {
    Ok(PAGES.index.answer(&request.headers, "no-cache"))
}

/// `GET /console/{hash}/{*path}`.
pub async fn file(request: Request) -> Result<Response, Failure> {
    let capture = |name| request.captures.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    let file = capture("path").and_then(|path| PAGES.files.get(path));
    match file.filter(|_| capture("hash") == Some(hash())) {
        Some(file) => Ok(file.answer(&request.headers, "public, max-age=31536000, immutable")),
        None => Err(Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is nothing at this path.")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Compressed, of everything but the pages' own modules that are not opened first.
    const FIRST_LOAD_BYTES_MAX: usize = 150 << 10;

    fn there(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                there(&entry.path(), &format!("{name}/"), found);
            } else if name != "index.html" {
                found.push(name);
            }
        }
    }

    #[test]
    fn every_file_is_embedded() {
        let mut found = Vec::new();
        there(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console/assets"), "", &mut found);
        found.sort();
        let listed: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
        assert_eq!(listed, found, "the list in assets.rs, sorted");
        assert!(listed.iter().all(|path| media_type(path) != "application/octet-stream"));
    }

    #[test]
    fn the_first_load_is_small() {
        let all: usize = PAGES.files.values().chain([&PAGES.index]).map(|file| file.gzip.len()).sum();
        assert!(all < FIRST_LOAD_BYTES_MAX, "{all} bytes");
    }

    #[test]
    fn a_browser_says_what_it_takes_and_has() {
        let headers = |name, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        for (field, expected) in
            [("gzip", true), ("br, GZIP;q=0.5", true), ("gzip;q=0", false), ("br", false), ("", false)]
        {
            assert_eq!(accepts_gzip(&headers(ACCEPT_ENCODING, field)), expected, "{field}");
        }
        let etag = HeaderValue::from_static("\"a\"");
        for (field, expected) in [("\"a\"", true), ("\"b\", W/\"a\"", true), ("*", true), ("\"b\"", false)] {
            assert_eq!(is_known(&headers(IF_NONE_MATCH, field), &etag), expected, "{field}");
        }
    }
}
