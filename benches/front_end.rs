//! The front end alone: requests a second and delays of this server's door beside an axum server that does the
//! same work on the same request: key, parameters, decoding, SHA-256, the engine's queue, the answer's JSON. The
//! model is a double that takes the same time for every batch. Each server is a process of its own; the load comes
//! from this one, over connections that are kept. Their rounds alternate.
//!
//! `cargo bench --bench front_end`

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt as _;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;
use verbatim::api::answer::{Asked, Heard, response};
use verbatim::api::{self, Parameters, Readiness, Services};
use verbatim::audio::{self, DecodeOptions, Limits, RawEncoding, RawFormat};
use verbatim::engine::{
    self, Attempt, EncodeRequest, Engine, Error, Hypothesis, LanguageChoice, ModelInfo, SlotId, SpeechModel,
    StepOutcome, TenantId,
};
use verbatim::fetch::Fetcher;
use verbatim::http::{self, Authenticator, auth};
use verbatim::keys::{Store, Verifier};
use verbatim::live::{self, Live};
use verbatim::registry::Registry;
use verbatim::share::Tenants;
use verbatim::speech::{self, Speech, Voice};
use verbatim::transcribe::{TranscribeOptions, Transcriber};
use verbatim::transcript::{DetectedLanguage, Segment, Word};
use verbatim::usage::Log;
use verbatim::voices::Voices;

const QUERY: &str = "encoding=linear16&sample_rate=16000&language=en&punctuate=true";
/// The time that the double takes for a batch of all waiting windows.
const LATENCY: Duration = Duration::from_millis(1);
const WORDS: usize = 25;
const ROUNDS: usize = 5;
const SECONDS: f64 = 3.0;

struct FixedLatency(ModelInfo);

impl SpeechModel for FixedLatency {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    fn encode(&mut self, _: &[EncodeRequest]) -> Result<(), Error> {
        std::thread::sleep(LATENCY);
        Ok(())
    }

    fn begin(&mut self, _: &[Attempt]) -> Result<(), Error> {
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        Ok(vec![StepOutcome::Finished; slots.len()])
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let word = |index: usize| Word {
            text: format!(" word{index}"),
            start: index as f64 * 0.04,
            end: index as f64 * 0.04 + 0.03,
            probability: 0.9,
            speaker: None,
        };
        let words: Vec<Word> = (0..WORDS).map(word).collect();
        let text = words.iter().map(|word| word.text.as_str()).collect();
        let hypothesis = Hypothesis {
            segments: vec![Segment { text, start: 0.0, end: 1.0, words, ..Segment::default() }],
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            average_log_probability: -0.1,
            no_speech_probability: 0.0,
            compression_ratio: 1.0,
            consumed_samples: engine::WINDOW_SAMPLES,
            tokens: Vec::new(),
            ranges: Vec::new(),
            ends_in_silence: true,
        };
        Ok(vec![hypothesis; slots.len()])
    }

    fn release(&mut self, _: SlotId) {}
}

/// The parts that both servers share, and a valid key.
async fn parts(state: &std::path::Path) -> (api::Parts, String) {
    let info = ModelInfo {
        name: "double".into(),
        uuid: Uuid::nil(),
        languages: vec!["en".into()],
        slots: 64,
        encode_batch: 64,
        device: "none".into(),
        prompt_tokens: verbatim::engine::TokenCount::default(),
    };
    let load = move || Ok::<Box<dyn SpeechModel>, Infallible>(Box::new(FixedLatency(info)));
    let engine = Engine::start(&engine::Config::unbounded(), load).expect("a double loads");
    let store = Store::open(state).expect("a store");
    let (_, secret) = store.create("bench").expect("a key");
    let verifier = Verifier::new(Store::open(state).expect("a store")).expect("keys");
    let readiness = Readiness::default();
    readiness.set(api::State::Ready);
    let voiceless = speech::Config { embedded: speech::EmbeddedVoice::None, ..Default::default() };
    let voice = Voice::open(&voiceless, state).expect("no voice");
    let live = Live::new(engine.clone(), None, live::Config::default(), Tenants::default());
    let parts = api::Parts {
        models: Registry::of_one(Transcriber::new(engine), live, []),
        diarizer: None,
        voices: Voices::open(state, &Default::default()).expect("voices"),
        speech: Speech::new(voice, Default::default(), Tenants::default()),
        authenticator: Authenticator::new(verifier, auth::Config::default()),
        fetcher: Fetcher::new(&Default::default()).expect("a fetcher"),
        jobs: None,
        readiness,
        tenants: Tenants::default(),
        audio: Limits::default(),
        usage: Log::open(state, &Default::default()).expect("a log"),
        other_paths: serde_json::Map::new(),
        other_sockets: Vec::new(),
    };
    (parts, secret.expose().to_owned())
}

async fn serve(which: &str) {
    // Ends with the process that started it, however that ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let state = tempfile::tempdir().expect("a folder");
    let (parts, key) = parts(state.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{} {key}", listener.local_addr().expect("bound"));
    if which == "verbatim" {
        let router = api::router(Arc::new(Services::new(parts, &api::Config::default())));
        let (config, stop) = (http::Config::default(), http::Shutdown::default());
        http::run(listener, router, &config, Tenants::default(), stop).await.expect("served");
    } else {
        let router = axum::Router::new()
            .route("/v1/listen", axum::routing::post(listen))
            .layer(DefaultBodyLimit::max(2 << 30))
            .with_state(Arc::new(parts));
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, router).await.expect("served");
    }
}

