//! Jobs of several nodes that share a broker.
//!
//! ```text
//! submit ─▶ audio and row on disk ─▶ audio and record in the broker ─▶ acknowledged ─▶ queue
//!                                                                                       │ any node with a model
//!    delivered ◀─ row has the result ◀─ result and record in the broker ◀─ worker ◀─────┘
//! ```
//! The node that accepts a job owns it: it keeps the row and the audio, brings them again if the broker has lost
//! them, and delivers the result (`owner.rs`, `submission.rs`). Any node with a model works (`worker.rs`), under a
//! claim that it must renew (`claim.rs`). The broker hands jobs out and is never the only copy.
//!
//! The [`Record`](record::Record) of a job decides who may do what: it changes by compare-and-set only. Messages of
//! the queue and events are hints. They may come twice, late or never.

mod broker;
mod claim;
mod failure;
mod nats;
mod owner;
mod record;
mod sharing;
mod submission;
mod worker;

pub use failure::Failure;
pub use nats::Nats;
pub use owner::run as own;
pub use sharing::{Nodes, Parts};
pub use submission::{known, submit};
pub use worker::run as work;
