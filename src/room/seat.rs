//! Seats: a participant's two channels to and from the agent.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::owner::{AgentSettings, Order};
use crate::audio::SAMPLE_RATE;

/// Inbound messages by which an agent may lag behind.
const INBOUND_MAX: usize = 256;
/// Messages by which a participant may lag behind before it is dropped: some seconds of audio.
const OUTBOUND_MAX: usize = 512;

/// How a participant takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// In a browser: speaks and listens.
    Web,
    /// By telephone.
    Phone,
    /// Hears both sides, and is heard by no one.
    Observer,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Phone => "phone",
            Self::Observer => "observer",
        }
    }
}

/// From a participant to the agent.
pub enum Inbound {
    Joined(Participant),
    /// At [`crate::audio::SAMPLE_RATE`].
    Audio {
        seat: u64,
        samples: Vec<f32>,
    },
    Text(String),
    /// The owner sets the agent up before anyone joins.
    Settings(Box<AgentSettings>),
    /// The owner changes the agent.
    Order(Box<Order>),
    Digit(char),
    /// The state of the page that the participant has open.
    PageContext(Value),
    /// Playback has reached a mark.
    Played(u64),
    Left {
        seat: u64,
        kind: Kind,
    },
    /// Someone listens in.
    Observed(mpsc::Sender<Outbound>),
}

/// From the agent to a participant.
#[derive(Clone)]
pub enum Outbound {
    /// A message as JSON.
    Message(Arc<str>),
    /// A range of the samples, at [`crate::speech::VOICE_RATE`].
    Audio(Arc<[f32]>, Range<usize>),
    /// The participant reports when everything before it has been played.
    Mark(u64),
    /// Drops audio that has not been played.
    Clear,
    /// The words of a participant, as they may be shown: those so far, or all of a turn.
    Heard { seat: u64, text: Arc<str>, is_final: bool },
    /// A caller's samples, at [`crate::audio::SAMPLE_RATE`]: for observers alone.
    Caller { seat: u64, samples: Arc<[f32]> },
    /// The session is over.
    End,
}

/// The agent's view of a participant.
pub struct Participant {
    pub seat: u64,
    pub kind: Kind,
    pub output: mpsc::Sender<Outbound>,
}

/// A channel to an agent.
pub fn agent_channel() -> (mpsc::Sender<Inbound>, mpsc::Receiver<Inbound>) {
    mpsc::channel(INBOUND_MAX)
}

/// An observer's channel from an agent.
pub fn observer_channel() -> (mpsc::Sender<Outbound>, mpsc::Receiver<Outbound>) {
    mpsc::channel(OUTBOUND_MAX)
}

/// A participant's seat in a room. Dropping it leaves the room.
pub struct Seat {
    number: u64,
    to_agent: mpsc::Sender<Inbound>,
    pub from_agent: mpsc::Receiver<Outbound>,
    /// Samples of audio that the participant sent.
    heard: AtomicU64,
    leave: Option<Box<dyn FnOnce(f64) + Send + Sync>>,
}

impl Seat {
    /// A seat and the agent's view of it. `leave` runs when the seat is dropped, with the seconds of audio that came.
    pub fn new(
        number: u64,
        kind: Kind,
        to_agent: mpsc::Sender<Inbound>,
        leave: impl FnOnce(f64) + Send + Sync + 'static,
    ) -> (Self, Participant) {
        let (output, from_agent) = mpsc::channel(OUTBOUND_MAX);
        let seat =
            Self { number, to_agent, from_agent, heard: AtomicU64::new(0), leave: Some(Box::new(leave)) };
        (seat, Participant { seat: number, kind, output })
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Sends a message to the agent; false if the agent is gone.
    pub async fn send(&self, inbound: Inbound) -> bool {
        self.to_agent.send(inbound).await.is_ok()
    }

    /// Sends audio at [`crate::audio::SAMPLE_RATE`] to the agent; false if the agent is gone.
    pub async fn audio(&self, samples: Vec<f32>) -> bool {
        self.heard.fetch_add(samples.len() as u64, Ordering::Relaxed);
        samples.is_empty() || self.send(Inbound::Audio { seat: self.number, samples }).await
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            leave(*self.heard.get_mut() as f64 / f64::from(SAMPLE_RATE));
        }
    }
}

/// Whether `c` is a key of a telephone.
pub fn is_key(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '*' | '#' | 'A'..='D')
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn a_seat_is_two_channels_and_leaves_once() {
        let left = Arc::new(AtomicUsize::new(0));
        let (to_agent, mut inbound) = agent_channel();
        let counted = left.clone();
        let leave = move |seconds: f64| {
            assert!((seconds * f64::from(SAMPLE_RATE) - 1.0).abs() < 1e-9, "one sample: {seconds}");
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let (mut seat, participant) = Seat::new(7, Kind::Phone, to_agent, leave);
        assert_eq!((participant.seat, participant.kind), (7, Kind::Phone));
        // Silence of no length is not sent.
        assert!(seat.audio(Vec::new()).await && seat.audio(vec![0.5]).await);
        assert!(
            matches!(inbound.recv().await, Some(Inbound::Audio { seat: 7, samples }) if samples == [0.5])
        );
        participant.output.try_send(Outbound::Mark(3)).expect("room");
        assert!(matches!(seat.from_agent.recv().await, Some(Outbound::Mark(3))));
        drop(inbound);
        assert!(!seat.send(Inbound::Digit('1')).await);
        assert_eq!(left.load(Ordering::Relaxed), 0);
        drop(seat);
        assert_eq!(left.load(Ordering::Relaxed), 1);
    }
}
