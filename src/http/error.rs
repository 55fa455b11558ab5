//! The error of starting the server.

use std::path::PathBuf;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{path}`")]
    TlsFile { path: PathBuf, source: tokio_rustls::rustls::pki_types::pem::Error },
    #[error("the certificate and its key cannot be used")]
    Tls(#[from] tokio_rustls::rustls::Error),
    #[error("the certificates of clients cannot be checked")]
    TlsClients(#[source] tokio_rustls::rustls::server::VerifierBuilderError),
    #[error("`{0}` is not an origin such as `https://app.example`")]
    Origin(String),
    #[error("the listening socket failed")]
    Listener(#[source] std::io::Error),
}
