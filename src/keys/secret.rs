//! The text of a key.
//!
//! ```text
//! org_ ‖ base32( id: 5 bytes ‖ secret: 20 bytes ‖ checksum: 5 bytes )      4 + 48 characters
//! ```
//! The first 8 characters after the prefix are the id, which may be shown and logged. The checksum is the
//! start of SHA-256(id ‖ secret): it exposes a mistyped key without a look-up, and lets a scanner for leaked
//! secrets tell a key from a random word. Base32 uses RFC 4648's alphabet in lower case, without padding;
//! upper case is refused, so that a key has one spelling.

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

/// The prefix of every key, as the contract requires.
pub const PREFIX: &str = "org_";

const ID_BYTES: usize = 5;
const SECRET_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 5;
const BODY_BYTES: usize = ID_BYTES + SECRET_BYTES + CHECKSUM_BYTES;
const ID_CHARACTERS: usize = ID_BYTES * 8 / 5;
const BODY_CHARACTERS: usize = BODY_BYTES * 8 / 5;

/// The public part of a key: 8 characters of `a-z2-7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// The id in `text`: an id by itself, or that of a whole key.
    pub fn parse(text: &str) -> Option<Self> {
        match parse(text) {
            Some(id) => Some(id),
            None if text.len() == ID_CHARACTERS && decode(text).is_some() => Some(Self(text.to_owned())),
            None => None,
        }
    }

    pub(super) fn from_stored(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole key. It has no `Display`, and its `Debug` shows only the id.
pub struct Secret {
    text: String,
    id: KeyId,
}

impl Secret {
    /// A new key, from the operating system's randomness.
    pub fn generate() -> Self {
        let mut body = [0u8; BODY_BYTES];
        let (random, check) = body.split_at_mut(ID_BYTES + SECRET_BYTES);
        rand::fill(random);
        check.copy_from_slice(&checksum(random));
        let body = BASE32_NOPAD.encode(&body).to_ascii_lowercase();
        let id = KeyId(body.chars().take(ID_CHARACTERS).collect());
        Self { text: format!("{PREFIX}{body}"), id }
    }

    /// The key itself, to show once to the person who created it.
    pub fn expose(&self) -> &str {
        &self.text
    }

    pub fn id(&self) -> &KeyId {
        &self.id
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({PREFIX}{}…)", self.id)
    }
}

/// The id in `text`, if it has the form of a key and its checksum is right.
pub(super) fn parse(text: &str) -> Option<KeyId> {
    let body = text.strip_prefix(PREFIX)?;
    if body.len() != BODY_CHARACTERS {
        return None;
    }
    let bytes = decode(body)?;
    let (random, check) = bytes.split_at_checked(ID_BYTES + SECRET_BYTES)?;
    let id = body.get(..ID_CHARACTERS)?;
    (check == checksum(random)).then(|| KeyId(id.to_owned()))
}

fn decode(text: &str) -> Option<Vec<u8>> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok()
}

fn checksum(random: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut check = [0; CHECKSUM_BYTES];
    for (to, from) in check.iter_mut().zip(Sha256::digest(random)) {
        *to = from;
    }
    check
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_generated_key_parses_to_its_id() {
        let secret = Secret::generate();
        assert_eq!(secret.expose().len(), 52);
        assert_eq!(parse(secret.expose()).as_ref(), Some(secret.id()));
        assert!(secret.expose().starts_with(&format!("{PREFIX}{}", secret.id())));
    }

    #[test]
    fn two_keys_differ() {
        assert_ne!(Secret::generate().expose(), Secret::generate().expose());
    }

    #[test]
    fn debug_hides_all_but_the_id() {
        let secret = Secret::generate();
        let shown = format!("{secret:?}");
        assert!(shown.contains(secret.id().as_str()));
        assert!(!shown.contains(&secret.expose()[12..]), "{shown}");
    }

    #[test]
    fn an_id_is_read_from_a_key_or_from_itself() {
        let secret = Secret::generate();
        assert_eq!(KeyId::parse(secret.expose()).as_ref(), Some(secret.id()));
        assert_eq!(KeyId::parse(secret.id().as_str()).as_ref(), Some(secret.id()));
        for wrong in ["", "org_", "ABCDEFGH", "abcdefg", "abcdefghi", "abcdefg1", "ábcdefg"] {
            assert_eq!(KeyId::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn another_spelling_is_not_a_key() {
        let key = Secret::generate().expose().to_owned();
        let body = &key[PREFIX.len()..];
        for wrong in [
            key.to_ascii_uppercase(),
            format!("org_{}", body.to_ascii_uppercase()),
            format!(" {key}"),
            format!("{key}="),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        /// Any one character changed is caught by the checksum, before a look-up.
        #[test]
        fn a_typing_error_is_refused(at in 4usize..52, by in 1u8..32) {
            const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
            let mut key = Secret::generate().expose().as_bytes().to_vec();
            let place = ALPHABET.iter().position(|letter| *letter == key[at]).unwrap();
            key[at] = ALPHABET[(place + usize::from(by)) % 32];
            prop_assert_eq!(parse(std::str::from_utf8(&key).unwrap()), None);
        }

        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            prop_assert_eq!(parse(&text), None);
            prop_assert_eq!(parse(&format!("org_{text}")), None);
        }
    }
}
