//! `verbatim models …`: models of the model folder.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use serde::Deserialize;
use url::Url;

use super::output::print;
use crate::config::Config;
use crate::hub::{self, Verdict};

const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Subcommand)]
pub enum Command {
    /// List known names, and which of them are installed.
    List,
    /// Fetch a model, so that a server can start without a network.
    Fetch { name: String },
    /// Print a model's folder; fails if it isn't installed.
    Path { name: String },
    /// List the models of a running server, and which of them are loaded.
    Loaded {
        /// The server; `https` for one with TLS. Default: where `serve` listens.
        #[arg(long, value_name = "URL")]
        url: Option<Url>,
    },
    /// Compare models with the SHA-256 checksums recorded when they were fetched.
    ///
    /// Fails if a file is missing or differs, and if a named model has no checksums to compare with.
    Verify {
        /// Names or folders; by default all installed models.
        names: Vec<String>,
    },
}

pub async fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List => {
            let mut lines = String::new();
            for known in hub::KNOWN {
                let here = if hub::is_model(&config.model_dir.join(known.name)) { "here" } else { "" };
                lines += &format!("{:<20} {here:<6} {}\n", known.name, known.repository);
            }
            for (alias, name) in hub::ALIASES {
                lines += &format!("{alias:<20} {:<6} another name for {name}\n", "");
            }
            print(&lines)?;
        }
        Command::Fetch { name } => {
            let folder = hub::locate(&name, &config.model_dir, &config.models.hub).await?;
            print(&format!("{}\n", folder.display()))?;
        }
        Command::Path { name } => print(&format!("{}\n", folder(config, &name)?.display()))?,
        Command::Loaded { url } => print(&loaded(config, url).await?)?,
        Command::Verify { names } => return verify(config, names).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// The part of a server's `/v1/status` about its models.
#[derive(Deserialize)]
struct Status {
    models: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    state: String,
    default: bool,
}

/// The models of the server at `url`, one per line.
///
/// # Errors
/// It can't be reached, or gives another answer than this version does.
async fn loaded(config: &Config, url: Option<Url>) -> anyhow::Result<String> {
    let server = match url {
        Some(url) => url,
        None => {
            let scheme = if config.http.tls.is_some() { "https" } else { "http" };
            Url::parse(&format!("{scheme}://{}", config.listen))?
        }
    };
    // Fails if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(STATUS_TIMEOUT).build()?;
    let status = async {
        let response = client.get(server.join("/v1/status")?).send().await?.error_for_status()?;
        anyhow::Ok(serde_json::from_slice::<Status>(&response.bytes().await?)?)
    };
    let status = status.await.with_context(|| format!("the models of the server at {server}"))?;
    let line = |model: Served| {
        let default = if model.default { "default" } else { "" };
        format!("{:<20} {:<10} {default}", model.name, model.state).trim_end().to_owned() + "\n"
    };
    Ok(status.models.into_iter().map(line).collect())
}

/// A model's folder.
///
/// # Errors
/// It isn't installed.
fn folder(config: &Config, name: &str) -> anyhow::Result<PathBuf> {
    let folder = hub::folder(name, &config.model_dir)?;
    anyhow::ensure!(hub::is_model(&folder), "{} holds no model", folder.display());
    Ok(folder)
}

async fn verify(config: &Config, names: Vec<String>) -> anyhow::Result<ExitCode> {
    let are_named = !names.is_empty();
    let names = if are_named { names } else { all(config)? };
    let mut is_right = true;
    for name in names {
        let verdicts = hub::verify(&folder(config, &name)?).await?;
        if verdicts.is_empty() {
            print(&format!("{name}: nothing to compare with: no sums were recorded for it\n"))?;
            is_right &= !are_named;
        }
        for (file, verdict) in verdicts {
            let text = match verdict {
                Verdict::Right => "right",
                Verdict::Different => "WRONG: not the file that was fetched",
                Verdict::Missing => "MISSING",
            };
            print(&format!("{name}/{file}: {text}\n"))?;
            is_right &= verdict == Verdict::Right;
        }
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Names of the models in the model folder.
fn all(config: &Config) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    let folder = config.model_dir.display();
    for entry in std::fs::read_dir(&config.model_dir).with_context(|| folder.to_string())? {
        let entry = entry?;
        if hub::is_model(&entry.path()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    anyhow::ensure!(
        !names.is_empty(),
        "there are no models in {folder}; `verbatim models fetch NAME` brings one"
    );
    names.sort();
    Ok(names)
}
