//! HTTP clients for services that the operator configured: the verification hook, the telephony provider, the
//! chat and speech interfaces. Addresses that clients send go through `fetch` instead.

use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Identity, Response, redirect};
use serde_json::Value;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest JSON answer, in bytes.
const JSON_BYTES_MAX: usize = 256 << 10;

/// A client that follows no redirects, so that its keys reach no other host.
///
/// # Errors
/// TLS cannot be set up.
pub fn client() -> Result<Client, reqwest::Error> {
    build(|builder| builder)
}

/// Like [`client`], for connections that become WebSockets. Its answers carry the server's certificate.
///
/// # Errors
/// TLS cannot be set up.
pub fn http1_client() -> Result<Client, reqwest::Error> {
    build(|builder| builder.http1_only().tls_info(true))
}

/// Like [`client`], for another server of the operator's own. `authorities`: certificates, in PEM, that its own must be signed
/// by, in the place of the system's; `own`: the certificate and key to show it, in PEM.
///
/// # Errors
/// TLS cannot be set up with them.
pub fn node_client(authorities: Option<&[u8]>, own: Option<&[u8]>) -> Result<Client, reqwest::Error> {
    let authorities = authorities.map(Certificate::from_pem_bundle).transpose()?;
    let own = own.map(Identity::from_pem).transpose()?;
    build(|builder| {
        let builder = match &authorities {
            Some(authorities) => builder.tls_certs_only(authorities.clone()),
            None => builder,
        };
        match &own {
            Some(own) => builder.identity(own.clone()),
            None => builder,
        }
    })
}

fn build(with: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, reqwest::Error> {
    // The process has one cryptography provider; an error means that it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        with(Client::builder())
            .user_agent(concat!("verbatim/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
    };
    // A machine without root certificates can still reach its neighbours over http.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// The JSON of an answer; none if it is too long or not JSON.
pub async fn read_json(mut response: Response) -> Option<Value> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if bytes.len() + chunk.len() > JSON_BYTES_MAX {
            return None;
        }
        bytes.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&bytes).ok()
}
