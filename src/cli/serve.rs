//! `verbatim serve`

use tokio_util::sync::CancellationToken;

use super::signals::{Signals, end};
use crate::app;
use crate::config::Config;

/// Serves until SIGTERM or SIGINT, then drains. One of them before it serves, or a second one, ends the
/// process at once.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(app::serve(config, stop.clone()));
    let first = tokio::select! {
        served = serving.as_mut() => return Ok(served?),
        first = signals.next() => first,
    };
    stop.cancel();
    tokio::select! {
        served = serving => match served {
            Err(app::Error::Stopped) => end(first, "while the model was fetched or loaded"),
            served => Ok(served?),
        },
        second = signals.next() => end(second, "before it had drained"),
    }
}
