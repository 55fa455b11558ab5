//! `verbatim transcribe FILE…`: the same services as the server's, without HTTP.

mod progress;
mod speakers;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;

use self::progress::Progress;
pub use self::speakers::diarizer;
use super::input;
use super::output::{ClosedOutput, Failure, complain, print};
use crate::api::{Parameters, language};
use crate::audio::{self, DecodeOptions, Sound};
use crate::config::Config;
use crate::engine::{self, Engine, Task};
use crate::figures::{Probability, Score, Seconds};
use crate::format::captions;
use crate::speakers::{Diarization, Diarizer, Options, Turn};
use crate::transcribe::{TranscribeOptions, Transcriber};
use crate::transcript::Transcript;

#[derive(Args)]
pub struct Arguments {
    /// Audio files; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Write each file's transcript to this folder, under the file's name, instead of standard output. On standard
    /// output, transcripts of several files follow each other: JSON objects with `file`, or text and captions
    /// under headings.
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,
    /// Language as a BCP-47 tag (`en`, `en-US`, `zh-HK`); detected by default.
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    /// Translate to English.
    #[arg(long)]
    translate: bool,
    /// Names and terms to expect.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Give times for every word in JSON, not only for segments; captions always use word times.
    #[arg(long)]
    word_timestamps: bool,
    /// Files in progress at once.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = input::count)]
    concurrency: usize,
    /// Refuse longer audio. A second takes 32 kB of memory while its file is in progress; the server's limit,
    /// audio.max_seconds, does not apply here.
    #[arg(long, default_value_t = 14_400.0, value_name = "SECONDS", value_parser = seconds)]
    max_seconds: f64,
    #[command(flatten)]
    speakers: speakers::SpeakerFlags,
    #[command(flatten)]
    pub engine: super::engine::Flags,
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
    /// The turns of speakers, without words.
    Rttm,
}

