//! Metrics under the names of the hosted API's own self-hosted servers, so that its published dashboard, alerts, autoscaling
//! rules and load scripts work unmodified.
//!
//! Names, labels and buckets are those of its metrics guide (<https://developers.deepgram.com/docs/metrics-guide>); values
//! come from the same places as those of the other metrics.

use metrics::Unit;

use super::instruments::{Counter, Gauge, Histogram, counter, gauge, seconds};

/// Seconds: those of the guide.
const BATCH_BUCKETS: &[f64] = &[1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Seconds: those of the guide.
const STREAM_BUCKETS: &[f64] = &[
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 5.0,
    10.0,
];

pub const ACTIVE: Gauge = gauge(
    "engine_active_requests",
    Unit::Count,
    "Requests in progress, by kind: batch (files, also of jobs), stream (live streams and conversations), tts (speech).",
);
pub const ACTIVE_MAX: Gauge = gauge(
    "engine_max_active_requests",
    Unit::Count,
    "Requests that the server would admit at its present speed: files and streams together.",
);
pub const STREAM_CAPACITY: Gauge = gauge(
    "engine_estimated_stream_capacity",
    Unit::Count,
    "Live streams that the engine can serve in time, as measured; 0 while it does not work.",
);
pub const REQUESTS: Counter = counter(
    "engine_requests_total",
    Unit::Count,
    "Requests that ended, by kind and class of status: 2xx, 4xx, 5xx.",
);
pub const BATCH_TIME: Histogram = seconds(
    "engine_batch_response_time_seconds",
    "From a request with a file to its answer; of those that succeeded.",
    BATCH_BUCKETS,
);
pub const STREAM_LATENCY: Histogram = seconds(
    "engine_stream_latency",
    "From the newest audio of a window of a live stream to its words, in seconds.",
    STREAM_BUCKETS,
);

pub(super) const COUNTERS: [&Counter; 1] = [&REQUESTS];
pub(super) const GAUGES: [&Gauge; 3] = [&ACTIVE, &ACTIVE_MAX, &STREAM_CAPACITY];
pub(super) const HISTOGRAMS: [&Histogram; 2] = [&BATCH_TIME, &STREAM_LATENCY];
