//! Autobahn's test suite, against a WebSocket of this server that echoes every message.

use std::path::PathBuf;

use hyper::Method;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use verbatim::http::websocket::{self, Limits, Message, ReadError, Socket};
use verbatim::http::{Config, Request, Router};

use crate::server::Door;

/// The suite sends messages of 16 MiB.
const LIMITS: Limits = Limits { frame_bytes_max: 64 << 20, message_bytes_max: 64 << 20 };

async fn echo(mut socket: Socket, _: CancellationToken) {
    let (code, reason) = loop {
        let sent = match socket.next().await {
            Ok(Message::Text(text)) => socket.send_text(text).await,
            Ok(Message::Binary(bytes)) => socket.send_binary(bytes).await,
            Ok(Message::Ping(payload)) => socket.pong(payload).await,
            Ok(Message::Pong) => Ok(()),
            Ok(Message::Close(code)) => break (code, ""),
            Err(ReadError::Violation(violation)) => break (Some(violation.code), violation.reason),
            Err(ReadError::Gone) => return,
        };
        if sent.is_err() {
            return;
        }
    };
    if socket.close(code, reason).await.is_ok() {
        socket.linger().await;
    }
}

/// Runs the suite's `cases`, which must all pass strictly.
async fn pass(cases: &[&str]) {
    let router = Router::new().route(Method::GET, "/echo", |request: Request| async {
        websocket::accept(request, LIMITS, None, echo)
    });
    let door = Door::open(router, Config::default()).await;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/autobahn/run.py");
    let output = Command::new("python3")
        .arg("-W")
        .arg("ignore")
        .arg(script)
        .arg("--url")
        .arg(format!("ws://{}/echo", door.address))
        // However busy the machine is.
        .args(["--patience", "5", "--cases"])
        .args(cases)
        .output()
        .await
        .expect("Python 3");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", said.concat());
    println!("{}", said[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_control_fragments_text_and_goodbyes_are_handled_strictly() {
    pass(&["1", "2", "3", "4", "5", "6", "7", "10"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "hundreds of MiB, and minutes"]
async fn large_and_many_messages_are_handled_strictly() {
    pass(&["9"]).await;
}
