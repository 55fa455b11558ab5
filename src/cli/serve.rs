//! `verbatim serve`

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app;
use crate::config::Config;

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends the process at once.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let first = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        first.cancel();
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        std::process::exit(130);
    });
    // A signal while the model still loads ends the process: there is nothing to drain.
    let mut serving = std::pin::pin!(app::serve(config, stop.clone()));
    Ok(serving.as_mut().await?)
}
