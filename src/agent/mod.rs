//! The voice agent: listens to the participants of one room, answers, and speaks.
//!
//! ```text
//! audio ─▶ Ear (voice activity) ─ utterance ─▶ recognise ─ text ─▶ Job ─▶ reply: responder or chat → voice
//!              ├─ pause ─▶ model, words: is the turn complete? ─▶ utterance, now or later │
//!              │              └─ probably ─▶ an answer is prepared, and kept back          │
//!              └─ speech while the agent speaks ─▶ pause                                  │
//! participants ◀────────────── Playback (slightly ahead of real time) ◀───────────────────┘
//! ```
//! [`run`] is one task that owns an agent's state. Everything slow (recognition, answers, speech, the hook) runs
//! beside it and reports back through channels, so that the agent never stops listening.
//!
//! Speech over the agent pauses it unless it is a sign of attention. When the words are known, the agent either continues
//! or has lost the floor, and then the history keeps only the part of its answer that was heard.

mod absence;
mod chat;
mod config;
mod conversation;
mod eager;
mod floor;
mod keypad;
mod observers;
mod orders;
mod overheard;
mod overhearing;
mod page;
mod persona;
mod playback;
mod proof;
mod recognizer;
mod record;
mod reply;
mod report;
mod responder;
mod state;
mod summarizer;
mod talk;
mod time_keeping;
mod timing;
mod tools;
mod transfer;
mod verify;

pub use chat::{Chat, ChatError};
pub use config::{ChatConfig, Interface, Verification};
pub use conversation::run;
pub use recognizer::{Recognize, Whose, recognizer};
pub use tools::{Settings, Tools};
pub use verify::{Verifier, VerifyError};
