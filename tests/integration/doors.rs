//! The front door over real sockets: keys, limits, time, protocols and the end.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use verbatim::api::State;
use verbatim::http::{Config, Failure, Request, Router, TlsConfig, auth, json as reply_json};
use verbatim::keys::{REFRESH_INTERVAL, Secret, Store};

use crate::server::{Door, RAW, Setup, TestServer, answer, client, read, refusal, say, transcripts};

/// Answers with the length of the body; `/panic` panics; `/wait` waits for `gate`.
fn router(gate: Arc<Notify>) -> Router {
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

async fn door(config: Config) -> Door {
    Door::open(router(Arc::default()), config).await
}

/// Sends `bytes` as they are; everything that came back until the server closed.
async fn raw(door: &Door, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    let mut reply = Vec::new();
    // A reset after the answer is an end too.
    let _ = stream.read_to_end(&mut reply).await;
    String::from_utf8_lossy(&reply).into_owned()
}

fn statuses(reply: &str) -> Vec<u16> {
    let lines = reply.split("\r\n").flat_map(|line| line.split("HTTP/1.1 ").skip(1));
    lines.filter_map(|line| line.get(..3)?.parse().ok()).collect()
}

#[tokio::test]
async fn only_a_valid_key_opens() {
    let server = TestServer::start(Setup::default()).await;
    let key = server.key.clone();
    let stranger = Secret::generate();
    let post = |authorization: &[&str]| {
        let mut request = client().post(server.url(&format!("/v1/listen?{RAW}"))).body(say(1));
        for value in authorization {
            request = request.header("authorization", *value);
        }
        request
    };
    for scheme in ["Bearer", "bearer", "BEARER", "Token", "token"] {
        assert_eq!(answer(post(&[&format!("{scheme} {key}")])).await.0, 200, "{scheme}");
    }
    let (mut changed, bare) = (key.clone(), key.replacen("org_", "", 1));
    changed.replace_range(20..21, if &key[20..21] == "a" { "b" } else { "a" });
    let good = format!("Bearer {key}");
    for authorization in [
        &[][..],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &[key.as_str()],
        &[&format!("Basic {key}")],
        &[&format!("Bearer {changed}")],
        &[&format!("Bearer {bare}")],
        &[&format!("Bearer sk_{bare}")],
        &[&format!("Bearer {}", stranger.expose())],
        &[&format!("Bearer {} {key}", stranger.expose())],
        &[&format!("Bearer {}", key.to_uppercase())],
        &[&good, &good],
        &["Bearer org_"],
        &["Bearer org_'; DROP TABLE keys; --"],
    ] {
        let response = post(authorization).send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let (status, body) = read(response).await;
        assert_eq!(
            (status, &body["err_code"], &body["err_msg"]),
            (401, &json!("INVALID_AUTH"), &json!("Invalid credentials.")),
            "{authorization:?}"
        );
    }
    let in_query =
        client().post(server.url(&format!("/v1/listen?{RAW}&api_key={key}&token={key}"))).body(say(1));
    assert_eq!(refusal(in_query).await.0, 401);
}

#[tokio::test]
async fn the_token_scheme_can_be_turned_off() {
    let auth = auth::Config { accept_token_scheme: false };
    let server = TestServer::start(Setup { auth, ..Setup::default() }).await;
    let token = client()
        .post(server.url(&format!("/v1/listen?{RAW}")))
        .header("authorization", format!("Token {}", server.key))
        .body(say(1));
    assert_eq!(refusal(token).await, (401, "INVALID_AUTH".into()));
    assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
}

#[tokio::test]
async fn keys_are_made_and_revoked_while_the_server_runs() {
    let server = TestServer::start(Setup::default()).await;
    let store = Store::open(server.state.path()).unwrap();
    let (key, secret) = store.create("late").unwrap();
    let with = |secret: &Secret| {
        client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(secret.expose()).body(say(1))
    };
    let turned = async |wanted: u16| {
        let begun = std::time::Instant::now();
        while answer(with(&secret)).await.0 != wanted {
            assert!(begun.elapsed() < 2 * REFRESH_INTERVAL + Duration::from_secs(5), "never {wanted}");
        }
    };
    turned(200).await;
    store.revoke(&key.id).unwrap();
    turned(401).await;
    assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
}

#[tokio::test]
async fn health_needs_no_key_and_readiness_follows_the_app() {
    let server = TestServer::start(Setup::default()).await;
    let get = |path: &str| client().get(server.url(path));
    assert_eq!(answer(get("/health")).await, (200, json!({"status": "ok", "ready": true})));
    assert_eq!(answer(get("/livez")).await.0, 200);
    assert_eq!(answer(get("/readyz")).await.0, 200);
    let status = json!({"system_health": "Healthy", "active_batch_requests": 0, "active_stream_requests": 0});
    assert_eq!(answer(get("/v1/status")).await, (200, status));
    server.readiness.set(State::Draining);
    assert_eq!(answer(get("/health")).await, (200, json!({"status": "ok", "ready": false})));
    assert_eq!(answer(get("/livez")).await.0, 200);
    assert_eq!(refusal(get("/readyz")).await.0, 503);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_told_in_json() {
    let server = TestServer::start(Setup::default()).await;
    for path in
        ["/", "/v1", "/v1/listen/", "/v1/listen/other", "/V1/LISTEN", "/v1%2flisten", "/health/../v1/listenx"]
    {
        let request = client().post(server.url(path)).bearer_auth(&server.key);
        assert_eq!(refusal(request).await, (404, "NOT_FOUND".into()), "{path}");
    }
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let response = client().request(method.clone(), server.url("/v1/listen")).send().await.unwrap();
        assert_eq!(response.headers()["allow"], "POST", "{method}");
        assert_eq!(read(response).await.0, 405, "{method}");
    }
    let head = client().head(server.url("/health")).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert!(head.headers().contains_key("dg-request-id"));
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
async fn leave_to_send_is_not_given_to_what_is_refused() {
    let door = door(Config { body_bytes_max: 1000, ..Config::default() }).await;
    let ask = |length: usize| {
        format!("POST /count HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n")
    };
    let refused = raw(&door, ask(1001)).await;
    assert_eq!(statuses(&refused), [413], "{refused}");
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all(ask(4).as_bytes()).await.unwrap();
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).await.unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
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
async fn a_connection_serves_many_requests_in_order() {
    let door = door(Config::default()).await;
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"{\"ok\":true}") {
            reply.push(stream.read_u8().await.unwrap());
        }
    }
    let pipelined = "GET /ok HTTP/1.1\r\nhost: x\r\n\r\nPOST /count HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc\
                     GET /no HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let reply = raw(&door, pipelined).await;
    assert_eq!(statuses(&reply), [200, 200, 404], "{reply}");
}

