//! All recordings: `recordings/ORGANISATION/SESSION.pcm` in the state folder, readable by the owner only. One thread
//! writes; the rest looks at files.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::config::Config;
use super::tape::{Name, Tape, Work};
use super::tracks::Tracks;
use super::wave::FRAME_BYTES;
use crate::audio::SAMPLE_RATE;
use crate::share::{Tenants, may_hold};
use crate::state;

const FOLDER: &str = "recordings";
const ENDING: &str = "pcm";
/// Pieces that wait for the disk, of about a second of one talk each.
const WAITING_MAX: usize = 512;
/// The prefix of a session's id, and its hexadecimal digits.
const ID: (&str, usize) = ("sess_", 12);

/// A recording on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    pub path: PathBuf,
    /// Bytes of samples.
    pub bytes: u64,
    pub seconds: f64,
    /// When it is deleted, if the talk is over.
    pub expires: Option<SystemTime>,
}

/// Cheap handle; clones share the recordings.
#[derive(Clone)]
pub struct Shelf(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    config: Config,
    tenants: Tenants,
    desk: SyncSender<Work>,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    /// Bytes of each tenant.
    bytes: HashMap<u64, u64>,
    /// Those in progress, and whether they are over.
    open: HashMap<Name, Arc<AtomicBool>>,
}

impl Book {
    fn add(&mut self, tenant: u64, bytes: u64) {
        *self.bytes.entry(tenant).or_default() += bytes;
    }

    fn remove(&mut self, tenant: u64, bytes: u64) {
        if let Some(held) = self.bytes.get_mut(&tenant) {
            *held = held.saturating_sub(bytes);
        }
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    /// # Errors
    /// The folder cannot be read, or no thread begun.
    pub fn open(state_dir: &Path, config: &Config, tenants: Tenants) -> io::Result<Self> {
        let folder = state_dir.join(FOLDER);
        let mut book = Book::default();
        for (name, file) in files(&folder)? {
            book.add(name.tenant, file.metadata().map_or(0, |metadata| metadata.len()));
        }
        let book = Arc::new(Mutex::new(book));
        let (desk, work) = sync_channel(WAITING_MAX);
        let writer = Writer {
            folder: folder.clone(),
            config: config.clone(),
            tenants: tenants.clone(),
            book: book.clone(),
        };
        std::thread::Builder::new().name("recordings".into()).spawn(move || writer.run(&work))?;
        Ok(Self(Arc::new(Shared { folder, config: config.clone(), tenants, desk, book })))
    }

    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Begins to record a session, or goes on with its recording; none if there is no room.
    pub fn tape(&self, tenant: u64, session: &str) -> Option<Tape> {
        let name = Name { tenant, session: session.to_owned() };
        path(&self.0.folder, &name)?;
        let tracks = Tracks::new(Instant::now()).ok()?;
        let mut book = lock(&self.0.book);
        let one = u64::from(SAMPLE_RATE) * FRAME_BYTES;
        may(&book, &self.0.config, &self.0.tenants, tenant, one).ok()?;
        let is_over = Arc::new(AtomicBool::new(false));
        book.open.insert(name.clone(), is_over.clone());
        Some(Tape::new(tracks, name, self.0.desk.clone(), is_over))
    }

    /// A session's recording, if its tenant has one. Looks at the disk.
    pub fn find(&self, tenant: u64, session: &str) -> Option<Recording> {
        let name = Name { tenant, session: session.to_owned() };
        let path = path(&self.0.folder, &name)?;
        let metadata = fs::metadata(&path).ok()?;
        let bytes = metadata.len() / FRAME_BYTES * FRAME_BYTES;
        let is_open = lock(&self.0.book).open.contains_key(&name);
        let kept = Duration::from_secs(self.0.config.kept_seconds);
        let expires = metadata.modified().ok().and_then(|written| written.checked_add(kept));
        let seconds = bytes as f64 / FRAME_BYTES as f64 / f64::from(SAMPLE_RATE);
        Some(Recording { path, bytes, seconds, expires: expires.filter(|_| !is_open) })
    }

    /// Deletes a recording; one in progress ends. False if there is none. Blocks for the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn delete(&self, tenant: u64, session: &str) -> io::Result<bool> {
        let name = Name { tenant, session: session.to_owned() };
        let Some(path) = path(&self.0.folder, &name) else { return Ok(false) };
        // Under the lock that the writer takes too, so that no piece comes after.
        let mut book = lock(&self.0.book);
        let was_open =
            book.open.remove(&name).map(|is_over| is_over.store(true, Ordering::Relaxed)).is_some();
        let bytes = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(was_open),
            Err(error) => return Err(error),
        };
        fs::remove_file(&path)?;
        book.remove(tenant, bytes);
        Ok(true)
    }

    /// Deletes the recordings that are too old. Blocks for the disk.
    pub fn sweep(&self, now: SystemTime) {
        let kept = Duration::from_secs(self.0.config.kept_seconds);
        let Ok(files) = files(&self.0.folder) else { return };
        for (name, file) in files {
            let age = file.metadata().and_then(|metadata| metadata.modified());
            let is_old = age.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age >= kept));
            let is_open = lock(&self.0.book).open.contains_key(&name);
            if is_old && !is_open {
                match self.delete(name.tenant, &name.session) {
                    Ok(_) => tracing::info!(session = name.session, "its recording is old, and deleted"),
                    Err(error) => tracing::error!(session = name.session, %error, "an old recording stays"),
                }
            }
        }
    }

    /// Waits until everything so far is written.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let desk = self.0.desk.clone();
        // The queue may be full for a moment.
        let sent = tokio::task::spawn_blocking(move || desk.send(Work::Flush(done)).is_ok()).await;
        if sent.unwrap_or(false) {
            let _ = written.await;
        }
    }
}

