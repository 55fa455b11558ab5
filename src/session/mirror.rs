//! What else is told of every write: a cluster keeps a copy of each session for other nodes.

use std::sync::{Arc, OnceLock};

/// The parts of a session, as they are written. Their texts are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Setup,
    State,
    /// What was read for it.
    Passages,
    /// Its remains. The other parts are gone then.
    Ended,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::State => "state",
            Self::Passages => "passages",
            Self::Ended => "ended",
        }
    }
}

/// A write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<'a> {
    /// A session of this tenant is here, whose parts follow.
    Here { tenant: u64 },
    /// A part was written; `None`: it is gone.
    Part(Part, Option<&'a str>),
    /// Nothing is left of the session.
    Forgotten,
}

/// Called with a session's id in the order of the writes, so it must not wait.
pub type Mirror = Arc<dyn Fn(&str, Told<'_>) + Send + Sync>;

/// The mirror, once there is one.
#[derive(Clone, Default)]
pub struct Mirrored(Arc<OnceLock<Mirror>>);

impl Mirrored {
    /// Only the first one counts.
    pub fn set(&self, mirror: Mirror) {
        let _ = self.0.set(mirror);
    }

    pub fn tell(&self, id: &str, told: Told<'_>) {
        if let Some(mirror) = self.0.get() {
            mirror(id, told);
        }
    }
}

/// Parts of a session that another node had.
#[derive(Debug, Clone, Default)]
pub struct Copied {
    pub setup: Option<String>,
    pub state: Option<String>,
    pub passages: Option<String>,
    pub ended: Option<String>,
}
