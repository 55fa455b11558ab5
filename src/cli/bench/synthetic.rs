//! `verbatim bench --synthetic`: the device's speed with random weights of a model's shape, full-length windows and a given
//! number of tokens, compared with the device's peaks.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use futures_util::{StreamExt, stream};
use serde::Serialize;

use super::super::input;
use super::super::output::{Failure, print};
use super::percentile::percentile;
use crate::audio::Pcm;
use crate::config::Config;
use crate::engine::{self, Class, DecodingOptions, Engine, LanguageChoice, TenantId, WINDOW_SAMPLES, Window};
use crate::models::{self, Lengths, Shape};

const WINDOW_SECONDS: f64 = 30.0;
/// Default number of windows per slot: enough that the start and the end, when slots are empty, hardly count.
const ROUNDS: usize = 6;

#[derive(Args)]
pub struct Synthetic {
    /// Measure the device with random weights of this model's shape: tiny, base, small, medium, large-v3 or
    /// large-v3-turbo. Takes no files.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["files", "manifest", "server"])]
    pub synthetic: Option<String>,
    /// Tokens per window: a number, or a range over which they are spread.
    #[arg(long, default_value = "100", value_name = "N|MIN-MAX", requires = "synthetic")]
    tokens: String,
    /// Windows to measure; default six per slot.
    #[arg(long, value_name = "N", requires = "synthetic", value_parser = input::count)]
    windows: Option<usize>,
    /// The device's peak in TFLOP/s; known for some devices.
    #[arg(long, value_name = "TFLOPS", requires = "synthetic")]
    peak_tflops: Option<f64>,
    /// The peak of its memory in GB/s; known for some devices.
    #[arg(long, value_name = "GB/S", requires = "synthetic")]
    peak_gbs: Option<f64>,
}

/// Peaks by a part of the device's name: bf16 TFLOP/s without sparsity, and GB/s of memory. H200: measured with large
/// products and copies. The others: NVIDIA's data sheets.
const PEAKS: [(&str, f64, f64); 5] = [
    ("h200", 790.0, 4300.0),
    ("h100", 989.0, 3350.0),
    ("a100", 312.0, 2039.0),
    ("l40s", 362.0, 864.0),
    ("l4", 121.0, 300.0),
];

#[derive(Debug, Serialize)]
struct Report {
    shape: &'static str,
    device: String,
    slots: usize,
    concurrency: usize,
    tokens_of_a_window: String,
    windows: usize,
    wall_seconds: f64,
    windows_per_second: f64,
    rtfx: f64,
    tokens_per_second: f64,
    steps_per_second: f64,
    /// Mean number of windows that got a token in a step.
    windows_in_a_step: f64,
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
    teraflops: f64,
    gigabytes_per_second: f64,
    /// The time that the device's peaks allow, over the time taken.
    share_of_roofline: Option<f64>,
}

pub async fn run(
    config: Config,
    arguments: &Synthetic,
    concurrency: Option<usize>,
    json: Option<&std::path::Path>,
) -> Result<ExitCode, Failure> {
    let name = arguments.synthetic.as_deref().unwrap_or_default();
    let shape = Shape::named(name)
        .with_context(|| {
            let known = Shape::ALL.map(|shape| shape.name).join(", ");
            format!("`{name}` is none of {known}")
        })
        .map_err(Failure::Usage)?;
    let (min, max) = range(&arguments.tokens).map_err(Failure::Usage)?;
    let engine = start(&config, shape, Lengths::between(min, max)).await?;
    let slots = engine.model().slots;
    let concurrency = concurrency.unwrap_or(2 * slots);
    let windows = arguments.windows.unwrap_or(ROUNDS * slots);

    let pcm = Pcm::new(noise());
    measure(&engine, &pcm, slots.min(windows), concurrency).await?;
    let (begun, before) = (Instant::now(), engine.counts());
    let mut times = measure(&engine, &pcm, windows, concurrency).await?;
    let (wall, after) = (begun.elapsed().as_secs_f64(), engine.counts());
    times.sort_by(f64::total_cmp);

    let tokens = (min + max) as f64 / 2.0;
    // A mean token has half of its window's tokens before it, and four of the prompt.
    let text = tokens / 2.0 + 4.0;
    let count = windows as f64;
    // The name of the device says so if it keeps the audio's keys and values in fp8.
    let audio_bytes = if engine.model().device.contains("fp8") { 1.0 } else { 2.0 };
    let token_bytes = shape.token_bytes(text, audio_bytes);
    let steps = (after.steps - before.steps) as f64;
    let flops = count * (shape.window_flops() + tokens * shape.token_flops(text));
    let bytes = steps * shape.step_bytes() + count * tokens * token_bytes;
    let peak = |flag: Option<f64>, known: fn(&(&str, f64, f64)) -> f64| {
        let device = engine.model().device.to_lowercase();
        flag.or_else(|| PEAKS.iter().find(|(part, ..)| device.contains(part)).map(known))
    };
    let peaks = peak(arguments.peak_tflops, |p| p.1).zip(peak(arguments.peak_gbs, |p| p.2));
    let share_of_roofline = peaks.map(|(teraflops, gigabytes)| {
        let full_step = shape.step_bytes() / slots as f64 + token_bytes;
        let least = shape.window_flops() / (teraflops * 1e12) + tokens * full_step / (gigabytes * 1e9);
        count * least / wall
    });
    let report = Report {
        shape: shape.name,
        device: engine.model().device.clone(),
        slots,
        concurrency,
        tokens_of_a_window: arguments.tokens.clone(),
        windows,
        wall_seconds: wall,
        windows_per_second: count / wall,
        rtfx: WINDOW_SECONDS * count / wall,
        tokens_per_second: count * tokens / wall,
        steps_per_second: steps / wall,
        windows_in_a_step: (after.tokens - before.tokens) as f64 / steps.max(1.0),
        p50_seconds: percentile(&times, 0.5),
        p99_seconds: percentile(&times, 0.99),
        teraflops: flops / wall / 1e12,
        gigabytes_per_second: bytes / wall / 1e9,
        share_of_roofline,
    };
    print(&text_of(&report))?;
    if let Some(path) = json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `100`, or `20-220`.
fn range(text: &str) -> anyhow::Result<(usize, usize)> {
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|count| (1..=400).contains(count));
    let found = match text.split_once('-') {
        Some((min, max)) => number(min).zip(number(max)).filter(|(min, max)| min <= max),
        None => number(text).map(|count| (count, count)),
    };
    found.with_context(|| format!("`{text}` is neither a number of tokens nor a range, of 1 to 400"))
}

