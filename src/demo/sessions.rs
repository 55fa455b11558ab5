//! Sessions that the voice service has confirmed by its answers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Beyond this, the oldest are forgotten and confirmed again.
const SESSIONS_MAX: usize = 10_000;
const ID_BYTES_MAX: usize = 100;

#[derive(Default)]
pub struct Sessions(Mutex<VecDeque<String>>);

impl Sessions {
    pub fn insert(&self, id: &str) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if id.len() > ID_BYTES_MAX || sessions.iter().any(|known| known == id) {
            return;
        }
        if sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back(id.to_owned());
    }

    pub fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == id)
    }
}
