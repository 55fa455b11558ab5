//! `verbatim bench`: real files through the engine or a server at a given concurrency, with speed, delay, memory and, if
//! references are given, word errors; or the device alone, with random weights.

mod percentile;
mod stages;
mod subject;
mod synthetic;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::Args;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use self::percentile::percentile;
use self::subject::{Answer, Counted, Subject};
use self::synthetic::Synthetic;
use self::words::Errors;
use super::input;
use super::output::{Failure, complain, print};
use crate::config::Config;

/// Limit for all files together, because they stay in memory during the measurement.
const FILES_BYTES_MAX: u64 = 8 << 30;

#[derive(Args)]
#[command(after_help = BENCH_HELP)]
pub struct Arguments {
    /// Audio files.
    #[arg(required_unless_present_any = ["manifest", "synthetic"])]
    files: Vec<PathBuf>,
    /// Files with references: one JSON object per line, with `file` (relative to the manifest), and optionally
    /// `text` and `language`.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Measure the server at this address instead of an engine in this process.
    #[arg(long, value_name = "URL", requires = "key")]
    server: Option<String>,
    /// Key for the server.
    #[arg(long, env = "VERBATIM_BENCH_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Files in progress at once; default one. With --synthetic, windows; default two per slot.
    #[arg(long, value_name = "N", value_parser = input::count)]
    concurrency: Option<usize>,
    /// Number of rounds over all files.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = input::count)]
    rounds: usize,
    /// Language of files without one in the manifest; detected by default.
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    synthetic: Synthetic,
    #[command(flatten)]
    pub engine: super::engine::Flags,
}

const BENCH_HELP: &str = "\
The first file is transcribed once as a warm-up. RTFx is seconds of audio per second; p50, p95 and p99 are seconds
from sending a file to its transcript, by nearest rank. Peak memory is that of the process that runs the model. WER
compares lower-case letters, digits and apostrophes only, letter by letter in languages without spaces. The exit
code is 1 if a file failed; a refusal (503) is counted and is no failure.";

/// A line of the manifest.
#[derive(Deserialize)]
struct Row {
    file: PathBuf,
    text: Option<String>,
    language: Option<String>,
}

struct Item {
    path: PathBuf,
    bytes: Bytes,
    reference: Option<String>,
    language: Option<String>,
}

/// One file in one round.
struct Outcome {
    took: Duration,
    answer: Result<Answer, ()>,
    errors: Option<Errors>,
}

/// The figures of a round, or of all.
#[derive(Debug, Serialize)]
struct Figures {
    files: usize,
    refused: usize,
    failed: usize,
    audio_seconds: f64,
    wall_seconds: f64,
    rtfx: f64,
    p50_seconds: Option<f64>,
    p95_seconds: Option<f64>,
    p99_seconds: Option<f64>,
    windows_per_second: Option<f64>,
    tokens_per_second: Option<f64>,
    word_error_rate: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    subject: String,
    concurrency: usize,
    peak_memory_bytes: Option<f64>,
    rounds: Vec<Figures>,
    total: Figures,
}

pub async fn run(config: Config, arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.synthetic.synthetic.is_some() {
        let Arguments { synthetic, concurrency, json, .. } = &arguments;
        return synthetic::run(config, synthetic, *concurrency, json.as_deref()).await;
    }
    let concurrency = arguments.concurrency.unwrap_or(1);
    let items = items(&arguments)?;
    let subject = match (&arguments.server, &arguments.key) {
        (Some(url), Some(key)) => Subject::server(url, key.clone())?,
        _ => Subject::in_process(config).await?,
    };
    let first = items.first().context("no files").map_err(Failure::Usage)?;
    subject.transcribe(first.bytes.clone(), first.language.as_deref()).await?;

    let (begun, before) = (Instant::now(), subject.counted().await);
    let (mut rounds, mut outcomes) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let (begun, before) = (Instant::now(), subject.counted().await);
        let round = round(&subject, &items, concurrency).await;
        let wall = begun.elapsed();
        rounds.push(figures(&round, wall, before, subject.counted().await));
        outcomes.extend(round);
    }
    let wall = begun.elapsed();
    let after = subject.counted().await;
    let report = Report {
        subject: subject.name(),
        concurrency,
        peak_memory_bytes: after.peak_bytes,
        total: figures(&outcomes, wall, before, after),
        rounds,
    };
    print(&table(&report))?;
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(if report.total.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn items(arguments: &Arguments) -> anyhow::Result<Vec<Item>> {
    let mut rows: Vec<Row> =
        arguments.files.iter().map(|file| Row { file: file.clone(), text: None, language: None }).collect();
    if let Some(manifest) = &arguments.manifest {
        let text = std::fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
        let folder = manifest.parent().unwrap_or(Path::new(""));
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let row: Row = serde_json::from_str(line)
                .with_context(|| format!("{}, line {}", manifest.display(), index + 1))?;
            rows.push(Row { file: folder.join(&row.file), ..row });
        }
    }
    let mut total = 0;
    let read = |row: Row| {
        input::check(&row.file).with_context(|| row.file.display().to_string())?;
        let bytes = std::fs::read(&row.file).with_context(|| row.file.display().to_string())?;
        total += bytes.len() as u64;
        ensure!(total <= FILES_BYTES_MAX, "the files are larger than {FILES_BYTES_MAX} bytes together");
        let language = row.language.or_else(|| arguments.language.clone());
        Ok(Item { path: row.file, bytes: bytes.into(), reference: row.text, language })
    };
    rows.into_iter().map(read).collect()
}

