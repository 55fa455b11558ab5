//! The events that webhooks carry, as JSON in the shape of Standard Webhooks (`type`, `timestamp`, `data`).

use serde::Serialize;

use super::time::Time;
use crate::clock::Millis;
use crate::session::{Channel, EndReason, Event, Moment, Session, Setup, SmsStatus, Summary};

#[derive(Debug, Clone, Serialize)]
pub struct WebhookEvent {
    r#type: &'static str,
    timestamp: Time,
    data: Data,
}

#[derive(Debug, Clone, Serialize)]
struct Data {
    session_id: String,
    room_name: String,
    channel: Channel,
    tenant_id: Option<String>,
    integration_id: Option<String>,
    client_reference_id: Option<String>,
    #[serde(flatten)]
    about: About,
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum About {
    Started {},
    Verified { category: String },
    MessageSent { category: String, sms_catalog_key: String },
    Ended { reason: EndReason, started_at: Time, summary: Option<Summary> },
}

impl WebhookEvent {
    /// The event of a moment; most moments are none.
    pub fn of(session: &Session, setup: &Setup, moment: &Moment<'_>) -> Option<Self> {
        let (name, at, about) = match moment {
            Moment::Started => ("session.started", session.created, About::Started {}),
            Moment::Changed(event) => of_change(session, event)?,
        };
        Some(Self {
            r#type: name,
            timestamp: Time(at),
            data: Data {
                session_id: session.id.clone(),
                room_name: session.room.clone(),
                channel: session.channel,
                tenant_id: setup.tenant_id.clone(),
                integration_id: setup.integration_id.clone(),
                client_reference_id: setup.client_reference_id.clone(),
                about,
            },
        })
    }

    /// The summary of an ended session.
    pub fn summary(&self) -> Option<&Summary> {
        match &self.data.about {
            About::Ended { summary, .. } => summary.as_ref(),
            _ => None,
        }
    }

    /// The same event with another summary.
    pub fn with_summary(mut self, written: Summary) -> Self {
        if let About::Ended { summary, .. } = &mut self.data.about {
            *summary = Some(written);
        }
        self
    }
}

fn of_change(session: &Session, event: &Event) -> Option<(&'static str, Millis, About)> {
    match event {
        Event::VerificationUpdated { category, verified: true, .. } => {
            Some(("session.verified", session.updated, About::Verified { category: category.clone() }))
        }
        Event::SmsUpdated(message) if message.status == SmsStatus::Sent => {
            let (category, sms_catalog_key) = (message.category.clone(), message.sms_catalog_key.clone());
            Some(("session.message_sent", session.updated, About::MessageSent { category, sms_catalog_key }))
        }
        Event::SessionEnded { reason } => {
            let (at, _) = session.ended?;
            let (reason, summary) = (*reason, session.summary.clone());
            Some(("session.ended", at, About::Ended { reason, started_at: Time(session.created), summary }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::Start;
    use crate::sts::wire::value;

    #[test]
    fn events_have_a_type_a_time_and_data() {
        let setup = Setup { client_reference_id: Some("order-7".into()), ..Setup::default() };
        let start = Start::new(setup, Channel::Phone);
        let mut session = Session::new(1, &start, 1000, 1);
        let event = WebhookEvent::of(&session, &start.setup, &Moment::Started).expect("an event");
        let shown = value(&event);
        assert_eq!(
            (&shown["type"], &shown["timestamp"]),
            (&json!("session.started"), &json!("1970-01-01T00:00:01.000Z"))
        );
        assert_eq!(
            (&shown["data"]["client_reference_id"], &shown["data"]["channel"]),
            (&json!("order-7"), &json!("phone"))
        );
        let mut events = Vec::new();
        session.bind_caller("+14155552671", &mut events);
        assert!(WebhookEvent::of(&session, &start.setup, &Moment::Changed(&events[0])).is_none());
        session.end(EndReason::HungUp, 5000, &mut events);
        let event = WebhookEvent::of(&session, &start.setup, &Moment::Changed(&events[1])).expect("an event");
        let shown = value(&event);
        assert_eq!(shown["data"]["reason"], "hung_up");
        assert!(!shown.to_string().contains("4155552671"), "{shown}");
    }
}
