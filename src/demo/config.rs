//! Settings of the demo backend. `ALIASES` in the program's configuration has the environment variables that the contract
//! names for them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::error::Error;
use crate::secret::Secret;

/// The default key of the demo's routes: it is public, so it works on loopback only.
const BUILT_IN_KEY: &str = "verbatim-demo-key";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port that the backend listens on. Default 127.0.0.1:8080.
    pub listen: SocketAddr,
    /// `X-API-Key` of its routes. Default: a built-in one, which is refused on any address but loopback.
    pub api_key: Option<Secret>,
    /// Address of the voice-agent service; https and public if a telephony provider follows the redirect to it. Default
    /// `http://localhost:8000`.
    pub sts_base_url: String,
    /// Key that is sent to the voice-agent service as `Authorization: Bearer`. Default: none.
    pub sts_api_key: Option<Secret>,
    /// Time that the voice-agent service may take to answer. Default 10 000.
    pub sts_timeout_ms: u64,
    /// Base of the addresses in `link_catalog`. Default `http://localhost:3000`.
    pub frontend_base_url: String,
    /// Address and port of the built-in front-end pages. Default: those of `frontend_base_url` if that is http on this machine;
    /// otherwise the pages are not served.
    pub site_listen: Option<SocketAddr>,
    /// `website_url` of sessions that begin with a telephone call. Default `https://example.com`.
    pub website_url: String,
    /// Categories that the verification hook accepts, or `*`. Default `patient_information`.
    pub voice_verify_allowed_categories: Vec<String>,
    /// Whether the caller must say the patient id besides the last four digits. Default false.
    pub voice_verify_require_patient_id: bool,
    /// A JSON file of profiles and patients instead of the built-in ones.
    pub records: Option<PathBuf>,
    /// Address by which the telephony provider reaches this backend, and which it signs: `https://demo.example`. Default:
    /// `http://` and the request's `Host`.
    pub public_url: Option<String>,
    /// Token that the provider signs its requests with. Without it the backend can't check them, so no other machine may reach
    /// it.
    pub twilio_auth_token: Option<Secret>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            api_key: None,
            sts_base_url: "http://localhost:8000".into(),
            sts_api_key: None,
            sts_timeout_ms: 10_000,
            frontend_base_url: "http://localhost:3000".into(),
            site_listen: None,
            website_url: "https://example.com".into(),
            voice_verify_allowed_categories: vec!["patient_information".into()],
            voice_verify_require_patient_id: false,
            records: None,
            public_url: None,
            twilio_auth_token: None,
        }
    }
}

impl Config {
    /// The address of the built-in pages, if they are served.
    pub fn site_address(&self) -> Option<SocketAddr> {
        if self.site_listen.is_some() {
            return self.site_listen;
        }
        let url = Url::parse(&self.frontend_base_url).ok().filter(|url| url.scheme() == "http")?;
        let address = match url.host()? {
            Host::Domain("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Host::Domain(_) => return None,
            Host::Ipv4(v4) => v4.into(),
            Host::Ipv6(v6) => v6.into(),
        };
        address.is_loopback().then(|| SocketAddr::new(address, url.port_or_known_default().unwrap_or(80)))
    }

    /// # Errors
    /// [`Error::Unsigned`] if any client could pose as the telephony provider.
    pub fn check(&self) -> Result<(), Error> {
        let token = self.twilio_auth_token.as_ref().map(Secret::expose);
        if token.is_some_and(|token| !token.is_empty()) {
            return Ok(());
        }
        let is_local = |url: &str| {
            Url::parse(url).is_ok_and(|url| match url.host() {
                Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
                Some(Host::Ipv4(v4)) => v4.is_loopback(),
                Some(Host::Ipv6(v6)) => v6.is_loopback(),
                None => false,
            })
        };
        if !self.listen.ip().is_loopback() {
            return Err(Error::Unsigned(self.listen.to_string()));
        }
        match self.public_url.as_deref() {
            Some(url) if !is_local(url) => Err(Error::Unsigned(url.to_owned())),
            _ => Ok(()),
        }
    }

    /// The key of the demo's routes, if it is the public one.
    pub(super) fn shown_key(&self) -> Option<&'static str> {
        let key = self.api_key.as_ref().map(Secret::expose).filter(|key| !key.is_empty());
        key.is_none_or(|key| key == BUILT_IN_KEY).then_some(BUILT_IN_KEY)
    }

    /// The key of the demo's routes.
    ///
    /// # Errors
    /// [`Error::BuiltInKey`].
    pub fn key(&self) -> Result<Secret, Error> {
        let key = self.api_key.as_ref().map(Secret::expose).filter(|key| !key.is_empty());
        let key = key.unwrap_or(BUILT_IN_KEY);
        for address in [Some(self.listen), self.site_address()].into_iter().flatten() {
            if key == BUILT_IN_KEY && !address.ip().is_loopback() {
                return Err(Error::BuiltInKey(address));
            }
        }
        Ok(Secret::from(key))
    }
}

/// `text` without a trailing slash.
///
/// # Errors
/// [`Error::Address`] if it is no http or https address.
pub(super) fn base_url(setting: &'static str, text: &str) -> Result<String, Error> {
    let is_base = Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none()
    });
    if is_base { Ok(text.trim().trim_end_matches('/').to_owned()) } else { Err(Error::Address(setting)) }
}
