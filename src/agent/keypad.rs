//! Keys of a telephone, or of the page's keypad: a row of them is a turn of its own.

use std::time::Duration;

use tokio::time::Instant;

use super::conversation::Agent;

/// Wait after the last key of a row.
const KEYS_WAIT: Duration = Duration::from_millis(2500);
const KEYS_MAX: usize = 32;
/// Digits of a code.
const CODE_DIGITS: usize = 4;

impl Agent {
    pub(super) fn key(&mut self, digit: char, now: Instant) {
        if digit.is_ascii_digit() && self.keypad.keys.len() < KEYS_MAX {
            self.keypad.keys.push(digit);
        }
        let is_code = self.keypad.keys.len() == CODE_DIGITS
            && self.handle.read(|session| session.pending_verification.is_some());
        self.keypad.due = Some(if digit == '#' || is_code { now } else { now + KEYS_WAIT });
    }

    /// Takes a row of keys that is complete.
    pub(super) async fn take_keys(&mut self, now: Instant) {
        if self.keypad.due.is_none_or(|due| now < due) {
            return;
        }
        self.keypad.due = None;
        let keys = std::mem::take(&mut self.keypad.keys);
        if !keys.is_empty() {
            self.interrupt().await;
            self.lose_floor().await;
            self.keyed(&keys, now).await;
        }
    }
}
