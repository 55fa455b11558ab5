//! API keys: created, listed, revoked and verified; never stored.
//!
//! A key is a text `org_…` of high entropy (`secret.rs` has its layout). The store keeps its id and
//! HMAC-SHA256(pepper, key): the database alone gives an attacker nothing to log in with. A fast hash is
//! right here, since 160 random bits cannot be guessed at any speed; slow hashes are for passwords that
//! people choose.
//!
//! [`Store`] is the file, as the command line uses it. A running server asks [`Verifier`], which answers from
//! memory and notices changes by other processes within [`REFRESH_INTERVAL`].

mod secret;
mod store;
mod verifier;

pub use secret::{KeyId, PREFIX, Secret};
pub use store::{Key, LABEL_CHARACTERS_MAX, Store};
pub use verifier::{Identity, REFRESH_INTERVAL, Verifier};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use `{path}` to keep keys in")]
    File { path: PathBuf, source: std::io::Error },
    #[error("`{path}` must hold the {expected} bytes of the pepper; restore it, or all keys are lost")]
    Pepper { path: PathBuf, expected: usize },
    #[error("the key database failed")]
    Database(#[from] rusqlite::Error),
    #[error("the key database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("a label has 1 to {LABEL_CHARACTERS_MAX} printable characters")]
    Label,
    #[error("the thread that reads the keys failed")]
    Interrupted,
}
