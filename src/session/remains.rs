//! The remains of an ended session: enough for `status` and for text messages that are still due. Instructions,
//! documents and rules are dropped at once.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::concealed::Given;
use super::held;
use super::message::{SmsStatus, sms_text};
use super::presence::{AgentState, RoomStatus};
use super::setup::{Link, Setup};
use super::state::{LINES_SHOWN, Session};
use super::talk::TalkRules;
use crate::clock::Millis;

/// Larger remains lose parts, the least important first. Texts that are still due always stay.
const BYTES_MAX: u64 = 32 << 10;
const LINE_CHARACTERS_MAX: usize = 300;
const WARNINGS_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remains {
    pub session: Session,
    /// Without the parts that only an agent needs.
    pub setup: Setup,
    /// The room as snapshots show it.
    pub room: RoomStatus,
    pub agent: AgentState,
}

/// An ended session as it is known without a look at the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub id: String,
    pub tenant: u64,
    pub at: Millis,
    pub caller_number: Option<String>,
    /// The caller's wrong answers since the last right one.
    pub wrong_answers: u32,
    /// Whether messages are still due.
    pub is_sending: bool,
    /// Size of its remains, in bytes.
    pub bytes: u64,
}

type Shed = fn(&mut Remains);

const SHEDS: [Shed; 6] = [
    |remains| {
        if let Some(page) = &mut remains.session.page {
            page.context = Value::Null;
        }
    },
    |remains| remains.session.verifications.values_mut().for_each(|state| state.details = Value::Null),
    |remains| {
        if let Some(completion) = &mut remains.session.completion {
            completion.updated_fields = Value::Null;
        }
    },
    |remains| {
        for line in &mut remains.session.transcript {
            line.content = line.content.chars().take(LINE_CHARACTERS_MAX).collect();
        }
    },
    |remains| remains.session.warnings.truncate(WARNINGS_MAX),
    |remains| remains.setup.link_catalog.retain(|_, link| link.sms_text.is_some()),
];

impl Remains {
    pub fn of(session: &Session, setup: &Setup, room: RoomStatus, agent: AgentState) -> Self {
        let skipped = session.transcript.len().saturating_sub(LINES_SHOWN);
        let session = Session {
            transcript: session.transcript.iter().skip(skipped).cloned().collect(),
            asked: BTreeSet::new(),
            given: Given::default(),
            announcements: Vec::new(),
            ..session.clone()
        };
        // `status` shows the names of links. A link's text is needed only while its message is due.
        let link = |(key, link): (&String, &Link)| {
            let is_due = session
                .messages
                .iter()
                .any(|message| message.sms_catalog_key == *key && is_to_be_sent(message.status));
            (key.clone(), Link { sms_text: is_due.then(|| sms_text(link)), ..Link::default() })
        };
        let setup = Setup {
            link_catalog: setup.link_catalog.iter().map(link).collect(),
            sms_enabled: Some(setup.sends_sms()),
            // Later messages and the summary are reported there.
            talk: TalkRules { webhook_url: setup.talk.webhook_url.clone(), ..TalkRules::default() },
            page_guidance_enabled: setup.page_guidance_enabled,
            integration_id: setup.integration_id.clone(),
            client_reference_id: setup.client_reference_id.clone(),
            tenant_id: setup.tenant_id.clone(),
            ..Setup::default()
        };
        let mut remains = Self { session, setup, room, agent };
        for shed in SHEDS {
            if held::json(&remains) <= BYTES_MAX {
                break;
            }
            shed(&mut remains);
        }
        remains
    }

    /// `bytes`: the size of these remains on disk.
    pub fn ended(&self, bytes: u64) -> Ended {
        let session = &self.session;
        Ended {
            id: session.id.clone(),
            tenant: session.tenant,
            at: session.ended.map_or(session.updated, |(at, _)| at),
            caller_number: session.caller_number.clone(),
            wrong_answers: session.wrong_answers(),
            is_sending: session.messages.iter().any(|message| is_to_be_sent(message.status)),
            bytes,
        }
    }
}

/// A message that waits for a number is never sent: an ended session gets no number any more.
fn is_to_be_sent(status: SmsStatus) -> bool {
    matches!(status, SmsStatus::Queued | SmsStatus::Sending)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::Fields;
    use crate::session::event::{EndReason, Line, Role};
    use crate::session::presence::Media;
    use crate::session::setup::Start;
    use crate::session::state::{Checked, Source};

    fn start() -> Start {
        let value = json!({
            "instructions": "x".repeat(1 << 20),
            "documents": [{"title": "d", "type": "text", "content": "y".repeat(1 << 20)}],
            "caller_number": "+14155552671", "tenant_id": "t1",
            "link_catalog": {"forms": {"url": "https://a.example/f", "title": "The form"}, "other": "https://a.example/o"},
        });
        Start::read(Fields::of(&value).unwrap()).unwrap()
    }

    fn ended(start: &Start, details: &Value) -> Session {
        let (mut session, mut events) = (Session::new(1, start, 0, 1000), Vec::new());
        for category in 0..20 {
            let checked = Checked { verified: false, source: Source::Action, details: details.clone() };
            session.verify(&format!("c{category}"), checked, &start.setup, 1, &mut events).unwrap();
        }
        for n in 0..500 {
            let content = format!("{n} {}", "word ".repeat(100));
            let line = Line { id: 0, role: Role::User, content, interrupted: false, at: 1, latency_ms: None };
            session.say(line, &mut events);
        }
        session.send_link("c0", "forms", &start.setup, &mut events);
        session.end(EndReason::Left, 2, &mut events);
        session
    }

    #[test]
    fn what_is_kept_is_small_and_still_says_what_is_to_be_sent() {
        let start = start();
        let of = |details: &Value| {
            let session = ended(&start, details);
            Remains::of(&session, &start.setup, Media::Embedded.status(), AgentState::Left)
        };
        let remains = of(&json!({"note": "short"}));
        assert!(held::json(&remains) <= BYTES_MAX);
        assert_eq!(remains.setup.tenant_id.as_deref(), Some("t1"));
        assert_eq!(remains.session.transcript.len(), LINES_SHOWN);
        assert!(remains.session.transcript[LINES_SHOWN - 1].content.starts_with("499 "));
        assert_eq!(remains.session.verifications["c0"].details, json!({"note": "short"}));
        assert_eq!(sms_text(&remains.setup.link_catalog["forms"]), "The form: https://a.example/f");
        assert_eq!(remains.setup.link_catalog["other"], Link::default());
        assert!(remains.setup.sends_sms() && remains.ended(7).is_sending);

        let crowded = of(&json!({"note": "long ".repeat(600)}));
        assert!(held::json(&crowded) <= BYTES_MAX);
        assert_eq!(crowded.session.verifications["c0"].details, Value::Null);
        assert_eq!(crowded.session.messages, remains.session.messages);
    }

    #[test]
    fn a_text_that_was_sent_goes_too() {
        let start = start();
        let session = ended(&start, &Value::Null);
        let before = Remains::of(&session, &start.setup, Media::Embedded.status(), AgentState::Left);
        let mut session = before.session.clone();
        session.messages[0].status = SmsStatus::Sent;
        let after = Remains::of(&session, &before.setup, Media::Embedded.status(), AgentState::Left);
        assert_eq!(after.setup.link_catalog["forms"], Link::default());
        assert!(!after.ended(7).is_sending);
        // Nothing else changes by being kept twice.
        let again = Remains::of(&before.session, &before.setup, Media::Embedded.status(), AgentState::Left);
        assert_eq!(again, before);
    }
}
