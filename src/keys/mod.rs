//! API keys: created, listed, revoked and verified; never stored.
//!
//! A key is a text `org_…` of high entropy (`secret.rs` has its layout). The store keeps its id and
//! HMAC-SHA256(pepper, key): the database alone gives an attacker nothing to log in with. A fast hash is
//! right here, since 160 random bits cannot be guessed at any speed; slow hashes are for passwords that
//! people choose.
//!
//! A key belongs to an organisation, allows the scopes that `scope.rs` names, and may expire. Its holder can make
//! tokens (`token.rs`), which allow the use of the server for a short time, and end with their key.
//!
//! A key may have limits (`limits.rs`), whose use `ledger.rs` counts. Each change of a key is recorded (`audit.rs`).
//!
//! [`Store`] is the file, as the command line uses it. A running server asks [`Verifier`], which answers from
//! memory and notices changes by other processes within [`REFRESH_INTERVAL`].
//!
//! Nodes of a cluster keep a copy of all keys each: [`Replica`] has the changes that others do not know yet, and merges
//! theirs.

mod audit;
mod ledger;
mod limits;
mod organisation;
pub mod public_id;
mod replica;
mod scope;
mod secret;
mod shared;
mod store;
mod token;
mod verifier;

pub use audit::{Actor, Change, Entry};
pub use ledger::{Exceeded, Ledger, Limit, Permit, Standing};
pub use limits::{LIMIT_MAX, Limits};
pub use organisation::{KEYS_MAX, NAME_CHARACTERS_MAX};
pub use replica::Replica;
pub use scope::{Permission, Scopes, UnknownScope, WORDS as SCOPES};
pub use secret::{KeyId, PREFIX, Secret};
pub use shared::{Columns, Untold};
pub use store::{Key, LABEL_CHARACTERS_MAX, NewKey, Store, TAG_CHARACTERS_MAX, TAGS_MAX};
pub use token::{TTL_DEFAULT, TTL_MAX, is_valid_token};
pub use verifier::{Granted, Identity, REFRESH_INTERVAL, Verifier};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use `{path}` to keep keys in")]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "`{path}` must hold {expected} bytes, and its content is another; restore it, or all that was made with it is lost"
    )]
    Secret { path: PathBuf, expected: usize },
    #[error("the key database failed")]
    Database(#[from] rusqlite::Error),
    #[error("the key database is of format {found}, and this program knows formats up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("a label has 1 to {LABEL_CHARACTERS_MAX} printable characters")]
    Label,
    #[error("a key has at most {TAGS_MAX} tags, each of 1 to {TAG_CHARACTERS_MAX} printable characters")]
    Tags,
    #[error("a key needs a scope")]
    NoScope,
    #[error("a key must expire in the future")]
    Expired,
    #[error("a key must expire before the year 10000, or never")]
    Endless,
    #[error("a limit is a whole number up to {LIMIT_MAX}")]
    LimitRange,
    #[error("the key counts on the account of key {account}, with which it was made; limit that one")]
    Shared { account: KeyId },
    #[error("no key belongs to this organisation")]
    Organisation,
    #[error("an organisation may have {KEYS_MAX} keys")]
    TooMany,
    #[error("a key can neither allow more than the key that makes it, nor outlive it")]
    Escalation,
    #[error("the organisation has no other key that could make keys")]
    LastManager,
    #[error("the name of an organisation has 1 to {NAME_CHARACTERS_MAX} printable characters")]
    Name,
    #[error("an entry of another node is no key and no organisation that this program could keep")]
    Foreign,
    #[error("the thread that reads the keys failed")]
    Interrupted,
}

impl Error {
    /// Whether what was asked for cannot be done, rather than the keys cannot be read.
    pub fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::File { .. }
                | Self::Secret { .. }
                | Self::Database(_)
                | Self::Newer { .. }
                | Self::Foreign
                | Self::Interrupted
        )
    }
}
