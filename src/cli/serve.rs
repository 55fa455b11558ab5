//! `verbatim serve`: the server.

use super::signals;
use crate::app;
use crate::config::Config;
use crate::http::Shutdown;

/// Serves until a signal: [`signals::serve`].
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let stop = Shutdown::default();
    signals::serve(app::serve(config, stop.clone()), &stop, config.shutdown.grace()).await
}
