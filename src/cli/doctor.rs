//! `verbatim doctor`: tests what a deployment needs, and says what to mend.

mod address;
mod certificate;
mod check;
mod clock;
mod ground;
mod media;
mod provider;
mod speech;

use std::process::ExitCode;

use clap::Args;

use self::check::{Check, Report};
use self::clock::Clocks;
use crate::config::{Config, Error};
use crate::sts;

#[derive(Args)]
pub struct Arguments {
    /// Print one JSON object: `ok`, and `checks` with `name`, `status` (ok, warning, failed), `message` and `mend`.
    #[arg(long)]
    json: bool,
    /// Send a test message to this telephone number, which costs money.
    #[arg(long, value_name = "NUMBER")]
    sms_to: Option<String>,
    #[command(flatten)]
    pub engine: super::engine::Flags,
}

/// Checks one thing after another. The exit code is 1 if any fails.
///
/// # Errors
/// The output is closed.
pub async fn run(config: Result<Config, Error>, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut report = Report::new(arguments.json);
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            let message = format!("{:#}", anyhow::Error::new(error));
            report.add(Check::failed(
                "configuration",
                message,
                "`verbatim config` shows where each value comes from",
            ))?;
            return report.end();
        }
    };
    report.add(configuration(&config))?;
    report.add(ground::state_folder(&config))?;
    report.add(ground::disk(&config))?;
    report.add(ground::keys(&config))?;
    report.add(ground::listener(&config).await)?;
    report.add(ground::device(&config))?;
    report.add(speech::model(&config).await)?;
    let (transcription, transcriber) = speech::transcription(&config).await;
    report.add(transcription)?;
    if config.sts.enabled || config.speak.enabled {
        report.add(speech::voice(&config, transcriber.as_ref()).await)?;
    }
    drop(transcriber);
    if config.sts.enabled {
        for check in agents(&config, arguments.sms_to.as_deref()).await {
            report.add(check)?;
        }
    }
    report.end()
}

/// The file and variables were read; this looks at settings that lead elsewhere.
fn configuration(config: &Config) -> Check {
    const NAME: &str = "configuration";
    if config.sts.enabled
        && let Err(error) = sts::check(&config.sts)
    {
        return Check::failed(
            NAME,
            format!("{:#}", anyhow::Error::new(error)),
            "change that setting, or its file",
        );
    }
    Check::ok(NAME, "read, and every value is allowed")
}

/// Checks the parts that only voice agents need.
async fn agents(config: &Config, sms_to: Option<&str>) -> Vec<Check> {
    let mut clocks = Clocks::default();
    let mut checks = vec![speech::detector(config), speech::turn_model(config).await];
    checks.extend(address::all(config, &mut clocks).await);
    checks.extend(media::all(config, &mut clocks).await);
    checks.push(provider::messages(config, sms_to, &mut clocks).await);
    checks.push(provider::chat(config, &mut clocks).await);
    checks.push(clocks.check());
    checks
}
