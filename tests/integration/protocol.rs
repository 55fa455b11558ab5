//! HTTP as it is spoken: versions, TLS, routes, origins, and requests that mean two things.

use std::path::Path;

use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use verbatim::http::{Config, TlsConfig};

use crate::doors::{door, failures, raw, statuses};
use crate::server::{RAW, Setup, TestServer, client, read, refusal, say, transcripts};

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

/// A certificate for `localhost`, and the paths of it and its key in `folder`.
pub fn certified(folder: &Path) -> (rcgen::Certificate, TlsConfig) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("writable");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("writable");
    (made.cert, TlsConfig { certificate, key, client_ca: None })
}

#[tokio::test]
async fn tls_is_served_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let (made, tls) = certified(dir.path());
    let door = door(Config { tls: Some(tls), ..Config::default() }).await;
    drop(client());
    let trusting = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(made.pem().as_bytes()).unwrap()])
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
        // Two different lengths.
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
        // Every refusal has the JSON body, hyper's own ones too.
        failures(&reply);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn heads_beyond_the_limits_are_refused() {
    let door = door(Config { headers_max: 20, header_bytes_max: 4096, ..Config::default() }).await;
    let get = |rest: &str| format!("GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{rest}\r\n");
    assert_eq!(statuses(&raw(&door, get("a: b\r\n")).await), [200]);
    for rest in ["a: b\r\n".repeat(30), format!("a: {}\r\n", "b".repeat(5000))] {
        let reply = raw(&door, get(&rest)).await;
        assert_eq!(statuses(&reply), [431]);
        assert!(reply.contains("\"err_code\":\"HEADERS_TOO_LARGE\""), "{reply}");
    }
    let target = |length: usize| {
        format!("GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "a".repeat(length))
    };
    for (request, status, code) in [
        (get(&"a: b\r\n".repeat(200)), 431, "HEADERS_TOO_LARGE"),
        // More than is ever held: the rest of it is on its way when it is refused.
        (get(&format!("a: {}\r\n", "b".repeat(4 << 20))), 431, "HEADERS_TOO_LARGE"),
        (target(4 << 20), 431, "HEADERS_TOO_LARGE"),
        (target(70_000), 414, "URI_TOO_LONG"),
        (target(5000), 414, "URI_TOO_LONG"),
        ("hello\r\n\r\n".to_owned(), 400, "Bad Request"),
    ] {
        let reply = raw(&door, &request).await;
        assert_eq!(statuses(&reply), [status]);
        assert_eq!(failures(&reply)[0]["err_code"], code, "{reply}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_after_what_could() {
    let door = door(Config::default()).await;
    let request = "GET /ok HTTP/1.1\r\nhost: x\r\n\r\n";
    let reply = raw(&door, format!("{request}{request}GET /o k HTTP/1.1\r\n\r\n{request}")).await;
    assert_eq!(statuses(&reply), [200, 200, 400], "{reply}");
    let [failure] = &failures(&reply)[..] else { panic!("{reply}") };
    assert_eq!(failure["err_code"], "Bad Request");
    assert!(reply.contains("\r\nconnection: close\r\n"), "{reply}");
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
        assert_eq!(other.status(), 403, "{origin}");
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
async fn a_request_names_one_server() {
    let door = door(Config::default()).await;
    for head in ["", "host: x\r\nhost: x\r\n", "host: x\r\nHost: y\r\n", "host: x y\r\n", "host: u@x\r\n"] {
        let reply = raw(&door, format!("GET /ok HTTP/1.1\r\n{head}connection: close\r\n\r\n")).await;
        assert_eq!(statuses(&reply), [400], "{head:?}: {reply}");
        assert_eq!(failures(&reply)[0]["err_code"], "Bad Request");
    }
    for request in [
        "GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "GET /ok HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n",
        "GET http://x/ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        // Probes of containers speak so.
        "GET /ok HTTP/1.0\r\n\r\n",
    ] {
        let reply = raw(&door, request).await;
        assert!(reply.contains(" 200 OK"), "{request:?}: {reply}");
    }
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
async fn unknown_routes_and_methods_are_told_in_json() {
    let server = TestServer::start(Setup::default()).await;
    for path in
        ["/", "/v1", "/v1/listen/", "/v1/listen/other", "/V1/LISTEN", "/v1%2flisten", "/health/../v1/listenx"]
    {
        let request = client().post(server.url(path)).bearer_auth(&server.key);
        assert_eq!(refusal(request).await, (404, "NOT_FOUND".into()), "{path}");
    }
    for method in [Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let response = client().request(method.clone(), server.url("/v1/listen")).send().await.unwrap();
        assert_eq!(response.headers()["allow"], "GET, POST, HEAD", "{method}");
        assert_eq!(read(response).await.0, 405, "{method}");
    }
    let head = client().head(server.url("/health")).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert!(head.headers().contains_key("dg-request-id"));
}

#[tokio::test]
async fn leave_to_send_is_not_given_to_what_is_refused() {
    let door = door(Config { body_bytes_max: 1000, ..Config::default() }).await;
    let ask = |length: usize| {
        format!("POST /count HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n")
    };
    let refused = raw(&door, ask(1001)).await;
    assert_eq!(statuses(&refused), [413], "{refused}");
    // A client that doesn't wait for 100 Continue gets its refusal too.
    let bytes = 20 << 20;
    let sent = raw(&door, [ask(bytes).into_bytes(), vec![0; bytes]].concat()).await;
    assert_eq!(statuses(&sent), [413], "{sent}");
    assert_eq!(failures(&sent)[0]["err_code"], "PAYLOAD_TOO_LARGE");
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all(ask(4).as_bytes()).await.unwrap();
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).await.unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
}
