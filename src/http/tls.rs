//! TLS from files, TLS 1.2 and 1.3, HTTP/2 by ALPN.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Error, TlsConfig};

/// # Errors
/// [`Error::TlsFile`] if a file cannot be read, [`Error::Tls`] if the two do not belong together.
pub(super) fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, Error> {
    let unreadable = |path: &std::path::Path| {
        let path = path.to_owned();
        move |source| Error::TlsFile { path, source }
    };
    let certificates = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect)
        .map_err(unreadable(&config.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&config.key).map_err(unreadable(&config.key))?;
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}
