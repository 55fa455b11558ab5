//! Those who listen in on a talk, over a WebSocket: binary frames are the sound of both sides, 16-bit at 16 kHz and
//! mono, 20 ms each; text frames are the messages that participants get. An observer is heard by no one.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::mixer::Mixer;
use super::seat::Outbound;
use super::websocket::{CLOSE_ENDED, CLOSE_IDLE, CLOSE_INTERNAL, CLOSE_NORMAL, CLOSE_RESTART, goodbye};
use crate::http::websocket::{Message, ReadError, Socket};
use crate::patience::Patience;

const FRAME: Duration = Duration::from_millis(20);

/// Serves an observer until either side ends it: a client sends something, such as `KeepAlive`, at least every `idle`.
/// Returns the code with which the server closed the connection, if it did.
pub async fn observe(
    mut socket: Socket,
    mut talk: mpsc::Receiver<Outbound>,
    welcome: String,
    idle: Duration,
    stop: CancellationToken,
) -> Option<u16> {
    let (answer, code) = match serve(&mut socket, &mut talk, welcome, idle, stop).await {
        Over::With(code) => (Some(code), Some(code)),
        Over::Closed(code) => (code, None),
        Over::Gone => return None,
    };
    drop(talk);
    goodbye(socket, answer).await;
    code
}

enum Over {
    /// Close with this code.
    With(u16),
    /// The client has closed, with this code if any.
    Closed(Option<u16>),
    Gone,
}

async fn serve(
    socket: &mut Socket,
    talk: &mut mpsc::Receiver<Outbound>,
    welcome: String,
    idle: Duration,
    stop: CancellationToken,
) -> Over {
    let Ok(mut mixer) = Mixer::new() else { return Over::With(CLOSE_INTERNAL) };
    if socket.send_text(welcome).await.is_err() {
        return Over::Gone;
    }
    let mut idle = Patience::new(idle);
    let mut clock = interval(FRAME);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        let sent = tokio::select! {
            message = socket.next_by(&mut idle) => {
                let Some(message) = message else { return Over::With(CLOSE_IDLE) };
                idle.renew();
                match message {
                    Ok(Message::Ping(payload)) => socket.pong(payload).await,
                    Ok(Message::Text(text)) if is_close(&text) => return Over::With(CLOSE_NORMAL),
                    Ok(Message::Text(_) | Message::Binary(_) | Message::Pong) => Ok(()),
                    Ok(Message::Close(code)) => return Over::Closed(code),
                    Err(ReadError::Violation(violation)) => return Over::With(violation.code),
                    Err(ReadError::Gone) => return Over::Gone,
                }
            }
            outbound = talk.recv() => match outbound {
                None | Some(Outbound::End) => return Over::With(CLOSE_ENDED),
                Some(Outbound::Message(text)) => socket.send_text(text.to_string()).await,
                Some(Outbound::Audio(samples, range)) => {
                    mixer.agent(samples.get(range).unwrap_or_default());
                    Ok(())
                }
                Some(Outbound::Caller { seat, samples }) => {
                    mixer.caller(seat, &samples);
                    Ok(())
                }
                Some(Outbound::Clear) => {
                    mixer.clear();
                    Ok(())
                }
                Some(Outbound::Mark(_) | Outbound::Heard { .. }) => Ok(()),
            },
            _ = clock.tick() => {
                let sample = |sample: f32| (sample * 32_767.0).clamp(-32_768.0, 32_767.0) as i16;
                let bytes: Vec<u8> = mixer.frame().into_iter().flat_map(|s| sample(s).to_le_bytes()).collect();
                socket.send_binary(Bytes::from(bytes)).await
            }
            () = stop.cancelled() => return Over::With(CLOSE_RESTART),
        };
        if sent.is_err() {
            return Over::Gone;
        }
    }
}

fn is_close(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|message| message["type"] == "Close")
}
