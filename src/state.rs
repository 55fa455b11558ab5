//! Files of the state directory: readable only by their owner, and written completely or not at all.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Between two tries at a database that is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Creates a directory and its parents if they are missing.
///
/// # Errors
/// Those of the file system.
pub fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Gives a database a write-ahead log. SQLite itself does not wait for another process that does the same at that moment,
/// whatever its busy timeout.
///
/// # Errors
/// Those of SQLite; that it is busy after `patience`.
pub fn log_ahead(database: &rusqlite::Connection, patience: Duration) -> rusqlite::Result<()> {
    let begun = Instant::now();
    while let Err(error) = database.pragma_update(None, "journal_mode", "wal") {
        let is_busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
        if !is_busy || begun.elapsed() > patience {
            return Err(error);
        }
        thread::sleep(BUSY_PAUSE);
    }
    Ok(())
}

/// Creates an empty file if it is missing; if it exists, withdraws all others' access to it.
///
/// SQLite creates its files by the process's umask and gives journals the mode of the database: so the
/// database must exist, and be private, before SQLite opens it.
///
/// # Errors
/// Those of the file system.
pub fn make_file(path: &Path) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// The content of a file that others than its owner must not read. Withdraws their access to it; where that is not possible,
/// as for a mounted secret, the log has a warning.
///
/// # Errors
/// Those of the file system.
pub fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        match file.set_permissions(fs::Permissions::from_mode(mode & 0o700)) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), "others had access to this file; now its owner alone has it")
            }
            Err(error) => tracing::warn!(
                path = %path.display(),
                kind = %error.kind(),
                "others than its owner have access to this file, and it cannot be withdrawn"
            ),
        }
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The content of `path`, as [`read_private`]; if the file is missing, it is created with `contents` first, durably.
///
/// Written beside it and linked into place: if two processes come at once, the first one's content stands.
///
/// # Errors
/// Those of the file system.
pub fn read_or_make(path: &Path, contents: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    match read_private(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let draft = PathBuf::from(format!("{}.{:016x}", path.display(), rand::random::<u64>()));
    let linked = write_whole(&draft, &contents()).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // A file that could not be written may not exist; the first error is the one that counts.
    let removed = fs::remove_file(&draft);
    linked.and(removed)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    fs::read(path)
}

/// The text of a setting that is a secret: of the file that `file:PATH` names, without line breaks at its end, or `text`
/// itself.
///
/// # Errors
/// The path, and why the file cannot be read; an empty one counts as missing.
pub fn secret_text(text: String) -> Result<String, String> {
    let Some(path) = text.strip_prefix("file:") else { return Ok(text) };
    let failed =
        |problem: &dyn std::fmt::Display| format!("the secret's file `{path}` cannot be read: {problem}");
    let bytes = read_private(Path::new(path)).map_err(|error| failed(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| failed(&"it is not text"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err(failed(&"it must hold one line")),
        false => Ok(text.to_owned()),
    }
}

/// Creates a file with these bytes, durable when this returns. Its name may be lost in a power cut until
/// [`sync_directory`].
///
/// # Errors
/// Those of the file system; also if the file exists.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Those of the file system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Bytes that an unprivileged process may still write to the disk that holds `folder`.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut stats = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is a NUL-terminated string that outlives the call, and `stats` has room for the result.
    let result = unsafe { libc::statvfs(path.as_ptr(), stats.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: statvfs returned 0, so it has filled `stats` (POSIX.1-2017, fstatvfs).
    let stats = unsafe { stats.assume_init() };
    Some(stats.f_bavail.saturating_mul(stats.f_frsize))
}
