//! The whole server on its own port, with a model that reads its answers from the samples.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use verbatim::api::{self, JobWork, Readiness, Services, State};
use verbatim::audio::Limits;
use verbatim::engine::{
    self, Attempt, EncodeRequest, Engine, Error, Hypothesis, LanguageChoice, ModelInfo, SlotId, SpeechModel,
    StepOutcome,
};
use verbatim::fetch::{self, Fetcher};
use verbatim::http::{self, Authenticator, Router, Shutdown, auth};
use verbatim::jobs::{self, Jobs};
use verbatim::keys::{Store, Verifier};
use verbatim::live::{self, Live};
use verbatim::registry::Registry;
use verbatim::share::Tenants;
use verbatim::speakers::Diarizer;
use verbatim::speech::{self, EmbeddedVoice, Speech, Voice};
use verbatim::transcribe::Transcriber;
use verbatim::transcript::{DetectedLanguage, Segment, Word};
use verbatim::usage::{self, Log};
use verbatim::voices::{self, Voices};

/// Query of raw audio as [`say`] makes it.
pub const RAW: &str = "encoding=linear16&sample_rate=16000";

/// A second of raw 16-bit mono audio in which the model hears `Number N.`, N below 30 000.
pub fn say(number: i16) -> Vec<u8> {
    say_for(number, 1.0)
}

pub fn say_for(number: i16, seconds: f64) -> Vec<u8> {
    let mut samples = vec![0i16; (seconds * 16_000.0) as usize];
    samples[0] = number;
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// In this the model fails.
pub const FAILS: i16 = 30_001;
/// In this it hears the terms that it was given, each with its weight.
pub const TERMS: i16 = 30_002;

/// Reads the number in the first sample. Knows English and Spanish.
struct Reader {
    info: ModelInfo,
    gate: Option<mpsc::Receiver<()>>,
    says: HashMap<i16, &'static str>,
    heard: Vec<(SlotId, i16, f64, String)>,
    terms: HashMap<SlotId, String>,
}

impl SpeechModel for Reader {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&mut self, requests: &[EncodeRequest]) -> Result<(), Error> {
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        for request in requests {
            let first = request.pcm.samples().first().copied().unwrap_or_default();
            let number = (first * 32768.0).round() as i16;
            if number == FAILS {
                return Err(Error::ModelFailed("a secret of the machine hall".into()));
            }
            self.heard.push((request.slot, number, request.pcm.duration_seconds(), "en".into()));
        }
        Ok(())
    }

    fn begin(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        for &Attempt { slot, options, .. } in attempts {
            let terms: Vec<_> =
                options.bias.iter().map(|term| format!("{}:{}", term.text, term.weight)).collect();
            self.terms.insert(slot, terms.join(" "));
            if let LanguageChoice::Named(code) = &options.language
                && let Some(heard) = self.heard.iter_mut().find(|heard| heard.0 == slot)
            {
                heard.3.clone_from(code);
            }
        }
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        Ok(vec![StepOutcome::Finished; slots.len()])
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let hypothesis = |slot: &SlotId| {
            let (_, number, seconds, language) =
                self.heard.iter().find(|heard| heard.0 == *slot).expect("encoded");
            let spoken = match self.says.get(number) {
                Some(text) => (*text).to_owned(),
                None if *number == TERMS => self.terms.get(slot).cloned().unwrap_or_default(),
                None => format!("Number {number}."),
            };
            let word = |(index, text): (usize, &str)| Word {
                text: format!(" {text}"),
                start: 0.25 * (index + 1) as f64,
                end: 0.25 * (index + 2) as f64,
                probability: 0.9,
                speaker: None,
            };
            // A `|` is a second of silence.
            let mut words: Vec<Word> = spoken.split_whitespace().enumerate().map(word).collect();
            let mut silence = 0.0;
            words.retain_mut(|word| {
                silence += if word.text == " |" { 1.0 } else { 0.0 };
                (word.start, word.end) = (word.start + silence, word.end + silence);
                word.text != " |"
            });
            let text = words.iter().map(|word| word.text.as_str()).collect();
            Hypothesis {
                segments: vec![Segment { text, start: 0.0, end: *seconds, words, ..Segment::default() }],
                language: DetectedLanguage { code: language.clone(), probability: 0.5 },
                average_log_probability: -0.1,
                no_speech_probability: 0.0,
                compression_ratio: 1.0,
                consumed_samples: (seconds * 16_000.0).round() as usize,
                tokens: Vec::new(),
                ranges: Vec::new(),
                ends_in_silence: true,
            }
        };
        Ok(slots.iter().map(hypothesis).collect())
    }

    fn release(&mut self, slot: SlotId) {
        self.heard.retain(|heard| heard.0 != slot);
    }
}

