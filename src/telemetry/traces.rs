//! Traces of requests, sent to a collector by OTLP over HTTP in its JSON encoding
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).
//!
//! ```text
//! request ─┬─ queue, encode, decode   of each window of a file
//!          └─ job ── queue …          later, perhaps on another server
//!          └─ delivery                each attempt
//! ```
//! A request takes part in the trace that its `traceparent` names (<https://www.w3.org/TR/trace-context/>). Otherwise its
//! trace has the id of the request, so that its job and its deliveries find it without being told. Spans say what happened and
//! how long it took: never an address, a parameter, a word.

mod export;
mod span;

use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use export::Exporter;
use span::{Context, Span};

pub use span::{Attribute, Kind};

/// Settings of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of a collector that takes OTLP over HTTP, to which `/v1/traces` is appended: `http://127.0.0.1:4318`. Default:
    /// none, and nothing is traced.
    pub endpoint: Option<String>,
    /// The part of the requests without a `traceparent` that are traced, 0 to 1; others are traced if their caller's are.
    /// Default 1.
    pub sample: f64,
    /// Name of this service in traces. Default `verbatim`.
    pub service: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { endpoint: None, sample: 1.0, service: "verbatim".into() }
    }
}

struct Tracer {
    exporter: Exporter,
    sample: f64,
}

static TRACER: OnceLock<Tracer> = OnceLock::new();

tokio::task_local! {
    static CURRENT: Context;
}

/// Starts tracing, for the whole process, if there is a collector; a second call changes nothing. Needs a runtime of tokio.
pub fn start(config: &Config) {
    let Some(endpoint) = &config.endpoint else { return };
    TRACER.get_or_init(|| {
        tracing::info!("requests are traced");
        Tracer { exporter: Exporter::start(endpoint, &config.service), sample: config.sample }
    });
}

/// Returns when all spans so far are sent, or after two seconds.
pub async fn flush() {
    if let Some(tracer) = TRACER.get() {
        tracer.exporter.flush().await;
    }
}

/// The place of a request without a `traceparent`.
fn place_of(id: Uuid) -> Context {
    Context { trace: id.as_u128(), span: span_of(id) }
}

/// The span of a request.
fn span_of(id: Uuid) -> u64 {
    // Zero is no span; the variant's bits of a random UUID are set.
    id.as_u64_pair().1
}

/// Whether the request with this id is traced, if it has no `traceparent`: the same for all of its parts.
fn is_sampled(id: Uuid, sample: f64) -> bool {
    // The high half holds the version; these bits are random.
    let random = (id.as_u64_pair().0 >> 16) as f64 / (1_u64 << 48) as f64;
    random < sample
}

/// A piece of work in progress. One that is dropped is not in the trace.
#[derive(Debug, Clone)]
pub struct Open {
    context: Context,
    parent: Option<u64>,
    kind: Kind,
    begun: SystemTime,
}

/// A request that came; `None` if it is not traced.
pub fn request(id: Uuid, traceparent: Option<&str>) -> Option<Open> {
    let tracer = TRACER.get()?;
    let (context, parent, is_traced) = match traceparent.and_then(Context::parse) {
        Some((above, is_traced)) => {
            (Context { trace: above.trace, span: span_of(id) }, Some(above.span), is_traced)
        }
        None => (place_of(id), None, is_sampled(id, tracer.sample)),
    };
    is_traced.then(|| Open { context, parent, kind: Kind::Server, begun: SystemTime::now() })
}

/// Work for the request with this id, after its answer: a job, a delivery. `None` if it is not traced.
pub fn work(id: Uuid, kind: Kind) -> Option<Open> {
    let tracer = TRACER.get()?;
    let request = place_of(id);
    let context = Context { trace: request.trace, span: new_span() };
    let open = Open { context, parent: Some(request.span), kind, begun: SystemTime::now() };
    is_sampled(id, tracer.sample).then_some(open)
}

fn new_span() -> u64 {
    rand::random_range(1..=u64::MAX)
}

impl Open {
    /// The header by which another server takes part in the trace.
    pub fn traceparent(&self) -> String {
        self.context.traceparent()
    }

    /// The work has ended.
    pub fn end(self, name: String, attributes: Vec<(&'static str, Attribute)>, is_error: bool) {
        let Self { context, parent, kind, begun } = self;
        let ended = SystemTime::now().max(begun);
        send(Span { context, parent, name, kind, begun, ended, attributes, is_error });
    }
}

fn send(span: Span) {
    if let Some(tracer) = TRACER.get() {
        tracer.exporter.send(span);
    }
}

/// Runs `task` as a part of `open`, if there is one.
pub async fn within<T>(open: Option<&Open>, task: impl Future<Output = T>) -> T {
    match open {
        Some(open) => CURRENT.scope(open.context, task).await,
        None => task.await,
    }
}

/// The header by which another server takes part in the trace of this task.
pub fn traceparent() -> Option<String> {
    CURRENT.try_with(|context| context.traceparent()).ok()
}

/// Stages of this task's work, one after the other from `begun` on.
pub fn stages(begun: SystemTime, stages: &[(&'static str, Duration)]) {
    let Ok(above) = CURRENT.try_with(|context| *context) else { return };
    let mut at = begun;
    for &(name, took) in stages {
        let context = Context { trace: above.trace, span: new_span() };
        let (parent, kind, ended) = (Some(above.span), Kind::Internal, at + took);
        let (name, attributes, is_error) = (name.to_owned(), Vec::new(), false);
        send(Span { context, parent, name, kind, begun: at, ended, attributes, is_error });
        at = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_w3c_has_it() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (context, is_traced) = Context::parse(text).unwrap();
        assert!(is_traced);
        assert_eq!(context.traceparent(), text);
        assert!(!Context::parse(&text.replace("-01", "-00")).unwrap().1);
        // A later version may have more parts.
        assert!(Context::parse(&format!("{}-more", text.replace("00-", "cc-"))).is_some());
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(Context::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_part_of_the_requests_is_traced() {
        let ids: Vec<Uuid> = (0..2000).map(|_| Uuid::new_v4()).collect();
        let traced = |sample: f64| ids.iter().filter(|id| is_sampled(**id, sample)).count();
        assert_eq!((traced(0.0), traced(1.0)), (0, 2000));
        assert!((300..700).contains(&traced(0.25)), "{}", traced(0.25));
    }
}
