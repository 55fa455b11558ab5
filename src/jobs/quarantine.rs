//! Files that belong to no job: moved aside, logged, counted, and removed after a time; never deleted
//! silently.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
