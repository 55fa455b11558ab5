//! `verbatim transcribe FILE…`: the same services as the server's, without HTTP.

use std::collections::HashMap;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::Semaphore;

use super::{ClosedOutput, Failure, complain, print};
use crate::api::{Parameters, language};
use crate::audio::{self, DecodeOptions};
use crate::config::Config;
use crate::engine::{self, Class, Task, TenantId};
use crate::figures::{Probability, Score, Seconds};
use crate::format::captions;
use crate::transcribe::{TranscribeOptions, Transcriber};
use crate::transcript::Transcript;

/// A larger file is not read.
const FILE_BYTES_MAX: u64 = 4 << 30;

#[derive(Args)]
pub struct Arguments {
    /// Audio files; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Write FILE's transcript to this folder, by FILE's name, instead of standard output.
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,
    /// Language as a BCP-47 tag (`en`, `en-US`, `zh-HK`); detected where absent.
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    /// Translate to English.
    #[arg(long)]
    translate: bool,
    /// Names and terms to expect.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Time every word in JSON, not only segments; captions always go by words.
    #[arg(long)]
    word_timestamps: bool,
    /// Files worked on at once.
    #[arg(long, default_value_t = 4, value_name = "N")]
    concurrency: usize,
    /// Refuse longer audio. A second takes 64 kB of memory while its file is worked on; the server's limit,
    /// audio.max_seconds, does not hold here.
    #[arg(long, default_value_t = 14_400.0, value_name = "SECONDS", value_parser = seconds)]
    max_seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| "not a number")?;
    if seconds > 0.0 && f64::is_finite(seconds) { Ok(seconds) } else { Err("not greater than 0".into()) }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OutputFormat {
    Text,
    Json,
    Srt,
    Vtt,
}

pub async fn run(mut config: Config, arguments: Arguments) -> Result<ExitCode, Failure> {
    let outputs = outputs(&arguments).map_err(Failure::Usage)?;
    config.audio.max_seconds = arguments.max_seconds;
    // What is brought is bounded by the files worked on at once: none of them need be refused.
    config.engine = engine::Config::unbounded();
    let transcriber = crate::app::transcriber(&config).await?;
    let options = options(&arguments, &transcriber).map_err(Failure::Usage)?;
    let work = &Work { transcriber, options, config, format: arguments.format, reading: Semaphore::new(1) };
    let progress = progress_bar(arguments.files.len());
    let mut results = stream::iter(arguments.files.iter().zip(&outputs))
        .map(|(file, output)| async move { (file, output, work.transcript(file).await) })
        .buffered(arguments.concurrency.max(1));
    let mut failed = false;
    while let Some((file, output, result)) = results.next().await {
        progress.inc(1);
        match result.and_then(|text| progress.suspend(|| write(output.as_deref(), &text))) {
            Ok(()) => {}
            Err(error) if error.is::<ClosedOutput>() => return Err(error.into()),
            Err(error) => {
                failed = true;
                progress.suspend(|| complain(&format!("{}: {error:#}", file.display())));
            }
        }
    }
    progress.finish_and_clear();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Where each file's transcript goes; none: standard output. No two may go to one place.
fn outputs(arguments: &Arguments) -> anyhow::Result<Vec<Option<PathBuf>>> {
    let Some(folder) = &arguments.output_dir else { return Ok(vec![None; arguments.files.len()]) };
    let mut taken = HashMap::new();
    let output = |file: &PathBuf| {
        let path = output(folder, file, arguments.format);
        match taken.insert(path.clone(), file.clone()) {
            None => Ok(Some(path)),
            Some(other) => anyhow::bail!(
                "{} and {} would both be written to {}: give them different names, or different folders in \
                 runs of their own",
                other.display(),
                file.display(),
                path.display()
            ),
        }
    };
    arguments.files.iter().map(output).collect()
}

fn output(folder: &Path, file: &Path, format: OutputFormat) -> PathBuf {
    let extension = match format {
        OutputFormat::Text => "txt",
        OutputFormat::Json => "json",
        OutputFormat::Srt => "srt",
        OutputFormat::Vtt => "vtt",
    };
    let name = file.file_stem().filter(|_| file.as_os_str() != "-").unwrap_or("stdin".as_ref());
    folder.join(name).with_added_extension(extension)
}

fn options(arguments: &Arguments, transcriber: &Transcriber) -> anyhow::Result<TranscribeOptions> {
    let asked = Parameters { language: arguments.language.clone(), ..Parameters::default() };
    Ok(TranscribeOptions {
        language: language::choice(&asked, transcriber.model())?,
        task: if arguments.translate { Task::Translate } else { Task::Transcribe },
        prompt: arguments.prompt.clone(),
        bias: Arc::default(),
        word_times: arguments.word_timestamps
            || matches!(arguments.format, OutputFormat::Srt | OutputFormat::Vtt),
        class: Class::Interactive,
        tenant: TenantId::default(),
        deadline: None,
    })
}

/// What all files have in common.
struct Work {
    transcriber: Transcriber,
    options: TranscribeOptions,
    config: Config,
    format: OutputFormat,
    /// Files are read and decoded one at a time, which is much faster than they are transcribed: of the
    /// encoded ones no more than one is in memory.
    reading: Semaphore,
}

impl Work {
    async fn transcript(&self, file: &Path) -> anyhow::Result<String> {
        let options = DecodeOptions { raw: None, split_channels: false, limits: self.config.audio.clone() };
        let path = file.to_owned();
        let turn = self.reading.acquire().await?;
        let decode = move || anyhow::Ok(audio::decode(read(&path)?.into(), &options)?);
        let decoded = tokio::task::spawn_blocking(decode).await??;
        drop(turn);
        let pcm = decoded.channels.into_iter().next().context("no audio")?;
        let transcript = self.transcriber.transcribe(pcm, &self.options).await?;
        Ok(match self.format {
            OutputFormat::Text => captions::text(&transcript),
            OutputFormat::Json => json(&transcript, self.options.word_times),
            OutputFormat::Srt => captions::srt(&transcript),
            OutputFormat::Vtt => captions::vtt(&transcript),
        })
    }
}

/// A whole file; `-` is standard input.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let input: &mut dyn Read =
        if path.as_os_str() == "-" { &mut std::io::stdin() } else { &mut std::fs::File::open(path)? };
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "larger than {FILE_BYTES_MAX} bytes");
    Ok(bytes)
}

