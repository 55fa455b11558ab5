//! JSON answers of the service.
//!
//! [`value`] turns an answer into a `Value`, which lists members in alphabetical order: the order of all JSON of the
//! service.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::clock::Millis;
use crate::session::{
    Attendee, Channel, EndReason, LINES_SHOWN, Role, RoomStatus, Session, Setup, Sms, SmsStatus, Source,
    Status, Website,
};

pub fn value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("names are strings and numbers finite; this is a bug")
}

/// `http` becomes `ws`, and `https` becomes `wss`.
pub fn websocket_base(base: &str) -> String {
    base.strip_prefix("http").map_or_else(|| base.to_owned(), |rest| format!("ws{rest}"))
}

/// A point in time; as JSON in the form of RFC 3339, in UTC.
pub struct Time(pub Millis);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = UNIX_EPOCH + Duration::from_millis(self.0);
        serializer.collect_str(&humantime::format_rfc3339_millis(time))
    }
}

/// The answer to a start.
#[derive(Serialize)]
pub struct Started<'a> {
    pub ok: bool,
    pub session_id: &'a str,
    pub room_name: &'a str,
    pub channel: Channel,
    pub status: Status,
    pub expires_at: Time,
    pub warnings: Vec<String>,
    /// For browsers. A telephone gets its token when the call arrives.
    #[serde(flatten)]
    pub web: Option<WebRoom>,
}

/// The data with which a browser joins its room.
#[derive(Serialize)]
pub struct WebRoom {
    pub websocket_url: String,
    pub token: String,
    #[serde(flatten)]
    pub livekit: Option<LiveKitRoom>,
}

/// The same under the names that LiveKit's clients expect from a token server.
#[derive(Serialize)]
pub struct LiveKitRoom {
    pub server_url: String,
    pub participant_token: String,
    pub participant_identity: String,
}

#[derive(Serialize)]
pub struct CallerBound<'a> {
    pub ok: bool,
    pub session_id: &'a str,
    pub caller_number: &'a str,
}

#[derive(Serialize)]
pub struct PageShown<'a> {
    pub ok: bool,
    pub session_id: &'a str,
    pub page_context_version: u64,
}

#[derive(Serialize)]
pub struct Verified<'a> {
    pub ok: bool,
    pub session_id: &'a str,
    pub category: &'a str,
    pub verified: bool,
    pub pending_sms: Vec<Sms>,
}

#[derive(Serialize)]
pub struct Completed<'a> {
    pub ok: bool,
    pub session_id: &'a str,
    pub status: &'a str,
    pub message: Option<&'a str>,
    pub updated_fields: &'a Value,
}

/// The state of the agent, and the parts that it is made of.
#[derive(Serialize)]
pub struct AgentStatus {
    pub state: &'static str,
    pub engine: Engine,
}

#[derive(Serialize)]
pub struct Engine {
    /// `model` or `silence`.
    pub end_of_turn: &'static str,
    /// `embedded` or `none`.
    pub ears: &'static str,
    /// `endpoint` or `embedded`.
    pub brain: &'static str,
    pub voice: &'static str,
}

/// The parts of a snapshot that the session's state does not hold.
pub struct Surroundings {
    pub websocket_url: Option<String>,
    pub participants: Vec<Attendee>,
    pub room: RoomStatus,
    pub agent: AgentStatus,
    /// `twilio` or `none`.
    pub sms_provider: &'static str,
}

/// The answer to `status`: the session without parts that are too long or internal.
#[derive(Serialize)]
pub struct Snapshot<'a> {
    ok: bool,
    session_id: &'a str,
    room_name: &'a str,
    websocket_url: Option<String>,
    channel: Channel,
    status: Status,
    revision: u64,
    created_at: Time,
    updated_at: Time,
    expires_at: Time,
    ended_at: Option<Time>,
    end_reason: Option<EndReason>,
    #[serde(flatten)]
    client: Client<'a>,
    caller_number: Option<&'a str>,
    agent: AgentStatus,
    participants: Vec<Participant>,
    room: RoomStatus,
    call: Option<Call<'a>>,
    verification: BTreeMap<&'a str, Verification<'a>>,
    pending_verification: Option<&'a str>,
    #[serde(flatten)]
    page: Page<'a>,
    sms: Messages<'a>,
    pending_sms: Vec<&'a Sms>,
    completion: Option<Completion<'a>>,
    knowledge: Knowledge<'a>,
    link_catalog: Vec<&'a str>,
    transcript: Vec<Line<'a>>,
    warnings: &'a [String],
}

/// The client's own identifiers.
#[derive(Serialize)]
struct Client<'a> {
    tenant_id: Option<&'a str>,
    integration_id: Option<&'a str>,
    client_reference_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Participant {
    identity: String,
    kind: &'static str,
    joined_at: Time,
}

#[derive(Serialize)]
struct Call<'a> {
    call_sid: &'a str,
    stream_sid: &'a str,
    started_at: Time,
    ended_at: Option<Time>,
}

#[derive(Serialize)]
struct Verification<'a> {
    verified: bool,
    verified_at: Option<Time>,
    source: Source,
    attempts: u32,
    locked: bool,
    details: &'a Value,
}

#[derive(Serialize)]
struct Page<'a> {
    page_context: Option<&'a Value>,
    page_context_version: u64,
    page_context_updated_at: Option<Time>,
    page_guidance_enabled: bool,
}

