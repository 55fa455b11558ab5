//! A live stream whose messages go to another address.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use serde_json::Value;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use verbatim::fetch;
use verbatim::jobs::SigningSecret;

use crate::live::{RAW, finals, open};
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{Setup, TestServer};
use crate::socket::{Said, Socket};
use crate::tones::{Listener, bytes, utter};

async fn server(allowed: String) -> TestServer {
    let fetch = fetch::Config { allow: vec![allowed], ..fetch::Config::default() };
    TestServer::start(Setup { fetch, model: Some(Box::new(Listener::new())), ..Setup::default() }).await
}

async fn say_and_close(socket: &mut Socket) -> (Vec<Value>, Said) {
    socket.audio(&bytes(&utter(&[(5, 0.5, 1.0), (6, 0.5, 1.0)]))).await;
    socket.control("CloseStream").await;
    socket.rest().await
}

fn kinds(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["type"].as_str().expect("a type")).collect()
}

#[tokio::test]
async fn messages_are_posted_in_order_signed_and_again_where_they_were_not_taken() {
    let mut receiver = Receiver::start(&["500 Oops"]).await;
    let server = server(receiver.allowed()).await;
    let callback = callback_parameter(&format!("http://user:pass@127.0.0.1:{}/live", receiver.port));
    let mut socket = open(&server, &format!("{RAW}&{callback}&callback_method=PUT")).await;
    let (messages, end) = say_and_close(&mut socket).await;
    assert_eq!((kinds(&messages), end), (vec!["Metadata"], Said::Close(1000, String::new())));

    let refused = receiver.next().await;
    let mut posted = Vec::new();
    for number in 1.. {
        let received = receiver.next().await;
        assert_eq!((received.method.as_str(), received.path.as_str()), ("PUT", "/live"));
        let header = |name: &str| received.headers.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!(header("content-type"), "application/json");
        assert_eq!(header("authorization"), format!("Basic {}", STANDARD.encode("user:pass")));
        let message = received.json();
        let request_id = messages[0]["request_id"].as_str().expect("an id");
        assert_eq!(header("dg-request-id"), request_id);
        assert!(!header("dg-token").is_empty() && !header("dg-token").contains("org_"));
        assert_eq!(header("webhook-id"), format!("{request_id}.{number}"));
        let secret = SigningSecret::of(server.state.path()).expect("a secret");
        let timestamp = header("webhook-timestamp").parse().expect("seconds");
        assert_eq!(header("webhook-signature"), secret.sign(header("webhook-id"), timestamp, &received.body));
        let is_last = message["type"] == "Metadata";
        posted.push(message);
        if is_last {
            break;
        }
    }
    assert!(receiver.is_done());
    assert_eq!(refused.json(), posted[0]);
    assert_eq!(finals(&posted), "W5, W6,");
    assert_eq!(posted.last(), messages.last());
}

#[tokio::test]
async fn a_stream_whose_messages_are_not_taken_is_closed() {
    let receiver = Receiver::start(&["500 Oops", "404 None", "302 Away"]).await;
    let server = server(receiver.allowed()).await;
    let callback = callback_parameter(&format!("http://127.0.0.1:{}/", receiver.port));
    let mut socket = open(&server, &format!("{RAW}&{callback}")).await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 1.0), (6, 0.5, 1.0)]))).await;
    let (messages, end) = socket.rest().await;
    assert_eq!(messages, Vec::<Value>::new());
    assert!(matches!(&end, Said::Close(1011, reason) if reason.contains("callback")), "{end:?}");
}

async fn accept(listener: &TcpListener) -> (String, WebSocket<TcpStream>) {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    let head = String::from_utf8(head).expect("text");
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).expect("a key");
    let accept = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
    let reply = format!(
        "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
    );
    stream.write_all(reply.as_bytes()).await.expect("sent");
    (head, WebSocket::after_handshake(stream, Role::Server))
}

#[tokio::test]
async fn messages_go_over_one_websocket_and_its_end_ends_the_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = server(address.to_string()).await;
    let query = format!("{RAW}&{}", callback_parameter(&format!("ws://{address}/live?a=b")));

    let mut socket = open(&server, &query).await;
    let (head, mut receiver) = accept(&listener).await;
    assert!(head.starts_with("GET /live?a=b HTTP/1.1\r\n") && head.contains("dg-token: "), "{head}");
    let ping = Frame::new(true, OpCode::Ping, None, Payload::Borrowed(b"there?"));
    receiver.write_frame(ping).await.expect("sent");
    let pong = receiver.read_frame().await.expect("a frame");
    assert_eq!((pong.opcode, &pong.payload[..]), (OpCode::Pong, &b"there?"[..]));
    let receive = async {
        let mut messages = Vec::new();
        loop {
            let frame = receiver.read_frame().await.expect("a frame");
            match frame.opcode {
                OpCode::Text => messages.push(serde_json::from_slice::<Value>(&frame.payload).expect("JSON")),
                OpCode::Close => break messages,
                other => panic!("{other:?}"),
            }
        }
    };
    let ((told, end), messages) = tokio::join!(say_and_close(&mut socket), receive);
    assert_eq!((kinds(&told), end), (vec!["Metadata"], Said::Close(1000, String::new())));
    assert_eq!(finals(&messages), "W5, W6,");
    assert_eq!(messages.last(), told.last());

    let mut second = open(&server, &query).await;
    drop(accept(&listener).await);
    let (_, end) = second.rest().await;
    assert!(matches!(&end, Said::Close(1011, reason) if reason.contains("callback")), "{end:?}");
}
