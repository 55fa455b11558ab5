//! The leg of a telephone call: Twilio's Media Streams (two-way, `<Connect><Stream>`) over a WebSocket.
//! JSON in text frames; μ-law at 8 kHz in base64.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::media::{Incoming, Outgoing};
use super::wire::{Format, is_key};
use super::{Inbound, Outbound, Seat};
use crate::http::websocket::{self, Message, Socket};
use crate::http::{Failure, Request, Response};
use crate::patience::Patience;
use crate::sts::Service;
use crate::sts::session::Call;
use crate::sts::sessions::now;
use crate::sts::token::Kind;

const TELEPHONE: Format = Format { is_mulaw: true, sample_rate_hz: 8_000 };
/// From the socket's begin to the stream's.
const START_WAIT: Duration = Duration::from_secs(10);
const NAME_BYTES_MAX: usize = 100;

/// The call is over, or the socket is.
struct Over;

/// `GET /api/twilio/media`: the stream that our TwiML named. Its token comes with the first frames.
pub async fn media(service: Arc<Service>, request: Request) -> Result<Response, Failure> {
    websocket::accept(request, super::websocket::LIMITS, None, move |mut socket, stop| async move {
        let _ = serve(&service, &mut socket, stop).await;
        let _ = socket.close(Some(1000), "").await;
    })
}

async fn serve(
    service: &Arc<Service>,
    socket: &mut Socket,
    stop: CancellationToken,
) -> Result<Infallible, Over> {
    let start = start(socket).await?;
    let claims = service.signer.check(&start.token, now() / 1000).filter(|claims| claims.kind == Kind::Phone);
    let live = claims.as_ref().and_then(|claims| service.sessions.get(&claims.session)).ok_or(Over)?;
    let call = Call { call_sid: start.call, stream_sid: start.stream.clone(), started: now(), ended: None };
    let begun = live.change(|session, _, _| {
        session.check_open()?;
        session.call = Some(call);
        Ok(())
    });
    begun.await.map_err(|_| Over)?;
    let seat = service.join(&live, Kind::Phone, "caller").await.map_err(|_| Over)?;
    let mut leg = Leg {
        socket,
        seat,
        idle: Patience::new(Duration::from_millis(service.config.phone_idle_timeout_ms)),
        stream: start.stream,
        incoming: Incoming::new(TELEPHONE).map_err(|_| Over)?,
        outgoing: Outgoing::new(TELEPHONE).map_err(|_| Over)?,
    };
    let over = leg.run(stop).await;
    let ended = live.change(|session, now, _| {
        if let Some(call) = &mut session.call {
            call.ended.get_or_insert(now);
        }
        Ok(())
    });
    if let Err(error) = ended.await {
        tracing::warn!(session = live.id, %error, "the call's end is not noted");
    }
    over
}

struct Start {
    stream: String,
    call: String,
    token: String,
}

/// Reads up to the `start` frame, which comes once.
async fn start(socket: &mut Socket) -> Result<Start, Over> {
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

/// The next frame's JSON; none for what is none.
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
    seat: Seat,
    idle: Patience,
    stream: String,
    incoming: Incoming,
    outgoing: Outgoing,
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
                // Of a stream with both tracks, the other one is our own voice.
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
        let frame = match outbound {
            // A telephone has no use for messages.
            Outbound::Message(_) => return Ok(()),
            Outbound::Audio(samples, range) => {
                let bytes = self.outgoing.write(samples.get(range).unwrap_or_default());
                if bytes.is_empty() {
                    return Ok(());
                }
                json!({"event": "media", "streamSid": self.stream, "media": {"payload": STANDARD.encode(bytes)}})
            }
            Outbound::Mark(mark) => {
                json!({"event": "mark", "streamSid": self.stream, "mark": {"name": mark.to_string()}})
            }
            Outbound::Clear => {
                self.outgoing.clear().map_err(|_| Over)?;
                json!({"event": "clear", "streamSid": self.stream})
            }
            Outbound::End => return Err(Over),
        };
        self.socket.send_text(frame.to_string()).await.map_err(|_| Over)
    }
}
