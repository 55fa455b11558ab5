//! HTTP/2 by hand: a client that sends all before it reads, and takes a reset for a failure, as common ones do.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use verbatim::http::Config;

use crate::doors::door;
use crate::protocol::certified;
use crate::server::{RAW, Setup, TestServer, say, transcripts};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const FRAME_MAX: usize = 16_384;

pub struct Http2<S> {
    stream: S,
    next_id: u32,
    connection_window: i64,
    first_window: i64,
}

/// The end of a request.
#[derive(Default)]
pub struct Outcome {
    body: Vec<u8>,
    is_whole: bool,
    /// The code of a reset.
    reset: Option<u32>,
    window: i64,
}

impl Outcome {
    fn json(&self) -> serde_json::Value {
        assert!(self.is_whole, "no answer, reset: {:?}", self.reset);
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code of a refusal that arrived in the way that common clients need: complete, and not followed by a reset.
    pub fn code(&self) -> String {
        assert_eq!(self.reset, None, "reset under the client");
        let body = self.json();
        uuid::Uuid::parse_str(body["request_id"].as_str().unwrap()).unwrap();
        assert!(body["err_msg"].is_string(), "{body}");
        body["err_code"].as_str().unwrap().to_owned()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2<S> {
    pub async fn open(mut stream: S) -> Self {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut this = Self { stream, next_id: 1, connection_window: 65_535, first_window: 65_535 };
        this.frame(SETTINGS, 0, 0, &[]).await;
        this
    }

    async fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend(id.to_be_bytes());
        bytes.extend(payload);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// POST with these fields and a body of `sent` bytes, `first` and then zeros.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)], first: &[u8], sent: usize) -> Outcome {
        let id = self.next_id;
        self.next_id += 2;
        let mut block = Vec::new();
        let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")];
        for (name, value) in pseudo.iter().chain(fields) {
            // A literal that is not indexed (RFC 7541, section 6.2.2).
            block.push(0);
            push_text(&mut block, name);
            push_text(&mut block, value);
        }
        self.frame(HEADERS, END_HEADERS, id, &block).await;
        let mut outcome = Outcome { window: self.first_window, ..Outcome::default() };
        let mut body = first.to_vec();
        body.resize(sent, 0);
        let mut rest = body.as_slice();
        while !rest.is_empty() && outcome.reset.is_none() {
            let room = outcome.window.min(self.connection_window).max(0) as usize;
            let (piece, after) = rest.split_at(room.min(FRAME_MAX).min(rest.len()));
            if piece.is_empty() {
                self.receive(id, &mut outcome).await;
                continue;
            }
            self.frame(DATA, if after.is_empty() { END_STREAM } else { 0 }, id, piece).await;
            outcome.window -= piece.len() as i64;
            self.connection_window -= piece.len() as i64;
            rest = after;
        }
        while !outcome.is_whole && outcome.reset.is_none() {
            self.receive(id, &mut outcome).await;
        }
        // A frame that follows the answer at once, such as a reset, arrives before the answer to a ping.
        if outcome.reset.is_none() {
            self.frame(PING, 0, 0, &[7; 8]).await;
            while !self.receive(id, &mut outcome).await {}
        }
        outcome
    }

    /// Takes one frame in; true for the answer to a ping.
    async fn receive(&mut self, id: u32, outcome: &mut Outcome) -> bool {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.expect("the connection goes on");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut payload).await.unwrap();
        let (kind, flags) = (head[3], head[4]);
        let about = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]) {
                    let window = i64::from(number(&setting[2..]));
                    outcome.window += window - self.first_window;
                    self.first_window = window;
                }
                self.frame(SETTINGS, ACK, 0, &[]).await;
            }
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, &payload).await,
            WINDOW_UPDATE if about == 0 => self.connection_window += i64::from(number(&payload)),
            WINDOW_UPDATE if about == id => outcome.window += i64::from(number(&payload)),
            RST_STREAM if about == id => outcome.reset = Some(number(&payload)),
            DATA if about == id => outcome.body.extend(payload),
            GOAWAY => panic!("the connection ends: {payload:?}"),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && about == id && flags & END_STREAM != 0 {
            outcome.is_whole = true;
        }
        kind == PING && flags & ACK != 0
    }
}

