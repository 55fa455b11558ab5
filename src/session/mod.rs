//! Sessions of the voice agent: their setup, state, events and storage.
//!
//! ```text
//! Start ─▶ Sessions ─▶ Handle ─ change ─▶ Session (pure transitions) ─▶ Store, events
//!                         └─ ended ─▶ Remains
//! ```
//! [`Session`] is plain state whose transitions get the time as an argument. A [`Handle`] adds everything a
//! session has while the process runs: its knowledge, its watchers and who is present. Rooms and agents report
//! to the handle; a session knows neither. When a session ends, only its [`Remains`] stay.
//!
//! A node of a cluster tells its mirror of all writes, adopts what is [`Copied`] of a session that another node had, and gives
//! up those that another has adopted.

mod concealed;
mod error;
mod event;
mod handle;
mod held;
mod kept;
mod message;
mod mirror;
mod number;
mod presence;
mod reading;
mod remains;
mod review;
mod sessions;
mod setup;
mod state;
mod store;
mod summary;
mod talk;
mod watch;

pub use concealed::{Caution, MASK, concealed, has_digits, is_all_digits};
pub use error::{Error, StoreError};
pub use event::{EndReason, Event, Line, Notice, Role};
pub use handle::Handle;
pub use message::{Sms, SmsStatus, sms_text};
pub use mirror::{Copied, Part, Told};
pub use number::phone_number;
pub use presence::{AgentState, Attendee, Media, PARTICIPANTS_MAX, RoomStatus};
pub use reading::read_sources;
pub use remains::Remains;
pub use sessions::{Asked, Limits, Sessions};
pub use setup::{Channel, Link, Setup, Start, caller_number};
pub use state::{Call, Checked, Completion, LINES_SHOWN, Session, Source, Status, Transfer, Website};
pub use summary::Summary;
pub use watch::{Moment, Observer};
