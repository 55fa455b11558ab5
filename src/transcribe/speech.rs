//! Where the speech of a channel is, and the windows that hold it.

use std::num::NonZero;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Work;
use super::chunk::{Policy, plan_windows};
use super::window_plan::WindowPlan;
use crate::audio::Sound;
use crate::engine::{Class, Error};
use crate::patience::by;
use crate::share::Turns;
use crate::vad::{Vad, VadOptions, speech_spans};

/// The windows of one channel.
pub struct Plan {
    pub windows: Vec<WindowPlan>,
    /// The probability of speech in each frame of [`crate::vad::FRAME_SAMPLES`].
    pub probabilities: Vec<f32>,
}

/// Finds speech, in no more channels at once than there are processors, in turn between tenants.
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

    /// Plans one channel: about 200 ms of a processor for 10 minutes. Dropping the future ends the work, half a
    /// minute of audio later at most.
    ///
    /// # Errors
    /// [`Error::ModelFailed`] where the network panics; [`Error::DeadlineExceeded`] where its turn has not come by then.
    pub async fn plan(self: &Arc<Self>, sound: &Sound, work: &Work<'_>) -> Result<Plan, Error> {
        let options = work.options;
        let turn = match options.class {
            // An utterance takes milliseconds, and a person waits for it.
            Class::Live => None,
            Class::Interactive | Class::Job => {
                let turn = by(options.deadline, self.turns.take(options.tenant.0)).await;
                Some(turn.ok_or(Error::DeadlineExceeded)?)
            }
        };
        let left = CancellationToken::new();
        let _leaves = left.clone().drop_guard();
        let (speech, memory, sound) = (self.clone(), work.admission.memory(), sound.clone());
        let plan = move || {
            // Held by the thread and not by the future that waits for it; the memory until the audio is gone.
            let (_turn, _memory, sound) = (turn, memory, sound);
            let probabilities = speech.vad.probabilities_while(&sound, || !left.is_cancelled())?;
            let spans = speech_spans(&probabilities, sound.len(), &speech.options);
            let windows = plan_windows(&spans, &probabilities, sound.len(), Policy::default());
            Some(Plan { windows, probabilities })
        };
        let planned = tokio::task::spawn_blocking(plan).await;
        // Without a plan only where this future is dropped, which then comes to no end.
        planned.map_err(|error| Error::ModelFailed(error.to_string()))?.ok_or(Error::ShuttingDown)
    }
}
