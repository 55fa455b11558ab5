//! The parts of an agent's state.

use std::collections::{HashMap, HashSet, VecDeque};

use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::overheard::{Overheard, Overhearing};
use super::playback::{Clip, Playback};
use super::reply::{Job, Reply};
use crate::patience::Patience;
use crate::turn::{Ear, Reference};

/// Results of work that runs beside the agent.
pub(super) enum Inward {
    Heard {
        seat: u64,
        text: Result<String, String>,
        ended: Instant,
    },
    /// The words of a turn that goes on.
    Overheard(Overheard),
    /// The first words of a participant who speaks over the agent.
    Interjected {
        seat: u64,
        text: Result<String, String>,
    },
    /// The words before a pause, recognised before the turn has surely ended.
    Drafted {
        seat: u64,
        pause: u64,
        text: Result<String, String>,
    },
    /// The probability that the turn is complete, after so many seconds of silence; none if no model can tell.
    Judged {
        seat: u64,
        pause: u64,
        silence: f64,
        probability: Option<f32>,
    },
    /// By the clock, the silence of a pause has lasted so many seconds.
    Waited {
        seat: u64,
        pause: u64,
        silence: f64,
    },
    /// The verifier could not check the answer.
    Unchecked,
    /// The answer contained no proof. Asking again costs no attempt.
    Unproven {
        category: String,
    },
}

/// The participants' speech.
#[derive(Default)]
pub(super) struct Hearing {
    pub(super) ears: HashMap<u64, Ear>,
    /// Seats in the middle of a turn.
    pub(super) speaking: HashSet<u64>,
    /// Seats whose last turn began while the agent spoke.
    pub(super) overlapping: HashSet<u64>,
    /// Utterances of turns that are over, and are being recognised.
    pub(super) unheard: usize,
    pub(super) overhearing: Overhearing,
    pub(super) drafts: Vec<Draft>,
    /// Seats whose first words over the agent are being recognised, with the work on it.
    pub(super) interjections: HashMap<u64, DropGuard>,
}

/// An utterance that is recognised at a pause, before its turn has surely ended.
pub(super) struct Draft {
    pub(super) seat: u64,
    pub(super) pause: u64,
    /// None while it is being recognised.
    pub(super) text: Option<Result<String, String>>,
    /// When the turn ended by this pause: the words are awaited.
    pub(super) ended: Option<Instant>,
    pub(super) _work: DropGuard,
}

/// The agent's speech.
#[derive(Default)]
pub(super) struct Talk {
    pub(super) jobs: VecDeque<Job>,
    pub(super) reply: Option<Reply>,
    pub(super) playback: Playback,
    /// The rest of the reply, while a participant speaks over it.
    pub(super) paused: Option<Paused>,
    /// An answer that was begun before the turn had surely ended.
    pub(super) prepared: Option<Prepared>,
    /// The sound of it, to be recognised when a speakerphone sends it back.
    pub(super) reference: Option<Reference>,
    /// The last lines that it began to say.
    pub(super) lines: VecDeque<String>,
}

/// An answer whose parts have no effect yet.
pub(super) struct Prepared {
    pub(super) seat: u64,
    pub(super) question: String,
    pub(super) reply: Reply,
}

pub(super) struct Paused {
    pub(super) heard: String,
    pub(super) rest: Vec<Clip>,
}

/// Questions to come back to.
#[derive(Default)]
pub(super) struct Questions {
    /// To be answered as soon as its category is verified.
    pub(super) gated: Option<String>,
    /// The caller continued it before it was answered.
    pub(super) unanswered: Option<String>,
}

/// Digits keyed on a telephone.
#[derive(Default)]
pub(super) struct Keypad {
    pub(super) keys: String,
    /// When the row of keys counts as complete.
    pub(super) due: Option<Instant>,
}

/// The page that a participant has open.
#[derive(Default)]
pub(super) struct Page {
    pub(super) place: Option<String>,
    /// When to speak of it.
    pub(super) due: Option<Instant>,
}

/// Silence and empty rooms.
pub(super) struct Absence {
    /// When a participant last said something, or the agent last stopped.
    pub(super) quiet_since: Instant,
    pub(super) nudges: u32,
    /// How long the agent waits for a participant to come back to an empty room.
    pub(super) alone: Option<Patience>,
    /// Whether the last participant to leave was a telephone.
    pub(super) hung_up: bool,
}
