//! The error of a query, and of an address for results.

use crate::fetch::policy::{PUBLIC_PORTS, URL_BYTES_MAX};

/// Why a query was refused. The text names the parameter and its valid values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid value `{value}` for `{parameter}`: expected {expected}")]
    Value { parameter: String, value: String, expected: &'static str },
    #[error("duplicate field `{0}`")]
    Duplicate(String),
    #[error("too many values for `{parameter}`: at most {limit}")]
    TooMany { parameter: String, limit: usize },
    #[error("missing field `sample_rate`: samples of this `encoding` do not say their rate")]
    NoSampleRate,
    #[error("Invalid callback url. {0}")]
    Callback(CallbackProblem),
    #[error("`{0}` is available on the streaming endpoint only")]
    StreamingOnly(&'static str),
    #[error("`{less}` is greater than `{more}`")]
    Speakers { less: &'static str, more: &'static str },
    #[error("`eager_eot_threshold` must be less than or equal to `eot_threshold`")]
    EagerThreshold,
    /// The wire format's own text.
    #[error("Keyterm limit exceeded. The maximum number of tokens across all keyterms is 500.")]
    KeytermTokens,
}

/// Why results cannot be sent to an address. The texts are for the client, and reveal nothing about the
/// server's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackProblem {
    #[error("It is not a URL: it must look like https://host/path.")]
    Syntax,
    #[error("Its scheme must be one of {}.", .0.join(", "))]
    Scheme(&'static [&'static str]),
    #[error("It is longer than {} bytes.", URL_BYTES_MAX)]
    TooLong,
    #[error("It must lead to a public address, at port {}.", ports())]
    NotPublic,
}

fn ports() -> String {
    PUBLIC_PORTS.map(|port| port.to_string()).join(", ")
}