/// The settings that a test changes.
#[derive(Default)]
pub struct Setup {
    /// Organisations with keys; one by default.
    pub organisations: usize,
    pub http: http::Config,
    pub auth: auth::Config,
    pub api: api::Config,
    pub fetch: fetch::Config,
    pub engine: engine::Config,
    pub audio: Limits,
    pub live: live::Config,
    /// Further names of the model.
    pub names: Vec<String>,
    /// Instead of the one that reads numbers.
    pub model: Option<Box<dyn SpeechModel + Send>>,
    pub jobs: jobs::Config,
    /// Tells speakers apart; by default nothing does.
    pub diarizer: Option<Diarizer>,
    /// The words that the model hears in audio of these numbers, instead of `Number N.`: a word each quarter of a
    /// second.
    pub says: HashMap<i16, &'static str>,
    /// The model waits for a message here before each batch.
    pub gate: Option<mpsc::Receiver<()>>,
    /// The state directory of a server whose keys this one knows too, beside its own.
    pub keys_of: Option<PathBuf>,
}

pub struct TestServer {
    pub address: SocketAddr,
    /// A valid key.
    pub key: String,
    /// Those of other organisations.
    pub others: Vec<String>,
    /// One of an operator.
    pub operator: String,
    pub state: TempDir,
    pub engine: Engine,
    pub readiness: Readiness,
    pub live: Live,
    pub door: Door,
    /// Method and pattern of each.
    pub routes: Vec<(String, String)>,
    /// Ends jobs, as a signal does.
    pub stop_jobs: CancellationToken,
    _stops_jobs: DropGuard,
}

impl TestServer {
    pub async fn start(setup: Setup) -> Self {
        let info = ModelInfo {
            name: "reader".into(),
            uuid: uuid::Uuid::from_u128(42),
            languages: vec!["en".into(), "es".into()],
            slots: 4,
            encode_batch: 4,
            device: "script".into(),
            prompt_tokens: verbatim::engine::TokenCount::default(),
        };
        let reader =
            Reader { info, gate: setup.gate, says: setup.says, heard: Vec::new(), terms: HashMap::new() };
        let model = setup.model.unwrap_or(Box::new(reader));
        let load = move || Ok::<Box<dyn SpeechModel>, Infallible>(model);
        let engine = Engine::start(&setup.engine, load).expect("a scripted model loads");

        let state = tempfile::tempdir().expect("a directory");
        for file in ["keys.sqlite3", "keys.sqlite3-wal", "keys.pepper", "keys.signing"] {
            if let Some(other) = &setup.keys_of {
                // There may be no write-ahead log.
                let _ = std::fs::copy(other.join(file), state.path().join(file));
            }
        }
        let key = new_key(state.path());
        let operator = Store::open(state.path()).and_then(|store| store.create_operator("operator"));
        let (_, operator) = operator.expect("a key");
        let others = (1..setup.organisations).map(|_| new_key(state.path())).collect();
        let verifier = Store::open(state.path()).and_then(Verifier::new).expect("keys");
        let tenants = verifier.tenants();
        engine.share_between(tenants.clone());
        let readiness = Readiness::default();
        readiness.set(State::Ready);
        let live = Live::new(engine.clone(), None, setup.live, tenants.clone());
        let live = live.with_diarizer(setup.diarizer.clone());
        let voices = Voices::open(state.path(), &voices::Config::default()).expect("voices");
        let voiceless = speech::Config { embedded: EmbeddedVoice::None, ..speech::Config::default() };
        let voice = Voice::open(&voiceless, Path::new(".")).expect("no voice");
        let speech = Speech::new(voice, speech::Limits::default(), tenants.clone());
        let fetcher = Fetcher::new(&setup.fetch).expect("a fetcher");
        let jobs = Jobs::open(state.path(), &setup.jobs, fetcher.clone(), tenants.clone());
        let jobs = jobs.await.expect("jobs");
        let parts = api::Parts {
            models: Registry::of_one(Transcriber::new(engine.clone()), live.clone(), setup.names),
            diarizer: setup.diarizer,
            voices,
            speech,
            authenticator: Authenticator::new(verifier, setup.auth),
            fetcher,
            jobs: Some(jobs.clone()),
            readiness: readiness.clone(),
            tenants: tenants.clone(),
            usage: Log::open(state.path(), &usage::Config::default()).expect("a log"),
            audio: setup.audio,
            other_paths: serde_json::Map::new(),
            other_sockets: Vec::new(),
        };
        let services = Arc::new(Services::new(parts, &setup.api));
        let stop_jobs = CancellationToken::new();
        let (work, stop) = (Arc::new(JobWork::new(services.clone())), stop_jobs.clone());
        tokio::spawn(async move { jobs.run(work, stop).await });
        let router = api::router(services);
        let routes = routes(&router);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let door = Door::shared(listener, router, setup.http, tenants);
        Self {
            address: door.address,
            key,
            others,
            operator: operator.expose().to_owned(),
            state,
            engine,
            readiness,
            _stops_jobs: stop_jobs.clone().drop_guard(),
            stop_jobs,
            live,
            door,
            routes,
        }
    }

