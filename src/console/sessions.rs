//! Who is signed in: sessions in memory, which end with the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};

use crate::keys::KeyId;

/// Sessions at once; one more ends the one that was used least recently.
pub const SESSIONS_MAX: usize = 256;
const SECRET_BYTES: usize = 32;

/// SHA-256 of a session's random secret: a dump of the process's memory opens no session.
pub type Fingerprint = [u8; 32];

/// A random text of 256 bits, and its fingerprint.
pub fn secret() -> (String, Fingerprint) {
    let mut bytes = [0u8; SECRET_BYTES];
    rand::fill(&mut bytes[..]);
    let text = BASE64URL_NOPAD.encode(&bytes);
    let fingerprint = fingerprint(&text);
    (text, fingerprint)
}

pub fn fingerprint(text: &str) -> Fingerprint {
    Sha256::digest(text).into()
}

/// The facts about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub key: KeyId,
    /// The label of the key.
    pub label: String,
    begun: Instant,
    used: Instant,
}

/// All sessions.
pub struct Sessions {
    idle: Duration,
    max: Duration,
    held: Mutex<HashMap<Fingerprint, Session>>,
}

impl Sessions {
    /// Sessions that end after `idle` without use, and after `max` at the latest.
    pub fn new(idle: Duration, max: Duration) -> Self {
        Self { idle, max, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Fingerprint, Session>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of a new session, for its cookie.
    pub fn begin(&self, key: KeyId, label: String, now: Instant) -> String {
        let (id, fingerprint) = secret();
        let mut held = self.held();
        held.retain(|_, session| self.is_open(session, now));
        if held.len() >= SESSIONS_MAX {
            let oldest = held.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            oldest.and_then(|oldest| held.remove(&oldest));
        }
        held.insert(fingerprint, Session { key, label, begun: now, used: now });
        id
    }

    /// The session of this id, which counts as used.
    pub fn find(&self, id: &str, now: Instant) -> Option<Session> {
        let fingerprint = fingerprint(id);
        let mut held = self.held();
        let session = held.get_mut(&fingerprint)?;
        if !self.is_open(session, now) {
            held.remove(&fingerprint);
            return None;
        }
        session.used = now;
        Some(session.clone())
    }

    pub fn end(&self, id: &str) {
        self.held().remove(&fingerprint(id));
    }

    /// How long the session lasts at most.
    pub fn left(&self, session: &Session, now: Instant) -> Duration {
        self.max.saturating_sub(now.saturating_duration_since(session.begun))
    }

    fn is_open(&self, session: &Session, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        since(session.used) < self.idle && since(session.begun) < self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const MAX: Duration = Duration::from_secs(150);

    fn begin(sessions: &Sessions, now: Instant) -> String {
        sessions.begin(KeyId::parse("aaaaaaaa").unwrap(), "one".into(), now)
    }

    #[test]
    fn a_session_ends_unused_or_old() {
        let (sessions, start) = (Sessions::new(IDLE, MAX), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let id = begin(&sessions, start);
        assert_eq!(id.len(), 43);
        assert!(sessions.find("", start).is_none() && sessions.find(&id.to_lowercase(), start).is_none());
        for seconds in [59, 118, 149] {
            assert!(sessions.find(&id, after(seconds)).is_some(), "{seconds}");
        }
        assert!(sessions.find(&id, after(150)).is_none());
        let id = begin(&sessions, start);
        assert!(sessions.find(&id, after(60)).is_none());
        assert!(sessions.find(&id, after(1)).is_none(), "ended for good");
        let id = begin(&sessions, start);
        sessions.end(&id);
        assert!(sessions.find(&id, start).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let (sessions, start) = (Sessions::new(IDLE, MAX), Instant::now());
        let first = begin(&sessions, start);
        let second = begin(&sessions, start + Duration::from_secs(1));
        for _ in 2..=SESSIONS_MAX {
            begin(&sessions, start + Duration::from_secs(2));
        }
        assert_eq!(sessions.held().len(), SESSIONS_MAX);
        assert!(sessions.find(&first, start + Duration::from_secs(2)).is_none());
        assert!(sessions.find(&second, start + Duration::from_secs(2)).is_some());
    }
}
