//! Which session a link that was sent to a phone belongs to.
//!
//! Links are made before the session is, so they cannot have its id; and who reads a link over somebody's
//! shoulder need not have it either. They have the code of a visit instead.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// The oldest ones are forgotten first.
const VISITS_MAX: usize = 1000;

#[derive(Default)]
pub struct Visits(Mutex<VecDeque<(String, String)>>);

/// A code that nobody guesses.
pub fn code() -> String {
    Uuid::new_v4().simple().to_string()
}

impl Visits {
    pub fn insert(&self, code: String, session_id: String) {
        let mut visits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if visits.len() >= VISITS_MAX {
            visits.pop_front();
        }
        visits.push_back((code, session_id));
    }

    pub fn session(&self, code: &str) -> Option<String> {
        let visits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        visits.iter().find(|(known, _)| known == code).map(|(_, session_id)| session_id.clone())
    }
}
