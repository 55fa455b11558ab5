//! The metrics: name, kind, help and buckets of each on one page, and the text that Prometheus reads.
//!
//! Names and units follow the conventions of Prometheus (<https://prometheus.io/docs/practices/naming/>):
//! base units, `_total` on counters. No label takes more than a few values, and clients choose none of them.
//! Counters are whole numbers: those of seconds drop the fraction.

use std::net::SocketAddr;
use std::sync::OnceLock;

use metrics::{Label, Unit};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};

use super::gpu;

/// Settings of the metrics. `/metrics` on the server's own port always serves them to an operator's key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port of a listener for operators only: `/metrics`, `/health`, `/livez` and `/readyz`,
    /// plain HTTP, no key. Default: none.
    pub listen: Option<SocketAddr>,
}

/// The number of series, buckets included, stays below this.
pub const SERIES_MAX: usize = 2000;

/// The media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub type Labels<'a> = &'a [(&'static str, &'static str)];

/// A counter. Handles made before [`start`] never count.
pub struct Counter(About);
/// A value that rises and falls. Handles made before [`start`] never count.
pub struct Gauge(About);
/// A distribution in buckets. Handles made before [`start`] never count.
pub struct Histogram(About, &'static [f64]);

struct About {
    name: &'static str,
    unit: Unit,
    help: &'static str,
}

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Counter {
    Counter(About { name, unit, help })
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Gauge {
    Gauge(About { name, unit, help })
}

const fn seconds(name: &'static str, help: &'static str, buckets: &'static [f64]) -> Histogram {
    Histogram(About { name, unit: Unit::Seconds, help }, buckets)
}

/// Seconds, from a step of a fast device to a file of hours.
const BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// The buckets of OpenTelemetry's HTTP conventions, and two more for long files.
const HTTP_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0];

/// Seconds, from a receiver that answers at once to one that comes back after a day.
const JOB_BUCKETS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 1800.0, 7200.0, 18_000.0, 86_400.0];

pub const WINDOWS: Counter = counter(
    "stt_windows_total",
    Unit::Count,
    "Windows that left the engine, by class and outcome: recognised, failed, expired, abandoned.",
);
pub const TOKENS: Counter = counter("stt_tokens_total", Unit::Count, "Tokens decoded.");
pub const STEPS: Counter = counter(
    "stt_decode_steps_total",
    Unit::Count,
    "Steps of the decode batch; tokens over steps is the mean number of slots in use.",
);
pub const AUDIO_IN: Counter =
    counter("stt_audio_in_seconds_total", Unit::Seconds, "Audio handed to the engine, by class.");
pub const AUDIO_DONE: Counter =
    counter("stt_audio_done_seconds_total", Unit::Seconds, "Audio recognised, by class.");
pub const DIARIZED: Counter =
    counter("stt_diarized_seconds_total", Unit::Seconds, "Audio of files with diarization.");
pub const BUSY: Counter =
    counter("stt_engine_busy_seconds_total", Unit::Seconds, "Time that the engine spent in the model.");
pub const MODEL_BUSY: Counter = counter(
    "stt_model_busy_seconds_total",
    Unit::Seconds,
    "Time that the engine spent in each model, by model.",
);
pub const MODEL_AUDIO_DONE: Counter = counter(
    "stt_model_audio_done_seconds_total",
    Unit::Seconds,
    "Audio that each model recognised, by model.",
);
pub const MODEL_LOADS: Counter = counter(
    "stt_model_loads_total",
    Unit::Count,
    "Loads of models, by model and outcome: loaded, no_room (too little memory), failed.",
);
pub const MODEL_UNLOADS: Counter = counter(
    "stt_model_unloads_total",
    Unit::Count,
    "Models unloaded, by model and reason: idle, room (for another one).",
);
pub const REFUSED: Counter = counter(
    "stt_refused_total",
    Unit::Count,
    "Requests refused, by reason: busy (too much to do), share (the organisation holds its share), unwell (the \
     engine does not work).",
);
pub const MODEL_LOADED: Gauge =
    gauge("stt_model_loaded", Unit::Count, "1 while the model is loaded, otherwise 0, by model.");
pub const MODEL_SLOTS_ACTIVE: Gauge =
    gauge("stt_model_slots_active", Unit::Count, "Slots in use, by model; of loaded models.");
pub const MODEL_QUEUE_WINDOWS: Gauge = gauge(
    "stt_model_queue_windows",
    Unit::Count,
    "Windows that wait for a slot, by model; of loaded models.",
);
pub const SLOTS: Gauge = gauge("stt_slots", Unit::Count, "Windows that can be decoded side by side.");
pub const SLOTS_ACTIVE: Gauge = gauge("stt_slots_active", Unit::Count, "Slots in use.");
pub const QUEUE_WINDOWS: Gauge =
    gauge("stt_queue_windows", Unit::Count, "Windows that wait for a slot, by class.");
