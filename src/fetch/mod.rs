//! Requests to URLs that clients name: fetched media, delivered results; to public addresses only.
//!
//! Such a request is made in the server's name, from inside its network. So each address is judged where it
//! is known for certain: [`policy`] checks the URL (scheme, user, port, literal addresses), and the resolver
//! checks the addresses of a name and gives the connector exactly those. No name is resolved twice, so it
//! cannot change in between, and each redirect is checked in the same way.
//!
//! Errors tell the client what it may know and no more: a refused connection, a timeout and a broken answer
//! are one error, and a name that resolves to an internal address looks like one that does not resolve, so
//! that nothing maps the network.
//!
//! Addresses of this machine's interfaces are not public either. An address of this machine that only its
//! router or cloud knows (NAT) cannot be recognised: if it leads back in, the network has to refuse it.
#![doc = include_str!("README.md")]

mod download;
mod own;
pub mod policy;
mod resolver;
mod send;

pub use download::{Download, Fetcher};
pub use policy::without_user;
pub use send::{Message, Reply, SendError, retry_after};

use serde::{Deserialize, Serialize};

/// How URLs are fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Destinations allowed besides public addresses: host names (`media.internal`), hosts with one port
    /// (`localhost:9000`), addresses and networks (`10.1.0.0/16`). Default: none.
    pub allow: Vec<String>,
    /// Time limit for a connection. Default 10 000.
    pub connect_timeout_ms: u64,
    /// Time limit from the first look-up to the last byte, redirects included. Default 60 000.
    pub total_timeout_ms: u64,
    /// How long a host may send nothing, of the head of its answer or of the body. Default 15 000.
    pub idle_timeout_ms: u64,
    /// How long a body may be slower than `bytes_per_second_min`. Default 10 000.
    pub grace_ms: u64,
    /// The minimum mean rate of a body after that time. Default 4096; 0: no minimum.
    pub bytes_per_second_min: u64,
    /// The largest body. A larger one is refused by its declared length, or once that much has arrived.
    /// Default 256 MiB.
    pub max_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            connect_timeout_ms: 10_000,
            total_timeout_ms: 60_000,
            idle_timeout_ms: 15_000,
            grace_ms: 10_000,
            bytes_per_second_min: 4096,
            max_bytes: 256 << 20,
        }
    }
}

/// Why nothing was fetched. The texts are for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("Could not parse URL as a URI.")]
    InvalidUrl,
    #[error("URL for media download must be publicly routable.")]
    NotRoutable,
    /// It may resolve later. The text is that of [`Self::NotRoutable`], though the wire format has one for
    /// it: that would tell names of internal hosts from names that do not exist.
    #[error("URL for media download must be publicly routable.")]
    Unresolvable,
    #[error("The remote server hosting the media is missing `location` in redirect.")]
    MissingLocation,
    #[error("The remote server hosting the media returned too many redirects.")]
    TooManyRedirects,
    #[error("The remote server hosting the media returned a client error: {0}.")]
    ClientError(u16),
    /// Unreachable, too slow, a server error, a broken or an encoded answer: deliberately one error.
    #[error("The remote server hosting the media failed to return valid data.")]
    Failed,
    #[error("The media is larger than the {limit} bytes that may be fetched.")]
    TooLarge { limit: u64 },
}

/// Why no [`Fetcher`] could be built.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("`{0}` is neither a host, a host with a port, an address nor a network")]
    Allow(String),
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
}
