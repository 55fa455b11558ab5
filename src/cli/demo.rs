//! `verbatim demo`

use tokio_util::sync::CancellationToken;

use super::signals::{Signals, end};
use crate::app;
use crate::config::Config;

/// Serves until SIGTERM or SIGINT, then drains; a second one ends the process at once.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(app::demo(config, stop.clone()));
    tokio::select! {
        served = serving.as_mut() => return Ok(served?),
        _ = signals.next() => stop.cancel(),
    }
    tokio::select! {
        served = serving => Ok(served?),
        second = signals.next() => end(second, "before it had drained"),
    }
}
