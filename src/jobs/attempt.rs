//! One delivery attempt: the message that is sent, and the outcome that is recorded.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::schedule::{Verdict, judge};
use super::shared::Shared;
use super::signature::SigningSecret;
use super::store::{Delivery, Next};
use crate::fetch::Message;
use crate::telemetry::metrics;
use crate::telemetry::traces::{self, Attribute, Kind};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// Repeats `webhook-id` under the name that some receivers de-duplicate by.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Part of the wire format: the id of the API key, which is no secret.
const DG_TOKEN: HeaderName = HeaderName::from_static("dg-token");
/// W3C Trace Context: that of the job's trace.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The number of this attempt, from 1.
const ATTEMPT: HeaderName = HeaderName::from_static("verbatim-attempt");

/// Sends the result and returns the next step.
pub async fn attempt(shared: &Shared, delivery: Delivery) -> Next {
    let (tried, finished) = (delivery.tried, delivery.finished);
    let began = shared.world.now();
    let trace = traces::work(delivery.id.0, Kind::Client);
    let number = i64::from(delivery.attempts) + 1;
    let mut message = message(&shared.secret, delivery, began);
    let traceparent = trace.as_ref().and_then(|trace| HeaderValue::from_str(&trace.traceparent()).ok());
    message.headers.extend(traceparent.map(|value| (TRACEPARENT, value)));
    let timeout = std::time::Duration::from_millis(shared.config.delivery_timeout_ms);
    let result = shared.world.send(message, timeout).await;
    let verdict = judge(&result, tried, &shared.config.retry_delays_seconds, shared.world.chance());
    let outcome = match &verdict {
        Verdict::Delivered => "delivered",
        Verdict::Again { .. } => "failed",
        Verdict::Dead { .. } => "dead",
    };
    metrics::JOBS_ATTEMPTS.with(&[("outcome", outcome)]).increment(1);
    if let Some(trace) = trace {
        let attributes = vec![
            ("verbatim.attempt", Attribute::Whole(number)),
            ("verbatim.outcome", Attribute::Text(outcome.to_owned())),
        ];
        trace.end("delivery".to_owned(), attributes, outcome != "delivered");
    }
    let now = shared.world.now();
    match verdict {
        Verdict::Delivered => {
            let lag = now.duration_since(finished).unwrap_or_default();
            metrics::JOBS_DELIVERY_LAG.with(&[]).record(lag.as_secs_f64());
            Next::Delivered
        }
        Verdict::Again { after, error } => Next::Again { at: now + after, error },
        Verdict::Dead { error } => Next::Dead { error },
    }
}

fn message(secret: &SigningSecret, delivery: Delivery, now: SystemTime) -> Message {
    let id = delivery.id.to_string();
    let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let signature = secret.sign(&id, timestamp, &delivery.body);
    let mut headers = HeaderMap::new();
    let media_type = delivery.media_type.as_deref().and_then(|own| HeaderValue::from_str(own).ok());
    headers.insert(CONTENT_TYPE, media_type.unwrap_or(HeaderValue::from_static("application/json")));
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(timestamp));
    headers.insert(ATTEMPT, HeaderValue::from(u64::from(delivery.attempts) + 1));
    let texts = [
        (WEBHOOK_ID, &id),
        (IDEMPOTENCY_KEY, &id),
        (WEBHOOK_SIGNATURE, &signature),
        (DG_TOKEN, &delivery.key),
    ];
    for (name, text) in texts {
        // All of these consist of letters, digits and a few signs.
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
    Message { method: delivery.method, url: delivery.callback, headers, body: Bytes::from(delivery.body) }
}