/// The same work as this server's for the bench's request, as one would write it with axum.
async fn listen(
    State(parts): State<Arc<api::Parts>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (request_id, created) = (Uuid::new_v4(), SystemTime::now());
    let Ok(caller) = parts.authenticator.caller(&headers).await else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let Ok(parameters) = Parameters::parse(query.as_deref().unwrap_or_default()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let raw = RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: 16_000, channels: 1 };
    let decoding =
        DecodeOptions { raw: Some(raw.into()), split_channels: false, limits: parts.audio.clone() };
    let decode = move || {
        let sha256 = Sha256::digest(&body).into();
        audio::decode(body, &decoding).map(|decoded| (decoded, sha256))
    };
    let Ok(Ok((decoded, sha256))) = tokio::task::spawn_blocking(decode).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let options = TranscribeOptions {
        tenant: TenantId(caller.tenant),
        ..TranscribeOptions::new(LanguageChoice::Named("en".into()))
    };
    let transcriber = parts.models.default().transcriber();
    let mut transcripts = Vec::new();
    for pcm in decoded.channels {
        match transcriber.transcribe(pcm, &options).await {
            Ok(transcript) => transcripts.push(transcript),
            Err(_) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
    let asked = Asked { request_id, created, parameters: &parameters, words: true };
    let heard = Heard {
        sha256,
        duration_seconds: decoded.duration_seconds,
        source_channels: decoded.source_channels,
        damaged: false,
        transcripts: &transcripts,
        names: &[],
        model: transcriber.model(),
    };
    let answer = axum::Json(response(&asked, &heard));
    ([("dg-request-id", request_id.to_string())], answer).into_response()
}

/// A server in its own process.
struct Server {
    process: Child,
    address: SocketAddr,
    key: String,
}

impl Server {
    fn start(which: &str) -> Self {
        let program = std::env::current_exe().expect("a path");
        let mut process = Command::new(program)
            .args(["--serve", which])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("an address");
        let (address, key) = line.trim().split_once(' ').expect("an address and a key");
        Self { address: address.parse().expect("an address"), key: key.to_owned(), process }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Delays in seconds, of one connection that asks again and again until `until`.
async fn ask(server: &Server, request: &[u8], until: Instant) -> Vec<f64> {
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    stream.set_nodelay(true).expect("a socket");
    let (mut buffer, mut delays) = (vec![0; 64 << 10], Vec::new());
    while Instant::now() < until {
        let begun = Instant::now();
        stream.write_all(request).await.expect("sent");
        let mut filled = 0;
        loop {
            let read = stream.read(&mut buffer[filled..]).await.expect("an answer");
            assert!(read > 0, "the server closed the connection");
            filled += read;
            let mut headers = [httparse::EMPTY_HEADER; 32];
            let mut head = httparse::Response::new(&mut headers);
            let Ok(httparse::Status::Complete(length)) = head.parse(&buffer[..filled]) else { continue };
            assert_eq!(head.code, Some(200));
            let is_length =
                |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("content-length");
            let header = head.headers.iter().find(is_length).expect("a length");
            let body: usize = std::str::from_utf8(header.value).expect("text").parse().expect("a number");
            if filled >= length + body {
                break;
            }
        }
        delays.push(begun.elapsed().as_secs_f64());
    }
    delays
}

/// Requests in a second, and the 50th and 99th percentile of their delays in milliseconds.
async fn load(server: &Server, connections: usize, body: usize) -> [f64; 3] {
    let mut request = format!(
        "POST /v1/listen?{QUERY} HTTP/1.1\r\nHost: {}\r\nAuthorization: Token {}\r\nContent-Type: audio/raw\r\n\
         Content-Length: {body}\r\n\r\n",
        server.address, server.key
    )
    .into_bytes();
    request.resize(request.len() + body, 0);
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(SECONDS);
    let asking = (0..connections).map(|_| ask(server, &request, until));
    let mut delays = futures_util::future::join_all(asking).await.concat();
    let seconds = begun.elapsed().as_secs_f64();
    delays.sort_by(f64::total_cmp);
    let percentile = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize] * 1e3;
    [delays.len() as f64 / seconds, percentile(0.5), percentile(0.99)]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(index) = arguments.iter().position(|argument| argument == "--serve") {
        let which = arguments.get(index + 1).map_or("", String::as_str);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        return runtime.block_on(serve(which));
    }
    let servers = ["verbatim", "axum"].map(Server::start);
    // One thread makes the load: the servers have the rest.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("medians of {ROUNDS} rounds of {SECONDS} s; requests/s, p50 ms, p99 ms");
    for (audio, body) in [("1 s", 32_000), ("10 s", 320_000)] {
        for connections in [1, 16, 64] {
            let mut rounds = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (server, rounds) in servers.iter().zip(&mut rounds) {
                    rounds.push(runtime.block_on(load(server, connections, body)));
                }
            }
            let figure =
                |rounds: &[[f64; 3]], which: usize| median(rounds.iter().map(|round| round[which]).collect());
            let [ours, axum] = rounds.map(|rounds| [0, 1, 2].map(|which| figure(&rounds, which)));
            println!(
                "{audio}, {connections} connections: verbatim {:.0}, {:.2}, {:.2}; axum {:.0}, {:.2}, {:.2}; \
                 requests {:.2}, p99 {:.2} of axum's",
                ours[0],
                ours[1],
                ours[2],
                axum[0],
                axum[1],
                axum[2],
                ours[0] / axum[0],
                ours[2] / axum[2]
            );
        }
    }
}
