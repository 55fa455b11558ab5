//! Audio that waits, one file for each job.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::store::{Answer, JobId};
use super::{Error, full};
use crate::state;

/// Of a file that is still being written; nobody needs it after a crash.
const DRAFT: &str = "part";

/// Where audio waits. Each of these is on the disk when it returns.
pub trait Audio: Send + Sync {
    /// Whether there is room for so many bytes more.
    fn has_room(&self, bytes: u64) -> bool;

    /// # Errors
    /// [`Error::Full`], [`Error::File`]. Nothing is left of it.
    fn write(&self, id: JobId, bytes: Bytes) -> Answer<'_, ()>;

    fn read(&self, id: JobId) -> BoxFuture<'_, io::Result<Bytes>>;

    /// What stays behind where this fails, the next start removes.
    fn remove(&self, id: JobId);
}

impl Audio for Spool {
    fn has_room(&self, bytes: u64) -> bool {
        // Where the system does not say, writing will tell.
        free_bytes(&self.folder).is_none_or(|free| free >= bytes.saturating_add(self.free_bytes_min))
    }

    fn write(&self, id: JobId, bytes: Bytes) -> Answer<'_, ()> {
        let spool = self.clone();
        let write = tokio::task::spawn_blocking(move || spool.write_now(id, &bytes));
        Box::pin(async { write.await.map_err(|_| Error::Interrupted)? })
    }

    fn read(&self, id: JobId) -> BoxFuture<'_, io::Result<Bytes>> {
        let path = self.path(id);
        let read = tokio::task::spawn_blocking(move || fs::read(path).map(Bytes::from));
        Box::pin(async { read.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }

    fn remove(&self, id: JobId) {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove a job's audio");
            }
            _ => {}
        }
    }
}

#[derive(Clone)]
pub struct Spool {
    folder: PathBuf,
    free_bytes_min: u64,
}

impl Spool {
    pub fn open(folder: &Path, free_bytes_min: u64) -> io::Result<Self> {
        state::make_directory(folder)?;
        Ok(Self { folder: folder.to_owned(), free_bytes_min })
    }

    /// Writes a job's audio; on the disk, name and all, when this returns. Blocks.
    fn write_now(&self, id: JobId, bytes: &[u8]) -> Result<(), Error> {
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

    #[tokio::test]
    async fn audio_lasts_until_it_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, orphan) = (JobId(Uuid::from_u128(1)), JobId(Uuid::from_u128(2)));
        let spool = Spool::open(dir.path(), 0).unwrap();
        spool.write_now(kept, b"kept").unwrap();
        spool.write_now(orphan, b"orphan").unwrap();
        fs::write(dir.path().join(format!("{kept}.part")), b"half").unwrap();
        spool.sweep(&HashSet::from([kept])).unwrap();
        assert_eq!(spool.read(kept).await.unwrap().as_ref(), b"kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        spool.remove(kept);
        assert!(spool.read(kept).await.is_err());
    }

    #[test]
    fn a_disk_that_shall_stay_free_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Spool::open(dir.path(), 0).unwrap().has_room(1));
        assert!(!Spool::open(dir.path(), u64::MAX).unwrap().has_room(1));
    }
}
