//! Who may call the service directly. The contract does not show it: its clients send no key.

use hyper::header::{
    AUTHORIZATION, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL,
};
use url::Host;

use super::config::Auth;
use crate::http::{Authenticator, Failure};

/// The organisation of those who show no key.
const LOCAL: u64 = 0;

/// What proxies tell of those they stand before (RFC 7239, and what was usual before it).
const FORWARDED_FOR: [HeaderName; 5] = [
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

pub struct Access {
    authenticator: Authenticator,
    open: Open,
}

/// Who needs no key.
enum Open {
    Nobody,
    /// Who calls from this machine, by its own name: not by way of a proxy on it that stands in the open, and
    /// no page of another origin whose name leads here.
    Local,
    All,
}

impl Access {
    pub fn new(authenticator: Authenticator, auth: Auth, is_loopback: bool) -> Self {
        if auth == Auth::Off && !is_loopback {
            tracing::warn!("sts.auth is off on a public address: anybody may start and steer sessions");
        }
        let open = match auth {
            Auth::Auto if is_loopback => Open::Local,
            Auth::Auto | Auth::Required => Open::Nobody,
            Auth::Off => Open::All,
        };
        Self { authenticator, open }
    }

    fn is_open(&self, headers: &HeaderMap) -> bool {
        match self.open {
            Open::Nobody => false,
            Open::Local => is_local(headers),
            Open::All => true,
        }
    }

    /// The organisation that a request is made for. A key that is shown counts even where none is
    /// needed.
    ///
    /// # Errors
    /// 401.
    pub async fn tenant(&self, headers: &HeaderMap) -> Result<u64, Failure> {
        if !headers.contains_key(AUTHORIZATION) && self.is_open(headers) {
            return Ok(LOCAL);
        }
        Ok(self.authenticator.caller(headers).await?.tenant)
    }

    /// As [`Self::tenant`], for a WebSocket; with the subprotocol to agree to.
    ///
    /// # Errors
    /// 401.
    pub async fn websocket_tenant(&self, headers: &HeaderMap) -> Result<(u64, Option<HeaderValue>), Failure> {
        let shows_key = headers.contains_key(AUTHORIZATION) || headers.contains_key(SEC_WEBSOCKET_PROTOCOL);
        if !shows_key && self.is_open(headers) {
            return Ok((LOCAL, None));
        }
        let (caller, agreed) = self.authenticator.websocket_caller(headers).await?;
        Ok((caller.tenant, agreed))
    }
}

fn is_local(headers: &HeaderMap) -> bool {
    if FORWARDED_FOR.iter().any(|name| headers.contains_key(name)) {
        return false;
    }
    // HTTP/2 has it in the target; a browser, which could be made to ask for us, speaks it over TLS alone.
    let Some(host) = headers.get(HOST) else { return true };
    let host = host.to_str().ok().and_then(|host| url::Url::parse(&format!("http://{host}/")).ok());
    match host.as_ref().and_then(url::Url::host) {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_calls_this_machine_by_its_own_name_is_local() {
        let is_local = |headers: &[(&str, &str)]| {
            let pair = |(name, value): &(&str, &str)| {
                (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
            };
            super::is_local(&headers.iter().map(pair).collect())
        };
        for host in
            ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000"]
        {
            assert!(is_local(&[("host", host)]), "{host}");
        }
        for host in
            ["voice.example", "10.0.0.1:8000", "127.0.0.1.voice.example", "localhost.example", "", "a b"]
        {
            assert!(!is_local(&[("host", host)]), "{host}");
        }
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"] {
            assert!(!is_local(&[("host", "127.0.0.1"), (name, "127.0.0.1")]), "{name}");
        }
    }
}
