//! The demo backend, with a double of the voice-agent service behind it.

mod calls;
mod pages;
mod patients;

use std::sync::{Arc, Mutex};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use verbatim::demo::{self, Config, Demo};
use verbatim::http::{self, Failure, Router, json as reply_json};
use verbatim::secret::Secret;

use crate::server::{Door, answer, client, read, refusal};

const SESSION: &str = "sess_0123456789ab";
const ROOM: &str = "sts-7d4f3a52-9f0e-4d4c-8a21-3f5b6c7d8e9f";
const KEY: &str = "sesame";

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Well,
    /// Every action but `start` fails.
    Failing,
    Busy,
    Silent,
}

/// The number that is bound to the double's session.
type Bound = Arc<Mutex<Option<&'static str>>>;

/// A request that reached the double: the body's bytes, and `Authorization`.
type Log = Arc<Mutex<Vec<(Vec<u8>, String)>>>;

/// The voice-agent service, as the contract has it: knows one session.
async fn double(mood: Mood, log: Log, bound: Bound) -> Door {
    let agent = move |request: http::Request| {
        let (log, bound) = (log.clone(), bound.clone());
        async move {
            let key =
                request.headers.get("authorization").map_or("", |key| key.to_str().expect("text")).to_owned();
            let body = request.body.collect().await?;
            log.lock().expect("no panic").push((body.bytes().to_vec(), key));
            let bad = |status, code: &'static str| Failure::new(status, code, "No.");
            if mood == Mood::Silent {
                std::future::pending::<()>().await;
            }
            let action: Value = serde_json::from_slice(&body.bytes())
                .map_err(|_| bad(StatusCode::BAD_REQUEST, "INVALID_JSON"))?;
            match (mood, action["action"].as_str()) {
                (Mood::Busy, _) => Err(Failure::busy(std::time::Duration::from_secs(7))),
                (_, Some("start")) => {
                    let reply = json!({"ok": true, "session_id": SESSION, "room_name": ROOM});
                    Ok(reply_json(StatusCode::OK, &reply))
                }
                (Mood::Failing, _) => Err(Failure::internal("broken")),
                _ if action["session_id"] != SESSION => Err(bad(StatusCode::NOT_FOUND, "SESSION_NOT_FOUND")),
                (_, Some("status")) => {
                    let bound = *bound.lock().expect("no panic");
                    let reply = json!({"ok": true, "session_id": SESSION, "caller_number": bound});
                    Ok(reply_json(StatusCode::OK, &reply))
                }
                _ => Ok(reply_json(StatusCode::OK, &json!({"ok": true, "session_id": SESSION}))),
            }
        }
    };
    Door::open(Router::new().route(Method::POST, "/STS/interactiveAgent", agent), http::Config::default())
        .await
}

struct Backend {
    door: Door,
    site: Door,
    sts: Door,
    log: Log,
    bound: Bound,
}

impl Backend {
    async fn start(mood: Mood, config: Config) -> Self {
        let (log, bound) = (Log::default(), Bound::default());
        let sts = double(mood, log.clone(), bound.clone()).await;
        let config = Config {
            api_key: Some(Secret::from(KEY)),
            sts_base_url: format!("http://{}/", sts.address),
            sts_timeout_ms: if mood == Mood::Silent { 100 } else { 10_000 },
            ..config
        };
        let demo = Demo::new(&config).expect("a demo");
        let door = Door::open(demo::router(&demo), http::Config::default()).await;
        let site = Door::open(demo::site(&demo), http::Config::default()).await;
        Self { door, site, sts, log, bound }
    }

    async fn well() -> Self {
        Self::start(Mood::Well, Config::default()).await
    }

    fn bind(&self, number: Option<&'static str>) {
        *self.bound.lock().expect("no panic") = number;
    }

    fn post(&self, path: &str) -> reqwest::RequestBuilder {
        client().post(format!("http://{}{path}", self.door.address)).header("x-api-key", KEY)
    }

    fn send(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.post(path).header("content-type", "application/json").body(body.to_string())
    }

    /// Those among them that change something.
    fn changes(&self) -> Vec<Value> {
        self.actions().into_iter().filter(|action| action["action"] != "status").collect()
    }

