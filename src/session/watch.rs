//! The observer of all sessions: it hears of each start and each change, in order.

use std::sync::{Arc, OnceLock};

use super::event::Event;
use super::setup::Setup;
use super::state::Session;

/// A moment in a session's life.
pub enum Moment<'a> {
    Started,
    Changed(&'a Event),
}

/// Called under the lock of the session, so it must not wait, nor change a session. At the end of a session it sees the
/// whole talk, which is reduced afterwards.
pub type Observer = Arc<dyn Fn(&Session, &Setup, Moment<'_>) + Send + Sync>;

/// The observer, once there is one.
#[derive(Clone, Default)]
pub struct Watch(Arc<OnceLock<Observer>>);

impl Watch {
    /// Only the first one counts.
    pub fn set(&self, observer: Observer) {
        let _ = self.0.set(observer);
    }

    pub fn notice(&self, session: &Session, setup: &Setup, moment: Moment<'_>) {
        if let Some(observer) = self.0.get() {
            observer(session, setup, moment);
        }
    }
}
