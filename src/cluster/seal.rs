//! What nodes tell each other through a broker that must not know it: AES-256-GCM (RFC 5116).
//!
//! ```text
//! format: 1 byte ‖ nonce: 12 bytes, random ‖ ciphertext ‖ tag: 16 bytes
//! ```
//! The key comes from `keys.pepper` and `keys.signing`, which all nodes have and the broker does not. The name of an entry is
//! authenticated with it, so nobody who can write to the broker can make an entry, change one, or give one another's name.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::Error;

pub const SECRET_BYTES: usize = 32;
const FORMAT: u8 = 1;

/// Seals entries and opens those of other nodes.
pub struct Seal(LessSafeKey);

impl Seal {
    /// # Errors
    /// [`Error::Seal`] if the machine cannot encrypt.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Result<Self, Error> {
        let key = UnboundKey::new(&AES_256_GCM, secret).map_err(|_| Error::Seal)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// # Errors
    /// [`Error::Seal`] only for texts of gigabytes.
    pub fn seal(&self, name: &str, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0u8; NONCE_LEN];
        rand::fill(&mut nonce[..]);
        let mut sealed = plain.to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut sealed)
            .map_err(|_| Error::Seal)?;
        Ok([&[FORMAT], &nonce[..], &sealed].concat())
    }

    /// None for bytes that no node with the same secrets has sealed under this name.
    pub fn open(&self, name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let (&FORMAT, rest) = bytes.split_first()? else { return None };
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let plain =
            self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(name), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_and_name_open() {
        let (seal, other) = (Seal::new(&[7; 32]).unwrap(), Seal::new(&[8; 32]).unwrap());
        let sealed = seal.seal("key.a", b"a row").unwrap();
        assert_eq!(seal.open("key.a", &sealed).as_deref(), Some(&b"a row"[..]));
        assert_eq!(seal.open("key.b", &sealed), None);
        assert_eq!(other.open("key.a", &sealed), None);
        assert!(!sealed.windows(5).any(|part| part == b"a row"));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal.open("key.a", &changed), None, "{at}");
            assert_eq!(seal.open("key.a", &sealed[..at]), None, "{at}");
        }
    }
}
