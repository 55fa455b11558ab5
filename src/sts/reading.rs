//! Reads a session's knowledge and notes the progress in the session.

use super::Error;
use super::sessions::{Live, Sessions};
use crate::knowledge::{Knowledge, Library};

/// Reads everything that `live` was started with. Local sources are known at once; documents by address and the
/// website follow, and the snapshot shows the progress. Dropping the future stops the reading.
pub async fn read(library: &Library, sessions: &Sessions, live: &Live) {
    let setup = live.setup();
    let reserve = |bytes| sessions.may_hold_more(live, bytes);
    let reading = library.read_local(setup.sources(live.tenant), &reserve).await;
    live.learn(Knowledge::new(reading.passages().to_vec(), setup.rationed()), false);
    sessions.show();
    let found = reading.finish().await;
    let passages = found.passages.len();
    live.learn(Knowledge::new(found.passages, setup.rationed()), true);
    sessions.show();
    let noted = live.change(|session, _, events| {
        session.check_open()?;
        session.note_reading(&setup, passages, found.website.as_ref(), events);
        found.warnings.into_iter().for_each(|warning| session.warn(warning));
        Ok(())
    });
    match noted.await {
        // The session may have ended meanwhile.
        Ok(()) | Err(Error::Ended) => {}
        Err(error) => tracing::error!(session = live.id, %error, "what was read could not be noted"),
    }
}
