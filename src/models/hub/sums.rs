//! SHA-256 sums of files, and whether a model is what was fetched.

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Error, blocking, io, packages};

/// In a model's folder: a sum, two spaces and a name in each line.
const SUMS: &str = "sha256sums";

/// One file, whose content lies under its name with `.part`.
pub(super) struct Fetched {
    pub file: String,
    pub sha256: String,
}

/// What came of comparing one file with the sum that is known for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// Damaged, or another file.
    Different,
    Missing,
}

/// Compares the files of the model in `folder` with the sums that were recorded when it was fetched, or,
/// where `./setup` put it there, that its packages are known by. Empty where none are known.
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

/// Gives the files their names, the weights, which come last in `fetched`, last; and records their sums.
pub(super) fn put_in_place(folder: &Path, fetched: &[Fetched]) -> Result<(), Error> {
    let lines: String =
        fetched.iter().map(|Fetched { file, sha256 }| format!("{sha256}  {file}\n")).collect();
    let path = folder.join(SUMS);
    std::fs::write(&path, lines).map_err(io(&path))?;
    for Fetched { file, .. } in fetched {
        let target = folder.join(file);
        std::fs::rename(target.with_added_extension("part"), &target).map_err(io(&target))?;
    }
    Ok(())
}

/// In hexadecimal, lower case.
pub(super) async fn sha256(path: &Path) -> Result<String, Error> {
    let own = path.to_owned();
    blocking(path, move || sha256_of(&own)).await
}

pub(super) fn sha256_of(path: &Path) -> Result<String, Error> {
    let mut file = std::fs::File::open(path).map_err(io(path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).map_err(io(path))?;
        if read == 0 {
            return Ok(data_encoding::HEXLOWER.encode(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}
