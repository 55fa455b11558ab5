//! `verbatim top`: the figures of a running server, again and again, from its `/metrics`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use url::Url;

use super::output::print;
use crate::config::Config;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Moves to the upper left corner and clears what is below it (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";
const BAR_COLUMNS: usize = 24;

#[derive(Args)]
pub struct Arguments {
    /// The server, or its `metrics.listen`; `https` for one with TLS. Default: `metrics.listen` of the settings, otherwise where
    /// `serve` listens.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// An operator's key (`verbatim keys create --operator`). `metrics.listen` needs none.
    #[arg(long, env = "VERBATIM_OPERATOR_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// From one look to the next, such as 2s or 500ms.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// Ends after so many looks. Default: on a terminal never, otherwise after one.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub async fn run(config: &Config, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let server = match arguments.url {
        Some(url) => url,
        None => match config.metrics.listen {
            Some(address) => Url::parse(&format!("http://{address}"))?,
            None => {
                let scheme = if config.http.tls.is_some() { "https" } else { "http" };
                Url::parse(&format!("{scheme}://{}", config.listen))?
            }
        },
    };
    // Fails if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build()?;
    let look = async || {
        let mut asked = client.get(server.join("/metrics")?);
        if let Some(key) = &arguments.key {
            asked = asked.bearer_auth(key);
        }
        let answer = asked.send().await.with_context(|| format!("the server at {server}"))?;
        match answer.status().as_u16() {
            200 => {}
            401 | 403 => anyhow::bail!("the figures of {server} need an operator's key: --key"),
            status => anyhow::bail!("{server} answers {status} instead of its figures"),
        }
        anyhow::Ok(Look { figures: Figures::read(&answer.text().await?), at: Instant::now() })
    };
    let is_terminal = std::io::stdout().is_terminal();
    let count = arguments.count.unwrap_or(if is_terminal { u64::MAX } else { 1 });
    let mut before = look().await?;
    for _ in 0..count {
        tokio::time::sleep(arguments.interval).await;
        let now = look().await?;
        let text = show(server.as_str(), &before, &now);
        if is_terminal {
            print(&format!("{CLEAR}{text}"))?;
        } else {
            print(&text)?;
        }
        before = now;
    }
    Ok(ExitCode::SUCCESS)
}

/// All figures at one moment.
struct Look {
    figures: Figures,
    at: Instant,
}

/// The samples of an exposition: name, labels as they stand there, value.
#[derive(Default)]
struct Figures(Vec<(String, String, f64)>);

impl Figures {
    fn read(exposition: &str) -> Self {
        let sample = |line: &str| {
            let (metric, value) = line.rsplit_once(' ')?;
            let (name, labels) = metric.split_once('{').unwrap_or((metric, ""));
            let value = value.parse::<f64>().ok().filter(|value| value.is_finite())?;
            Some((name.to_owned(), labels.trim_end_matches('}').to_owned(), value))
        };
        Self(exposition.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let is_named = move |(known, labels, value): &'a (String, String, f64)| {
            (known == name).then_some((labels.as_str(), *value))
        };
        self.0.iter().filter_map(is_named)
    }

    /// The sum over all labels that contain `label`.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let values = self.of(name).filter(|(labels, _)| labels.contains(label)).map(|(_, value)| value);
        // The sum of none is -0, which is shown as such.
        values.fold(0.0, |sum, value| sum + value)
    }

    fn total(&self, name: &str) -> f64 {
        self.sum(name, "")
    }
}

