//! Requests that are admitted without a key: programs on this machine, where a developer said so, and no page of another origin.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use verbatim::http;
use verbatim::sts::{Auth, Config};

use super::service::{Service, Setup};
use crate::server::{answer, client, refusal};
use crate::socket::connect;

const CONVERSE: &str = "/v1/agent/converse";
const ACTIONS: &str = "/STS/interactiveAgent";
const START: &str = r#"{"action":"start"}"#;

fn set(auth: Auth) -> Setup {
    let mut setup = Setup::default();
    setup.config.auth = auth;
    setup
}

/// The status of a start by a request with this first line's end and these header lines, and the code of a refusal.
async fn start(service: &Service, version: &str, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(service.address).await.expect("a connection");
    let request = format!(
        "POST {ACTIONS} {version}\r\n{head}content-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{START}",
        START.len()
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("an answer");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body: Value = serde_json::from_str(body).expect("JSON");
    (status, body["err_code"].as_str().unwrap_or_default().to_owned())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn a_proxy_that_says_nothing_of_itself_opens_no_door() {
    assert_eq!(Config::default().auth, Auth::Required);
    let service = Service::start(set(Config::default().auth)).await;
    let here = format!("host: {}\r\n", service.address);
    // As nginx passes on every request with nothing but `proxy_pass http://127.0.0.1:PORT`.
    assert_eq!(start(&service, "HTTP/1.0", &here).await, refused(401, "INVALID_AUTH"));
    assert_eq!(start(&service, "HTTP/1.1", &here).await, refused(401, "INVALID_AUTH"));
    assert_eq!(refusal(service.post("/api/livekit/sts", &json!({}))).await.0, 401);
    assert_eq!(connect(service.address, CONVERSE, &[]).await.status, 401);
    let with_key = service.request(&json!({"action": "start"})).bearer_auth(&service.keys[0]);
    assert_eq!(answer(with_key).await.0, 200);
    let key = format!("Token {}", service.keys[0]);
    assert_eq!(connect(service.address, CONVERSE, &[("authorization", &key)]).await.status, 101);
}

#[tokio::test]
async fn a_developer_needs_no_key_on_loopback_and_nowhere_else() {
    let service = Service::start(set(Auth::Loopback)).await;
    let port = service.address.port();
    for name in ["127.0.0.1", "localhost", "[::1]"] {
        let head = format!("host: {name}:{port}\r\n");
        assert_eq!(start(&service, "HTTP/1.1", &head).await.0, 200, "{name}");
        let own = format!("{head}origin: http://{name}:{port}\r\n");
        assert_eq!(start(&service, "HTTP/1.1", &own).await.0, 200, "{name}");
    }
    // The owner of a name makes it lead here, so that a browser takes this server for the page's own.
    let rebound = format!("host: evil.example:{port}\r\norigin: http://evil.example:{port}\r\n");
    assert_eq!(start(&service, "HTTP/1.1", &rebound).await, refused(401, "INVALID_AUTH"));
    assert_eq!(start(&service, "HTTP/1.0", "").await, refused(401, "INVALID_AUTH"), "no Host");
    let elsewhere = Service::start(Setup { is_loopback: false, ..set(Auth::Loopback) }).await;
    let here = format!("host: {}\r\n", elsewhere.address);
    assert_eq!(start(&elsewhere, "HTTP/1.1", &here).await, refused(401, "INVALID_AUTH"));
}

#[tokio::test]
async fn a_request_that_names_no_server_or_several_is_refused() {
    let service = Service::start(set(Auth::Loopback)).await;
    let here = format!("host: {}\r\n", service.address);
    for head in [
        "",
        &format!("{here}{here}"),
        &format!("{here}host: evil.example\r\n"),
        "host: local host\r\n",
        "host: evil.example@localhost\r\n",
    ] {
        assert_eq!(start(&service, "HTTP/1.1", head).await, refused(400, "Bad Request"), "{head:?}");
    }
}

#[tokio::test]
async fn the_authority_of_http_2_is_judged_as_a_host_is() {
    let service = Service::start(set(Auth::Loopback)).await;
    let http2 = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .resolve("evil.example", service.address)
        .resolve("localhost", service.address)
        .build()
        .expect("a client");
    let start = |host: &str| {
        let url = format!("http://{host}:{}{ACTIONS}", service.address.port());
        http2.post(url).header("content-type", "application/json").body(START)
    };
    assert_eq!(refusal(start("evil.example")).await, refused(401, "INVALID_AUTH"));
    assert_eq!(answer(start("localhost")).await.0, 200);
}

#[tokio::test]
async fn pages_of_other_origins_need_a_key_on_every_socket_and_route() {
    for auth in [Auth::Loopback, Auth::Off] {
        let service = Service::start(set(auth)).await;
        let address = service.address;
        let (_, started) = service.session(json!({})).await;
        let room = started["websocket_url"].as_str().expect("an address");
        let room = room.split_once(&address.to_string()).expect("here").1;
        let (room_alone, _) = room.split_once('?').expect("a token");
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example"]
        {
            for path in [CONVERSE, "/api/twilio/media"] {
                let handshake = connect(address, path, &[("origin", origin)]).await;
                assert_eq!(handshake.status, 403, "{path} {origin}");
                assert_eq!(handshake.body["err_code"], "ORIGIN_NOT_ALLOWED", "{path} {origin}");
            }
            // Credentials for another door open none here.
            let query = format!("{CONVERSE}?access_token=x");
            assert_eq!(connect(address, &query, &[("origin", origin)]).await.status, 403, "{origin}");
            let offered = [("origin", origin), ("sec-websocket-protocol", "chat")];
            assert_eq!(connect(address, CONVERSE, &offered).await.status, 401, "{origin}");
            assert_eq!(connect(address, room_alone, &[("origin", origin)]).await.status, 403, "{origin}");
            for path in [ACTIONS, "/api/livekit/sts", "/api/twilio/incoming-call"] {
                let request = service.post(path, &json!({"action": "start"})).header("origin", origin);
                assert_eq!(refusal(request).await, refused(403, "ORIGIN_NOT_ALLOWED"), "{path} {origin}");
            }
            // A key, or the token of a room, was given to the page itself.
            let key = format!("token, {}", service.keys[0]);
            let shown = [("origin", origin), ("sec-websocket-protocol", key.as_str())];
            assert_eq!(connect(address, CONVERSE, &shown).await.status, 101, "{origin}");
            assert_eq!(connect(address, room, &[("origin", origin)]).await.status, 101, "{origin}");
            let request = service.request(&json!({"action": "start"})).header("origin", origin);
            assert_eq!(answer(request.bearer_auth(&service.keys[0])).await.0, 200, "{origin}");
        }
        let own = format!("http://{address}");
        assert_eq!(connect(address, CONVERSE, &[("origin", &own)]).await.status, 101);
    }
}

#[tokio::test]
async fn origins_that_are_listed_by_name_are_let_in() {
    let listed = |origin: &str| Setup {
        http: http::Config { cors_origins: vec![origin.into()], ..http::Config::default() },
        ..set(Auth::Loopback)
    };
    let service = Service::start(listed("https://app.example")).await;
    let from = |service: &Service, origin: &'static str| {
        let address = service.address;
        async move { connect(address, CONVERSE, &[("origin", origin)]).await.status }
    };
    assert_eq!(from(&service, "https://app.example").await, 101);
    assert_eq!(from(&service, "http://app.example").await, 403);
    assert_eq!(from(&service, "https://app.example.evil").await, 403);
    // `*` lets all pages read answers to requests with a key; it admits no request without one.
    let service = Service::start(listed("*")).await;
    assert_eq!(from(&service, "https://app.example").await, 403);
    let url = format!("http://{}{ACTIONS}", service.address);
    let request = client().post(url).header("content-type", "application/json").body(START);
    let request = request.header("origin", "https://app.example").bearer_auth(&service.keys[0]);
    assert_eq!(answer(request).await.0, 200);
}
