//! The running servers whose doors the rows knock at, shared by all of them.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use http_body_util::{BodyExt as _, Full};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, StatusCode};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use verbatim::{fetch, http, jobs};

use super::calls;
use crate::live;
use crate::receiver::callback_parameter;
use crate::server::{Door, Setup, TestServer, answer, client, new_key, read};
use crate::socket::{self, Handshake};
use crate::speech::cache;
use crate::sts::room::Caller;
use crate::sts::{doubles, service};
use crate::tones::Listener;

/// The key of the demo's routes.
pub const DEMO_KEY: &str = "sesame";
/// A caller in the demo's records, with the last four digits and the date of birth.
pub const CALLER: (&str, &str, &str) = ("+12025550143", "4567", "1984-03-09");
/// The user that [`Doors::media`] lets in under `/private/`, with the password.
pub const MEDIA_USER: (&str, &str) = ("reader", "p@ss");

/// In this the reader hears two words, a second of silence, and one word.
pub const PAUSED: i16 = 30_010;
/// In these it hears English that can be written in more than one way.
pub const DICTATED: i16 = 30_011;
pub const RUDE: i16 = 30_012;
pub const MEASURED: i16 = 30_013;

/// The website of the demo's clinic.
const WEBSITE: &[(&str, &str)] = &[
    ("/", "<title>Clinic</title><p>Parking is free behind the building.</p><a href='/hours'>Hours</a>"),
    ("/hours", "<title>Opening hours</title><p>We are open on Saturday from ten to two.</p>"),
];

pub struct Doors {
    /// The built program with the `base` model: transcription, voice agent and demo backend.
    pub program: Program,
    /// Hears numbers, for rows that do not depend on speech.
    pub reader: TestServer,
    /// Hears words of levels, for streams.
    pub listener: TestServer,
    /// Serves recordings by URL.
    pub media: Door,
    /// Address of the clinic's website.
    pub website: String,
    _website: Door,
    spoken: OnceCell<(HeaderMap, Value)>,
    defaults: OnceCell<toml::Table>,
    call_actions: OnceCell<Vec<Value>>,
}

impl Doors {
    pub async fn open() -> Self {
        let media = Self::numbers().await;
        let (website, website_door) = doubles::website(WEBSITE).await;
        let nearby = || fetch::Config { allow: vec!["127.0.0.1".into()], ..fetch::Config::default() };
        let jobs = jobs::Config { retry_delays_seconds: vec![0.01; 7], ..jobs::Config::default() };
        let says = HashMap::from([
            (PAUSED, "One two | three"),
            (DICTATED, "Um, it's fifty five dollars comma due may second."),
            (RUDE, "Shit happens."),
            (MEASURED, "two point five grams"),
        ]);
        let reader = Setup { fetch: nearby(), jobs, says, ..Setup::default() };
        let listener = Setup { fetch: nearby(), model: Some(Box::new(Listener::new())), ..Setup::default() };
        let settings = settings(&website);
        let (program, reader, listener) = tokio::join!(
            Program::start(&["demo", "--with-sts", "--listen", "127.0.0.1:0"], &settings),
            TestServer::start(reader),
            TestServer::start(listener)
        );
        Self {
            program,
            reader,
            listener,
            media,
            website,
            _website: website_door,
            spoken: OnceCell::new(),
            defaults: OnceCell::new(),
            call_actions: OnceCell::new(),
        }
    }

    /// Another door like [`Self::media`].
    pub async fn numbers() -> Door {
        Door::open(media(), http::Config::default()).await
    }

    /// A request for a transcript of a recording, from the program.
    pub fn hear(&self, query: &str, file: &str) -> RequestBuilder {
        self.program.listen(query).body(recorded(file))
    }

    /// Head and body of one answer that many rows look at: a sentence, with `timestamps`.
    pub async fn spoken(&self) -> &(HeaderMap, Value) {
        let ask = async || {
            let response = self.hear("", "speech/jfk.wav").header("timestamps", "true").send().await;
            let response = response.expect("an answer");
            let headers = response.headers().clone();
            let (status, body) = read(response).await;
            assert_eq!(status, 200, "{body}");
            (headers, body)
        };
        self.spoken.get_or_init(ask).await
    }

