//! Signatures that prove to a receiver where a result comes from, as Standard Webhooks defines them
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>).
//!
//! `webhook-signature` is `v1,` and the Base64 of HMAC-SHA256(secret, `id.timestamp.body`); several secrets
//! give several, separated by spaces.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::state;

const PREFIX: &str = "whsec_";
/// Shown in place of a secret.
pub const HIDDEN: &str = "whsec_…";
/// Required by the specification.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const GENERATED_BYTES: usize = 32;
const FILE: &str = "jobs.secret";

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("a signing secret is whsec_ and 24 to 64 bytes in Base64")]
    Malformed,
    #[error("{0}")]
    Unread(String),
    #[error("cannot use `{path}` for the secret that results are signed with")]
    File { path: PathBuf, source: std::io::Error },
    #[error("`{path}` holds no signing secret; restore it, or receivers will recognise no result")]
    Damaged { path: PathBuf },
}

/// One secret, or several that sign side by side. Neither `Debug` nor `Serialize` reveals it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SigningSecret(Vec<Vec<u8>>);

impl SigningSecret {
    /// The secret of `state_dir`, generated if there is none.
    ///
    /// # Errors
    /// [`SecretError::File`], [`SecretError::Damaged`].
    pub fn of(state_dir: &Path) -> Result<Self, SecretError> {
        let path = state_dir.join(FILE);
        let generate = || {
            let mut secret = [0u8; GENERATED_BYTES];
            rand::fill(&mut secret[..]);
            Self(vec![secret.to_vec()]).expose().into_bytes()
        };
        let bytes = state::make_directory(state_dir)
            .and_then(|()| state::read_or_make(&path, generate))
            .map_err(|source| SecretError::File { path: path.clone(), source })?;
        let text = String::from_utf8(bytes).ok();
        text.and_then(|text| text.parse().ok()).ok_or(SecretError::Damaged { path })
    }

    /// The secret as receivers need it.
    pub fn expose(&self) -> String {
        let secrets: Vec<String> =
            self.0.iter().map(|secret| format!("{PREFIX}{}", STANDARD.encode(secret))).collect();
        secrets.join(" ")
    }

    /// The value of `webhook-signature`. `timestamp` is in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let mut signature = String::new();
        for secret in &self.0 {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret)
                .expect("HMAC takes a key of any length; this is a bug");
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            let space = if signature.is_empty() { "" } else { " " };
            // Writing to a string does not fail.
            let _ = write!(signature, "{space}v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        }
        signature
    }
}

impl FromStr for SigningSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let read = |secret: &str| {
            let bytes = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
            BYTES.contains(&bytes.len()).then_some(bytes)
        };
        let secrets: Option<Vec<_>> = text.split_whitespace().map(read).collect();
        secrets.filter(|secrets| !secrets.is_empty()).map(Self).ok_or(SecretError::Malformed)
    }
}

impl TryFrom<String> for SigningSecret {
    type Error = SecretError;

    /// `file:PATH` names a file that holds them.
    fn try_from(text: String) -> Result<Self, SecretError> {
        state::secret_text(text).map_err(SecretError::Unread)?.parse()
    }
}

impl From<SigningSecret> for String {
    fn from(_: SigningSecret) -> Self {
        HIDDEN.to_owned()
    }
}

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningSecret({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example from the tests of the official libraries.
    #[test]
    fn the_official_example_is_signed_as_officially() {
        let secret: SigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn several_secrets_sign_side_by_side() {
        let (old, new) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX");
        let sign = |secret: &str| secret.parse::<SigningSecret>().unwrap().sign("a", 1, b"b");
        assert_eq!(sign(&format!("{old} {new}")), format!("{} {}", sign(old), sign(new)));
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let short = format!("whsec_{}", STANDARD.encode([0; 23]));
        let long = format!("whsec_{}", STANDARD.encode([0; 65]));
        for text in ["", " ", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_###", &short, &long] {
            assert!(text.parse::<SigningSecret>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_is_made_once_and_shown_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let secret = SigningSecret::of(dir.path()).unwrap();
        assert_eq!(SigningSecret::of(dir.path()).unwrap(), secret);
        let shown = format!("{secret:?}{}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains(&secret.expose()[6..20]), "{shown}");
        std::fs::write(dir.path().join(FILE), "whsec_short").unwrap();
        assert!(matches!(SigningSecret::of(dir.path()), Err(SecretError::Damaged { .. })));
    }
}
