//! How the registry loads and unloads models.

use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
pub struct Config {
    /// A model but the default that nothing has used for this long is unloaded; `None`: never.
    pub idle: Option<Duration>,
    /// How long a request waits for its model to be loaded.
    pub wait: Duration,
}
