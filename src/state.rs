//! Files of the state directory: readable by their owner alone, and there whole or not at all.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Makes a directory, and those above it, where they are missing.
///
/// # Errors
/// The system's.
pub fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes an empty file where it is missing, and takes it from all others where it is there.
///
/// SQLite makes its files with the process's umask and gives journals the database's mode: so the
/// database is to be there, and private, before SQLite sees it.
///
/// # Errors
/// The system's.
pub fn make_file(path: &Path) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// What `path` holds; where it is missing it is made to hold `contents` first, for good.
///
/// Written beside and linked into place: where two processes come at once the first one's stands.
///
/// # Errors
/// The system's.
pub fn read_or_make(path: &Path, contents: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let draft = PathBuf::from(format!("{}.{:016x}", path.display(), rand::random::<u64>()));
    let linked = write_whole(&draft, &contents()).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // What could not be made may not be there to be removed; the first error is the one that counts.
    let removed = fs::remove_file(&draft);
    linked.and(removed)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    fs::read(path)
}

/// A new file with these bytes, on the disk when this returns. Its name may be lost in a power cut
/// until [`sync_directory`].
///
/// # Errors
/// The system's; where the file is there already, too.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the names in a directory last through a power cut.
///
/// # Errors
/// The system's.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}
