//! Data beside the audio: text that LiveKit's user interfaces send (`lk.chat`), telephone keys, and the messages of
//! [`super::super::message`] on the topic `verbatim`. The lines of the talk are in [`super::transcription`].

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message as _;
use serde_json::Value;

use super::protocol::{Data, DataPacket, User};
use crate::room::message::Said;
use crate::room::seat::is_key;

/// The topic of the room's messages, in both directions.
pub const TOPIC: &str = "verbatim";
const CHAT: &str = "lk.chat";
/// Longest typed text, in bytes.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Text streams open at the same time.
const STREAMS_MAX: usize = 16;
/// Bytes per message of a data channel: all browsers support 16 KiB.
pub const CHUNK_BYTES: usize = 15_000;

/// Packs a message of the room.
pub fn message(text: &str) -> Vec<u8> {
    let user = User { payload: text.as_bytes().to_vec(), topic: Some(TOPIC.into()) };
    packet("", Data::User(user))
}

/// A packet of a participant; an empty `identity` is the sender's own.
pub fn packet(identity: &str, value: Data) -> Vec<u8> {
    DataPacket { participant_identity: identity.to_owned(), value: Some(value) }.encode_to_vec()
}

/// Assembles messages from callers.
#[derive(Default)]
pub struct Inbox {
    /// Unfinished text, keyed by stream.
    typed: HashMap<String, Vec<u8>>,
}

impl Inbox {
    /// Takes a packet: the sender and the message, or none if the message is incomplete or unknown.
    pub fn take(&mut self, bytes: Vec<u8>) -> Option<(String, Said)> {
        let DataPacket { participant_identity, value } = DataPacket::decode(Bytes::from(bytes)).ok()?;
        let said = match value? {
            Data::User(user) if user.topic.as_deref() == Some(TOPIC) => {
                Said::read(std::str::from_utf8(&user.payload).ok()?).ok()?
            }
            Data::User(_) => return None,
            Data::Dtmf(dtmf) => Said::Digit(dtmf.digit.chars().next().filter(|c| is_key(*c))?),
            Data::Header(header) => {
                if header.topic == CHAT && self.typed.len() < STREAMS_MAX {
                    self.typed.insert(header.stream_id, Vec::new());
                }
                return None;
            }
            Data::Chunk(chunk) => {
                let text = self.typed.get_mut(&chunk.stream_id)?;
                text.extend_from_slice(&chunk.content);
                if text.len() > TEXT_BYTES_MAX {
                    self.typed.remove(&chunk.stream_id);
                }
                return None;
            }
            Data::Trailer(trailer) => {
                let text = String::from_utf8(self.typed.remove(&trailer.stream_id)?).ok()?;
                Said::UserMessage(Some(text).filter(|text| !text.trim().is_empty())?)
            }
        };
        Some((participant_identity, said))
    }
}

/// The meaning of a room message for LiveKit's user interfaces.
pub enum Meaning {
    /// The agent's state: `listening`, `thinking` or `speaking`.
    State(String),
    /// The agent begins a sentence.
    Sentence(String),
    /// The agent has said all of its line.
    Said,
    /// The part of the agent's line that was heard before it was interrupted.
    Cut(String),
    Other,
}

pub fn meaning(message: &str) -> Meaning {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    let text = |name: &str| message.get(name).and_then(Value::as_str);
    match (text("type"), text("state"), text("content")) {
        (Some("AgentState"), Some(state), _) => Meaning::State(state.to_owned()),
        // A line is over when the next one is thought of, if nothing else told.
        (Some("AgentAudioDone" | "AgentThinking"), ..) => Meaning::Said,
        (Some("ConversationText"), _, Some(content)) if text("role") == Some("assistant") => {
            // An event of the session, which says whether the line was interrupted.
            if message.get("interrupted").is_some_and(|interrupted| *interrupted == true) {
                Meaning::Cut(content.to_owned())
            } else {
                Meaning::Sentence(content.to_owned())
            }
        }
        _ => Meaning::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Chunk, Header, Trailer};
    use super::*;

    fn chat(text: &str) -> Vec<Vec<u8>> {
        let id = "s".to_owned();
        let header = Header { stream_id: id.clone(), topic: CHAT.into(), ..Header::default() };
        let chunk = Chunk { stream_id: id.clone(), content: text.into(), ..Chunk::default() };
        [
            Data::Header(header),
            Data::Chunk(chunk),
            Data::Trailer(Trailer { stream_id: id, ..Trailer::default() }),
        ]
        .map(|data| packet("ann", data))
        .into()
    }

    #[test]
    fn what_is_typed_comes_in_pieces_and_not_without_end() {
        let mut inbox = Inbox::default();
        let mut all = |text: &str| chat(text).into_iter().filter_map(|p| inbox.take(p)).collect::<Vec<_>>();
        assert_eq!(all("Hello"), [("ann".to_owned(), Said::UserMessage("Hello".into()))]);
        assert!(all(&"x".repeat(TEXT_BYTES_MAX + 1)).is_empty());
        assert!(all(" ").is_empty());
        assert!(inbox.take(vec![0xff; 7]).is_none());
        assert!(inbox.typed.is_empty());
    }

    #[test]
    fn messages_and_keys_are_those_of_the_room() {
        let mut inbox = Inbox::default();
        let said = inbox.take(message(r#"{"type":"InjectUserMessage","content":"Hi"}"#));
        assert_eq!(said, Some((String::new(), Said::UserMessage("Hi".into()))));
        let other = User { payload: b"{}".to_vec(), topic: None };
        assert!(inbox.take(packet("", Data::User(other))).is_none());
        let dtmf =
            |digit: &str| packet("tel", Data::Dtmf(super::super::protocol::Dtmf { digit: digit.into() }));
        assert_eq!(inbox.take(dtmf("#")), Some(("tel".to_owned(), Said::Digit('#'))));
        assert!(inbox.take(dtmf("x")).is_none());
    }
}
