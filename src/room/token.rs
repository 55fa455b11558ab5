//! Tokens for joining a room: short-lived JSON Web Tokens (RFC 7519), signed with HMAC-SHA256.
//!
//! The claims follow LiveKit (`video.room`, `sub`, `kind`), so that clients that inspect their token find familiar
//! names.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

use super::seat::Kind;

/// The only accepted header: a token cannot choose its algorithm.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const TOKEN_BYTES_MAX: usize = 2048;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    iss: String,
    /// Identity of the participant.
    pub sub: String,
    /// Seconds of Unix time.
    pub exp: u64,
    pub kind: Kind,
    pub session: String,
    video: Video,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Video {
    room: String,
    room_join: bool,
}

impl Claims {
    pub fn new(session: &str, room: &str, kind: Kind, exp: u64) -> Self {
        Self {
            iss: "verbatim".into(),
            sub: format!("{}-{:08x}", kind.name(), rand::random::<u32>()),
            exp,
            kind,
            session: session.to_owned(),
            video: Video { room: room.to_owned(), room_join: true },
        }
    }

    pub fn room(&self) -> &str {
        &self.video.room
    }
}

/// Signs `claims`.
pub fn jwt(secret: &[u8], claims: &impl Serialize) -> String {
    let claims = serde_json::to_vec(claims).unwrap_or_default();
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(mac(secret, &signed).finalize().into_bytes());
    format!("{signed}.{signature}")
}

fn mac(secret: &[u8], signed: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length; this is a bug");
    mac.update(signed.as_bytes());
    mac
}

/// Signs tokens and checks them.
#[derive(Clone)]
pub struct Signer {
    secret: [u8; 32],
}

impl Signer {
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    pub fn sign(&self, claims: &Claims) -> String {
        jwt(&self.secret, claims)
    }

    /// The claims of a valid token that has not expired at `now`, in seconds of Unix time.
    pub fn check(&self, token: &str, now: u64) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        mac(&self.secret, signed).verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let (header, claims) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.get("alg").and_then(Value::as_str) != Some("HS256") {
            return None;
        }
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        (now < claims.exp && claims.video.room_join).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_room_and_its_time() {
        let signer = Signer::new([7; 32]);
        let claims = Claims::new("sess_1", "sts-1", Kind::Web, 100);
        let token = signer.sign(&claims);
        assert_eq!(signer.check(&token, 99), Some(claims));
        assert_eq!(signer.check(&token, 100), None);
        assert_eq!(Signer::new([8; 32]).check(&token, 99), None);
    }

    #[test]
    fn nothing_in_a_token_can_be_changed() {
        let signer = Signer::new([7; 32]);
        let token = signer.sign(&Claims::new("sess_1", "sts-1", Kind::Web, 100));
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character of a base64 text carries bits that mean nothing.
            if changed != token && at + 1 < token.len() {
                assert_eq!(signer.check(&changed, 1), None, "{at}");
            }
        }
        let unsigned =
            format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), token.split('.').nth(1).unwrap());
        for other in ["", ".", "..", "a.b.c", unsigned.as_str()] {
            assert_eq!(signer.check(other, 1), None);
        }
    }
}
