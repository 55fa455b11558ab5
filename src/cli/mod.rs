//! The command line: what was typed, to what is done.
//!
//! Exit codes are those of [`EXIT_CODES`]. A reader of the output that has had enough (`| head`) ends it
//! without a word.

mod bench;
mod config;
mod demo;
mod jobs;
mod keys;
mod models;
mod serve;
mod signals;
mod stream;
mod transcribe;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use figment::value::Value;

use crate::config::{Config, Sources};
use crate::models::DeviceChoice;

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  failed; for `transcribe` at least one file, the others are done; for `models verify` a wrong file
    2  the command line or the configuration makes no sense; nothing was done
  130  stopped by SIGINT before it was done
  143  stopped by SIGTERM before it was done; a server that drains in time ends with 0";

/// Speech to text.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Command,
}

/// Settings that any command may need; the rest are in the configuration file.
#[derive(Args)]
struct Settings {
    /// Configuration file (TOML).
    #[arg(long, global = true, env = "VERBATIM_CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A known model or a folder.
    #[arg(long, global = true, value_name = "NAME|FOLDER")]
    model: Option<String>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, global = true)]
    device: Option<DeviceChoice>,
    /// auto, f32, bf16 or int8.
    #[arg(long, global = true, value_name = "TYPE")]
    compute_type: Option<String>,
    /// Threads for inference on the CPU.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// error, warn, info, debug or trace.
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve {
        /// Address and port.
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<SocketAddr>,
    },
    /// Run the reference demo backend beside a voice-agent service.
    Demo {
        /// Address and port.
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<SocketAddr>,
        /// Run the voice-agent service as well, at `listen`, and print the story of a call as lines to type.
        #[arg(long)]
        with_sts: bool,
    },
    /// Transcribe files, without a server.
    #[command(after_help = EXIT_CODES)]
    Transcribe(transcribe::Arguments),
    /// Measure speed, delay, memory and word errors on files of yours.
    Bench(bench::Arguments),
    /// Stream a file, standard input or the microphone to a running server, and show what it hears.
    Stream(stream::Arguments),
    /// Create, list and revoke API keys.
    #[command(subcommand)]
    Keys(keys::Command),
    /// List, show and redeliver jobs (requests with a callback), and show what they are signed with.
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// List, fetch, find and verify models.
    #[command(subcommand)]
    Models(models::Command),
    /// Print the effective configuration as a file for --config, with where each value comes from.
    Config,
}

/// A failure, and which exit code it is.
enum Failure {
    Usage(anyhow::Error),
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Nobody reads the output any more.
#[derive(Debug, thiserror::Error)]
#[error("the output is closed")]
struct ClosedOutput;

/// Writes to standard output.
///
/// # Errors
/// [`ClosedOutput`], or what else keeps it from being written.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => ClosedOutput.into(),
        _ => anyhow::Error::new(error).context("standard output"),
    })
}

/// One line for a person. Where nobody reads that either, there is nothing left to say.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "verbatim: {text}");
}

pub fn main() -> ExitCode {
    let line = CommandLine::parse();
    match run(line) {
        Ok(code) => code,
        Err(failure) => {
            let (code, error) = match failure {
                Failure::Failed(error) if error.is::<ClosedOutput>() => return ExitCode::SUCCESS,
                Failure::Usage(error) => (2, error),
                Failure::Failed(error) => (1, error),
            };
            complain(&format!("{error:#}"));
            ExitCode::from(code)
        }
    }
}

fn run(line: CommandLine) -> Result<ExitCode, Failure> {
    let listen = match &line.command {
        Command::Serve { listen } => listen.map(|address| ("listen", address)),
        Command::Demo { listen, .. } => listen.map(|address| ("demo.listen", address)),
        _ => None,
    };
    let usage = |error: crate::config::Error| Failure::Usage(error.into());
    let sources = Sources::new(line.settings.config.as_deref(), environment(), line.settings.flags(listen))
        .map_err(usage)?;
    let config = sources.read().map_err(usage)?;
    match line.command {
        Command::Serve { .. } => {
            crate::telemetry::start(&config.log).map_err(|error| Failure::Usage(error.into()))?;
            runtime()?.block_on(serve::run(&config))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo { with_sts, .. } => {
            crate::telemetry::start(&config.log).map_err(|error| Failure::Usage(error.into()))?;
            runtime()?.block_on(async {
                if with_sts { demo::run_with_sts(config).await } else { demo::run(&config).await }
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Transcribe(arguments) => {
            crate::telemetry::start(&quiet(&config, &line.settings))
                .map_err(|error| Failure::Usage(error.into()))?;
            runtime()?.block_on(signals::interruptible(transcribe::run(config, arguments)))?
        }
        Command::Bench(arguments) => {
            crate::telemetry::start(&quiet(&config, &line.settings))
                .map_err(|error| Failure::Usage(error.into()))?;
            runtime()?.block_on(signals::interruptible(bench::run(config, arguments)))?
        }
        Command::Stream(arguments) => Ok(runtime()?.block_on(stream::run(&config, arguments))?),
        Command::Keys(command) => Ok(keys::run(&config, command)?),
        Command::Jobs(command) => Ok(runtime()?.block_on(jobs::run(&config, command))?),
        Command::Models(command) => {
            crate::telemetry::start(&quiet(&config, &line.settings))
                .map_err(|error| Failure::Usage(error.into()))?;
            Ok(runtime()?.block_on(signals::interruptible(models::run(&config, command)))??)
        }
        Command::Config => Ok(config::run(&sources)?),
    }
}

/// The log of a command that a person waits for: warnings, unless a flag says otherwise.
fn quiet(config: &Config, settings: &Settings) -> crate::telemetry::Config {
    match settings.log {
        Some(_) => config.log.clone(),
        None => crate::telemetry::Config { level: "warn".into(), ..config.log.clone() },
    }
}

/// What is no text is no setting.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The runtime for sockets; inference has threads of its own.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

impl Settings {
    fn flags(&self, listen: Option<(&'static str, SocketAddr)>) -> Vec<(&'static str, Value)> {
        let text =
            |name, value: &Option<String>| value.as_ref().map(|value| (name, Value::from(value.as_str())));
        [
            listen.map(|(name, address)| (name, Value::from(address.to_string()))),
            text("models.model", &self.model),
            self.device.map(|device| ("models.device", Value::from(String::from(device)))),
            text("models.compute_type", &self.compute_type),
            self.threads.map(|threads| ("models.threads", Value::from(threads))),
            text("log.level", &self.log),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Where keys and other state are, for messages.
fn state_dir(config: &Config) -> std::path::Display<'_> {
    config.state_dir.display()
}