/// Where a recording lies; none for a name that is no session's.
fn path(folder: &Path, name: &Name) -> Option<PathBuf> {
    let (prefix, digits) = ID;
    let id = name.session.strip_prefix(prefix)?;
    let is_id = id.len() == digits && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| folder.join(name.tenant.to_string()).join(format!("{}.{ENDING}", name.session)))
}

/// All recordings, with their names.
fn files(folder: &Path) -> io::Result<Vec<(Name, PathBuf)>> {
    let list = |folder: &Path| match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read?.map(|entry| entry.map(|entry| entry.path())).collect(),
    };
    let mut files = Vec::new();
    for tenant in list(folder)? {
        let Some(number) = tenant.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        for file in list(&tenant)? {
            let Some(session) = file.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let name = Name { tenant: number, session: session.to_owned() };
            if path(folder, &name).is_some_and(|path| path == file) {
                files.push((name, file));
            }
        }
    }
    Ok(files)
}

/// Why a piece is not written.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("recordings take up as much as they may")]
    Full,
    #[error("the disk has as little space as it may")]
    Disk,
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn may(book: &Book, config: &Config, tenants: &Tenants, tenant: u64, bytes: u64) -> Result<(), Refusal> {
    let (own, all) = (book.bytes.get(&tenant).copied().unwrap_or(0), book.bytes.values().sum());
    may_hold(own, all, bytes, config.bytes_max, tenants).map_err(|_| Refusal::Full)
}

/// The thread that writes.
struct Writer {
    folder: PathBuf,
    config: Config,
    tenants: Tenants,
    book: Arc<Mutex<Book>>,
}

