//! Requests with a callback, from the acknowledgement to the receiver.

mod deliveries;
mod faults;
mod orphans;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use uuid::Uuid;
use verbatim::fetch;
use verbatim::jobs::{self, JobId, Sqlite, Store as _};
use verbatim::keys;

use crate::receiver::{Receiver, callback_parameter};
use crate::server::{FAILS, RAW, Setup, TestServer, answer, client, read, refusal, say};

const PATIENCE: Duration = Duration::from_secs(60);

const NOT_PUBLIC: &str =
    "Invalid callback url. It must lead to a public address, at port 80, 443, 8080, 8443.";

fn quick() -> jobs::Config {
    jobs::Config { retry_delays_seconds: vec![0.01; 7], ..jobs::Config::default() }
}

fn allow(receivers: &[&Receiver]) -> fetch::Config {
    let allow = receivers.iter().map(|receiver| receiver.allowed()).collect();
    fetch::Config { allow, ..fetch::Config::default() }
}

async fn server(receivers: &[&Receiver]) -> TestServer {
    TestServer::start(Setup { fetch: allow(receivers), jobs: quick(), ..Setup::default() }).await
}

fn with_callback(server: &TestServer, callback: &str, query: &str, body: Vec<u8>) -> RequestBuilder {
    with_callback_as(server, &server.key, callback, query, body)
}

fn with_callback_as(
    server: &TestServer,
    key: &str,
    callback: &str,
    query: &str,
    body: Vec<u8>,
) -> RequestBuilder {
    let url = server.url(&format!("/v1/listen?{query}&{}", callback_parameter(callback)));
    client().post(url).bearer_auth(key).body(body)
}

fn to(receiver: &Receiver) -> String {
    format!("http://127.0.0.1:{}/done?x=1", receiver.port)
}

/// Sends a request that must be taken, and gives its id.
async fn taken(request: RequestBuilder) -> Uuid {
    let (status, body) = answer(request).await;
    assert_eq!((status, body.as_object().map(serde_json::Map::len)), (200, Some(1)), "{body}");
    body["request_id"].as_str().and_then(|id| id.parse().ok()).expect("an id")
}

fn job(server: &TestServer, id: Uuid) -> RequestBuilder {
    client().get(server.url(&format!("/v1/listen/jobs/{id}"))).bearer_auth(&server.key)
}

/// The job, as soon as it satisfies `condition`.
async fn job_when(server: &TestServer, id: Uuid, condition: impl Fn(&Value) -> bool) -> Value {
    let poll = async {
        loop {
            let (status, body) = answer(job(server, id)).await;
            assert_eq!(status, 200, "{body}");
            if condition(&body) {
                return body;
            }
        }
    };
    tokio::time::timeout(PATIENCE, poll).await.expect("in time")
}

async fn job_in(server: &TestServer, id: Uuid, state: &str) -> Value {
    job_when(server, id, |job| job["state"] == state).await
}

fn audio_files(state: &Path) -> Vec<String> {
    let files = std::fs::read_dir(state.join("jobs-audio")).expect("a folder");
    files.map(|file| file.expect("readable").file_name().into_string().expect("text")).collect()
}

