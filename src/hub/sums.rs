//! SHA-256 checksums of a model's files: recorded when it is fetched, compared when it is verified.

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Error, blocking, io, packages};

/// The file of checksums in a model's folder. Each line has a checksum, two spaces and a name.
const SUMS: &str = "sha256sums";

/// A fetched file, still stored under its name with `.part`.
pub(super) struct Fetched {
    pub file: String,
    pub sha256: String,
}

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

/// Records the checksums, then gives the files their final names in the order of `fetched`, which ends with the
/// weights.
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

/// The checksum in lower-case hexadecimal.
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
