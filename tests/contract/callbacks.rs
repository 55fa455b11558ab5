//! Sections 2.2, 4.1 and 6: requests that are answered at once and delivered later.

use std::sync::mpsc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;
use verbatim::fetch;
use verbatim::jobs::SigningSecret;

use super::doors::Doors;
use super::table::{Row, row};
use crate::receiver::{Received, Receiver, callback_parameter};
use crate::server::{RAW, Setup, TestServer, answer, client, read, refusal, say, transcripts};

/// Audio that looks like FLAC and is none.
fn damaged() -> Vec<u8> {
    [b"fLaC".as_slice(), &[0xA5; 500]].concat()
}

/// The id that was acknowledged for a request with this query, and the delivery that followed.
async fn delivered(doors: &Doors, query: &str, body: Vec<u8>) -> (String, Received) {
    let mut receiver = Receiver::start(&[]).await;
    let (status, acknowledged) = answer(doors.with_callback(receiver.port, query, body)).await;
    assert_eq!(status, 200, "{acknowledged}");
    let id = acknowledged["request_id"].as_str().expect("an id").to_owned();
    (id, receiver.next().await)
}

/// A job of the reader, as soon as it is in this state.
async fn job_in(doors: &Doors, id: &str, state: &str) -> Value {
    loop {
        let url = doors.reader.url(&format!("/v1/listen/jobs/{id}"));
        let (status, job) = answer(client().get(url).bearer_auth(&doors.reader.key)).await;
        assert_eq!(status, 200, "{job}");
        if job["state"] == state {
            return job;
        }
    }
}

pub fn rows() -> Vec<Row> {
    let mut rows = acknowledgements();
    rows.extend(deliveries());
    rows.extend(failures());
    rows.extend(open_points());
    rows
}

fn acknowledgements() -> Vec<Row> {
    vec![
        row("2.2", "the acknowledgement is { request_id } and nothing else", async |doors| {
            let receiver = Receiver::start(&[]).await;
            let (_, body) = answer(doors.with_callback(receiver.port, RAW, say(1))).await;
            let names: Vec<&String> = body.as_object().expect("an object").keys().collect();
            assert_eq!(names, ["request_id"]);
        }),
        row("2.2", "the acknowledged request_id is a UUID, the one in the headers", async |doors| {
            let receiver = Receiver::start(&[]).await;
            let response = doors.with_callback(receiver.port, RAW, say(1)).send().await.expect("an answer");
            let header = response.headers()["dg-request-id"].to_str().expect("text").to_owned();
            let (_, body) = read(response).await;
            assert_eq!(body["request_id"], Uuid::parse_str(&header).expect("a UUID").to_string());
        }),
        row("2.2", "the acknowledgement comes at once, before anything is transcribed", async |_| {
            let mut receiver = Receiver::start(&[]).await;
            let (open, gate) = mpsc::channel();
            let fetch = fetch::Config { allow: vec![receiver.allowed()], ..fetch::Config::default() };
            let server = TestServer::start(Setup { gate: Some(gate), fetch, ..Setup::default() }).await;
            let callback = callback_parameter(&format!("http://{}/", receiver.allowed()));
            let (status, _) = answer(server.listen(&format!("{RAW}&{callback}"), say(1))).await;
            assert!(status == 200 && receiver.is_done());
            drop(open);
            receiver.next().await;
        }),
        row("4.1", "a request with callback is answered with a success status", async |doors| {
            let receiver = Receiver::start(&[]).await;
            let response = doors.with_callback(receiver.port, RAW, say(1)).send().await.expect("an answer");
            assert!(response.status().is_success(), "{}", response.status());
        }),
        row("4.1", "an alias takes callbacks as well", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let callback = callback_parameter(&format!("http://{}/", receiver.allowed()));
            let url = doors.reader.url(&format!("/v1/listen/media/transcribe?{RAW}&{callback}"));
            let request = client().post(url).bearer_auth(&doors.reader.key).body(say(12));
            assert_eq!(answer(request).await.1.as_object().map(serde_json::Map::len), Some(1));
            assert_eq!(transcripts(&receiver.next().await.json()), ["Number 12."]);
        }),
    ]
}

