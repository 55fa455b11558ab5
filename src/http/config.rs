//! The configuration of the front end.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of the front end. The defaults suit a server that clients reach directly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Open connections; more wait in the kernel's backlog. Default 4096: keep it below the limit on open
    /// files.
    pub connections_max: usize,
    /// Open connections from one address; more are closed. Default 0, no limit, since behind a proxy all come
    /// from one address.
    pub connections_per_address_max: usize,
    /// From the opening of a connection to the end of its first request's head. Default 10 000.
    pub header_timeout_ms: u64,
    /// How long a connection may be idle between requests. Default 75 000, a little more than common load
    /// balancers.
    pub idle_timeout_ms: u64,
    /// How long a client may accept nothing of an answer. Default 30 000.
    pub write_timeout_ms: u64,
    /// How long a client may send nothing of a body. Default 15 000.
    pub body_idle_timeout_ms: u64,
    /// How long a body may be slower than `body_bytes_per_second_min`. Default 10 000.
    pub body_grace_ms: u64,
    /// The minimum rate of a body after that time, measured over `body_idle_timeout_ms`. Default 4096; 0: no
    /// minimum.
    pub body_bytes_per_second_min: u64,
    /// The largest body. A larger one is refused by its declared length, or once that much has arrived.
    /// Default 256 MiB, which holds ten minutes of uncompressed studio sound.
    pub body_bytes_max: u64,
    /// Bytes of bodies in memory and in files, of all requests together; beyond that, clients get 503. While
    /// several organisations have keys, one may hold four fifths of it. Default 2 GiB.
    pub buffered_bytes_max: u64,
    /// Folder on a local disk for bodies larger than 1 MiB, while they are needed. Default: `uploads` in the
    /// state directory.
    pub spool_dir: Option<PathBuf>,
    /// Header fields of a request. Default 100.
    pub headers_max: usize,
    /// Bytes of a request's head. Default 32 KiB.
    pub header_bytes_max: usize,
    /// Concurrent requests on one HTTP/2 connection. Default 128.
    pub streams_max: u32,
    /// How long requests may take to finish after the server has closed its port. Default 30 000.
    pub drain_timeout_ms: u64,
    /// Origins whose pages may read answers (`https://app.example`), or `*`. Pages of other origins are
    /// refused unless they show a key. Pages admitted by `*` alone need a key wherever one can be shown.
    /// Default: none.
    pub cors_origins: Vec<String>,
    /// Serve TLS with these files. Default: plain HTTP.
    pub tls: Option<TlsConfig>,
}

/// Files in PEM form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The server's certificate, followed by its chain.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificates of authorities: clients must show one that such an authority signed. For servers that only other
    /// servers and balancers reach. Default: clients need none.
    pub client_ca: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            connections_per_address_max: 0,
            header_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            body_idle_timeout_ms: 15_000,
            body_grace_ms: 10_000,
            body_bytes_per_second_min: 4096,
            body_bytes_max: 256 << 20,
            buffered_bytes_max: 2 << 30,
            spool_dir: None,
            headers_max: 100,
            header_bytes_max: 32 << 10,
            streams_max: 128,
            drain_timeout_ms: 30_000,
            cors_origins: Vec::new(),
            tls: None,
        }
    }
}

impl Config {
    pub(super) fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}
