//! `verbatim bench --synthetic`: the device's speed with random weights of a model's shape, full-length windows and a given
//! number of tokens, compared with the device's peaks.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use futures_util::{StreamExt, stream};
use serde::Serialize;

use super::super::input;
use super::super::output::{Failure, complain, print};
use super::percentile::percentile;
use super::stages::{self, Stages, Work};
use crate::audio::Pcm;
use crate::config::Config;
use crate::cuda::StageTimes;
use crate::engine::{self, Class, DecodingOptions, Engine, LanguageChoice, TenantId, WINDOW_SAMPLES, Window};
use crate::models::{self, Ceilings, Lengths, Shape, TokenRange};

const WINDOW_SECONDS: f64 = 30.0;
/// Default number of windows per slot: enough that the start and the end, when slots are empty, hardly count.
const ROUNDS: usize = 6;
/// Default number of tokens per window.
const TOKENS: TokenRange = TokenRange { min: 100, max: 100 };

#[derive(Args)]
pub struct Synthetic {
    /// Measure the device with random weights of this model's shape: tiny, base, small, medium, large-v3 or
    /// large-v3-turbo. Takes no files.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["files", "manifest", "server"])]
    pub synthetic: Option<String>,
    /// Tokens per window: a number, or a range over which they are spread; default 100.
    #[arg(long, value_name = "N|MIN-MAX", requires = "synthetic", conflicts_with = "protocol")]
    tokens: Option<TokenRange>,
    /// The windows and the order of a published benchmark. mlperf: Whisper of MLPerf Inference, offline.
    #[arg(long, requires = "synthetic")]
    protocol: Option<Protocol>,
    /// Ask for word times.
    #[arg(long, requires = "synthetic")]
    word_times: bool,
    /// Show where the time goes: the device's time by stage, beside what the device does in a large copy and a large
    /// product.
    #[arg(long, requires = "synthetic")]
    stages: bool,
    /// Windows decoded side by side; sets models.slots.
    #[arg(long, value_name = "N", requires = "synthetic", value_parser = input::count)]
    slots: Option<usize>,
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

/// Published benchmarks whose windows can be repeated without their audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Mlperf,
}

impl Protocol {
    /// Windows of the data set: MLPerf's are LibriSpeech's dev sets, joined to pieces of at most 30 s and padded.
    fn windows(self) -> usize {
        match self {
            Self::Mlperf => 1633,
        }
    }

    /// MLPerf's submissions show a mean of 63.5 tokens; their distribution isn't known here. This one has that mean, and a
    /// deviation of 13.9: pieces last 23.6 s, give or take 4 (10.7 hours in all, and a piece ends before the utterance that
    /// would exceed 30 s), and speakers' rates differ by some 13 %.
    fn tokens(self) -> TokenRange {
        match self {
            Self::Mlperf => TokenRange { min: 40, max: 87 },
        }
    }
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
    /// With a protocol, every window is in the engine from the start, and the clock stops with the last one.
    protocol: Option<Protocol>,
    word_times: bool,
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
    /// Time of the engine's thread outside of the model's calls, for each round of its loop.
    host_microseconds_per_loop: f64,
    /// Measured on this device if the stages are asked for.
    ceilings: Option<Ceilings>,
    /// If they are asked for.
    stages: Option<Vec<stages::Figures>>,
}

