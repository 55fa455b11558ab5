//! Lines of the talk in the form that LiveKit's user interfaces read: text streams on the topic `lk.transcription`.
//!
//! Streams with the same `lk.segment_id` are versions of one line, of which the last counts. The agent's line is one
//! stream that grows sentence by sentence, and is final when it closes; of a caller's line each version is a stream
//! of its own. Source: `livekit-agents`, `room_io/_output.py`, and `components-js`, `textStream.ts`.

use std::collections::HashMap;

use uuid::Uuid;

use super::data::{CHUNK_BYTES, packet};
use super::protocol::{Chunk, Data, Header, Text, Trailer};
use crate::clock::now;

const TOPIC: &str = "lk.transcription";
const SEGMENT: &str = "lk.segment_id";
const TRACK: &str = "lk.transcribed_track_id";
const FINAL: &str = "lk.transcription_final";

/// The lines that are being said.
#[derive(Default)]
pub struct Lines {
    agent: Option<Stream>,
    /// The segments of callers' lines, keyed by seat.
    callers: HashMap<u64, String>,
}

/// A speaker: both texts may be empty, the identity for the agent, the track for those without one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Speaker<'a> {
    pub identity: &'a str,
    pub track: &'a str,
}

impl Lines {
    /// The agent begins a sentence.
    pub fn agent_says(&mut self, sentence: &str, track: &str) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut stream = self.agent.take().unwrap_or_else(|| {
            let stream = Stream::new(segment(), Speaker { identity: "", track });
            packets.push(stream.header(false, None));
            stream
        });
        let separator = if stream.chunks > 0 { " " } else { "" };
        packets.extend(stream.text(&format!("{separator}{sentence}")));
        self.agent = Some(stream);
        packets
    }

    /// The agent has said all of its line.
    pub fn agent_ends(&mut self) -> Option<Vec<u8>> {
        self.agent.take().map(|stream| stream.trailer(true))
    }

    /// The agent was interrupted: its line is `heard`, the part that was heard.
    pub fn agent_was_cut(&mut self, heard: &str) -> Vec<Vec<u8>> {
        let Some(stream) = self.agent.take() else { return Vec::new() };
        let mut packets = vec![stream.trailer(false)];
        let speaker = Speaker { identity: "", track: &stream.track };
        packets.extend(whole(stream.segment.clone(), heard, speaker, true));
        packets
    }

    /// A version of the line that the caller in `seat` is saying; the last one is final.
    pub fn caller_says(
        &mut self,
        seat: u64,
        text: &str,
        is_final: bool,
        speaker: Speaker<'_>,
    ) -> Vec<Vec<u8>> {
        let segment = self.callers.remove(&seat).unwrap_or_else(segment);
        if !is_final {
            self.callers.insert(seat, segment.clone());
        }
        whole(segment, text, speaker, is_final)
    }
}

fn segment() -> String {
    format!("SG_{}", Uuid::new_v4().simple())
}

/// A stream whose text is known from the start.
fn whole(segment: String, text: &str, speaker: Speaker<'_>, is_final: bool) -> Vec<Vec<u8>> {
    let mut stream = Stream::new(segment, speaker);
    let mut packets = vec![stream.header(is_final, Some(text.len() as u64))];
    packets.extend(stream.text(text));
    packets.push(stream.trailer(is_final));
    packets
}

struct Stream {
    id: String,
    segment: String,
    identity: String,
    track: String,
    /// Chunks so far.
    chunks: u64,
}

impl Stream {
    fn new(segment: String, Speaker { identity, track }: Speaker<'_>) -> Self {
        let id = Uuid::new_v4().to_string();
        Self { id, segment, identity: identity.to_owned(), track: track.to_owned(), chunks: 0 }
    }

    fn attributes(&self, is_final: bool) -> HashMap<String, String> {
        let mut attributes = HashMap::from([
            (SEGMENT.to_owned(), self.segment.clone()),
            (FINAL.to_owned(), is_final.to_string()),
        ]);
        if !self.track.is_empty() {
            attributes.insert(TRACK.to_owned(), self.track.clone());
        }
        attributes
    }

    fn header(&self, is_final: bool, total_length: Option<u64>) -> Vec<u8> {
        let header = Header {
            stream_id: self.id.clone(),
            timestamp: i64::try_from(now()).unwrap_or_default(),
            topic: TOPIC.into(),
            mime_type: "text/plain".into(),
            total_length,
            attributes: self.attributes(is_final),
            text: Some(Text {}),
        };
        packet(&self.identity, Data::Header(header))
    }

