//! Autobahn's cases that need no echo (<https://github.com/crossbario/autobahn-testsuite>, categories 2 to 7 and 9), at every
//! WebSocket of the program: each breaks one rule of RFC 6455, or ends the connection by it, and must be answered with the
//! right close code. `autobahn.rs` runs the whole suite against the socket that all of them share.

use serde_json::json;

use super::{SOCKETS, Surfaces};
use crate::socket::{Said, Socket};

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8A;
/// First frames of a fragmented message, and the frames that go on and end it.
const TEXT_BEGINS: u8 = 0x01;
const BINARY_BEGINS: u8 = 0x02;
const GOES_ON: u8 = 0x00;
const ENDS: u8 = 0x80;

/// A frame of a case.
enum Part {
    Frame(u8, Vec<u8>),
    Raw(Vec<u8>),
}

struct Case {
    name: String,
    parts: Vec<Part>,
    /// 1005: a close frame without a code.
    code: u16,
}

fn case(name: impl Into<String>, parts: Vec<Part>, code: u16) -> Case {
    Case { name: name.into(), parts, code }
}

fn frame(first: u8, payload: &[u8]) -> Part {
    Part::Frame(first, payload.to_vec())
}

/// A masked frame that announces `length` bytes and brings none.
fn announced(first: u8, length: u64) -> Part {
    let mut bytes = vec![first, 0x80 | 127];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0; 4]);
    Part::Raw(bytes)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // 3: reserved bits.
    for bits in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70] {
        cases.push(case(
            format!("3: text with reserved bits {bits:#x}"),
            vec![frame(TEXT | bits, b"{}")],
            1002,
        ));
        cases.push(case(
            format!("3: ping with reserved bits {bits:#x}"),
            vec![frame(PING | bits, b"")],
            1002,
        ));
        cases.push(case(
            format!("3: close with reserved bits {bits:#x}"),
            vec![frame(CLOSE | bits, b"")],
            1002,
        ));
    }
    // 4: opcodes.
    for opcode in [3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF] {
        cases.push(case(format!("4: opcode {opcode}"), vec![frame(0x80 | opcode, b"x")], 1002));
        cases.push(case(format!("4: opcode {opcode}, empty"), vec![frame(0x80 | opcode, b"")], 1002));
    }
    let half = "κόσμε".as_bytes();
    let surrogate = b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80edited";
    cases.extend([
        // 2 and 5: control frames and fragments.
        case("2.5: a ping of 126 bytes", vec![frame(PING, &[0xFE; 126])], 1002),
        case("5.1: a fragmented ping", vec![frame(PING & 0x7F, b"x"), frame(ENDS, b"y")], 1002),
        case("5.2: a fragmented pong", vec![frame(PONG & 0x7F, b"x"), frame(ENDS, b"y")], 1002),
        case("5.9: a continuation of nothing", vec![frame(ENDS, b"x")], 1002),
        case("5.12: a continuation of nothing, unfinished", vec![frame(GOES_ON, b"x")], 1002),
        case(
            "5.15: a continuation after the end",
            vec![frame(TEXT_BEGINS, br#"{"type":"#), frame(ENDS, br#""KeepAlive"}"#), frame(GOES_ON, b"x")],
            1002,
        ),
        case("5.18: a text within a text", vec![frame(TEXT_BEGINS, b"{"), frame(TEXT, b"{}")], 1002),
        case("5.18: audio within a text", vec![frame(TEXT_BEGINS, b"{"), frame(BINARY, b"{}")], 1002),
        case("an unmasked frame", vec![Part::Raw(vec![TEXT, 2, b'{', b'}'])], 1002),
        case(
            "a length of 2 in 16 bits",
            vec![Part::Raw(vec![TEXT, 0x80 | 126, 0, 2, 0, 0, 0, 0, 1, 1])],
            1002,
        ),
        case("a length of 300 in 64 bits", vec![announced(TEXT, 300)], 1002),
        // 6: UTF-8.
        case("6.3: a surrogate", vec![frame(TEXT, surrogate)], 1007),
        case(
            "6.4: a surrogate in the second fragment",
            vec![frame(TEXT_BEGINS, &surrogate[..5]), frame(ENDS, &surrogate[5..])],
            1007,
        ),
        case("6.4: at once, though the message goes on", vec![frame(TEXT_BEGINS, b"\xf4\x90")], 1007),
        case("6.6: text that ends within a character", vec![frame(TEXT, &half[..half.len() - 1])], 1007),
        case("6.8: a byte that begins nothing", vec![frame(TEXT, b"\xfe")], 1007),
        case("6.10: an overlong slash", vec![frame(TEXT, b"\xc0\xaf")], 1007),
        // 7: goodbyes.
        case("7.3.1: a close without a code", vec![frame(CLOSE, b"")], 1005),
        case("7.3.2: half a code", vec![frame(CLOSE, b"\x03")], 1002),
        case(
            "7.3.5: a reason of 123 bytes",
            vec![frame(CLOSE, &[&b"\x03\xe8"[..], &[b'*'; 123]].concat())],
            1000,
        ),
        case(
            "7.3.6: a reason of 124 bytes",
            vec![frame(CLOSE, &[&b"\x03\xe8"[..], &[b'*'; 124]].concat())],
            1002,
        ),
        case("7.5.1: a reason that is no text", vec![frame(CLOSE, b"\x03\xe8\xce\xba\xed\xa0\x80")], 1007),
        case(
            "7.1.5: a close within a message",
            vec![frame(TEXT_BEGINS, b"{"), frame(CLOSE, b"\x03\xe8")],
            1000,
        ),
        case("7.1.4: text after the close", vec![frame(CLOSE, b"\x03\xe8"), frame(TEXT, b"{}")], 1000),
        case("a fragmented close", vec![frame(CLOSE & 0x7F, b"\x03\xe8")], 1002),
        // 9: sizes.
        case("9: a terabyte announced", vec![announced(BINARY, 1 << 40)], 1009),
        case("9: the longest text that can be announced", vec![announced(TEXT, u64::MAX >> 1)], 1009),
    ]);
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999_u16] {
        cases.push(case(format!("7.7: close {code}"), vec![frame(CLOSE, &code.to_be_bytes())], code));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535_u16] {
        cases.push(case(format!("7.9: close {code}"), vec![frame(CLOSE, &code.to_be_bytes())], 1002));
    }
    cases
}

