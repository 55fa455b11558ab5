//! WebSockets to a LiveKit server: protobuf messages in binary frames.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fastwebsockets::{FragmentCollectorRead, Frame, OpCode, Payload, Role, WebSocket};
use prost::Message;
use reqwest::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use url::Url;

use super::server::{LiveKit, TIMEOUT};

/// Messages by which either side may lag behind.
const QUEUE: usize = 256;
/// Largest message in bytes: a session description takes some kilobytes per track.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    #[error("the LiveKit server cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the LiveKit server does not let the agent in: status {status}")]
    Refused { status: u16 },
    #[error("the LiveKit server closed the connection")]
    Closed,
}

/// A connection on which `Q` goes out and `A` comes in. Dropping it closes it.
pub struct Socket<Q, A> {
    outgoing: mpsc::Sender<Out<Q>>,
    incoming: mpsc::Receiver<A>,
    _tasks: JoinSet<()>,
}

enum Out<Q> {
    Message(Q),
    Pong(Vec<u8>),
}

impl<Q: Message + 'static, A: Message + Default + 'static> Socket<Q, A> {
    /// # Errors
    /// [`SignalError`].
    pub async fn open(livekit: &LiveKit, url: Url, token: &str) -> Result<Self, SignalError> {
        let handshake = livekit
            .client()
            .get(url)
            .bearer_auth(token)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, STANDARD.encode(rand::random::<[u8; 16]>()));
        // The request's own timeout would cut the connection later.
        let response = tokio::time::timeout(TIMEOUT, handshake.send()).await;
        let response = response.map_err(|_| SignalError::Closed)?.map_err(SignalError::Unreachable)?;
        let status = response.status().as_u16();
        if status != 101 {
            return Err(SignalError::Refused { status });
        }
        let stream = response.upgrade().await.map_err(SignalError::Unreachable)?;
        let mut socket = WebSocket::after_handshake(stream, Role::Client);
        socket.set_max_message_size(MESSAGE_BYTES_MAX);
        socket.set_auto_close(false);
        socket.set_auto_pong(false);
        let (read, mut write) = socket.split(tokio::io::split);
        let mut read = FragmentCollectorRead::new(read);
        let (outgoing, mut to_send) = mpsc::channel::<Out<Q>>(QUEUE);
        let (arrived, incoming) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        let pongs = outgoing.clone();
        tasks.spawn(async move {
            let mut nothing = async |_: Frame<'_>| Ok::<(), std::convert::Infallible>(());
            while let Ok(frame) = read.read_frame(&mut nothing).await {
                match frame.opcode {
                    OpCode::Ping => drop(pongs.send(Out::Pong(frame.payload.to_vec())).await),
                    OpCode::Binary => {
                        let message = A::decode(Bytes::copy_from_slice(&frame.payload));
                        let Ok(message) = message else { break };
                        if arrived.send(message).await.is_err() {
                            break;
                        }
                    }
                    OpCode::Close => break,
                    _ => {}
                }
            }
        });
        tasks.spawn(async move {
            while let Some(out) = to_send.recv().await {
                let frame = match out {
                    Out::Message(message) => Frame::binary(Payload::Owned(message.encode_to_vec())),
                    Out::Pong(payload) => Frame::pong(Payload::Owned(payload)),
                };
                if write.write_frame(frame).await.is_err() {
                    break;
                }
            }
        });
        Ok(Self { outgoing, incoming, _tasks: tasks })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The message, if the connection is closed.
    pub async fn send(&self, message: Q) -> Result<(), Option<Q>> {
        self.outgoing.send(Out::Message(message)).await.map_err(|closed| match closed.0 {
            Out::Message(message) => Some(message),
            Out::Pong(_) => None,
        })
    }

    /// Cancel-safe.
    ///
    /// # Errors
    /// [`SignalError::Closed`].
    pub async fn next(&mut self) -> Result<A, SignalError> {
        self.incoming.recv().await.ok_or(SignalError::Closed)
    }
}