/// The command line on the state of `server`.
async fn verbatim(server: &TestServer, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.args(arguments).env("VERBATIM_STATE_DIR", server.state.path());
    command.env("XDG_CONFIG_HOME", server.state.path());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn a_job_is_on_disk_when_it_is_acknowledged_and_gone_from_there_when_it_is_delivered() {
    let mut receiver = Receiver::start(&[]).await;
    let (open, gate) = mpsc::channel();
    let setup = Setup { gate: Some(gate), fetch: allow(&[&receiver]), jobs: quick(), ..Setup::default() };
    let server = TestServer::start(setup).await;
    let request = with_callback(&server, &to(&receiver), RAW, say(7));
    let response = request.send().await.unwrap();
    let header = response.headers()["dg-request-id"].to_str().unwrap().to_owned();
    let (status, body) = read(response).await;
    assert_eq!((status, &body), (200, &json!({"request_id": header})));

    // The model still waits at its gate: the files on disk are those that a crash would leave.
    let id: Uuid = header.parse().unwrap();
    let store = Sqlite::open(server.state.path()).unwrap();
    assert!(store.job(JobId(id)).await.unwrap().is_some_and(|job| job.finished.is_none()));
    assert_eq!(std::fs::read(server.state.path().join("jobs-audio").join(&header)).unwrap(), say(7));
    job_in(&server, id, "running").await;
    assert_eq!(server.engine.held_seconds(), 0.0, "jobs take no room from those who wait");

    drop(open);
    receiver.next().await;
    let done = job_in(&server, id, "delivered").await;
    assert_eq!((&done["runs"], &done["attempts"]), (&json!(1), &json!(1)));
    assert!(
        done["ended"].is_string() && done.get("result").is_none() && done.get("next").is_none(),
        "{done}"
    );
    assert_eq!(audio_files(server.state.path()), Vec::<String>::new());
    assert!(store.job(JobId(id)).await.unwrap().unwrap().result.is_none());
}

#[tokio::test]
async fn a_submission_sent_again_under_its_key_is_the_same_job() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let address = to(&receiver);
    let submit = |query: &str, body: Vec<u8>, key: &str| {
        with_callback(&server, &address, query, body).header("idempotency-key", key.to_owned())
    };
    let first = taken(submit(RAW, say(7), "order-7")).await;
    assert_eq!(taken(submit(RAW, say(7), "order-7")).await, first);
    receiver.next().await;
    job_in(&server, first, "delivered").await;
    assert_eq!(taken(submit(RAW, say(7), "order-7")).await, first, "also when it is done");

    let reused = (422, "IDEMPOTENCY_KEY_REUSED".to_owned());
    assert_eq!(refusal(submit(RAW, say(8), "order-7")).await, reused);
    assert_eq!(refusal(submit(&format!("{RAW}&tag=other"), say(7), "order-7")).await, reused);
    let invalid = (400, "INVALID_HEADER".to_owned());
    assert_eq!(refusal(submit(RAW, say(7), "")).await, invalid);
    assert_eq!(refusal(submit(RAW, say(7), &"k".repeat(256))).await, invalid);

    let second = taken(submit(RAW, say(7), "order-8")).await;
    assert_ne!(second, first);
    assert_eq!(receiver.next().await.headers["webhook-id"], second.to_string(), "the first was sent once");
    job_in(&server, second, "delivered").await;
    assert_eq!(audio_files(server.state.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_submission_sent_again_needs_no_room() {
    let receiver = Receiver::start(&[]).await;
    let (open, gate) = mpsc::channel();
    let jobs = jobs::Config { pending_max: 1, ..quick() };
    let setup = Setup { gate: Some(gate), fetch: allow(&[&receiver]), jobs, ..Setup::default() };
    let server = TestServer::start(setup).await;
    let submit = |body: Vec<u8>, key: &str| {
        with_callback(&server, &to(&receiver), RAW, body).header("idempotency-key", key.to_owned())
    };
    let first = taken(submit(say(7), "order-7")).await;
    assert_eq!(refusal(submit(say(7), "order-8")).await.0, 503, "there is no room for another");
    assert_eq!(taken(submit(say(7), "order-7")).await, first);
    assert_eq!(refusal(submit(say(8), "order-7")).await, (422, "IDEMPOTENCY_KEY_REUSED".to_owned()));
    assert_eq!(audio_files(server.state.path()), [first.to_string()]);
    drop(open);
}

#[tokio::test]
async fn what_is_delivered_is_what_would_have_been_answered() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let query =
        format!("{RAW}&punctuate=true&tag=a&metadata=%7B%22order%22%3A+7%7D&language=es&numerals=true");
    let id = taken(with_callback(&server, &to(&receiver), &query, say(7))).await;
    let received = receiver.next().await;
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/done?x=1"));
    let mut delivered = received.json();
    assert_eq!(delivered["metadata"]["request_id"], id.to_string());
    assert_eq!(delivered["metadata"]["metadata"], r#"{"order": 7}"#);
    let (_, mut answered) = answer(server.listen(&query, say(7))).await;
    for body in [&mut delivered, &mut answered] {
        body["metadata"]["request_id"].take();
        body["metadata"]["created"].take();
    }
    assert_eq!(delivered, answered);

    // Metadata that isn't JSON is a text like any other: it is passed through uninterpreted.
    taken(with_callback(&server, &to(&receiver), &format!("{RAW}&metadata=%7Bnone"), say(7))).await;
    assert_eq!(receiver.next().await.json()["metadata"]["metadata"], "{none");
}

#[tokio::test]
async fn callbacks_go_to_public_addresses_only() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[]).await;
    for host in [
        "127.0.0.1",
        "user:pass@127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "192.168.1.1",
    ] {
        for callback in [format!("http://{host}:{}/", receiver.port), format!("https://{host}/")] {
            let (status, body) = answer(with_callback(&server, &callback, RAW, say(1))).await;
            assert_eq!((status, &body["err_msg"]), (400, &json!(NOT_PUBLIC)), "{callback}");
        }
    }
    for callback in ["", "nowhere", "ftp://a.example/", "file:///etc/passwd", "https://8.8.8.8:22/"] {
        assert_eq!(refusal(with_callback(&server, callback, RAW, say(1))).await.0, 400, "{callback}");
    }
    let long = format!("https://8.8.8.8/{}", "a".repeat(3000));
    assert_eq!(refusal(with_callback(&server, &long, RAW, say(1))).await.0, 400);
    assert!(receiver.is_done());
    assert_eq!(audio_files(server.state.path()), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_header_says_of_the_audio_is_known_when_the_job_runs() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let request = with_callback(&server, &to(&receiver), "sample_rate=44100&tag=a", say(7));
    taken(request.header("content-type", "audio/pcm; rate=8000")).await;
    let told = receiver.next().await.json();
    assert_eq!((&told["metadata"]["duration"], &told["metadata"]["tags"]), (&json!(2.0), &json!(["a"])));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_at_once() {
    let receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let send = |query: &str, body: &[u8]| with_callback(&server, &to(&receiver), query, body.to_vec());
    assert_eq!(refusal(send("", b"not audio")).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    assert_eq!(refusal(send("", b"RIFF1234WAVEdata")).await, (400, "Bad Request".into()));
    assert_eq!(refusal(send("language=tlh", b"fLaC")).await.0, 400);
    let form = send("", b"--x\r\n").header("content-type", "multipart/form-data; boundary=x");
    assert_eq!(refusal(form).await.0, 415);
    for url in ["http://127.0.0.1/a", "file:///etc/passwd", "http://u@127.0.0.1/"] {
        let body = json!({ "url": url }).to_string();
        let request = send("", body.as_bytes()).header("content-type", "application/json");
        assert_eq!(refusal(request).await, (400, "REMOTE_CONTENT_ERROR".into()), "{url}");
    }
    assert_eq!(audio_files(server.state.path()), Vec::<String>::new());
}

#[tokio::test]
async fn audio_that_turns_out_to_be_none_is_told_to_the_receiver() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let damaged = [b"fLaC".as_slice(), &[0xA5; 500]].concat();
    let query = "metadata=mine&tag=a&tag=b&extra=order:7";
    let id = taken(with_callback(&server, &to(&receiver), query, damaged.clone())).await;
    let mut told = receiver.next().await.json();
    assert_eq!(told["request_id"], id.to_string());
    let given = json!({"metadata": "mine", "tags": ["a", "b"], "extra": {"order": "7"}});
    assert_eq!(told["metadata"].take(), given);
    let (_, answered) = answer(server.listen("", damaged)).await;
    assert_eq!((&told["err_code"], &told["err_msg"]), (&answered["err_code"], &answered["err_msg"]));
    let done = job_in(&server, id, "delivered").await;
    assert_eq!((&done["runs"], &done["last_error"]), (&json!(1), &json!("Bad Request")));
}

#[tokio::test]
async fn a_job_that_fails_by_our_fault_is_tried_again_and_then_given_up() {
    let mut receiver = Receiver::start(&[]).await;
    let waiting = server(&[&receiver]).await;
    let id = taken(with_callback(&waiting, &to(&receiver), RAW, say(FAILS))).await;
    // It is run again, maybe at once.
    job_when(&waiting, id, |job| job["last_error"] == "INTERNAL_ERROR").await;
    assert!(receiver.is_done());

    let jobs = jobs::Config { runs_max: 1, ..quick() };
    let server = TestServer::start(Setup { fetch: allow(&[&receiver]), jobs, ..Setup::default() }).await;
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(FAILS))).await;
    let told = receiver.next().await;
    assert!(!text(&told.body).contains("machine hall"));
    assert_eq!(
        (&told.json()["err_code"], &told.json()["request_id"]),
        (&json!("INTERNAL_ERROR"), &json!(id))
    );
}

#[tokio::test]
async fn urls_are_fetched_when_the_job_runs() {
    let mut receiver = Receiver::start(&[]).await;
    let mut media = Receiver::start(&[&["404 Not Found"][..], &["500 Oops"; 100]].concat()).await;
    let server = server(&[&receiver, &media]).await;
    let by_url = || {
        let body = json!({"url": format!("http://127.0.0.1:{}/a.raw", media.port)}).to_string();
        with_callback(&server, &to(&receiver), RAW, body.into_bytes())
            .header("content-type", "application/json")
    };
    // A client error is permanent, so it is delivered at once.
    let (missing, failing) = (by_url(), by_url());
    let id = taken(missing).await;
    let told = receiver.next().await.json();
    assert_eq!((&told["err_code"], &told["request_id"]), (&json!("REMOTE_CONTENT_ERROR"), &json!(id)));
    media.next().await;
    // A server that fails may be well again later.
    let id = taken(failing).await;
    media.next().await;
    job_when(&server, id, |job| job["last_error"] == "REMOTE_CONTENT_ERROR" && job["next"].is_string()).await;
}

#[tokio::test]
async fn more_than_is_held_is_refused_for_now() {
    let receiver = Receiver::start(&[]).await;
    let start = async |jobs| {
        let (open, gate) = mpsc::channel();
        let organisations = 2;
        let setup =
            Setup { organisations, gate: Some(gate), fetch: allow(&[&receiver]), jobs, ..Setup::default() };
        (TestServer::start(setup).await, open)
    };
    let by_bytes = jobs::Config { spool_bytes_max: 40_000, ..quick() };
    let by_count = jobs::Config { pending_max: 1, ..quick() };
    for config in [by_bytes, by_count] {
        let (server, open) = start(config).await;
        taken(with_callback(&server, &to(&receiver), RAW, say(1))).await;
        // One organisation waits for its own jobs, the other for any.
        for (key, expected) in
            [(&server.key, (429, "TOO_MANY_REQUESTS")), (&server.others[0], (503, "Service Unavailable"))]
        {
            let request = with_callback_as(&server, key, &to(&receiver), RAW, say(2));
            let response = request.send().await.unwrap();
            let retry_after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((1..=120).contains(&retry_after));
            let (status, body) = read(response).await;
            assert_eq!((status, &body["err_code"]), (expected.0, &json!(expected.1)));
            assert_eq!(audio_files(server.state.path()).len(), 1);
        }
        drop(open);
    }
    let (server, _open) = start(jobs::Config { disk_free_bytes_min: u64::MAX, ..quick() }).await;
    assert_eq!(refusal(with_callback(&server, &to(&receiver), RAW, say(1))).await.0, 503);
}

#[tokio::test]
async fn an_organisation_with_many_jobs_leaves_room_to_others() {
    let receiver = Receiver::start(&[]).await;
    let (open, gate) = mpsc::channel();
    let jobs = jobs::Config { pending_max: 10, ..quick() };
    let organisations = 2;
    let setup =
        Setup { organisations, gate: Some(gate), fetch: allow(&[&receiver]), jobs, ..Setup::default() };
    let server = TestServer::start(setup).await;
    let send = |key: &str| with_callback_as(&server, key, &to(&receiver), RAW, say(1));
    for _ in 0..8 {
        taken(send(&server.key)).await;
    }
    assert_eq!(refusal(send(&server.key)).await, (429, "TOO_MANY_REQUESTS".into()));
    taken(send(&server.others[0])).await;
    drop(open);
}

#[tokio::test]
async fn a_job_is_its_own_organisations() {
    let mut receiver = Receiver::start(&[]).await;
    let server = server(&[&receiver]).await;
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    receiver.next().await;
    job_in(&server, id, "delivered").await;
    let store = keys::Store::open(server.state.path()).unwrap();
    let (_, other) = store.create("other").unwrap();
    let url = server.url(&format!("/v1/listen/jobs/{id}"));
    let theirs = async || refusal(client().get(&url).bearer_auth(other.expose())).await;
    // The new key is known soon.
    let mut refused = theirs().await;
    while refused.0 == 401 {
        refused = theirs().await;
    }
    assert_eq!(refused, (404, "NOT_FOUND".into()));
    assert_eq!(refusal(client().get(&url)).await.0, 401);
    for nothing in ["x", "00000000-0000-0000-0000-000000000000"] {
        let url = server.url(&format!("/v1/listen/jobs/{nothing}"));
        assert_eq!(refusal(client().get(url).bearer_auth(&server.key)).await, (404, "NOT_FOUND".into()));
    }
}

#[tokio::test]
async fn results_are_shown_where_they_are_kept() {
    let mut receiver = Receiver::start(&[]).await;
    let jobs = jobs::Config { result_retention_seconds: 3600, ..quick() };
    let server = TestServer::start(Setup { fetch: allow(&[&receiver]), jobs, ..Setup::default() }).await;
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    let delivered = receiver.next().await.json();
    assert_eq!(job_in(&server, id, "delivered").await["result"], delivered);
}

#[tokio::test]
async fn a_job_that_is_running_when_the_server_stops_goes_back_in_line_unharmed() {
    let receiver = Receiver::start(&[]).await;
    let (open, gate) = mpsc::channel();
    let setup = Setup { gate: Some(gate), fetch: allow(&[&receiver]), jobs: quick(), ..Setup::default() };
    let server = TestServer::start(setup).await;
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    job_in(&server, id, "running").await;
    server.stop_jobs.cancel();
    let job = job_in(&server, id, "queued").await;
    assert_eq!((&job["runs"], job.get("last_error")), (&json!(0), None));
    assert_eq!(audio_files(server.state.path()), [id.to_string()]);
    drop(open);
}
