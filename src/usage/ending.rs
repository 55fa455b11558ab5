//! The end of an answer whose body comes piece by piece: its status is sent long before.

use super::entry::CLIENT_LEFT;
use super::ticket::{Ticket, current};

/// Lies with the work on a body. If it is dropped before that has ended, the client has left.
pub struct Ending(Option<Ticket>);

impl Ending {
    /// Of the request that this task serves, if it is logged.
    pub fn of_current() -> Self {
        Self(current())
    }

    /// All of the body was sent, or is ready to be.
    pub fn complete(&mut self) {
        self.0 = None;
    }

    /// The body broke off, as a request that ends with this status.
    pub fn broke_off(&mut self, code: u16) {
        if let Some(ticket) = self.0.take() {
            ticket.ended(code);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.broke_off(CLIENT_LEFT);
    }
}
