//! Hosts that a server fetches from: one that serves a file, one that sends elsewhere, one that never answers.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The head of a request without a body; `None` if the client leaves before its end.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(String::from_utf8(head).expect("text"))
}

/// Answers each request by `answer`, which gets its head, and closes; the port.
async fn host(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Some(head) = head(&mut stream).await {
                // A client may have seen enough.
                let _ = stream.write_all(&answer(&head)).await;
            }
        }
    });
    port
}

/// Serves `body` to requests whose head is as `wished`, and refuses others with 401; returns the port.
pub async fn file(body: Vec<u8>, wished: impl Fn(&str) -> bool + Send + 'static) -> u16 {
    let answer = move |head: &str| {
        let (status, body) = if wished(head) { ("200 OK", &body[..]) } else { ("401 No", &[][..]) };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    host(answer).await
}

/// Sends all clients on to `location`; the port.
pub async fn redirector(location: String) -> u16 {
    let head = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\nconnection: close\r\nlocation: ";
    host(move |_| format!("{head}{location}\r\n\r\n").into_bytes()).await
}

/// A web server that takes requests and never answers.
pub struct Silent {
    pub url: String,
    pub seen: watch::Receiver<Seen>,
}

#[derive(Default)]
pub struct Seen {
    paths: Vec<String>,
    /// Connections that are open.
    pub open: usize,
}

impl Silent {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (sees, seen) = watch::channel(Seen::default());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sees = sees.clone();
                tokio::spawn(async move { hold(stream, &sees).await });
            }
        });
        Self { url, seen }
    }

    pub async fn until(&mut self, wish: impl FnMut(&Seen) -> bool) {
        let seen = self.seen.wait_for(wish);
        tokio::time::timeout(Duration::from_secs(60), seen)
            .await
            .expect("it comes about")
            .expect("it listens");
    }

    pub fn count(&self, path: &str) -> usize {
        self.seen.borrow().paths.iter().filter(|seen| *seen == path).count()
    }
}

/// Keeps a request waiting until its client leaves.
async fn hold(mut stream: TcpStream, sees: &watch::Sender<Seen>) {
    let Some(head) = head(&mut stream).await else { return };
    let path = head.split(' ').nth(1).expect("a path").to_owned();
    sees.send_modify(|seen| {
        seen.paths.push(path);
        seen.open += 1;
    });
    let _ = stream.read(&mut [0; 64]).await;
    sees.send_modify(|seen| seen.open -= 1);
    let _ = stream.shutdown().await;
}
