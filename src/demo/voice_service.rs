//! The voice-agent service as a client sees it: one address, JSON both ways.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, redirect};
use serde_json::Value;

use super::config::{Config, base_url};
use super::error::Error;
use super::fields::BODY_BYTES_MAX;
use super::reply::{Refusal, Reply};
use crate::http::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub struct VoiceService {
    client: Client,
    /// Without a trailing slash.
    pub base: String,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

impl VoiceService {
    /// # Errors
    /// [`Error::Address`], [`Error::Key`], [`Error::Client`].
    pub fn new(config: &Config) -> Result<Self, Error> {
        // The process's one provider of cryptography; it doesn't matter which part installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // No redirects: no other host may get the key and the body.
        let builder = || {
            Client::builder()
                .user_agent(concat!("verbatim-demo/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .referer(false)
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
        };
        // A machine without root certificates still reaches its neighbours over http.
        let client = builder().build().or_else(|_| builder().tls_certs_only([]).build())?;
        let authorization = match &config.sts_api_key {
            None => None,
            Some(key) => {
                let mut value =
                    HeaderValue::try_from(format!("Bearer {}", key.expose())).map_err(|_| Error::Key)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let base = base_url("demo.sts_base_url", &config.sts_base_url)?;
        Ok(Self { client, base, authorization, timeout: Duration::from_millis(config.sts_timeout_ms) })
    }

    /// Sends `body` unchanged.
    ///
    /// # Errors
    /// 502 if there is no answer, 504 if it takes too long.
    pub async fn forward(&self, body: Bytes, media_type: HeaderValue) -> Result<Reply, Failure> {
        let mut request = self
            .client
            .post(format!("{}/STS/interactiveAgent", self.base))
            .header(CONTENT_TYPE, media_type)
            .timeout(self.timeout)
            .body(body);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let mut response = request.send().await.map_err(|error| failure(&error))?;
        if response.status() == StatusCode::UNAUTHORIZED {
            tracing::warn!("the voice service wants a key, or another one than `demo.sts_api_key`");
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if (body.len() + chunk.len()) as u64 > BODY_BYTES_MAX {
                return Err(bad_gateway("The voice service's answer is too long."));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply {
            status: response.status(),
            media_type: response.headers().get(CONTENT_TYPE).cloned().unwrap_or(JSON),
            retry_after: response.headers().get(RETRY_AFTER).cloned(),
            body: body.freeze(),
        })
    }

    /// Performs one action.
    ///
    /// # Errors
    /// As [`Self::forward`]. Refusals and 503 of the service are passed on; other failures, and a server that is no such
    /// service, are 502.
    pub async fn act(&self, action: &Value) -> Result<Value, Refusal> {
        let reply = self.forward(action.to_string().into(), JSON).await?;
        let is_refusal = reply.status.is_client_error() || reply.status == StatusCode::SERVICE_UNAVAILABLE;
        if is_refusal {
            return Err(Refusal::Passed(reply));
        }
        if !reply.status.is_success() {
            return Err(bad_gateway("The voice service failed.").because(reply.status.as_u16()).into());
        }
        let value = serde_json::from_slice(&reply.body);
        value.map_err(|_| bad_gateway("The voice service's answer is no JSON.").into())
    }
}

fn failure(error: &reqwest::Error) -> Failure {
    if error.is_timeout() && !error.is_connect() {
        let message = "The voice service did not answer in time.";
        return Failure::new(StatusCode::GATEWAY_TIMEOUT, "STS_TIMEOUT", message);
    }
    bad_gateway("The voice service cannot be reached.")
}

fn bad_gateway(message: &'static str) -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "STS_UNAVAILABLE", message)
}
