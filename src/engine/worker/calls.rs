//! The model, with its calls timed and reported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::board::Board;
use crate::engine::error::Error;
use crate::engine::model::{ModelInfo, SlotId, SpeechModel};

pub struct TimedModel {
    model: Box<dyn SpeechModel>,
    board: Arc<Board>,
    /// Time in the model since it was last taken.
    busy: Duration,
}

impl TimedModel {
    pub fn new(model: Box<dyn SpeechModel>, board: Arc<Board>) -> Self {
        Self { model, board, busy: Duration::ZERO }
    }

    pub fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    /// Calls the model and measures the time. A panic fails only the windows of this call, as the next use of their
    /// slots overwrites them.
    pub fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn SpeechModel) -> Result<T, Error>,
    ) -> (Result<T, Error>, Duration) {
        let begun = Instant::now();
        self.board.call_begins();
        let result = catch_unwind(AssertUnwindSafe(|| call(self.model.as_mut())))
            .unwrap_or_else(|_| Err(Error::ModelFailed("the model panicked".into())));
        let took = begun.elapsed();
        self.board.call_ends(result.is_ok());
        self.busy += took;
        (result, took)
    }

    pub fn release(&mut self, slot: SlotId) {
        self.model.release(slot);
    }

    /// Counts time that the worker's thread spent on the model's work outside of its calls.
    pub fn add_busy(&mut self, took: Duration) {
        self.busy += took;
    }

    /// Time in the model since the last call of this.
    pub fn take_busy(&mut self) -> Duration {
        std::mem::take(&mut self.busy)
    }
}
