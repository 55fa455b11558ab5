//! Speech that is delivered to a callback: accepted texts survive the process.

use reqwest::Response;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{client, new_key};
use crate::speech::{cache, word_errors};

const FOX: &str = "The quick brown fox jumps over the lazy dog.";

struct Server {
    program: Program,
    key: String,
}

impl Server {
    async fn start(state: &TempDir, key: &str, receiver: &Receiver) -> Self {
        let models = cache("models");
        let allowed = receiver.allowed();
        let settings = [
            ("VERBATIM_MODEL_DIR", models.to_str().expect("text")),
            ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro"),
            ("VERBATIM_FETCH_ALLOW", allowed.as_str()),
        ];
        let program = Program::start_with(state.path(), &cache("models/tiny.en"), &settings).await;
        Self { program, key: key.to_owned() }
    }

    async fn send(&self, query: &str, text: &str, idempotency_key: &str) -> Response {
        client()
            .post(self.program.url(&format!("/v1/speak?{query}")))
            .bearer_auth(&self.key)
            .header("content-type", "application/json")
            .header("idempotency-key", idempotency_key)
            .body(json!({"text": text}).to_string())
            .send()
            .await
            .expect("an answer")
    }

    async fn heard(&self, audio: Vec<u8>) -> String {
        let url = self.program.url("/v1/listen");
        let sent = client().post(url).bearer_auth(&self.key).body(audio).send().await.expect("an answer");
        let answer = body(sent).await;
        let transcript = &answer["results"]["channels"][0]["alternatives"][0]["transcript"];
        transcript.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

async fn body(answer: Response) -> Value {
    serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON")
}

#[tokio::test]
async fn accepted_texts_are_spoken_and_delivered_whatever_happens_to_the_process() {
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let mut receiver = Receiver::start(&[]).await;
    let server = Server::start(&state, &key, &receiver).await;
    let callback = callback_parameter(&format!("http://user:secret@127.0.0.1:{}/said", receiver.port));
    let query =
        format!("model=aura-2-zeus-en&encoding=linear16&sample_rate=16000&callback_method=put&{callback}");
    let accepted = server.send(&query, FOX, "a").await;
    assert_eq!(accepted.status(), 200);
    let id = body(accepted).await["request_id"].as_str().expect("an id").to_owned();
    // Killed with the text queued or being spoken.
    server.program.kill();
    let server = Server::start(&state, &key, &receiver).await;
    let delivered = receiver.next().await;
    assert_eq!((delivered.method.as_str(), delivered.path.as_str()), ("PUT", "/said"));
    assert_eq!(delivered.headers["webhook-id"], id);
    assert_eq!(delivered.headers["content-type"], "audio/wav");
    assert!(delivered.headers["authorization"].starts_with("Basic "));
    let declared = u32::from_le_bytes(delivered.body[40..44].try_into().expect("four bytes"));
    assert_eq!(declared as usize, delivered.body.len() - 44, "its length is in the head");
    let heard = server.heard(delivered.body).await;
    assert!(word_errors(FOX, &heard) <= 1, "{heard}");

    // The same submission is the same job, and another under its key is none.
    let again = body(server.send(&query, FOX, "a").await).await;
    assert_eq!(again["request_id"], id);
    assert_eq!(server.send(&query, "Another text.", "a").await.status(), 422);
    assert!(!server.program.log().contains("fox"), "no text is logged");
}

#[tokio::test]
async fn what_cannot_be_delivered_or_spoken_is_refused_at_once() {
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let receiver = Receiver::start(&[]).await;
    let server = Server::start(&state, &key, &receiver).await;
    let here = callback_parameter(&format!("http://127.0.0.1:{}/", receiver.port));
    for (query, text, status) in [
        (callback_parameter("ftp://a.example/"), FOX, 400),
        (callback_parameter("nonsense"), FOX, 400),
        (callback_parameter("http://10.0.0.1/"), FOX, 400),
        (format!("callback_method=GET&{here}"), FOX, 400),
        (format!("model=nobody&{here}"), FOX, 400),
        (format!("encoding=mp3&container=wav&{here}"), FOX, 400),
        (here.clone(), " ", 400),
        (here.clone(), &"a".repeat(2001), 413),
    ] {
        let answer = server.send(&query, text, "b").await;
        assert_eq!(answer.status(), status, "{query}");
        assert!(body(answer).await["err_msg"].is_string(), "{query}");
    }
}
