//! A receiver of callbacks on loopback, which answers by a script and records its requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The query parameter, escaped.
pub fn callback_parameter(url: &str) -> String {
    url::form_urlencoded::Serializer::new(String::new()).append_pair("callback", url).finish()
}

/// A request that arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

pub struct Receiver {
    pub port: u16,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    /// Answers with `replies` in turn (a status line and headers, `500 Oops`), then always with 200. An empty reply
    /// means no answer: the connection is held open.
    pub async fn start(replies: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let mut replies: Vec<String> = replies.iter().map(|reply| (*reply).to_owned()).collect();
        replies.reverse();
        let replies = Arc::new(Mutex::new(replies));
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, replies.clone(), sender.clone()));
            }
        });
        Self { port, received }
    }

    /// An entry of the allow-list for this receiver.
    pub fn allowed(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The next request to arrive.
    pub async fn next(&mut self) -> Received {
        tokio::time::timeout(PATIENCE, self.received.recv()).await.expect("in time").expect("it runs")
    }

    /// Whether no further request has arrived so far.
    pub fn is_done(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

async fn serve(
    mut stream: TcpStream,
    replies: Arc<Mutex<Vec<String>>>,
    sender: mpsc::UnboundedSender<Received>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let (first, rest) = head.split_once("\r\n")?;
    let headers: HashMap<String, String> = rest
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let reply = replies.lock().expect("no panic").pop().unwrap_or_else(|| "200 OK".into());
    let mut words = first.split(' ').map(str::to_owned);
    let received = Received { method: words.next()?, path: words.next()?, headers, body };
    if reply.is_empty() {
        sender.send(received).ok()?;
        // Wait until the other side gives up.
        let _ = stream.read_u8().await;
        return None;
    }
    let reply = format!("HTTP/1.1 {reply}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(reply.as_bytes()).await.ok()?;
    sender.send(received).ok()
}
