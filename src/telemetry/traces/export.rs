//! Sends spans to the collector: in batches, off the path of requests. If it does not keep up, spans are dropped and counted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::span::{Attribute, Span};
use crate::telemetry::metrics::SPANS_DROPPED;

/// Spans that wait for the collector.
const QUEUE_MAX: usize = 4096;
/// Spans of one message.
const BATCH_MAX: usize = 512;
/// How long spans wait for others to go with them.
const GATHER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

enum Message {
    Span(Box<Span>),
    /// Answered when everything before it is sent.
    Flush(oneshot::Sender<()>),
}

pub struct Exporter(mpsc::Sender<Message>);

impl Exporter {
    pub fn start(endpoint: &str, service: &str) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        tokio::spawn(run(receiver, url, service.to_owned()));
        Self(sender)
    }

    /// Drops the span if the queue is full.
    pub fn send(&self, span: Span) {
        if self.0.try_send(Message::Span(Box::new(span))).is_err() {
            SPANS_DROPPED.with(&[]).increment(1);
        }
    }

    pub async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let flush = async {
            if self.0.send(Message::Flush(done)).await.is_ok() {
                let _ = is_done.await;
            }
        };
        // What is not sent by then is lost.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flush).await;
    }
}

async fn run(mut messages: mpsc::Receiver<Message>, url: String, service: String) {
    // The process has one cryptography provider; an error means that it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build();
    let client = match client {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "there will be no traces"),
    };
    let mut works = true;
    while let Some(first) = messages.recv().await {
        let (mut spans, mut flushed) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        let gathered = tokio::time::sleep(GATHER);
        let mut gathered = std::pin::pin!(gathered);
        loop {
            match next.take() {
                Some(Message::Span(span)) => spans.push(*span),
                Some(Message::Flush(done)) => flushed.push(done),
                None => break,
            }
            if spans.len() >= BATCH_MAX {
                break;
            }
            next = if flushed.is_empty() {
                tokio::select! {
                    () = &mut gathered => None,
                    message = messages.recv() => message,
                }
            } else {
                messages.try_recv().ok()
            };
        }
        let count = spans.len() as u64;
        if count > 0 {
            let asked = client.post(&url).header(CONTENT_TYPE, "application/json");
            let sent = asked.body(body(&service, &spans).to_string()).send().await;
            let problem = match sent {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("it answers {}", answer.status())),
                Err(error) => Some(error.without_url().to_string()),
            };
            if let Some(problem) = &problem {
                SPANS_DROPPED.with(&[]).increment(count);
                if works {
                    tracing::warn!(problem, "the collector of traces does not take them");
                }
            }
            works = problem.is_none();
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

/// A message of OTLP in its JSON encoding.
fn body(service: &str, spans: &[Span]) -> Value {
    let attributes = [
        ("service.name", Attribute::Text(service.to_owned())),
        ("service.version", Attribute::Text(env!("CARGO_PKG_VERSION").to_owned())),
    ];
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes.iter().map(attribute).collect::<Vec<_>>()},
        "scopeSpans": [{
            "scope": {"name": "verbatim", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans.iter().map(of_span).collect::<Vec<_>>(),
        }],
    }]})
}

fn of_span(span: &Span) -> Value {
    let mut value = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.context.span),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": nanoseconds(span.begun),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": span.attributes.iter().map(attribute).collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = format!("{parent:016x}").into();
    }
    if span.is_error {
        // STATUS_CODE_ERROR
        value["status"] = json!({"code": 2});
    }
    value
}

/// Whole numbers of 64 bits are texts in OTLP's JSON.
fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attribute((name, value): &(&'static str, Attribute)) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Whole(number) => json!({"intValue": number.to_string()}),
        Attribute::Number(number) => json!({"doubleValue": number}),
    };
    json!({"key": name, "value": value})
}
