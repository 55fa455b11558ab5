//! Settings of speech for clients.

use serde::{Deserialize, Serialize};

/// How much is spoken for clients of `/v1/speak` and `/v1/audio/speech`. The voice itself is set under `sts.speech`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Serve it. Default true.
    pub enabled: bool,
    /// Pieces of text that are spoken at once. The embedded voice speaks one and prepares for the next. Default 2.
    pub at_once: usize,
    /// Characters of texts that were accepted and are not yet spoken. More are refused with 503, or with 429 if the
    /// organisation has its share of them. Default 20 000.
    pub held_characters_max: u64,
    /// Open streams of text (`wss /v1/speak`); more are refused likewise. Default 256.
    pub streams_max: u64,
    /// Characters that a stream may be ahead of its speech; it is closed beyond that. Default 20 000.
    pub stream_characters_max: usize,
    /// Time limit for speaking the text of one request. Default 300 000.
    pub timeout_ms: u64,
    /// A stream is closed when nothing arrives on it for this long. Default 3 600 000: clients keep streams open
    /// between the turns of a talk.
    pub idle_timeout_ms: u64,
    /// A stream whose client takes in nothing for this long is closed. Default 10 000.
    pub write_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            enabled: true,
            at_once: 2,
            held_characters_max: 20_000,
            streams_max: 256,
            stream_characters_max: 20_000,
            timeout_ms: 300_000,
            idle_timeout_ms: 3_600_000,
            write_timeout_ms: 10_000,
        }
    }
}
