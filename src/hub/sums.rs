//! SHA-256 checksums of a model's files, recorded when it is fetched.

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::{Error, blocking, io};

/// The file of checksums in a model's folder. Each line has a checksum, two spaces and a name.
pub(super) const SUMS: &str = "sha256sums";

/// A fetched file, still stored under its name with `.part`.
pub(super) struct Fetched {
    pub file: String,
    pub sha256: String,
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
