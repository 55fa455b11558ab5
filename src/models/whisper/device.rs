//! Attempts on a device that chooses the tokens itself, a step ahead of the host.

#[cfg(test)]
mod tests;

use super::Whisper;
use super::decoder::device::Start;
use super::decoder::{Decoder, Run};
use crate::cuda::Outcome;
use crate::engine::{DecodingOptions, SlotId};
use crate::models::Error;

impl Whisper {
    pub(super) fn begin_on_device(
        &mut self,
        attempts: &[(SlotId, &DecodingOptions, f32)],
    ) -> Result<(), Error> {
        // What is under way belongs to the attempts before.
        if let Decoder::Device(decoder) = &mut self.decoder {
            let settled = decoder.settle()?;
            self.take(settled);
        }
        let prompts = self.prompts(attempts);
        let Decoder::Device(decoder) = &mut self.decoder else { return Ok(()) };
        let starts = attempts.iter().zip(&prompts).filter_map(|(&(slot, ..), prompt)| {
            let sequence = self.slots[slot.0].sequence.as_ref()?;
            Some(Start {
                run: Run { slot, position: 0, tokens: &prompt.tokens },
                start_of_transcript: prompt.start_of_transcript,
                state: sequence.state(),
                bias: sequence.bias(),
            })
        });
        let begun = decoder.begin(&starts.collect::<Vec<_>>())?;
        for ((&(id, ..), prompt), begun) in attempts.iter().zip(&prompts).zip(begun) {
            let slot = &mut self.slots[id.0];
            slot.no_speech_probability = begun.no_speech_probability;
            slot.prompt = prompt.tokens.len();
            if let Some(sequence) = &mut slot.sequence {
                sequence.take(&begun.first, self.tokenizer.special.end_of_text);
            }
        }
        Ok(())
    }

    /// Enqueues a step, and takes what the one before it brought.
    pub(super) fn step_on_device(&mut self, slots: &[SlotId]) -> Result<(), Error> {
        let runs_on =
            |id: &&SlotId| self.slots[id.0].sequence.as_ref().is_some_and(|sequence| !sequence.finished);
        let running: Vec<SlotId> = slots.iter().filter(runs_on).copied().collect();
        let Decoder::Device(decoder) = &mut self.decoder else { return Ok(()) };
        let outcomes = decoder.step(&running)?;
        self.take(outcomes);
        Ok(())
    }

    /// Slots that were emptied, finished or begun anew meanwhile take nothing: for them nothing was chosen.
    fn take(&mut self, outcomes: Vec<(SlotId, Outcome)>) {
        let end_of_text = self.tokenizer.special.end_of_text;
        for (id, outcome) in outcomes {
            if let Some(sequence) = &mut self.slots[id.0].sequence {
                sequence.take(&outcome, end_of_text);
            }
        }
    }
}
