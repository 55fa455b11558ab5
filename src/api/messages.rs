//! The readers of clients' messages, one for each socket, for tests that send them anything.

use super::live;
use super::openai::realtime::ClientEvent;
use super::parameters::{Parameters, TurnParameters};
use super::speak::{self, Said};
use super::turns;
use crate::engine::ModelInfo;

/// A WebSocket whose clients send text messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// `/v1/listen`
    Listen,
    /// `/v2/listen`
    Turns,
    /// `/v1/realtime`
    Realtime,
    /// `/v1/speak`
    Speak,
    /// `/v2/speak`
    SpeechTurns,
}

/// Whether a new stream understands `text`, and can change its options where it asks for that.
pub fn understands(socket: Socket, text: &str, model: &ModelInfo) -> bool {
    match socket {
        Socket::Listen => match live::Control::read(text) {
            Some(live::Control::Configure(change)) => change.apply(&mut Parameters::default()).is_ok(),
            control => control.is_some(),
        },
        Socket::Turns => match turns::Control::read(text) {
            Some(Ok(turns::Control::Configure(change))) => TurnParameters::parse("")
                .is_ok_and(|mut parameters| change.apply(&mut parameters, model).is_ok()),
            control => matches!(control, Some(Ok(_))),
        },
        Socket::Realtime => ClientEvent::read(text).event.is_ok(),
        Socket::Speak => Said::read(text).is_some(),
        Socket::SpeechTurns => speak::turns::Said::read(text).is_some(),
    }
}
