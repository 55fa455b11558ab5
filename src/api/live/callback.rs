//! Sends a stream's messages to the address that its client named, in order, instead of to the client: each
//! as a request of its own, or all over one WebSocket. If they are not accepted, the stream ends: lost
//! messages could not be made up for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use url::Url;
use uuid::Uuid;

use crate::fetch::{Fetcher, Message, SendError};
use crate::jobs::Jobs;
use crate::patience::within;

/// Messages in flight.
const QUEUED_MAX: usize = 64;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a message is sent again that was not accepted.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The destination of the messages, and the metadata that goes with them.
pub struct Address {
    pub fetcher: Fetcher,
    pub url: Url,
    pub method: Method,
    /// Signs messages as it signs the results of files.
    pub jobs: Option<Jobs>,
    pub request_id: Uuid,
    /// The id of the API key, which is no secret.
    pub key: String,
}

/// Why delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("the callback cannot be reached")]
    Unreachable(#[from] SendError),
    #[error("the callback answers with {0}")]
    Refused(u16),
    #[error("the callback's WebSocket is closed")]
    Closed,
    #[error("its task failed")]
    Broken(#[from] JoinError),
}

/// Dropping it abandons undelivered messages.
pub struct Callback {
    queue: Option<mpsc::Sender<Bytes>>,
    delivery: AbortOnDropHandle<Result<(), Lost>>,
}

impl Callback {
    pub fn open(address: Address) -> Self {
        let (queue, messages) = mpsc::channel(QUEUED_MAX);
        let delivery = async move {
            match address.url.scheme() {
                "ws" | "wss" => address.stream(messages).await,
                _ => address.post_all(messages).await,
            }
        };
        Self { queue: Some(queue), delivery: AbortOnDropHandle::new(tokio::spawn(delivery)) }
    }

    /// Queues a message as soon as there is room; drops it if delivery has failed.
    pub async fn send(&self, message: Bytes) {
        if let Some(queue) = &self.queue {
            let _ = queue.send(message).await;
        }
    }

    /// Returns the reason once delivery has failed. Cancel-safe.
    pub async fn lost(&mut self) -> Lost {
        match (&mut self.delivery).await {
            Ok(Ok(())) => Lost::Closed,
            Ok(Err(lost)) => lost,
            Err(error) => error.into(),
        }
    }

    /// Waits until everything is delivered.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn finish(mut self) -> Result<(), Lost> {
        self.queue = None;
        self.delivery.await?
    }
}

impl Address {
    async fn post_all(self, mut messages: mpsc::Receiver<Bytes>) -> Result<(), Lost> {
        let mut number = 0;
        while let Some(body) = messages.recv().await {
            number += 1;
            let mut pauses = PAUSES.into_iter();
            while let Err(lost) = self.post(number, body.clone()).await {
                let Some(pause) = pauses.next() else { return Err(lost) };
                tokio::time::sleep(pause).await;
            }
        }
        Ok(())
    }

    async fn post(&self, number: u64, body: Bytes) -> Result<(), Lost> {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(jobs) = &self.jobs {
            let id = format!("{}.{number}", self.request_id);
            let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            insert(&mut headers, "webhook-signature", &jobs.sign(&id, timestamp, &body));
            insert(&mut headers, "webhook-timestamp", &timestamp.to_string());
            insert(&mut headers, "webhook-id", &id);
        }
        let message = Message { method: self.method.clone(), url: self.url.clone(), headers, body };
        let reply = self.fetcher.send(message, ATTEMPT_TIMEOUT).await?;
        if (200..300).contains(&reply.status) { Ok(()) } else { Err(Lost::Refused(reply.status)) }
    }

    async fn stream(self, mut messages: mpsc::Receiver<Bytes>) -> Result<(), Lost> {
        let mut headers = self.headers();
        if !self.url.username().is_empty() {
            let user = format!("{}:{}", self.url.username(), self.url.password().unwrap_or_default());
            insert(&mut headers, AUTHORIZATION.as_str(), &format!("Basic {}", STANDARD.encode(user)));
        }
        let url = crate::fetch::without_user(&self.url);
        let stream = self.fetcher.connect(&url, headers, ATTEMPT_TIMEOUT).await?;
        let (mut reader, mut writer) =
            WebSocket::after_handshake(stream, Role::Client).split(tokio::io::split);
        let (obliged, mut obligations) = mpsc::channel::<Frame<'static>>(1);
        // Incoming messages are dropped, except for pings and the close frame.
        let mut oblige = move |frame: Frame<'static>| {
            let obliged = obliged.clone();
            async move { obliged.send(frame).await }
        };
        let read = async move {
            while let Ok(frame) = reader.read_frame(&mut oblige).await {
                if frame.opcode == OpCode::Close {
                    break;
                }
            }
        };
        let mut read = std::pin::pin!(read);
        loop {
            let frame = tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => Frame::text(Payload::Owned(message.into())),
                    None => break,
                },
                Some(frame) = obligations.recv() => frame,
                () = &mut read => return Err(Lost::Closed),
            };
            let written = within(ATTEMPT_TIMEOUT, writer.write_frame(frame)).await;
            if !matches!(written, Some(Ok(()))) {
                return Err(Lost::Closed);
            }
        }
        let goodbye = async {
            let _ = writer.write_frame(Frame::close(1000, b"")).await;
            read.await;
        };
        // Everything is sent; whether the close frame is answered makes no difference.
        let _ = tokio::time::timeout(ATTEMPT_TIMEOUT, goodbye).await;
        Ok(())
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        insert(&mut headers, "dg-token", &self.key);
        insert(&mut headers, "dg-request-id", &self.request_id.to_string());
        headers
    }
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    // All of these consist of letters, digits and a few signs.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
