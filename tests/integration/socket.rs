//! A WebSocket client that can also violate the protocol.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub struct Socket {
    pub stream: TcpStream,
    input: Vec<u8>,
    /// The pings that came, all of which were answered.
    pub pings: usize,
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Message(Value),
    Audio(Vec<u8>),
    Pong(Vec<u8>),
    /// Answered by [`Socket::said`], which does not return it.
    Ping(Vec<u8>),
    Close(u16, String),
    /// The connection ended without a goodbye.
    Gone,
}

/// The head of an answer, and the body of a refusal.
pub struct Handshake {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Value,
    /// Where it was agreed to.
    pub socket: Option<Socket>,
}

impl Handshake {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Asks for a WebSocket; `headers` go beside those of the handshake.
pub async fn connect(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Handshake {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // Else a small message waits until the previous one is acknowledged, which takes 40 ms.
    stream.set_nodelay(true).expect("an option of TCP");
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n"
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n").as_bytes()).await.expect("sent");
    let mut input = Vec::new();
    let head_end = loop {
        assert_ne!(stream.read_buf(&mut input).await.expect("an answer"), 0, "no answer");
        if let Some(at) = input.windows(4).position(|end| end == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8(input.drain(..head_end).collect()).expect("text");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut handshake = Handshake { status, headers, body: Value::Null, socket: None };
    if status == 101 {
        assert_eq!(handshake.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(handshake.header("sec-websocket-extensions"), None);
        handshake.socket = Some(Socket { stream, input, pings: 0 });
    } else {
        let length: usize =
            handshake.header("content-length").and_then(|text| text.parse().ok()).expect("a length");
        while input.len() < length {
            assert_ne!(stream.read_buf(&mut input).await.expect("a body"), 0, "the body ends early");
        }
        handshake.body = serde_json::from_slice(&input[..length]).expect("JSON");
    }
    handshake
}

/// Asks for a stream of `/v1/listen` with this key.
pub async fn listen(address: SocketAddr, key: &str, query: &str) -> Handshake {
    let token = format!("Token {key}");
    connect(address, &format!("/v1/listen?{query}"), &[("authorization", &token)]).await
}

impl Socket {
    /// A masked frame; `first` is its first byte: FIN and opcode.
    pub async fn frame(&mut self, first: u8, payload: &[u8]) {
        let mask = [0xA5, 0x0F, 0x33, 0x77];
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..126 => bytes.push(0x80 | length as u8),
            length @ 126..=0xFFFF => {
                bytes.push(0x80 | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(0x80 | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.raw(&bytes).await;
    }

    /// Bytes as they are. Where the server has closed already, nothing.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub async fn audio(&mut self, bytes: &[u8]) {
        self.frame(0x82, bytes).await;
    }

    pub async fn text(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes()).await;
    }

    pub async fn control(&mut self, kind: &str) {
        self.text(&format!(r#"{{"type":"{kind}"}}"#)).await;
    }

    pub async fn said(&mut self) -> Said {
        loop {
            match self.frame_said() {
                Some(Said::Ping(payload)) => {
                    self.pings += 1;
                    self.frame(0x8A, &payload).await;
                    continue;
                }
                Some(said) => return said,
                None => {}
            }
            if matches!(self.stream.read_buf(&mut self.input).await, Ok(0) | Err(_)) {
                return Said::Gone;
            }
        }
    }

    fn frame_said(&mut self) -> Option<Said> {
        let (&first, &second) = (self.input.first()?, self.input.get(1)?);
        assert_eq!(second & 0x80, 0, "a server does not mask");
        assert_eq!(first & 0x70, 0, "no extension was agreed to");
        let (start, length) = match second {
            126 => (4, usize::from(u16::from_be_bytes([*self.input.get(2)?, *self.input.get(3)?]))),
            127 => panic!("no message is so long"),
            length => (2, usize::from(length)),
        };
        if self.input.len() < start + length {
            return None;
        }
        let payload = self.input[start..start + length].to_vec();
        self.input.drain(..start + length);
        Some(match first {
            0x81 => Said::Message(serde_json::from_slice(&payload).expect("JSON")),
            0x82 => Said::Audio(payload),
            0x89 => Said::Ping(payload),
            0x8A => Said::Pong(payload),
            0x88 => match payload.split_at_checked(2) {
                Some((code, reason)) => Said::Close(
                    u16::from_be_bytes([code[0], code[1]]),
                    String::from_utf8(reason.to_vec()).expect("text"),
                ),
                None => Said::Close(1005, String::new()),
            },
            other => panic!("a frame that begins with {other:#x}"),
        })
    }

    /// The next message of the server.
    pub async fn message(&mut self) -> Value {
        match self.said().await {
            Said::Message(message) => message,
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// All messages up to the goodbye, and that.
    pub async fn rest(&mut self) -> (Vec<Value>, Said) {
        let mut messages = Vec::new();
        loop {
            match self.said().await {
                Said::Message(message) => messages.push(message),
                Said::Audio(_) | Said::Pong(_) | Said::Ping(_) => {}
                end => return (messages, end),
            }
        }
    }
}
