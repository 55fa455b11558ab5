//! The embedded room over a WebSocket: binary frames are audio, text frames the messages of
//! [`super::message`].

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::media::{Incoming, Outgoing};
use super::message::{INPUT, Message as Sent, OUTPUT, Said, Settings};
use super::owner::Order;
use super::seat::{Inbound, Outbound, Seat};
use crate::audio;
use crate::http::websocket::{Limits, Message, ReadError, Socket};
use crate::patience::Patience;

pub const LIMITS: Limits = Limits { frame_bytes_max: 256 << 10, message_bytes_max: 1 << 20 };
/// Time for a client to answer the server's close.
const GOODBYE: Duration = Duration::from_secs(2);

pub const CLOSE_NORMAL: u16 = 1000;
pub const CLOSE_RESTART: u16 = 1012;
pub const CLOSE_INTERNAL: u16 = 1011;
pub const CLOSE_ENDED: u16 = 4000;
pub const CLOSE_IDLE: u16 = 4008;

pub struct Connection {
    socket: Socket,
    seat: Seat,
    stop: CancellationToken,
    idle: Patience,
    incoming: Incoming,
    outgoing: Outgoing,
    /// The session belongs to this client.
    is_owner: bool,
}

/// How a connection begins.
pub enum Opening {
    /// The client joins a session's room: it gets this `Welcome`.
    Welcome(String),
    /// The client had its `Welcome` and has sent `Settings`.
    Settings(Box<Settings>),
}

/// Why the connection is over.
enum Over {
    /// Close with this code.
    With(u16),
    /// The client has closed, with this code if any.
    Closed(Option<u16>),
    Gone,
}

impl From<std::io::Error> for Over {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl From<audio::Error> for Over {
    fn from(_: audio::Error) -> Self {
        Self::With(CLOSE_INTERNAL)
    }
}

/// Ends the connection if the agent is gone.
fn there(is_there: bool) -> Result<(), Over> {
    if is_there { Ok(()) } else { Err(Over::With(CLOSE_ENDED)) }
}

/// Sends a close frame, and gives the client time to read it: `code` answers the client's own frame, or ends the
/// connection.
pub async fn goodbye(mut socket: Socket, code: Option<u16>) {
    let farewell = async {
        if socket.close(code, "").await.is_ok() {
            socket.linger().await;
        }
    };
    let _ = tokio::time::timeout(GOODBYE, farewell).await;
}

impl Connection {
    /// A socket on which nothing arrives for `idle` is closed.
    pub fn new(socket: Socket, seat: Seat, idle: Duration, stop: CancellationToken) -> Self {
        let incoming = Incoming::new(INPUT).expect("a usual rate; this is a bug");
        let outgoing = Outgoing::new(OUTPUT).expect("a usual rate; this is a bug");
        Self { socket, seat, stop, idle: Patience::new(idle), incoming, outgoing, is_owner: false }
    }

    /// Serves the connection until either side ends it. Returns the code with which the server closed it, if it did.
    pub async fn run(mut self, opening: Opening) -> Option<u16> {
        self.is_owner = matches!(opening, Opening::Settings(_));
        let Err(over) = self.serve(opening).await;
        let Self { socket, seat, .. } = self;
        drop(seat);
        match over {
            Over::With(code) => {
                goodbye(socket, Some(code)).await;
                Some(code)
            }
            Over::Closed(code) => {
                goodbye(socket, code).await;
                None
            }
            Over::Gone => None,
        }
    }

    async fn serve(&mut self, opening: Opening) -> Result<std::convert::Infallible, Over> {
        match opening {
            Opening::Settings(settings) => self.apply(&settings).await?,
            Opening::Welcome(welcome) => self.socket.send_text(welcome).await?,
        }
        self.idle.renew();
        loop {
            tokio::select! {
                message = self.socket.next_by(&mut self.idle) => {
                    let message = message.ok_or(Over::With(CLOSE_IDLE))?;
                    self.idle.renew();
                    self.take(message).await?;
                }
                outbound = self.seat.from_agent.recv() => {
                    self.give(outbound.ok_or(Over::With(CLOSE_ENDED))?).await?;
                }
                () = self.stop.cancelled() => return Err(Over::With(CLOSE_RESTART)),
            }
        }
    }

    async fn apply(&mut self, settings: &Settings) -> Result<(), Over> {
        self.incoming = Incoming::new(settings.input)?;
        self.outgoing = Outgoing::new(settings.output)?;
        Ok(self.socket.send_text(Sent::SettingsApplied.to_json()).await?)
    }

    async fn take(&mut self, message: Result<Message, ReadError>) -> Result<(), Over> {
        let text = match message {
            Ok(Message::Text(text)) => text,
            Ok(Message::Binary(bytes)) => {
                let samples = self.incoming.read(&bytes);
                return there(self.seat.audio(samples).await);
            }
            Ok(Message::Ping(payload)) => return Ok(self.socket.pong(payload).await?),
            Ok(Message::Pong) => return Ok(()),
            Ok(Message::Close(code)) => return Err(Over::Closed(code)),
            Err(ReadError::Violation(violation)) => return Err(Over::With(violation.code)),
            Err(ReadError::Gone) => return Err(Over::Gone),
        };
        let is_there = match Said::read(&text) {
            Ok(Said::KeepAlive) => true,
            Ok(Said::Settings(settings)) => {
                self.apply(&settings).await?;
                true
            }
            Ok(Said::UserMessage(text)) => self.seat.send(Inbound::Text(text)).await,
            Ok(Said::Digit(digit)) => self.seat.send(Inbound::Digit(digit)).await,
            Ok(Said::Played(mark)) => self.seat.send(Inbound::Played(mark)).await,
            Ok(Said::PageContext(context)) => self.seat.send(Inbound::PageContext(context)).await,
            Ok(Said::Close) => return Err(Over::With(CLOSE_NORMAL)),
            // A session may be started with functions, which its clients run.
            Ok(Said::Order(order))
                if self.is_owner || matches!(*order, Order::FunctionCallResponse { .. }) =>
            {
                self.seat.send(Inbound::Order(order)).await
            }
            Ok(Said::Order(order)) => {
                let problem = format!("`{}` is for the session's owner", order.kind());
                let warning = Sent::Warning { code: "NOT_ALLOWED", description: &problem };
                self.socket.send_text(warning.to_json()).await?;
                true
            }
            Err(problem) => {
                let warning = Sent::Warning { code: "INVALID_MESSAGE", description: problem };
                self.socket.send_text(warning.to_json()).await?;
                true
            }
        };
        there(is_there)
    }

    async fn give(&mut self, outbound: Outbound) -> Result<(), Over> {
        match outbound {
            Outbound::Message(text) => self.socket.send_text(text.to_string()).await?,
            Outbound::Audio(samples, range) => {
                let bytes = self.outgoing.write(samples.get(range).unwrap_or_default());
                if !bytes.is_empty() {
                    self.socket.send_binary(Bytes::from(bytes)).await?;
                }
            }
            Outbound::Mark(mark) => self.socket.send_text(Sent::mark(mark).to_json()).await?,
            Outbound::Clear => {
                self.outgoing.clear()?;
                self.socket.send_text(Sent::Clear.to_json()).await?;
            }
            // The client gets a whole turn as an event of the session.
            Outbound::Heard { .. } | Outbound::Caller { .. } => {}
            // An event has already told the client why.
            Outbound::End => return Err(Over::With(CLOSE_ENDED)),
        }
        Ok(())
    }
}
