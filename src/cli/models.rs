//! `verbatim models …`: models of the model folder.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;

use super::output::print;
use crate::config::Config;
use crate::hub::{self, Verdict};

#[derive(Subcommand)]
pub enum Command {
    /// List known names, and which of them are installed.
    List,
    /// Fetch a model, so that a server can start without a network.
    Fetch { name: String },
    /// Print a model's folder; fails if it isn't installed.
    Path { name: String },
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
        Command::Verify { names } => return verify(config, names).await,
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares an installed model with its checksums.
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
