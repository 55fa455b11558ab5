//! Voices on disk: a sealed file for each, `voices/ORGANISATION/ID` in the state directory, and all of them in memory.
//!
//! A deleted voice's file is renamed to a draft, then overwritten, then removed; drafts are erased at the start as well. On a
//! disk that writes elsewhere (an SSD, a file system with snapshots), remains stay until it reuses the blocks; they are
//! encrypted.
//!
//! Several processes may use a folder, a server and `verbatim voices` beside it: who writes locks it, and a reader looks
//! when an organisation's folder last changed.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::sealing::Sealer;
use super::{Config, Error, name};
use crate::{clock, state};

const FOLDER: &str = "voices";
const KEY: &str = "voices.key";
/// Extension of a file that is being written or erased.
const DRAFT: &str = "draft";
/// The times of file systems stand still for some milliseconds; a later change may bear the time of one that is younger.
const TICK: Duration = Duration::from_millis(100);
/// How long a request waits for the disk to tell what other processes have changed.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// A person's voice, as one organisation has enrolled it.
#[derive(Clone, PartialEq)]
pub struct Voice {
    pub id: Uuid,
    pub name: String,
    pub created: SystemTime,
    /// Of unit length.
    pub embedding: Vec<f32>,
}

impl std::fmt::Debug for Voice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Voice({})", self.id)
    }
}

/// The plain content of a file.
#[derive(Serialize, Deserialize)]
struct Content {
    name: String,
    created_unix_ms: u64,
    embedding: Vec<f32>,
}

/// The voices of all organisations. Cheap to clone: clones share them.
#[derive(Clone)]
pub struct Voices(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    sealer: Sealer,
    most: usize,
    /// By organisation, oldest first. Locked only to read or change a list, never during I/O: async threads take it.
    known: Mutex<HashMap<u64, Arc<[Voice]>>>,
    /// Held while files change or are read again; taken before `known`.
    files: Mutex<Seen>,
}

/// For each organisation, when its folder had last changed before it was read.
type Seen = HashMap<u64, SystemTime>;

/// A turn at changing the files: no other thread has one, and no other process.
struct Turn<'a> {
    seen: MutexGuard<'a, Seen>,
    _lock: fs::File,
}

impl Voices {
    /// Opens the voices in `state_dir`, and creates what is missing. A file that cannot be read, or does not open, is left
    /// out, with an error in the log. Waits while another process changes them.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Key`].
    pub fn open(state_dir: &Path, config: &Config) -> Result<Self, Error> {
        let folder = state_dir.join(FOLDER);
        let file = |source| Error::File { path: folder.clone(), source };
        state::make_directory(&folder).map_err(file)?;
        let key = config.key_file.clone().unwrap_or_else(|| state_dir.join(KEY));
        // A draft that another process is writing must not be taken for one that was left behind.
        let _lock = locked(&folder).map_err(file)?;
        let files = files(&folder).map_err(file)?;
        let sealer = Sealer::open(&key, !files.is_empty())?;
        let known = read_all(files, &sealer);
        Ok(Self(Arc::new(Shared {
            most: config.max_per_organisation,
            known: Mutex::new(known),
            files: Mutex::default(),
            folder,
            sealer,
        })))
    }

    /// The voices of `tenant`, oldest first, as far as this process knows them: without I/O.
    pub fn of(&self, tenant: u64) -> Arc<[Voice]> {
        self.known().get(&tenant).cloned().unwrap_or_default()
    }

    /// The same, with what other processes have changed; if the disk does not tell in time, without.
    pub async fn latest(&self, tenant: u64) -> Arc<[Voice]> {
        let voices = self.clone();
        let look = tokio::task::spawn_blocking(move || voices.look(tenant));
        let looked = tokio::time::timeout(LOOK_TIMEOUT, look).await;
        looked.ok().and_then(Result::ok).unwrap_or_else(|| self.of(tenant))
    }

    /// As [`Self::latest`], but blocks.
    fn look(&self, tenant: u64) -> Arc<[Voice]> {
        let seen = match self.0.files.try_lock() {
            Ok(seen) => Some(seen),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            // On a disk that stalls, one thread waits, and not one for each request.
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut seen) = seen
            && let Err(error) = self.read_again(tenant, &mut seen)
        {
            tracing::error!(kind = %error.kind(), "a folder of voices cannot be read; those known stay in use");
        }
        self.of(tenant)
    }

