//! SIGTERM and SIGINT.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

#[derive(Debug, Clone, Copy)]
pub enum Stop {
    Terminate,
    Interrupt,
}

impl Signals {
    /// From here on these signals do nothing but what is done with them here.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Cancel-safe.
    pub async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }
}

/// Does `work`; a signal meanwhile ends the process.
///
/// # Errors
/// No signals can be received.
pub async fn interruptible<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let mut signals = Signals::new()?;
    tokio::select! {
        done = work => Ok(done),
        stop = signals.next() => end(stop, "before it was done"),
    }
}

/// Ends the process at once with the exit code of one that the signal killed: 128 and its number.
pub fn end(stop: Stop, when: &str) -> ! {
    let (name, number) = match stop {
        Stop::Terminate => ("SIGTERM", libc::SIGTERM),
        Stop::Interrupt => ("SIGINT", libc::SIGINT),
    };
    super::complain(&format!("stopped by {name} {when}"));
    // SAFETY: `_exit` takes no pointer and does not return. `std::process::exit` would run libtorch's
    // destructors under the threads that are still loading or computing, which crashes.
    unsafe { libc::_exit(128 + number) }
}
