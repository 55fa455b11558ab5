//! `verbatim demo`

use tokio_util::sync::CancellationToken;

use super::print;
use super::signals::{Signals, end};
use crate::app::{self, Demonstration};
use crate::config::Config;

/// Serves until SIGTERM or SIGINT, then drains; a second one ends the process at once.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    until_signal(app::demo(config, stop.clone()), &stop).await
}

/// As [`run`], with the voice-agent service beside it; what to do with them is printed when both are ready.
pub async fn run_with_sts(config: Config) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let show = |shown: &Demonstration| {
        let site = shown.site.as_deref().unwrap_or("not served");
        // Nobody need read it.
        let _ = print(&format!(
            "voice service  {}\ndemo backend   {}\npages          {site}\n\n{}\n",
            shown.sts, shown.demo, shown.story
        ));
    };
    until_signal(app::demo_with_sts(config, stop.clone(), show), &stop).await
}

async fn until_signal(
    serving: impl Future<Output = Result<(), app::Error>>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut serving = std::pin::pin!(serving);
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