#[derive(Serialize)]
struct Messages<'a> {
    enabled: bool,
    provider: &'static str,
    pending: Vec<&'a Sms>,
    sent: Vec<&'a Sms>,
    failed: Vec<&'a Sms>,
}

#[derive(Serialize)]
struct Completion<'a> {
    status: &'a str,
    message: Option<&'a str>,
    updated_fields: &'a Value,
    at: Time,
}

#[derive(Serialize)]
struct Knowledge<'a> {
    ready: bool,
    documents: usize,
    passages: usize,
    website: Option<&'a Website>,
}

#[derive(Serialize)]
struct Line<'a> {
    id: u64,
    role: Role,
    text: &'a str,
    interrupted: bool,
    at: Time,
    latency_ms: Option<u64>,
}

impl<'a> Snapshot<'a> {
    pub fn new(session: &'a Session, setup: &'a Setup, around: Surroundings) -> Self {
        let pending = messages(session, SmsStatus::is_pending);
        Self {
            ok: true,
            session_id: &session.id,
            room_name: &session.room,
            websocket_url: around.websocket_url,
            channel: session.channel,
            status: session.status,
            revision: session.revision,
            created_at: Time(session.created),
            updated_at: Time(session.updated),
            expires_at: Time(session.expires),
            ended_at: session.ended.map(|(at, _)| Time(at)),
            end_reason: session.ended.map(|(_, reason)| reason),
            client: Client {
                tenant_id: setup.tenant_id.as_deref(),
                integration_id: setup.integration_id.as_deref(),
                client_reference_id: setup.client_reference_id.as_deref(),
            },
            caller_number: session.caller_number.as_deref(),
            agent: around.agent,
            participants: around.participants.into_iter().map(Participant::new).collect(),
            room: around.room,
            call: session.call.as_ref().map(|call| Call {
                call_sid: &call.call_sid,
                stream_sid: &call.stream_sid,
                started_at: Time(call.started),
                ended_at: call.ended.map(Time),
            }),
            verification: verifications(session),
            pending_verification: session.pending_verification.as_deref(),
            page: Page {
                page_context: session.page.as_ref().map(|page| &page.context),
                page_context_version: session.page.as_ref().map_or(0, |page| page.version),
                page_context_updated_at: session.page.as_ref().map(|page| Time(page.updated)),
                page_guidance_enabled: setup.page_guidance_enabled,
            },
            sms: Messages {
                enabled: setup.sends_sms(),
                provider: around.sms_provider,
                pending: pending.clone(),
                sent: messages(session, |status| status == SmsStatus::Sent),
                failed: messages(session, |status| status == SmsStatus::Failed),
            },
            pending_sms: pending,
            completion: session.completion.as_ref().map(|completion| Completion {
                status: &completion.status,
                message: completion.message.as_deref(),
                updated_fields: &completion.updated_fields,
                at: Time(completion.at),
            }),
            knowledge: Knowledge {
                ready: session.knowledge.is_ready,
                documents: session.knowledge.documents,
                passages: session.knowledge.passages,
                website: session.knowledge.website.as_ref(),
            },
            link_catalog: setup.link_catalog.keys().map(String::as_str).collect(),
            transcript: transcript(session),
            warnings: &session.warnings,
        }
    }
}

impl Participant {
    fn new(attendee: Attendee) -> Self {
        Self { identity: attendee.identity, kind: attendee.kind, joined_at: Time(attendee.joined) }
    }
}

fn messages(session: &Session, is: impl Fn(SmsStatus) -> bool) -> Vec<&Sms> {
    session.messages.iter().filter(|message| is(message.status)).collect()
}

fn verifications(session: &Session) -> BTreeMap<&str, Verification<'_>> {
    let states = session.verifications.iter().map(|(category, state)| {
        let state = Verification {
            verified: state.verified,
            verified_at: state.verified.then_some(Time(state.at)),
            source: state.source,
            attempts: state.attempts,
            locked: state.locked,
            details: &state.details,
        };
        (category.as_str(), state)
    });
    states.collect()
}

/// The last lines of the talk.
fn transcript(session: &Session) -> Vec<Line<'_>> {
    let skipped = session.transcript.len().saturating_sub(LINES_SHOWN);
    let lines = session.transcript.iter().skip(skipped).map(|line| Line {
        id: line.id,
        role: line.role,
        text: &line.content,
        interrupted: line.interrupted,
        at: Time(line.at),
        latency_ms: line.latency_ms,
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_start_lists_only_what_its_channel_needs() {
        let started = |web| Started {
            ok: true,
            session_id: "sess_1",
            room_name: "sts-1",
            channel: Channel::Phone,
            status: Status::Created,
            expires_at: Time(1),
            warnings: Vec::new(),
            web,
        };
        let phone = value(&started(None));
        assert_eq!(phone["expires_at"], json!("1970-01-01T00:00:00.001Z"));
        assert!(phone.get("token").is_none() && phone.get("web").is_none());
        let web = WebRoom { websocket_url: "ws://a".into(), token: "t".into(), livekit: None };
        let web = value(&started(Some(web)));
        assert_eq!((&web["websocket_url"], &web["token"]), (&json!("ws://a"), &json!("t")));
        assert!(web.get("server_url").is_none() && web.get("livekit").is_none());
        // Members are sorted.
        assert!(web.to_string().starts_with(r#"{"channel":"phone","expires_at":"#), "{web}");
    }
}