fn deliveries() -> Vec<Row> {
    vec![
        row(
            "6",
            "the result is delivered to the callback URL when the transcription completes",
            async |doors| {
                let (_, received) = delivered(doors, RAW, say(7)).await;
                assert_eq!(received.path, "/done");
                assert_eq!(transcripts(&received.json()), ["Number 7."]);
            },
        ),
        row("6", "the delivery carries the full result, as it would have been answered", async |doors| {
            let query = format!("{RAW}&punctuate=true&tag=a&utterances=true");
            let (_, received) = delivered(doors, &query, say(7)).await;
            let (_, answered) = answer(doors.reader.listen(&query, say(7))).await;
            let shape = |mut body: Value| {
                body["metadata"]["request_id"].take();
                body["metadata"]["created"].take();
                body["results"]["utterances"][0]["id"].take();
                body
            };
            assert_eq!(shape(received.json()), shape(answered));
        }),
        row("6", "the delivered result has the acknowledged request_id", async |doors| {
            let (id, received) = delivered(doors, RAW, say(7)).await;
            assert_eq!(received.json()["metadata"]["request_id"], id);
        }),
        row("4.1", "callback_method is POST by default", async |doors| {
            assert_eq!(delivered(doors, RAW, say(7)).await.1.method, "POST");
        }),
        row("4.1", "callback_method=PUT delivers by PUT", async |doors| {
            let query = format!("{RAW}&callback_method=PUT");
            assert_eq!(delivered(doors, &query, say(7)).await.1.method, "PUT");
        }),
        row(
            "4.1 decided",
            "callback_method is POST or PUT, in any case; others are refused by name",
            async |doors| {
                let query = format!("{RAW}&callback_method=put");
                assert_eq!(delivered(doors, &query, say(7)).await.1.method, "PUT");
                let receiver = Receiver::start(&[]).await;
                let request =
                    doors.with_callback(receiver.port, &format!("{RAW}&callback_method=DELETE"), say(7));
                let (status, body) = answer(request).await;
                assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
                let message = body["err_msg"].as_str().expect("text");
                assert!(message.contains("callback_method") && message.contains("DELETE"), "{message}");
                assert!(message.contains("POST") && message.contains("PUT"), "{message}");
            },
        ),
        row("4.1", "metadata, a JSON string, is passed through to the callback payload", async |doors| {
            let query = format!("{RAW}&metadata=%7B%22order%22%3A+7%7D");
            let (_, received) = delivered(doors, &query, say(7)).await;
            assert_eq!(received.json()["metadata"]["metadata"], r#"{"order": 7}"#);
        }),
        row("4.1 decided", "metadata is a text like any other: it need not be JSON", async |doors| {
            let (_, received) = delivered(doors, &format!("{RAW}&metadata=%7Bnone"), say(7)).await;
            assert_eq!(received.json()["metadata"]["metadata"], "{none");
        }),
        row("4.1", "timestamps counts for what is delivered", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let request = doors.with_callback(receiver.port, RAW, say(7)).header("timestamps", "true");
            assert_eq!(answer(request).await.0, 200);
            let body = receiver.next().await.json();
            let words = body["results"]["channels"][0]["alternatives"][0]["words"].as_array();
            assert_eq!(words.map(Vec::len), Some(2), "{body}");
        }),
        row("4.1", "a URL body and a callback go together", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let body = json!({"url": doors.media_url("number")}).to_string().into_bytes();
            let request = doors.with_callback(receiver.port, RAW, body);
            assert_eq!(answer(request.header("content-type", "application/json")).await.0, 200);
            assert_eq!(transcripts(&receiver.next().await.json()), ["Number 9."]);
        }),
        row("4.1", "callback is a URL: other texts and schemes are refused", async |doors| {
            for callback in ["nowhere", "", "ftp://a.example/", "file:///etc/passwd"] {
                let query = format!("{RAW}&{}", callback_parameter(callback));
                let (status, body) = answer(doors.reader.listen(&query, say(1))).await;
                let message = body["err_msg"].as_str().unwrap_or_default();
                assert!(status == 400 && message.starts_with("Invalid callback url. "), "{callback}: {body}");
            }
        }),
    ]
}

