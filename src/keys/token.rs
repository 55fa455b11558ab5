//! Tokens: what a key's holder gives to a browser instead of the key.
//!
//! A token is a JSON Web Token ([`crate::jwt`]). The signing key is `keys.signing` in the state directory, made
//! once; without it all tokens are invalid, which their short life makes harmless.
//!
//! A token names the key that it was made with, so it ends with that key, and never allows more.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::scope::Scopes;
use super::secret::KeyId;
use crate::jwt;

/// The life of a token whose maker does not say how long it may be.
pub const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// The longest life of a token.
pub const TTL_MAX: Duration = Duration::from_secs(3600);

pub(super) const SIGNING_KEY_BYTES: usize = 32;
/// Longer than any token that is made here.
const TOKEN_CHARACTERS_MAX: usize = 1024;
/// How far the clocks of servers that share a state directory may differ. A token may come from that far in
/// the future; its end is not put off.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// RFC 7519, section 4.1; `scope` as in RFC 8693, section 4.2.
#[derive(Serialize, Deserialize)]
struct Claims {
    /// The id of the key.
    sub: String,
    /// The organisation.
    aud: Uuid,
    scope: String,
    iat: u64,
    exp: u64,
    jti: Uuid,
}

/// A valid token, before its key is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub key: KeyId,
    pub organisation: Uuid,
    pub scopes: Scopes,
    pub expires: SystemTime,
}

/// Signs and checks tokens.
#[derive(Clone)]
pub(super) struct Signer([u8; SIGNING_KEY_BYTES]);

impl Signer {
    pub fn new(key: [u8; SIGNING_KEY_BYTES]) -> Self {
        Self(key)
    }

    pub fn key(&self) -> &[u8; SIGNING_KEY_BYTES] {
        &self.0
    }

    /// A token for a `key` of `organisation` that is valid from `now` for `ttl`.
    pub fn sign(&self, key: &KeyId, organisation: Uuid, now: SystemTime, ttl: Duration) -> String {
        let iat = unix_seconds(now);
        let claims = Claims {
            sub: key.as_str().to_owned(),
            aud: organisation,
            scope: Scopes::of_a_token().stored(),
            iat,
            exp: iat.saturating_add(ttl.min(TTL_MAX).as_secs()),
            jti: Uuid::new_v4(),
        };
        jwt::sign(&self.0, &claims)
    }

    /// The token in `text`, if it was signed here and is valid at `now`.
    pub fn check(&self, text: &str, now: SystemTime) -> Option<Token> {
        if text.len() > TOKEN_CHARACTERS_MAX {
            return None;
        }
        let claims: Claims = jwt::check(&self.0, text)?;
        let now = unix_seconds(now);
        let is_valid = now < claims.exp
            && claims.iat <= now.saturating_add(CLOCK_SKEW.as_secs())
            && claims.exp.saturating_sub(claims.iat) <= TTL_MAX.as_secs();
        is_valid.then(|| Token {
            key: KeyId::from_stored(claims.sub),
            organisation: claims.aud,
            scopes: Scopes::from_stored(&claims.scope),
            expires: UNIX_EPOCH + Duration::from_secs(claims.exp),
        })
    }
}