pub async fn run(
    mut config: Config,
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
    let protocol = arguments.protocol;
    let tokens = arguments.tokens.or(protocol.map(Protocol::tokens)).unwrap_or(TOKENS);
    config.models.slots = arguments.slots.unwrap_or(config.models.slots);
    let times = arguments.stages.then(StageTimes::default);
    config.models.stage_times.clone_from(&times);
    let engine = start(&config, shape, Lengths::between(tokens.min, tokens.max)).await?;
    let slots = engine.model().slots;
    let windows = arguments.windows.or(protocol.map(Protocol::windows)).unwrap_or(ROUNDS * slots);
    let concurrency = concurrency.unwrap_or(if protocol.is_some() { windows } else { 2 * slots });

    let window = window(Pcm::new(noise()), arguments.word_times);
    measure(&engine, &window, slots.min(windows), concurrency).await?;
    let stages = times.map(Stages::begin);
    let (begun, before) = (Instant::now(), engine.counts());
    let mut times = measure(&engine, &window, windows, concurrency).await?;
    let (wall, after) = (begun.elapsed().as_secs_f64(), engine.counts());
    times.sort_by(f64::total_cmp);
    let ceilings = if stages.is_some() { ceilings(&config).await } else { None };

    let range = tokens;
    let tokens = range.mean();
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
    let work = Work { shape, windows: count, text, audio_bytes };
    let loops = (after.loops - before.loops).max(1) as f64;
    let report = Report {
        shape: shape.name,
        device: engine.model().device.clone(),
        slots,
        concurrency,
        tokens_of_a_window: range.to_string(),
        protocol,
        word_times: arguments.word_times,
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
        host_microseconds_per_loop: (after.host_nanoseconds - before.host_nanoseconds) as f64 / loops / 1e3,
        stages: stages.map(|stages| stages.figures(&work, wall, ceilings)),
        ceilings,
    };
    print(&text_of(&report))?;
    if let Some(path) = json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The ceilings of the device that `config` names. They explain figures and are none of them, so a device that has no memory
/// left for them fails nothing.
async fn ceilings(config: &Config) -> Option<Ceilings> {
    let config = config.models.clone();
    let measured = tokio::task::spawn_blocking(move || models::ceilings(&config)).await.ok()?;
    measured.map_err(|error| complain(&format!("the device's ceilings: {:#}", anyhow!(error)))).ok()
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
    window: &Window,
    windows: usize,
    concurrency: usize,
) -> Result<Vec<f64>, engine::Error> {
    let one = |_| async {
        let begun = Instant::now();
        let admission = engine.admit(TenantId::default(), WINDOW_SECONDS)?;
        engine.recognize(&admission, window.clone()).await?;
        Ok(begun.elapsed())
    };
    let times: Vec<Result<Duration, engine::Error>> =
        stream::iter(0..windows).map(one).buffer_unordered(concurrency).collect().await;
    times.into_iter().map(|time| Ok(time?.as_secs_f64())).collect()
}

/// A window that is decoded in a single attempt, whose result is accepted as it is.
fn window(pcm: Pcm, word_times: bool) -> Window {
    Window {
        pcm,
        options: DecodingOptions {
            language: LanguageChoice::Named("en".into()),
            temperatures: vec![0.0],
            compression_ratio_threshold: None,
            log_probability_threshold: None,
            no_speech_threshold: None,
            word_times,
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
    let times = if report.word_times { ", word times" } else { "" };
    let as_in = match report.protocol {
        Some(Protocol::Mlperf) => ", as in MLPerf's offline scenario",
        None => "",
    };
    let tokens = &report.tokens_of_a_window;
    let rows = [
        ("windows", format!("{} of 30 s, {tokens} tokens each{times}{as_in}", report.windows)),
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
        ("engine", format!("{:.1} µs of the host per loop", report.host_microseconds_per_loop)),
    ];
    let mut text = format!(
        "{} with random weights on {}; {} slots, {} windows at once\n",
        report.shape, report.device, report.slots, report.concurrency
    );
    text.extend(rows.iter().map(|(name, value)| format!("{name:>16}  {value}\n")));
    if let Some(Ceilings { copy_gigabytes_per_second: copy, product_teraflops: product }) = report.ceilings {
        let ceilings = format!("{copy:.1} GB/s in a copy, {product:.2} TFLOP/s in a product in bf16");
        text += &format!("{:>16}  {ceilings}\n", "ceilings");
    }
    if let Some(stages) = &report.stages {
        text += &stages::table(stages);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mlperfs_windows_have_the_mean_of_its_submissions() {
        assert_eq!(Protocol::Mlperf.tokens().mean(), 63.5);
        let json = serde_json::to_string(&Protocol::Mlperf).expect("JSON");
        assert_eq!(json, "\"mlperf\"");
    }
}
