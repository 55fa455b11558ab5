//! Section 7, and 1.3 of the wire format: errors, their statuses and their bodies.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use verbatim::audio::Limits;
use verbatim::{api, http, live};

use super::doors::{Doors, recorded};
use super::table::{Row, row};
use crate::doors::{raw, statuses};
use crate::http2::Http2;
use crate::server::{FAILS, RAW, Setup, TestServer, answer, client, read, refusal, say, say_for};
use crate::tones::Listener;

/// The JSON body of a raw reply.
fn json_of(reply: &str) -> Value {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no body: {reply:?}"));
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {reply:?}"))
}

/// Fails unless the reply to these bytes is a JSON error with this status.
async fn answers_in_json(doors: &Doors, bytes: &[u8], status: u16) {
    let reply = raw(&doors.reader.door, bytes).await;
    assert_eq!(statuses(&reply), [status], "{reply}");
    let body = json_of(&reply);
    assert!(body["err_code"].is_string() && body["err_msg"].is_string(), "{reply}");
}

/// The refusal of bytes that are no audio.
async fn unsupported(doors: &Doors, bytes: impl Into<Vec<u8>>) {
    let refused = refusal(doors.reader.listen("", bytes.into())).await;
    assert_eq!(refused, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
}

pub fn rows() -> Vec<Row> {
    let mut rows = unsupported_media();
    rows.extend(busy());
    rows.extend(bodies());
    rows.extend(statuses_of_requests());
    rows.extend(protocol());
    rows
}

fn unsupported_media() -> Vec<Row> {
    vec![
        row("7", "415: a body that is no audio", async |doors| unsupported(doors, "not audio").await),
        row("7", "415: pictures, archives and documents", async |doors| {
            for start in [&b"\x89PNG\r\n\x1a\n"[..], b"PK\x03\x04", b"%PDF-1.7\n"] {
                unsupported(doors, [start, &[7; 500]].concat()).await;
            }
        }),
        row("7", "415: an audio format that is not in the list, such as MIDI", async |doors| {
            unsupported(doors, [&b"MThd\0\0\0\x06"[..], &[0x3C; 500]].concat()).await;
        }),
        row("7", "415: Speex without Ogg, whose packets nothing tells apart", async |doors| {
            let refused = refusal(doors.reader.listen("encoding=speex", say(1))).await;
            assert_eq!(refused, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
        }),
        row(
            "4.1",
            "JSON without Content-Type: application/json is taken for audio, and is none",
            async |doors| {
                unsupported(doors, r#"{"url": "https://a.example/a.wav"}"#).await;
            },
        ),
        row("7", "a 415 tells which formats are supported", async |doors| {
            let (_, body) = answer(doors.reader.listen("", "not audio")).await;
            let message = body["err_msg"].as_str().expect("text");
            for format in ["MP3", "AAC", "FLAC", "WAV", "OGG", "WebM", "Opus", "M4A"] {
                assert!(message.contains(format), "{format}: {message}");
            }
        }),
        row("wire 1.3", "400: audio of a known format that is damaged", async |doors| {
            let (status, body) = answer(doors.reader.listen("", b"RIFF\x10\0\0\0WAVEjunk".to_vec())).await;
            let message = "Bad Request: failed to process audio: corrupt or unsupported data";
            assert_eq!((status, &body["err_msg"]), (400, &json!(message)));
        }),
        row("7 decided", "a file that breaks off is transcribed up to there", async |doors| {
            let file = recorded("fixtures/pcm16.wav");
            let (status, body) = answer(doors.reader.listen("", file[..file.len() / 2].to_vec())).await;
            assert_eq!(status, 200, "{body}");
            let duration = body["metadata"]["duration"].as_f64().expect("seconds");
            assert!((3.0..4.0).contains(&duration), "{duration}");
        }),
    ]
}

fn busy() -> Vec<Row> {
    vec![
        row("7", "503: the server is busy", async |_| {
            let (server, open, first) = TestServer::full().await;
            assert_eq!(refusal(server.listen(RAW, say(1))).await, (503, "Service Unavailable".into()));
            drop(open);
            assert_eq!(first.await.expect("no panic").0, 200);
        }),
        row("7", "a 503 has Retry-After, in whole seconds", async |_| {
            let (server, _open, _) = TestServer::full().await;
            let response = server.listen(RAW, say(1)).send().await.expect("an answer");
            let seconds: u32 =
                response.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
            assert!((1..=120).contains(&seconds), "{seconds}");
        }),
        row("7", "a client that retries after a 503 is served when there is room again", async |_| {
            let (server, open, first) = TestServer::full().await;
            assert_eq!(refusal(server.listen(RAW, say(1))).await.0, 503);
            drop(open);
            first.await.expect("no panic");
            assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
        }),
        row(
            "7",
            "a stream that finds no room is refused with 503 and Retry-After before the upgrade",
            async |_| {
                let live = live::Config { max_streams: 1, ..live::Config::default() };
                let setup = Setup { live, model: Some(Box::new(Listener::new())), ..Setup::default() };
                let server = TestServer::start(setup).await;
                let first = crate::live::open(&server, RAW).await;
                let second = crate::live::handshake(&server, RAW).await;
                assert_eq!((second.status, second.header("retry-after").is_some()), (503, true));
                drop(first);
            },
        ),
        row("7", "an agent service that is full answers 503 with Retry-After", async |_| {
            let mut setup = crate::sts::service::Setup::default();
            setup.config.sessions_max = 1;
            let service = crate::sts::service::Service::start(setup).await;
            let start = json!({"action": "start"});
            assert_eq!(answer(service.request(&start).bearer_auth(&service.keys[0])).await.0, 200);
            let response = service.request(&start).send().await.expect("an answer");
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(response.headers().contains_key("retry-after"));
        }),
    ]
}

fn bodies() -> Vec<Row> {
    vec![
        row("7", "a failure carries a JSON body, and says that it is JSON", async |doors| {
            let response = doors.reader.listen("", "not audio").send().await.expect("an answer");
            assert_eq!(response.headers()["content-type"], "application/json");
            let body = response.text().await.expect("text");
            assert!(serde_json::from_str::<Value>(&body).is_ok_and(|body| body.is_object()), "{body}");
        }),
        row("wire 1.3", "its layout is err_code, err_msg and request_id", async |doors| {
            let (_, body) = answer(doors.reader.listen("", "not audio")).await;
            let mut names: Vec<&String> = body.as_object().expect("an object").keys().collect();
            names.sort();
            assert_eq!(names, ["err_code", "err_msg", "request_id"]);
        }),
        row("wire 1.3", "its request_id is that of the header dg-request-id", async |doors| {
            let response = doors.reader.listen("", "not audio").send().await.expect("an answer");
            let id = response.headers()["dg-request-id"].to_str().expect("text").to_owned();
            assert_eq!(read(response).await.1["request_id"], id);
        }),
        row("7 decided", "the voice agent's failures have the same layout", async |doors| {
            let (status, body) =
                answer(doors.program.action(&json!({"action": "status", "session_id": "x"}))).await;
            assert_eq!((status, body["err_msg"].is_string()), (404, true), "{body}");
        }),
        row("7 decided", "the demo's failures have the same layout", async |doors| {
            let (status, body) = answer(doors.program.demo("/api/client/form-event", &json!([]))).await;
            assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_JSON")));
        }),
        row("7 decided", "a fault of the server is 500, and tells nothing of its insides", async |_| {
            // A failing window also fails its neighbours in the batch, so this one gets its own server.
            let server = TestServer::start(Setup::default()).await;
            let (status, body) = answer(server.listen(RAW, say(FAILS))).await;
            assert_eq!((status, &body["err_code"]), (500, &json!("INTERNAL_ERROR")));
            assert!(!body.to_string().contains("machine hall"), "{body}");
        }),
    ]
}

fn statuses_of_requests() -> Vec<Row> {
    vec![
        row("7 decided", "400: a parameter whose value means nothing, named with its value", async |doors| {
            let (status, body) =
                answer(doors.reader.listen(&format!("{RAW}&punctuate=perhaps"), say(1))).await;
            assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
            let message = body["err_msg"].as_str().expect("text");
            assert!(message.contains("`punctuate`") && message.contains("`perhaps`"), "{message}");
        }),
        row("7 decided", "400: a parameter with one value given twice", async |doors| {
            let query = format!("{RAW}&language=en&language=es");
            assert_eq!(refusal(doors.reader.listen(&query, say(1))).await.0, 400);
        }),
        row("7 decided", "404: a path that is not there", async |doors| {
            let request = client().post(doors.reader.url("/v1/nothing")).body(say(1));
            assert_eq!(refusal(request).await, (404, "NOT_FOUND".into()));
        }),
        row(
            "7 decided",
            "405: a method that the path does not have, with those that it has",
            async |doors| {
                let response =
                    client().delete(doors.reader.url("/v1/listen")).send().await.expect("an answer");
                let allow = response.headers()["allow"].to_str().expect("text").to_owned();
                assert!(allow.contains("POST") && allow.contains("GET"), "{allow}");
                assert_eq!(read(response).await.0, 405);
            },
        ),
        row("7 decided", "408: a body that comes too slowly", async |_| {
            let http = http::Config { body_idle_timeout_ms: 50, ..http::Config::default() };
            let server = TestServer::start(Setup { http, ..Setup::default() }).await;
            let head = format!(
                "POST /v1/listen?{RAW} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 10\r\n\r\nabc",
                server.key
            );
            let reply = raw(&server.door, head).await;
            assert_eq!(
                (statuses(&reply), &json_of(&reply)["err_code"]),
                (vec![408], &json!("REQUEST_TIMEOUT"))
            );
        }),
        row("7 decided", "411: a POST with neither a length nor chunks", async |doors| {
            let request = format!(
                "POST /v1/listen HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
                doors.reader.key
            );
            answers_in_json(doors, request.as_bytes(), 411).await;
        }),
        row("7 decided", "415: a body with a Content-Encoding", async |doors| {
            let request = doors.reader.listen(RAW, say(1)).header("content-encoding", "gzip");
            assert_eq!(refusal(request).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
        }),
        row("7 decided", "504: work that is not done within the time for a request", async |_| {
            let api = api::Config { processing_timeout_ms: 0, ..api::Config::default() };
            let server = TestServer::start(Setup { api, ..Setup::default() }).await;
            assert_eq!(refusal(server.listen(RAW, say(1))).await, (504, "PROCESSING_TIMEOUT".into()));
        }),
        row("7 decided", "422: audio that is too long is refused, never cut", async |_| {
            let audio = Limits { max_seconds: 2.0, ..Limits::default() };
            let server = TestServer::start(Setup { audio, ..Setup::default() }).await;
            let (status, body) = answer(server.listen(RAW, say_for(1, 2.5))).await;
            assert_eq!((status, &body["err_code"]), (422, &json!("AUDIO_TOO_LONG")));
            assert!(body["err_msg"].as_str().is_some_and(|text| text.contains('2')), "{body}");
        }),
    ]
}

/// Any non-success response: also those that a library below might give.
fn protocol() -> Vec<Row> {
    vec![
        row("7", "a request line that cannot be read is answered in JSON", async |doors| {
            answers_in_json(doors, b"GET /v1/lis ten HTTP/1.1\r\nhost: x\r\n\r\n", 400).await;
        }),
        row("7", "bytes that are no HTTP are answered in JSON", async |doors| {
            answers_in_json(doors, b"hello there\r\n\r\n", 400).await;
        }),
        row("7", "a header that cannot be read is answered in JSON", async |doors| {
            answers_in_json(doors, b"GET /v1/listen HTTP/1.1\r\nhost: x\r\nna me: y\r\n\r\n", 400).await;
        }),
        row("7", "a head that is too large is answered in JSON with 431", async |doors| {
            let large = "y".repeat(200_000);
            let head =
                format!("GET /v1/listen HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: {large}\r\n\r\n");
            answers_in_json(doors, head.as_bytes(), 431).await;
        }),
        row("7", "over HTTP/2 a refusal reaches a client whose body is still on its way", async |doors| {
            let stream = TcpStream::connect(doors.program.address).await.expect("a connection");
            let mut client = Http2::open(stream).await;
            let fields = [("content-length", "3145728")];
            let post = client.post("/v1/listen", &fields, &[], 3 << 20);
            let outcome = tokio::time::timeout(Duration::from_secs(30), post).await.expect("an answer");
            assert_eq!(outcome.code(), "INVALID_AUTH");
        }),
        row("7", "a refusal reaches a client that sends its whole body first", async |doors| {
            let request = client().post(doors.reader.url("/v1/listen")).body(vec![0u8; 8 << 20]);
            assert_eq!(refusal(request).await, (401, "INVALID_AUTH".into()));
        }),
        row("4.1", "HTTP/2 is spoken as well as HTTP/1.1", async |doors| {
            let client =
                reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
            let url = doors.reader.url(&format!("/v1/listen?{RAW}"));
            let response = client.post(url).bearer_auth(&doors.reader.key).body(say(4)).send().await;
            let response = response.expect("an answer");
            assert_eq!(response.version(), hyper::Version::HTTP_2);
            assert_eq!(crate::server::transcripts(&read(response).await.1), ["Number 4."]);
        }),
    ]
}
