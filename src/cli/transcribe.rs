//! `verbatim transcribe FILE…`: the same services as the server's, without HTTP.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};

use crate::audio::{self, DecodeOptions};
use crate::config::Config;
use crate::engine::{Class, LanguageChoice, Task, TenantId};
use crate::format::captions;
use crate::transcribe::{TranscribeOptions, Transcriber};
use crate::transcript::Transcript;

#[derive(Args)]
pub struct Arguments {
    /// Audio files; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Write FILE's transcript to this folder instead of standard output.
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,
    /// Language code; detected where absent.
    #[arg(long)]
    language: Option<String>,
    /// Translate to English.
    #[arg(long)]
    translate: bool,
    /// Names and terms to expect.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Time every word, not only segments.
    #[arg(long)]
    word_timestamps: bool,
    /// Files worked on at once.
    #[arg(long, default_value_t = 4, value_name = "N")]
    concurrency: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OutputFormat {
    Text,
    Json,
    Srt,
    Vtt,
}

pub async fn run(config: &Config, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let transcriber = crate::app::transcriber(config).await?;
    let progress = progress_bar(arguments.files.len());
    let mut results = stream::iter(&arguments.files)
        .map(|file| {
            let (transcriber, arguments) = (transcriber.clone(), &arguments);
            async move { (file, transcribe(config, &transcriber, arguments, file).await) }
        })
        .buffered(arguments.concurrency.max(1));
    let mut failed = false;
    while let Some((file, result)) = results.next().await {
        progress.inc(1);
        let written = result.and_then(|text| write(&arguments, file, &text));
        if let Err(error) = written {
            failed = true;
            progress.suspend(|| eprintln!("verbatim: {}: {error:#}", file.display()));
        }
    }
    progress.finish_and_clear();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn transcribe(
    config: &Config,
    transcriber: &Transcriber,
    arguments: &Arguments,
    file: &Path,
) -> anyhow::Result<String> {
    let options = DecodeOptions { raw: None, split_channels: false, limits: config.audio.clone() };
    let path = file.to_owned();
    let decoded = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        let mut bytes = Vec::new();
        if path.as_os_str() == "-" {
            std::io::stdin().read_to_end(&mut bytes)?;
        } else {
            bytes = std::fs::read(&path)?;
        }
        Ok(audio::decode(bytes.into(), &options)?)
    })
    .await??;
    let language = match &arguments.language {
        Some(code) => LanguageChoice::Named(code.clone()),
        None => LanguageChoice::Detect { among: Vec::new() },
    };
    let options = TranscribeOptions {
        language,
        task: if arguments.translate { Task::Translate } else { Task::Transcribe },
        prompt: arguments.prompt.clone(),
        word_times: arguments.word_timestamps,
        class: Class::Interactive,
        tenant: TenantId::default(),
        deadline: None,
    };
    let pcm = decoded.channels.into_iter().next().context("no audio")?;
    let transcript = transcriber.transcribe(pcm, &options).await?;
    Ok(match arguments.format {
        OutputFormat::Text => captions::text(&transcript),
        OutputFormat::Json => json(&transcript, arguments.word_timestamps),
        OutputFormat::Srt => captions::srt(&transcript),
        OutputFormat::Vtt => captions::vtt(&transcript),
    })
}

fn write(arguments: &Arguments, file: &Path, text: &str) -> anyhow::Result<()> {
    let Some(folder) = &arguments.output_dir else {
        return Ok(std::io::stdout().write_all(text.as_bytes())?);
    };
    let extension = match arguments.format {
        OutputFormat::Text => "txt",
        OutputFormat::Json => "json",
        OutputFormat::Srt => "srt",
        OutputFormat::Vtt => "vtt",
    };
    std::fs::create_dir_all(folder)?;
    let name = file.file_stem().filter(|_| file.as_os_str() != "-").unwrap_or("stdin".as_ref());
    let path = folder.join(name).with_added_extension(extension);
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

fn json(transcript: &Transcript, words: bool) -> String {
    let segments = transcript.segments.iter().map(|segment| {
        let mut value = serde_json::json!({
            "start": segment.start,
            "end": segment.end,
            "text": segment.text.trim(),
            "average_log_probability": segment.average_log_probability,
            "no_speech_probability": segment.no_speech_probability,
        });
        if words {
            let word = |word: &crate::transcript::Word| {
                serde_json::json!({"word": word.text.trim(), "start": word.start, "end": word.end,
                                   "probability": word.probability})
            };
            value["words"] = segment.words.iter().map(word).collect();
        }
        value
    });
    let value = serde_json::json!({
        "text": transcript.text(),
        "language": transcript.language.code,
        "language_probability": transcript.language.probability,
        "duration": transcript.duration,
        "confidence": transcript.confidence(),
        "segments": segments.collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

/// On a terminal, where results go elsewhere or there are several.
fn progress_bar(files: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() || (files < 2 && std::io::stdout().is_terminal()) {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} files, {eta} left");
    ProgressBar::new(files as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