/// Every file once, `concurrency` at a time.
async fn round(subject: &Subject, items: &[Item], concurrency: usize) -> Vec<Outcome> {
    stream::iter(items)
        .map(|item| async move {
            let begun = Instant::now();
            let answer = subject.transcribe(item.bytes.clone(), item.language.as_deref()).await;
            let took = begun.elapsed();
            let answer = answer.map_err(|error| complain(&format!("{}: {error:#}", item.path.display())));
            let errors = match (&answer, &item.reference) {
                (Ok(Answer::Heard { text, .. }), Some(reference)) => {
                    Some(Errors::between(reference, text, item.language.as_deref()))
                }
                _ => None,
            };
            Outcome { took, answer, errors }
        })
        .buffer_unordered(concurrency)
        .collect()
        .await
}

fn figures(outcomes: &[Outcome], wall: Duration, before: Counted, after: Counted) -> Figures {
    let wall_seconds = wall.as_secs_f64();
    let (mut audio_seconds, mut times, mut errors) = (0.0, Vec::new(), Errors::default());
    let (mut refused, mut failed) = (0, 0);
    for outcome in outcomes {
        match &outcome.answer {
            Ok(Answer::Heard { audio_seconds: seconds, .. }) => {
                audio_seconds += seconds;
                times.push(outcome.took.as_secs_f64());
            }
            Ok(Answer::Refused) => refused += 1,
            Err(()) => failed += 1,
        }
        if let Some(of_file) = outcome.errors {
            errors.add(of_file);
        }
    }
    times.sort_by(f64::total_cmp);
    let rate = |before: Option<f64>, after: Option<f64>| Some((after? - before?) / wall_seconds);
    Figures {
        files: outcomes.len(),
        refused,
        failed,
        audio_seconds,
        wall_seconds,
        rtfx: audio_seconds / wall_seconds,
        p50_seconds: percentile(&times, 0.5),
        p95_seconds: percentile(&times, 0.95),
        p99_seconds: percentile(&times, 0.99),
        windows_per_second: rate(before.windows, after.windows),
        tokens_per_second: rate(before.tokens, after.tokens),
        word_error_rate: errors.rate(),
    }
}

fn table(report: &Report) -> String {
    let cells = |name: String, figures: &Figures| {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        vec![
            name,
            figures.files.to_string(),
            figures.refused.to_string(),
            figures.failed.to_string(),
            number(Some(figures.audio_seconds), 1),
            number(Some(figures.wall_seconds), 2),
            number(Some(figures.rtfx), 1),
            number(figures.p50_seconds, 3),
            number(figures.p95_seconds, 3),
            number(figures.p99_seconds, 3),
            number(figures.windows_per_second, 2),
            number(figures.tokens_per_second, 1),
            number(figures.word_error_rate.map(|rate| rate * 100.0), 2),
        ]
    };
    let head = [
        "round",
        "files",
        "refused",
        "failed",
        "audio s",
        "wall s",
        "RTFx",
        "p50 s",
        "p95 s",
        "p99 s",
        "windows/s",
        "tokens/s",
        "WER %",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(report.rounds.iter().enumerate().map(|(index, round)| cells((index + 1).to_string(), round)));
    rows.push(cells("all".into(), &report.total));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    let mut text = format!("{}; {} at a time\n", report.subject, report.concurrency);
    text.extend(rows.iter().map(line));
    if let Some(bytes) = report.peak_memory_bytes {
        text += &format!("peak memory: {:.0} MiB\n", bytes / f64::from(1 << 20));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_count_what_was_heard_and_what_was_not() {
        let heard = |millis: u64, wrong| Outcome {
            took: Duration::from_millis(millis),
            answer: Ok(Answer::Heard { text: String::new(), audio_seconds: 10.0 }),
            errors: Some(Errors { wrong, words: 10 }),
        };
        let other = |answer| Outcome { took: Duration::from_secs(9), answer, errors: None };
        let mut outcomes: Vec<Outcome> = (1..=100).map(|index| heard(index * 10, 1)).collect();
        outcomes.extend([other(Ok(Answer::Refused)), other(Err(()))]);
        let before = Counted { windows: Some(5.0), tokens: None, peak_bytes: None };
        let after = Counted { windows: Some(105.0), tokens: Some(7.0), peak_bytes: None };
        let figures = figures(&outcomes, Duration::from_secs(50), before, after);
        assert_eq!((figures.files, figures.refused, figures.failed), (102, 1, 1));
        assert_eq!(
            (figures.rtfx, figures.windows_per_second, figures.tokens_per_second),
            (20.0, Some(2.0), None)
        );
        assert_eq!((figures.p50_seconds, figures.p95_seconds), (Some(0.5), Some(0.95)));
        assert_eq!((figures.p99_seconds, figures.word_error_rate), (Some(0.99), Some(0.1)));
    }
}
