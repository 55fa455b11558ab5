//! The front door over real sockets: limits, attacks, shutdown.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use verbatim::api::State;
use verbatim::http::{Config, Failure, Request, Router, json as reply_json};

use crate::server::{Door, Setup, TestServer, answer, client, read, refusal};

/// Answers with the length of the body; `/panic` panics; `/wait` waits for `gate`.
pub fn router(gate: Arc<Notify>) -> Router {
    let count = |request: Request| async {
        let body = request.body.collect().await?;
        Ok(reply_json(StatusCode::OK, &json!({"bytes": body.bytes().len()})))
    };
    let wait = move |_: Request| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok(reply_json(StatusCode::OK, &json!({"waited": true})))
        }
    };
    let panics = |request: Request| async move {
        assert!(request.captures.is_empty(), "a secret of the handler");
        Err(Failure::internal("unreachable"))
    };
    Router::new()
        .route(Method::POST, "/count", count)
        .route(Method::GET, "/wait", wait)
        .route(Method::GET, "/panic/{x}", panics)
        .route(Method::GET, "/ok", |_| async { Ok(reply_json(StatusCode::OK, &json!({"ok": true}))) })
}

pub async fn door(config: Config) -> Door {
    Door::open(router(Arc::default()), config).await
}

/// Sends `bytes` unchanged; returns everything until the server closes.
pub async fn raw(door: &Door, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    let mut reply = Vec::new();
    // A reset after the answer is an end too.
    let _ = stream.read_to_end(&mut reply).await;
    String::from_utf8_lossy(&reply).into_owned()
}

pub fn statuses(reply: &str) -> Vec<u16> {
    let lines = reply.split("\r\n").flat_map(|line| line.split("HTTP/1.1 ").skip(1));
    lines.filter_map(|line| line.get(..3)?.parse().ok()).collect()
}

/// The bodies of the failures in `reply`, after checks that hold for each of them.
pub fn failures(reply: &str) -> Vec<serde_json::Value> {
    let answers = reply.split("HTTP/1.1 ").skip(1).filter(|answer| answer.starts_with(['4', '5']));
    let failure = |answer: &str| {
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        assert_eq!(field("content-type: "), "application/json");
        let length: usize = field("content-length: ").parse().expect("a number");
        let body: serde_json::Value = serde_json::from_str(&body[..length]).expect("JSON");
        assert_eq!(body["request_id"], field("dg-request-id: "));
        assert!(body["err_code"].is_string() && body["err_msg"].is_string(), "{body}");
        body
    };
    answers.map(failure).collect()
}

#[tokio::test]
async fn health_needs_no_key_and_readiness_follows_the_app() {
    let server = TestServer::start(Setup::default()).await;
    let get = |path: &str| client().get(server.url(path));
    assert_eq!(answer(get("/health")).await, (200, json!({"status": "ok", "ready": true})));
    assert_eq!(answer(get("/livez")).await.0, 200);
    assert_eq!(answer(get("/readyz")).await.0, 200);
    let models = json!([{"name": "reader", "state": "loaded", "default": true}]);
    let status = json!({
        "system_health": "Healthy",
        "active_batch_requests": 0,
        "active_stream_requests": 0,
        "models": models,
    });
    assert_eq!(answer(get("/v1/status")).await, (200, status));
    server.readiness.set(State::Draining);
    assert_eq!(answer(get("/health")).await, (200, json!({"status": "ok", "ready": false})));
    assert_eq!(answer(get("/livez")).await.0, 200);
    assert_eq!(refusal(get("/readyz")).await.0, 503);
}

#[tokio::test]
async fn a_panic_costs_one_request() {
    let door = door(Config::default()).await;
    let client = client();
    let url = |path: &str| format!("http://{}{path}", door.address);
    let (status, body) = answer(client.get(url("/panic/1"))).await;
    assert_eq!((status, &body["err_code"]), (500, &json!("INTERNAL_ERROR")));
    assert!(!body.to_string().contains("secret"));
    assert_eq!(answer(client.get(url("/ok"))).await.0, 200);
}

