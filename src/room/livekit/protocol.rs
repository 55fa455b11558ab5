//! LiveKit's messages that an agent needs, from `livekit_rtc.proto` and `livekit_models.proto` of its protocol 1.50.
//! Other fields are ignored.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// Version of the signalling protocol: the last one in which the peer that opens a data channel announces it.
pub const VERSION: u32 = 16;

pub const AUDIO: i32 = 0;
pub const MICROPHONE: i32 = 2;
pub const PUBLISHER: i32 = 0;
pub const SUBSCRIBER: i32 = 1;

/// States of a participant.
pub const ACTIVE: i32 = 2;
pub const DISCONNECTED: i32 = 3;

/// Kinds of participants.
pub const STANDARD: i32 = 0;
pub const SIP: i32 = 3;

/// Actions that a `Leave` asks for.
pub const DISCONNECT: i32 = 0;
pub const RESUME: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub struct SignalRequest {
    #[prost(oneof = "Request", tags = "1, 2, 4, 6, 15, 16")]
    pub message: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Request {
    #[prost(message, tag = "1")]
    Offer(SessionDescription),
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    #[prost(message, tag = "4")]
    AddTrack(AddTrack),
    #[prost(message, tag = "6")]
    Subscription(Subscription),
    #[prost(message, tag = "15")]
    UpdateMetadata(UpdateMetadata),
    #[prost(message, tag = "16")]
    Ping(Ping),
}

#[derive(Clone, PartialEq, Message)]
pub struct SignalResponse {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4, 5, 6, 8, 19, 20, 23")]
    pub message: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    Join(Join),
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    #[prost(message, tag = "3")]
    Offer(SessionDescription),
    #[prost(message, tag = "4")]
    Trickle(Trickle),
    #[prost(message, tag = "5")]
    Update(Update),
    #[prost(message, tag = "6")]
    TrackPublished(TrackPublished),
    #[prost(message, tag = "8")]
    Leave(Leave),
    /// The connection is resumed.
    #[prost(message, tag = "19")]
    Reconnect(Reconnect),
    #[prost(message, tag = "20")]
    Pong(Pong),
    #[prost(message, tag = "23")]
    TrackSubscribed(TrackSubscribed),
}

#[derive(Clone, PartialEq, Message)]
pub struct SessionDescription {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(string, tag = "2")]
    pub sdp: String,
    /// The number of an offer, which its answer repeats.
    #[prost(uint32, tag = "3")]
    pub id: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Trickle {
    /// In the browsers' form: `{"candidate", "sdpMid", "sdpMLineIndex"}`.
    #[prost(string, tag = "1")]
    pub candidate_init: String,
    #[prost(int32, tag = "2")]
    pub target: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddTrack {
    #[prost(string, tag = "1")]
    pub cid: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(int32, tag = "3")]
    pub r#type: i32,
    #[prost(int32, tag = "8")]
    pub source: i32,
    #[prost(bool, tag = "13")]
    pub disable_red: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Subscription {
    #[prost(string, repeated, tag = "1")]
    pub track_sids: Vec<String>,
    #[prost(bool, tag = "2")]
    pub subscribe: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Leave {
    #[prost(int32, tag = "2")]
    pub reason: i32,
    #[prost(int32, tag = "3")]
    pub action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct UpdateMetadata {
    #[prost(map = "string, string", tag = "3")]
    pub attributes: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ping {
    /// Milliseconds.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Pong {
    #[prost(int64, tag = "1")]
    pub last_ping_timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Reconnect {
    #[prost(message, repeated, tag = "1")]
    pub ice_servers: Vec<IceServer>,
}

/// A server for STUN or TURN.
#[derive(Clone, PartialEq, Message)]
pub struct IceServer {
    #[prost(string, repeated, tag = "1")]
    pub urls: Vec<String>,
    #[prost(string, tag = "2")]
    pub username: String,
    #[prost(string, tag = "3")]
    pub credential: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Join {
    /// The agent.
    #[prost(message, optional, tag = "2")]
    pub participant: Option<Participant>,
    #[prost(message, repeated, tag = "3")]
    pub other_participants: Vec<Participant>,
    #[prost(message, repeated, tag = "5")]
    pub ice_servers: Vec<IceServer>,
    /// Whether the subscriber connection is made at once.
    #[prost(bool, tag = "6")]
    pub subscriber_primary: bool,
    /// Seconds without an answer after which the connection counts as lost.
    #[prost(int32, tag = "10")]
    pub ping_timeout: i32,
    #[prost(int32, tag = "11")]
    pub ping_interval: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Update {
    #[prost(message, repeated, tag = "1")]
    pub participants: Vec<Participant>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Participant {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(string, tag = "2")]
    pub identity: String,
    #[prost(int32, tag = "3")]
    pub state: i32,
    #[prost(message, repeated, tag = "4")]
    pub tracks: Vec<Track>,
    #[prost(int32, tag = "14")]
    pub kind: i32,
    #[prost(map = "string, string", tag = "15")]
    pub attributes: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Track {
    #[prost(string, tag = "1")]
    pub sid: String,
    #[prost(int32, tag = "2")]
    pub r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackPublished {
    #[prost(string, tag = "1")]
    pub cid: String,
    #[prost(message, optional, tag = "2")]
    pub track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackSubscribed {
    #[prost(string, tag = "1")]
    pub track_sid: String,
}

/// The content of a data packet.
#[derive(Clone, PartialEq, Message)]
pub struct DataPacket {
    #[prost(string, tag = "4")]
    pub participant_identity: String,
    #[prost(oneof = "Data", tags = "2, 6, 13, 14, 15")]
    pub value: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    #[prost(message, tag = "2")]
    User(User),
    #[prost(message, tag = "6")]
    Dtmf(Dtmf),
    #[prost(message, tag = "13")]
    Header(Header),
    #[prost(message, tag = "14")]
    Chunk(Chunk),
    #[prost(message, tag = "15")]
    Trailer(Trailer),
}

#[derive(Clone, PartialEq, Message)]
pub struct User {
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
    #[prost(string, optional, tag = "4")]
    pub topic: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dtmf {
    #[prost(string, tag = "4")]
    pub digit: String,
}

/// The beginning of a text stream.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// Milliseconds of Unix time.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
    #[prost(string, tag = "3")]
    pub topic: String,
    #[prost(string, tag = "4")]
    pub mime_type: String,
    #[prost(uint64, optional, tag = "5")]
    pub total_length: Option<u64>,
    #[prost(map = "string, string", tag = "8")]
    pub attributes: HashMap<String, String>,
    #[prost(message, optional, tag = "9")]
    pub text: Option<Text>,
}

/// Marks a stream as text.
#[derive(Clone, PartialEq, Message)]
pub struct Text {}

#[derive(Clone, PartialEq, Message)]
pub struct Chunk {
    #[prost(string, tag = "1")]
    pub stream_id: String,
    #[prost(uint64, tag = "2")]
    pub chunk_index: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub content: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Trailer {
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// They replace the header's.
    #[prost(map = "string, string", tag = "3")]
    pub attributes: HashMap<String, String>,
}
