//! Large uploads: bounded in memory, and nothing is left of them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use serde_json::Value;

use super::{Surfaces, told};

const MIB: usize = 1 << 20;
const PIECE: usize = 64 << 10;
/// Above what stays in memory.
const LARGE: usize = 6 * MIB;

/// The server's memory without pages of files, in bytes.
fn memory(surfaces: &Surfaces) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", surfaces.program.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("a line");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib << 10
}

fn folder(surfaces: &Surfaces) -> PathBuf {
    surfaces.state.path().join("uploads")
}

fn names(surfaces: &Surfaces) -> usize {
    std::fs::read_dir(folder(surfaces)).map_or(0, |entries| entries.count())
}

/// Pieces of a file that is no audio.
type Pieces = BoxStream<'static, Result<Vec<u8>, Infallible>>;

fn noise(bytes: usize) -> Pieces {
    let pieces = (0..bytes.div_ceil(PIECE)).map(|_| Ok(vec![0xA5; PIECE]));
    stream::iter(pieces).boxed()
}

/// A form with this file, sent without a length.
fn form(surfaces: &Surfaces, file: Pieces) -> reqwest::RequestBuilder {
    let head = "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x\r\n\
        content-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
    let (head, tail) = (Ok(head.into()), Ok(b"\r\n--x--\r\n".to_vec()));
    let pieces = stream::iter([head]).chain(file).chain(stream::iter([tail]));
    let request = surfaces.request("post", "/v1/audio/transcriptions", Some(&surfaces.first.key));
    let request = request.header("content-type", "multipart/form-data; boundary=x");
    request.body(reqwest::Body::wrap_stream(pieces))
}

fn bare(surfaces: &Surfaces, file: Pieces) -> reqwest::RequestBuilder {
    let request = surfaces.request("post", "/v1/listen", Some(&surfaces.first.key));
    request.body(reqwest::Body::wrap_stream(file))
}

#[tokio::test]
async fn a_body_without_end_is_refused_and_memory_does_not_follow_it() {
    let limit = (100 * MIB).to_string();
    let surfaces = Surfaces::start(&[("VERBATIM_HTTP__BODY_BYTES_MAX", limit.as_str())]).await;
    let kinds: [fn(&Surfaces, Pieces) -> reqwest::RequestBuilder; 2] = [form, bare];
    for request in kinds {
        let before = memory(&surfaces);
        let watch = async {
            let mut most = 0;
            loop {
                most = memory(&surfaces).max(most);
                tokio::time::sleep(Duration::from_millis(5)).await;
                if most > before + 60 * MIB as u64 {
                    return most;
                }
            }
        };
        let (status, body, _) = tokio::select! {
            answer = told(request(&surfaces, noise(200 * MIB))) => answer,
            most = watch => panic!("from {before} to {most} bytes"),
        };
        assert_eq!(status, 413, "{body}");
        assert_eq!(names(&surfaces), 0);
    }
}

#[tokio::test]
async fn many_large_uploads_at_once_are_all_answered() {
    let surfaces = Surfaces::start(&[]).await;
    let before = memory(&surfaces);
    let answers = join_all((0..32).map(|_| told(form(&surfaces, noise(LARGE))))).await;
    for (status, body, _) in answers {
        assert_eq!((status, &body["error"]["type"]), (400, &Value::from("invalid_request_error")), "{body}");
    }
    // Less than half of what was sent.
    assert!(memory(&surfaces) < before + 16 * LARGE as u64);
    assert_eq!(names(&surfaces), 0);
}

#[tokio::test]
async fn a_large_file_is_heard_as_a_small_one() {
    let surfaces = Surfaces::start(&[]).await;
    let speech = std::fs::read(crate::speech::cache("speech/jfk.wav")).expect("readable");
    // After silence of so many samples, so that it does not stay in memory.
    let samples: Vec<u8> = [vec![0; 2 * MIB], speech[44..].to_vec()].concat();
    let query = "/v1/listen?encoding=linear16&sample_rate=16000";
    let request = surfaces.request("post", query, Some(&surfaces.first.key)).body(samples);
    let (status, body, _) = told(request).await;
    assert_eq!(status, 200, "{body}");
    let transcript = body["results"]["channels"][0]["alternatives"][0]["transcript"].to_string();
    assert!(transcript.to_lowercase().contains("country"), "{transcript}");
}

#[tokio::test]
async fn nothing_is_left_of_uploads_that_a_kill_ended() {
    let surfaces = Surfaces::start(&[]).await;
    // More than stays in memory, and then nothing for as long as the client is there.
    let pieces = noise(4 * MIB).chain(stream::pending()).boxed();
    let upload = tokio::spawn(told(form(&surfaces, pieces)));
    while !folder(&surfaces).exists() {
        assert!(!upload.is_finished(), "it has no end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let Surfaces { program, state, .. } = surfaces;
    program.kill();
    upload.abort();
    let left: Vec<_> = std::fs::read_dir(state.path().join("uploads")).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
    // Where the file system gives such a file a name for a moment, the next start deletes it.
    std::fs::write(state.path().join("uploads/.verbatim-upload-1"), "audio").expect("written");
    let model = crate::speech::cache("models/tiny.en");
    let program = crate::program::Program::start_with(state.path(), &model, &[]).await;
    assert_eq!(std::fs::read_dir(state.path().join("uploads")).expect("a folder").count(), 0);
    program.stop().await;
}
