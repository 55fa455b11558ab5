//! Logs; metrics, in `metrics.rs`; traces, in `traces.rs`; and the figures of GPUs. They never hold audio, transcripts, keys or phone numbers: a log names
//! what happened, not what was said.

pub mod gpu;
pub mod hosted;
mod instruments;
mod libraries;
pub mod metrics;
pub mod recent;
pub mod traces;

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use libraries::Libraries;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,verbatim::http=debug`. Default
    /// `info`. Libraries log up to `info`, and more only if a directive names them (`info,hyper=debug`);
    /// those that would print speech, files or keys never more than `warn`. Symphonia logs nothing unless a
    /// directive names it: its messages are about clients' files.
    pub level: String,
    /// Default `auto`: text on a terminal, otherwise JSON.
    pub format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Auto,
    Text,
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self { level: "info".into(), format: Format::Auto }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{level}` is not a log level")]
pub struct Error {
    level: String,
    source: tracing_subscriber::filter::ParseError,
}

/// Sends logs to standard error from here on; a second call changes nothing.
///
/// # Errors
/// An invalid level.
pub fn start(config: &Config) -> Result<(), Error> {
    let filter = filter(&config.level)?;
    // If standard error is closed, reporting that would panic.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let libraries = Libraries::new(&config.level);
    let json = match config.format {
        Format::Auto => !std::io::stderr().is_terminal(),
        Format::Text => false,
        Format::Json => true,
    };
    // An error means that logging has been started before.
    let _ = if json {
        subscriber.json().flatten_event(true).finish().with(recent::Recent).with(libraries).try_init()
    } else {
        subscriber.finish().with(recent::Recent).with(libraries).try_init()
    };
    Ok(())
}

/// The allowed levels, for a sentence that ends in «must be …».
pub const LEVELS: &str =
    "error, warn, info, debug, trace or off, or directives such as info,verbatim::http=debug";

/// Whether `level` is one of [`LEVELS`]. The filter itself accepts any word as a target, so a mistyped level
/// would silence the log.
pub fn is_level(level: &str) -> bool {
    let is_level = |text: &str| {
        ["error", "warn", "info", "debug", "trace", "off"].iter().any(|name| name.eq_ignore_ascii_case(text))
    };
    let is_directive = |text: &str| match text.rsplit_once('=') {
        Some((target, level)) => !target.trim().is_empty() && is_level(level.trim()),
        None => is_level(text),
    };
    level.split(',').all(|directive| is_directive(directive.trim())) && filter(level).is_ok()
}

/// Later directives win over earlier ones for the same target, and longer targets over shorter.
fn filter(level: &str) -> Result<EnvFilter, Error> {
    EnvFilter::try_new(format!("symphonia=off,{level}"))
        .map_err(|source| Error { level: level.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn symphonia_is_silent_until_it_is_asked() {
        let heard = |level: &str| {
            let subscriber = tracing_subscriber::registry().with(filter(level).expect("a level"));
            tracing::subscriber::with_default(subscriber, || {
                (
                    tracing::enabled!(target: "symphonia_bundle_mp3::demuxer", Level::WARN),
                    tracing::enabled!(target: "verbatim::app", Level::INFO),
                )
            })
        };
        assert_eq!(heard("info"), (false, true));
        assert_eq!(heard("trace"), (false, true));
        assert_eq!(heard("info,symphonia=warn"), (true, true));
        assert_eq!(heard("error,symphonia_bundle_mp3=debug"), (true, false));
        assert!(filter("loud=very").is_err());
    }

    #[test]
    fn a_level_with_a_slip_in_it_is_none() {
        for level in ["info", "OFF", "warn,verbatim::http=debug", "info,verbatim[request{id=7}]=trace"] {
            assert!(is_level(level), "{level}");
        }
        for level in ["", "loud", "inof", "info,", "info,loud", "=info", "verbatim=loud", "5"] {
            assert!(!is_level(level), "{level}");
        }
    }
}
