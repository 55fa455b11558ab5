//! A node of a cluster: its connection to the broker that it shares with others.
//!
//! [callbacks]: crate::jobs
#![doc = include_str!("README.md")]
#![doc = include_str!("shared.md")]

mod config;
mod connection;
mod error;
mod keys;
mod places;
mod seal;
mod word;

pub use config::Config;
pub use connection::Cluster;
pub use error::Error;
pub use keys::SharedKeys;
pub use places::{News, Orphan, Places, Whereabouts};
