//! SIGTERM and SIGINT: a server's orderly stop, and the end of a command.

use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{app, http};

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

#[derive(Debug, Clone, Copy)]
pub enum StopSignal {
    Terminate,
    Interrupt,
}

impl Signals {
    /// Takes over both signals: from here on they have no other effect.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Cancel-safe.
    pub async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}

/// Serves until a signal, then stops: after SIGTERM with `grace`, so that load balancers notice; after SIGINT without,
/// because a person is waiting. A second signal, or one before the server serves, ends the process at once.
///
/// # Errors
/// The errors of `serving`, or signals can't be received.
pub async fn serve(
    serving: impl Future<Output = Result<(), app::Error>>,
    stop: &http::Shutdown,
    grace: Duration,
) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut serving = pin!(serving);
    let first = tokio::select! {
        served = serving.as_mut() => return Ok(served?),
        first = signals.next() => first,
    };
    stop.leave();
    let served = async {
        let grace = match first {
            StopSignal::Terminate => grace,
            StopSignal::Interrupt => Duration::ZERO,
        };
        // If serving ends by itself, the rest of the grace period is pointless.
        if let Ok(served) = tokio::time::timeout(grace, serving.as_mut()).await {
            return served;
        }
        stop.close();
        serving.await
    };
    tokio::select! {
        served = served => match served {
            Err(app::Error::Stopped) => end(first, "while the model was fetched or loaded"),
            served => Ok(served?),
        },
        second = signals.next() => end(second, "before it had drained"),
    }
}

/// Runs `work`; a signal in the meantime ends the process.
///
/// # Errors
/// Signals can't be received.
pub async fn interruptible<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let mut signals = Signals::new()?;
    tokio::select! {
        done = work => Ok(done),
        stop = signals.next() => end(stop, "before it was done"),
    }
}

/// Ends the process at once, with the exit code of a process that the signal killed: 128 plus its number.
pub fn end(stop: StopSignal, when: &str) -> ! {
    let (name, number) = match stop {
        StopSignal::Terminate => ("SIGTERM", libc::SIGTERM),
        StopSignal::Interrupt => ("SIGINT", libc::SIGINT),
    };
    super::output::complain(&format!("stopped by {name} {when}"));
    // SAFETY: `_exit` takes no pointer and does not return. `std::process::exit` would run libtorch's
    // destructors under the threads that are still loading or computing, which crashes.
    unsafe { libc::_exit(128 + number) }
}
