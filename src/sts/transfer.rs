//! Cold transfers: a telephone caller is connected with another number, once the agent has said so and left.
//!
//! The provider asks what comes after the stream of a call (`action` of `<Connect>`), and gets a `<Dial>`; of a SIP
//! caller in a LiveKit room the media server is asked to refer the call.

use serde::Serialize;

use super::failure::Error;
use super::host::Host;
use crate::fields;
use crate::room::Kind;
use crate::session::{Handle, Start};

/// The answer to `transfer`.
#[derive(Debug, Serialize)]
pub struct HandedOver {
    pub ok: bool,
    pub session_id: String,
    pub transfer_to: String,
}

/// Asks the agent to hand the caller over to `to`, or to the number that the session's start named.
///
/// # Errors
/// [`Error::TransferNotAllowed`], [`Error::NoTelephone`]; the session has ended.
pub async fn request(host: &Host, handle: &Handle, to: Option<String>) -> Result<HandedOver, Error> {
    let to = to.or_else(|| handle.setup().talk.transfer_to.clone()).ok_or(fields::Error::Missing("to"))?;
    if !is_allowed(host, &to) {
        return Err(Error::TransferNotAllowed);
    }
    let phone = handle.participants().into_iter().find(|person| person.kind == Kind::Phone.name());
    let phone = phone.ok_or(Error::NoTelephone)?;
    let transfer_to = to.clone();
    handle
        .change(move |session, now, events| {
            session.check_open()?;
            session.hand_over(&to, &phone.identity, now, events);
            Ok(())
        })
        .await?;
    Ok(HandedOver { ok: true, session_id: handle.id.clone(), transfer_to })
}

fn is_allowed(host: &Host, number: &str) -> bool {
    host.config.transfer.numbers.iter().any(|allowed| allowed == number)
}

/// Leaves out a number that callers may not be connected with, with a warning.
pub fn leave_out_unusable(host: &Host, start: &mut Start) {
    let talk = &mut start.setup.talk;
    if talk.transfer_to.as_deref().is_some_and(|to| !is_allowed(host, to)) {
        talk.transfer_to = None;
        let warning = "`transfer_to` was left out: it is not among the numbers of `sts.transfer.numbers`";
        start.warnings.push(warning.to_owned());
    }
}
