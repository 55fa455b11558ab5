//! A client of HTTP/2 that sends its whole body before it looks at the answer, as common ones do, and takes a
//! reset for a failure.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

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
const INITIAL_WINDOW_SIZE: u16 = 4;
const FRAME_MAX: i64 = 16_384;

struct Client {
    stream: TcpStream,
    /// Bytes that may still be sent, on the connection and on the one stream.
    windows: [i64; 2],
    initial_window: i64,
    answer: Vec<u8>,
    is_answered: bool,
}

impl Client {
    async fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(id.to_be_bytes());
        bytes.extend(payload);
        self.stream.write_all(&bytes).await.expect("the server takes it");
    }

    /// Takes one frame in; true for the answer to a ping.
    async fn take(&mut self) -> bool {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.expect("a frame");
        let [a, b, c, kind, flags, ids @ ..] = head;
        let on_stream = usize::from(u32::from_be_bytes(ids) != 0);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).await.expect("its payload");
        let number = |at: usize| {
            payload.get(at..at + 4).map_or(0, |n| i64::from(u32::from_be_bytes([n[0], n[1], n[2], n[3]])))
        };
        match kind {
            DATA => {
                self.answer.extend(&payload);
                self.is_answered = flags & END_STREAM != 0;
            }
            WINDOW_UPDATE => self.windows[on_stream] += number(0),
            SETTINGS if flags & ACK == 0 => {
                for (at, setting) in payload.chunks(6).enumerate() {
                    if u16::from_be_bytes([setting[0], setting[1]]) == INITIAL_WINDOW_SIZE {
                        let window = number(at * 6 + 2);
                        self.windows[1] += window - self.initial_window;
                        self.initial_window = window;
                    }
                }
                self.frame(SETTINGS, ACK, 0, &[]).await;
            }
            RST_STREAM => panic!("the stream was reset with code {} under the client", number(0)),
            GOAWAY => panic!("the connection was given up"),
            _ => {}
        }
        kind == PING && flags & ACK != 0
    }
}

/// The JSON answer to a POST without a key whose body of `length` bytes is all sent first.
pub async fn answer_after_all_is_sent(address: SocketAddr, path: &str, length: i64) -> Value {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let mut client = Client {
        stream,
        windows: [65_535; 2],
        initial_window: 65_535,
        answer: Vec::new(),
        is_answered: false,
    };
    client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    client.frame(SETTINGS, 0, 0, &[]).await;
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-length", &length.to_string()),
    ];
    // Literals without an index (RFC 7541, section 6.2.2).
    let literal = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let block: Vec<u8> =
        fields.iter().flat_map(|(name, value)| [vec![0], literal(name), literal(value)].concat()).collect();
    client.frame(HEADERS, END_HEADERS, 1, &block).await;
    let mut left = length;
    while left > 0 {
        let size = left.min(FRAME_MAX).min(client.windows[0]).min(client.windows[1]);
        if size <= 0 {
            client.take().await;
            continue;
        }
        left -= size;
        client.windows = client.windows.map(|window| window - size);
        let flags = if left == 0 { END_STREAM } else { 0 };
        client.frame(DATA, flags, 1, &vec![0; size as usize]).await;
    }
    client.frame(PING, 0, 0, &[7; 8]).await;
    while !client.take().await {}
    assert!(client.is_answered, "no answer");
    serde_json::from_slice(&client.answer).expect("JSON")
}
