//! The errors of working with a broker.

use std::path::PathBuf;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a node cannot join its cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the setting `cluster.nats` holds {0}: addresses look like nats://broker:4222, and credentials belong into \
         `cluster.credentials_file`, `cluster.password_file` or `cluster.token_file`"
    )]
    Address(&'static str),
    #[error("the setting `{setting}` = \"{value}\" must be 1 to 64 letters, digits, `-` and `_`")]
    Name { setting: &'static str, value: String },
    #[error("the setting `{0}` lacks `{1}`")]
    Lacks(&'static str, &'static str),
    #[error("cannot read `{path}`")]
    File { path: PathBuf, source: std::io::Error },
    #[error("`{path}` holds no NATS credentials")]
    Credentials { path: PathBuf, source: std::io::Error },
    #[error("cannot connect to the broker at {addresses}")]
    Connect { addresses: String, source: Cause },
    #[error("the broker at {addresses} runs nats-server {version}, and this program needs {least} or later")]
    TooOld { addresses: String, version: String, least: &'static str },
    #[error(
        "the broker at {addresses} has no JetStream for this user: start nats-server with -js, or enable JetStream \
         for the account"
    )]
    NoJetStream { addresses: String },
    #[error("the broker cannot keep {replicas} copies of `{store}`: `cluster.replicas` must fit its servers")]
    Replicas { store: String, replicas: usize, source: Cause },
    #[error(
        "this node's keys.pepper and keys.signing are not those of the cluster: copy both files from the state directory \
         of another node into this one's before it starts, or name another `cluster.prefix`"
    )]
    OtherSecrets,
    #[error("what nodes tell each other cannot be encrypted")]
    Seal,
    #[error("the broker cannot be reached at present")]
    Away,
    #[error("the keys cannot be shared")]
    Keys(#[source] Cause),
    /// The broker did not do what it was asked, or its answer was lost.
    #[error("the broker failed at `{store}`")]
    Broker { store: String, source: Cause },
}

impl Error {
    /// Whether different settings would help, rather than another attempt.
    pub fn is_configuration(&self) -> bool {
        !matches!(
            self,
            Self::Connect { .. } | Self::Broker { .. } | Self::File { .. } | Self::Away | Self::Keys(_)
        )
    }
}