    /// A server with a full engine, the gate that lets it go on, and the request that fills it.
    pub async fn full() -> (Self, mpsc::Sender<()>, JoinHandle<(u16, serde_json::Value)>) {
        let (open, gate) = mpsc::channel();
        let engine = engine::Config { max_held_seconds: 1.0, ..engine::Config::default() };
        let server = Self::start(Setup { gate: Some(gate), engine, ..Setup::default() }).await;
        let first = tokio::spawn(answer(server.listen(RAW, say_for(5, 2.0))));
        while server.engine.held_seconds() == 0.0 {
            tokio::task::yield_now().await;
        }
        (server, open, first)
    }

    /// Sends again and again until the server has ended every stream.
    pub async fn send_until_cut(&self, mut send: impl AsyncFnMut()) {
        let flood = async {
            loop {
                send().await;
            }
        };
        let cut = async {
            while self.live.streams() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = flood => unreachable!("it goes on for ever"),
            () = cut => {}
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A listen request as the contract has it, not yet sent.
    pub fn listen(&self, query: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        client().post(self.url(&format!("/v1/listen?{query}"))).bearer_auth(&self.key).body(body)
    }
}

/// Waits until the server at `url` knows `key`, which another process has made: it looks for new ones now and then.
pub async fn until_known(url: &str, key: &str) {
    let known = async || {
        let asked = client().get(format!("{url}/v1/auth/token")).bearer_auth(key).send().await;
        asked.is_ok_and(|answer| answer.status() == 200)
    };
    let until = async { while !known().await {} };
    tokio::time::timeout(Duration::from_secs(30), until).await.expect("the key is known in time");
}

/// A key of one more organisation.
pub fn new_key(state: &Path) -> String {
    let (_, secret) = Store::open(state).and_then(|store| store.create("test")).expect("a key");
    secret.expose().to_owned()
}

/// Method and pattern of each route.
pub fn routes(router: &Router) -> Vec<(String, String)> {
    router.routes().map(|(method, pattern)| (method.as_str().to_lowercase(), pattern.to_owned())).collect()
}

/// The front door alone, before any routes.
pub struct Door {
    pub address: SocketAddr,
    stop: Ends,
    server: JoinHandle<Result<(), http::Error>>,
}

/// A test that drops its server stops it too.
struct Ends(Shutdown);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Door {
    pub async fn open(router: Router, config: http::Config) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a port"), router, config)
    }

    /// On a port that was taken before.
    pub fn on(listener: TcpListener, router: Router, config: http::Config) -> Self {
        Self::shared(listener, router, config, Tenants::default())
    }

    fn shared(listener: TcpListener, router: Router, config: http::Config, tenants: Tenants) -> Self {
        let address = listener.local_addr().expect("bound");
        let stop = Shutdown::default();
        let stopped = stop.clone();
        let server =
            tokio::spawn(async move { http::run(listener, router, &config, tenants, stopped).await });
        Self { address, stop: Ends(stop), server }
    }

    /// Makes it leave: it refuses new requests.
    pub fn leave(&self) {
        self.stop.0.leave();
    }

    pub async fn stop(self) {
        self.stop.0.close();
        self.server.await.expect("no panic").expect("served");
    }

    /// Makes it stop; the handle ends once it has.
    pub fn begin_to_stop(self) -> JoinHandle<Result<(), http::Error>> {
        self.stop.0.close();
        self.server
    }
}

/// A client with its own connection.
pub fn client() -> reqwest::Client {
    // `Fetcher` does this in a server; some tests have none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// Status and JSON of an answer, after checks that hold for every answer of the server.
pub async fn answer(request: reqwest::RequestBuilder) -> (u16, serde_json::Value) {
    read(request.send().await.expect("an answer")).await
}

pub async fn read(response: reqwest::Response) -> (u16, serde_json::Value) {
    let status = response.status().as_u16();
    let header =
        |name: &str| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"));
    let id = header("dg-request-id").expect("an id");
    assert_eq!(header("x-request-id").as_deref(), Some(id.as_str()));
    uuid::Uuid::parse_str(&id).expect("a uuid");
    let body = response.bytes().await.expect("a whole body");
    let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    if status >= 400 {
        let keys: HashSet<_> = body.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, HashSet::from(["err_code", "err_msg", "request_id"]), "{body}");
        assert_eq!(body["request_id"], id.as_str());
    }
    (status, body)
}

/// Status and code of a refusal.
pub async fn refusal(request: reqwest::RequestBuilder) -> (u16, String) {
    let (status, body) = answer(request).await;
    assert!(status >= 400, "{status} {body}");
    (status, body["err_code"].as_str().expect("text").to_owned())
}

/// The first alternative of an answer's first channel.
pub fn alternative(body: &serde_json::Value) -> &serde_json::Value {
    &body["results"]["channels"][0]["alternatives"][0]
}

/// The transcripts of an answer, by channel.
pub fn transcripts(body: &serde_json::Value) -> Vec<&str> {
    let channels = body["results"]["channels"].as_array().expect("channels");
    channels.iter().map(|channel| channel["alternatives"][0]["transcript"].as_str().expect("text")).collect()
}