#[tokio::test]
async fn http2_carries_many_requests_at_once() {
    let server = TestServer::start(Setup::default()).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let requests = (0..50i16).map(|number| {
        let request = client
            .post(server.url(&format!("/v1/listen?{RAW}")))
            .bearer_auth(&server.key)
            .version(hyper::Version::HTTP_2)
            .body(say(number));
        tokio::spawn(async move {
            let response = request.send().await.unwrap();
            assert_eq!(response.version(), hyper::Version::HTTP_2);
            (number, read(response).await.1)
        })
    });
    for request in requests.collect::<Vec<_>>() {
        let (number, body) = request.await.unwrap();
        assert_eq!(transcripts(&body), [format!("Number {number}.")]);
    }
    let refused = client.post(server.url("/v1/listen")).body(vec![0u8; 3 << 20]);
    assert_eq!(refusal(refused).await.0, 401);
    assert_eq!(refusal(client.get(server.url("/no"))).await.0, 404);
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
async fn a_drain_ends_when_its_time_is_over() {
    let door = door(Config { drain_timeout_ms: 50, ..Config::default() }).await;
    let mut busy = TcpStream::connect(door.address).await.unwrap();
    busy.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(answer(client().get(format!("http://{}/ok", door.address))).await.0, 200);
    door.stop().await;
    assert_eq!(busy.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn pages_of_listed_origins_may_read_answers() {
    let door = door(Config { cors_origins: vec!["https://app.example".into()], ..Config::default() }).await;
    let url = format!("http://{}/count", door.address);
    let from = |origin: &str| client().post(&url).header("origin", origin).body("x");
    let listed = from("https://app.example").send().await.unwrap();
    assert_eq!(listed.headers()["access-control-allow-origin"], "https://app.example");
    assert_eq!(listed.headers()["vary"], "origin");
    assert!(listed.headers()["access-control-expose-headers"].to_str().unwrap().contains("dg-request-id"));
    for origin in ["https://evil.example", "https://app.example.evil", "null", "http://app.example"] {
        let other = from(origin).send().await.unwrap();
        assert!(!other.headers().contains_key("access-control-allow-origin"), "{origin}");
        assert_eq!(other.headers()["vary"], "origin");
    }
    let preflight = |origin: &str| {
        client()
            .request(Method::OPTIONS, &url)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,timestamps")
    };
    let allowed = preflight("https://app.example").send().await.unwrap();
    assert_eq!(allowed.status(), 204);
    assert_eq!(allowed.headers()["access-control-allow-methods"], "POST");
    assert_eq!(allowed.headers()["access-control-allow-headers"], "authorization,timestamps");
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    assert_eq!(refusal(preflight("https://evil.example")).await.0, 405);
}

#[tokio::test]
async fn no_page_may_read_answers_by_default() {
    let door = door(Config::default()).await;
    let request =
        client().post(format!("http://{}/count", door.address)).header("origin", "https://app.example");
    let response = request.body("x").send().await.unwrap();
    assert!(response.headers().keys().all(|name| !name.as_str().starts_with("access-control-")));
}

#[tokio::test]
async fn tls_is_served_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let door = door(Config { tls: Some(TlsConfig { certificate, key }), ..Config::default() }).await;
    drop(client());
    let trusting = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap()])
        .resolve("localhost", door.address)
        .build()
        .unwrap();
    let response =
        trusting.get(format!("https://localhost:{}/ok", door.address.port())).send().await.unwrap();
    assert_eq!(response.version(), hyper::Version::HTTP_2);
    assert_eq!(read(response).await, (200, json!({"ok": true})));
    assert_eq!(statuses(&raw(&door, "GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await), [0u16; 0]);
}

/// Requests that two parsers may read differently. Each is followed by a second one on the same
/// connection, which must not be served as part of the first nor the first's rest as a request.
#[tokio::test]
async fn requests_of_two_meanings_are_refused() {
    let door = door(Config { header_timeout_ms: 200, idle_timeout_ms: 200, ..Config::default() }).await;
    let count =
        |headers: &str, body: &str| format!("POST /count HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n{body}");
    let mut wrong = Vec::new();
    let smuggled = "0\r\n\r\nGET /ok HTTP/1.1\r\nhost: x\r\n\r\n";
    for (request, expected) in [
        // Length told twice, differently.
        (count("content-length: 3\r\ncontent-length: 4", "abcd"), &[400][..]),
        (count("content-length: 3, 4", "abcd"), &[400]),
        (count("content-length: 3\r\ncontent-length: 3", "abc"), &[200, 404]),
        // Lengths that are none.
        (count("content-length: +3", "abc"), &[400]),
        (count("content-length: -3", "abc"), &[400]),
        (count("content-length: 0x3", "abc"), &[400]),
        (count("content-length: 3.0", "abc"), &[400]),
        (count("content-length: 99999999999999999999999", ""), &[400]),
        (count("content-length: ", ""), &[400]),
        (count("content-length : 3", "abc"), &[400]),
        // Both a length and chunks: chunks count, and the connection ends (RFC 9112, section 6.3).
        (count("content-length: 40\r\ntransfer-encoding: chunked", smuggled), &[200]),
        (count("transfer-encoding: chunked\r\ncontent-length: 4", smuggled), &[200]),
        // Chunks under another name or not at the end.
        (count("transfer-encoding: xchunked", smuggled), &[400]),
        (count("transfer-encoding: chunked, identity", smuggled), &[400]),
        (count("transfer-encoding : chunked", smuggled), &[400]),
        (count("transfer-encoding:\x0bchunked", smuggled), &[400]),
        // Chunk sizes that are none.
        (count("transfer-encoding: chunked", "g\r\nabc\r\n0\r\n\r\n"), &[400]),
        (count("transfer-encoding: chunked", "-1\r\nabc\r\n0\r\n\r\n"), &[400]),
        (count("transfer-encoding: chunked", "0x3\r\nabc\r\n0\r\n\r\n"), &[400]),
        (count("transfer-encoding: chunked", "ffffffffffffffff1\r\nabc\r\n0\r\n\r\n"), &[400]),
        (count("transfer-encoding: chunked", "3\r\nabcd\r\n0\r\n\r\n"), &[400]),
        // A line may end with LF alone (RFC 9112, section 2.2): it is still one request.
        ("GET /ok HTTP/1.1\nhost: x\n\n".to_owned(), &[200, 404]),
        // Heads that are none.
        ("GET /ok HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n".to_owned(), &[400]),
        ("GET /ok HTTP/1.1\r\nhost: x\r\nna me: y\r\n\r\n".to_owned(), &[400]),
        ("GET /ok HTTP/1.1\r\nhost: x\r\n: y\r\n\r\n".to_owned(), &[400]),
        ("GET /ok HTTP/1.1\r\nhost: x\r\na: b\0c\r\n\r\n".to_owned(), &[400]),
        ("GET /ok HTTP/1.1\r\nhost: x\r\na: b\rc\r\n\r\n".to_owned(), &[400]),
        ("GET /o k HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), &[400]),
        ("GET /ok HTTP/9.9\r\nhost: x\r\n\r\n".to_owned(), &[400]),
        ("GET\t/ok HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), &[400]),
        ("\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n".to_owned(), &[400]),
    ] {
        let reply =
            raw(&door, format!("{request}GET /no HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        if statuses(&reply) != expected {
            wrong.push(format!("{request:?}: {:?}, not {expected:?}", statuses(&reply)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn heads_beyond_the_limits_are_refused() {
    let door = door(Config { headers_max: 20, header_bytes_max: 4096, ..Config::default() }).await;
    let get = |rest: &str| format!("GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{rest}\r\n");
    assert_eq!(statuses(&raw(&door, get("a: b\r\n")).await), [200]);
    assert_eq!(statuses(&raw(&door, get(&"a: b\r\n".repeat(30))).await), [431]);
    assert_eq!(statuses(&raw(&door, get(&format!("a: {}\r\n", "b".repeat(5000)))).await), [431]);
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(70_000));
    assert_eq!(statuses(&raw(&door, long).await), [414]);
}
