//! TLS from files, TLS 1.2 and 1.3, HTTP/2 by ALPN. The files are read again when they change, so that a renewed
//! certificate needs no restart.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Error, TlsConfig};

/// From one look at the files to the next.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The acceptor of the newest files that could be used. Cheap to clone: clones are one.
#[derive(Clone)]
pub(super) struct Tls(Arc<Inner>);

struct Inner {
    config: TlsConfig,
    current: RwLock<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// Of the files' content: their times say nothing where a mount swaps them.
    digest: [u8; 32],
}

impl Tls {
    /// # Errors
    /// [`Error::TlsFile`] if a file cannot be read, [`Error::Tls`] if certificate and key do not belong together,
    /// [`Error::TlsClients`] if the certificates of clients cannot be checked.
    pub(super) fn open(config: &TlsConfig) -> Result<Self, Error> {
        let current = Current { acceptor: acceptor(config)?, digest: digest(config) };
        Ok(Self(Arc::new(Inner { config: config.clone(), current: RwLock::new(current) })))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).acceptor.clone()
    }

    /// Reads the files again whenever they change; what cannot be used changes nothing. Never ends.
    pub(super) async fn keep_up(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let tls = self.clone();
            // A panic would have been one of the library's on these files: those in use stay.
            let _ = tokio::task::spawn_blocking(move || tls.look()).await;
        }
    }

    fn look(&self) {
        let digest = digest(&self.0.config);
        let before = self.0.current.read().unwrap_or_else(PoisonError::into_inner).digest;
        if digest == before {
            return;
        }
        let read = acceptor(&self.0.config);
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        // Half-written files are looked at again once they change.
        current.digest = digest;
        match read {
            Ok(acceptor) => {
                current.acceptor = acceptor;
                tracing::info!("new connections get the renewed certificate");
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::error!(
                    error,
                    "the changed TLS files cannot be used; the certificate before them stays in use"
                );
            }
        }
    }
}

/// The error and its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Of all files' content; a missing file counts as empty.
fn digest(config: &TlsConfig) -> [u8; 32] {
    let mut hash = Sha256::new();
    for path in
        [Some(&config.certificate), Some(&config.key), config.client_ca.as_ref()].into_iter().flatten()
    {
        let bytes = std::fs::read(path).unwrap_or_default();
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    hash.finalize().into()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|source| Error::TlsFile { path: path.to_owned(), source })
}

fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, Error> {
    let chain = certificates(&config.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .map_err(|source| Error::TlsFile { path: config.key.clone(), source })?;
    let provider = Arc::new(ring::default_provider());
    let server =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let server = match &config.client_ca {
        None => server.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            server.with_client_cert_verifier(verifier.map_err(Error::TlsClients)?)
        }
    };
    let mut server = server.with_single_cert(chain, key)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}
