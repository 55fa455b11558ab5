//! Names of models to folders: what lies on disk, otherwise from the model hub.

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Name and repository. `large` and `turbo` are other names of the newest.
pub const KNOWN: [(&str, &str); 19] = [
    ("tiny", "openai/whisper-tiny"),
    ("tiny.en", "openai/whisper-tiny.en"),
    ("base", "openai/whisper-base"),
    ("base.en", "openai/whisper-base.en"),
    ("small", "openai/whisper-small"),
    ("small.en", "openai/whisper-small.en"),
    ("medium", "openai/whisper-medium"),
    ("medium.en", "openai/whisper-medium.en"),
    ("large-v1", "openai/whisper-large"),
    ("large-v2", "openai/whisper-large-v2"),
    ("large-v3", "openai/whisper-large-v3"),
    ("large", "openai/whisper-large-v3"),
    ("large-v3-turbo", "openai/whisper-large-v3-turbo"),
    ("turbo", "openai/whisper-large-v3-turbo"),
    ("distil-small.en", "distil-whisper/distil-small.en"),
    ("distil-medium.en", "distil-whisper/distil-medium.en"),
    ("distil-large-v2", "distil-whisper/distil-large-v2"),
    ("distil-large-v3", "distil-whisper/distil-large-v3"),
    ("distil-large-v3.5", "distil-whisper/distil-large-v3.5"),
];

/// Files of a model; the weights last, so that a folder with weights is whole.
const FILES: [&str; 4] = ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"];
const HUB: &str = "https://huggingface.co";
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is neither a folder nor a known model; see `verbatim models list`")]
    Unknown(String),
    #[error(
        "it is not in {} and cannot be fetched from {url}. Without a network, put its files there: \
         config.json, tokenizer.json and model.safetensors (or model.bin, converted for CTranslate2)",
        folder.display()
    )]
    Unreachable { folder: PathBuf, url: String, source: reqwest::Error },
    #[error("{url} answered {status}")]
    Refused { url: String, status: u16 },
    #[error("{url} came with another content than announced")]
    Checksum { url: String },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// Whether `folder` holds a model in a layout that is read.
pub fn is_model(folder: &Path) -> bool {
    ["model.bin", "model.safetensors", "model.safetensors.index.json"]
        .iter()
        .any(|weights| folder.join(weights).is_file())
}

/// The folder of `name`: a folder itself, one of `model_dir`, or fetched into it.
///
/// # Errors
/// See [`Error`].
pub async fn locate(name: &str, model_dir: &Path) -> Result<PathBuf, Error> {
    let named = Path::new(name);
    if named.is_dir() {
        return Ok(named.to_owned());
    }
    let Some((_, repository)) = KNOWN.iter().find(|(known, _)| *known == name) else {
        return Err(Error::Unknown(name.to_owned()));
    };
    let folder = model_dir.join(name);
    if !is_model(&folder) {
        let hub = std::env::var("HF_ENDPOINT").unwrap_or_else(|_| HUB.into());
        fetch(hub.trim_end_matches('/'), repository, &folder).await?;
    }
    Ok(folder)
}

async fn fetch(hub: &str, repository: &str, folder: &Path) -> Result<(), Error> {
    // A second call finds a provider in place, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client =
        reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).build().map_err(Error::Client)?;
    std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.to_owned(), source })?;
    for file in FILES {
        let url = format!("{hub}/{repository}/resolve/main/{file}");
        match download(&client, &url, &folder.join(file), folder).await {
            Err(Error::Refused { status: 404, .. }) if file == "generation_config.json" => {}
            result => result?,
        }
    }
    Ok(())
}

/// Downloads to `target`, going on from a `.part` file where one is left from before.
async fn download(client: &reqwest::Client, url: &str, target: &Path, folder: &Path) -> Result<(), Error> {
    if target.is_file() {
        return Ok(());
    }
    let unreachable = |source| Error::Unreachable { folder: folder.to_owned(), url: url.to_owned(), source };
    let part = target.with_added_extension("part");
    let io = |source| Error::Io { path: part.clone(), source };
    let have = tokio::fs::metadata(&part).await.map_or(0, |metadata| metadata.len());
    let mut request = client.get(url);
    if have > 0 {
        request = request.header("range", format!("bytes={have}-"));
    }
    if let Ok(token) = std::env::var("HF_TOKEN") {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    if !status.is_success() {
        return Err(Error::Refused { url: url.to_owned(), status: status.as_u16() });
    }
    let resumed = status == reqwest::StatusCode::PARTIAL_CONTENT;
    let length = response.content_length().map(|length| length + if resumed { have } else { 0 });
    let announced = announced_sha256(response.headers());
    let mut file = tokio::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .append(resumed)
        .truncate(!resumed)
        .open(&part)
        .await
        .map_err(io)?;
    let progress = progress_bar(target, length);
    progress.set_position(if resumed { have } else { 0 });
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(unreachable)?;
        file.write_all(&chunk).await.map_err(io)?;
        progress.inc(chunk.len() as u64);
    }
    file.sync_all().await.map_err(io)?;
    progress.finish_and_clear();
    if let Some(announced) = announced
        && sha256(&part).await.map_err(io)? != announced
    {
        tokio::fs::remove_file(&part).await.map_err(io)?;
        return Err(Error::Checksum { url: url.to_owned() });
    }
    tokio::fs::rename(&part, target).await.map_err(io)
}

/// The hub names large files by their SHA-256 in this header; small ones have a Git hash there.
fn announced_sha256(headers: &reqwest::header::HeaderMap) -> Option<String> {
    let tag = headers.get("x-linked-etag").or_else(|| headers.get("etag"))?.to_str().ok()?;
    let tag = tag.trim_matches('"');
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| tag.to_lowercase())
}

async fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = tokio::fs::File::open(path).await?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hasher.update(&buffer[..read]);
    }
}

fn progress_bar(target: &Path, length: Option<u64>) -> ProgressBar {
    let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style)
        .with_message(target.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
}
