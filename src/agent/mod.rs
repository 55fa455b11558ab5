//! The voice agent: listens to the participants of one room, answers, and speaks.
//!
//! ```text
//! audio ─▶ Ear (voice activity) ─ utterance ─▶ recognise ─ text ─▶ Job ─▶ reply: responder or chat → voice
//!              ├─ pause ─▶ is the turn complete? ─▶ utterance, now or later               │
//!              └─ speech while the agent speaks ─▶ pause                                  │
//! participants ◀────────────── Playback (slightly ahead of real time) ◀───────────────────┘
//! ```
//! [`run`] is one task that owns an agent's state. Everything slow (recognition, answers, speech, the hook) runs
//! beside it and reports back through channels, so that the agent never stops listening.
//!
//! Speech over the agent pauses it at once. When the words are known, the agent either continues ("mhm") or has
//! lost the floor, and then the history keeps only the part of its answer that was heard.

mod absence;
mod chat;
mod config;
mod conversation;
mod ear;
mod floor;
mod orders;
mod page;
mod persona;
mod playback;
mod proof;
mod recognizer;
mod reply;
mod report;
mod responder;
mod tools;
mod verify;

pub use chat::{Chat, ChatError};
pub use config::{ChatConfig, Turn, Verification};
pub use conversation::run;
pub use recognizer::{Recognize, Whose, recognizer};
pub use tools::{Settings, Tools};
pub use verify::{Verifier, VerifyError};
