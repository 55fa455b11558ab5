//! Reads a session's knowledge and notes the progress in the session.

use super::error::Error;
use super::handle::Handle;
use super::sessions::Sessions;
use crate::knowledge::{Knowledge, Library};

/// Reads everything that `handle` was started with. Local sources are known at once; documents by address and the
/// website follow, and the snapshot shows the progress. Dropping the future stops the reading.
pub async fn read_sources(library: &Library, sessions: &Sessions, handle: &Handle) {
    let setup = handle.setup();
    let reserve = |bytes| sessions.may_hold_more(handle, bytes);
    let reading = library.read_local(setup.sources(handle.tenant), &reserve).await;
    handle.learn(Knowledge::new(reading.passages().to_vec(), setup.rationed()), false);
    sessions.show();
    let found = reading.finish().await;
    let passages = found.passages.len();
    handle.learn(Knowledge::new(found.passages, setup.rationed()), true);
    sessions.show();
    let noted = handle.change(|session, _, events| {
        session.check_open()?;
        session.note_reading(&setup, passages, found.website.as_ref(), events);
        found.warnings.into_iter().for_each(|warning| session.warn(warning));
        Ok(())
    });
    match noted.await {
        // The session may have ended meanwhile.
        Ok(()) | Err(Error::Ended) => {}
        Err(error) => tracing::error!(session = handle.id, %error, "what was read could not be noted"),
    }
}
