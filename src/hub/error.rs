//! The error of finding or fetching a model, and of its files.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is neither a folder nor a known model; see `verbatim models list`")]
    Unknown(String),
    #[error(
        "it is not in {folder} and cannot be fetched from {url}. Without a network, put its files there: \
         config.json, tokenizer.json and model.safetensors (as on the hub), or config.json, tokenizer.json, \
         vocabulary.txt and model.bin (converted for CTranslate2); or name a folder that has them",
        folder = folder.display()
    )]
    Unreachable { folder: PathBuf, url: String, source: reqwest::Error },
    #[error("{url} broke off; the next attempt goes on from there")]
    Interrupted { url: String, source: Option<reqwest::Error> },
    #[error("{url} answered {status}")]
    Refused { url: String, status: u16 },
    #[error("{url} redirects to where it may not")]
    Redirect { url: String },
    #[error("{url} came with another content than announced, and was removed")]
    Checksum { url: String },
    #[error("the package index does not have {file}")]
    NotListed { file: &'static str },
    #[error("{} is not the archive that it should be", path.display())]
    Archive { path: PathBuf, source: zip::result::ZipError },
    #[error("`{0}` is no address of a server")]
    Address(String),
    #[error("{}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// For `map_err`.
pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// Runs blocking `work` on a thread for such work.
pub(super) async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io(path)(std::io::Error::other(error))),
    }
}
