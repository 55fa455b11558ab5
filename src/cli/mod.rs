//! The command line: arguments, settings and the commands that they run.
//!
//! Exit codes are those of [`EXIT_CODES`]. If a reader closes the output early (`| head`), the program ends silently.
//!
//! [On a GPU]: crate::cuda
#![doc = include_str!("README.md")]

mod bench;
mod config;
mod demo;
mod doctor;
mod engine;
mod input;
mod jobs;
mod keys;
mod models;
mod output;
mod reference;
mod serve;
mod signals;
mod stream;
mod top;
mod transcribe;
mod voices;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::app;
use crate::config::{Config, Flag, Sources};
use crate::hub;
use crate::models::TokenRange;
use output::{ClosedOutput, Failure, complain};

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  failed; for `transcribe` at least one file, the others are done; for `models verify` a wrong file; for
       `doctor` a check
    2  the command line or the configuration makes no sense; nothing was done
  130  stopped by SIGINT (Ctrl-C) before it was done
  143  stopped by SIGTERM before it was done

A server that drains in time ends with 0, and so does `stream mic`, which Ctrl-C ends. A reader that closes the
output early (`| head`) is no failure.";

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
    /// error, warn, info, debug, trace or off, or directives such as info,verbatim::http=debug.
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    #[command(after_help = EXIT_CODES)]
    Serve {
        /// Address and port.
        #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
        listen: Option<SocketAddr>,
        /// For development: programs on this machine may call the voice agent without a key. Listens on loopback
        /// only; do not put a proxy in front of it. Sets `sts.auth` to `loopback`.
        #[arg(long)]
        dev: bool,
        /// Print a link that opens the console in a browser without a key, once: on loopback only. On a terminal, the
        /// server prints it anyway. Sets `console.link` to `always`.
        #[arg(long)]
        console_link: bool,
        /// Tokens of each 30 s window of `--model synthetic:NAME`, which serves random weights of that model's shape
        /// for measurements. A number, or a range over which they are spread.
        #[arg(long, value_name = "N|MIN-MAX")]
        tokens: Option<TokenRange>,
        #[command(flatten)]
        engine: engine::Flags,
    },
    /// Run the reference demo backend beside a voice-agent service.
    Demo {
        /// Address and port.
        #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
        listen: Option<SocketAddr>,
        /// Run the voice-agent service as well, at `listen`, and print the story of a call as commands to type.
        #[arg(long)]
        with_sts: bool,
        #[command(flatten)]
        engine: engine::Flags,
    },
    /// Transcribe files, without a server.
    #[command(after_help = EXIT_CODES)]
    Transcribe(transcribe::Arguments),
    /// Measure speed, delay, memory and word errors on your files.
    Bench(bench::Arguments),
    /// Stream a file, standard input or the microphone to a running server, and show what it hears.
    #[command(after_help = EXIT_CODES)]
    Stream(stream::Arguments),
    /// Watch a running server: what is in hand, queues, slots, speed, answers, memory, GPUs.
    Top(top::Arguments),
    /// Create, limit, list and revoke API keys, and show who changed them.
    #[command(subcommand)]
    Keys(keys::Command),
    /// Enrol, list and delete voices, by which speakers get their names (`identify_speakers`).
    #[command(subcommand)]
    Voices(voices::Command),
    /// List, show and redeliver jobs (requests with a callback), and show their signing secret.
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// List, fetch, find and verify models, and show which of them a server has loaded.
    #[command(subcommand)]
    Models(models::Command),
    /// Test what a deployment needs, one line for each check, and say what to mend.
    #[command(after_help = EXIT_CODES)]
    Doctor(doctor::Arguments),
    /// Print the effective configuration as a file for --config, with the source of each value.
    Config {
        #[command(flatten)]
        engine: engine::Flags,
    },
    /// Print a shell's completions for this program.
    #[command(after_help = reference::COMPLETIONS_HELP)]
    Completions { shell: clap_complete::Shell },
    /// Print this program's manual page, or write those of all commands to a folder.
    Man { folder: Option<PathBuf> },
}

/// Parses an address to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8000 or [::1]:8000".into())
}

pub fn main() -> ExitCode {
    let line = CommandLine::parse();
    match run(line) {
        Ok(code) => code,
        Err(failure) => {
            let (code, error) = match failure {
                Failure::Failed(error) if error.is::<ClosedOutput>() => return ExitCode::SUCCESS,
                Failure::Usage(error) => (2, error),
                Failure::Failed(error) if is_configuration(&error) => (2, error),
                Failure::Failed(error) => (1, error),
            };
            complain(&format!("{error:#}"));
            ExitCode::from(code)
        }
    }
}

/// Whether the configuration or the command line caused `error`, although it was noticed only in use.
fn is_configuration(error: &anyhow::Error) -> bool {
    let is_unknown = |error: &hub::Error| matches!(error, hub::Error::Unknown(_) | hub::Error::Address(_));
    error.downcast_ref::<app::Error>().is_some_and(app::Error::is_configuration)
        || error.downcast_ref::<hub::Error>().is_some_and(is_unknown)
        || error.is::<crate::keys::UnknownScope>()
        || error.downcast_ref::<crate::keys::Error>().is_some_and(crate::keys::Error::is_usage)
}

