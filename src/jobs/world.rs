//! Time, chance and receivers, behind a trait so that tests can simulate them.

use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use crate::fetch::{Fetcher, Message, Reply, SendError};

pub trait World: Send + Sync {
    fn now(&self) -> SystemTime;

    /// Between 0 and 1.
    fn chance(&self) -> f64;

    /// As [`Fetcher::send`].
    fn send(&self, message: Message, timeout: Duration) -> BoxFuture<'_, Result<Reply, SendError>>;
}

/// The real one.
impl World for Fetcher {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn chance(&self) -> f64 {
        rand::random()
    }

    fn send(&self, message: Message, timeout: Duration) -> BoxFuture<'_, Result<Reply, SendError>> {
        Box::pin(Self::send(self, message, timeout))
    }
}
