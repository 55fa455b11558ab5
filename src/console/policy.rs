//! The headers that limit what browsers may do with the console's answers.

use hyper::HeaderMap;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_FRAME_OPTIONS};

/// Content Security Policy, level 3. Only files of this server run, none of them inline; no text becomes markup or code
/// (`require-trusted-types-for`); `'self'` of `connect-src` includes WebSockets of the same origin.
const PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data: blob:; media-src 'self' blob:; worker-src 'self'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const DATA: &str = "default-src 'none'; frame-ancestors 'none'";

const COMMON: [(HeaderName, &str); 5] = [
    (REFERRER_POLICY, "no-referrer"),
    // For browsers that don't know `frame-ancestors`.
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "microphone=(self), camera=(), display-capture=(), geolocation=(), payment=(), usb=(), serial=(), \
         hid=(), midi=(), browsing-topics=()",
    ),
];

/// Marks a page, or a file of one.
pub fn mark_page(headers: &mut HeaderMap) {
    mark(headers, PAGE);
}

/// Marks an answer that no browser is to show.
pub fn mark_data(headers: &mut HeaderMap) {
    mark(headers, DATA);
}

fn mark(headers: &mut HeaderMap, policy: &'static str) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    for (name, value) in COMMON {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
