//! Telephone calls: Twilio's Media Streams (two-way, `<Connect><Stream>`) over a WebSocket.
//! JSON in text frames; μ-law at 8 kHz in base64.

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::media::{Format, Incoming, Outgoing};
use super::seat::{Inbound, Outbound, Seat, is_key};
use crate::http::websocket::{Message, Socket};
use crate::patience::Patience;

const TELEPHONE: Format = Format { is_mulaw: true, sample_rate_hz: 8_000 };
/// Time from the socket's opening to the `start` frame.
const START_WAIT: Duration = Duration::from_secs(10);
const NAME_BYTES_MAX: usize = 100;

/// The call or its socket is over.
pub struct Over;

/// The stream's `start` frame.
pub struct Start {
    pub stream: String,
    pub call: String,
    pub token: String,
}

/// Reads up to the `start` frame, which comes once.
///
/// # Errors
/// [`Over`] if it does not come in time.
pub async fn start(socket: &mut Socket) -> Result<Start, Over> {
    let mut patience = Patience::new(START_WAIT);
    loop {
        let Some(frame) = next(socket, &mut patience).await? else { continue };
        if frame.get("event").and_then(Value::as_str) != Some("start") {
            continue;
        }
        let text = |pointer: &str| {
            let text = frame.pointer(pointer).and_then(Value::as_str);
            text.filter(|text| text.len() <= 2048).map(str::to_owned).ok_or(Over)
        };
        let stream = text("/streamSid").or_else(|_| text("/start/streamSid"))?;
        let token = text("/start/customParameters/token")?;
        let call = text("/start/callSid").unwrap_or_default();
        if stream.len() > NAME_BYTES_MAX || call.len() > NAME_BYTES_MAX {
            return Err(Over);
        }
        return Ok(Start { stream, call, token });
    }
}

/// The next frame's JSON; none if it is not JSON.
async fn next(socket: &mut Socket, patience: &mut Patience) -> Result<Option<Value>, Over> {
    match socket.next_by(patience).await.ok_or(Over)? {
        Ok(Message::Text(text)) => Ok(serde_json::from_str(&text).ok()),
        Ok(Message::Ping(payload)) => {
            socket.pong(payload).await.map_err(|_| Over)?;
            Ok(None)
        }
        Ok(Message::Binary(_) | Message::Pong) => Ok(None),
        Ok(Message::Close(_)) | Err(_) => Err(Over),
    }
}

struct Leg<'a> {
    socket: &'a mut Socket,
    seat: &'a mut Seat,
    idle: Patience,
    stream: String,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// Serves the call until either side ends it. A socket on which nothing arrives for `idle` is closed.
///
/// # Errors
/// [`Over`], always.
pub async fn serve(
    socket: &mut Socket,
    seat: &mut Seat,
    stream: String,
    idle: Duration,
    stop: CancellationToken,
) -> Result<Infallible, Over> {
    let mut leg = Leg {
        socket,
        seat,
        idle: Patience::new(idle),
        stream,
        incoming: Incoming::new(TELEPHONE).map_err(|_| Over)?,
        outgoing: Outgoing::new(TELEPHONE).map_err(|_| Over)?,
    };
    leg.run(stop).await
}

/// A frame to the provider. Its JSON lists members in alphabetical order.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Frame<'a> {
    #[serde(rename_all = "camelCase")]
    Media { stream_sid: &'a str, media: Payload },
    #[serde(rename_all = "camelCase")]
    Mark { stream_sid: &'a str, mark: Mark },
    #[serde(rename_all = "camelCase")]
    Clear { stream_sid: &'a str },
}

#[derive(Serialize)]
struct Payload {
    /// Audio in base64.
    payload: String,
}

#[derive(Serialize)]
struct Mark {
    name: String,
}

impl Leg<'_> {
    async fn run(&mut self, stop: CancellationToken) -> Result<Infallible, Over> {
        loop {
            tokio::select! {
                message = self.socket.next_by(&mut self.idle) => {
                    let message = message.ok_or(Over)?;
                    self.idle.renew();
                    match message {
                        Ok(Message::Text(text)) => {
                            if let Ok(frame) = serde_json::from_str::<Value>(&text) {
                                self.take(&frame).await?;
                            }
                        }
                        Ok(Message::Ping(payload)) => self.socket.pong(payload).await.map_err(|_| Over)?,
                        Ok(Message::Binary(_) | Message::Pong) => {}
                        Ok(Message::Close(_)) | Err(_) => return Err(Over),
                    }
                }
                outbound = self.seat.from_agent.recv() => self.give(outbound.ok_or(Over)?).await?,
                () = stop.cancelled() => return Err(Over),
            }
        }
    }

    async fn take(&mut self, frame: &Value) -> Result<(), Over> {
        let text = |pointer: &str| frame.pointer(pointer).and_then(Value::as_str);
        let is_there = match text("/event") {
            Some("media") => {
                // A stream with both tracks also carries the agent's own voice.
                if text("/media/track").is_some_and(|track| track == "outbound") {
                    return Ok(());
                }
                let Some(bytes) = text("/media/payload").and_then(|payload| STANDARD.decode(payload).ok())
                else {
                    return Ok(());
                };
                let samples = self.incoming.read(&bytes);
                self.seat.audio(samples).await
            }
            Some("dtmf") => {
                match text("/dtmf/digit").and_then(|digit| digit.chars().next()).filter(|c| is_key(*c)) {
                    Some(digit) => self.seat.send(Inbound::Digit(digit)).await,
                    None => true,
                }
            }
            Some("mark") => match text("/mark/name").and_then(|name| name.parse().ok()) {
                Some(mark) => self.seat.send(Inbound::Played(mark)).await,
                None => true,
            },
            Some("stop") => false,
            _ => true,
        };
        if is_there { Ok(()) } else { Err(Over) }
    }

    async fn give(&mut self, outbound: Outbound) -> Result<(), Over> {
        let stream_sid = &self.stream;
        let frame = match outbound {
            // A telephone cannot show messages.
            Outbound::Message(_) | Outbound::Heard { .. } | Outbound::Caller { .. } => return Ok(()),
            Outbound::Audio(samples, range) => {
                let bytes = self.outgoing.write(samples.get(range).unwrap_or_default());
                if bytes.is_empty() {
                    return Ok(());
                }
                Frame::Media { stream_sid, media: Payload { payload: STANDARD.encode(bytes) } }
            }
            Outbound::Mark(mark) => Frame::Mark { stream_sid, mark: Mark { name: mark.to_string() } },
            Outbound::Clear => {
                self.outgoing.clear().map_err(|_| Over)?;
                Frame::Clear { stream_sid }
            }
            Outbound::End => return Err(Over),
        };
        // A `Value` sorts the members.
        let frame = serde_json::to_value(frame).expect("names are strings; this is a bug");
        self.socket.send_text(frame.to_string()).await.map_err(|_| Over)
    }
}
