//! Cross-origin reads by browsers (the Fetch standard, «CORS protocol»). None unless configured, and never
//! with credentials: the page itself sets the header that carries the key.

use std::collections::HashSet;

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, StatusCode};

use super::authority::is_origin_of;
use super::error::Error;
use super::response::{Response, empty};

/// Headers that pages may read besides the safelisted ones: those of the wire format.
const EXPOSED: &str =
    "dg-model-name,dg-model-uuid,dg-char-count,dg-request-id,dg-project-id,dg-error,x-request-id,retry-after";
const PREFLIGHT_SECONDS: &str = "7200";

#[derive(Debug, Clone, Default)]
pub(super) struct Cors {
    origins: HashSet<String>,
    any: bool,
}

impl Cors {
    /// # Errors
    /// [`Error::Origin`] for an entry that is no origin: nothing would ever match it.
    pub(super) fn new(origins: &[String]) -> Result<Self, Error> {
        let mut cors = Self::default();
        for origin in origins {
            if origin == "*" {
                cors.any = true;
                continue;
            }
            let url = url::Url::parse(origin).map_err(|_| Error::Origin(origin.clone()))?;
            let canonical = url.origin().ascii_serialization();
            if canonical == "null"
                || origin.contains('*')
                || !matches!(origin.strip_prefix(&canonical), Some("" | "/"))
            {
                return Err(Error::Origin(origin.clone()));
            }
            cors.origins.insert(canonical);
        }
        Ok(cors)
    }

    fn is_off(&self) -> bool {
        !self.any && self.origins.is_empty()
    }

    fn admits(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let listed = || origin.to_str().is_ok_and(|origin| self.origins.contains(origin));
        (self.any || listed()).then(|| origin.clone())
    }

    /// Where the page comes from that sent a request to the server `named`.
    pub(super) fn page(&self, headers: &HeaderMap, named: Option<&Authority>) -> Page {
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return Page::Own,
            (Some(origin), None) => origin.to_str().unwrap_or_default(),
            (Some(_), Some(_)) => return Page::Foreign,
        };
        if self.origins.contains(origin) || named.is_some_and(|named| is_origin_of(origin, named)) {
            Page::Own
        } else if self.any {
            Page::Any
        } else {
            Page::Foreign
        }
    }

    /// The answer to a preflight from an admitted origin; `allow` lists the path's methods.
    pub(super) fn preflight(
        &self,
        method: &Method,
        headers: &HeaderMap,
        allow: &HeaderValue,
    ) -> Option<Response> {
        if *method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        self.admits(headers)?;
        let mut response = empty(StatusCode::NO_CONTENT);
        let out = response.headers_mut();
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, allow.clone());
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
        // SDKs in browsers send headers of their own; none can do harm, since none is trusted.
        if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        Some(response)
    }

    /// Marks an answer as readable by the page that asked.
    pub(super) fn mark(&self, admitted: Option<HeaderValue>, out: &mut HeaderMap) {
        if self.is_off() {
            return;
        }
        out.append(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = admitted {
            out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }

    /// The origin to name in the answer to a request with `headers`.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        self.admits(headers)
    }
}

/// Where the page behind a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// From this server or a listed origin, or no page sent the request.
    Own,
    /// Admitted by `*` alone.
    Any,
    Foreign,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_apart_by_their_origins() {
        let listed = Cors::new(&["https://app.example".to_owned()]).unwrap();
        let any = Cors::new(&["*".to_owned()]).unwrap();
        let named = |host: &str| host.parse::<Authority>().unwrap();
        let page = |cors: &Cors, origin: &str, host: &str| {
            cors.page(&[(ORIGIN, origin.parse().unwrap())].into_iter().collect(), Some(&named(host)))
        };
        for (origin, host) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://LOCALHOST:8000", "localhost:8000"),
            ("http://[::1]:8000", "[::1]:8000"),
            ("https://voice.example", "voice.example"),
            ("https://voice.example", "voice.example:443"),
            ("https://app.example", "voice.example"),
        ] {
            assert_eq!(page(&listed, origin, host), Page::Own, "{origin} {host}");
        }
        for (origin, host) in [
            ("https://evil.example", "127.0.0.1:8000"),
            ("http://127.0.0.1:8001", "127.0.0.1:8000"),
            ("http://localhost:8000", "127.0.0.1:8000"),
            ("http://voice.example.evil", "voice.example"),
            ("http://x@voice.example", "voice.example"),
            ("file://voice.example", "voice.example"),
            ("http://app.example", "voice.example"),
            ("null", "voice.example"),
            ("", "voice.example"),
        ] {
            assert_eq!(page(&listed, origin, host), Page::Foreign, "{origin} {host}");
            assert_eq!(page(&any, origin, host), Page::Any, "{origin} {host}");
        }
        assert_eq!(listed.page(&HeaderMap::new(), None), Page::Own);
        let same = [(ORIGIN, "https://app.example".parse().unwrap())].into_iter().collect();
        assert_eq!(listed.page(&same, None), Page::Own);
        let mut twice = same;
        twice.append(ORIGIN, "https://app.example".parse().unwrap());
        assert_eq!(listed.page(&twice, None), Page::Foreign);
    }

    #[test]
    fn origins_are_checked() {
        for origin in ["https://app.example", "http://localhost:3000", "https://app.example/", "*"] {
            assert!(Cors::new(&[origin.to_owned()]).is_ok(), "{origin}");
        }
        for origin in
            ["app.example", "", "https://app.example/path", "null", "data:text/plain,x", "https://*.example"]
        {
            assert!(Cors::new(&[origin.to_owned()]).is_err(), "{origin}");
        }
    }
}