pub const QUEUE_AGE: Gauge =
    gauge("stt_queue_oldest_age_seconds", Unit::Seconds, "How long the oldest of them has waited, by class.");
pub const HELD_REQUESTS: Gauge =
    gauge("stt_held_requests", Unit::Count, "Requests let in and not yet answered.");
pub const HELD_AUDIO: Gauge =
    gauge("stt_held_audio_seconds", Unit::Seconds, "Audio accepted and not yet recognised.");
pub const HELD_WAIT: Gauge =
    gauge("stt_held_wait_seconds", Unit::Seconds, "How long what is held will take, as measured.");
pub const REAL_TIME_FACTOR: Gauge = gauge(
    "stt_real_time_factor",
    Unit::Count,
    "Audio seconds that the engine does in a second of work, over the last 15 or so.",
);
pub const ENGINE_WORKS: Gauge =
    gauge("stt_engine_works", Unit::Count, "1 while the engine works, 0 while it hangs or fails.");
pub const QUEUE_WAIT: Histogram =
    seconds("stt_queue_wait_seconds", "From a window's arrival to its encoding, by class.", BUCKETS);
pub const ENCODE: Histogram =
    seconds("stt_encode_duration_seconds", "One call of the encoder, for a batch of windows.", BUCKETS);
pub const SPEAKERS_BATCH: Histogram = seconds(
    "stt_speakers_batch_duration_seconds",
    "One batch of a network of diarization, by network.",
    BUCKETS,
);
pub const DECODE: Histogram =
    seconds("stt_decode_duration_seconds", "From a window's encoding to its answer, by class.", BUCKETS);
pub const VOICE_WITHOUT_WORDS: Histogram = seconds(
    "stt_voice_without_words_seconds",
    "Voice in a channel of a file or stream that gave no words.",
    BUCKETS,
);
pub const LABELLING: Histogram = seconds(
    "stt_labelling_duration_seconds",
    "From the final words of a live stream to their speakers, with `diarize`.",
    BUCKETS,
);
pub const UNLABELLED: Counter = counter(
    "stt_unlabelled_results_total",
    Unit::Count,
    "Final results of live streams sent without the speakers asked for, by reason: late (their words have the speaker \
     before), failed (they have none).",
);
pub const HTTP_REQUEST: Histogram = seconds(
    "http_server_request_duration_seconds",
    "From a request's head to the head of its answer, by method, route and status; refusals and errors by status alone.",
    HTTP_BUCKETS,
);
pub const MEMORY: Gauge =
    gauge("process_resident_memory_bytes", Unit::Bytes, "Memory that the process takes up.");
pub const MEMORY_PEAK: Gauge =
    gauge("process_resident_memory_peak_bytes", Unit::Bytes, "The most that it ever took up.");
pub const GPU_USED: Gauge =
    gauge("gpu_used_ratio", Unit::Count, "Part of the time in which a GPU computed, 0 to 1.");
pub const GPU_MEMORY: Gauge = gauge("gpu_memory_bytes", Unit::Bytes, "Memory of a GPU.");
pub const GPU_MEMORY_FREE: Gauge = gauge("gpu_memory_free_bytes", Unit::Bytes, "Free memory of a GPU.");
pub const BUILD: Gauge = gauge("verbatim_build_info", Unit::Count, "1; its label is the version.");

pub const JOBS_ACCEPTED: Counter = counter("verbatim_jobs_accepted_total", Unit::Count, "Jobs accepted.");
pub const JOBS_REFUSED: Counter = counter(
    "verbatim_jobs_refused_total",
    Unit::Count,
    "Jobs refused, by the limit that was reached: room, share, disk.",
);
pub const JOBS_RUNS: Counter =
    counter("verbatim_jobs_runs_total", Unit::Count, "Transcriptions of jobs, by how they ended.");
pub const JOBS_ATTEMPTS: Counter =
    counter("verbatim_jobs_attempts_total", Unit::Count, "Deliveries of results tried, by how they ended.");
pub const JOBS: Gauge = gauge("verbatim_jobs", Unit::Count, "Jobs, by phase.");
pub const JOBS_OLDEST_PENDING: Gauge =
    gauge("verbatim_jobs_oldest_pending_seconds", Unit::Seconds, "Age of the oldest job that has not ended.");
pub const JOBS_SPOOL: Gauge =
    gauge("verbatim_jobs_spool_bytes", Unit::Bytes, "Audio of jobs that waits on disk.");
pub const JOBS_QUARANTINED: Gauge =
    gauge("verbatim_jobs_quarantined", Unit::Count, "Files that belong to no job and were set aside.");
