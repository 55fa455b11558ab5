//! One download: redirects are followed by hand, bytes counted, time bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, redirect};
use url::Url;

use super::own::Own;
use super::policy::{self, AllowList, Reach, Reachable, without_user};
use super::resolver::{LookUp, Resolver, system};
use super::{Config, Error, SetupError};
use crate::patience::{Rate, RateTimer, within};

const REDIRECTS_MAX: usize = 3;

/// Fetches media by URL. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    clients: Clients,
    /// For WebSockets, which only an HTTP/1.1 connection can become.
    pub(super) upgrading: Clients,
    pub(super) reachable: Arc<Reachable>,
    pub(super) look_up: LookUp,
    /// Time limit for the head of an answer.
    answer_timeout: Duration,
    total_timeout: Duration,
    rate: Rate,
    max_bytes: u64,
}

/// One client for each [`Reach`], since a resolver sees nothing but the name.
#[derive(Clone)]
pub(super) struct Clients {
    public: Client,
    listed: Client,
    any: Client,
}

impl Clients {
    /// The client that reaches as far as `url` may.
    pub(super) fn of(&self, url: &Url, reachable: &Reachable) -> Result<&Client, Error> {
        Ok(match policy::check(url, reachable)? {
            Reach::Public => &self.public,
            Reach::Listed => &self.listed,
            Reach::Any => &self.any,
        })
    }
}

/// A downloaded file.
#[derive(Debug, Clone)]
pub struct Download {
    pub bytes: Bytes,
    /// The address after the last redirect, without a user.
    pub url: Url,
    /// Without parameters, in lower case; `None` if the server sent none.
    pub media_type: Option<String>,
}

impl Fetcher {
    /// # Errors
    /// [`SetupError`]: an invalid entry of the allow-list, or no TLS.
    pub fn new(config: &Config) -> Result<Self, SetupError> {
        Self::with_look_up(config, system())
    }

    fn with_look_up(config: &Config, look_up: LookUp) -> Result<Self, SetupError> {
        let reachable = Arc::new(Reachable::new(AllowList::parse(&config.allow)?, Own::of_interfaces()));
        let connect_timeout = Duration::from_millis(config.connect_timeout_ms);
        let client = |reach, upgrades| {
            let resolver = Resolver { look_up: look_up.clone(), reach, reachable: reachable.clone() };
            client(connect_timeout, resolver, upgrades).map_err(SetupError::Client)
        };
        let clients = |upgrades| {
            Ok(Clients {
                public: client(Reach::Public, upgrades)?,
                listed: client(Reach::Listed, upgrades)?,
                any: client(Reach::Any, upgrades)?,
            })
        };
        let idle = Duration::from_millis(config.idle_timeout_ms);
        Ok(Self {
            clients: clients(false)?,
            upgrading: clients(true)?,
            reachable: reachable.clone(),
            look_up: look_up.clone(),
            answer_timeout: connect_timeout.saturating_add(idle),
            total_timeout: Duration::from_millis(config.total_timeout_ms),
            rate: Rate {
                idle,
                grace: Duration::from_millis(config.grace_ms),
                bytes_per_second_min: config.bytes_per_second_min,
            },
            max_bytes: config.max_bytes,
        })
    }

    /// Fetches the whole of `url`. A user in it is sent as Basic authentication (RFC 7617) to that host only,
    /// never to the target of a redirect. Dropping the future ends the transfer.
    ///
    /// # Errors
    /// See [`Error`]; past `total_timeout_ms`, and for a host that is too slow, it is [`Error::Failed`].
    pub async fn fetch(&self, url: &str) -> Result<Download, Error> {
        within(self.total_timeout, self.follow(url)).await.unwrap_or(Err(Error::Failed))
    }

    async fn follow(&self, url: &str) -> Result<Download, Error> {
        let named = policy::parse(url)?;
        let mut url = without_user(&named);
        for _ in 0..=REDIRECTS_MAX {
            let response = self.request(&url, &named).await?;
            if !response.status().is_redirection() {
                return self.read(url, response).await;
            }
            let location = response.headers().get(LOCATION).ok_or(Error::MissingLocation)?;
            url = policy::redirect(&url, location.to_str().map_err(|_| Error::InvalidUrl)?)?;
        }
        Err(Error::TooManyRedirects)
    }

    /// `named`: the original URL, with its user.
    async fn request(&self, url: &Url, named: &Url) -> Result<Response, Error> {
        let client = self.client(url)?;
        let mut url = url.clone();
        if url.origin() == named.origin() {
            url.set_username(named.username()).map_err(|()| Error::InvalidUrl)?;
            url.set_password(named.password()).map_err(|()| Error::InvalidUrl)?;
        }
        let answer = within(self.answer_timeout, client.get(url).send()).await.ok_or(Error::Failed)?;
        answer.map_err(|error| verdict(&error))
    }

    /// The client that reaches as far as `url` may.
    pub(super) fn client(&self, url: &Url) -> Result<&Client, Error> {
        self.clients.of(url, &self.reachable)
    }

    async fn read(&self, url: Url, mut response: Response) -> Result<Download, Error> {
        let status = response.status();
        if status.is_client_error() {
            return Err(Error::ClientError(status.as_u16()));
        }
        // 206 and 204 do not carry the requested media.
        if status != reqwest::StatusCode::OK || is_encoded(&response) {
            return Err(Error::Failed);
        }
        let too_large = Error::TooLarge { limit: self.max_bytes };
        if response.content_length().is_some_and(|length| length > self.max_bytes) {
            return Err(too_large);
        }
        let media_type = media_type(&response);
        let mut bytes = BytesMut::new();
        let mut timer = RateTimer::new(self.rate);
        loop {
            let chunk = timer.wait(response.chunk()).await.ok_or(Error::Failed)?;
            let Some(chunk) = chunk.map_err(|_| Error::Failed)? else { break };
            if (bytes.len() + chunk.len()) as u64 > self.max_bytes {
                return Err(too_large);
            }
            timer.received(chunk.len() as u64);
            bytes.extend_from_slice(&chunk);
        }
        Ok(Download { bytes: bytes.freeze(), url, media_type })
    }
}

fn media_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next()?.trim().to_ascii_lowercase())
}

/// The request asks for no encoding; an encoded answer is not the media.
fn is_encoded(response: &Response) -> bool {
    let encoding = response.headers().get(CONTENT_ENCODING);
    encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The resolver's refusal comes wrapped in the client's error; all others are one error.
pub(super) fn verdict(error: &reqwest::Error) -> Error {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(verdict) = error.downcast_ref::<Error>() {
            return verdict.clone();
        }
        source = error.source();
    }
    Error::Failed
}

fn client(connect_timeout: Duration, resolver: Resolver, upgrades: bool) -> Result<Client, reqwest::Error> {
    // The process has one provider of cryptography; it does not matter who installed it first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let resolver = Arc::new(resolver);
    let builder = || {
        let builder = Client::builder();
        let builder = if upgrades { builder.http1_only() } else { builder };
        builder
            .user_agent(concat!("verbatim/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(connect_timeout)
            // A connection serves one request and is not kept for the next.
            .pool_max_idle_per_host(0)
            .dns_resolver(resolver.clone())
    };
    // A machine without root certificates can still fetch over http.
    builder().build().or_else(|error| {
        tracing::warn!(%error, "no certificates of the system: https URLs cannot be fetched");
        builder().tls_certs_only([]).build()
    })
}

#[cfg(test)]
mod tests;
