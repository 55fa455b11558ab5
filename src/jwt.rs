//! JSON Web Tokens (RFC 7519) in the compact form of a JSON Web Signature (RFC 7515), with HMAC-SHA256:
//!
//! ```text
//! base64url({"alg":"HS256","typ":"JWT"}) . base64url(claims) . base64url(HMAC-SHA256(secret, what stands before))
//! ```
//! There is one algorithm, and a header has one spelling: any other header is refused before it is read, `none`
//! and a public-key algorithm alike (RFC 8725, section 3.1).

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;

/// `{"alg":"HS256","typ":"JWT"}`.
pub const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// A token with `claims`, which must be serializable: texts and numbers always are.
pub fn sign(secret: &[u8], claims: &impl Serialize) -> String {
    let claims = serde_json::to_vec(claims).unwrap_or_default();
    with_signature(secret, &format!("{HEADER}.{}", BASE64URL_NOPAD.encode(&claims)))
}

/// The claims of a token that was signed with `secret`. Whether it has expired is the caller's to check.
pub fn check<C: DeserializeOwned>(secret: &[u8], token: &str) -> Option<C> {
    if !is_token(token) {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
    // In constant time.
    mac(secret, signed).verify_slice(&signature).ok()?;
    let (_, claims) = signed.split_once('.')?;
    serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).ok()?).ok()
}

/// Whether `text` has the header of a token.
pub fn is_token(text: &str) -> bool {
    text.strip_prefix(HEADER).is_some_and(|rest| rest.starts_with('.'))
}

/// `signed`, a header and claims, with the signature.
pub fn with_signature(secret: &[u8], signed: &str) -> String {
    let signature = mac(secret, signed).finalize().into_bytes();
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

fn mac(secret: &[u8], signed: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length; this is a bug");
    mac.update(signed.as_bytes());
    mac
}
