//! Audio of waiting jobs, one file each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::error::Error;
use super::quarantine::Quarantine;
use super::store::{Answer, JobId, Stamp};
use crate::state;

const FOLDER: &str = "jobs-audio";
/// The extension of a file that is still being written; after a crash it is useless.
const DRAFT: &str = "part";

/// Storage for audio. A change is durable when its method returns.
pub trait Audio: Send + Sync {
    /// Whether there is room for this many bytes more.
    fn has_room(&self, bytes: u64) -> bool;

    /// Returns the SHA-256 of the bytes written.
    ///
    /// # Errors
    /// [`Error::Exhausted`], [`Error::File`]. Nothing is left behind.
    fn write(&self, id: JobId, bytes: Bytes) -> Answer<'_, [u8; 32]>;

    /// # Errors
    /// [`Unread`].
    fn read(&self, id: JobId, stamp: Stamp) -> BoxFuture<'_, Result<Bytes, Unread>>;

    /// If this fails, the next start removes the file.
    fn remove(&self, id: JobId);

    /// As [`Quarantine::expire`].
    fn expire(&self, before: SystemTime) -> BoxFuture<'_, io::Result<usize>>;
}

/// Why audio could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    #[error("the file is gone")]
    Gone,
    #[error("the file is not what was written")]
    Altered,
    /// Reading may succeed later.
    #[error("the file cannot be read")]
    Failed(#[from] io::Error),
}

impl Audio for Spool {
    fn has_room(&self, bytes: u64) -> bool {
        // If the system does not report it, writing will.
        state::free_bytes(&self.folder).is_none_or(|free| free >= bytes.saturating_add(self.free_bytes_min))
    }

    fn write(&self, id: JobId, bytes: Bytes) -> Answer<'_, [u8; 32]> {
        let spool = self.clone();
        let write = tokio::task::spawn_blocking(move || spool.write_now(id, &bytes));
        Box::pin(async { write.await.map_err(|_| Error::Interrupted)? })
    }

    fn read(&self, id: JobId, stamp: Stamp) -> BoxFuture<'_, Result<Bytes, Unread>> {
        let path = self.path(id);
        let read = tokio::task::spawn_blocking(move || read_now(&path, stamp));
        Box::pin(async { read.await.unwrap_or_else(|error| Err(io::Error::other(error).into())) })
    }

    fn remove(&self, id: JobId) {
        self.discard(id.to_string().as_ref());
    }

    fn expire(&self, before: SystemTime) -> BoxFuture<'_, io::Result<usize>> {
        let quarantine = self.quarantine.clone();
        let expire = tokio::task::spawn_blocking(move || quarantine.expire(before));
        Box::pin(async { expire.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

#[derive(Clone)]
pub struct Spool {
    folder: PathBuf,
    free_bytes_min: u64,
    quarantine: Quarantine,
}

impl Spool {
    /// # Errors
    /// [`Error::File`].
    pub fn open(state_dir: &Path, free_bytes_min: u64) -> Result<Self, Error> {
        let folder = state_dir.join(FOLDER);
        let quarantine = Quarantine::of(state_dir);
        match state::make_directory(&folder) {
            Ok(()) => Ok(Self { folder, free_bytes_min, quarantine }),
            Err(source) => Err(Error::File { path: folder, source }),
        }
    }

    /// Writes a job's audio; file and name are durable when this returns. Blocks.
    fn write_now(&self, id: JobId, bytes: &[u8]) -> Result<[u8; 32], Error> {
        let path = self.path(id);
        let draft = path.with_extension(DRAFT);
        let written = state::write_whole(&draft, bytes)
            .and_then(|()| fs::rename(&draft, &path))
            .and_then(|()| state::sync_directory(&self.folder));
        match written {
            Ok(()) => Ok(Sha256::digest(bytes).into()),
            Err(source) => {
                let _ = fs::remove_file(&draft);
                let _ = fs::remove_file(&path);
                Err(if is_shortage(&source) {
                    Error::Exhausted(Box::new(source))
                } else {
                    Error::File { path, source }
                })
            }
        }
    }

    /// The names of all files here.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn names(&self) -> Result<Vec<OsString>, Error> {
        let entries = fs::read_dir(&self.folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|source| Error::File { path: self.folder.clone(), source })?;
        let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_dir());
        Ok(entries.into_iter().filter(is_file).map(|entry| entry.file_name()).collect())
    }

    pub fn is_draft(name: &OsStr) -> bool {
        Path::new(name).extension().is_some_and(|extension| extension == DRAFT)
    }

    /// The job whose audio has this name.
    pub fn job_of(name: &OsStr) -> Option<JobId> {
        let id = JobId(Uuid::parse_str(name.to_str()?).ok()?);
        // A UUID has several spellings; its file has one name.
        (id.to_string().as_str() == name).then_some(id)
    }

    pub fn discard(&self, name: &OsStr) {
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove a job's audio");
            }
            _ => {}
        }
    }

    /// As [`Quarantine::set_aside`].
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set_aside(&self, name: &OsStr, now: SystemTime) -> io::Result<()> {
        self.quarantine.set_aside(&self.folder.join(name), name, now)
    }

    /// As [`Quarantine::bring_back`], if the job's audio is missing.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn bring_back(&self, id: JobId) -> Result<bool, Error> {
        let path = self.path(id);
        if path.exists() {
            return Ok(false);
        }
        let moved = self.quarantine.bring_back(&id.to_string(), &path);
        moved.map_err(|source| Error::File { path, source })
    }

    pub fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    fn path(&self, id: JobId) -> PathBuf {
        self.folder.join(id.to_string())
    }
}

