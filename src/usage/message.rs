//! Messages to the writer.

use tokio::sync::oneshot;
use uuid::Uuid;

use super::entry::{Entry, Work};

pub(super) enum Message {
    Add(Box<Entry>),
    /// More about a request that is logged.
    Amend {
        id: Uuid,
        code: Option<u16>,
        work: Box<Work>,
    },
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}
