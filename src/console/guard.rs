//! Which requests the console's routes answer: those of its own pages, with the cookie of a session.
//!
//! A cookie goes along with requests of any page of the same site, and the ports of one host are one site. So a
//! request also has to come from a page of this origin, by the browser's own word (`Origin`; `Sec-Fetch-Site` of Fetch
//! Metadata), and to carry a header that no form, link or image can set and that a script of another origin may not
//! set: it would need a preflight, which never allows credentials.

use std::time::Instant;

use hyper::header::{COOKIE, HeaderName, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, StatusCode, Uri};

use super::services::Services;
use super::sessions::Session;
use crate::http::{Failure, Request, authority};
use crate::keys::Identity;

const X_VERBATIM_CONSOLE: HeaderName = HeaderName::from_static("x-verbatim-console");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const NAME: &str = "verbatim-console";

/// The holder of an admin key who is signed in.
pub struct Admin {
    pub session: Session,
    /// The id in the cookie.
    pub cookie: String,
    pub identity: Identity,
}

/// The admin that sent `request`.
///
/// # Errors
/// As [`check_origin`]; 401 without a session, or when its key is no longer valid; 500 if the keys cannot be read.
pub async fn admin(services: &Services, request: &Request) -> Result<Admin, Failure> {
    check_origin(request)?;
    let cookie = cookie(services, request).ok_or_else(signed_out)?;
    let session = services.sessions.find(&cookie, Instant::now()).ok_or_else(signed_out)?;
    let Some(identity) = services.parts.verifier.admin(&session.key).await? else {
        services.sessions.end(&cookie);
        return Err(signed_out());
    };
    Ok(Admin { session, cookie, identity })
}

fn signed_out() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "SIGNED_OUT", "Please sign in.")
}

/// # Errors
/// 403 unless a page of this origin sent the request.
pub fn check_origin(request: &Request) -> Result<(), Failure> {
    let named = authority::named(&request.headers, &request.uri);
    let is_safe = matches!(request.method, Method::GET | Method::HEAD);
    match is_own(&request.headers, named.as_ref(), is_safe) {
        true => Ok(()),
        false => Err(Failure::new(
            StatusCode::FORBIDDEN,
            "CROSS_SITE",
            "Only pages of this server may send this request.",
        )),
    }
}

/// `is_safe`: the request changes nothing. Browsers send such requests without `Origin`.
fn is_own(headers: &HeaderMap, named: Option<&Authority>, is_safe: bool) -> bool {
    let site = only(headers, &SEC_FETCH_SITE);
    let origin = only(headers, &ORIGIN);
    let is_same = |field: Field<'_>, is_right: &dyn Fn(&str) -> bool| match field {
        Field::Missing => None,
        Field::One(text) => Some(is_right(text)),
        Field::Unclear => Some(false),
    };
    let site = is_same(site, &|site| site == "same-origin");
    let origin = is_same(origin, &|origin| named.is_some_and(|named| authority::is_origin_of(origin, named)));
    let says = [site, origin];
    headers.contains_key(X_VERBATIM_CONSOLE)
        && !says.contains(&Some(false))
        && (is_safe || says.contains(&Some(true)))
}

enum Field<'a> {
    Missing,
    One(&'a str),
    /// Several, or no text.
    Unclear,
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Field<'a> {
    let mut fields = headers.get_all(name).iter();
    match (fields.next(), fields.next()) {
        (None, _) => Field::Missing,
        (Some(field), None) => field.to_str().map_or(Field::Unclear, Field::One),
        (Some(_), Some(_)) => Field::Unclear,
    }
}

/// The name of the cookie for the server that `request` names. Cookies of one host go to all of its ports, so the port
/// is a part of the name. Over TLS, the prefix keeps others of the same domain from setting it (RFC 6265bis, section
/// 4.1.3).
fn cookie_name(headers: &HeaderMap, uri: &Uri, is_secure: bool) -> String {
    let named = authority::named(headers, uri);
    let port = named.and_then(|named| named.port_u16()).map(|port| format!("-{port}")).unwrap_or_default();
    let prefix = if is_secure { "__Host-" } else { "" };
    format!("{prefix}{NAME}{port}")
}

/// The id in the only cookie of this server's names. A server with TLS of its own gives only cookies that no other page
/// can set, and takes no others.
pub fn cookie(services: &Services, request: &Request) -> Option<String> {
    let kinds: &[bool] = if services.parts.is_tls { &[true] } else { &[true, false] };
    let names = kinds.iter().map(|&is_secure| cookie_name(&request.headers, &request.uri, is_secure));
    let names: Vec<String> = names.collect();
    let fields = request.headers.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
    let pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(name, _)| names.iter().any(|known| known == name)).map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(id), None) => Some(id.to_owned()),
        // Two: another page of this domain may have set one.
        _ => None,
    }
}

/// Whether the browser reached this server, or a proxy before it, over TLS.
fn is_secure(services: &Services, headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    services.parts.is_tls || origin.is_some_and(|origin| origin.starts_with("https://"))
}

/// `Set-Cookie` for a session, or for none: then the browser forgets it. The session's own end is the server's matter,
/// so the cookie lasts as long as the browser runs.
pub fn set_cookie(services: &Services, headers: &HeaderMap, uri: &Uri, id: Option<&str>) -> HeaderValue {
    let is_secure = is_secure(services, headers);
    let name = cookie_name(headers, uri, is_secure);
    let (id, end) = id.map_or(("", "; Max-Age=0"), |id| (id, ""));
    let secure = if is_secure { "; Secure" } else { "" };
    // Made of letters, digits and a few signs.
    HeaderValue::try_from(format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{end}"))
        .unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_origin_are_let_in() {
        let named: Authority = "127.0.0.1:8000".parse().unwrap();
        let own = ("x-verbatim-console", "1");
        let is_own = |fields: &[(&'static str, &str)], is_safe| {
            let fields = fields
                .iter()
                .map(|&(name, value)| (HeaderName::from_static(name), value.parse::<HeaderValue>().unwrap()));
            let mut headers = HeaderMap::new();
            fields.for_each(|(name, value)| {
                headers.append(name, value);
            });
            super::is_own(&headers, Some(&named), is_safe)
        };
        let (site, origin) = (("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:8000"));
        for fields in [&[own, site][..], &[own, origin], &[own, site, origin]] {
            assert!(is_own(fields, false) && is_own(fields, true), "{fields:?}");
        }
        assert!(is_own(&[own], true) && !is_own(&[own], false));
        for fields in [
            &[][..],
            &[site, origin],
            &[own, ("sec-fetch-site", "same-site"), origin],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "none")],
            &[own, site, ("origin", "https://evil.example")],
            &[own, ("origin", "http://127.0.0.1:9000")],
            &[own, ("origin", "http://localhost:8000")],
            &[own, ("origin", "null")],
            &[own, ("origin", "")],
            &[own, origin, ("origin", "https://evil.example")],
        ] {
            assert!(!is_own(fields, false) && !is_own(fields, true), "{fields:?}");
        }
    }
}