fn read_now(path: &Path, stamp: Stamp) -> Result<Bytes, Unread> {
    let read = || -> Result<Vec<u8>, Unread> {
        // Checked first: a file that has grown may not fit in memory.
        if fs::metadata(path)?.len() != stamp.bytes {
            return Err(Unread::Altered);
        }
        Ok(fs::read(path)?)
    };
    let bytes = read().map_err(|error| match error {
        Unread::Failed(error) if error.kind() == io::ErrorKind::NotFound => Unread::Gone,
        error => error,
    })?;
    let is_same = |sha256: [u8; 32]| Sha256::digest(&bytes).as_slice() == sha256;
    if stamp.sha256.is_none_or(is_same) { Ok(bytes.into()) } else { Err(Unread::Altered) }
}

/// Whether the machine is short of something that it will have again: disk space, file descriptors, memory.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        || matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JobId = JobId(Uuid::from_u128(1));

    fn stamp(bytes: u64, sha256: Option<[u8; 32]>) -> Stamp {
        Stamp { bytes, sha256 }
    }

    #[tokio::test]
    async fn audio_is_what_was_written_or_known_for_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path(), 0).unwrap();
        let sha256 = Some(spool.write(ID, Bytes::from_static(b"what was said")).await.unwrap());
        assert_eq!(spool.read(ID, stamp(13, sha256)).await.unwrap().as_ref(), b"what was said");
        assert_eq!(spool.read(ID, stamp(13, None)).await.unwrap().as_ref(), b"what was said");

        for altered in ["what was sold", "what was said, and more", "what", ""] {
            fs::write(spool.path(ID), altered).unwrap();
            let read = spool.read(ID, stamp(13, sha256)).await;
            assert!(matches!(read, Err(Unread::Altered)), "{altered}");
        }
        assert!(matches!(spool.read(ID, stamp(13, None)).await, Err(Unread::Altered)), "by its length");
        spool.remove(ID);
        assert!(matches!(spool.read(ID, stamp(13, sha256)).await, Err(Unread::Gone)));
        // A folder cannot be read as a file; there may be a file another time.
        fs::create_dir(spool.path(ID)).unwrap();
        let length = fs::metadata(spool.path(ID)).unwrap().len();
        assert!(matches!(spool.read(ID, stamp(length, sha256)).await, Err(Unread::Failed(_))));
    }

    #[test]
    fn a_disk_that_shall_stay_free_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Spool::open(dir.path(), 0).unwrap().has_room(1));
        assert!(!Spool::open(dir.path(), u64::MAX).unwrap().has_room(1));
    }

    #[test]
    fn a_shortage_is_told_from_a_fault() {
        for code in [libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(is_shortage(&io::Error::from_raw_os_error(code)), "{code}");
        }
        for code in [libc::EIO, libc::ENOENT, libc::EACCES, libc::EROFS] {
            assert!(!is_shortage(&io::Error::from_raw_os_error(code)), "{code}");
        }
    }

    #[test]
    fn names_tell_jobs() {
        assert_eq!(Spool::job_of(OsStr::new(&ID.to_string())), Some(ID));
        for other in [format!("{ID}.part"), format!("{{{ID}}}"), ID.0.simple().to_string(), "x".into()] {
            assert_eq!(Spool::job_of(OsStr::new(&other)), None, "{other}");
        }
        assert!(Spool::is_draft(OsStr::new(&format!("{ID}.part"))));
    }
}
