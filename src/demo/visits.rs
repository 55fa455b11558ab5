//! Visits: codes in links sent to a phone, and the sessions that they belong to.
//!
//! A link is made before its session, so it can't contain the session's id; and an onlooker who reads a link should not get
//! the id either. A link has the code of a visit instead.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// Beyond this, the oldest are forgotten.
const VISITS_MAX: usize = 1000;

#[derive(Default)]
pub struct Visits(Mutex<VecDeque<(String, String)>>);

/// A code too long to guess.
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