pub async fn run(mut config: Config, arguments: Arguments) -> Result<ExitCode, Failure> {
    let outputs = outputs(&arguments).map_err(Failure::Usage)?;
    let (format, word_times) = (arguments.format, arguments.word_timestamps);
    let only_turns = matches!(format, OutputFormat::Rttm);
    let asked = arguments.speakers.asked(only_turns).map_err(Failure::Usage)?;
    let (files, mut failed) = present(&arguments, outputs);
    if files.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(folder) = &arguments.output_dir {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    config.audio.max_seconds = arguments.max_seconds;
    // The number of files in progress bounds the work already, so the engine need not refuse any.
    config.engine = engine::Config::unbounded();
    let mut progress = Progress::new(files.len());
    let speakers = match asked {
        Some(asked) => Some((speakers::diarizer(&config).await?, asked)),
        None => None,
    };
    let recogniser = match only_turns {
        true => None,
        false => {
            let transcriber = crate::app::transcriber(&config).await?;
            let options = options(&arguments, &transcriber).map_err(Failure::Usage)?;
            Some((transcriber, options))
        }
    };
    let are_headed = arguments.files.len() > 1 && arguments.output_dir.is_none();
    let reading = Semaphore::new(1);
    let work = &Work { recogniser, speakers, config, format, word_times, are_headed, reading };
    let mut results = stream::iter(&files)
        .map(|(file, output)| async move { (file, output, work.transcript(file).await) })
        .buffered(arguments.concurrency);
    loop {
        let next = tokio::select! {
            next = results.next() => next,
            () = progress.tick(|| work.engine().map_or(0.0, Engine::held_seconds)) => continue,
        };
        let Some((file, output, result)) = next else { break };
        let written = result.and_then(|(text, seconds)| {
            progress.done(seconds);
            progress.aside(|| write(output.as_deref(), &text))
        });
        match written {
            Ok(()) => {}
            Err(error) if error.is::<ClosedOutput>() => return Err(error.into()),
            Err(error) => {
                failed = true;
                progress.aside(|| complain(&format!("{}: {error:#}", file.display())));
            }
        }
    }
    progress.end();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A file, and the path of its transcript; `None`: standard output.
type Assignment = (PathBuf, Option<PathBuf>);

/// The files that can be read, and whether any can't; reports those before the model is loaded.
fn present(arguments: &Arguments, outputs: Vec<Option<PathBuf>>) -> (Vec<Assignment>, bool) {
    let given = arguments.files.iter().cloned().zip(outputs);
    let files: Vec<_> = given
        .filter(|(file, _)| match input::check(file) {
            Ok(()) => true,
            Err(error) => {
                complain(&format!("{}: {error:#}", file.display()));
                false
            }
        })
        .collect();
    let lacks = files.len() < arguments.files.len();
    (files, lacks)
}

/// The path of each file's transcript; `None`: standard output. No two files may share a path.
fn outputs(arguments: &Arguments) -> anyhow::Result<Vec<Option<PathBuf>>> {
    let inputs = arguments.files.iter().filter(|file| input::is_standard(file)).count();
    ensure!(inputs < 2, "standard input, `-`, can be read once only");
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
        OutputFormat::Rttm => "rttm",
    };
    folder.join(name(file)).with_added_extension(extension)
}

/// The file's name without its ending.
fn name(file: &Path) -> &OsStr {
    file.file_stem().filter(|_| !input::is_standard(file)).unwrap_or("stdin".as_ref())
}

fn options(arguments: &Arguments, transcriber: &Transcriber) -> anyhow::Result<TranscribeOptions> {
    let asked = Parameters { language: arguments.language.clone(), ..Parameters::default() };
    Ok(TranscribeOptions {
        task: if arguments.translate { Task::Translate } else { Task::Transcribe },
        prompt: arguments.prompt.clone(),
        ..TranscribeOptions::new(language::choice(&asked, transcriber.model())?)
    })
}

/// Options and state that all files share.
struct Work {
    /// `None`: no words are asked for.
    recogniser: Option<(Transcriber, TranscribeOptions)>,
    /// `None`: no diarization.
    speakers: Option<(Diarizer, Options)>,
    config: Config,
    format: OutputFormat,
    /// Whether JSON has the words of segments, with their times.
    word_times: bool,
    /// Whether each transcript begins with its file's name, because several go to the same output.
    are_headed: bool,
    /// Files are read and decoded one at a time, which is much faster than transcribing them, so at most one encoded
    /// file is in memory.
    reading: Semaphore,
}

impl Work {
    fn engine(&self) -> Option<&Engine> {
        self.recogniser.as_ref().map(|(transcriber, _)| transcriber.engine())
    }

    /// The transcript as it is written, and the seconds of audio that it covers.
    async fn transcript(&self, file: &Path) -> anyhow::Result<(String, f64)> {
        let options = DecodeOptions { raw: None, split_channels: false, limits: self.config.audio.clone() };
        let path = file.to_owned();
        let turn = self.reading.acquire().await?;
        let decode = move || anyhow::Ok(audio::decode(input::read(&path)?.into(), &options)?);
        let decoded = tokio::task::spawn_blocking(decode).await??;
        drop(turn);
        let sound = decoded.channels.into_iter().next().context("no audio")?;
        let seconds = sound.duration_seconds();
        let (transcript, turns) = self.heard(sound).await?;
        let text = match (self.format, &transcript) {
            (OutputFormat::Rttm, _) | (_, None) => {
                turns.unwrap_or_default().rttm(&name(file).to_string_lossy())
            }
            (OutputFormat::Text, Some(transcript)) => captions::text(transcript),
            (OutputFormat::Json, Some(transcript)) => json(file, transcript, turns.as_ref(), self.word_times),
            (OutputFormat::Srt, Some(transcript)) => captions::srt(transcript),
            (OutputFormat::Vtt, Some(transcript)) => captions::vtt(transcript),
        };
        let text = if self.are_headed { headed(file, &text, self.format) } else { text };
        Ok((text, seconds))
    }

    /// The words and the turns, each if asked for.
    async fn heard(&self, sound: Sound) -> anyhow::Result<(Option<Transcript>, Option<Diarization>)> {
        match (&self.recogniser, &self.speakers) {
            (Some((transcriber, options)), None) => {
                Ok((Some(transcriber.transcribe(sound, options).await?), None))
            }
            (Some((transcriber, options)), Some((diarizer, asked))) => {
                let admission = transcriber.admit(sound.duration_seconds(), options).await?;
                let heard =
                    transcriber.transcribe_speakers(vec![sound], admission, options, (diarizer, asked));
                let (transcript, turns) = heard.await?.into_iter().next().context("no transcript")?;
                Ok((Some(transcript), Some(turns)))
            }
            (None, Some((diarizer, asked))) => Ok((None, Some(diarizer.diarize(&sound, asked).await?))),
            (None, None) => Ok((None, None)),
        }
    }
}

/// `text` under its file's name. Captions of several files stay separate: their numbers and times start again.
fn headed(file: &Path, text: &str, format: OutputFormat) -> String {
    // A line break or an arrow in a name must not be read as part of the captions.
    let name = file.to_string_lossy().replace(char::is_control, " ").replace("-->", "->");
    match format {
        // Each line names its file.
        OutputFormat::Json | OutputFormat::Rttm => text.to_owned(),
        OutputFormat::Text => format!("==> {name} <==\n{text}\n"),
        OutputFormat::Srt => format!("==> {name} <==\n\n{text}"),
        OutputFormat::Vtt => {
            let captions = text.strip_prefix("WEBVTT").unwrap_or(text).trim_start();
            format!("WEBVTT\n\nNOTE {name}\n\n{captions}")
        }
    }
}

fn write(output: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = output else { return print(text) };
    let write = || {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)
    };
    write().with_context(|| path.display().to_string())
}

