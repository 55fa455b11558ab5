//! The console's routes through the real door.

mod pages;
mod routes;
mod sessions;

use std::ffi::OsStr;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::keys::{KeyId, Store};

use crate::program::Program;
use crate::server::client;

const SMALL_MODEL: [&str; 6] = ["--model", "synthetic:tiny", "--tokens", "8", "--device", "cpu"];
const PATIENCE: Duration = Duration::from_secs(30);
/// Half a second until the server notices, and what a busy machine adds.
const NOTICE: Duration = Duration::from_secs(5);

struct Desk {
    state: TempDir,
    program: Program,
    /// The id of the admin's key, and its text.
    admin: (KeyId, String),
}

impl Desk {
    async fn new(settings: &[(&str, &str)]) -> Self {
        let state = TempDir::new().expect("a directory");
        let store = Store::open(state.path()).expect("keys");
        let (key, secret) = store.create_admin("Ada").expect("a key");
        let program = Program::serve(state.path(), &SMALL_MODEL.map(OsStr::new), settings).await;
        Self { state, program, admin: (key.id, secret.expose().to_owned()) }
    }

    fn store(&self) -> Store {
        Store::open(self.state.path()).expect("keys")
    }

    /// A request as a page of the console sends it, but for `fields`.
    fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let own = format!("http://{}", self.program.address);
        let mut headers = HeaderMap::new();
        let usual = [("origin", &*own), ("sec-fetch-site", "same-origin"), ("x-verbatim-console", "1")];
        for (name, value) in usual.into_iter().chain(fields.iter().copied()) {
            let name = HeaderName::try_from(name).expect("a name");
            match value {
                "" => drop(headers.remove(name)),
                value => drop(headers.insert(name, HeaderValue::try_from(value).expect("a value"))),
            }
        }
        client().request(method, self.program.url(path)).headers(headers)
    }

    async fn sign_in(&self, body: &Value) -> Response {
        with_json(self.ask(Method::POST, "/console/session", &[]), body).send().await.expect("an answer")
    }

    /// The cookie of a new session.
    async fn cookie(&self) -> String {
        let answer = self.sign_in(&json!({ "key": self.admin.1 })).await;
        assert_eq!(answer.status(), 200);
        let set = answer.headers()["set-cookie"].to_str().expect("text");
        set.split(';').next().expect("a cookie").to_owned()
    }

    async fn status(&self, method: Method, path: &str, cookie: &str, fields: &[(&str, &str)]) -> u16 {
        let fields: Vec<_> = [("cookie", cookie)].into_iter().chain(fields.iter().copied()).collect();
        self.ask(method, path, &fields).send().await.expect("an answer").status().as_u16()
    }

    async fn get(&self, path: &str, cookie: &str) -> Value {
        self.send(Method::GET, path, cookie, None, 200).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        cookie: &str,
        body: Option<Value>,
        expected: u16,
    ) -> Value {
        let mut request = self.ask(method, path, &[("cookie", cookie)]);
        if let Some(body) = body {
            request = with_json(request, &body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        assert_eq!(answer.headers()["cache-control"], "no-store", "{path}");
        assert!(status != 200 || answer.headers().contains_key("content-security-policy"), "{path}");
        let body = answer.text().await.expect("text");
        assert_eq!(status, expected, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
    }
}

/// `body` in JSON, as a page sends it.
fn with_json(request: reqwest::RequestBuilder, body: &Value) -> reqwest::RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

async fn json_of(answer: Response) -> Value {
    serde_json::from_slice(&answer.bytes().await.expect("bytes")).expect("JSON")
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}