/// The value of a label.
fn value_of<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// One page of figures.
fn show(server: &str, before: &Look, now: &Look) -> String {
    let (was, is) = (&before.figures, &now.figures);
    let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
    // A counter that fell is one of another process.
    let rate = |name: &str, label: &str| (is.sum(name, label) - was.sum(name, label)).max(0.0) / seconds;
    let version = is.of("verbatim_build_info").find_map(|(labels, _)| value_of(labels, "version"));
    let works = if is.total("stt_engine_works") > 0.0 { "works" } else { "DOES NOT WORK" };
    let mut page = format!("{server}  verbatim {}  the engine {works}\n\n", version.unwrap_or("?"));
    let mut line = |name: &str, text: String| page += &format!("{name:<10} {text}\n");

    let active = |kind: &str| is.sum("engine_active_requests", &format!("kind=\"{kind}\""));
    line(
        "in hand",
        format!(
            "files {}, streams {} of about {}, speech {}, agents' sessions {}, all HTTP requests {}",
            active("batch"),
            active("stream"),
            is.total("engine_estimated_stream_capacity"),
            active("tts"),
            is.total("sts_sessions"),
            is.total("http_server_active_requests"),
        ),
    );
    let (slots, used) = (is.total("stt_slots"), is.total("stt_slots_active"));
    line("slots", format!("{} {used} of {slots}", bar(used, slots)));
    let queue = ["live", "interactive", "job"].map(|class| {
        let label = format!("class=\"{class}\"");
        let (windows, age) =
            (is.sum("stt_queue_windows", &label), is.sum("stt_queue_oldest_age_seconds", &label));
        format!("{class} {windows} (oldest {age:.1} s)")
    });
    line("queue", queue.join(", "));
    line(
        "audio",
        format!(
            "{:.1} s done per second, real-time factor {:.1}, {:.0} s in hand, which take {:.1} s",
            rate("stt_audio_done_seconds_total", ""),
            is.total("stt_real_time_factor"),
            is.total("stt_held_audio_seconds"),
            is.total("stt_held_wait_seconds"),
        ),
    );
    line("answers", answers(was, is, seconds));
    let refused = ["busy", "share", "unwell"]
        .map(|reason| format!("{reason} {:.1}", rate("stt_refused_total", &format!("reason=\"{reason}\""))));
    line("refused", format!("{} per second", refused.join(", ")));
    let mut jobs = is.of("verbatim_jobs").filter(|(_, count)| *count > 0.0).collect::<Vec<_>>();
    jobs.sort_by_key(|(labels, _)| *labels);
    let jobs: Vec<String> = jobs
        .into_iter()
        .map(|(labels, count)| format!("{} {count}", value_of(labels, "phase").unwrap_or(labels)))
        .collect();
    line("jobs", if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") });
    let (memory, peak) =
        (is.total("process_resident_memory_bytes"), is.total("process_resident_memory_peak_bytes"));
    line("memory", format!("{:.0} MiB, {:.0} at most", memory / MIB, peak / MIB));
    for (labels, total) in is.of("gpu_memory_bytes") {
        let free = is.sum("gpu_memory_free_bytes", labels);
        let used = is.of("gpu_used_ratio").find(|(other, _)| *other == labels).map(|(_, used)| used);
        let busy =
            used.map_or("no figure".to_owned(), |used| format!("{} {:.0} %", bar(used, 1.0), used * 100.0));
        let name = format!("gpu {}", value_of(labels, "gpu").unwrap_or("?"));
        line(&name, format!("{busy}, {:.1} of {:.1} GiB", (total - free) / GIB, total / GIB));
    }
    page
}

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// HTTP answers per second, by class of status.
fn answers(was: &Figures, is: &Figures, seconds: f64) -> String {
    const COUNT: &str = "http_server_request_duration_seconds_count";
    let by_class = |figures: &Figures| {
        let mut counts = BTreeMap::new();
        for (labels, count) in figures.of(COUNT) {
            let class = value_of(labels, "status").and_then(|status| status.chars().next()).unwrap_or('?');
            *counts.entry(class).or_insert(0.0) += count;
        }
        counts
    };
    let (was, is) = (by_class(was), by_class(is));
    let per_second = ['2', '4', '5'].map(|class| {
        let grown = is.get(&class).unwrap_or(&0.0) - was.get(&class).unwrap_or(&0.0);
        format!("{class}xx {:.1}", grown.max(0.0) / seconds)
    });
    format!("{} per second", per_second.join(", "))
}

/// `part` of `whole` as a bar.
fn bar(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * BAR_COLUMNS as f64).round() as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR_COLUMNS - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# TYPE stt_slots gauge
stt_slots 8
http_server_request_duration_seconds_count{method=\"POST\",route=\"/v1/listen\",status=\"200\"} 10
";
    const NOW: &str = "\
verbatim_build_info{version=\"1.2.3\"} 1
stt_engine_works 1
stt_slots 8
stt_slots_active 6
stt_queue_windows{class=\"interactive\"} 3
stt_queue_oldest_age_seconds{class=\"interactive\"} 0.5
engine_active_requests{kind=\"batch\"} 4
engine_active_requests{kind=\"stream\"} 2
engine_estimated_stream_capacity 40
http_server_request_duration_seconds_count{method=\"POST\",route=\"/v1/listen\",status=\"200\"} 18
http_server_request_duration_seconds_count{method=\"any\",route=\"any\",status=\"503\"} 2
stt_refused_total{reason=\"busy\"} 2
verbatim_jobs{phase=\"running\"} 1
process_resident_memory_bytes 104857600
gpu_memory_bytes{gpu=\"0\"} 85899345920
gpu_memory_free_bytes{gpu=\"0\"} 64424509440
gpu_used_ratio{gpu=\"0\"} 0.5
";

    #[test]
    fn a_page_shows_what_is_and_what_grew() {
        let at = Instant::now();
        let look =
            |text, seconds| Look { figures: Figures::read(text), at: at + Duration::from_secs(seconds) };
        let page = show("http://here/", &look(BEFORE, 0), &look(NOW, 2));
        for expected in [
            "http://here/  verbatim 1.2.3  the engine works",
            "files 4, streams 2 of about 40, speech 0",
            "[##################------] 6 of 8",
            "live 0 (oldest 0.0 s), interactive 3 (oldest 0.5 s)",
            "2xx 4.0, 4xx 0.0, 5xx 1.0 per second",
            "busy 1.0, share 0.0",
            "jobs       running 1",
            "memory     100 MiB",
            "gpu 0      [############------------] 50 %, 20.0 of 80.0 GiB",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }
}