    /// The output of `verbatim config` on a machine with no settings.
    pub async fn defaults(&self) -> &toml::Table {
        let show = async || {
            let state = tempfile::tempdir().expect("a folder");
            let mut command = bare(state.path());
            command.arg("config");
            let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
            String::from_utf8(output.expect("it runs").stdout).expect("text").parse().expect("TOML")
        };
        self.defaults.get_or_init(show).await
    }

    /// The actions by which the demo answers one telephone call.
    pub async fn call_actions(&self) -> &[Value] {
        self.call_actions.get_or_init(calls::call_actions).await
    }

    pub fn media_url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.media.address)
    }

    /// A request by URL, to the reader of numbers.
    pub fn by_url(&self, url: &str) -> RequestBuilder {
        let body = json!({"url": url}).to_string();
        self.reader.listen(crate::server::RAW, body).header("content-type", "application/json")
    }

    /// The status and message of a refused request by URL.
    pub async fn url_refusal(&self, url: &str) -> (u16, String, String) {
        let (status, body) = answer(self.by_url(url)).await;
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (status, text("err_code"), text("err_msg"))
    }

    /// A request to the reader with a callback.
    pub fn with_callback(&self, port: u16, query: &str, body: Vec<u8>) -> RequestBuilder {
        let callback = callback_parameter(&format!("http://127.0.0.1:{port}/done"));
        self.reader.listen(&format!("{query}&{callback}"), body)
    }

    /// Asks the listener for a stream.
    pub async fn handshake(&self, query: &str) -> Handshake {
        live::handshake(&self.listener, query).await
    }
}

/// A recording, or an encoded copy of one, that `./setup` has fetched or made.
pub fn recorded(file: &str) -> Vec<u8> {
    std::fs::read(cache(file)).expect("readable")
}

/// Recordings, numbers as raw samples, and both behind a password under `/private/`.
fn media() -> http::Router {
    let bytes = |path: &str| match path.strip_prefix("/private").unwrap_or(path) {
        "/number" => crate::server::say(9),
        path => recorded(path.trim_start_matches('/')),
    };
    let serve = move |request: http::Request| async move {
        let path = request.uri.path().to_owned();
        let expected = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            format!("{}:{}", MEDIA_USER.0, MEDIA_USER.1),
        );
        let given = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let is_let_in = !path.starts_with("/private/") || given == Some(&format!("Basic {expected}"));
        // A signature counts as it was made: escapes and order.
        let is_signed = path != "/signed" || request.uri.query() == Some("expires=9&signature=a%2Fb%3D");
        if !is_let_in || !is_signed {
            return Err(http::Failure::new(StatusCode::FORBIDDEN, "FORBIDDEN", "No."));
        }
        let body = if path == "/signed" { bytes("/number") } else { bytes(&path) };
        let body = Full::from(body).map_err(|never: std::convert::Infallible| match never {});
        Ok(http::Response::new(body.boxed_unsync()))
    };
    ["/number", "/private/number", "/signed", "/speech/{file}"]
        .iter()
        .fold(http::Router::new(), |router, path| router.route(Method::GET, path, serve))
}

