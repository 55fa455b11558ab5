//! A server of audio that answers when it is told to: who asks it for a job's audio is doing that job.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::PATIENCE;

pub struct Media {
    pub port: u16,
    asked: mpsc::UnboundedReceiver<TcpStream>,
}

impl Media {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (sender, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.ok()?);
                    }
                    sender.send(stream).ok()
                });
            }
        });
        Self { port, asked }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/clip", self.port)
    }

    pub fn allowed(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The next one who asks.
    pub async fn asked(&mut self) -> TcpStream {
        tokio::time::timeout(PATIENCE, self.asked.recv()).await.expect("in time").expect("it runs")
    }

    /// Gives the one who asked the audio. He may be gone.
    pub async fn answer(mut stream: TcpStream, audio: &[u8]) {
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", audio.len());
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(audio).await;
    }
}
