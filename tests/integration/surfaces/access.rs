//! Keys and tokens at every route of /openapi.json and /asyncapi.json.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;
use verbatim::keys::{KeyId, Store};

use super::{Owner, SOCKETS, Surfaces, filled, has_its_form, new_key, told};

/// Operations that need no key. Some of them need something else: a room's token, a provider's signature.
const OPEN: [(&str, &str); 14] = [
    ("get", "/STS/rooms/{room}"),
    ("post", "/api/livekit/webhook"),
    ("get", "/api/twilio/stream-ended"),
    ("post", "/api/twilio/stream-ended"),
    ("get", "/api/twilio/incoming-call"),
    ("post", "/api/twilio/incoming-call"),
    ("get", "/api/twilio/media"),
    ("get", "/asyncapi.json"),
    ("get", "/health"),
    ("get", "/livez"),
    ("get", "/openapi.json"),
    ("get", "/readyz"),
    ("get", "/v1/status"),
    ("get", "/v1/status/engine"),
];
/// Operations for every key, whatever its scopes.
const FOR_EVERY_KEY: [(&str, &str); 3] =
    [("get", "/v1/auth/token"), ("get", "/v1/models"), ("get", "/v1/models/{model}")];
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// It opens none of the routes.
const IDLE_SCOPE: &str = "billing:write";
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

struct Operation {
    method: String,
    path: String,
    is_open: bool,
}

impl Operation {
    fn named(&self) -> (&str, &str) {
        (&self.method, &self.path)
    }

    fn is_socket(&self) -> bool {
        self.method == "get"
            && SOCKETS.iter().any(|socket| socket.split('?').next() == Some(self.path.as_str()))
    }

    /// Status and body with this key.
    async fn ask(&self, surfaces: &Surfaces, project: &str, key: Option<&str>) -> (u16, Value) {
        if self.is_socket() {
            let socket = SOCKETS.iter().find(|socket| socket.split('?').next() == Some(self.path.as_str()));
            let handshake = surfaces.handshake(socket.expect("a socket"), key).await;
            return (handshake.status, handshake.body);
        }
        let (status, body, _) = told(surfaces.request(&self.method, &filled(&self.path, project), key)).await;
        (status, body)
    }
}

async fn operations(surfaces: &Surfaces) -> Vec<Operation> {
    let document = surfaces.json("/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    let operations: Vec<Operation> = paths
        .iter()
        .flat_map(|(path, item)| {
            let item = item.as_object().expect("operations");
            item.iter().filter(|(method, _)| METHODS.contains(&method.as_str())).map(move |(method, told)| {
                let is_open = told.get("security").is_some_and(|security| *security == json!([]));
                Operation { method: method.clone(), path: path.clone(), is_open }
            })
        })
        .collect();
    let sockets = surfaces.json("/asyncapi.json").await;
    let sockets = sockets["channels"].as_object().expect("channels");
    for address in sockets.values().map(|channel| channel["address"].as_str().expect("text")) {
        let is_listed = |operation: &Operation| operation.path == address && operation.is_socket();
        assert!(operations.iter().any(is_listed), "{address} stands in one document alone, or is not tried");
    }
    assert!(operations.len() > 60, "{} operations", operations.len());
    operations
}

fn signed(header: &str, claims: &Value, key: &[u8]) -> String {
    let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
    let unsigned = format!("{}.{}", encode(header), encode(&claims.to_string()));
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(unsigned.as_bytes());
    format!("{unsigned}.{}", BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()))
}

/// Claims as the server makes them, of `owner`'s key for an organisation.
fn claims(owner: &Owner, project: &str, lived: u64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let (made, id) = (now - lived, KeyId::parse(&owner.key).expect("a key"));
    json!({"sub": id.as_str(), "aud": project, "scope": "usage:write", "iat": made, "exp": made + 600,
        "jti": Uuid::from_u128(2)})
}