/// A website nearby, and an agent that needs none of the slower models.
fn settings(website: &str) -> Vec<(&'static str, String)> {
    [
        ("VERBATIM_LISTEN", "127.0.0.1:0"),
        ("VERBATIM_FETCH_ALLOW", "127.0.0.1"),
        ("VERBATIM_STS__TURN__END_OF_TURN", "silence"),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "none"),
        ("DEMO_API_KEY", DEMO_KEY),
        ("DEMO_FRONTEND_BASE_URL", "http://127.0.0.1:0"),
        ("DEMO_WEBSITE_URL", website),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// The built program as a separate process.
pub struct Program {
    process: Child,
    pub state: TempDir,
    /// A valid key.
    pub key: String,
    /// Transcription and the voice agent; without them, the demo backend.
    pub address: SocketAddr,
    /// The demo backend, if it runs.
    pub demo: SocketAddr,
}

impl Program {
    /// Starts it with nothing of this machine's settings but `settings`.
    pub async fn start(arguments: &[&str], settings: &[(&str, String)]) -> Self {
        let state = tempfile::tempdir().expect("a folder");
        let key = new_key(state.path());
        let mut command = bare(state.path());
        command.args(arguments).envs(settings.iter().map(|(name, value)| (name, value)));
        command.env("VERBATIM_LOG__FORMAT", "json").env("VERBATIM_LOG__LEVEL", "info");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let serves_speech = arguments.contains(&"serve") || arguments.contains(&"--with-sts");
        let serves_demo = arguments.contains(&"demo");
        let start = move || {
            let mut process = command.spawn().expect("it starts");
            let mut log = BufReader::new(process.stderr.take().expect("piped"));
            let (mut speech, mut demo) = (None, None);
            while (serves_speech && speech.is_none()) || (serves_demo && demo.is_none()) {
                let mut line = String::new();
                assert_ne!(log.read_line(&mut line).expect("a log"), 0, "it ended before it listened");
                let entry: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                let address = entry["address"].as_str().and_then(|address| address.parse().ok());
                match entry["message"].as_str() {
                    Some("listening") => speech = address,
                    Some("demo listening") => demo = address,
                    _ => {}
                }
            }
            // Its log is read on, so that it never waits for a reader.
            std::thread::spawn(move || drop(log.read_to_end(&mut Vec::new())));
            (process, speech, demo)
        };
        let (process, speech, demo) = tokio::task::spawn_blocking(start).await.expect("no panic");
        let address: SocketAddr = speech.or(demo).expect("an address");
        Self { process, state, key, address, demo: demo.unwrap_or(address) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request with a key, not yet with a body.
    pub fn listen(&self, query: &str) -> RequestBuilder {
        client().post(self.url(&format!("/v1/listen?{query}"))).bearer_auth(&self.key)
    }

    pub async fn stream(&self, query: &str) -> Handshake {
        socket::listen(self.address, &self.key, query).await
    }

    /// A JSON body for one of the voice agent's routes.
    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = client().post(self.url(path)).header("content-type", "application/json");
        request.body(body.to_string())
    }

    pub fn action(&self, body: &Value) -> RequestBuilder {
        self.post("/STS/interactiveAgent", body)
    }

    /// The reply to an action that must succeed.
    pub async fn act(&self, body: Value) -> Value {
        let (status, reply) = answer(self.action(&body)).await;
        assert_eq!(status, 200, "{body}: {reply}");
        reply
    }

    /// The reply to a `start` with `fields`.
    pub async fn session(&self, mut fields: Value) -> Value {
        fields["action"] = "start".into();
        self.act(fields).await
    }

    /// The snapshot of a session.
    pub async fn status(&self, session: &Value) -> Value {
        self.act(json!({"action": "status", "session_id": session})).await
    }

    /// A JSON body with the key for one of the demo's routes.
    pub fn demo(&self, path: &str, body: &Value) -> RequestBuilder {
        let url = format!("http://{}{path}", self.demo);
        let request =
            client().post(url).header("x-api-key", DEMO_KEY).header("content-type", "application/json");
        request.body(body.to_string())
    }

    /// Asks for a session's snapshot until it is as wished; each answer leads to the next question.
    pub async fn until(&self, session: &Value, wish: impl Fn(&Value) -> bool) -> Value {
        service::until(async || self.status(session).await, wish).await
    }

    /// The status once all that the session was given is read.
    pub async fn ready(&self, session: &Value) -> Value {
        self.until(session, service::is_ready).await
    }

    /// Joins the room of a session once it has read all that it was given, and waits for the greeting to end.
    pub async fn joined(&self, started: &Value) -> Caller {
        self.ready(&started["session_id"]).await;
        let mut caller = Caller::join_at(self.address, started).await;
        caller.listen().await;
        caller
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program without this machine's settings, except the path of the models.
pub fn bare(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    for (name, _) in std::env::vars() {
        let settings = ["VERBATIM_", "XDG_", "HF_", "DEMO_", "STS_", "INTERACTIVE_", "LIVEKIT_"];
        if settings.iter().any(|settings| name.starts_with(settings)) {
            command.env_remove(name);
        }
    }
    command.env("HOME", state).env("VERBATIM_STATE_DIR", state);
    command.env("VERBATIM_MODEL_DIR", cache("models"));
    command
}
