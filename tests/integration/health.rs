//! Health and metrics: readiness that reflects the model, and the figures for operators.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use verbatim::telemetry::metrics;
use verbatim::{api, engine};

use crate::server::{RAW, Setup, TestServer, answer, client, refusal, say, transcripts};

async fn status(server: &TestServer, path: &str) -> u16 {
    client().get(server.url(path)).send().await.expect("an answer").status().as_u16()
}

async fn becomes(server: &TestServer, path: &str, wanted: u16) {
    let begun = Instant::now();
    while status(server, path).await != wanted {
        assert!(begun.elapsed() < Duration::from_secs(30), "{path} never answers {wanted}");
    }
}

#[tokio::test]
async fn an_engine_that_hangs_is_not_ready_and_says_so_to_those_who_wait() {
    let (open, gate) = mpsc::channel();
    let engine = engine::Config { stall_seconds: 0.3, ..engine::Config::default() };
    let server = TestServer::start(Setup { gate: Some(gate), engine, ..Setup::default() }).await;
    assert_eq!(status(&server, "/readyz").await, 200);

    let response = server.listen(RAW, say(1)).send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(status(&server, "/readyz").await, 503);
    assert_eq!(status(&server, "/livez").await, 200);
    let (_, health) = answer(client().get(server.url("/health"))).await;
    assert_eq!(health["ready"], false);
    let (_, health) = answer(client().get(server.url("/v1/status"))).await;
    assert_eq!(health["system_health"], "Critical");
    // Refused at the door: the engine would not answer.
    assert_eq!(refusal(server.listen(RAW, say(2))).await.0, 503);

    drop(open);
    becomes(&server, "/readyz", 200).await;
    assert_eq!(transcripts(&answer(server.listen(RAW, say(3))).await.1), ["Number 3."]);
}

#[tokio::test]
async fn an_engine_that_hangs_for_minutes_asks_for_a_restart() {
    let (open, gate) = mpsc::channel();
    let engine = engine::Config { stall_seconds: 0.2, give_up_seconds: 0.2, ..engine::Config::default() };
    let server = TestServer::start(Setup { gate: Some(gate), engine, ..Setup::default() }).await;
    assert_eq!(status(&server, "/livez").await, 200);
    assert_eq!(refusal(server.listen(RAW, say(1))).await.0, 503);
    becomes(&server, "/livez", 503).await;
    assert_eq!(status(&server, "/readyz").await, 503);
    // The call returned by itself, so the process may go on.
    drop(open);
    becomes(&server, "/livez", 200).await;
    becomes(&server, "/readyz", 200).await;
}

#[tokio::test]
async fn metrics_are_for_operators_and_tell_what_was_done() {
    metrics::start();
    let server = TestServer::start(Setup::default()).await;
    assert_eq!(refusal(client().get(server.url("/metrics"))).await.0, 401);
    // Metrics cover all organisations, so an organisation's key doesn't open them.
    let request = client().get(server.url("/metrics")).bearer_auth(&server.key);
    assert_eq!(refusal(request).await, (403, "FORBIDDEN".into()));
    for number in 0..5 {
        assert_eq!(answer(server.listen(RAW, say(number))).await.0, 200);
    }
    let request = client().get(server.url("/metrics")).bearer_auth(&server.operator);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["content-type"], metrics::CONTENT_TYPE);
    let text = response.text().await.expect("text");
    let value = |series: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{text}"));
        line.trim().parse::<f64>().expect("a number")
    };
    // Other tests of this process count, too.
    assert!(value("stt_windows_total{class=\"interactive\",outcome=\"recognised\"}") >= 5.0);
    assert!(value("stt_audio_done_seconds_total{class=\"interactive\"}") >= 5.0);
    assert!(value("stt_tokens_total") >= value("stt_decode_steps_total"));
    assert!(value("stt_slots ") > 0.0);
    assert!(value("stt_queue_oldest_age_seconds{class=\"live\"}") >= 0.0);
    assert!(value("stt_encode_duration_seconds_count") >= 1.0);
    assert!(value("process_resident_memory_peak_bytes") >= value("process_resident_memory_bytes"));
    assert!(text.contains("http_server_request_duration_seconds_bucket{"));
    assert!(!text.contains(&server.key) && !text.contains(&server.operator), "a key is no label");
    assert!(text.lines().count() < 2000);
}

#[tokio::test]
async fn requests_are_bounded_at_the_door() {
    let (open, gate) = mpsc::channel();
    let engine = engine::Config { max_requests: 2, ..engine::Config::default() };
    let api = api::Config::default();
    let server = TestServer::start(Setup { gate: Some(gate), engine, api, ..Setup::default() }).await;
    let held: Vec<_> = (1..3).map(|number| tokio::spawn(answer(server.listen(RAW, say(number))))).collect();
    while server.engine.load().requests < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(refusal(server.listen(RAW, say(3))).await.0, 503);
    drop(open);
    for (request, heard) in held.into_iter().zip(["Number 1.", "Number 2."]) {
        assert_eq!(transcripts(&request.await.expect("no panic").1), [heard]);
    }
}