/// A string, its length first (RFC 7541, sections 5.1 and 5.2).
fn push_text(block: &mut Vec<u8>, text: &str) {
    match text.len() {
        length @ 0..127 => block.push(length as u8),
        length => {
            block.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend(text.as_bytes());
}

const LARGE: usize = 9 << 20;

#[tokio::test]
async fn refusals_reach_clients_that_send_all_before_they_read() {
    let http = Config { body_bytes_max: 1 << 20, ..Config::default() };
    let server = TestServer::start(Setup { http, ..Setup::default() }).await;
    let mut client = Http2::open(TcpStream::connect(server.address).await.unwrap()).await;
    let key = format!("Bearer {}", server.key);
    let length = LARGE.to_string();
    let listen = |query: &str| format!("/v1/listen?{query}");
    for (path, fields, code) in [
        (listen(RAW), &[("authorization", "Bearer org_nobody")][..], "INVALID_AUTH"),
        (listen(RAW), &[("content-length", &length)], "INVALID_AUTH"),
        (listen(RAW), &[("expect", "100-continue")], "INVALID_AUTH"),
        ("/none".to_owned(), &[("authorization", &key)], "NOT_FOUND"),
        ("/v1/status".to_owned(), &[("authorization", &key)], "METHOD_NOT_ALLOWED"),
        (listen("punctuate=perhaps"), &[("authorization", &key)], "INVALID_QUERY_PARAMETER"),
        (listen("language=tlh"), &[("authorization", &key)], "Bad Request"),
        (
            listen(RAW),
            &[("authorization", &key), ("content-encoding", "gzip"), ("content-length", &length)],
            "UNSUPPORTED_MEDIA_TYPE",
        ),
        (listen(RAW), &[("authorization", &key)], "PAYLOAD_TOO_LARGE"),
        (listen(RAW), &[("authorization", &key), ("content-length", &length)], "PAYLOAD_TOO_LARGE"),
    ] {
        let outcome = client.post(&path, fields, &[], LARGE).await;
        assert_eq!(outcome.code(), code, "{path} {fields:?}");
    }
    // The connection is as good as new.
    let audio = say(7);
    let answer = client.post(&listen(RAW), &[("authorization", &key)], &audio, audio.len()).await;
    assert_eq!(transcripts(&answer.json()), ["Number 7."]);
}

#[tokio::test]
async fn a_body_without_end_is_not_taken_in_for_ever() {
    let door = door(Config { body_bytes_max: 1000, ..Config::default() }).await;
    let mut client = Http2::open(TcpStream::connect(door.address).await.unwrap()).await;
    let outcome = client.post("/count", &[], &[], 80 << 20).await;
    assert_eq!(outcome.json()["err_code"], "PAYLOAD_TOO_LARGE");
    // `NO_ERROR`, as RFC 9113, section 8.1, has it.
    assert_eq!(outcome.reset, Some(0));
}

#[tokio::test]
async fn refusals_reach_them_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (made, tls) = certified(dir.path());
    let door = door(Config { body_bytes_max: 1000, tls: Some(tls), ..Config::default() }).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.der().to_vec())).unwrap();
    let connect = async |protocol: &[u8]| {
        let mut config = ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(door.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    };
    let mut client = Http2::open(connect(b"h2").await).await;
    for (path, code) in
        [("/count", "PAYLOAD_TOO_LARGE"), ("/none", "NOT_FOUND"), ("/ok", "METHOD_NOT_ALLOWED")]
    {
        assert_eq!(client.post(path, &[], &[], LARGE).await.code(), code);
    }
    let mut plain = connect(b"http/1.1").await;
    let head = format!("POST /none HTTP/1.1\r\nhost: x\r\ncontent-length: {LARGE}\r\n\r\n");
    plain.write_all(head.as_bytes()).await.unwrap();
    plain.write_all(&vec![0; LARGE]).await.unwrap();
    let mut reply = String::new();
    plain.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 404 ") && reply.ends_with('}'), "{reply}");
}

#[tokio::test]
async fn a_head_beyond_the_limits_is_refused_in_json() {
    let door = door(Config { header_bytes_max: 4096, ..Config::default() }).await;
    let mut client = Http2::open(TcpStream::connect(door.address).await.unwrap()).await;
    let long = "a".repeat(6000);
    let outcome = client.post("/count", &[("x-long", &long)], &[], 1).await;
    assert_eq!(outcome.code(), "HEADERS_TOO_LARGE");
    assert_eq!(client.post(&format!("/{long}"), &[], &[], 1).await.code(), "URI_TOO_LONG");
    assert_eq!(client.post("/count", &[], &[], 5).await.json()["bytes"], 5);
}