/// Credentials that open nothing, with their fault.
fn invalid(surfaces: &Surfaces) -> Vec<(&'static str, Option<String>)> {
    let (first, second) = (&surfaces.first, &surfaces.second);
    let signing_key = std::fs::read(surfaces.state.path().join("keys.signing")).expect("a signing key");
    let token = |claims: &Value| signed(HEADER, claims, &signing_key);
    let good = claims(first, &first.project, 0);
    let none = signed(r#"{"alg":"none","typ":"JWT"}"#, &good, &signing_key);
    let unsigned = none.rsplit_once('.').expect("a signature").0.to_owned();
    let mut revoked = claims(first, &first.project, 0);
    revoked["sub"] = json!("aaaaaaaa");
    let wrong = format!("{}{}", &first.key[..first.key.len() - 8], "aaaaaaaa");
    vec![
        ("no key", None),
        ("a wrong key", Some(wrong)),
        ("the key of nothing", Some(String::from("org_"))),
        ("an expired token", Some(token(&claims(first, &first.project, 601)))),
        ("a token for another organisation", Some(token(&claims(first, &second.project, 0)))),
        ("a token of a key that is gone", Some(token(&revoked))),
        ("a token that is signed by another key", Some(signed(HEADER, &good, &[7; 32]))),
        ("a token with alg none", Some(format!("{unsigned}."))),
        ("a token with alg none and a signature", Some(none)),
    ]
}

#[tokio::test]
async fn no_route_opens_without_a_valid_key() {
    let surfaces = Surfaces::start(&[]).await;
    let revoked = new_key(&surfaces.state, Some(surfaces.first.tenant), &["owner"]);
    let id = KeyId::parse(&revoked.key).expect("a key");
    Store::open(surfaces.state.path())
        .and_then(|store| store.revoke(&id))
        .expect("keys")
        .expect("it was there");
    let mut credentials = invalid(&surfaces);
    credentials.push(("a revoked key", Some(revoked.key)));
    // The forger of this test can sign.
    let signing_key = std::fs::read(surfaces.state.path().join("keys.signing")).expect("a signing key");
    let good = signed(HEADER, &claims(&surfaces.first, &surfaces.first.project, 0), &signing_key);
    assert_eq!(told(surfaces.request("get", "/v1/auth/token", Some(&good))).await.0, 200);

    let mut faults = Vec::new();
    for operation in operations(&surfaces).await {
        assert_eq!(operation.is_open, OPEN.contains(&operation.named()), "{:?}", operation.named());
        if operation.is_open {
            continue;
        }
        for (fault, key) in &credentials {
            let (status, body) = operation.ask(&surfaces, &surfaces.first.project, key.as_deref()).await;
            if status != 401 || !has_its_form(&operation.path, &body) {
                faults.push(format!("{:?} with {fault}: {status} {body}", operation.named()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test]
async fn a_key_opens_what_its_scopes_name_and_an_organisation_its_own() {
    let surfaces = Surfaces::start(&[]).await;
    let (first, second) = (&surfaces.first, &surfaces.second);
    let idle = new_key(&surfaces.state, Some(first.tenant), &[IDLE_SCOPE]);
    crate::server::until_known(&surfaces.program.url(""), &idle.key).await;
    let mut faults = Vec::new();
    for operation in operations(&surfaces).await.iter().filter(|operation| !operation.is_open) {
        let (status, body) = operation.ask(&surfaces, &first.project, Some(&idle.key)).await;
        let is_for_all = FOR_EVERY_KEY.contains(&operation.named());
        if (status == 403) == is_for_all || (status == 403 && !has_its_form(&operation.path, &body)) {
            faults.push(format!("{:?} with an idle scope: {status} {body}", operation.named()));
        }
        if operation.path.contains("{project_id}") {
            let (status, body) = operation.ask(&surfaces, &first.project, Some(&second.key)).await;
            if status != 404 {
                faults.push(format!("{:?} by another organisation: {status} {body}", operation.named()));
            }
        }
        if operation.path == "/metrics" {
            assert_eq!(operation.ask(&surfaces, "", Some(&first.key)).await.0, 403, "it is for operators");
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    // Nothing of that removed anything.
    for owner in [first, second] {
        let (status, projects, _) = told(surfaces.request("get", "/v1/projects", Some(&owner.key))).await;
        assert_eq!((status, &projects["projects"][0]["project_id"]), (200, &json!(owner.project)));
    }
    tokio::time::timeout(Duration::from_secs(60), surfaces.program.stop()).await.expect("it ends");
}
