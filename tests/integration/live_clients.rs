//! Live clients that leave without closing the stream, of which nothing may remain.

use std::time::Duration;

use verbatim::live::Config;

use crate::live::{RAW, open, start};
use crate::server::TestServer;
use crate::socket::{Said, Socket};
use crate::streams::fixture;
use crate::tones::{bytes, utter};

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

async fn all_gone(server: &TestServer) {
    let gone = async {
        while server.live.streams() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("every stream is given up");
}

/// Resets the connection: the system drops unsent data and notifies the other side at once.
fn kill(socket: Socket) {
    socket.stream.set_zero_linger().expect("a socket");
}

#[tokio::test]
async fn killed_clients_leave_no_stream_and_no_reader_behind() {
    let server = start(Config { readers: 1, max_streams: 3, ..Config::default() }).await;
    for round in 0..20 {
        // In the middle of a window, of a container, and of a frame.
        let mut speaking = open(&server, &format!("{RAW}&interim_results=true")).await;
        speaking.audio(&bytes(&utter(&[(5, 0.9, 0.0)]))).await;
        let mut encoded = open(&server, "").await;
        encoded.audio(&fixture("flac.flac")[..50_000]).await;
        let mut halted = open(&server, RAW).await;
        halted.raw(&[0x82, 0xFE, 0xFF, 0xFF, 0, 0, 0, 0, 1, 2, 3]).await;
        if round % 2 == 0 {
            kill(speaking);
            kill(encoded);
            kill(halted);
        } else {
            drop((speaking, encoded, halted));
        }
        all_gone(&server).await;
    }
    // The one thread for containers is free again once it notices that the client has gone.
    let free = async {
        loop {
            let mut last = open(&server, "").await;
            last.audio(&fixture("flac.flac")).await;
            last.control("CloseStream").await;
            match last.rest().await.1 {
                Said::Close(1013, _) => tokio::time::sleep(Duration::from_millis(5)).await,
                end => break end,
            }
        }
    };
    let end = tokio::time::timeout(PATIENCE, free).await.expect("the thread is given back");
    assert_eq!(end, Said::Close(1000, String::new()));
}

#[tokio::test]
async fn half_open_sockets_are_given_up() {
    let server = start(Config { idle_timeout_ms: 200, ..Config::default() }).await;
    // Nothing arrives, and the client doesn't answer the close frame.
    let mut silent = open(&server, RAW).await;
    silent.audio(&bytes(&utter(&[(5, 0.5, 0.5)]))).await;
    // Only their half of it is closed.
    let mut deaf = open(&server, RAW).await;
    tokio::io::AsyncWriteExt::shutdown(&mut deaf.stream).await.expect("closed");
    all_gone(&server).await;
    // The sockets are still there on this side.
    drop((silent, deaf));
}
