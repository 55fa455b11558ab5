//! Tokens for joining a room: short-lived JSON Web Tokens ([`crate::jwt`]).
//!
//! The claims follow LiveKit (`video.room`, `sub`, `kind`), so that clients that inspect their token find familiar
//! names.

use serde::{Deserialize, Serialize};

use super::seat::Kind;
use crate::jwt;

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
        jwt::sign(&self.secret, claims)
    }

    /// The claims of a valid token that has not expired at `now`, in seconds of Unix time.
    pub fn check(&self, token: &str, now: u64) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let claims: Claims = jwt::check(&self.secret, token)?;
        (now < claims.exp && claims.video.room_join).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

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