#[tokio::test]
async fn too_large_a_body_is_refused_early_or_when_it_has_come() {
    let door = door(Config { body_bytes_max: 1000, ..Config::default() }).await;
    let url = format!("http://{}/count", door.address);
    assert_eq!(answer(client().post(&url).body(vec![0; 1000])).await, (200, json!({"bytes": 1000})));
    assert_eq!(refusal(client().post(&url).body(vec![0; 1001])).await, (413, "PAYLOAD_TOO_LARGE".into()));
    // Announced and not sent: the answer does not wait for it.
    let reply = raw(&door, "POST /count HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n").await;
    assert_eq!(statuses(&reply), [413], "{reply}");
    let chunks = |count: usize| {
        let chunks = (0..count).map(|_| Ok::<_, std::io::Error>(vec![0u8; 500]));
        reqwest::Body::wrap_stream(futures_util::stream::iter(chunks))
    };
    assert_eq!(answer(client().post(&url).body(chunks(2))).await, (200, json!({"bytes": 1000})));
    assert_eq!(refusal(client().post(&url).body(chunks(3))).await, (413, "PAYLOAD_TOO_LARGE".into()));
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_gets_its_refusal() {
    let door = door(Config { body_bytes_max: 1000, ..Config::default() }).await;
    let bytes = 20 << 20;
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    let head = format!("POST /count HTTP/1.1\r\nhost: x\r\ncontent-length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![0; bytes]).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert_eq!(statuses(&reply), [413]);
    assert!(reply.ends_with('}'), "{reply}");
}

#[tokio::test]
async fn bodies_share_a_bounded_memory() {
    let door = door(Config { buffered_bytes_max: 8192, ..Config::default() }).await;
    let url = format!("http://{}/count", door.address);
    assert_eq!(answer(client().post(&url).body(vec![0; 8192])).await.0, 200);
    let response = client().post(&url).body(vec![0; 8193]).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(read(response).await.0, 503);
    assert_eq!(answer(client().post(&url).body(vec![0; 8192])).await.0, 200);
}

#[tokio::test]
async fn slow_bodies_are_given_up() {
    let config = Config { body_idle_timeout_ms: 50, ..Config::default() };
    let idle = door(config.clone()).await;
    let reply = raw(&idle, "POST /count HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc").await;
    assert_eq!(statuses(&reply), [408], "{reply}");
    assert!(reply.contains("REQUEST_TIMEOUT"), "{reply}");
    // Never idle for long, never fast enough.
    let config = Config { body_grace_ms: 100, body_bytes_per_second_min: 1_000_000, ..config };
    let trickle = door(config).await;
    let mut stream = TcpStream::connect(trickle.address).await.unwrap();
    stream.write_all(b"POST /count HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sender = tokio::spawn(async move {
        let mut pulse = tokio::time::interval(Duration::from_millis(10));
        while writer.write_all(b"x").await.is_ok() {
            pulse.tick().await;
        }
    });
    let mut reply = vec![0; 1024];
    let length = reader.read(&mut reply).await.unwrap();
    assert_eq!(statuses(&String::from_utf8_lossy(&reply[..length])), [408]);
    sender.abort();
}

#[tokio::test]
async fn connections_that_say_nothing_or_half_are_closed() {
    let config = Config { header_timeout_ms: 50, ..Config::default() };
    let door = door(config).await;
    for bytes in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /ok HTT",
        "GET /ok HTTP/1.1\r\nhost: x\r\n",
    ] {
        // That it returns at all is the test; nothing, or a farewell of HTTP/2, was said.
        assert_eq!(statuses(&raw(&door, bytes).await), [0u16; 0], "{bytes:?}");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time() {
    let door = door(Config { idle_timeout_ms: 50, ..Config::default() }).await;
    let reply = raw(&door, "GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(statuses(&reply), [200], "{reply}");
}

#[tokio::test]
async fn connections_are_counted() {
    let door = door(Config { connections_per_address_max: 1, ..Config::default() }).await;
    let first = client();
    let url = format!("http://{}/ok", door.address);
    assert_eq!(answer(first.get(&url)).await.0, 200);
    assert_eq!(statuses(&raw(&door, "GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await), [0u16; 0]);
    assert_eq!(answer(first.get(&url)).await.0, 200);
}

#[tokio::test]
async fn a_drain_finishes_what_was_begun_and_takes_nothing_new() {
    let gate = Arc::new(Notify::new());
    let door = Door::open(router(gate.clone()), Config::default()).await;
    let address = door.address;
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // An answer on the idle one means that the server has seen both.
    idle.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(idle.read_u8().await.unwrap(), b'H');

    let ended = door.begin_to_stop();
    let mut rest = String::new();
    idle.read_to_string(&mut rest).await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "it still listens");
    assert!(!ended.is_finished(), "it did not wait for the request");
    gate.notify_one();
    let mut reply = String::new();
    busy.read_to_string(&mut reply).await.unwrap();
    assert_eq!(statuses(&reply), [200]);
    assert!(reply.ends_with(r#"{"waited":true}"#), "{reply}");
    ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_leaves_refuses_what_is_new_and_keeps_its_port_open() {
    let gate = Arc::new(Notify::new());
    let health = |_: Request| async { Ok(reply_json(StatusCode::OK, &json!({"well": true}))) };
    let router = router(gate.clone()).route_to_the_end(Method::GET, "/health", health);
    let door = Door::open(router, Config::default()).await;
    let url = |path: &str| format!("http://{}{path}", door.address);
    let mut busy = TcpStream::connect(door.address).await.unwrap();
    busy.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    // An answer means that the server has seen both.
    assert_eq!(answer(client().get(url("/ok"))).await.0, 200);

    door.leave();
    while answer(client().get(url("/ok"))).await.0 == 200 {
        tokio::task::yield_now().await;
    }
    let response = client().get(url("/ok")).send().await.unwrap();
    assert_eq!(response.headers()["connection"], "close");
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(read(response).await.0, 503);
    assert_eq!(refusal(client().post(url("/count")).body(vec![0; 100_000])).await.0, 503);
    assert_eq!(refusal(client().get(url("/no"))).await.0, 404);
    assert_eq!(answer(client().get(url("/health"))).await, (200, json!({"well": true})));
    // The same over HTTP/2, which has no such header.
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let response = http2.get(url("/ok")).send().await.unwrap();
    assert_eq!(response.headers().get("connection"), None);
    assert_eq!(read(response).await.0, 503);

    gate.notify_one();
    let mut reply = String::new();
    busy.read_to_string(&mut reply).await.unwrap();
    assert!(reply.ends_with(r#"{"waited":true}"#), "{reply}");
    let address = door.address;
    door.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "it still listens");
}

#[tokio::test]
async fn a_burst_of_connections_waits_in_the_kernel() {
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = verbatim::http::listen(address).unwrap();
    let address = listener.local_addr().unwrap();
    // As many as the system lets wait, but no more than a test may open.
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let burst = most.trim().parse::<usize>().unwrap().min(200);
    // Nothing accepts: without room in the queue a connection would not be established.
    let mut connections = Vec::new();
    for number in 0..burst {
        let connected = tokio::time::timeout(Duration::from_secs(30), TcpStream::connect(address)).await;
        connections.push(connected.unwrap_or_else(|_| panic!("no room for {number}")).unwrap());
    }
}

#[tokio::test]
async fn a_port_is_taken_again_at_once_and_not_by_two() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = match verbatim::http::listen(address.parse().unwrap()) {
            // A machine without IPv6.
            Err(_) if address.starts_with('[') => continue,
            listener => listener.unwrap(),
        };
        let address = listener.local_addr().unwrap();
        assert!(verbatim::http::listen(address).is_err(), "{address} is taken");
        // This end closes first, so that the connection's TIME_WAIT stays here.
        let peer = TcpStream::connect(address).await.unwrap();
        drop(listener.accept().await.unwrap());
        drop(listener);
        verbatim::http::listen(address).unwrap();
        drop(peer);
    }
}

#[tokio::test]
async fn a_drain_ends_when_its_time_is_over() {
    let door = door(Config { drain_timeout_ms: 50, ..Config::default() }).await;
    let mut busy = TcpStream::connect(door.address).await.unwrap();
    busy.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(answer(client().get(format!("http://{}/ok", door.address))).await.0, 200);
    door.stop().await;
    assert_eq!(busy.read(&mut [0; 1]).await.unwrap_or(0), 0);
}
