//! Sections 8 and 9: limits and versions.

use serde_json::json;
use verbatim::{http, live};

use super::doors::Doors;
use super::table::{Row, row};
use crate::server::{RAW, Setup, TestServer, answer, client, refusal, say};
use crate::socket::Said;

/// So many seconds of silence, raw, in little room.
fn silence(seconds: usize) -> Vec<u8> {
    vec![0xFF; seconds * 8_000]
}

const MULAW: &str = "encoding=mulaw&sample_rate=8000";

pub fn rows() -> Vec<Row> {
    let mut rows = limits();
    rows.extend(versions());
    rows
}

fn limits() -> Vec<Row> {
    vec![
        row("8", "audio of 600 seconds is taken by default", async |doors| {
            let (status, body) = answer(doors.reader.listen(MULAW, silence(600))).await;
            assert_eq!((status, &body["metadata"]["duration"]), (200, &json!(600.0)), "{body}");
        }),
        row("8", "audio of more than 600 seconds is refused", async |doors| {
            let (status, body) = answer(doors.reader.listen(MULAW, silence(601))).await;
            assert_eq!((status, &body["err_code"]), (422, &json!("AUDIO_TOO_LONG")));
            assert!(body["err_msg"].as_str().is_some_and(|text| text.contains("600")), "{body}");
        }),
        row("8", "the maximum is a default: the operator sets another", async |_| {
            let audio = verbatim::audio::Limits { max_seconds: 601.0, ..verbatim::audio::Limits::default() };
            let server = TestServer::start(Setup { audio, ..Setup::default() }).await;
            assert_eq!(answer(server.listen(MULAW, silence(601))).await.0, 200);
        }),
        row("8", "the maximum holds for audio that is fetched", async |_| {
            let audio = verbatim::audio::Limits { max_seconds: 0.5, ..verbatim::audio::Limits::default() };
            let fetch = verbatim::fetch::Config { allow: vec!["127.0.0.1".into()], ..Default::default() };
            let server = TestServer::start(Setup { audio, fetch, ..Setup::default() }).await;
            let media = Doors::numbers().await;
            let body = json!({"url": format!("http://{}/number", media.address)}).to_string();
            let request = server.listen(RAW, body).header("content-type", "application/json");
            assert_eq!(refusal(request).await, (422, "AUDIO_TOO_LONG".into()));
        }),
        row(
            "8",
            "a URL body's address uses HTTP or HTTPS: other schemes are refused",
            async |doors: &Doors| {
                for url in
                    ["ftp://a.example/a.wav", "file:///etc/passwd", "s3://bucket/a.wav", "data:audio/wav,x"]
                {
                    assert_eq!(doors.url_refusal(url).await.0, 400, "{url}");
                }
            },
        ),
        row("8 decided", "a body beyond the server's size is 413, before it is all sent", async |_| {
            let http = http::Config { body_bytes_max: 1000, ..http::Config::default() };
            let server = TestServer::start(Setup { http, ..Setup::default() }).await;
            assert_eq!(refusal(server.listen(RAW, say(1))).await, (413, "PAYLOAD_TOO_LARGE".into()));
        }),
        row("8 decided", "a JSON body is short: more than a URL needs is 413", async |doors| {
            let long = format!(r#"{{"url": "http://a/{}"}}"#, "a".repeat(70_000));
            let request = doors.reader.listen("", long).header("content-type", "application/json");
            assert_eq!(refusal(request).await, (413, "PAYLOAD_TOO_LARGE".into()));
        }),
        row("8 decided", "a live message that is too large closes the stream with 1009", async |_| {
            let config = live::Config { message_bytes_max: 1000, ..live::Config::default() };
            let server = crate::live::start(config).await;
            let mut socket = crate::live::open(&server, RAW).await;
            socket.audio(&[0; 2000]).await;
            let (_, end) = socket.rest().await;
            assert!(matches!(end, Said::Close(1009, _)), "{end:?}");
        }),
        row(
            "8 decided",
            "keyterms beyond 500 tokens are refused in the wire format's words",
            async |doors| {
                let terms = "&keyterm=one+two+three+four+five+six".repeat(90);
                let (status, body) = answer(doors.reader.listen(&format!("{RAW}{terms}"), say(1))).await;
                let message =
                    "Keyterm limit exceeded. The maximum number of tokens across all keyterms is 500.";
                assert_eq!((status, &body["err_msg"]), (400, &json!(message)));
            },
        ),
    ]
}

fn versions() -> Vec<Row> {
    vec![
        row(
            "9",
            "the transcription path carries the prefix /v1: without it nothing is there",
            async |doors| {
                let request =
                    client().post(doors.reader.url("/listen")).bearer_auth(&doors.reader.key).body(say(1));
                assert_eq!(refusal(request).await, (404, "NOT_FOUND".into()));
            },
        ),
        row("9", "the STS paths carry no version segment", async |doors| {
            for path in ["/v1/STS/interactiveAgent", "/v1/api/livekit/sts"] {
                let request = doors.program.post(path, &json!({"action": "start"}));
                assert_eq!(refusal(request).await, (404, "NOT_FOUND".into()), "{path}");
            }
        }),
        row("9 decided", "GET /openapi.json describes every path of the contract", async |doors| {
            let (_, document) = answer(client().get(doors.program.url("/openapi.json"))).await;
            for path in [
                "/v1/listen",
                "/v1/listen/media",
                "/v1/listen/media/transcribe",
                "/v1/listen/media/transcribe_file",
                "/STS/interactiveAgent",
                "/api/livekit/sts",
            ] {
                assert!(document["paths"][path]["post"].is_object(), "{path}");
            }
        }),
    ]
}
