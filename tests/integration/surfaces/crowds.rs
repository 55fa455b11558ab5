//! One organisation takes all that it can get at each route: it is told so in that route's words, another one finds room, and
//! nothing is left when it goes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use verbatim::keys::Store;

use super::{Owner, PATIENCE, SOCKETS, Surfaces, filled, has_its_form, told};
use crate::server::until_known;
use crate::socket::Handshake;

/// Of each kind; one organisation may hold three.
const PLACES: usize = 4;

/// A text of the greatest length, which takes minutes to speak.
fn long_text() -> String {
    "We are open on Monday and closed on Sunday. ".repeat(45)
}

async fn crowded() -> Surfaces {
    let places = PLACES.to_string();
    Surfaces::start(&[
        ("VERBATIM_LIVE__MAX_STREAMS", &places),
        ("VERBATIM_SPEAK__STREAMS_MAX", &places),
        ("VERBATIM_STS__SESSIONS_MAX", &places),
        ("VERBATIM_STS__REJOIN_SECONDS", "0"),
        ("VERBATIM_ENGINE__MAX_REQUESTS", &places),
        ("VERBATIM_SPEAK__HELD_CHARACTERS_MAX", "4096"),
    ])
    .await
}

/// A handshake; where it opens an agent's socket, its session begins.
async fn open(surfaces: &Surfaces, path: &str, owner: &Owner) -> Handshake {
    let mut handshake = surfaces.handshake(path, Some(&owner.key)).await;
    if let Some(socket) = handshake.socket.as_mut().filter(|_| path == "/v1/agent/converse") {
        socket.text(&json!({"type": "Settings", "audio": {}, "agent": {}}).to_string()).await;
        while socket.message().await["type"] != "SettingsApplied" {}
    }
    handshake
}

fn retry_after(handshake: &Handshake) -> Option<u64> {
    handshake.header("retry-after").and_then(|after| after.parse().ok())
}

/// Whether this is a refusal of an organisation that holds its share, as the clients of `path` read it.
fn is_refusal(path: &str, status: u16, after: Option<u64>, body: &Value) -> bool {
    status == 429 && after.is_some_and(|after| (1..=120).contains(&after)) && has_its_form(path, body)
}

