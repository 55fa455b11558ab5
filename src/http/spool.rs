//! Files that hold large bodies while they are needed.
//!
//! They have no name, so that nothing is left of them when the process ends, however it ends. Some file systems give
//! each of them one for a moment: what a process killed in that moment left is removed at the next start.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use memmap2::Mmap;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use crate::state;

/// Bytes per write.
const BLOCK_BYTES: usize = 128 << 10;
/// Left on the disk in any case, for the databases beside the folder.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// The beginning of a file's name, where it has one for a moment.
const MOMENTARY: &str = ".verbatim-upload-";

/// The folder of the files.
pub struct Spool {
    folder: PathBuf,
}

impl Spool {
    /// A folder, which need not exist yet.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// As [`Spool::at`], and removes what earlier processes left there.
    pub fn open(folder: PathBuf) -> Self {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(MOMENTARY.as_bytes())) {
            if let Err(error) = fs::remove_file(entry.path()) {
                tracing::warn!(kind = %error.kind(), "cannot remove an upload of an earlier process");
            }
        }
        Self::at(folder)
    }

    /// # Errors
    /// Those of the file system; [`io::ErrorKind::StorageFull`] also if little room is left.
    pub async fn create(&self) -> io::Result<Draft> {
        let folder = self.folder.clone();
        let create = move || {
            state::make_directory(&folder)?;
            check_room(&folder)?;
            nameless(&folder)
        };
        let file = tokio::task::spawn_blocking(create).await.map_err(io::Error::other)??;
        Ok(Draft { folder: self.folder.clone(), file: file.into(), block: BytesMut::new(), written: 0 })
    }
}

/// A new file without a name.
fn nameless(folder: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE).open(folder) {
        // Not every file system can do that.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let path = folder.join(format!("{MOMENTARY}{:016x}", rand::random::<u64>()));
            let file = options.create_new(true).open(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        file => file,
    }
}

fn check_room(folder: &Path) -> io::Result<()> {
    match state::free_bytes(folder) {
        Some(free) if free < FREE_BYTES_MIN => Err(io::ErrorKind::StorageFull.into()),
        // If the system does not report it, writing will.
        _ => Ok(()),
    }
}

/// A file that is being written; dropping it deletes it.
pub struct Draft {
    folder: PathBuf,
    file: File,
    /// Not yet written.
    block: BytesMut,
    written: u64,
}

impl Draft {
    /// # Errors
    /// As [`Spool::create`].
    pub async fn add(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.block.reserve(BLOCK_BYTES - self.block.len());
            let (now, later) = bytes.split_at((BLOCK_BYTES - self.block.len()).min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// The content, read from the file as it is used.
    ///
    /// # Errors
    /// Those of the file system.
    pub async fn finish(mut self) -> io::Result<Bytes> {
        self.write().await?;
        self.file.flush().await?;
        let file = self.file.into_std().await;
        if file.metadata()?.len() != self.written {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.written == 0 {
            return Ok(Bytes::new());
        }
        // SAFETY: the file has no name and its only handle is here, so nothing changes or shortens it while it is mapped.
        let mapped = unsafe { Mmap::map(&file) }?;
        Ok(Bytes::from_owner(mapped))
    }

    async fn write(&mut self) -> io::Result<()> {
        check_room(&self.folder)?;
        self.file.write_all(&self.block).await?;
        self.written += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn kept(spool: &Spool, pieces: &[&[u8]]) -> Bytes {
        let mut draft = spool.create().await.unwrap();
        for piece in pieces {
            draft.add(piece).await.unwrap();
        }
        draft.finish().await.unwrap()
    }

    #[tokio::test]
    async fn a_file_holds_what_was_added_and_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().join("uploads"));
        let long: Vec<u8> = (0..3 * BLOCK_BYTES + 7).map(|index| (index * 31) as u8).collect();
        for pieces in
            [&[][..], &[b"a".as_slice(), b"", b"bc"], &[&long], &[&long[..BLOCK_BYTES], &long[BLOCK_BYTES..]]]
        {
            assert!(kept(&spool, pieces).await == pieces.concat());
        }
        let held = kept(&spool, &[&long]).await;
        assert_eq!(fs::read_dir(&spool.folder).unwrap().count(), 0);
        assert!(held == long);
    }

    #[test]
    fn the_remains_of_a_killed_process_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".verbatim-upload-0123456789abcdef", ".tmpAb3dE9", "speech.wav"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        Spool::open(folder.path().to_owned());
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, [".tmpAb3dE9", "speech.wav"]);
    }
}
