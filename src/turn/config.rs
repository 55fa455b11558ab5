//! Settings of turns.

use serde::{Deserialize, Serialize};

use super::EndOfTurn;

/// When a turn begins and ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// Probability from which a frame counts as speech, 0 to 1. Default 0.5.
    pub threshold: f32,
    /// Speech that begins a turn. Default 200.
    pub start_ms: u64,
    /// How a turn ends. Default `auto`.
    pub end_of_turn: EndOfTurn,
    /// Silence that ends a turn without the model. Default 600.
    pub silence_ms: u64,
    /// Silence after which the model is first asked whether the turn is complete. Default 250: the model was trained with
    /// about 200.
    pub pause_ms: u64,
    /// Silence that ends a turn whatever the model and the words say. Default 2000.
    pub wait_ms: u64,
    /// With the model: recognise what was said at each pause, and begin the answer before the turn has surely ended. Both are
    /// dropped if the speaker goes on. Default true; false saves the work that is dropped.
    pub eager: bool,
    /// Speech that interrupts the agent. Default 400.
    pub interrupt_ms: u64,
    /// Recognise a turn that goes on every so often, and show its words in rooms of a LiveKit server. It costs as
    /// much work as the turns themselves, or more. 0, the default: never.
    pub interim_ms: u64,
    /// A longer turn is cut. Seconds, default 29: the recogniser takes up to 30 at once.
    pub seconds_max: u64,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            start_ms: 200,
            end_of_turn: EndOfTurn::Auto,
            silence_ms: 600,
            pause_ms: 250,
            wait_ms: 2000,
            eager: true,
            interrupt_ms: 400,
            interim_ms: 0,
            seconds_max: 29,
        }
    }
}