    /// The chunks of `text`. Each is text by itself, as clients decode them one by one.
    fn text(&mut self, text: &str) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (content, after) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES));
            let (stream_id, content) = (self.id.clone(), content.as_bytes().to_vec());
            let chunk = Chunk { stream_id, chunk_index: self.chunks, content };
            packets.push(packet(&self.identity, Data::Chunk(chunk)));
            (rest, self.chunks) = (after, self.chunks + 1);
        }
        packets
    }

    fn trailer(&self, is_final: bool) -> Vec<u8> {
        let attributes = self.attributes(is_final);
        packet(&self.identity, Data::Trailer(Trailer { stream_id: self.id.clone(), attributes }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;

    use super::super::protocol::DataPacket;
    use super::*;

    /// `(segment, text, is_final)` of each stream, and its sender, as a client puts them together.
    fn read(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<(String, String, bool, String)> {
        let mut streams: Vec<(String, Header, String, String)> = Vec::new();
        for bytes in packets {
            let packet = DataPacket::decode(Bytes::from(bytes)).expect("a packet");
            match packet.value.expect("data") {
                Data::Header(header) => {
                    let id = header.stream_id.clone();
                    streams.push((id, header, String::new(), packet.participant_identity));
                }
                Data::Chunk(chunk) => {
                    let stream = streams.iter_mut().find(|stream| stream.0 == chunk.stream_id);
                    stream.expect("a header first").2 += str::from_utf8(&chunk.content).expect("text");
                }
                Data::Trailer(trailer) => {
                    let stream = streams.iter_mut().find(|stream| stream.0 == trailer.stream_id);
                    stream.expect("a header first").1.attributes.extend(trailer.attributes);
                }
                _ => panic!("no part of a stream"),
            }
        }
        let read = |(_, header, text, sender): (_, Header, _, _)| {
            assert_eq!(header.topic, TOPIC);
            (header.attributes[SEGMENT].clone(), text, header.attributes[FINAL] == "true", sender)
        };
        streams.into_iter().map(read).collect()
    }

    #[test]
    fn the_agents_line_is_one_stream_that_grows_and_becomes_final() {
        let mut lines = Lines::default();
        let mut packets = lines.agent_says("Hello.", "TR_1");
        packets.extend(lines.agent_says("How are you?", "TR_1"));
        let growing = read(packets.clone());
        assert_eq!((growing.len(), growing[0].1.as_str(), growing[0].2), (1, "Hello. How are you?", false));
        packets.extend(lines.agent_ends());
        assert!(read(packets)[0].2);
        assert!(lines.agent_ends().is_none());
        let next = read(lines.agent_says("Yes.", "TR_1"));
        assert_ne!(next[0].0, growing[0].0, "a segment of its own");
    }

    #[test]
    fn an_interrupted_line_is_replaced_by_what_was_heard() {
        let mut lines = Lines::default();
        let mut packets = lines.agent_says("We are open from nine to five.", "");
        packets.extend(lines.agent_was_cut("We are open"));
        let [cut, heard] = &read(packets)[..] else { panic!("two streams") };
        assert_eq!((&cut.0, cut.2), (&heard.0, false));
        assert_eq!((heard.1.as_str(), heard.2), ("We are open", true));
        assert!(lines.agent_was_cut("nothing was said").is_empty());
    }

    #[test]
    fn versions_of_a_callers_line_share_a_segment_and_callers_do_not() {
        let mut lines = Lines::default();
        let ann = Speaker { identity: "ann", track: "TR_a" };
        let ben = Speaker { identity: "ben", track: "" };
        let mut packets = lines.caller_says(1, "What", false, ann);
        packets.extend(lines.caller_says(2, "No", true, ben));
        packets.extend(lines.caller_says(1, "What is it?", true, ann));
        packets.extend(lines.caller_says(1, "Well?", true, ann));
        let [interim, other, last, next] = &read(packets)[..] else { panic!("four streams") };
        assert_eq!((&interim.0, interim.2, last.2), (&last.0, false, true));
        assert_eq!((interim.3.as_str(), other.3.as_str()), ("ann", "ben"));
        assert!(other.0 != last.0 && next.0 != last.0);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = format!("a{}", "é".repeat(CHUNK_BYTES));
        let packets = Lines::default().caller_says(1, &text, true, Speaker::default());
        assert_eq!(packets.len(), 5);
        assert_eq!(read(packets)[0].1, text);
    }
}
