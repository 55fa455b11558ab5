//! Settings of the voice-agent service.

use serde::{Deserialize, Serialize};

pub use crate::agent::Interface;
pub use crate::room::Relay;
pub use crate::turn::EndOfTurn;
use crate::{agent, knowledge, recording, room, sms, speech, turn};

/// The voice-agent service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Serve it. Default true.
    pub enabled: bool,
    /// Whether callers of the service need a key. Default `required`; `verbatim serve --dev` uses `loopback`.
    pub auth: Auth,
    /// The address at which clients and the telephony provider reach this server: `https://voice.example`.
    /// Default: the request's `Host`. Needed behind a proxy, and to check the provider's signature.
    pub public_url: Option<String>,
    /// Open sessions; more are refused with 503, or with 429 if the organisation has its share of them. Default
    /// 1000.
    pub sessions_max: usize,
    /// Memory for open sessions: their setup and the knowledge read for them. Starts that would need more are
    /// refused like sessions beyond `sessions_max`. Bytes, default 256 MiB.
    pub held_bytes_max: u64,
    /// Time without any change after which a session ends. Seconds, default 1800.
    pub idle_seconds: u64,
    /// How long an ended session can be looked at. Seconds, default 86 400.
    pub kept_seconds: u64,
    /// Ended sessions that can be looked at. Beyond this number, the organisation with the most loses its oldest.
    /// Each takes a few KiB on disk. Default 10 000.
    pub kept_max: usize,
    /// How long the address of a room can be used to join. Seconds, default 900.
    pub token_seconds: u64,
    /// The longest talk. Seconds, default 1800.
    pub talk_seconds_max: u64,
    /// How long before that the caller hears how much time is left; also if a start asks for a shorter talk. Seconds,
    /// default 60; 0: never.
    pub talk_warning_seconds: u64,
    /// Silence after which a telephone caller is asked whether they are still there; a start may say otherwise, for a
    /// browser too. Seconds, default 30; 0: never.
    pub silence_seconds: u64,
    /// How often they are asked before the agent says goodbye. Default 2.
    pub nudges_max: u32,
    /// How long a session waits for a participant to come back after the last one left. Seconds, default 60.
    pub rejoin_seconds: u64,
    /// A room's socket is closed when nothing arrives on it for this long: clients send `KeepAlive`. Default 60 000.
    pub room_idle_timeout_ms: u64,
    /// The same for the audio of a telephone call, which the provider sends even during silence. Default 30 000.
    pub phone_idle_timeout_ms: u64,
    /// The callers' language: a code such as `en`, or `auto`. The embedded responder speaks English. Default `en`.
    pub language: String,
    pub verification: agent::Verification,
    pub twilio: sms::Config,
    pub livekit: room::Config,
    pub crawl: knowledge::Config,
    pub turn: turn::Turn,
    pub chat: agent::ChatConfig,
    pub speech: speech::Config,
    pub recording: recording::Config,
    pub webhook: WebhookConfig,
    pub transfer: TransferConfig,
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
            talk_warning_seconds: 60,
            silence_seconds: 30,
            nudges_max: 2,
            rejoin_seconds: 60,
            room_idle_timeout_ms: 60_000,
            phone_idle_timeout_ms: 30_000,
            language: "en".into(),
            verification: agent::Verification::default(),
            twilio: sms::Config::default(),
            livekit: room::Config::default(),
            crawl: knowledge::Config::default(),
            turn: turn::Turn::default(),
            chat: agent::ChatConfig::default(),
            speech: speech::Config::default(),
            recording: recording::Config::default(),
            webhook: WebhookConfig::default(),
            transfer: TransferConfig::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// A key is needed, as on `/v1/listen`.
    #[default]
    Required,
    /// Programs on this machine need no key. The server must listen on loopback; a proxy in front would let all its
    /// clients in.
    Loopback,
    /// No key is needed: for networks in which everyone may use all sessions.
    Off,
}

/// Where the events of all sessions are sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    /// The receiver; `fetch.allow` must name it if its address is not public. Events are signed, repeated and listed as
    /// results with a callback are. A start may name one more, for its session. Default: none.
    pub url: Option<String>,
}

/// Handing telephone callers over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransferConfig {
    /// The numbers that callers may be connected with, in E.164 form. Default: none, and no call is handed over.
    pub numbers: Vec<String>,
}
