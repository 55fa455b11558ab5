//! Audio that waits, one file for each job.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::store::JobId;
use super::{Error, full};
use crate::state;

/// Of a file that is still being written; nobody needs it after a crash.
const DRAFT: &str = "part";

pub struct Spool {
    folder: PathBuf,
    free_bytes_min: u64,
}

impl Spool {
    pub fn open(folder: &Path, free_bytes_min: u64) -> io::Result<Self> {
        state::make_directory(folder)?;
        Ok(Self { folder: folder.to_owned(), free_bytes_min })
    }

    /// Whether the disk holds so many bytes more, and what is to be left free.
    pub fn has_room(&self, bytes: u64) -> bool {
        // Where the system does not say, writing will tell.
        free_bytes(&self.folder).is_none_or(|free| free >= bytes.saturating_add(self.free_bytes_min))
    }

    /// Writes a job's audio; on the disk, name and all, when this returns. Blocks.
    pub fn write(&self, id: JobId, bytes: &[u8]) -> Result<(), Error> {
        let (path, draft) = (self.path(id), self.path(id).with_extension(DRAFT));
        let written = state::write_whole(&draft, bytes)
            .and_then(|()| fs::rename(&draft, &path))
            .and_then(|()| state::sync_directory(&self.folder));
        written.map_err(|source| {
            let _ = fs::remove_file(&draft);
            let _ = fs::remove_file(&path);
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full("disk"),
                _ => Error::File { path, source },
            }
        })
    }

    /// Blocks.
    pub fn read(&self, id: JobId) -> io::Result<Vec<u8>> {
        fs::read(self.path(id))
    }

    /// What stays behind where this fails, the next start removes.
    pub fn remove(&self, id: JobId) {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove a job's audio");
            }
            _ => {}
        }
    }

    /// Removes all but the audio of these jobs: what a crash left before its job was taken, or after it
    /// was done.
    pub fn sweep(&self, keep: &HashSet<JobId>) -> io::Result<()> {
        let keep: HashSet<String> = keep.iter().map(ToString::to_string).collect();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| keep.contains(name)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn path(&self, id: JobId) -> PathBuf {
        self.folder.join(id.to_string())
    }
}

/// What a process without privileges may still write to the disk that holds `folder`.
fn free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut stats = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is a string that ends in a zero and lives through the call, and `stats` has room for
    // what is written.
    let result = unsafe { libc::statvfs(path.as_ptr(), stats.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: statvfs returned 0, so it has filled `stats` (POSIX.1-2017, fstatvfs).
    let stats = unsafe { stats.assume_init() };
    Some(stats.f_bavail.saturating_mul(stats.f_frsize))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn audio_lasts_until_it_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, orphan) = (JobId(Uuid::from_u128(1)), JobId(Uuid::from_u128(2)));
        let spool = Spool::open(dir.path(), 0).unwrap();
        spool.write(kept, b"kept").unwrap();
        spool.write(orphan, b"orphan").unwrap();
        fs::write(dir.path().join(format!("{kept}.part")), b"half").unwrap();
        spool.sweep(&HashSet::from([kept])).unwrap();
        assert_eq!(spool.read(kept).unwrap(), b"kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        spool.remove(kept);
        assert!(spool.read(kept).is_err());
    }

    #[test]
    fn a_disk_that_shall_stay_free_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Spool::open(dir.path(), 0).unwrap().has_room(1));
        assert!(!Spool::open(dir.path(), u64::MAX).unwrap().has_room(1));
    }
}
