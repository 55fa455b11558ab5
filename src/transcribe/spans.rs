//! The search for speech in a channel, and the plan of windows over it.

use std::num::NonZero;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::chunk::{Policy, plan_windows};
use super::options::TranscribeOptions;
use super::window_plan::WindowPlan;
use crate::audio::Sound;
use crate::engine::{Class, Error, MemoryReservation};
use crate::patience::by;
use crate::share::Turns;
use crate::vad::{Vad, VadOptions, levels, speech_spans};

/// The windows of one channel.
pub struct Plan {
    pub windows: Vec<WindowPlan>,
    /// The probability of speech in each frame of [`crate::vad::FRAME_SAMPLES`].
    pub probabilities: Vec<f32>,
    /// The level of each 10 ms, in decibels.
    pub levels: Vec<f32>,
}

/// Finds speech: on at most as many channels at once as there are processors, in turn between tenants.
pub struct Speech {
    pub vad: Vad,
    options: VadOptions,
    turns: Turns,
}

impl Speech {
    pub fn new(vad: Vad, options: VadOptions) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { vad, options, turns: Turns::brief(processors) }
    }

    /// Plans one channel: about 200 ms of a processor for 10 minutes. Dropping the future ends the work after at
    /// most another half minute of audio.
    ///
    /// # Errors
    /// [`Error::ModelFailed`] if the network panics; [`Error::DeadlineExceeded`] if its turn does not come in time.
    pub async fn plan(
        self: &Arc<Self>,
        sound: &Sound,
        options: &TranscribeOptions,
        memory: Arc<MemoryReservation>,
    ) -> Result<Plan, Error> {
        let turn = match options.class {
            // A live utterance takes milliseconds, and a person waits for it.
            Class::Live => None,
            Class::Interactive | Class::Job => {
                let turn = by(options.deadline, self.turns.take(options.tenant.0)).await;
                Some(turn.ok_or(Error::DeadlineExceeded)?)
            }
        };
        let left = CancellationToken::new();
        let _leaves = left.clone().drop_guard();
        let (speech, sound) = (self.clone(), sound.clone());
        let plan = move || {
            // The work holds its turn, even after the future that waits for it is dropped, and the memory until the
            // audio is gone.
            let (_turn, _memory, sound) = (turn, memory, sound);
            let probabilities = speech.vad.probabilities_while(&sound, || !left.is_cancelled())?;
            let spans = speech_spans(&probabilities, sound.len(), &speech.options);
            let windows = plan_windows(&spans, &probabilities, sound.len(), Policy::default());
            Some(Plan { windows, probabilities, levels: levels(&sound) })
        };
        let planned = tokio::task::spawn_blocking(plan).await;
        // There is no plan only if this future was dropped, and then nothing awaits the error.
        planned.map_err(|error| Error::ModelFailed(error.to_string()))?.ok_or(Error::ShuttingDown)
    }
}
