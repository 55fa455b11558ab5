//! Messages between a worker and LiveKit's dispatch of agents, from `livekit_agent.proto` of its protocol 1.50. Other fields
//! are ignored.

use std::collections::HashMap;

use prost::{Message, Oneof};

/// A job of a whole room.
pub const ROOM: i32 = 0;

/// States of a worker.
pub const AVAILABLE: i32 = 0;
pub const FULL: i32 = 1;

/// States of a job.
pub const RUNNING: i32 = 1;
pub const SUCCESS: i32 = 2;
pub const FAILED: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub struct WorkerMessage {
    #[prost(oneof = "FromWorker", tags = "1, 2, 3, 4, 5")]
    pub message: Option<FromWorker>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum FromWorker {
    #[prost(message, tag = "1")]
    Register(Register),
    #[prost(message, tag = "2")]
    Availability(Availability),
    #[prost(message, tag = "3")]
    UpdateWorker(UpdateWorker),
    #[prost(message, tag = "4")]
    UpdateJob(UpdateJob),
    #[prost(message, tag = "5")]
    Ping(WorkerPing),
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerMessage {
    #[prost(oneof = "FromServer", tags = "1, 2, 3, 4, 5")]
    pub message: Option<FromServer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum FromServer {
    #[prost(message, tag = "1")]
    Registered(Registered),
    #[prost(message, tag = "2")]
    Availability(AvailabilityRequest),
    #[prost(message, tag = "3")]
    Assignment(Assignment),
    #[prost(message, tag = "4")]
    Pong(WorkerPong),
    #[prost(message, tag = "5")]
    Termination(Termination),
}

#[derive(Clone, PartialEq, Message)]
pub struct Register {
    #[prost(int32, tag = "1")]
    pub r#type: i32,
    #[prost(string, tag = "3")]
    pub version: String,
    /// Seconds.
    #[prost(uint32, tag = "5")]
    pub ping_interval: u32,
    #[prost(string, tag = "8")]
    pub agent_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Registered {
    #[prost(string, tag = "1")]
    pub worker_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AvailabilityRequest {
    #[prost(message, optional, tag = "1")]
    pub job: Option<Job>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Job {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "3")]
    pub room: Option<Room>,
    /// The dispatch's own, or the room's.
    #[prost(string, tag = "6")]
    pub metadata: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Room {
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Availability {
    #[prost(string, tag = "1")]
    pub job_id: String,
    #[prost(bool, tag = "2")]
    pub available: bool,
    #[prost(string, tag = "4")]
    pub participant_name: String,
    #[prost(string, tag = "5")]
    pub participant_identity: String,
    #[prost(map = "string, string", tag = "7")]
    pub participant_attributes: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Assignment {
    #[prost(message, optional, tag = "1")]
    pub job: Option<Job>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Termination {
    #[prost(string, tag = "1")]
    pub job_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct UpdateWorker {
    #[prost(int32, optional, tag = "1")]
    pub status: Option<i32>,
    /// 0 to 1.
    #[prost(float, tag = "3")]
    pub load: f32,
    #[prost(uint32, tag = "4")]
    pub job_count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct UpdateJob {
    #[prost(string, tag = "1")]
    pub job_id: String,
    #[prost(int32, tag = "2")]
    pub status: i32,
    #[prost(string, tag = "3")]
    pub error: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct WorkerPing {
    /// Milliseconds.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct WorkerPong {
    #[prost(int64, tag = "1")]
    pub last_timestamp: i64,
}
