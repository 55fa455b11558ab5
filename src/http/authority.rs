//! The server that a request names: in `Host`; in HTTP/2 and in the absolute form, in its target.

use std::net::IpAddr;

use hyper::header::HOST;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, StatusCode, Uri, Version};

use super::failure::Failure;

/// # Errors
/// 400 if a request names several servers, an impossible one, or none although its version requires one (RFC
/// 9112, section 3.2; RFC 9113, section 8.3.1): a proxy in front may have read it differently.
pub(super) fn check(version: Version, headers: &HeaderMap, uri: &Uri) -> Result<(), Failure> {
    let refused = |message: &'static str| Err(Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message));
    let mut hosts = headers.get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return refused("The request has more than one `Host` header.");
    }
    let Some(host) = host else {
        return match version {
            Version::HTTP_11 => refused("The request has no `Host` header."),
            _ => Ok(()),
        };
    };
    // Empty if the target has no authority, which the RFC allows.
    if host.is_empty() {
        return Ok(());
    }
    let Some(host) = host.to_str().ok().and_then(authority) else {
        return refused("The request's `Host` header is malformed.");
    };
    match uri.authority() {
        Some(target) if version >= Version::HTTP_2 && *target != host => {
            refused("The request's `:authority` and its `Host` header differ.")
        }
        _ => Ok(()),
    }
}

/// The server that a request is for. The target takes precedence over the header.
pub fn named(headers: &HeaderMap, uri: &Uri) -> Option<Authority> {
    uri.authority().cloned().or_else(|| authority(headers.get(HOST)?.to_str().ok()?))
}

/// Whether `origin` is that of the server `named`. A proxy may have ended TLS, so schemes are not compared,
/// and the default ports of both count as none.
pub fn is_origin_of(origin: &str, named: &Authority) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    let Ok(origin) = rest.parse::<Authority>() else { return false };
    let port = |authority: &Authority| authority.port_u16().filter(|port| !matches!(port, 80 | 443));
    matches!(scheme, "http" | "https")
        && !rest.contains('@')
        && origin.host().eq_ignore_ascii_case(named.host())
        && port(&origin) == port(named)
}

/// Whether every server name in a request is a loopback name of this machine, and there is at least one.
pub fn is_loopback(headers: &HeaderMap, uri: &Uri) -> bool {
    let hosts = headers.get_all(HOST).iter().map(|host| host.to_str().ok().and_then(authority));
    let mut names = hosts.chain(uri.authority().cloned().map(Some)).peekable();
    names.peek().is_some() && names.all(|name| name.is_some_and(|name| is_loopback_name(name.host())))
}

fn is_loopback_name(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.is_loopback();
    }
    let name = host.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// `text` as host and port, without a user.
fn authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.trim().parse().ok()?;
    (!text.contains('@') && !authority.host().is_empty()).then_some(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(hosts: &[&str]) -> HeaderMap {
        hosts.iter().map(|host| (HOST, host.parse().unwrap())).fold(
            HeaderMap::new(),
            |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            },
        )
    }

    fn status(version: Version, hosts: &[&str], uri: &str) -> u16 {
        let checked = check(version, &headers(hosts), &uri.parse().unwrap());
        checked.err().map_or(200, |failure| failure.status().as_u16())
    }

    #[test]
    fn a_request_names_one_server() {
        for hosts in [&["localhost"][..], &["127.0.0.1:8000"], &["[::1]:8000"], &["voice.example"], &[""]] {
            assert_eq!(status(Version::HTTP_11, hosts, "/"), 200, "{hosts:?}");
        }
        for hosts in
            [&[][..], &["localhost", "localhost"], &["a b"], &["user@localhost"], &["localhost/x"], &[":80"]]
        {
            assert_eq!(status(Version::HTTP_11, hosts, "/"), 400, "{hosts:?}");
        }
        assert_eq!(status(Version::HTTP_10, &[], "/"), 200);
        assert_eq!(status(Version::HTTP_10, &["a", "b"], "/"), 400);
        assert_eq!(status(Version::HTTP_2, &[], "http://localhost/"), 200);
        assert_eq!(status(Version::HTTP_2, &["LOCALHOST"], "http://localhost/"), 200);
        assert_eq!(status(Version::HTTP_2, &["localhost"], "http://voice.example/"), 400);
    }

    #[test]
    fn loopback_is_what_every_name_says() {
        let is_loopback =
            |hosts: &[&str], uri: &str| super::is_loopback(&headers(hosts), &uri.parse().unwrap());
        for host in ["localhost", "localhost:8000", "LOCALHOST:1", "a.localhost", "127.1.2.3", "[::1]:8000"] {
            assert!(is_loopback(&[host], "/"), "{host}");
            assert!(is_loopback(&[], &format!("http://{host}/")), "{host}");
        }
        for host in ["voice.example", "10.0.0.1:8000", "127.0.0.1.voice.example", "localhost.example"] {
            assert!(!is_loopback(&[host], "/"), "{host}");
            assert!(!is_loopback(&[], &format!("http://{host}/")), "{host}");
            assert!(!is_loopback(&["localhost"], &format!("http://{host}/")), "{host}");
            assert!(!is_loopback(&[host], "http://localhost/"), "{host}");
            assert!(!is_loopback(&["localhost", host], "/"), "{host}");
        }
        for host in ["", "a b"] {
            assert!(!is_loopback(&[host], "/"), "{host}");
        }
        assert!(!is_loopback(&[], "/"));
    }
}
