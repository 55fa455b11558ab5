//! Files that belong to no job: moved aside, logged, counted, and removed after a time; never deleted
//! silently.
//!
//! A row says what a file in the spool is for. So a database that is lost, damaged or restored from a backup
//! leaves orphans: audio whose job was acknowledged. A crash between file and row also leaves one, whose job
//! was not. The two look alike, so both are kept.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;
use super::spool::Spool;
use super::store::{JobId, Store};
use crate::state;

const FOLDER: &str = "jobs-quarantine";

/// A folder of the state directory, created when the first file is set aside.
#[derive(Debug, Clone)]
pub struct Quarantine {
    folder: PathBuf,
}

impl Quarantine {
    pub fn of(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves `file` here. Its modification time becomes `now`, so that it is kept for the full time.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set_aside(&self, file: &Path, name: &OsStr, now: SystemTime) -> io::Result<()> {
        state::make_directory(&self.folder)?;
        fs::File::open(file)?.set_modified(now)?;
        fs::rename(file, self.folder.join(name))
    }

    /// Moves a file from here to `place`. Returns whether it existed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn bring_back(&self, name: &str, place: &Path) -> io::Result<bool> {
        match fs::rename(self.folder.join(name), place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            moved => moved.map(|()| true),
        }
    }

    /// Removes files set aside before `before` and counts the rest. Blocks.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn expire(&self, before: SystemTime) -> io::Result<usize> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let (mut left, mut removed) = (0, 0);
        for entry in entries {
            let entry = entry?;
            let is_old = entry.metadata()?.modified()? < before;
            // A file that cannot be removed is tried again next time, and counted until then.
            if is_old && fs::remove_file(entry.path()).is_ok() {
                removed += 1;
            } else {
                left += 1;
            }
        }
        if removed > 0 {
            tracing::warn!(removed, left, "audio without a job was kept for its time, and is removed");
        }
        Ok(left)
    }
}

/// The findings of [`reconcile`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Files that belong to no job, by name.
    pub set_aside: Vec<String>,
    /// Jobs whose audio had been set aside while their rows were missing.
    pub brought_back: Vec<JobId>,
}

/// Makes files and rows agree, before any job is accepted or run: drafts and audio that is no longer needed
/// are removed, files that belong to no job are set aside, and set-aside files whose row is back are
/// restored.
///
/// # Errors
/// If rows cannot be read, or files cannot be listed. A file that cannot be moved is left for the next start.
pub async fn reconcile(store: &dyn Store, spool: &Spool, now: SystemTime) -> Result<Findings, Error> {
    let needed = store.with_audio().await?;
    let mut findings = Findings::default();
    for &id in &needed {
        if spool.bring_back(id)? {
            findings.brought_back.push(id);
        }
    }
    for name in spool.names()? {
        if !Spool::is_draft(&name) {
            let id = Spool::job_of(&name);
            if id.is_some_and(|id| needed.contains(&id)) {
                continue;
            }
            let is_known = match id {
                Some(id) => store.job(id).await?.is_some(),
                None => false,
            };
            if !is_known {
                match spool.set_aside(&name, now) {
                    Ok(()) => findings.set_aside.push(name.to_string_lossy().into_owned()),
                    Err(error) => tracing::warn!(%error, "cannot set audio without a job aside"),
                }
                continue;
            }
        }
        spool.discard(&name);
    }
    Ok(findings)
}

/// Logs the findings. `is_new`: the database has just been created.
pub fn report(findings: &Findings, is_new: bool, quarantine: &Quarantine, kept_seconds: u64) {
    let (count, folder) = (findings.set_aside.len(), quarantine.folder().display());
    if count > 0 && is_new {
        tracing::error!(
            count, %folder, kept_seconds,
            "the job database is new, though audio of jobs was waiting: those jobs are lost, unless a copy of the \
             database is put back; their audio is set aside"
        );
    } else if count > 0 {
        tracing::warn!(count, %folder, kept_seconds, "audio that belongs to no job is set aside");
    }
    if !findings.brought_back.is_empty() {
        tracing::warn!(count = findings.brought_back.len(), "audio that was set aside has its jobs again");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_set_aside_is_kept_for_its_time_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::of(dir.path());
        let now = SystemTime::now();
        assert_eq!(quarantine.expire(now).unwrap(), 0, "there is no folder yet");
        let file = dir.path().join("a");
        fs::write(&file, "audio").unwrap();
        fs::File::open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        quarantine.set_aside(&file, "a".as_ref(), now).unwrap();
        assert!(!file.exists());
        assert_eq!(quarantine.expire(now).unwrap(), 1);
        assert_eq!(fs::read(quarantine.folder().join("a")).unwrap(), b"audio");
        assert_eq!(quarantine.expire(now + Duration::from_secs(1)).unwrap(), 0);
        assert!(!quarantine.folder().join("a").exists());
    }
}
