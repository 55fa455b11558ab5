//! Addresses that lead inside, on every surface that fetches or sends: 120 spellings, none of which may get
//! anywhere; and a control set that does.

use serde_json::{Value, json};
use verbatim::fetch;

use crate::hosts;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{RAW, Setup, TestServer, answer, client, say, transcripts};
use crate::sts::service::{self, Service};

/// IPv4 addresses of private machines and of metadata services.
const FOUR: [&str; 22] = [
    "0.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
];

/// Hosts that mean the same, or inner names.
const OTHERS: [&str; 38] = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "127.1",
    "127.0.1",
    "0",
    "0x0",
    "0x7f.1",
    "0177.0.0.1",
    "0x7f.0x0.0x0.0x1",
    "017700000001",
    "00000000177.1",
    "127.0.0.1.",
    "１２７.０.０.１",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "%31%32%37.0.0.1",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b:1::1]",
    "[100::1]",
    "[2001::1]",
    "[2001:db8::1]",
    "[2001:10::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2620:4f:8000::1]",
    "[4000::1]",
    "[2001:2::1]",
];

fn addresses() -> Vec<String> {
    let mut all: Vec<String> = OTHERS.iter().map(|host| format!("http://{host}/")).collect();
    for address in FOUR {
        let four: std::net::Ipv4Addr = address.parse().expect("an address");
        let [a, b, c, d] = four.octets();
        all.push(format!("http://{address}/"));
        all.push(format!("https://user:pass@{address}:8443/x"));
        all.push(match four.to_bits() % 4 {
            0 => format!("http://{}/", four.to_bits()),
            1 => format!("http://{:#x}/", four.to_bits()),
            2 => format!("http://0{a:o}.0{b:o}.0{c:o}.0{d:o}/"),
            _ => format!("http://8.8.8.8@{address}/"),
        });
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        all.push(match four.to_bits() % 3 {
            0 => format!("http://[::ffff:{address}]/"),
            1 => format!("http://[64:ff9b::{high:x}:{low:x}]/"),
            _ => format!("http://[2002:{high:x}:{low:x}::1]/"),
        });
    }
    assert!(all.len() >= 120, "{}", all.len());
    all
}

fn allowing(entries: &[String]) -> fetch::Config {
    fetch::Config { allow: entries.to_vec(), ..fetch::Config::default() }
}

fn by_url(server: &TestServer, url: &str) -> reqwest::RequestBuilder {
    let request = client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(&server.key);
    request.header("content-type", "application/json").body(json!({"url": url}).to_string())
}

fn with_callback(server: &TestServer, url: &str) -> reqwest::RequestBuilder {
    server.listen(&format!("{RAW}&{}", callback_parameter(url)), say(1))
}

#[tokio::test]
async fn no_address_inside_is_fetched_or_called_back() {
    let server = TestServer::start(Setup::default()).await;
    for url in addresses() {
        let (status, body) = answer(by_url(&server, &url)).await;
        assert_eq!((status, &body["err_code"]), (400, &json!("REMOTE_CONTENT_ERROR")), "{url}");
        let (status, body) = answer(with_callback(&server, &url)).await;
        // The same for a name, an address and a port, so that answers don't reveal the inner network.
        let message = "Invalid callback url. It must lead to a public address, at port 80, 443, 8080, 8443.";
        assert_eq!((status, &body["err_msg"]), (400, &json!(message)), "{url}");
    }
}

#[tokio::test]
async fn redirects_lead_nowhere_inside() {
    let mut canary = Receiver::start(&[]).await;
    for location in [
        format!("http://127.0.0.1:{}/", canary.port),
        format!("http://localhost:{}/", canary.port),
        format!("http://[::ffff:127.0.0.1]:{}/", canary.port),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let port = hosts::redirector(location.clone()).await;
        let fetch = allowing(&[format!("127.0.0.1:{port}")]);
        let server = TestServer::start(Setup { fetch, ..Setup::default() }).await;
        let (status, body) = answer(by_url(&server, &format!("http://127.0.0.1:{port}/"))).await;
        assert_eq!((status, &body["err_code"]), (400, &json!("REMOTE_CONTENT_ERROR")), "{location}");
    }
    assert!(canary.is_done());
}

#[tokio::test]
async fn what_is_listed_is_reached() {
    let mut receiver = Receiver::start(&[]).await;
    let setup = Setup { fetch: allowing(&[receiver.allowed()]), ..Setup::default() };
    let server = TestServer::start(setup).await;
    let url = format!("http://127.0.0.1:{}/", receiver.port);
    let (status, _) = answer(with_callback(&server, &url)).await;
    assert_eq!(status, 200);
    let delivered = receiver.next().await.json();
    assert_eq!(transcripts(&delivered), ["Number 1."]);
}

#[tokio::test]
async fn no_agent_reads_what_is_inside() {
    let setup = service::Setup { fetch: Some(fetch::Config::default()), ..service::Setup::default() };
    let service = Service::start(setup).await;
    for urls in addresses().chunks(10) {
        let documents: Vec<Value> =
            urls.iter().map(|url| json!({"title": url, "type": "url", "content": url})).collect();
        let (id, started) = service.session(json!({"documents": documents})).await;
        let status = service.ready(&id).await;
        let told = format!("{} {}", started["warnings"], status["warnings"]);
        assert_eq!(status["knowledge"]["passages"], 0, "{status}");
        for url in urls {
            assert!(told.contains(url.as_str()), "{url} is not warned of: {told}");
        }
    }
    for url in addresses() {
        let (id, _) = service.session(json!({"website_url": url})).await;
        let status = service.ready(&id).await;
        assert_eq!(status["knowledge"]["website"]["status"], "failed", "{url}: {status}");
    }
}
