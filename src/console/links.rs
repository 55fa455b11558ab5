//! One-time links: the server prints one on the terminal of its operator, who signs in by it without a key.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use super::sessions::{Fingerprint, fingerprint, secret};
use crate::keys::{Error, Key, KeyId, NewKey, Scopes, Store};

/// A link is valid for so long.
pub const VALID: Duration = Duration::from_secs(600);
/// The label of the admin key that sessions by a link belong to. Its secret is discarded; revoke the
/// key to end the sessions.
pub const LABEL: &str = "console link";

/// The link that has not been used yet, if there is one.
#[derive(Default)]
pub struct Links(Mutex<Option<Link>>);

struct Link {
    secret: Fingerprint,
    key: Key,
    made: Instant,
}

impl Links {
    /// Returns the secret of a new link for `key`, in the place of the one before.
    pub fn make(&self, key: Key, now: Instant) -> String {
        let (text, secret) = secret();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Link { secret, key, made: now });
        text
    }

    /// The key of the link with this secret, which is used up.
    pub fn take(&self, text: &str, now: Instant) -> Option<(KeyId, String)> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given = fingerprint(text);
        let link = held.take_if(|link| bool::from(link.secret.ct_eq(&given)))?;
        (now.saturating_duration_since(link.made) < VALID).then_some((link.key.id, link.key.label))
    }
}

/// The admin key of links, which is made if there is none.
///
/// # Errors
/// [`Error::Database`].
pub fn key_of_links(store: &Store) -> Result<Key, Error> {
    let now = std::time::SystemTime::now();
    let is_wanted = |key: &Key| key.is_admin && key.label == LABEL && key.is_active(now);
    match store.list()?.into_iter().find(is_wanted) {
        Some(key) => Ok(key),
        None => {
            let scopes = Scopes::of_an_owner();
            let new = NewKey { is_admin: true, scopes, ..NewKey::of_a_client(LABEL) };
            store.insert(new).map(|(key, _)| key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_used_once_and_soon() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let key = key_of_links(&store).unwrap();
        assert!(key.is_admin);
        assert_eq!(key_of_links(&store).unwrap().id, key.id, "made once");
        store.revoke(&key.id).unwrap();
        assert_ne!(key_of_links(&store).unwrap().id, key.id);

        let (links, now) = (Links::default(), Instant::now());
        assert_eq!(links.take("", now), None);
        let text = links.make(key.clone(), now);
        assert_eq!(links.take("wrong", now), None);
        assert_eq!(links.take(&text, now), Some((key.id.clone(), LABEL.to_owned())));
        assert_eq!(links.take(&text, now), None);
        let text = links.make(key.clone(), now);
        assert_eq!(links.take(&text, now + VALID), None);
        let (first, second) = (links.make(key.clone(), now), links.make(key, now));
        assert!(links.take(&first, now).is_none() && links.take(&second, now).is_some());
    }
}
