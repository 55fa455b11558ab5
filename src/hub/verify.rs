//! Verification of a model on disk against its known checksums.

use std::path::Path;

use super::error::{Error, io};
use super::packages;
use super::sums::{SUMS, sha256};

/// How a file compares with its known checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// It is damaged, or another file.
    Different,
    Missing,
}

/// Compares the files of the model in `folder` with the checksums recorded when it was fetched or, for a model that
/// `./setup` installed, with those of its packages. Empty if none are known.
///
/// # Errors
/// [`Error::Io`].
pub async fn verify(folder: &Path) -> Result<Vec<(String, Verdict)>, Error> {
    let path = folder.join(SUMS);
    let recorded = match tokio::fs::read_to_string(&path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(io(&path))?,
    };
    let mut expected: Vec<(String, String)> = recorded
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, file)| (file.to_owned(), sum.to_ascii_lowercase()))
        .collect();
    if expected.is_empty() {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let known = packages::of(name).filter(|_| folder.join(packages::WEIGHTS).is_file());
        expected.extend(known.map(|packaged| (packages::WEIGHTS.to_owned(), packaged.sha256.to_owned())));
    }
    let mut verdicts = Vec::new();
    for (file, expected) in expected {
        let path = folder.join(&file);
        let verdict = if !path.is_file() {
            Verdict::Missing
        } else if sha256(&path).await? == expected {
            Verdict::Right
        } else {
            Verdict::Different
        };
        verdicts.push((file, verdict));
    }
    Ok(verdicts)
}
