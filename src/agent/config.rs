//! Settings of agents: verification, turns and the chat interface.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::turn::EndOfTurn;

/// How spoken proofs are checked before secured questions are answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verification {
    /// The hook that gets `{session_id, utterance, category}`. The operator chooses it, so it may have a private
    /// address. Default: none.
    pub hook_url: Option<String>,
    /// Sent to the hook as `X-API-Key`.
    pub hook_api_key: Option<Secret>,
    /// Without a hook, do not use the built-in matcher either. Default false.
    pub disable_inline: bool,
    /// Records of the built-in matcher: a JSON array of `{"digits": "1234", "category": …, "sms_catalog_key":
    /// …}`, the last two optional. Default: none, and nothing matches.
    pub records: Option<PathBuf>,
    /// Time limit for the hook. Default 4000.
    pub timeout_ms: u64,
}

impl Default for Verification {
    fn default() -> Self {
        Self { hook_url: None, hook_api_key: None, disable_inline: false, records: None, timeout_ms: 4000 }
    }
}

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
    /// Silence after which the model decides whether the turn is complete; if so, it ends at once. Default 250:
    /// the model was trained with about 200.
    pub pause_ms: u64,
    /// Silence that ends a turn that the model calls incomplete. Default 2000.
    pub wait_ms: u64,
    /// Speech that interrupts the agent. Default 400.
    pub interrupt_ms: u64,
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
            interrupt_ms: 400,
            seconds_max: 29,
        }
    }
}

/// Answers by a chat model through an interface like OpenAI's. Without `base_url`, the embedded responder answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatConfig {
    /// For example `http://127.0.0.1:11434/v1`; `/chat/completions` is appended.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    pub model: String,
}
