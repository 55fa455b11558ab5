//! `verbatim demo`: the demo backend, alone or with the voice-agent service.

use super::output::print;
use super::signals;
use crate::app::{self, Demonstration};
use crate::config::Config;
use crate::http::Shutdown;

/// Serves until a signal: [`signals::serve`].
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let stop = Shutdown::default();
    signals::serve(app::demo(config, stop.clone()), &stop, config.shutdown.grace()).await
}

/// As [`run`], with the voice-agent service beside it; prints the addresses and the story of a call once both are ready.
pub async fn run_with_sts(config: Config) -> anyhow::Result<()> {
    let (stop, grace) = (Shutdown::default(), config.shutdown.grace());
    let show = |shown: &Demonstration| {
        let site = shown.site.as_deref().unwrap_or("not served");
        // The servers run on if standard output is closed.
        let _ = print(&format!(
            "voice service  {}\ndemo backend   {}\npages          {site}\n\n{}\n",
            shown.sts, shown.demo, shown.story
        ));
    };
    signals::serve(app::demo_with_sts(config, stop.clone(), show), &stop, grace).await
}
