//! The threads that finish word times beside a worker, and answer the windows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};

use super::answers::Answers;
use super::entry::Recognised;
use super::error::Error;
use super::model::Alignment;

/// One thread for so many cores: aligning takes a tenth of the time of decoding at most.
const CORES_PER_THREAD: usize = 4;
const THREADS_MAX: usize = 8;

/// A recognised window whose words have no times yet.
pub struct Unaligned {
    pub recognised: Recognised,
    pub alignment: Box<dyn Alignment>,
}

impl Unaligned {
    /// Aligns the words and answers the caller, unless it has gone. A panic fails this window alone.
    pub fn finish(self, answers: &Answers) {
        let Self { mut recognised, alignment } = self;
        if answers.is_abandoned(&recognised.occupant.entry) {
            return;
        }
        let number = answers.board.alignment_begins();
        let aligned = catch_unwind(AssertUnwindSafe(|| alignment.finish(&mut recognised.hypothesis)))
            .unwrap_or_else(|_| Err(Error::ModelFailed("the alignment of words panicked".into())));
        answers.board.alignment_ends(number);
        match aligned {
            Ok(()) => answers.recognised(recognised),
            Err(error) => answers.failed(recognised.occupant.entry, error),
        }
    }
}

/// The threads of one worker. Dropping it waits until all windows are answered.
pub struct Aligners {
    /// Present until the drop.
    windows: Option<Sender<Unaligned>>,
    threads: Vec<JoinHandle<()>>,
}

impl Aligners {
    /// Starts the threads. At most `waiting_max` windows wait for them.
    pub fn start(waiting_max: usize, answers: &Arc<Answers>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let (windows, receiver) = crossbeam_channel::bounded(waiting_max);
        let start = |_| {
            let (receiver, answers) = (receiver.clone(), answers.clone());
            let thread = std::thread::Builder::new().name("engine-align".into());
            let started = thread.spawn(move || run(&receiver, &answers));
            started.inspect_err(|error| tracing::warn!(%error, "a thread to align words did not start")).ok()
        };
        let threads = (0..(cores / CORES_PER_THREAD).clamp(1, THREADS_MAX)).filter_map(start).collect();
        Self { windows: Some(windows), threads }
    }

    /// Hands `window` to a thread, which answers it; gives it back if too many wait, or if no thread has started.
    pub fn take(&self, window: Unaligned) -> Option<Unaligned> {
        match &self.windows {
            Some(windows) => windows.try_send(window).err().map(crossbeam_channel::TrySendError::into_inner),
            None => Some(window),
        }
    }
}

impl Drop for Aligners {
    fn drop(&mut self) {
        self.windows = None;
        for thread in self.threads.drain(..) {
            // It fails if the thread panicked, which ended no other window's answer.
            let _ = thread.join();
        }
    }
}

fn run(windows: &Receiver<Unaligned>, answers: &Answers) {
    windows.iter().for_each(|window| window.finish(answers));
}