pub const JOBS_DELIVERY_LAG: Histogram =
    seconds("verbatim_jobs_delivery_lag_seconds", "From a job's result to its delivery.", JOB_BUCKETS);
pub const CLUSTER_CONNECTED: Gauge =
    gauge("verbatim_cluster_connected", Unit::Count, "1 while this node is connected to its cluster's broker.");
pub const USAGE_DROPPED: Counter = counter(
    "verbatim_usage_dropped_total",
    Unit::Count,
    "Requests that the log of use lacks, because the disk did not keep up or failed.",
);
pub const HTTP_ACTIVE: Gauge =
    gauge("http_server_active_requests", Unit::Count, "HTTP requests in progress.");
pub const STREAMS: Gauge = gauge("stt_active_streams", Unit::Count, "Open live streams.");
pub const SESSIONS: Gauge = gauge("sts_sessions", Unit::Count, "Open sessions of the voice agent.");
pub const SESSIONS_HELD: Gauge = gauge(
    "sts_held_bytes",
    Unit::Bytes,
    "Memory that open sessions hold: their start parameters and everything read for them.",
);
pub const SESSIONS_KEPT: Gauge =
    gauge("sts_kept_sessions", Unit::Count, "Ended sessions of the voice agent that can still be looked at.");
pub const SESSIONS_KEPT_BYTES: Gauge = gauge("sts_kept_bytes", Unit::Bytes, "Disk space that they take up.");
pub const FIRST_AUDIO: Histogram = seconds(
    "sts_first_audio_seconds",
    "From the end of a caller's speech to the agent's first sound.",
    BUCKETS,
);
pub const TTS_CHARACTERS: Counter =
    counter("tts_characters_total", Unit::Count, "Characters spoken for clients.");
pub const TTS_AUDIO: Counter = counter("tts_audio_seconds_total", Unit::Seconds, "Speech made for clients.");
pub const TTS_REFUSED: Counter = counter(
    "tts_refused_total",
    Unit::Count,
    "Texts and streams refused, by reason: busy (too much to speak), share (the organisation holds its share).",
);
pub const TTS_STREAMS: Gauge = gauge("tts_active_streams", Unit::Count, "Open streams of text to speak.");
pub const TTS_FIRST_AUDIO: Histogram = seconds(
    "tts_first_audio_seconds",
    "From a text to its first bytes of audio, by surface: request, stream (from the flush or the sentence's end).",
    BUCKETS,
);

const COUNTERS: [&Counter; 21] = [
    &WINDOWS,
    &TOKENS,
    &STEPS,
    &AUDIO_IN,
    &AUDIO_DONE,
    &DIARIZED,
    &BUSY,
    &MODEL_BUSY,
    &MODEL_AUDIO_DONE,
    &MODEL_LOADS,
    &MODEL_UNLOADS,
    &REFUSED,
    &UNLABELLED,
    &JOBS_ACCEPTED,
    &JOBS_REFUSED,
    &JOBS_RUNS,
    &JOBS_ATTEMPTS,
    &TTS_CHARACTERS,
    &TTS_AUDIO,
    &TTS_REFUSED,
    &USAGE_DROPPED,
];
const GAUGES: [&Gauge; 30] = [
    &MODEL_LOADED,
    &MODEL_SLOTS_ACTIVE,
    &MODEL_QUEUE_WINDOWS,
    &SLOTS,
    &SLOTS_ACTIVE,
    &QUEUE_WINDOWS,
    &QUEUE_AGE,
    &HELD_REQUESTS,
    &HELD_AUDIO,
    &HELD_WAIT,
    &REAL_TIME_FACTOR,
    &ENGINE_WORKS,
    &MEMORY,
    &MEMORY_PEAK,
    &GPU_USED,
    &GPU_MEMORY,
    &GPU_MEMORY_FREE,
    &BUILD,
    &JOBS,
    &JOBS_OLDEST_PENDING,
    &JOBS_SPOOL,
    &JOBS_QUARANTINED,
    &CLUSTER_CONNECTED,
    &HTTP_ACTIVE,
    &STREAMS,
    &SESSIONS,
    &SESSIONS_HELD,
    &SESSIONS_KEPT,
    &SESSIONS_KEPT_BYTES,
    &TTS_STREAMS,
];
const HISTOGRAMS: [&Histogram; 10] = [
    &QUEUE_WAIT,
    &ENCODE,
    &DECODE,
    &SPEAKERS_BATCH,
    &VOICE_WITHOUT_WORDS,
    &LABELLING,
    &HTTP_REQUEST,
    &JOBS_DELIVERY_LAG,
    &FIRST_AUDIO,
    &TTS_FIRST_AUDIO,
];

fn labels(labels: Labels) -> Vec<Label> {
    labels.iter().map(|&(name, value)| Label::from_static_parts(name, value)).collect()
}