/// Whether `text` is a token that was signed with `key` and is valid at `now`.
pub fn is_valid_token(key: [u8; SIGNING_KEY_BYTES], text: &str, now: SystemTime) -> bool {
    Signer::new(key).check(text, now).is_some()
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64URL_NOPAD;
    use proptest::prelude::*;

    use super::super::Secret;
    use super::*;

    const ORGANISATION: Uuid = Uuid::from_u128(7);
    const TTL: Duration = Duration::from_secs(30);

    fn signer() -> Signer {
        Signer::new([7; SIGNING_KEY_BYTES])
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    /// With these segments, signed as they are.
    fn signed(header: &str, claims: &str) -> String {
        let signed = format!(
            "{}.{}",
            BASE64URL_NOPAD.encode(header.as_bytes()),
            BASE64URL_NOPAD.encode(claims.as_bytes())
        );
        jwt::with_signature(&signer().0, &signed)
    }

    #[test]
    fn a_token_says_whose_it_is_until_it_ends() {
        let key = Secret::generate().id().clone();
        let text = signer().sign(&key, ORGANISATION, at(0), TTL);
        let token = Token { key, organisation: ORGANISATION, scopes: Scopes::of_a_token(), expires: at(30) };
        for now in [0, 29] {
            assert_eq!(signer().check(&text, at(now)), Some(token.clone()), "{now}");
        }
        assert_eq!(signer().check(&text, at(30)), None);
        // Made by a server whose clock is ahead.
        let ahead = |seconds| signer().sign(&token.key, ORGANISATION, at(seconds), TTL);
        assert!(signer().check(&ahead(5), at(0)).is_some());
        assert!(signer().check(&ahead(6), at(0)).is_none());
        assert_eq!(Signer::new([8; SIGNING_KEY_BYTES]).check(&text, at(0)), None);
        assert_ne!(text, signer().sign(&token.key, ORGANISATION, at(0), TTL));
    }

    #[test]
    fn a_life_is_bounded() {
        let text = signer().sign(Secret::generate().id(), ORGANISATION, at(0), Duration::MAX);
        assert_eq!(signer().check(&text, at(0)).unwrap().expires, at(3600));
        let claims = |exp| {
            format!(
                r#"{{"sub":"a","aud":"{ORGANISATION}","scope":"","iat":1000000,"exp":{exp},"jti":"{ORGANISATION}"}}"#
            )
        };
        let header = r#"{"alg":"HS256","typ":"JWT"}"#;
        assert!(signer().check(&signed(header, &claims(1_003_600)), at(0)).is_some());
        assert!(signer().check(&signed(header, &claims(1_003_601)), at(0)).is_none());
    }

    /// RFC 8725: the algorithm is the server's choice.
    #[test]
    fn another_header_is_refused_although_its_signature_is_right() {
        let text = signer().sign(Secret::generate().id(), ORGANISATION, at(0), TTL);
        let claims = text.split('.').nth(1).unwrap();
        let claims = String::from_utf8(BASE64URL_NOPAD.decode(claims.as_bytes()).unwrap()).unwrap();
        assert!(signer().check(&signed(r#"{"alg":"HS256","typ":"JWT"}"#, &claims), at(0)).is_some());
        for header in [
            r#"{"alg":"none","typ":"JWT"}"#,
            r#"{"alg":"None","typ":"JWT"}"#,
            r#"{"alg":"HS512","typ":"JWT"}"#,
            r#"{"alg":"RS256","typ":"JWT"}"#,
            r#"{"typ":"JWT","alg":"HS256"}"#,
            r#"{"alg":"HS256","typ":"JWT","kid":"x"}"#,
            "{}",
            "",
        ] {
            assert_eq!(signer().check(&signed(header, &claims), at(0)), None, "{header}");
        }
        let unsigned = text.rsplit_once('.').unwrap().0;
        for wrong in [
            format!("{unsigned}."),
            unsigned.to_owned(),
            format!("{text}."),
            format!("{text}="),
            format!(" {text}"),
        ] {
            assert_eq!(signer().check(&wrong, at(0)), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(place in 0usize..200, by in 1u8..128) {
            let text = signer().sign(Secret::generate().id(), ORGANISATION, at(0), TTL);
            let mut bytes = text.clone().into_bytes();
            let place = place % bytes.len();
            bytes[place] = (bytes[place] ^ by) & 127;
            let changed = String::from_utf8(bytes).unwrap();
            prop_assert!(changed == text || signer().check(&changed, at(0)).is_none());
            prop_assert!(signer().check(&text[..place], at(0)).is_none());
        }

        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            prop_assert_eq!(signer().check(&text, at(0)), None);
            prop_assert_eq!(signer().check(&format!("{}.{text}", jwt::HEADER), at(0)), None);
        }
    }
}
