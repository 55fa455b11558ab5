//! One device's way through the engine: the thread that owns its model, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crossbeam_channel::Sender;
use tokio::sync::{oneshot, watch as channel};

use super::board::{Board, Condition};
use super::load::Load;
use super::model::{ModelInfo, SpeechModel};
use super::watch::probe_window;
use super::window::{Recognition, Window};
use super::worker::{Entry, Worker};
use super::{Error, StartError};

pub struct WorkerHandle {
    commands: Sender<Entry>,
    pub board: Arc<Board>,
    /// Whether a call into the model hangs.
    pub hung: channel::Sender<bool>,
    /// Windows that are waited for.
    held: AtomicUsize,
    /// What probes are spoken in.
    language: String,
}

/// A lane's thread, which loads its model.
pub struct StartingWorker<E> {
    commands: Sender<Entry>,
    board: Arc<Board>,
    loaded: std::sync::mpsc::Receiver<Result<ModelInfo, E>>,
}

/// Tells the lane's thread when whoever waits for a window leaves before the answer.
struct Waiting<'a> {
    worker: &'a WorkerHandle,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.worker.held.fetch_sub(1, Relaxed);
        if !self.answered {
            self.worker.board.somebody_left();
        }
    }
}

impl<E: Send + 'static> StartingWorker<E> {
    /// Starts the thread, which builds the model by `load_model` and keeps it.
    pub fn new(
        load: Arc<Load>,
        load_model: impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static,
    ) -> Result<Self, StartError<E>> {
        // Admission bounds what is held, so this channel needs no bound of its own.
        let (commands, receiver) = crossbeam_channel::unbounded();
        let (ready, loaded) = std::sync::mpsc::sync_channel(1);
        let board = Arc::new(Board::new());
        let its_board = board.clone();
        let run = move || match load_model() {
            Ok(model) => {
                // Nobody is waiting only when the starting thread is gone: then nobody will ask.
                if ready.send(Ok(model.info().clone())).is_ok() {
                    Worker::new(model, receiver, load, its_board).run();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        std::thread::Builder::new().name("engine".into()).spawn(run).map_err(StartError::Thread)?;
        Ok(Self { commands, board, loaded })
    }

    /// Waits for the model.
    pub fn wait(self) -> Result<(WorkerHandle, ModelInfo), StartError<E>> {
        let info = self.loaded.recv().map_err(|_| StartError::Died)?.map_err(StartError::Model)?;
        let worker = WorkerHandle {
            commands: self.commands,
            board: self.board,
            hung: channel::Sender::new(false),
            held: AtomicUsize::new(0),
            language: info.languages.first().map_or("en", String::as_str).to_owned(),
        };
        Ok((worker, info))
    }
}

impl WorkerHandle {
    /// Less is better: whether it works, and how many windows it has.
    pub fn burden(&self) -> (bool, usize) {
        (self.board.condition() != Condition::Working, self.held.load(Relaxed))
    }

    pub async fn recognize(&self, window: Window) -> Result<Recognition, Error> {
        let (reply, answer) = oneshot::channel();
        let entry = Entry { window, reply, queued_at: Instant::now(), is_probe: false };
        self.commands.send(entry).map_err(|_| Error::ShuttingDown)?;
        self.unless_hung(answer).await
    }

    /// Sends half a second of silence; `None` where the lane's thread is gone.
    pub fn send_probe(&self) -> Option<oneshot::Receiver<Result<Recognition, Error>>> {
        let (reply, answer) = oneshot::channel();
        let window = probe_window(&self.language);
        let entry = Entry { window, reply, queued_at: Instant::now(), is_probe: true };
        self.commands.send(entry).ok().map(|()| answer)
    }

    pub async fn probe(&self) -> Result<(), Error> {
        let answer = self.send_probe().ok_or(Error::ShuttingDown)?;
        self.unless_hung(answer).await.map(drop)
    }

    async fn unless_hung(
        &self,
        answer: oneshot::Receiver<Result<Recognition, Error>>,
    ) -> Result<Recognition, Error> {
        self.held.fetch_add(1, Relaxed);
        let mut waiting = Waiting { worker: self, answered: false };
        // Dropped before `waiting`, so that the thread, once told, finds the channel closed.
        let mut answer = answer;
        let mut hung = self.hung.subscribe();
        tokio::select! {
            biased;
            answer = &mut answer => {
                waiting.answered = true;
                answer.map_err(|_| Error::ModelFailed("the engine's thread ended".into()))?
            }
            _ = hung.wait_for(|&hung| hung) => Err(Error::Unwell),
        }
    }
}
