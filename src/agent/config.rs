//! Settings of agents: verification and the chat interface.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

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

/// Answers by a chat model through an interface like OpenAI's. Without `base_url`, the embedded responder answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatConfig {
    /// For example `http://127.0.0.1:11434/v1`; the path of the interface is appended.
    pub base_url: Option<String>,
    /// `completions` (Chat Completions) or `responses`. Default `completions`.
    pub interface: Interface,
    pub api_key: Option<Secret>,
    pub model: String,
    /// The agent says "One moment." if the model's first words take longer; 0: never. Default 2500.
    pub filler_ms: u64,
    /// A model that is silent for so long, before its first words or between two, has failed: then the embedded
    /// responder answers, or the begun answer is closed. Default 10 000.
    pub timeout_ms: u64,
    /// Time that the model may take for one answer in all, without the time of speaking. Default 30 000.
    pub answer_timeout_ms: u64,
}

impl Default for ChatConfig {
    fn default() -> Self {
        Self {
            base_url: None,
            interface: Interface::default(),
            api_key: None,
            model: String::new(),
            filler_ms: 2500,
            timeout_ms: 10_000,
            answer_timeout_ms: 30_000,
        }
    }
}

/// The interface of a chat model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// `POST {base}/chat/completions`: most servers have it.
    #[default]
    Completions,
    /// `POST {base}/responses`.
    Responses,
}