    /// Reads the files of `tenant` if its folder has changed.
    fn read_again(&self, tenant: u64, seen: &mut Seen) -> io::Result<()> {
        let folder = self.0.folder.join(tenant.to_string());
        let changed = match fs::metadata(&folder).and_then(|folder| folder.modified()) {
            Ok(changed) => changed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.known().remove(&tenant);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if seen.get(&tenant) == Some(&changed) {
            return Ok(());
        }
        let voices = read_all(self::voices(tenant, &folder)?, &self.0.sealer).remove(&tenant);
        match voices {
            Some(voices) => self.known().insert(tenant, voices),
            None => self.known().remove(&tenant),
        };
        if changed.elapsed().is_ok_and(|age| age >= TICK) {
            seen.insert(tenant, changed);
        } else {
            seen.remove(&tenant);
        }
        Ok(())
    }

    /// The organisations with voices, in order.
    pub fn organisations(&self) -> Vec<u64> {
        let mut organisations: Vec<u64> = self.known().keys().copied().collect();
        organisations.sort_unstable();
        organisations
    }

    /// Checks, before anything is computed, whether `tenant` may enrol a voice under `name`; returns the name without
    /// space around it.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NameTaken`], [`Error::Full`].
    pub fn check(&self, tenant: u64, name: &str) -> Result<String, Error> {
        let name = name.trim();
        if !name::is_valid(name) {
            return Err(Error::Name);
        }
        self.has_room(&self.of(tenant), name)?;
        Ok(name.to_owned())
    }

    fn has_room(&self, voices: &[Voice], name: &str) -> Result<(), Error> {
        match () {
            () if voices.iter().any(|voice| voice.name == name) => Err(Error::NameTaken),
            () if voices.len() >= self.0.most => Err(Error::Full { most: self.0.most }),
            () => Ok(()),
        }
    }

    /// Enrols a voice of `tenant`; it is on disk when this returns. Blocks.
    ///
    /// # Errors
    /// As [`Self::check`]; [`Error::File`].
    pub fn add(&self, tenant: u64, name: &str, embedding: Vec<f32>) -> Result<Voice, Error> {
        let name = self.check(tenant, name)?;
        let id = Uuid::new_v4();
        let created_unix_ms = clock::now();
        let content = Content { name, created_unix_ms, embedding };
        // Numbers and texts always serialize.
        let plain = serde_json::to_vec(&content).unwrap_or_default();
        let sealed = self.0.sealer.seal(tenant, id, &plain)?;
        let mut turn = self.turn()?;
        let folder = self.0.folder.join(tenant.to_string());
        // Another process may have taken the name.
        self.read_again(tenant, &mut turn.seen)
            .map_err(|source| Error::File { path: folder.clone(), source })?;
        let voices = self.of(tenant);
        self.has_room(&voices, &content.name)?;
        let (path, draft) = (folder.join(id.to_string()), folder.join(format!("{id}.{DRAFT}")));
        let write = || {
            state::make_directory(&folder)?;
            state::write_whole(&draft, &sealed)?;
            fs::rename(&draft, &path)?;
            state::sync_directory(&folder)?;
            state::sync_directory(&self.0.folder)
        };
        write().map_err(|source| {
            // On disk but not in memory, the voice would get a twin when the client tries again, and neither would be
            // matched after the next start.
            let _ = [&draft, &path].map(fs::remove_file);
            Error::File { path: folder.clone(), source }
        })?;
        let voice = content.into_voice(id);
        self.known().insert(tenant, voices.iter().cloned().chain([voice.clone()]).collect());
        Ok(voice)
    }

    /// Deletes a voice of `tenant`, from memory and from disk. Blocks.
    ///
    /// # Returns
    /// Whether there was one.
    ///
    /// # Errors
    /// [`Error::File`]. The voice may be in use no longer, with remains on disk: the next call, or the next start, erases
    /// them.
    pub fn remove(&self, tenant: u64, id: Uuid) -> Result<bool, Error> {
        let _turn = self.turn()?;
        let folder = self.0.folder.join(tenant.to_string());
        let (path, draft) = (folder.join(id.to_string()), folder.join(format!("{id}.{DRAFT}")));
        match fs::rename(&path, &draft) {
            // An earlier call may have come this far, and no farther.
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::File { path, source });
            }
            _ => self.forget(tenant, id),
        }
        // The name goes for good before the content does: a file of zeros would be taken for a damaged voice.
        match state::sync_directory(&folder).and_then(|()| erase(&draft)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Error::File { path: draft, source }),
        }
    }

    fn forget(&self, tenant: u64, id: Uuid) {
        let mut known = self.known();
        if let Some(voices) = known.remove(&tenant) {
            let rest: Arc<[Voice]> = voices.iter().filter(|voice| voice.id != id).cloned().collect();
            if !rest.is_empty() {
                known.insert(tenant, rest);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Arc<[Voice]>>> {
        // A panic elsewhere leaves whole lists.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the threads and processes that change the files.
    fn turn(&self) -> Result<Turn<'_>, Error> {
        let seen = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = |source| Error::File { path: self.0.folder.clone(), source };
        Ok(Turn { seen, _lock: locked(&self.0.folder).map_err(file)? })
    }
}

/// `folder`, which no other process changes until this is dropped.
fn locked(folder: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(folder)?;
    file.lock()?;
    Ok(file)
}

impl Content {
    fn into_voice(self, id: Uuid) -> Voice {
        let created = UNIX_EPOCH + Duration::from_millis(self.created_unix_ms);
        Voice { id, name: self.name, created, embedding: self.embedding }
    }
}

/// A voice's file.
struct Sealed {
    tenant: u64,
    id: Uuid,
    path: PathBuf,
}

/// The files of all voices. Erases drafts.
fn files(folder: &Path) -> io::Result<Vec<Sealed>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(tenant) = name_of(&path).and_then(|name| name.parse::<u64>().ok()) else { continue };
        // One organisation's folder, or one file, must not keep the server from starting for all others.
        if let Err(error) = files_of(tenant, &path, &mut files) {
            tracing::error!(
                path = %path.display(),
                kind = %error.kind(),
                "a folder of voices cannot be read, and they are left out"
            );
        }
    }
    Ok(files)
}

