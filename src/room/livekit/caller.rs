//! The callers of one room: those with a seat, and those who wait for one.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::protocol::Participant;
use super::sound::Hearing;
use crate::room::seat::Seat;

pub struct Caller {
    pub sid: String,
    pub identity: String,
    pub track: String,
    pub seat: Seat,
    pub hearing: Hearing,
}

#[derive(Default)]
pub struct Callers {
    /// In order of arrival: everyone hears what the agent says to the first.
    pub seated: Vec<Caller>,
    /// Callers without a seat yet, and since when they could have one.
    pub waiting: HashMap<String, (Participant, Instant)>,
    /// Tracks that were subscribed to.
    pub subscribed: HashSet<String>,
    /// Streams of the server's last offer, keyed by media section.
    pub streams: HashMap<String, String>,
}
