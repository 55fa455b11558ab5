//! Encryption of voices at rest: AES-256-GCM (RFC 5116) under the installation's key.
//!
//! ```text
//! format: 1 byte ‖ nonce: 12 bytes, random ‖ ciphertext ‖ tag: 16 bytes
//! ```
//! The organisation and the id are authenticated with each voice, so a file that is moved to another organisation's
//! folder, or renamed, does not open.

use std::io;
use std::path::Path;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use uuid::Uuid;

use super::Error;
use crate::state;

const KEY_BYTES: usize = 32;
const FORMAT: u8 = 1;

/// The key of an installation. Without it, voices on disk are useless.
pub struct Sealer(LessSafeKey);

impl Sealer {
    /// The key in the file `path`. If the file is missing, it is created, unless voices are sealed already: then they were
    /// sealed under a key that is elsewhere, perhaps on a disk that is not mounted.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Key`].
    pub fn open(path: &Path, are_sealed: bool) -> Result<Self, Error> {
        let key_error = || Error::Key { path: path.to_owned(), expected: KEY_BYTES };
        let random = || {
            let mut key = [0u8; KEY_BYTES];
            rand::fill(&mut key[..]);
            key.to_vec()
        };
        let read = if are_sealed { state::read_private(path) } else { state::read_or_make(path, random) };
        let bytes = read.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if are_sealed => key_error(),
            _ => Error::File { path: path.to_owned(), source },
        })?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| key_error())?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// # Errors
    /// [`Error::Sealing`] only for texts of gigabytes.
    pub fn seal(&self, tenant: u64, id: Uuid, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0u8; NONCE_LEN];
        rand::fill(&mut nonce[..]);
        let mut sealed = plain.to_vec();
        let place = Aad::from(place(tenant, id));
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), place, &mut sealed)
            .map_err(|_| Error::Sealing)?;
        Ok([&[FORMAT], &nonce[..], &sealed].concat())
    }

    /// `None` for bytes that this key, or another organisation or id, did not seal.
    pub fn open_sealed(&self, tenant: u64, id: Uuid, bytes: &[u8]) -> Option<Vec<u8>> {
        let (&FORMAT, rest) = bytes.split_first()? else { return None };
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.0.open_in_place(nonce, Aad::from(place(tenant, id)), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

fn place(tenant: u64, id: Uuid) -> [u8; 24] {
    let mut place = [0; 24];
    place[..8].copy_from_slice(&tenant.to_le_bytes());
    place[8..].copy_from_slice(id.as_bytes());
    place
}