fn files_of(tenant: u64, folder: &Path, files: &mut Vec<Sealed>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == DRAFT)
            && let Err(error) = erase(&path)
        {
            tracing::error!(path = %path.display(), kind = %error.kind(), "a draft of a voice cannot be erased");
        }
    }
    files.extend(voices(tenant, folder)?);
    Ok(())
}

/// The files of one organisation's voices.
fn voices(tenant: u64, folder: &Path) -> io::Result<Vec<Sealed>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // The name of a draft is no id.
        if let Some(id) = name_of(&path).and_then(|name| Uuid::parse_str(name).ok()) {
            found.push(Sealed { tenant, id, path });
        }
    }
    Ok(found)
}

fn read_all(files: Vec<Sealed>, sealer: &Sealer) -> HashMap<u64, Arc<[Voice]>> {
    let mut known: HashMap<u64, Vec<Voice>> = HashMap::new();
    for Sealed { tenant, id, path } in files {
        match read(&path, tenant, id, sealer) {
            Ok(Some(voice)) => known.entry(tenant).or_default().push(voice),
            Ok(None) => tracing::error!(
                path = %path.display(),
                "a voice does not open, and is left out: restore the file, or the key that it was sealed with"
            ),
            Err(error) => tracing::error!(
                path = %path.display(),
                kind = %error.kind(),
                "a voice cannot be read, and is left out"
            ),
        }
    }
    let sorted = |mut voices: Vec<Voice>| {
        voices.sort_by_key(|voice| (voice.created, voice.id));
        voices.into()
    };
    known.into_iter().map(|(tenant, voices)| (tenant, sorted(voices))).collect()
}

fn read(path: &Path, tenant: u64, id: Uuid, sealer: &Sealer) -> io::Result<Option<Voice>> {
    let plain = sealer.open_sealed(tenant, id, &fs::read(path)?);
    let content = plain.and_then(|plain| serde_json::from_slice::<Content>(&plain).ok());
    Ok(content.map(|content| content.into_voice(id)))
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Overwrites a file, then removes it.
fn erase(path: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or_default();
    file.write_all(&vec![0; length])?;
    file.sync_all()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests;