fn failures() -> Vec<Row> {
    vec![
        row(
            "6 decided",
            "audio that turns out to be damaged is delivered as an error with the request_id",
            async |doors| {
                let (id, received) = delivered(doors, "", damaged()).await;
                let body = received.json();
                assert_eq!((&body["request_id"], &body["err_code"]), (&json!(id), &json!("Bad Request")));
                assert!(body["err_msg"].is_string() && body.get("results").is_none(), "{body}");
            },
        ),
        row("6 decided", "a delivered error echoes the metadata value, too", async |doors| {
            let (_, received) = delivered(doors, "metadata=mine", damaged()).await;
            assert_eq!(received.json()["metadata"]["metadata"], "mine");
        }),
        row("6 decided", "a delivered error echoes tags and extra, too", async |doors| {
            let (_, received) = delivered(doors, "tag=a&extra=order:7", damaged()).await;
            let metadata = received.json()["metadata"].clone();
            assert_eq!((&metadata["tags"], &metadata["extra"]), (&json!(["a"]), &json!({"order": "7"})));
        }),
        row("6 decided", "an address that cannot be fetched is delivered as an error", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let body = json!({"url": doors.media_url("nothing")}).to_string().into_bytes();
            let request = doors.with_callback(receiver.port, RAW, body);
            assert_eq!(answer(request.header("content-type", "application/json")).await.0, 200);
            assert_eq!(receiver.next().await.json()["err_code"], "REMOTE_CONTENT_ERROR");
        }),
        row("6 decided", "a format that is not supported is refused at once, not delivered", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let request = doors.with_callback(receiver.port, "", b"not audio".to_vec());
            assert_eq!(refusal(request).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
            assert!(receiver.is_done());
        }),
        row("6 decided", "a delivery that fails is tried again with the same bytes", async |doors| {
            let mut receiver = Receiver::start(&["500 Oops", "503 Busy\r\nretry-after: 0"]).await;
            assert_eq!(answer(doors.with_callback(receiver.port, RAW, say(7))).await.0, 200);
            let first = receiver.next().await;
            for attempt in ["2", "3"] {
                let again = receiver.next().await;
                assert_eq!((&again.body, again.headers["verbatim-attempt"].as_str()), (&first.body, attempt));
            }
        }),
        row("6 decided", "a receiver that answers 410 is not tried again", async |doors| {
            let mut receiver = Receiver::start(&["410 Gone"]).await;
            let (_, body) = answer(doors.with_callback(receiver.port, RAW, say(7))).await;
            let job = job_in(doors, body["request_id"].as_str().expect("an id"), "dead").await;
            assert_eq!((&job["attempts"], &job["last_error"]), (&json!(1), &json!("STATUS_410")));
            receiver.next().await;
            assert!(receiver.is_done());
        }),
        row("6 decided", "a redirect is a failed delivery and is not followed", async |doors| {
            let mut elsewhere = Receiver::start(&[]).await;
            let redirect = format!("302 Found\r\nlocation: http://{}/", elsewhere.allowed());
            let mut receiver = Receiver::start(&[&redirect]).await;
            assert_eq!(answer(doors.with_callback(receiver.port, RAW, say(7))).await.0, 200);
            assert_eq!(receiver.next().await.body, receiver.next().await.body);
            assert!(elsewhere.is_done());
        }),
    ]
}

fn open_points() -> Vec<Row> {
    vec![
        row("6 decided", "the delivery is JSON, and says so", async |doors| {
            let (_, received) = delivered(doors, RAW, say(7)).await;
            assert_eq!(received.headers["content-type"], "application/json");
        }),
        row("6 decided", "the delivery is signed as Standard Webhooks are", async |doors| {
            let (id, received) = delivered(doors, RAW, say(7)).await;
            let headers = &received.headers;
            assert_eq!(headers["webhook-id"], id);
            let timestamp = headers["webhook-timestamp"].parse().expect("seconds");
            let secret = SigningSecret::of(doors.reader.state.path()).expect("a secret");
            assert_eq!(headers["webhook-signature"], secret.sign(&id, timestamp, &received.body));
        }),
        row("wire 2", "dg-token is the identifier of the API key, not the key", async |doors| {
            let (_, received) = delivered(doors, RAW, say(7)).await;
            let token = &received.headers["dg-token"];
            assert!(doors.reader.key.starts_with(&format!("org_{token}")), "{token}");
            assert!(token.len() < doors.reader.key.len() / 2, "{token}");
        }),
        row(
            "wire 2",
            "a user and password in the callback URL are sent as Basic authentication",
            async |doors| {
                let mut receiver = Receiver::start(&[]).await;
                let callback = callback_parameter(&format!("http://user:p%40ss@{}/", receiver.allowed()));
                assert_eq!(answer(doors.reader.listen(&format!("{RAW}&{callback}"), say(7))).await.0, 200);
                let expected = format!("Basic {}", STANDARD.encode("user:p@ss"));
                assert_eq!(receiver.next().await.headers["authorization"], expected);
            },
        ),
        row("6 decided", "a callback to an inner address is refused", async |doors| {
            for host in ["10.0.0.1", "127.0.0.2", "[::1]", "169.254.169.254"] {
                let callback = callback_parameter(&format!("http://{host}/"));
                let request = doors.reader.listen(&format!("{RAW}&{callback}"), say(1));
                assert_eq!(refusal(request).await, (400, "INVALID_QUERY_PARAMETER".into()), "{host}");
            }
        }),
        row("2.2 decided", "GET /v1/listen/jobs/{request_id} tells how a request fares", async |doors| {
            let (id, _) = delivered(doors, RAW, say(7)).await;
            let job = job_in(doors, &id, "delivered").await;
            assert_eq!((&job["request_id"], &job["attempts"]), (&json!(id), &json!(1)));
        }),
        row("2.2 decided", "a request sent again under its Idempotency-Key is the same one", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let submit = async |number, key: &str| {
                answer(doors.with_callback(receiver.port, RAW, say(number)).header("idempotency-key", key))
                    .await
            };
            let first = submit(7, "contract-order-7").await;
            assert_eq!(submit(7, "contract-order-7").await, first);
            assert_ne!(submit(7, "contract-order-8").await.1, first.1);
            let (status, body) = submit(8, "contract-order-7").await;
            assert_eq!((status, &body["err_code"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
            receiver.next().await;
        }),
    ]
}