fn run(line: CommandLine) -> Result<ExitCode, Failure> {
    // These need no configuration, and work even if it is broken.
    match &line.command {
        Command::Completions { shell } => return Ok(reference::completions(CommandLine::command(), *shell)?),
        Command::Man { folder } => return Ok(reference::manual(CommandLine::command(), folder.as_deref())?),
        _ => {}
    }
    let usage = |error: crate::config::Error| Failure::Usage(error.into());
    let file = line.settings.config.as_deref();
    let sources = Sources::new(file, environment(), flags(&line));
    if let Command::Doctor(arguments) = line.command {
        let config = sources.and_then(|sources| sources.read());
        // What a check finds, it says itself.
        let level = line.settings.log.unwrap_or_else(|| "error".into());
        log(&crate::telemetry::Config { level, ..crate::telemetry::Config::default() })?;
        let checked = signals::interruptible(doctor::run(config, arguments));
        return Ok(runtime()?.block_on(checked)??);
    }
    let sources = sources.map_err(usage)?;
    let config = sources.read().map_err(usage)?;
    match line.command {
        Command::Serve { .. } => {
            log(&config.log)?;
            let settings = sources.describe().map_err(usage)?;
            runtime()?.block_on(serve::run(&config, settings))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo { with_sts, .. } => {
            log(&config.log)?;
            runtime()?.block_on(async {
                if with_sts { demo::run_with_sts(config).await } else { demo::run(&config).await }
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Transcribe(arguments) => {
            log(&quiet(&config, &line.settings))?;
            runtime()?.block_on(signals::interruptible(transcribe::run(config, arguments)))?
        }
        Command::Bench(arguments) => {
            log(&quiet(&config, &line.settings))?;
            runtime()?.block_on(signals::interruptible(bench::run(config, arguments)))?
        }
        Command::Stream(arguments) => {
            let runtime = runtime()?;
            let streamed = runtime.block_on(stream::run(&config, arguments));
            // A thread that reads standard input may wait for ever for more of it.
            runtime.shutdown_background();
            Ok(streamed?)
        }
        Command::Top(arguments) => {
            log(&quiet(&config, &line.settings))?;
            Ok(runtime()?.block_on(signals::interruptible(top::run(&config, arguments)))??)
        }
        Command::Keys(command) => Ok(keys::run(&config, command)?),
        Command::Voices(command) => {
            log(&quiet(&config, &line.settings))?;
            Ok(runtime()?.block_on(signals::interruptible(voices::run(&config, command)))??)
        }
        Command::Jobs(command) => Ok(runtime()?.block_on(jobs::run(&config, command))?),
        Command::Models(command) => {
            log(&quiet(&config, &line.settings))?;
            Ok(runtime()?.block_on(signals::interruptible(models::run(&config, command)))??)
        }
        Command::Config { .. } => Ok(config::run(&sources)?),
        // Handled above.
        Command::Completions { .. } | Command::Man { .. } | Command::Doctor(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Settings given on the command line.
fn flags(line: &CommandLine) -> Vec<Flag> {
    let listen = |setting, address: &Option<SocketAddr>| {
        address.map(|address| Flag { flag: "--listen", setting, value: address.to_string().into() })
    };
    let (listen, engine) = match &line.command {
        Command::Serve { listen: address, engine, .. } => (listen("listen", address), Some(engine)),
        Command::Demo { listen: address, engine, .. } => (listen("demo.listen", address), Some(engine)),
        Command::Transcribe(arguments) => (None, Some(&arguments.engine)),
        Command::Bench(arguments) => (None, Some(&arguments.engine)),
        Command::Doctor(arguments) => (None, Some(&arguments.engine)),
        Command::Config { engine } => (None, Some(engine)),
        _ => (None, None),
    };
    let dev = matches!(line.command, Command::Serve { dev: true, .. }).then(|| Flag {
        flag: "--dev",
        setting: "sts.auth",
        value: "loopback".into(),
    });
    let link = matches!(line.command, Command::Serve { console_link: true, .. }).then(|| Flag {
        flag: "--console-link",
        setting: "console.link",
        value: "always".into(),
    });
    let tokens = match line.command {
        Command::Serve { tokens, .. } => tokens,
        _ => None,
    };
    let tokens = tokens.map(|tokens| Flag {
        flag: "--tokens",
        setting: "models.synthetic_tokens",
        value: tokens.to_string().into(),
    });
    let log = line.settings.log.as_deref();
    let log = log.map(|level| Flag { flag: "--log", setting: "log.level", value: level.into() });
    let engine = engine.map(engine::Flags::given).unwrap_or_default();
    engine.into_iter().chain(listen).chain(dev).chain(link).chain(tokens).chain(log).collect()
}

/// Starts the log. The level was checked with the rest of the configuration.
fn log(config: &crate::telemetry::Config) -> Result<(), Failure> {
    crate::telemetry::start(config).map_err(|error| Failure::Usage(error.into()))
}

/// The log of a command that a person waits for: warnings, unless a flag says otherwise.
fn quiet(config: &Config, settings: &Settings) -> crate::telemetry::Config {
    match settings.log {
        Some(_) => config.log.clone(),
        None => crate::telemetry::Config { level: "warn".into(), ..config.log.clone() },
    }
}

/// The variables that may be settings: all except those that the command line reads itself, for any command. A variable
/// that isn't text is no setting.
fn environment() -> impl Iterator<Item = (String, String)> {
    let mut own = Vec::new();
    variables(&CommandLine::command(), &mut own);
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(move |(name, _)| !own.iter().any(|own| own == name.as_str()))
}

/// The variables that `command` and its subcommands read.
fn variables(command: &clap::Command, found: &mut Vec<std::ffi::OsString>) {
    found.extend(command.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_owned())));
    command.get_subcommands().for_each(|command| variables(command, found));
}

/// The runtime for sockets; inference has threads of its own.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
