//! The output of commands, and their failures by exit code.

use std::io::Write as _;

use crate::config::Config;

/// A failure, by its exit code.
pub enum Failure {
    Usage(anyhow::Error),
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The reader has closed the output.
#[derive(Debug, thiserror::Error)]
#[error("the output is closed")]
pub struct ClosedOutput;

/// Writes to standard output.
///
/// # Errors
/// [`ClosedOutput`], or another error of writing.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => ClosedOutput.into(),
        _ => anyhow::Error::new(error).context("standard output"),
    })
}

/// Writes one line to standard error. If that is closed too, there is nowhere left to report it.
pub fn complain(text: &str) {
    note(&format!("verbatim: {text}"));
}

/// As [`complain`], about a success.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The state directory, for messages.
pub fn state_dir(config: &Config) -> std::path::Display<'_> {
    config.state_dir.display()
}
