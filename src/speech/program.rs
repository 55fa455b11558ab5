//! Voices of programs on this machine: flite and espeak-ng.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::error::VoiceError;
use super::wav::AUDIO_BYTES_MAX;

/// A program that reads text and writes a WAV file.
pub struct Program {
    pub name: &'static str,
    path: PathBuf,
    arguments: &'static [&'static str],
    /// The arguments for a pace, 1 being the usual one.
    pace: fn(f32) -> [String; 2],
    /// A private folder for its files, one per sentence. None: it writes to its standard output.
    folder: Option<PathBuf>,
}

impl Program {
    pub fn flite() -> Result<Self, VoiceError> {
        // To a pipe it would write only a header, so it gets a file; the name follows `-o`.
        let pace = |speed: f32| ["--setf".into(), format!("duration_stretch={:.3}", 1.0 / speed)];
        Self::find("flite", &["-voice", "slt", "-f", "/dev/stdin", "-o"], pace, true)
    }

    pub fn espeak_ng() -> Result<Self, VoiceError> {
        /// Its usual pace here, in words a minute.
        const PACE: f32 = 160.0;
        let pace = |speed: f32| ["-s".into(), format!("{:.0}", PACE * speed)];
        Self::find("espeak-ng", &["--stdin", "--stdout", "-v", "en-us"], pace, false)
    }

    fn find(
        name: &'static str,
        arguments: &'static [&'static str],
        pace: fn(f32) -> [String; 2],
        writes_files: bool,
    ) -> Result<Self, VoiceError> {
        let path = on_path(name).ok_or(VoiceError::Missing(name))?;
        let folder = match writes_files {
            false => None,
            true => {
                let folder =
                    std::env::temp_dir().join(format!("verbatim-voice-{:016x}", rand::random::<u64>()));
                DirBuilder::new().mode(0o700).create(&folder).map_err(|_| VoiceError::Missing(name))?;
                Some(folder)
            }
        };
        Ok(Self { name, path, arguments, pace, folder })
    }

    /// Says `text` as a WAV file, at `speed` times the usual pace. The text goes in through a pipe, since every user of
    /// the machine can see arguments.
    pub async fn speak(&self, text: &str, speed: f32) -> std::io::Result<Vec<u8>> {
        let file = self
            .folder
            .as_ref()
            .map(|folder| Written(folder.join(format!("{:016x}", rand::random::<u64>()))));
        let mut child = Command::new(&self.path)
            .args((self.pace)(speed))
            .args(self.arguments)
            .args(file.as_ref().map(|file| &file.0))
            .stdin(Stdio::piped())
            .stdout(if file.is_some() { Stdio::null() } else { Stdio::piped() })
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes()).await?;
        }
        let mut wav = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(AUDIO_BYTES_MAX as u64).read_to_end(&mut wav).await?;
        }
        child.wait().await?;
        if let Some(file) = &file {
            tokio::fs::File::open(&file.0).await?.take(AUDIO_BYTES_MAX as u64).read_to_end(&mut wav).await?;
        }
        Ok(wav)
    }
}

/// Finds a program on the `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // Empty by now; if not, the system clears its temporary folder eventually.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A file that is removed after it was read, or if the reader was cancelled.
struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
