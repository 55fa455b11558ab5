//! `verbatim serve`: the server.

use std::io::IsTerminal as _;

use super::output::print;
use super::signals;
use crate::app;
use crate::config::{Config, Setting};
use crate::console;
use crate::http::Shutdown;

/// Serves until a signal: [`signals::serve`].
pub async fn run(config: &Config, settings: Vec<Setting>) -> anyhow::Result<()> {
    let stop = Shutdown::default();
    let settings = settings.into_iter();
    let settings = settings.map(|Setting { name, value, source }| console::Setting::new(name, value, source));
    let is_terminal = std::io::stdout().is_terminal();
    let around = app::Around { settings: settings.collect(), is_terminal };
    let served = app::serve(config, around, stop.clone(), |link| {
        if let Some(link) = link {
            let minutes = console::LINK_VALID.as_secs() / 60;
            // Who closed the output did not want it.
            let _ = print(&format!(
                "The console, by a link that works once within {minutes} minutes:\n\n    {link}\n\n"
            ));
        }
    });
    signals::serve(served, &stop, config.shutdown.grace()).await
}
