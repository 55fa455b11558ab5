//! What `status` shows of a session.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::session::{Millis, Session, Sms, SmsStatus};
use super::setup::Setup;

/// The last lines of the talk are shown.
pub const LINES_SHOWN: usize = 20;

/// What the session alone does not know.
pub struct Around {
    pub websocket_url: Option<String>,
    pub participants: Value,
    /// Who provides the room, and how it is with it.
    pub room: Value,
    /// State and parts of the agent.
    pub agent: Value,
    /// Who carries messages: `twilio`, or `none`.
    pub sms_provider: &'static str,
}

/// RFC 3339, in UTC.
pub fn time(at: Millis) -> Value {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at)).to_string().into()
}

fn time_or_null(at: Option<Millis>) -> Value {
    at.map_or(Value::Null, time)
}

/// The snapshot: the session without what would be too long or is nobody's business.
pub fn snapshot(session: &Session, setup: &Setup, around: Around) -> Value {
    let of = |is: fn(SmsStatus) -> bool| -> Vec<Value> {
        session.messages.iter().filter(|message| is(message.status)).map(sms).collect()
    };
    let pending = of(SmsStatus::is_pending);
    let verification: Map<String, Value> = session
        .verifications
        .iter()
        .map(|(category, state)| {
            let state = json!({
                "verified": state.verified,
                "verified_at": if state.verified { time(state.at) } else { Value::Null },
                "source": state.source,
                "attempts": state.attempts,
                "locked": state.locked,
                "details": state.details,
            });
            (category.clone(), state)
        })
        .collect();
    let skipped = session.transcript.len().saturating_sub(LINES_SHOWN);
    let transcript: Vec<Value> = session
        .transcript
        .iter()
        .skip(skipped)
        .map(|line| {
            json!({
                "id": line.id, "role": line.role, "text": line.content, "interrupted": line.interrupted,
                "at": time(line.at), "latency_ms": line.latency_ms,
            })
        })
        .collect();
    json!({
        "ok": true,
        "session_id": session.id,
        "room_name": session.room,
        "websocket_url": around.websocket_url,
        "channel": session.channel,
        "status": session.status,
        "revision": session.revision,
        "created_at": time(session.created),
        "updated_at": time(session.updated),
        "expires_at": time(session.expires),
        "ended_at": time_or_null(session.ended.map(|(at, _)| at)),
        "end_reason": session.ended.map(|(_, reason)| reason),
        "tenant_id": setup.tenant_id,
        "integration_id": setup.integration_id,
        "client_reference_id": setup.client_reference_id,
        "caller_number": session.caller_number,
        "agent": around.agent,
        "participants": around.participants,
        "room": around.room,
        "call": session.call.as_ref().map(|call| json!({
            "call_sid": call.call_sid, "stream_sid": call.stream_sid,
            "started_at": time(call.started), "ended_at": time_or_null(call.ended),
        })),
        "verification": verification,
        "pending_verification": session.pending_verification,
        "page_context": session.page.as_ref().map(|page| &page.context),
        "page_context_version": session.page.as_ref().map_or(0, |page| page.version),
        "page_context_updated_at": time_or_null(session.page.as_ref().map(|page| page.updated)),
        "page_guidance_enabled": setup.page_guidance_enabled,
        "sms": {
            "enabled": setup.sends_sms(), "provider": around.sms_provider, "pending": pending,
            "sent": of(|status| status == SmsStatus::Sent), "failed": of(|status| status == SmsStatus::Failed),
        },
        "pending_sms": pending,
        "completion": session.completion.as_ref().map(|completion| json!({
            "status": completion.status, "message": completion.message,
            "updated_fields": completion.updated_fields, "at": time(completion.at),
        })),
        "knowledge": {
            "ready": session.knowledge.is_ready,
            "documents": session.knowledge.documents,
            "passages": session.knowledge.passages,
            "website": session.knowledge.website,
        },
        "link_catalog": setup.link_catalog.keys().collect::<Vec<_>>(),
        "transcript": transcript,
        "warnings": session.warnings,
    })
}

fn sms(message: &Sms) -> Value {
    json!(message)
}
