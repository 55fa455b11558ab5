//! Input files of commands, checked before anything slow begins.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{anyhow, ensure};

/// An upper bound on files in progress, beyond any machine.
const COUNT_MAX: usize = 100_000;

/// Larger files are refused unread.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Whether `path` is standard input.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks that a file of audio can be read, as far as possible without reading it.
///
/// # Errors
/// The reason why the file can't be used (missing, a folder, unreadable, empty), for its owner, without the path.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if is_standard(path) {
        return Ok(());
    }
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => anyhow!("there is no such file"),
        _ => anyhow::Error::new(error).context("it cannot be read"),
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    ensure!(!metadata.is_dir(), "it is a folder: name the files in it");
    // A pipe has no length, and can be opened only once.
    if metadata.is_file() {
        ensure!(metadata.len() > 0, "it is empty");
        File::open(path).map_err(unreadable)?;
    }
    Ok(())
}

/// A whole file; `-` is standard input.
///
/// # Errors
/// It cannot be read, or is larger than [`FILE_BYTES_MAX`].
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let input: &mut dyn Read = if is_standard(path) { &mut std::io::stdin() } else { &mut File::open(path)? };
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "larger than {FILE_BYTES_MAX} bytes");
    Ok(bytes)
}

/// Parses a count from the command line: of files at once, or of rounds.
pub fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| format!("must be a whole number from 1 to {COUNT_MAX}"))
}
