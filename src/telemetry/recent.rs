//! The last warnings and errors of the log, in memory: a layer of the subscriber fills a ring.
//!
//! It holds what the log holds, no more: the same filters come first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Events that are kept: the newest.
pub const EVENTS_MAX: usize = 200;
/// Fields of one event, and characters of each; what exceeds them is cut.
const FIELDS_MAX: usize = 16;
const CHARACTERS_MAX: usize = 400;

static RING: Mutex<VecDeque<Event>> = Mutex::new(VecDeque::new());

/// A warning or an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// As in RFC 3339.
    pub at: String,
    /// `WARN` or `ERROR`.
    pub level: &'static str,
    /// The module that it comes from.
    pub target: String,
    pub message: String,
    pub fields: BTreeMap<&'static str, String>,
    /// The request that it concerns.
    pub request: Option<String>,
}

/// The events that are kept.
pub fn newest_first() -> Vec<Event> {
    RING.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
}

/// Keeps warnings and errors.
pub(super) struct Recent;

/// In the extensions of a span: its field `id`, which the span of a request has.
struct RequestId(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recent {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "request" {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let (Some(span), Some(request)) = (context.span(id), fields.others.remove("id")) {
            span.extensions_mut().insert(RequestId(request));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let of = |span: tracing_subscriber::registry::SpanRef<'_, S>| {
            span.extensions().get::<RequestId>().map(|RequestId(id)| id.clone())
        };
        let request = context.event_scope(event).and_then(|mut scope| scope.find_map(of));
        let event = Event {
            at: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            level: if *metadata.level() == Level::ERROR { "ERROR" } else { "WARN" },
            target: metadata.target().to_owned(),
            message: fields.message,
            fields: fields.others,
            request,
        };
        let mut ring = RING.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.len() == EVENTS_MAX {
            ring.pop_front();
        }
        ring.push_back(event);
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: BTreeMap<&'static str, String>,
}

impl Fields {
    fn add(&mut self, field: &Field, text: String) {
        let text = match text.char_indices().nth(CHARACTERS_MAX) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        };
        if field.name() == "message" {
            self.message = text;
        } else if self.others.len() < FIELDS_MAX {
            self.others.insert(field.name(), text);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.add(field, text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn warnings_are_kept_with_their_request() {
        let subscriber = tracing_subscriber::registry().with(Recent);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info_span!("request", id = %"7", method = "GET").in_scope(|| {
                tracing::info!("unheard");
                tracing::warn!(count = 3, long = "x".repeat(1000), "recent test one");
            });
            for number in 0..EVENTS_MAX + 10 {
                tracing::error!(number, "recent test more");
            }
            tracing::info_span!("request", id = %"8")
                .in_scope(|| tracing::warn!(count = 3, "recent test last"));
        });
        let events = newest_first();
        assert_eq!(events.len(), EVENTS_MAX);
        let last = events.iter().find(|event| event.message == "recent test last").unwrap();
        assert_eq!((last.request.as_deref(), last.level), (Some("8"), "WARN"));
        assert_eq!(last.fields["count"], "3");
        assert!(events.iter().all(|event| !event.message.contains("recent test one")));
        assert!(events.iter().all(|event| event.fields.values().all(|text| text.chars().count() <= 401)));
    }
}
