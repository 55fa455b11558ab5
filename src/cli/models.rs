//! `verbatim models …`

use std::process::ExitCode;

use clap::Subcommand;

use crate::config::Config;
use crate::models::hub;

#[derive(Subcommand)]
pub enum Command {
    /// Known names, and which of them are here.
    List,
    /// Fetch a model, so that a server can start without a network.
    Fetch { name: String },
    /// Print a model's folder; fails where it is not here.
    Path { name: String },
}

pub async fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List => {
            for (name, repository) in hub::KNOWN {
                let here = if hub::is_model(&config.model_dir.join(name)) { "here" } else { "" };
                println!("{name:<20} {here:<6} {repository}");
            }
        }
        Command::Fetch { name } => println!("{}", hub::locate(&name, &config.model_dir).await?.display()),
        Command::Path { name } => {
            let folder = config.model_dir.join(&name);
            anyhow::ensure!(hub::is_model(&folder), "{} holds no model", folder.display());
            println!("{}", folder.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
