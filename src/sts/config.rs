//! Settings of the voice-agent service.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;
use crate::{knowledge, speech};

/// The voice-agent service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Serve it. Default true.
    pub enabled: bool,
    /// Whether callers of the service show a key. Default `required`; `verbatim serve --dev` is `loopback`.
    pub auth: Auth,
    /// Where clients and the telephony provider reach this server: `https://voice.example`. Default:
    /// what the request's `Host` says. Needed behind a proxy, and to check the provider's signature.
    pub public_url: Option<String>,
    /// Sessions that have not ended; more are refused with 503, or 429 where the organisation has its share of
    /// them. Default 1000.
    pub sessions_max: usize,
    /// Memory for the sessions that have not ended: what they were started with, and what was read for them. Starts
    /// that would take more are refused like sessions beyond `sessions_max`. Bytes, default 256 MiB.
    pub held_bytes_max: u64,
    /// A session in which nothing happens ends after this. Seconds, default 1800.
    pub idle_seconds: u64,
    /// A session that ended can be looked at for so long. Seconds, default 86 400.
    pub kept_seconds: u64,
    /// Sessions that ended and can be looked at: past this, the oldest one is forgotten of the organisation that
    /// has most. A few KiB each, on disk. Default 10 000.
    pub kept_max: usize,
    /// How long the address of a room can be joined by. Seconds, default 900.
    pub token_seconds: u64,
    /// The longest talk. Seconds, default 1800.
    pub talk_seconds_max: u64,
    /// After the last participant left a room, the session waits so long for one to come back. Seconds,
    /// default 60.
    pub rejoin_seconds: u64,
    /// A room's socket on which nothing comes for so long is closed: clients say `KeepAlive`. Default 60 000.
    pub room_idle_timeout_ms: u64,
    /// The same for the audio of a telephone call, which the provider sends all the time, silence or not. Default
    /// 30 000.
    pub phone_idle_timeout_ms: u64,
    /// What callers speak: a code such as `en`, or `auto`. The embedded responder speaks English.
    /// Default `en`.
    pub language: String,
    pub verification: Verification,
    pub twilio: Twilio,
    pub livekit: LiveKit,
    pub crawl: knowledge::Config,
    pub turn: Turn,
    pub chat: Chat,
    pub speech: speech::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            auth: Auth::Required,
            public_url: None,
            sessions_max: 1000,
            held_bytes_max: 256 << 20,
            idle_seconds: 1800,
            kept_seconds: 86_400,
            kept_max: 10_000,
            token_seconds: 900,
            talk_seconds_max: 1800,
            rejoin_seconds: 60,
            room_idle_timeout_ms: 60_000,
            phone_idle_timeout_ms: 30_000,
            language: "en".into(),
            verification: Verification::default(),
            twilio: Twilio::default(),
            livekit: LiveKit::default(),
            crawl: knowledge::Config::default(),
            turn: Turn::default(),
            chat: Chat::default(),
            speech: speech::Config::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// A key as on `/v1/listen`.
    #[default]
    Required,
    /// Programs on this machine need none. The server must listen on loopback; a proxy before it would let its
    /// clients in.
    Loopback,
    /// No key is needed: for a network where all may use all sessions.
    Off,
}

/// How spoken answers to secured questions are checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verification {
    /// Asked with `{session_id, utterance, category}`; the operator's own, so private addresses are
    /// reached. Default: none.
    pub hook_url: Option<String>,
    /// Sent to it as `X-API-Key`.
    pub hook_api_key: Option<Secret>,
    /// Without a hook, verify nothing here either. Default false.
    pub disable_inline: bool,
    /// What the matcher of our own compares with: a JSON array of `{"digits": "1234", "category": …,
    /// "sms_catalog_key": …}`, the last two optional. Default: none, and nothing matches.
    pub records: Option<PathBuf>,
    /// How long the hook may take. Default 4000.
    pub timeout_ms: u64,
}

impl Default for Verification {
    fn default() -> Self {
        Self { hook_url: None, hook_api_key: None, disable_inline: false, records: None, timeout_ms: 4000 }
    }
}

/// The telephony provider, or one that speaks its language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Twilio {
    /// Of its REST interface. Default `https://api.twilio.com`.
    pub base_url: String,
    pub account_sid: Option<String>,
    /// Signs its requests to us and ours to it. Without one, its requests are not checked and no
    /// message is sent.
    pub auth_token: Option<Secret>,
    /// The number, or the messaging service (`MG…`), that messages come from.
    pub from: Option<String>,
}

impl Default for Twilio {
    fn default() -> Self {
        Self { base_url: "https://api.twilio.com".into(), account_sid: None, auth_token: None, from: None }
    }
}

/// A LiveKit server whose rooms browsers join. Without it they join rooms of our own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LiveKit {
    /// For example `ws://127.0.0.1:7880` or `wss://media.example`.
    pub url: Option<String>,
    /// Where callers reach it, if that is another address. Default: `url`.
    pub client_url: Option<String>,
    pub api_key: Option<String>,
    pub api_secret: Option<Secret>,
}

/// When a turn begins and ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// A frame of at least this probability is speech, 0 to 1. Default 0.5.
    pub threshold: f32,
    /// So much speech begins a turn. Default 200.
    pub start_ms: u64,
    /// What ends it. Default `auto`.
    pub end_of_turn: EndOfTurn,
    /// So much silence ends it, where no model is asked. Default 600.
    pub silence_ms: u64,
    /// After so much silence the model is asked whether the turn is complete, and then it ends at once.
    /// Default 250: it was trained with about 200.
    pub pause_ms: u64,
    /// A turn that the model calls incomplete ends after so much silence. Default 2000.
    pub wait_ms: u64,
    /// So much speech stops the agent's. Default 400.
    pub interrupt_ms: u64,
    /// A longer turn is cut. Seconds, default 29: what the model hears at once.
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndOfTurn {
    /// The model where it is installed, otherwise silence.
    #[default]
    Auto,
    /// A model that hears whether a sentence is complete (Smart Turn): `./setup smart-turn`.
    Model,
    /// Silence alone.
    Silence,
}

/// Answers by a chat model, over an interface of OpenAI's form. Without `base_url`, the embedded
/// responder answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chat {
    /// For example `http://127.0.0.1:11434/v1`; `/chat/completions` is appended.
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    pub model: String,
}
