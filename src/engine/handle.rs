//! The handle on one device's worker: sends it windows and reads its health.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crossbeam_channel::Sender;
use tokio::sync::{oneshot, watch as channel};

use super::board::{Board, Condition};
use super::device::{Device, Turns};
use super::entry::Entry;
use super::error::{Error, StartError};
use super::load::Load;
use super::model::{ModelId, ModelInfo, SpeechModel};
use super::window::{Class, DecodingOptions, LanguageChoice, Recognition, TenantId, Window};
use super::worker::Worker;
use crate::audio::{Pcm, SAMPLE_RATE};

pub struct WorkerHandle {
    commands: Sender<Entry>,
    pub board: Arc<Board>,
    /// Whether a model call hangs.
    pub hung: channel::Sender<bool>,
    /// Windows whose callers wait.
    waiting: AtomicUsize,
    /// The language of probes.
    language: String,
}

/// A worker whose thread is loading the model.
pub struct StartingWorker<E> {
    commands: Sender<Entry>,
    board: Arc<Board>,
    loaded: std::sync::mpsc::Receiver<Result<ModelInfo, E>>,
}

/// Notifies the worker if a caller stops waiting before its window is answered.
struct Waiting<'a> {
    worker: &'a WorkerHandle,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.worker.waiting.fetch_sub(1, Relaxed);
        if !self.answered {
            self.worker.board.caller_left();
        }
    }
}

impl<E: Send + 'static> StartingWorker<E> {
    /// Starts the thread, which builds its model by calling `load_model`, and drops `lives` at its end.
    pub fn new(
        load: Arc<Load>,
        (device, model): (Arc<Device>, ModelId),
        lives: Sender<()>,
        load_model: impl FnOnce() -> Result<Box<dyn SpeechModel>, E> + Send + 'static,
    ) -> Result<Self, StartError<E>> {
        // AudioPermit bounds the number of windows, so this channel needs no bound.
        let (commands, receiver) = crossbeam_channel::unbounded();
        let (ready, loaded) = std::sync::mpsc::sync_channel(1);
        let board = Arc::new(Board::new(device.progress.clone()));
        let its_board = board.clone();
        let run = move || {
            match load_model() {
                Ok(loaded) => {
                    device.progress.add(&loaded.progress());
                    // Fails only if the starting thread has gone, and with it every possible caller.
                    if ready.send(Ok(loaded.info().clone())).is_ok() {
                        let turns = Turns::new(device, model, its_board.clone());
                        Worker::new(loaded, receiver, load, (its_board, turns)).run();
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
            // After the model.
            drop(lives);
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
            waiting: AtomicUsize::new(0),
            language: info.languages.first().map_or("en", String::as_str).to_owned(),
        };
        Ok((worker, info))
    }
}

impl WorkerHandle {
    /// The order in which workers are preferred, lowest first: working ones, then those with the fewest windows.
    pub fn burden(&self) -> (bool, usize) {
        (self.board.condition() != Condition::Working, self.waiting.load(Relaxed))
    }

    pub async fn recognize(&self, window: Window) -> Result<Recognition, Error> {
        let (reply, answer) = oneshot::channel();
        let entry = Entry { window, reply, queued_at: Instant::now(), is_probe: false };
        self.commands.send(entry).map_err(|_| Error::ShuttingDown)?;
        self.unless_hung(answer).await
    }

    /// Sends half a second of silence; `None` if the worker's thread has ended.
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
        self.waiting.fetch_add(1, Relaxed);
        let mut waiting = Waiting { worker: self, answered: false };
        // Dropped before `waiting`, so that the worker finds the channel closed once it is notified.
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

/// Half a second of silence, decoded once and greedily, in the most urgent class.
fn probe_window(language: &str) -> Window {
    Window {
        pcm: Pcm::new(vec![0.0; SAMPLE_RATE as usize / 2]),
        options: DecodingOptions {
            language: LanguageChoice::Named(language.to_owned()),
            temperatures: vec![0.0],
            ..DecodingOptions::default()
        },
        class: Class::Live,
        tenant: TenantId::default(),
        deadline: None,
    }
}