impl Writer {
    fn run(&self, work: &Receiver<Work>) {
        while let Ok(work) = work.recv() {
            match work {
                Work::Append { name, bytes, is_over } => {
                    if let Err(error) = self.append(&name, &bytes, &is_over) {
                        is_over.store(true, Ordering::Relaxed);
                        tracing::warn!(session = name.session, %error, "the talk is not recorded any more");
                    }
                }
                Work::Close(name) => {
                    lock(&self.book).open.remove(&name);
                }
                Work::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    fn append(&self, name: &Name, bytes: &[u8], is_over: &AtomicBool) -> Result<(), Refusal> {
        let Some(path) = path(&self.folder, name) else { return Ok(()) };
        let mut book = lock(&self.book);
        if is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        may(&book, &self.config, &self.tenants, name.tenant, bytes.len() as u64)?;
        if let Some(parent) = path.parent() {
            state::make_directory(parent)?;
        }
        if state::free_bytes(&self.folder).is_some_and(|free| free < self.config.disk_free_bytes_min) {
            return Err(Refusal::Disk);
        }
        let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.write_all(bytes)?;
        book.add(name.tenant, bytes.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID_A: &str = "sess_00000000000a";

    fn shelf(folder: &Path, config: &Config) -> Shelf {
        Shelf::open(folder, config, Tenants::default()).expect("a folder")
    }

    fn recorded(shelf: &Shelf, tenant: u64, session: &str, seconds: usize) {
        let mut tape = shelf.tape(tenant, session).expect("room");
        tape.hear(1, &vec![0.25; seconds * SAMPLE_RATE as usize]);
    }

    #[tokio::test]
    async fn a_recording_is_its_tenants_alone_and_goes_on_after_a_pause() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { disk_free_bytes_min: 0, ..Config::default() };
        let shelf = shelf(folder.path(), &config);
        recorded(&shelf, 1, ID_A, 2);
        recorded(&shelf, 1, ID_A, 1);
        shelf.flush().await;
        let found = shelf.find(1, ID_A).expect("there");
        assert!((3.0..3.5).contains(&found.seconds) && found.expires.is_some(), "{found:?}");
        assert_eq!(shelf.find(2, ID_A), None);
        for other in ["../../keys", "sess_", "sess_00000000000g", ""] {
            assert!(shelf.find(1, other).is_none() && shelf.tape(1, other).is_none(), "{other}");
        }
        assert!(!shelf.delete(2, ID_A).expect("no failure"));
        assert!(shelf.delete(1, ID_A).expect("deleted") && !shelf.delete(1, ID_A).expect("no failure"));
        assert_eq!(lock(&shelf.0.book).bytes[&1], 0);
    }

    #[tokio::test]
    async fn a_recording_that_is_deleted_while_it_goes_on_stays_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { disk_free_bytes_min: 0, ..Config::default() };
        let shelf = shelf(folder.path(), &config);
        let mut tape = shelf.tape(1, ID_A).expect("room");
        assert!(shelf.delete(1, ID_A).expect("in progress"));
        tape.hear(1, &[0.5; 16_000]);
        drop(tape);
        shelf.flush().await;
        assert_eq!(shelf.find(1, ID_A), None);
    }

    #[tokio::test]
    async fn recordings_have_bounds_and_an_age() {
        let folder = tempfile::tempdir().expect("a folder");
        let config =
            Config { bytes_max: 200_000, kept_seconds: 3600, disk_free_bytes_min: 0, ..Config::default() };
        let first = shelf(folder.path(), &config);
        recorded(&first, 1, ID_A, 2);
        first.flush().await;
        // Two seconds are there; two more would be too many, after a restart too.
        let again = shelf(folder.path(), &config);
        recorded(&again, 1, "sess_00000000000b", 2);
        again.flush().await;
        assert!(again.find(1, "sess_00000000000b").is_none() && again.find(1, ID_A).is_some());
        again.sweep(SystemTime::now() + Duration::from_secs(1800));
        assert!(again.find(1, ID_A).is_some());
        again.sweep(SystemTime::now() + Duration::from_secs(7200));
        assert_eq!(again.find(1, ID_A), None);
        let full = Config { disk_free_bytes_min: u64::MAX, ..config };
        let full = shelf(folder.path(), &full);
        recorded(&full, 1, ID_A, 1);
        full.flush().await;
        assert_eq!(full.find(1, ID_A), None);
    }
}
