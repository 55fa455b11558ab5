//! JSON answers of the service.
//!
//! [`value`] turns an answer into a `Value`, which lists members in alphabetical order: the order of all JSON of the
//! service.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::recording_status::RecordingStatus;
pub use super::time::Time;
use crate::session::{
    self, Attendee, Channel, EndReason, LINES_SHOWN, Role, RoomStatus, Session, Setup, Sms, SmsStatus,
    Source, Status, Summary, Website,
};

pub fn value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("names are strings and numbers finite; this is a bug")
}

/// `http` becomes `ws`, and `https` becomes `wss`.
pub fn websocket_base(base: &str) -> String {
    base.strip_prefix("http").map_or_else(|| base.to_owned(), |rest| format!("ws{rest}"))
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
    pub recording: Option<RecordingStatus>,
}

/// The answer to `status`: the session without parts that are too long or internal.
#[derive(Serialize)]
pub struct Snapshot<'a> {
    ok: bool,
    #[serde(flatten)]
    place: Place<'a>,
    #[serde(flatten)]
    lifetime: Lifetime,
    #[serde(flatten)]
    client: Client<'a>,
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
    /// Of a session that has ended.
    summary: Option<&'a Summary>,
    recording: Option<RecordingStatus>,
    /// When the caller was handed over.
    transferred_at: Option<Time>,
    warnings: &'a [String],
}

/// Which session it is, and how to reach its room.
#[derive(Serialize)]
struct Place<'a> {
    session_id: &'a str,
    room_name: &'a str,
    websocket_url: Option<String>,
    channel: Channel,
}

#[derive(Serialize)]
struct Lifetime {
    status: Status,
    revision: u64,
    created_at: Time,
    updated_at: Time,
    expires_at: Time,
    ended_at: Option<Time>,
    end_reason: Option<EndReason>,
}

/// The client's own identifiers, and the caller's number.
#[derive(Serialize)]
struct Client<'a> {
    tenant_id: Option<&'a str>,
    integration_id: Option<&'a str>,
    client_reference_id: Option<&'a str>,
    caller_number: Option<&'a str>,
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
        Self {
            ok: true,
            place: Place {
                session_id: &session.id,
                room_name: &session.room,
                websocket_url: around.websocket_url,
                channel: session.channel,
            },
            lifetime: Lifetime::of(session),
            client: Client {
                tenant_id: setup.tenant_id.as_deref(),
                integration_id: setup.integration_id.as_deref(),
                client_reference_id: setup.client_reference_id.as_deref(),
                caller_number: session.caller_number.as_deref(),
            },
            agent: around.agent,
            participants: around.participants.into_iter().map(Participant::of).collect(),
            room: around.room,
            call: session.call.as_ref().map(Call::of),
            verification: verifications(session),
            pending_verification: session.pending_verification.as_deref(),
            page: Page::of(session, setup),
            sms: Messages {
                enabled: setup.sends_sms(),
                provider: around.sms_provider,
                pending: messages(session, SmsStatus::is_pending),
                sent: messages(session, |status| status == SmsStatus::Sent),
                failed: messages(session, |status| status == SmsStatus::Failed),
            },
            pending_sms: messages(session, SmsStatus::is_pending),
            completion: session.completion.as_ref().map(Completion::of),
            knowledge: Knowledge::of(session),
            link_catalog: setup.link_catalog.keys().map(String::as_str).collect(),
            transcript: transcript(session),
            summary: session.summary.as_ref(),
            recording: around.recording,
            transferred_at: session.transfer.as_ref().map(|transfer| Time(transfer.at)),
            warnings: &session.warnings,
        }
    }
}

impl Lifetime {
    fn of(session: &Session) -> Self {
        Self {
            status: session.status,
            revision: session.revision,
            created_at: Time(session.created),
            updated_at: Time(session.updated),
            expires_at: Time(session.expires),
            ended_at: session.ended.map(|(at, _)| Time(at)),
            end_reason: session.ended.map(|(_, reason)| reason),
        }
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a session::Call) -> Self {
        Self {
            call_sid: &call.call_sid,
            stream_sid: &call.stream_sid,
            started_at: Time(call.started),
            ended_at: call.ended.map(Time),
        }
    }
}

impl<'a> Page<'a> {
    fn of(session: &'a Session, setup: &Setup) -> Self {
        let page = session.page.as_ref();
        Self {
            page_context: page.map(|page| &page.context),
            page_context_version: page.map_or(0, |page| page.version),
            page_context_updated_at: page.map(|page| Time(page.updated)),
            page_guidance_enabled: setup.page_guidance_enabled,
        }
    }
}

impl<'a> Completion<'a> {
    fn of(completion: &'a session::Completion) -> Self {
        Self {
            status: &completion.status,
            message: completion.message.as_deref(),
            updated_fields: &completion.updated_fields,
            at: Time(completion.at),
        }
    }
}

impl<'a> Knowledge<'a> {
    fn of(session: &'a Session) -> Self {
        let knowledge = &session.knowledge;
        Self {
            ready: knowledge.is_ready,
            documents: knowledge.documents,
            passages: knowledge.passages,
            website: knowledge.website.as_ref(),
        }
    }
}

impl Participant {
    fn of(attendee: Attendee) -> Self {
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
    use crate::session::{Media, Start};

    #[test]
    fn a_snapshot_is_flat_and_shows_what_is_missing_as_null() {
        let setup = Setup::default();
        let start = Start::new(setup, Channel::Web);
        let session = Session::new(1, &start, 1, 1000);
        let engine = Engine { end_of_turn: "silence", ears: "none", brain: "embedded", voice: "none" };
        let around = Surroundings {
            websocket_url: None,
            participants: Vec::new(),
            room: Media::default().status(),
            agent: AgentStatus { state: "none", engine },
            sms_provider: "none",
            recording: None,
        };
        let shown = value(&Snapshot::new(&session, &start.setup, around));
        let members: Vec<&str> = shown.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(
            members,
            [
                "agent",
                "call",
                "caller_number",
                "channel",
                "client_reference_id",
                "completion",
                "created_at",
                "end_reason",
                "ended_at",
                "expires_at",
                "integration_id",
                "knowledge",
                "link_catalog",
                "ok",
                "page_context",
                "page_context_updated_at",
                "page_context_version",
                "page_guidance_enabled",
                "participants",
                "pending_sms",
                "pending_verification",
                "recording",
                "revision",
                "room",
                "room_name",
                "session_id",
                "sms",
                "status",
                "summary",
                "tenant_id",
                "transcript",
                "transferred_at",
                "updated_at",
                "verification",
                "warnings",
                "websocket_url",
            ]
        );
        assert_eq!(shown["room"], json!({"provider": "embedded", "state": "ready", "error": null}));
        assert!(shown["call"].is_null() && shown["page_context"].is_null() && shown["ended_at"].is_null());
    }

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