impl Surfaces {
    async fn socket(&self, path: &str) -> Socket {
        let handshake = self.handshake(path, Some(&self.first.key)).await;
        handshake.socket.unwrap_or_else(|| panic!("{path}: {} {}", handshake.status, handshake.body))
    }

    /// An agent's socket that has begun its session.
    async fn talk(&self) -> Socket {
        let mut socket = self.socket("/v1/agent/converse").await;
        socket.text(&json!({"type": "Settings", "audio": {}, "agent": {}}).to_string()).await;
        while socket.message().await["type"] != "SettingsApplied" {}
        socket
    }
}

/// The code that the server closes with, and its pongs before; 0 if it is gone without a word.
async fn end(socket: &mut Socket) -> (u16, Vec<Vec<u8>>) {
    let mut pongs = Vec::new();
    loop {
        match socket.said().await {
            Said::Close(code, _) => return (code, pongs),
            Said::Gone => return (0, pongs),
            Said::Pong(payload) => pongs.push(payload),
            Said::Message(_) | Said::Audio(_) | Said::Ping(_) => {}
        }
    }
}

#[tokio::test]
async fn every_socket_closes_with_the_code_of_the_fault() {
    let surfaces = Surfaces::start(&[]).await;
    let mut faults = Vec::new();
    for path in SOCKETS.into_iter().chain(["a talk"]) {
        for Case { name, parts, code } in cases() {
            let mut socket = match path {
                "a talk" => surfaces.talk().await,
                path => surfaces.socket(path).await,
            };
            for part in parts {
                match part {
                    Part::Frame(first, payload) => socket.frame(first, &payload).await,
                    Part::Raw(bytes) => socket.raw(&bytes).await,
                }
            }
            let (closed, _) = end(&mut socket).await;
            if closed != code {
                faults.push(format!("{path}: {name}: {closed} instead of {code}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test]
async fn every_socket_answers_pings_between_fragments_too() {
    let surfaces = Surfaces::start(&[]).await;
    for path in SOCKETS {
        let mut socket = surfaces.socket(path).await;
        for number in 0..10 {
            socket.frame(PING, &[number; 12]).await;
        }
        socket.frame(PONG, b"unasked").await;
        socket.frame(PING, &[7; 125]).await;
        socket.frame(TEXT_BEGINS, br#"{"type":"#).await;
        socket.frame(PING, b"").await;
        socket.frame(GOES_ON, br#""Keep"#).await;
        socket.frame(PING, b"between").await;
        socket.frame(ENDS, br#"Alive"}"#).await;
        socket.frame(CLOSE, &1000_u16.to_be_bytes()).await;
        let mut expected: Vec<Vec<u8>> = (0..10).map(|number| vec![number; 12]).collect();
        expected.extend([vec![7; 125], Vec::new(), b"between".to_vec()]);
        assert_eq!(end(&mut socket).await, (1000, expected), "{path}");
    }
}

#[tokio::test]
async fn every_socket_bounds_a_message_however_many_frames_it_comes_in() {
    let surfaces = Surfaces::start(&[]).await;
    for path in SOCKETS {
        let mut socket = surfaces.socket(path).await;
        socket.frame(BINARY_BEGINS, &[0; 60_000]).await;
        // No socket takes in so much; what is written after its end goes nowhere.
        for _ in 0..600 {
            socket.frame(GOES_ON, &[0; 60_000]).await;
        }
        // A reset may overtake the goodbye while all this is on its way.
        let (code, _) = end(&mut socket).await;
        assert!(code == 1009 || code == 0, "{path}: {code}");
    }
    assert_eq!(surfaces.json("/v1/status").await["active_stream_requests"], 0);
}
