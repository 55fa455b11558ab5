//! One server, several organisations: each finds room, however much of it another one takes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use verbatim::engine::{
    self, Attempt, EncodeRequest, Error, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome,
};
use verbatim::transcript::DetectedLanguage;
use verbatim::{api, fetch, http, live};

use crate::hosts::{self, Silent};
use crate::server::{RAW, Setup, TestServer, answer, client, say, transcripts};
use crate::socket::{self, Handshake};

fn two(setup: Setup) -> Setup {
    Setup { organisations: 2, ..setup }
}

/// As [`TestServer::listen`], with another organisation's key.
fn listen_as(server: &TestServer, key: &str, body: Vec<u8>) -> reqwest::RequestBuilder {
    client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(key).body(body)
}

/// Whether `answer` is the wire format's for too many requests.
fn is_over_share((status, body): &(u16, Value)) -> bool {
    *status == 429 && body["err_code"] == "TOO_MANY_REQUESTS"
}

#[tokio::test]
async fn streams_of_one_organisation_leave_one_to_another() {
    let live = live::Config { max_streams: 5, ..live::Config::default() };
    let server = TestServer::start(two(Setup { live, ..Setup::default() })).await;
    let open = async |key: &str| socket::listen(server.address, key, RAW).await;
    let mut sockets = Vec::new();
    let refused: Handshake = loop {
        let mut handshake = open(&server.key).await;
        match handshake.socket.take() {
            Some(socket) => sockets.push(socket),
            None => break handshake,
        }
    };
    assert_eq!((sockets.len(), refused.status), (4, 429));
    assert!(refused.header("retry-after").is_some());
    assert!(refused.body["err_code"] == "TOO_MANY_REQUESTS", "{}", refused.body);
    assert_eq!(open(&server.others[0]).await.status, 101);
}

#[tokio::test]
async fn bodies_of_one_organisation_leave_memory_to_another() {
    let http = http::Config { buffered_bytes_max: 100 << 10, ..http::Config::default() };
    let server = TestServer::start(two(Setup { http: http.clone(), ..Setup::default() })).await;
    let refused = answer(server.listen(RAW, vec![0; 90 << 10])).await;
    assert!(is_over_share(&refused), "{refused:?}");
    assert_eq!(answer(server.listen(RAW, vec![0; 70 << 10])).await.0, 200);
    let alone = TestServer::start(Setup { http, ..Setup::default() }).await;
    assert_eq!(answer(alone.listen(RAW, vec![0; 90 << 10])).await.0, 200);
}

/// An upload of which a last byte is never sent.
async fn begin_upload(server: &TestServer, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    let head = format!(
        "POST /v1/listen?{RAW} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        server.key,
        bytes + 1
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(&vec![0; bytes]).await.expect("sent");
    stream
}

#[tokio::test]
async fn hosts_that_answer_nothing_hold_up_their_own_organisation_alone() {
    let mut silent = Silent::start().await;
    let quick = format!("http://127.0.0.1:{}", hosts::file(say(7), |_| true).await);
    let fetch = fetch::Config { allow: vec!["127.0.0.1".into()], ..fetch::Config::default() };
    let api = api::Config { downloads: 3, ..api::Config::default() };
    let server = TestServer::start(two(Setup { fetch, api, ..Setup::default() })).await;
    let by_url = |key: &str, host: &str| {
        let body = json!({"url": format!("{host}/a.raw")}).to_string();
        listen_as(&server, key, body.into()).header("content-type", "application/json")
    };
    let waiting: Vec<_> = (0..6).map(|_| tokio::spawn(by_url(&server.key, &silent.url).send())).collect();
    // As many as may are connected.
    silent.until(|seen| seen.open == 2).await;
    let (status, body) = answer(by_url(&server.others[0], &quick)).await;
    assert_eq!((status, transcripts(&body)), (200, vec!["Number 7."]));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_request_that_waits_for_its_turn_to_download_ends_at_its_deadline() {
    let mut silent = Silent::start().await;
    let fetch = fetch::Config { allow: vec!["127.0.0.1".into()], ..fetch::Config::default() };
    let api = api::Config { downloads: 1, processing_timeout_ms: 1000, ..api::Config::default() };
    let server = TestServer::start(Setup { fetch, api, ..Setup::default() }).await;
    let by_url = || {
        let body = json!({"url": format!("{}/a.raw", silent.url)}).to_string();
        listen_as(&server, &server.key, body.into()).header("content-type", "application/json")
    };
    let requests = [by_url(), by_url(), by_url()].map(|request| tokio::spawn(answer(request)));
    silent.until(|seen| seen.open == 1).await;
    for request in requests {
        let (status, body) = request.await.expect("no panic");
        assert_eq!((status, &body["err_code"]), (504, &json!("PROCESSING_TIMEOUT")), "{body}");
    }
}

/// A model that takes [`WINDOW`] per window, one at a time, and hears nothing.
struct Slow(ModelInfo);

const WINDOW: Duration = Duration::from_millis(20);

impl SpeechModel for Slow {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    fn encode(&mut self, _: &[EncodeRequest]) -> Result<(), Error> {
        std::thread::sleep(WINDOW);
        Ok(())
    }

    fn begin(&mut self, _: &[Attempt]) -> Result<(), Error> {
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        Ok(vec![StepOutcome::Finished; slots.len()])
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let heard = |_: &SlotId| Hypothesis {
            segments: Vec::new(),
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            average_log_probability: -0.1,
            no_speech_probability: 0.1,
            compression_ratio: 1.0,
            consumed_samples: 16_000,
            tokens: Vec::new(),
            ranges: Vec::new(),
            ends_in_silence: true,
        };
        Ok(slots.iter().map(heard).collect())
    }

    fn release(&mut self, _: SlotId) {}
}

#[tokio::test]
async fn uploads_that_do_not_come_take_no_room() {
    let info = ModelInfo {
        name: "slow".into(),
        uuid: uuid::Uuid::nil(),
        languages: vec!["en".into()],
        slots: 1,
        encode_batch: 1,
        device: "none".into(),
        prompt_tokens: verbatim::engine::TokenCount::default(),
    };
    let engine = engine::Config { max_wait_seconds: 0.1, ..engine::Config::default() };
    let model = Some(Box::new(Slow(info)) as Box<dyn SpeechModel + Send>);
    let server = TestServer::start(Setup { engine, model, ..Setup::default() }).await;
    // So that it knows how fast it is.
    for _ in 0..30 {
        assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
    }
    let mut uploads = Vec::new();
    for _ in 0..20 {
        uploads.push(begin_upload(&server, 100).await);
    }
    // They last ten seconds at least; others are let in long before.
    let served = async {
        while answer(server.listen(RAW, say(1))).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(6), served).await.expect("let in");
    for upload in &mut uploads {
        let _ = upload.shutdown().await;
    }
}
