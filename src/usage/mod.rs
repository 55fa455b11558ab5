//! The log of requests, and the sums of use that are made from it.
//!
//! ```text
//! request → Ticket (http makes it, whoever does the work adds to it) → queue → writer → usage.sqlite3 → queries
//! ```
//! One row for each request that did work: when, whose key, which endpoint, how it ended, how much audio or text,
//! which model, its tags and the names of its features. No audio, no words, no addresses, no other values of
//! parameters. The log is bounded in time and size, and written off the path of requests.
#![doc = include_str!("README.md")]

mod active;
mod config;
mod database;
mod ending;
mod entry;
mod log;
mod message;
mod query;
mod ticket;
mod writer;

pub use config::Config;
pub use ending::Ending;
pub use entry::{CLIENT_LEFT, Endpoint, Entry, FEATURES, Holder, Method, Model, ROOM, TELEPHONE, Work};
pub use log::Log;
pub use query::{Fields, Filter, Grouping, LAST_USES_MAX, Row, SUMS_MAX, Sum};
pub use ticket::{Account, Figures, Route, Ticket, current, ended, held_by, is_async, within, worked};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use `{path}` to keep the log of requests in")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the log of requests `{path}` cannot be opened; a damaged one may be deleted")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("the log of requests is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("the log of requests cannot be read")]
    Read(#[from] rusqlite::Error),
    #[error("too many requests of the organisation read the log")]
    Busy,
    #[error("the thread of the log did not start, or failed")]
    Thread,
}

#[cfg(test)]
mod tests;