#[tokio::test]
async fn sockets_of_one_organisation_leave_room_to_another() {
    let surfaces = crowded().await;
    let operator = Store::open(surfaces.state.path()).and_then(|store| store.create_operator("operator"));
    let operator = operator.expect("a key").1.expose().to_owned();
    until_known(&surfaces.program.url(""), &operator).await;
    for path in SOCKETS {
        let mut held = Vec::new();
        let refused = loop {
            let mut handshake = open(&surfaces, path, &surfaces.first).await;
            match handshake.socket.take() {
                Some(socket) => held.push(socket),
                // A place is kept for a while for the client that was refused on the path before.
                None if held.len() < PLACES - 1 => {
                    let after = retry_after(&handshake).expect("seconds");
                    tokio::time::sleep(Duration::from_secs(after)).await;
                }
                None => break handshake,
            }
            assert!(held.len() < PLACES, "{path}: too many");
        };
        let after = retry_after(&refused);
        assert!(
            is_refusal(path, refused.status, after, &refused.body),
            "{path}: {} {}",
            refused.status,
            refused.body
        );
        assert_eq!(open(&surfaces, path, &surfaces.second).await.status, 101, "{path}: another organisation");
        // What costs nothing is there for everyone.
        for (method, path) in [("get", "/v1/projects"), ("post", "/v1/auth/grant"), ("get", "/v1/models")] {
            for owner in [&surfaces.first, &surfaces.second] {
                assert_eq!(told(surfaces.request(method, path, Some(&owner.key))).await.0, 200, "{path}");
            }
        }
        // They leave without a word.
        drop(held);
        let begun = Instant::now();
        while open(&surfaces, path, &surfaces.first).await.status != 101 {
            assert!(begun.elapsed() < PATIENCE, "{path}: it keeps the places of clients that have left");
        }
        for gauge in ["stt_active_streams", "tts_active_streams", "sts_sessions"] {
            while surfaces.gauge(&operator, gauge).await > 0.0 {
                assert!(begun.elapsed() < PATIENCE, "{path}: {gauge}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// A request whose body never comes.
async fn stuck(surfaces: &Surfaces, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(surfaces.program.address).await.expect("it listens");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: multipart/form-data; \
         boundary=x\r\ncontent-length: 1000\r\n\r\n-",
        surfaces.first.key
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream
}

pub(super) fn form(surfaces: &Surfaces, path: &str, owner: &Owner) -> reqwest::RequestBuilder {
    let speech = std::fs::read(crate::speech::cache("speech/jfk.wav")).expect("readable");
    let request = surfaces.request("post", path, Some(&owner.key));
    if path.starts_with("/v1/listen") {
        return request.body(speech);
    }
    let head = "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x\r\n\
        content-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
    let body = [head.as_bytes(), &speech, b"\r\n--x--\r\n"].concat();
    request.header("content-type", "multipart/form-data; boundary=x").body(body)
}

#[tokio::test]
async fn uploads_of_one_organisation_leave_room_to_another() {
    let surfaces = crowded().await;
    for path in ["/v1/audio/transcriptions", "/v1/listen"] {
        let mut held = Vec::new();
        for _ in 1..PLACES {
            held.push(stuck(&surfaces, path).await);
        }
        // Until the server has seen all of them.
        let begun = Instant::now();
        let (status, body, after) = loop {
            let answer = told(form(&surfaces, path, &surfaces.first)).await;
            if answer.0 != 200 || begun.elapsed() > PATIENCE {
                break answer;
            }
        };
        assert!(is_refusal(path, status, after, &body), "{path}: {status} {body}");
        let (status, body, _) = told(form(&surfaces, path, &surfaces.second)).await;
        assert_eq!(status, 200, "{path}: {body}");
        drop(held);
        while told(form(&surfaces, path, &surfaces.first)).await.0 != 200 {
            assert!(begun.elapsed() < PATIENCE, "{path}: it keeps the places of clients that have left");
        }
        assert_eq!(surfaces.json("/v1/status").await["active_batch_requests"], 0);
    }
}

pub(super) fn spoken(surfaces: &Surfaces, path: &str, owner: &Owner, text: &str) -> reqwest::RequestBuilder {
    let body = if path.starts_with("/v1/speak") {
        json!({"text": text})
    } else {
        json!({"input": text, "model": "tts-1", "voice": "alloy"})
    };
    let request = surfaces.request("post", path, Some(&owner.key)).timeout(2 * PATIENCE);
    request.header("content-type", "application/json").body(body.to_string())
}

#[tokio::test]
async fn texts_of_one_organisation_leave_room_to_another() {
    let surfaces = crowded().await;
    for path in ["/v1/speak", "/v1/audio/speech"] {
        // Its head comes with the first sound; the rest is being spoken.
        let first = begun(&surfaces, path).await;
        for refused in ["/v1/speak", "/v1/audio/speech"] {
            let (status, body, after) = told(spoken(&surfaces, refused, &surfaces.first, &long_text())).await;
            assert!(is_refusal(refused, status, after, &body), "{refused}: {status} {body}");
        }
        let (status, body, after) = told(spoken(&surfaces, path, &surfaces.second, "Yes.")).await;
        // On a busy machine the voice may be too late; that is told as what it is.
        assert!(status == 200 || (status == 503 && after.is_some()), "{path}: {status} {body}");
        drop(first);
        drop(begun(&surfaces, path).await);
    }
    // Their answers had begun with 200.
    let requests = format!("/v1/projects/{}/requests?endpoint=speak&limit=100", surfaces.first.project);
    let since = Instant::now();
    loop {
        let page = told(surfaces.request("get", &requests, Some(&surfaces.first.key))).await.1;
        let entries = page["requests"].as_array().expect("a list");
        match entries.iter().filter(|entry| entry["code"] == 499).count() {
            4 => break,
            left => assert!(since.elapsed() < PATIENCE, "{left} of 4 are logged as left"),
        }
    }
}

/// The answer to a long text of the first organisation, as soon as there is room for it and the voice has begun.
async fn begun(surfaces: &Surfaces, path: &str) -> reqwest::Response {
    let since = Instant::now();
    loop {
        let answer = spoken(surfaces, path, &surfaces.first, &long_text()).send().await.expect("an answer");
        match answer.status().as_u16() {
            200 => return answer,
            status => assert!([429, 503].contains(&status), "{path}: {status}"),
        }
        assert!(since.elapsed() < 2 * PATIENCE, "{path}: there is no room");
    }
}

#[tokio::test]
async fn a_socket_that_never_reads_is_cut_off() {
    let surfaces = Surfaces::start(&[
        ("VERBATIM_HTTP__WRITE_TIMEOUT_MS", "1000"),
        ("VERBATIM_LIVE__WRITE_TIMEOUT_MS", "1000"),
        ("VERBATIM_SPEAK__WRITE_TIMEOUT_MS", "1000"),
    ])
    .await;
    // Pings of the greatest length, each of which is answered.
    let ping: Vec<u8> = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[7; 125]].concat();
    let pings = ping.repeat(500);
    for path in SOCKETS {
        let mut socket = open(&surfaces, path, &surfaces.first).await.socket.expect("agreed");
        let flood = async { while socket.stream.write_all(&pings).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, flood).await.unwrap_or_else(|_| panic!("{path}: it is not cut off"));
    }
    assert_eq!(surfaces.json("/v1/status").await["active_stream_requests"], 0);
}

#[tokio::test]
async fn a_body_that_hardly_comes_is_given_up_at_every_route() {
    let surfaces = Surfaces::start(&[("VERBATIM_HTTP__BODY_IDLE_TIMEOUT_MS", "500")]).await;
    let document = surfaces.json("/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    let with_bodies = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().expect("operations");
        item.iter()
            .filter(|(_, told)| told["requestBody"].is_object())
            .map(move |(method, told)| (method, path, told))
    });
    let mut given_up = 0;
    for (method, path, told) in with_bodies {
        let content = told["requestBody"]["content"].as_object().expect("media types");
        let kind = content.keys().next().expect("a media type").replace("*/*", "audio/wav");
        let kind = if kind.starts_with("multipart") { format!("{kind}; boundary=x") } else { kind };
        let target = filled(path, &surfaces.first.project);
        let target = if path == "/v1/speakers" { format!("{target}?name=a") } else { target };
        let mut stream = TcpStream::connect(surfaces.program.address).await.expect("it listens");
        let head = format!(
            "{} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\n\
             content-length: 1000\r\nconnection: close\r\n\r\n{{",
            method.to_uppercase(),
            surfaces.program.address,
            surfaces.first.key
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut reply = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut reply)).await;
        // A reset after the answer is an end too.
        assert!(read.is_ok(), "{method} {path} is not given up");
        let reply = String::from_utf8_lossy(&reply);
        let status: u16 = reply.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        // Some are answered before their body is looked at.
        assert!((200..500).contains(&status) || status == 501, "{method} {path}: {reply}");
        if path.starts_with("/v1/") && status >= 400 {
            assert!(has_its_form(path, &body), "{method} {path}: {reply}");
        }
        given_up += usize::from(status == 408);
    }
    assert!(given_up >= 10, "{given_up} were read at all");
}
