//! The tools that all agents share.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::chat::Chat;
use super::recognizer::Recognize;
use super::verify::Verifier;
use crate::recording::Shelf;
use crate::session::{Handle, Sessions};
use crate::sms::Courier;
use crate::speech::Voice;
use crate::turn::{Turn, TurnModel};
use crate::vad::Vad;

pub struct Tools {
    pub sessions: Sessions,
    /// Without it, agents hear no speech and react only to text and keys.
    pub vad: Option<Vad>,
    pub recognize: Recognize,
    /// None: silence ends a turn.
    pub turn_model: Option<TurnModel>,
    /// None: the embedded responder answers.
    pub chat: Option<Chat>,
    pub voice: Voice,
    pub verifier: Verifier,
    pub courier: Courier,
    pub recordings: Shelf,
    pub settings: Settings,
    /// Work beside requests. It stops with `stop`.
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

pub struct Settings {
    pub turn: Turn,
    /// The callers' language: a code such as `en`, or `auto`.
    pub language: String,
    /// The longest talk.
    pub talk_max: Duration,
    /// How long before its end the caller hears of it; zero: never.
    pub talk_warning: Duration,
    /// Silence after which telephone callers are asked whether they are there; none: never.
    pub silence: Option<Duration>,
    /// How often they are asked before the agent ends the talk.
    pub nudges_max: u32,
    /// How long an agent waits in an empty room for a participant to come back.
    pub rejoin: Duration,
}

impl Tools {
    /// Sends the queued messages of a session in the background.
    pub fn deliver(&self, handle: Arc<Handle>) {
        let (courier, stop) = (self.courier.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = courier.deliver(&handle) => {}
            }
        });
    }
}
