//! Recordings of talks: files of two channels in the state folder, with bounds and an age.
//!
//! ```text
//! agent ─▶ Tape (what was heard, and what was said, on one clock) ─▶ Shelf (one thread, a file per talk) ─▶ doors
//! ```
//! A file holds bare samples, so that it is whole wherever the process ends; its head is made when it is fetched.

mod config;
mod shelf;
mod tape;
mod tracks;
mod wave;

pub use config::{Config, Record};
pub use shelf::{Recording, Shelf};
pub use tape::Tape;
pub use wave::{HEAD_BYTES, head};
