//! Requests of ours to services that the operator named in the configuration: the hook, the provider,
//! the chat and speech interfaces. What a client names goes through [`crate::fetch`] instead.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Response, redirect};
use serde_json::Value;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of an answer that is one JSON value.
const JSON_BYTES_MAX: usize = 256 << 10;

/// No redirects: nobody else is to get the keys that go along.
///
/// # Errors
/// No TLS.
pub fn client() -> Result<Client, reqwest::Error> {
    build(|builder| builder)
}

/// As [`client`], for connections that become WebSockets.
///
/// # Errors
/// No TLS.
#[cfg(feature = "livekit")]
pub fn http1_client() -> Result<Client, reqwest::Error> {
    build(ClientBuilder::http1_only)
}

fn build(with: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, reqwest::Error> {
    // The process's one provider of cryptography; who installed it first does not matter.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        with(Client::builder())
            .user_agent(concat!("verbatim/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
    };
    // A machine without certificates of its own still reaches its neighbours over http.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// The JSON of an answer; none where it is none, or too long.
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