fn write(output: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = output else { return print(text) };
    let write = || {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)
    };
    write().with_context(|| path.display().to_string())
}

fn json(transcript: &Transcript, words: bool) -> String {
    let segments = transcript.segments.iter().map(|segment| {
        let mut value = serde_json::json!({
            "start": Seconds::new(segment.start),
            "end": Seconds::new(segment.end),
            "text": segment.text.trim(),
            "average_log_probability": Score::new(segment.average_log_probability),
            "no_speech_probability": Probability::new(segment.no_speech_probability),
        });
        if words {
            let word = |word: &crate::transcript::Word| {
                serde_json::json!({
                    "word": word.text.trim(),
                    "start": Seconds::new(word.start),
                    "end": Seconds::new(word.end),
                    "probability": Probability::new(word.probability),
                })
            };
            value["words"] = segment.words.iter().map(word).collect();
        }
        value
    });
    let value = serde_json::json!({
        "text": transcript.text(),
        "language": transcript.language.code,
        "language_probability": Probability::new(transcript.language.probability),
        "duration": Seconds::of_audio(transcript.duration),
        "confidence": Probability::new(transcript.confidence()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::{DetectedLanguage, Segment, Word};

    #[test]
    fn json_has_no_digits_without_meaning() {
        let word = Word { text: " Hello.".into(), start: 1.1, end: 1.1 + 2.2, probability: 0.9 };
        let segment = Segment {
            text: " Hello.".into(),
            start: 1.1,
            end: 1.1 + 2.2,
            words: vec![word],
            average_log_probability: -0.1,
            no_speech_probability: 0.2,
            ..Segment::default()
        };
        let language = DetectedLanguage { code: "en".into(), probability: 0.7 };
        let transcript = Transcript { segments: vec![segment], language, duration: 3.0 + 1.0 / 3.0 };
        let value: serde_json::Value = serde_json::from_str(&json(&transcript, true)).expect("JSON");
        assert_eq!(
            value,
            serde_json::json!({
                "text": "Hello.", "language": "en", "language_probability": 0.7, "duration": 3.333333,
                "confidence": 0.9,
                "segments": [{
                    "start": 1.1, "end": 3.3, "text": "Hello.", "average_log_probability": -0.1,
                    "no_speech_probability": 0.2,
                    "words": [{"word": "Hello.", "start": 1.1, "end": 3.3, "probability": 0.9}],
                }],
            })
        );
    }
}
