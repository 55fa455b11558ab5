//! The names that operators of the hosted API's own servers know: metrics and the status of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use verbatim::engine::{
    self, Attempt, EncodeRequest, Error, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome, TokenCount,
};
use verbatim::telemetry::metrics;
use verbatim::transcript::{DetectedLanguage, Segment};

use crate::server::{RAW, Setup, TestServer, answer, client, refusal, say};
use crate::socket::{self, Said};

/// A model whose device takes so long for each window, and hears a word in all of it.
struct Slow {
    info: ModelInfo,
    window: Duration,
    /// Nanoseconds that it took so far.
    took: Arc<AtomicU64>,
}

impl Slow {
    fn boxed(window: Duration, took: &Arc<AtomicU64>) -> Option<Box<dyn SpeechModel + Send>> {
        let info = ModelInfo {
            name: "slow".into(),
            uuid: uuid::Uuid::nil(),
            languages: vec!["en".into()],
            slots: 1,
            encode_batch: 1,
            device: "none".into(),
            prompt_tokens: TokenCount::default(),
        };
        Some(Box::new(Self { info, window, took: took.clone() }))
    }
}

impl SpeechModel for Slow {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&mut self, _: &[EncodeRequest]) -> Result<(), Error> {
        let begun = Instant::now();
        std::thread::sleep(self.window);
        self.took.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
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
            segments: vec![Segment { text: " word".into(), start: 0.0, end: 1.0, ..Segment::default() }],
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            average_log_probability: -0.1,
            no_speech_probability: 0.0,
            compression_ratio: 1.0,
            consumed_samples: 480_000,
            tokens: Vec::new(),
            ranges: Vec::new(),
            ends_in_silence: true,
        };
        Ok(slots.iter().map(heard).collect())
    }

    fn release(&mut self, _: SlotId) {}
}

/// Speech-like loud sound of so many seconds, in 16-bit samples.
fn loud(seconds: usize) -> Vec<u8> {
    let sample = |index: usize| ((index as f64 * 0.2).sin() * 12_000.0) as i16;
    (0..seconds * 16_000).flat_map(|index| sample(index).to_le_bytes()).collect()
}

async fn status(server: &TestServer) -> Value {
    answer(client().get(server.url("/v1/status/engine"))).await.1
}

/// Streams of live audio, one after the other, each of 20 s.
async fn stream(server: &TestServer) {
    let asked = format!("{RAW}&interim_results=true");
    let mut socket =
        socket::listen(server.address, &server.key, &asked).await.socket.expect("there is room for a stream");
    for piece in loud(20).chunks(16_000) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    while !matches!(socket.said().await, Said::Close(..) | Said::Gone) {}
}

#[tokio::test]
#[ignore = "measures time, and needs a machine of its own"]
async fn the_capacity_for_streams_is_measured_from_those_that_were_served() {
    let capacity = async |window: Duration| {
        let took = Arc::default();
        let model = Slow::boxed(window, &took);
        let server = TestServer::start(Setup { model, ..Setup::default() }).await;
        let before = status(&server).await;
        stream(&server).await;
        let cost = took.load(Relaxed) as f64 * 1e-9 / 20.0;
        let after = status(&server).await["estimated_stream_capacity"].as_f64().expect("a number");
        assert!(before["estimated_stream_capacity"].as_u64() >= Some(1), "{before}");
        (after, cost)
    };
    let (slow, cost) = capacity(Duration::from_millis(120)).await;
    // Four fifths of the device's time. Beside the model's own measure the engine counts the time around its calls.
    let expected = 0.8 / cost;
    assert!((0.7 * expected - 1.0..=1.05 * expected).contains(&slow), "{slow}, expected {expected}");
    let (fast, _) = capacity(Duration::from_millis(6)).await;
    assert!(fast > 4.0 * slow, "{fast} with a model twenty times as fast, {slow} before");
}

#[tokio::test]
async fn the_engine_is_connected_while_the_server_is_ready() {
    let (open, gate) = std::sync::mpsc::channel();
    let engine = engine::Config { stall_seconds: 0.3, ..engine::Config::default() };
    let server = TestServer::start(Setup { gate: Some(gate), engine, ..Setup::default() }).await;
    let body = async || {
        let response = client().get(server.url("/v1/status/engine")).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        response.text().await.expect("text")
    };
    // The probe of the published chart greps for exactly this beginning.
    assert!(body().await.starts_with(r#"{"engine_connection_status":"Connected""#), "{}", body().await);
    assert_eq!(refusal(server.listen(RAW, say(1))).await.0, 503);
    assert!(body().await.starts_with(r#"{"engine_connection_status":"Disconnected""#));
    assert_eq!(status(&server).await["estimated_stream_capacity"], 0);
    drop(open);
    let begun = Instant::now();
    while status(&server).await["engine_connection_status"] != "Connected" {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never recovers");
    }
}

#[tokio::test]
async fn requests_are_counted_under_the_names_of_the_hosted_servers() {
    metrics::start();
    let server = TestServer::start(Setup::default()).await;
    for number in 0..3 {
        assert_eq!(answer(server.listen(RAW, say(number))).await.0, 200);
    }
    assert_eq!(refusal(server.listen("encoding=nonsense", say(1))).await.0, 400);
    stream(&server).await;
    let text = async || {
        let request = client().get(server.url("/metrics")).bearer_auth(&server.operator);
        request.send().await.expect("an answer").text().await.expect("text")
    };
    // Other tests of this process count, too, and their requests may be in progress.
    let value = |text: &str, series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        let line = line.unwrap_or_else(|| panic!("{series} is missing in {text}"));
        line.trim().parse::<f64>().expect("a number")
    };
    // The entry of a stream ends with its task, a moment after its last message.
    let begun = Instant::now();
    let streamed = "engine_requests_total{kind=\"stream\",response_status=\"";
    let text = loop {
        let text = text().await;
        if text.contains(streamed) || begun.elapsed() > Duration::from_secs(30) {
            break text;
        }
    };
    assert!(text.contains(streamed), "{text}");
    assert!(value(&text, "engine_requests_total{kind=\"batch\",response_status=\"2xx\"}") >= 3.0);
    assert!(value(&text, "engine_requests_total{kind=\"batch\",response_status=\"4xx\"}") >= 1.0);
    assert!(value(&text, "engine_batch_response_time_seconds_count") >= 3.0);
    assert!(value(&text, "engine_batch_response_time_seconds_bucket{le=\"60\"}") >= 3.0);
    assert!(value(&text, "engine_stream_latency_count") >= 1.0);
    for kind in ["batch", "stream", "tts"] {
        assert!(value(&text, &format!("engine_active_requests{{kind=\"{kind}\"}}")) >= 0.0);
    }
    let capacity = value(&text, "engine_estimated_stream_capacity ");
    assert!(value(&text, "engine_max_active_requests ") >= capacity);
}
