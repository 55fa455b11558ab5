//! Every route of the built program, as its own documents list them, under the same proofs: who is let in, what belongs to
//! whom, broken WebSockets, slow and many clients, large uploads.

mod access;
mod crowds;
mod ownership;
mod returns;
mod uploads;
mod violations;

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;
use verbatim::keys::{NewKey, Scopes, Store, public_id};

use crate::program::Program;
use crate::server::client;
use crate::socket::{Handshake, connect};
use crate::speech::cache;

/// For a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// An organisation's key that may do everything.
pub struct Owner {
    pub key: String,
    /// The id of its organisation in paths.
    pub project: String,
    pub tenant: u64,
}

/// The built program with a small model and a voice.
pub struct Surfaces {
    pub program: Program,
    pub state: TempDir,
    pub first: Owner,
    pub second: Owner,
}

impl Surfaces {
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let state = TempDir::new().expect("a folder");
        // Made before: a running server notices others a little later.
        let (first, second) = (owner(&state), owner(&state));
        let models = cache("models");
        let models = models.to_str().expect("text");
        let own = [("VERBATIM_MODEL_DIR", models), ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro")];
        let settings: Vec<_> = own.iter().chain(settings).copied().collect();
        let program = Program::start_with(state.path(), &cache("models/tiny.en"), &settings).await;
        Self { program, state, first, second }
    }

    pub fn request(&self, method: &str, path: &str, key: Option<&str>) -> RequestBuilder {
        let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
        let request = client().request(method, self.program.url(path)).timeout(PATIENCE);
        match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub async fn handshake(&self, path: &str, key: Option<&str>) -> Handshake {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        connect(self.program.address, path, &headers).await
    }

    pub async fn json(&self, path: &str) -> Value {
        told(self.request("get", path, None)).await.1
    }

    /// The value of a gauge, from the operator's page.
    pub async fn gauge(&self, operator: &str, name: &str) -> f64 {
        let page = self.request("get", "/metrics", Some(operator)).send().await.expect("an answer");
        let page = page.text().await.expect("text");
        let values = page.lines().filter(|line| line.starts_with(name));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// A key with these scopes, of a new organisation or of `tenant`'s.
pub fn new_key(state: &TempDir, tenant: Option<u64>, scopes: &[&str]) -> Owner {
    let scopes = Scopes::parse(scopes.iter().copied()).expect("scopes");
    let store = Store::open(state.path()).expect("keys");
    let (key, secret) =
        store.insert(NewKey { tenant, scopes, ..NewKey::of_a_client("test") }).expect("a key");
    let project = public_id::of_organisation(key.tenant).to_string();
    Owner { key: secret.expose().to_owned(), project, tenant: key.tenant }
}

fn owner(state: &TempDir) -> Owner {
    new_key(state, None, &["owner"])
}

/// Status, body and Retry-After of any answer; a body that is no JSON is null.
pub async fn told(request: RequestBuilder) -> (u16, Value, Option<u64>) {
    let response = request.send().await.expect("an answer");
    let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let status = response.status().as_u16();
    let body = response.bytes().await.expect("a whole body");
    (status, serde_json::from_slice(&body).unwrap_or_default(), after)
}

/// A path of the document with something in its places.
pub fn filled(path: &str, project: &str) -> String {
    let mut path = path.replace("{project_id}", project).replace("{model}", "tiny.en");
    while let Some((before, rest)) = path.split_once('{') {
        let after = rest.split_once('}').expect("a bracket's end").1;
        path = format!("{before}{}{after}", Uuid::from_u128(1));
    }
    path
}

/// Whether `body` is a failure in the form that the clients of `path` read.
pub fn has_its_form(path: &str, body: &Value) -> bool {
    if ["/v1/audio/", "/v1/realtime", "/v1/models"].iter().any(|own| path.starts_with(own)) {
        body["error"]["message"].is_string() && body["error"]["type"].is_string()
    } else {
        body["err_code"].is_string() && body["err_msg"].is_string() && body["request_id"].is_string()
    }
}

/// Paths of WebSockets, with what a handshake there needs.
pub const SOCKETS: [&str; 6] = [
    "/v1/listen?encoding=linear16&sample_rate=16000",
    "/v2/listen?model=flux-general-en&encoding=linear16&sample_rate=16000",
    "/v1/realtime?intent=transcription",
    "/v1/speak",
    "/v2/speak?model=flux-alexis-en",
    "/v1/agent/converse",
];
