//! Voices of programs on this machine: flite, espeak-ng, and one that the configuration names.

use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::error::VoiceError;
use super::stretch::stretched;
use super::synthesizer::{Failed, Line, Part, Parts, Speaker, Synthesizer};
use super::wav::{AUDIO_BYTES_MAX, read_wav};

/// A program that reads text and writes a WAV file.
#[derive(Clone)]
pub struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: Vec<String>,
    speakers: Vec<Speaker>,
    /// A private folder for its files, one per sentence. None: it writes to its standard output.
    folder: Option<Arc<Folder>>,
}

impl Program {
    pub fn flite() -> Result<Self, VoiceError> {
        // To a pipe it would write only a header, so it gets a file; the name follows `-o`.
        let stretch = format!("duration_stretch={STRETCH}");
        Self::find("flite", &["--setf", &stretch, "-voice", "slt", "-f", "/dev/stdin", "-o"], true)
    }

    pub fn espeak_ng() -> Result<Self, VoiceError> {
        Self::find("espeak-ng", &["-s", WORDS_A_MINUTE, "--stdin", "--stdout", "-v", "en-us"], false)
    }

    /// The program that the configuration names, with its arguments.
    ///
    /// # Errors
    /// [`VoiceError::Program`].
    pub fn of(command: &[String]) -> Result<Self, VoiceError> {
        let missing = || VoiceError::Program(command.first().cloned().unwrap_or_default());
        let (program, arguments) = command.split_first().ok_or_else(missing)?;
        let path = match program.contains('/') {
            true => Some(PathBuf::from(program)).filter(|path| path.is_file()),
            false => on_path(program),
        };
        let speakers = vec![Speaker { name: PROGRAM.to_owned(), language: "" }];
        let path = path.ok_or_else(missing)?;
        Ok(Self { name: PROGRAM, path, arguments: arguments.to_vec(), speakers, folder: None })
    }

    fn find(name: &'static str, arguments: &[&str], writes_files: bool) -> Result<Self, VoiceError> {
        let path = on_path(name).ok_or(VoiceError::Missing(name))?;
        let folder = match writes_files {
            false => None,
            true => {
                let folder =
                    std::env::temp_dir().join(format!("verbatim-voice-{:016x}", rand::random::<u64>()));
                DirBuilder::new().mode(0o700).create(&folder).map_err(|_| VoiceError::Missing(name))?;
                Some(Arc::new(Folder(folder)))
            }
        };
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let speakers = vec![Speaker { name: name.to_owned(), language: "en" }];
        Ok(Self { name, path, arguments, speakers, folder })
    }

    /// Says `text` as a WAV file, at `speed` times the usual pace. The text goes in through a pipe, since every user of
    /// the machine can see arguments.
    async fn say(&self, text: &str, speed: f32) -> std::io::Result<Vec<u8>> {
        let file = self
            .folder
            .as_ref()
            .map(|folder| Written(folder.0.join(format!("{:016x}", rand::random::<u64>()))));
        let arguments = self.arguments.iter().map(|argument| {
            argument
                .replace(SPEED, &format!("{speed:.3}"))
                .replace(STRETCH, &format!("{:.3}", 1.0 / speed))
                .replace(WORDS_A_MINUTE, &format!("{:.0}", ESPEAK_PACE * speed))
        });
        let mut child = Command::new(&self.path)
            .args(arguments)
            .args(file.as_ref().map(|file| &file.0))
            .stdin(Stdio::piped())
            .stdout(if file.is_some() { Stdio::null() } else { Stdio::piped() })
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut wav = Vec::new();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        // A program may speak while it reads.
        let write = async {
            match input {
                Some(mut input) => input.write_all(text.as_bytes()).await,
                None => Ok(()),
            }
        };
        let read = async {
            match output {
                Some(output) => output.take(AUDIO_BYTES_MAX as u64).read_to_end(&mut wav).await.map(drop),
                None => Ok(()),
            }
        };
        let (written, read) = tokio::join!(write, read);
        written.and(read)?;
        child.wait().await?;
        if let Some(file) = &file {
            tokio::fs::File::open(&file.0).await?.take(AUDIO_BYTES_MAX as u64).read_to_end(&mut wav).await?;
        }
        Ok(wav)
    }

    async fn speech(self, line: Line) -> Result<Part, Failed> {
        let is_paced = self
            .arguments
            .iter()
            .any(|text| [SPEED, STRETCH, WORDS_A_MINUTE].iter().any(|pace| text.contains(pace)));
        let wav = self.say(&line.text, line.speed).await;
        let wav = wav.inspect_err(|error| tracing::warn!(voice = self.name, %error, "the voice failed"));
        let samples = read_wav(&wav.map_err(|_| Failed)?).ok_or(Failed)?;
        let samples = if is_paced || line.speed == 1.0 { samples } else { stretched(&samples, line.speed) };
        Ok(Part { samples, until: 1.0 })
    }
}

impl Synthesizer for Program {
    fn kind(&self) -> &'static str {
        self.name
    }

    fn speakers(&self) -> &[Speaker] {
        &self.speakers
    }

    fn speak(&self, line: Line) -> Parts {
        stream::once(self.clone().speech(line)).boxed()
    }
}

/// The kind and voice of a program that the configuration names.
const PROGRAM: &str = "program";
/// Placeholders in an argument: the pace, its inverse, and espeak-ng's measure of it.
const SPEED: &str = "{speed}";
const STRETCH: &str = "{stretch}";
const WORDS_A_MINUTE: &str = "{words_a_minute}";
/// The usual pace of espeak-ng here, in words a minute.
const ESPEAK_PACE: f32 = 160.0;
/// The longest answer to a question, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Asks `program` about `text`, through a pipe, since every user of the machine can see arguments. None if it fails.
pub fn ask(program: &Path, arguments: &[&str], text: &str) -> Option<String> {
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let said = child.stdin.take().is_some_and(|mut input| input.write_all(text.as_bytes()).is_ok());
    let mut answer = String::new();
    let heard = child.stdout.take().map(|output| output.take(ANSWER_BYTES_MAX).read_to_string(&mut answer));
    let ended = child.wait().ok()?;
    (said && heard?.is_ok() && ended.success()).then_some(answer)
}

/// Finds a program on the `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A folder that goes with its last user.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Empty by now; if not, the system clears its temporary folder eventually.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A file that is removed after it was read, or if the reader was cancelled.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
