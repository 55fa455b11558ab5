//! The figures of the last hour, in a ring in memory: [`SAMPLES`] samples of [`SERIES`], some 140 KB.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// From one sample to the next.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// An hour.
pub const SAMPLES: usize = 720;

/// How a series is made of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The sum over its labels.
    Sum,
    Most,
    /// How much it grew in a second, since the sample before.
    Rate,
    /// How much it grew since the sample before.
    Growth,
}

/// Name of the series, of the metric, a label that it must have, and how it is made.
type Series = (&'static str, &'static str, &'static str, Kind);

/// The recorded series of `/metrics`.
const SERIES: [Series; 23] = [
    ("queue_live", "stt_queue_windows", "class=\"live\"", Kind::Sum),
    ("queue_interactive", "stt_queue_windows", "class=\"interactive\"", Kind::Sum),
    ("queue_job", "stt_queue_windows", "class=\"job\"", Kind::Sum),
    ("queue_age_seconds", "stt_queue_oldest_age_seconds", "", Kind::Most),
    ("slots", "stt_slots", "", Kind::Sum),
    ("slots_active", "stt_slots_active", "", Kind::Sum),
    ("real_time_factor", "stt_real_time_factor", "", Kind::Sum),
    ("audio_rate", "stt_audio_done_seconds_total", "", Kind::Rate),
    ("held_audio_seconds", "stt_held_audio_seconds", "", Kind::Sum),
    ("held_requests", "stt_held_requests", "", Kind::Sum),
    ("active_requests", "http_server_active_requests", "", Kind::Sum),
    ("streams", "stt_active_streams", "", Kind::Sum),
    ("speak_streams", "tts_active_streams", "", Kind::Sum),
    ("sessions", "sts_sessions", "", Kind::Sum),
    ("refused_busy", "stt_refused_total", "reason=\"busy\"", Kind::Growth),
    ("refused_share", "stt_refused_total", "reason=\"share\"", Kind::Growth),
    ("refused_unwell", "stt_refused_total", "reason=\"unwell\"", Kind::Growth),
    ("refused_jobs", "verbatim_jobs_refused_total", "", Kind::Growth),
    ("refused_speak", "tts_refused_total", "", Kind::Growth),
    ("memory_bytes", "process_resident_memory_bytes", "", Kind::Sum),
    ("gpu_used", "gpu_used_ratio", "", Kind::Most),
    ("gpu_memory_bytes", "gpu_memory_bytes", "", Kind::Sum),
    ("gpu_memory_free_bytes", "gpu_memory_free_bytes", "", Kind::Sum),
];

struct Sample {
    unix_ms: u64,
    values: [f64; SERIES.len()],
}

/// The newest samples, each with a number.
#[derive(Default)]
pub struct Ring {
    samples: VecDeque<Sample>,
    /// The number of the next sample.
    next: u64,
    /// The totals of the counters at the last sample.
    totals: Option<[f64; SERIES.len()]>,
}

impl Ring {
    /// Adds a sample of `exposition`, the text of `/metrics`, taken at `unix_ms`.
    pub fn add(&mut self, exposition: &str, unix_ms: u64) {
        let totals = totals(exposition);
        let before = self.totals.replace(totals).unwrap_or(totals);
        let mut values = totals;
        for (((_, _, _, kind), value), before) in SERIES.iter().zip(&mut values).zip(before) {
            match kind {
                Kind::Sum | Kind::Most => {}
                // A counter that fell is another one.
                Kind::Growth => *value = (*value - before).max(0.0),
                Kind::Rate => *value = (*value - before).max(0.0) / INTERVAL.as_secs_f64(),
            }
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { unix_ms, values });
        self.next += 1;
    }

    /// The samples from the number `from` on: `{"next": …, "unix_ms": […], "series": {"slots": […], …}}`.
    pub fn since(&self, from: u64) -> Value {
        let first = self.next - self.samples.len() as u64;
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        // A number from the future is one of another process.
        let skip = if from > self.next { 0 } else { skip };
        let column = |place: usize| -> Vec<f64> {
            let values = self.samples.iter().skip(skip).filter_map(|sample| sample.values.get(place));
            values.map(|value| (value * 1000.0).round() / 1000.0).collect()
        };
        let series: Map<String, Value> = SERIES
            .iter()
            .enumerate()
            .map(|(place, (name, ..))| ((*name).to_owned(), json!(column(place))))
            .collect();
        let times: Vec<u64> = self.samples.iter().skip(skip).map(|sample| sample.unix_ms).collect();
        json!({ "next": self.next, "unix_ms": times, "series": series })
    }
}

/// The value of each series' metric in the text format of Prometheus.
fn totals(exposition: &str) -> [f64; SERIES.len()] {
    let mut totals = [0.0; SERIES.len()];
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let Some((metric, value)) = line.rsplit_once(' ') else { continue };
        let (name, labels) = metric.split_once('{').unwrap_or((metric, ""));
        let Some(value) = value.parse::<f64>().ok().filter(|value| value.is_finite()) else { continue };
        for ((_, wanted, label, kind), total) in SERIES.iter().zip(&mut totals) {
            if *wanted == name && labels.contains(label) {
                *total = if *kind == Kind::Most { value.max(*total) } else { *total + value };
            }
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition(queue: u32, refused: u32, done: u32) -> String {
        format!(
            "# HELP stt_queue_windows Windows.\n# TYPE stt_queue_windows gauge\n\
             stt_queue_windows{{class=\"live\"}} {queue}\nstt_queue_windows{{class=\"job\"}} 7\n\
             stt_queue_oldest_age_seconds{{class=\"live\"}} 0.5\nstt_queue_oldest_age_seconds{{class=\"job\"}} 2.25\n\
             stt_refused_total{{reason=\"busy\"}} {refused}\nstt_real_time_factor NaN\n\
             stt_audio_done_seconds_total{{class=\"live\"}} {done}\nstt_audio_done_seconds_total{{class=\"job\"}} 0\n\
             gpu_used_ratio{{gpu=\"0\"}} 0.25\ngpu_used_ratio{{gpu=\"1\"}} 0.75\n\
             gpu_memory_free_bytes{{gpu=\"0\"}} 1000\ngpu_memory_free_bytes{{gpu=\"1\"}} 500\n"
        )
    }

    #[test]
    fn figures_are_those_of_the_metrics() {
        let mut ring = Ring::default();
        ring.add(&exposition(3, 10, 100), 1000);
        ring.add(&exposition(4, 12, 130), 6000);
        let all = ring.since(0);
        assert_eq!(all["next"], 2);
        assert_eq!(all["unix_ms"], json!([1000, 6000]));
        for (series, expected) in [
            ("queue_live", json!([3.0, 4.0])),
            ("queue_job", json!([7.0, 7.0])),
            ("queue_interactive", json!([0.0, 0.0])),
            ("queue_age_seconds", json!([2.25, 2.25])),
            ("refused_busy", json!([0.0, 2.0])),
            ("audio_rate", json!([0.0, 6.0])),
            ("real_time_factor", json!([0.0, 0.0])),
            ("gpu_used", json!([0.75, 0.75])),
            ("gpu_memory_free_bytes", json!([1500.0, 1500.0])),
            ("gpu_memory_bytes", json!([0.0, 0.0])),
        ] {
            assert_eq!(all["series"][series], expected, "{series}");
        }
        // The process behind the counters is another one.
        ring.add(&exposition(4, 0, 0), 11_000);
        assert_eq!(ring.since(2)["series"]["refused_busy"], json!([0.0]));
        assert_eq!(ring.since(3)["unix_ms"], json!([]));
        assert_eq!(ring.since(99)["unix_ms"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn the_ring_keeps_an_hour() {
        let mut ring = Ring::default();
        for number in 0..SAMPLES as u64 + 5 {
            ring.add("", number);
        }
        let all = ring.since(0);
        assert_eq!(all["unix_ms"].as_array().unwrap().len(), SAMPLES);
        assert_eq!(all["unix_ms"][0], 5);
        assert_eq!(ring.since(SAMPLES as u64 + 4)["unix_ms"], json!([SAMPLES as u64 + 4]));
        assert!(SAMPLES * size_of::<Sample>() < 200_000);
        assert_eq!(INTERVAL * SAMPLES as u32, Duration::from_secs(3600));
    }
}