/// The label of a served model. Operators choose the names, of which there are a few.
pub fn model(name: &str) -> Label {
    Label::new("model", name.to_owned())
}

/// A label with one of a few values.
pub fn label(name: &'static str, value: &'static str) -> Label {
    Label::from_static_parts(name, value)
}

impl Counter {
    pub fn with(&self, with: Labels) -> metrics::Counter {
        metrics::counter!(self.0.name, labels(with))
    }

    /// With labels that are made at run time.
    pub fn with_owned(&self, with: Vec<Label>) -> metrics::Counter {
        metrics::counter!(self.0.name, with)
    }
}

impl Gauge {
    pub fn with(&self, with: Labels) -> metrics::Gauge {
        metrics::gauge!(self.0.name, labels(with))
    }

    /// With labels that are made at run time.
    pub fn with_owned(&self, with: Vec<Label>) -> metrics::Gauge {
        metrics::gauge!(self.0.name, with)
    }
}

impl Histogram {
    pub fn with(&self, with: Labels) -> metrics::Histogram {
        metrics::histogram!(self.0.name, labels(with))
    }

    /// With labels that are made at run time.
    pub fn with_owned(&self, with: Vec<Label>) -> metrics::Histogram {
        metrics::histogram!(self.0.name, with)
    }
}

static EXPOSITION: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Starts counting, for the whole process; a second call changes nothing.
pub fn start() {
    EXPOSITION.get_or_init(|| {
        let installed = install();
        if let Err(error) = &installed {
            tracing::warn!(%error, "there will be no metrics");
        }
        installed.ok()
    });
}

fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for Histogram(about, buckets) in HISTOGRAMS {
        builder = builder.set_buckets_for_metric(Matcher::Full(about.name.to_owned()), buckets)?;
    }
    let handle = builder.install_recorder()?;
    for Counter(about) in COUNTERS {
        metrics::describe_counter!(about.name, about.unit, about.help);
    }
    for Gauge(about) in GAUGES {
        metrics::describe_gauge!(about.name, about.unit, about.help);
    }
    for Histogram(about, _) in HISTOGRAMS {
        metrics::describe_histogram!(about.name, about.unit, about.help);
    }
    BUILD.with(&[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
    Ok(handle)
}

/// All metrics in the text format of Prometheus; `None` before [`start`]. The caller first sets the gauges that show a
/// momentary state.
pub fn render() -> Option<String> {
    let handle = EXPOSITION.get()?.as_ref()?;
    if let Some(memory) = memory() {
        MEMORY.with(&[]).set(memory.resident as f64);
        MEMORY_PEAK.with(&[]).set(memory.peak as f64);
    }
    for gpu in gpu::gpus().unwrap_or_default() {
        let label = || vec![Label::new("gpu", gpu.index.to_string())];
        GPU_MEMORY.with_owned(label()).set(gpu.memory_total as f64);
        GPU_MEMORY_FREE.with_owned(label()).set(gpu.memory_free as f64);
        if let Some(used) = gpu.used {
            GPU_USED.with_owned(label()).set(used);
        }
    }
    handle.run_upkeep();
    Some(handle.render())
}

/// Merges the values that histograms have gathered. Call it from time to time where nothing reads the metrics, because
/// histograms keep every value until then.
pub fn sum_up() {
    if let Some(Some(handle)) = EXPOSITION.get() {
        handle.run_upkeep();
    }
}

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
}

/// `VmRSS` and `VmHWM` of `/proc/self/status` (proc(5)); `None` on systems without it.
pub fn memory() -> Option<Memory> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Memory { resident: field("VmRSS:")?, peak: field("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_all_described() {
        start();
        let mut names = HashSet::new();
        for Counter(about) in COUNTERS {
            assert!(about.name.ends_with("_total") && names.insert(about.name), "{}", about.name);
        }
        for about in GAUGES.map(|gauge| &gauge.0).into_iter().chain(HISTOGRAMS.map(|histogram| &histogram.0))
        {
            assert!(!about.name.ends_with("_total") && names.insert(about.name), "{}", about.name);
        }
        TOKENS.with(&[]).increment(1);
        ENCODE.with(&[]).record(0.02);
        let text = render().expect("started");
        for expected in [
            "# HELP stt_tokens_total Tokens decoded.",
            "# TYPE stt_tokens_total counter",
            "# TYPE stt_encode_duration_seconds histogram",
            "stt_encode_duration_seconds_bucket{le=\"0.025\"}",
            "process_resident_memory_bytes ",
            "verbatim_build_info{version=",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        // Every metric exposed, also by other tests of this process, has a line of help.
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().expect("a name");
            assert!(text.contains(&format!("# HELP {name} ")), "{name} is not described");
        }
    }
}