fn json(file: &Path, transcript: &Transcript, turns: Option<&Diarization>, words: bool) -> String {
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
                let mut value = serde_json::json!({
                    "word": word.text.trim(),
                    "start": Seconds::new(word.start),
                    "end": Seconds::new(word.end),
                    "probability": Probability::new(word.probability),
                });
                if let Some(speaker) = word.speaker {
                    value["speaker"] = speaker.index.into();
                    value["speaker_confidence"] = serde_json::json!(Probability::new(speaker.confidence));
                }
                value
            };
            value["words"] = segment.words.iter().map(word).collect();
        }
        value
    });
    let mut value = serde_json::json!({
        "file": file.to_string_lossy(),
        "text": transcript.text(),
        "language": transcript.language.code,
        "language_probability": Probability::new(transcript.language.probability),
        "duration": Seconds::of_audio(transcript.duration),
        "confidence": Probability::new(transcript.confidence()),
        "segments": segments.collect::<Vec<_>>(),
    });
    if let Some(found) = turns {
        let turn = |turn: &Turn| {
            serde_json::json!({
                "speaker": turn.speaker,
                "start": Seconds::new(turn.start),
                "end": Seconds::new(turn.end),
                "confidence": Probability::new(turn.confidence),
            })
        };
        value["turns"] = found.turns.iter().map(turn).collect();
    }
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::{DetectedLanguage, Segment, Word};

    #[test]
    fn json_has_no_digits_without_meaning() {
        let word =
            Word { text: " Hello.".into(), start: 1.1, end: 1.1 + 2.2, probability: 0.9, speaker: None };
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
        let duration = 3.0 + 1.0 / 3.0;
        let transcript = Transcript {
            segments: vec![segment],
            language,
            languages: Vec::new(),
            duration,
            voice_without_words: 0.0,
        };
        let value: serde_json::Value =
            serde_json::from_str(&json(Path::new("a.wav"), &transcript, None, true)).expect("JSON");
        assert_eq!(
            value,
            serde_json::json!({
                "file": "a.wav", "text": "Hello.", "language": "en", "language_probability": 0.7, "duration": 3.333333,
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
