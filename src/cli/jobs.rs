//! `verbatim jobs …`: jobs of the state directory, with or without a running server.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Subcommand;
use uuid::Uuid;

use super::output::{complain, note, print, state_dir};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::jobs::{Job, JobId, SigningSecret, Sqlite, State, Store as _};

#[derive(Subcommand)]
pub enum Command {
    /// List jobs, the newest first.
    List {
        /// queued, running, delivering, delivered or dead.
        #[arg(long, value_parser = parse_state)]
        state: Option<State>,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Print a job's state and history.
    Show { id: Uuid },
    /// Deliver the results of dead jobs again, or of waiting ones now.
    Retry {
        #[arg(required = true)]
        ids: Vec<Uuid>,
    },
    /// Print the secret that receivers verify `webhook-signature` with.
    Secret,
}

fn parse_state(name: &str) -> Result<State, String> {
    State::parse(name).ok_or_else(|| "one of queued, running, delivering, delivered, dead".into())
}

pub async fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    if let Command::Secret = command {
        let secret = match &config.jobs.secret {
            Some(secret) => secret.clone(),
            None => SigningSecret::of(&config.state_dir)?,
        };
        print(&format!("{}\n", secret.expose()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = Sqlite::open(&config.state_dir)?;
    match command {
        Command::List { state, limit } => {
            let mut lines = format!(
                "{:<36}  {:<24}  {:<10}  {:>8}  {:<20}  RECEIVER\n",
                "ID", "CREATED", "STATE", "ATTEMPTS", "ERROR"
            );
            for job in store.list(state, limit).await? {
                let (created, error) = (rfc3339(job.accepted), job.error.unwrap_or_default());
                let (id, state) = (job.id, job.state.name());
                lines += &format!(
                    "{id}  {created}  {state:<10}  {:>8}  {error:<20}  {}\n",
                    job.attempts, job.receiver
                );
            }
            print(&lines)?;
        }
        Command::Show { id } => {
            let job = store.job(JobId(id)).await?;
            let job = job.with_context(|| format!("there is no job {id}; see `verbatim jobs list`"))?;
            print(&described(&job))?;
        }
        Command::Retry { ids } => {
            let mut code = ExitCode::SUCCESS;
            for id in ids {
                if store.redrive(JobId(id), SystemTime::now()).await? {
                    note(&format!("Job {id} will be delivered by the server on {}.", state_dir(config)));
                } else {
                    complain(&format!("{id} is no job whose result waits to be delivered"));
                    code = ExitCode::FAILURE;
                }
            }
            return Ok(code);
        }
        Command::Secret => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn described(job: &Job) -> String {
    let rows = [
        ("id", Some(job.id.to_string())),
        ("state", Some(job.state.name().into())),
        ("receiver", Some(job.receiver.clone())),
        ("created", Some(rfc3339(job.accepted))),
        ("finished", job.finished.map(rfc3339)),
        ("ended", job.ended.map(rfc3339)),
        ("next", job.due.map(rfc3339)),
        ("runs", Some(job.runs.to_string())),
        ("attempts", Some(job.attempts.to_string())),
        ("error", job.error.clone()),
        ("result", job.result.as_ref().map(|result| format!("{} bytes", result.len()))),
    ];
    rows.into_iter().filter_map(|(name, value)| Some(format!("{name:<10} {}\n", value?))).collect()
}
