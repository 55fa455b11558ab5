//! Finished attempts: tried again, or accepted and on their way to their callers.

use std::time::Instant;

use super::Worker;
use crate::engine::aligners::Unaligned;
use crate::engine::entry::Recognised;
use crate::engine::fallback::Quality;
use crate::engine::model::{Hypothesis, SlotId};

impl Worker {
    /// Accepts the attempts in `slots`, or starts the next ones at a higher temperature.
    pub fn conclude(&mut self, slots: &[SlotId]) {
        let (hypotheses, took) = self.model.call(|model| model.finish(slots));
        let hypotheses = match hypotheses {
            Ok(hypotheses) => hypotheses,
            Err(error) => return self.fail(slots, &error),
        };
        self.spent(slots, took);
        let mut again = Vec::new();
        let mut accepted = Vec::new();
        for (&slot, hypothesis) in slots.iter().zip(hypotheses) {
            let Some(occupant) = &mut self.slots[slot.0] else { continue };
            let options = &occupant.entry.window.options;
            let quality = Quality::from(&hypothesis);
            if !quality.needs_fallback(options) {
                accepted.push((slot, hypothesis));
                continue;
            }
            let best = match occupant.best.take() {
                Some(best) if !quality.is_better_than(Quality::from(&best), options) => best,
                _ => hypothesis,
            };
            if occupant.attempt + 1 < options.temperatures.len() {
                occupant.attempt += 1;
                occupant.best = Some(best);
                again.push(slot);
            } else {
                accepted.push((slot, best));
            }
        }
        if !again.is_empty()
            && let Some(took) = self.begin(&again)
        {
            self.spent(&again, took);
        }
        self.accept(accepted);
    }

    /// Frees the slots. Windows whose words need no times are answered at once.
    fn accept(&mut self, accepted: Vec<(SlotId, Hypothesis)>) {
        let mut to_align = Vec::new();
        for (slot, mut hypothesis) in accepted {
            let Some(occupant) = &self.slots[slot.0] else { continue };
            let window = &occupant.entry.window;
            if Quality::from(&hypothesis).is_silence(&window.options) {
                hypothesis.segments.clear();
                hypothesis.consumed_samples = window.pcm.len().max(1);
            }
            // The end of the last word decides where the next window begins, so align even if no times are wanted.
            let needs_times = window.options.word_times || !hypothesis.ends_in_silence;
            if needs_times && !hypothesis.segments.is_empty() {
                to_align.push((slot, hypothesis));
            } else if let Some(recognised) = self.leave(slot, hypothesis) {
                self.answers.recognised(recognised);
            }
        }
        if !to_align.is_empty() {
            self.align(to_align);
        }
    }

    /// Hands windows to the threads that align their words.
    fn align(&mut self, accepted: Vec<(SlotId, Hypothesis)>) {
        let requests: Vec<(SlotId, &Hypothesis)> =
            accepted.iter().map(|(slot, hypothesis)| (*slot, hypothesis)).collect();
        let slots: Vec<SlotId> = requests.iter().map(|(slot, _)| *slot).collect();
        let (alignments, took) = self.model.call(|model| model.align(&requests));
        let alignments = match alignments {
            Ok(alignments) => alignments,
            Err(error) => return self.fail(&slots, &error),
        };
        self.spent(&slots, took);
        let alignments = alignments.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for ((slot, hypothesis), alignment) in accepted.into_iter().zip(alignments) {
            let Some(recognised) = self.leave(slot, hypothesis) else { continue };
            let Some(alignment) = alignment else {
                self.answers.recognised(recognised);
                continue;
            };
            if let Some(window) = self.aligners.take(Unaligned { recognised, alignment }) {
                // The threads are behind, so this one helps instead of giving them more.
                let begun = Instant::now();
                window.finish(&self.answers);
                self.model.add_busy(begun.elapsed());
            }
        }
    }

    /// Takes the window out of its slot, which is free again.
    fn leave(&mut self, slot: SlotId, hypothesis: Hypothesis) -> Option<Recognised> {
        let occupant = self.slots[slot.0].take()?;
        self.model.release(slot);
        Some(Recognised { occupant, hypothesis })
    }
}