async fn start(config: &Config, shape: Shape, lengths: Lengths) -> anyhow::Result<Engine> {
    // `auto` would measure the CPU where a GPU's installation is broken.
    if config.models.device == models::DeviceChoice::Auto {
        anyhow::bail!("name the device to measure: --device cpu, cuda or cuda:N");
    }
    // The number of windows in progress bounds the work already, so the engine need not refuse any.
    let engine_config =
        engine::Config { stall_seconds: config.engine.stall_seconds, ..engine::Config::unbounded() };
    let load = models::each_device(&config.models)?.into_iter().map(|models| {
        let lengths = lengths.clone();
        move || models::synthetic(&shape, lengths, &models)
    });
    let load = load.collect::<Vec<_>>();
    let start = tokio::task::spawn_blocking(move || Engine::start_each(&engine_config, load));
    Ok(start.await.map_err(|_| anyhow!("the engine's start was broken off"))??)
}

/// Runs the windows at the given concurrency; returns the seconds that each took.
async fn measure(
    engine: &Engine,
    pcm: &Pcm,
    windows: usize,
    concurrency: usize,
) -> Result<Vec<f64>, engine::Error> {
    let one = |_| async {
        let begun = Instant::now();
        let admission = engine.admit(TenantId::default(), WINDOW_SECONDS)?;
        engine.recognize(&admission, window(pcm.clone())).await?;
        Ok(begun.elapsed())
    };
    let times: Vec<Result<Duration, engine::Error>> =
        stream::iter(0..windows).map(one).buffer_unordered(concurrency).collect().await;
    times.into_iter().map(|time| Ok(time?.as_secs_f64())).collect()
}

/// A window that is decoded in a single attempt, whose result is accepted as it is.
fn window(pcm: Pcm) -> Window {
    Window {
        pcm,
        options: DecodingOptions {
            language: LanguageChoice::Named("en".into()),
            temperatures: vec![0.0],
            compression_ratio_threshold: None,
            log_probability_threshold: None,
            no_speech_threshold: None,
            ..DecodingOptions::default()
        },
        class: Class::Interactive,
        tenant: TenantId::default(),
        deadline: None,
    }
}

/// Noise of a full window's length.
fn noise() -> Vec<f32> {
    let sample = |n: usize| (n as u32).wrapping_mul(2_654_435_761) >> 20;
    (0..WINDOW_SAMPLES).map(|n| sample(n) as f32 / 8192.0 - 0.25).collect()
}

fn text_of(report: &Report) -> String {
    let seconds = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.3} s"));
    let share = report.share_of_roofline.map_or_else(
        || "not known: give --peak-tflops and --peak-gbs".into(),
        |share| format!("{:.1} %", share * 100.0),
    );
    let rows = [
        ("windows", format!("{} of 30 s, {} tokens each", report.windows, report.tokens_of_a_window)),
        ("wall time", format!("{:.2} s", report.wall_seconds)),
        ("windows/s", format!("{:.2}", report.windows_per_second)),
        ("RTFx", format!("{:.1}", report.rtfx)),
        ("tokens/s", format!("{:.0}", report.tokens_per_second)),
        (
            "steps/s",
            format!("{:.1}, {:.1} windows in each", report.steps_per_second, report.windows_in_a_step),
        ),
        ("p50, p99", format!("{}, {}", seconds(report.p50_seconds), seconds(report.p99_seconds))),
        ("TFLOP/s", format!("{:.3}", report.teraflops)),
        ("GB/s", format!("{:.2}", report.gigabytes_per_second)),
        ("of the roofline", share),
    ];
    let mut text = format!(
        "{} with random weights on {}; {} slots, {} windows at once\n",
        report.shape, report.device, report.slots, report.concurrency
    );
    text.extend(rows.iter().map(|(name, value)| format!("{name:>16}  {value}\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_a_number_or_a_range() {
        assert_eq!(range("100").ok(), Some((100, 100)));
        assert_eq!(range("20-220").ok(), Some((20, 220)));
        for wrong in ["", "0", "220-20", "20-", "-5", "many", "1000"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