    async fn call(&self) -> (u16, String) {
        let form = "CallSid=CA1&From=%2B12025550143&To=%2B15005550006";
        let response =
            client().post(format!("http://{}/webhooks/twilio/incoming-call", self.door.address)).body(form);
        let response = response.send().await.expect("an answer");
        let status = response.status().as_u16();
        assert_eq!(response.headers()["content-type"], "text/xml");
        (status, response.text().await.expect("text"))
    }

    /// The actions that reached the service since the last look.
    fn actions(&self) -> Vec<Value> {
        let log = std::mem::take(&mut *self.log.lock().expect("no panic"));
        log.iter().map(|(body, _)| serde_json::from_slice(body).expect("JSON")).collect()
    }
}

/// The routes that ask for a key.
pub const KEYED: [&str; 7] = [
    "/api/interactive-agent",
    "/api/hooks/voice-verify",
    "/api/client/form-event",
    "/api/client/form-even",
    "/api/client/verify-and-submit",
    "/api/client/verify-patient-info-demo",
    "/api/client/form-completed",
];

#[tokio::test]
async fn every_route_but_health_and_the_webhooks_asks_for_the_key() {
    let backend = Backend::well().await;
    for path in KEYED {
        let url = format!("http://{}{path}", backend.door.address);
        for keys in [&[][..], &["wrong"], &[""], &["verbatim-demo-key"], &[KEY, KEY]] {
            let request =
                keys.iter().fold(client().post(&url), |request, key| request.header("x-api-key", *key));
            assert_eq!(refusal(request.body("{}")).await, (401, "INVALID_AUTH".into()), "{path} {keys:?}");
        }
        let get = client().get(&url).header("x-api-key", KEY);
        assert_eq!(refusal(get).await.0, 405, "{path}");
    }
    let health = client().get(format!("http://{}/health", backend.door.address));
    assert_eq!(answer(health).await, (200, json!({"status": "ok"})));
    assert!(backend.actions().is_empty());
}

#[tokio::test]
async fn the_proxy_passes_bodies_and_answers_as_they_are() {
    let config = Config { sts_api_key: Some(Secret::from("org_1")), ..Config::default() };
    let backend = Backend::start(Mood::Well, config).await;
    let body = format!("{{ \"session_id\" : \"{SESSION}\",\n \"action\":\"status\", \"x\": 1.0e2 }} ");
    let (status, reply) =
        read(backend.post(KEYED[0]).body(body.clone()).send().await.expect("an answer")).await;
    assert_eq!((status, reply), (200, json!({"ok": true, "session_id": SESSION, "caller_number": null})));
    assert_eq!(*backend.log.lock().expect("no panic"), [(body.into_bytes(), "Bearer org_1".to_owned())]);
    for (body, expected) in
        [("not JSON", (400, "INVALID_JSON")), (r#"{"action": "status"}"#, (404, "SESSION_NOT_FOUND"))]
    {
        let response = backend.post(KEYED[0]).body(body).send().await.expect("an answer");
        let status = response.status().as_u16();
        let reply: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert_eq!((status, reply["err_code"].as_str().expect("text")), expected);
    }
    let backend = Backend::start(Mood::Failing, Config::default()).await;
    let response = backend.post(KEYED[0]).body(r#"{"action": "status"}"#).send().await.expect("an answer");
    assert_eq!(response.status(), 500);
}

#[tokio::test]
async fn trouble_with_the_service_is_told_apart() {
    let event = json!({"session_id": SESSION, "page": "/forms"});
    let paths = ["/api/interactive-agent", "/api/client/form-event"];
    let backend = Backend::start(Mood::Silent, Config::default()).await;
    for path in paths {
        assert_eq!(refusal(backend.send(path, &event)).await, (504, "STS_TIMEOUT".into()));
    }
    let backend = Backend::start(Mood::Failing, Config::default()).await;
    assert_eq!(refusal(backend.send(paths[1], &event)).await, (502, "STS_UNAVAILABLE".into()));
    let backend = Backend::start(Mood::Busy, Config::default()).await;
    for path in paths {
        let response = backend.send(path, &event).send().await.expect("an answer");
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (503, &"7".parse().expect(""))
        );
    }
    let Backend { door, sts, site: _site, log: _log, bound: _bound } = Backend::well().await;
    sts.stop().await;
    for path in paths {
        let request = client().post(format!("http://{}{path}", door.address)).header("x-api-key", KEY);
        assert_eq!(refusal(request.body(event.to_string())).await, (502, "STS_UNAVAILABLE".into()));
    }
}
