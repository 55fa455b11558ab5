//! The thread that owns the model: takes windows in, keeps the slots full, answers.

use std::time::Instant;

use crossbeam_channel::{Receiver, TryRecvError};
use tokio::sync::oneshot;

use super::Error;
use super::model::{EncodeRequest, Hypothesis, SlotId, SpeechModel, StepOutcome};
use super::queue::Queue;
use super::window::{DecodingOptions, Recognition, Timings, Window};

/// A window on its way, with the channel its answer goes back on.
pub struct Entry {
    pub window: Window,
    pub reply: oneshot::Sender<Result<Recognition, Error>>,
    pub queued_at: Instant,
}

/// A slot's tenant.
struct Occupant {
    entry: Entry,
    /// Index into the options' temperatures.
    attempt: usize,
    /// The best of the attempts that were not good enough.
    best: Option<Hypothesis>,
    started_at: Instant,
    encoded_at: Instant,
}

pub struct Worker {
    model: Box<dyn SpeechModel>,
    commands: Receiver<Entry>,
    queue: Queue<Entry>,
    slots: Vec<Option<Occupant>>,
}

impl Worker {
    pub fn new(model: Box<dyn SpeechModel>, commands: Receiver<Entry>) -> Self {
        let slots = (0..model.info().slots).map(|_| None).collect();
        Self { model, commands, queue: Queue::new(), slots }
    }

    /// Runs until every handle on the engine is gone and all accepted windows are answered.
    pub fn run(mut self) {
        while self.receive() {
            self.drop_abandoned();
            self.admit();
            self.step();
        }
    }

    /// Takes what has arrived; waits where there is nothing else to do. False when all is done.
    fn receive(&mut self) -> bool {
        let idle = self.queue.is_empty() && self.slots.iter().all(Option::is_none);
        if idle {
            match self.commands.recv() {
                Ok(entry) => self.enqueue(entry),
                Err(_) => return false,
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(entry) => self.enqueue(entry),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => {
                    return !self.queue.is_empty() || self.slots.iter().any(Option::is_some);
                }
            }
        }
    }

    fn enqueue(&mut self, entry: Entry) {
        let (class, tenant, samples) = (entry.window.class, entry.window.tenant, entry.window.pcm.len());
        self.queue.push(class, tenant, samples, entry);
    }

    /// Frees what nobody waits for any more.
    fn drop_abandoned(&mut self) {
        self.queue.remove_unless(|entry| !entry.reply.is_closed());
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.take_if(|occupant| occupant.entry.reply.is_closed()).is_some() {
                self.model.release(SlotId(index));
            }
        }
    }

    /// Encodes one micro-batch of waiting windows into free slots and starts decoding them.
    fn admit(&mut self) {
        let now = Instant::now();
        let batch = self.model.info().encode_batch;
        let mut admitted: Vec<(SlotId, Entry)> = Vec::new();
        let free: Vec<usize> = (0..self.slots.len()).filter(|&index| self.slots[index].is_none()).collect();
        for index in free.into_iter().take(batch) {
            let Some(entry) = self.next_in_time(now) else { break };
            admitted.push((SlotId(index), entry));
        }
        if admitted.is_empty() {
            return;
        }
        let requests: Vec<EncodeRequest> = admitted
            .iter()
            .map(|(slot, entry)| EncodeRequest { slot: *slot, pcm: &entry.window.pcm })
            .collect();
        let encoded = self.model.encode(&requests);
        let encoded_at = Instant::now();
        if let Err(error) = encoded {
            for (slot, entry) in admitted {
                self.model.release(slot);
                answer(entry, Err(error.clone()));
            }
            return;
        }
        let started: Vec<SlotId> = admitted.iter().map(|(slot, _)| *slot).collect();
        for (slot, entry) in admitted {
            self.slots[slot.0] =
                Some(Occupant { entry, attempt: 0, best: None, started_at: now, encoded_at });
        }
        self.begin(&started);
    }

    /// The next window whose deadline has not passed.
    fn next_in_time(&mut self, now: Instant) -> Option<Entry> {
        loop {
            let entry = self.queue.pop()?;
            if entry.window.deadline.is_none_or(|deadline| now < deadline) {
                return Some(entry);
            }
            answer(entry, Err(Error::DeadlineExceeded));
        }
    }

    fn begin(&mut self, slots: &[SlotId]) {
        let attempts: Vec<(SlotId, &DecodingOptions, f32)> = slots
            .iter()
            .filter_map(|&slot| {
                let occupant = self.slots[slot.0].as_ref()?;
                let options = &occupant.entry.window.options;
                Some((slot, options, options.temperatures.get(occupant.attempt).copied().unwrap_or(0.0)))
            })
            .collect();
        if let Err(error) = self.model.begin(&attempts) {
            self.fail(slots, &error);
        }
    }

    /// One token for every occupied slot; answers those that are finished.
    fn step(&mut self) {
        let active: Vec<SlotId> =
            (0..self.slots.len()).filter(|&index| self.slots[index].is_some()).map(SlotId).collect();
        if active.is_empty() {
            return;
        }
        let outcomes = match self.model.step(&active) {
            Ok(outcomes) => outcomes,
            Err(error) => return self.fail(&active, &error),
        };
        let finished: Vec<SlotId> = active
            .into_iter()
            .zip(outcomes)
            .filter(|(_, outcome)| *outcome == StepOutcome::Finished)
            .map(|(slot, _)| slot)
            .collect();
        if !finished.is_empty() {
            self.conclude(&finished);
        }
    }

    /// Accepts the attempts in `slots`, or starts the next ones at a higher temperature.
    fn conclude(&mut self, slots: &[SlotId]) {
        let hypotheses = match self.model.finish(slots) {
            Ok(hypotheses) => hypotheses,
            Err(error) => return self.fail(slots, &error),
        };
        let mut again = Vec::new();
        let mut accepted = Vec::new();
        for (&slot, hypothesis) in slots.iter().zip(hypotheses) {
            let Some(occupant) = &mut self.slots[slot.0] else { continue };
            let options = &occupant.entry.window.options;
            if !needs_fallback(&hypothesis, options) {
                accepted.push((slot, hypothesis));
                continue;
            }
            let best = match occupant.best.take() {
                Some(best) if !is_better(&hypothesis, &best, options) => best,
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
        if !again.is_empty() {
            self.begin(&again);
        }
        self.accept(accepted);
    }

    fn accept(&mut self, mut accepted: Vec<(SlotId, Hypothesis)>) {
        for (slot, hypothesis) in &mut accepted {
            if let Some(occupant) = &self.slots[slot.0]
                && is_silence(hypothesis, &occupant.entry.window.options)
            {
                hypothesis.segments.clear();
                hypothesis.consumed_samples = occupant.entry.window.pcm.len().max(1);
            }
        }
        let mut to_align: Vec<(SlotId, &mut Hypothesis)> = accepted
            .iter_mut()
            .filter(|(slot, hypothesis)| {
                let wanted = self.slots[slot.0].as_ref().is_some_and(|o| o.entry.window.options.word_times);
                wanted && !hypothesis.segments.is_empty()
            })
            .map(|(slot, hypothesis)| (*slot, hypothesis))
            .collect();
        if !to_align.is_empty()
            && let Err(error) = self.model.align(&mut to_align)
        {
            let slots: Vec<SlotId> = accepted.iter().map(|(slot, _)| *slot).collect();
            return self.fail(&slots, &error);
        }
        let now = Instant::now();
        for (slot, hypothesis) in accepted {
            let Some(occupant) = self.slots[slot.0].take() else { continue };
            self.model.release(slot);
            let timings = Timings {
                queued: occupant.started_at - occupant.entry.queued_at,
                encoded: occupant.encoded_at - occupant.started_at,
                decoded: now - occupant.encoded_at,
            };
            let recognition = Recognition {
                segments: hypothesis.segments,
                language: hypothesis.language,
                consumed_samples: hypothesis.consumed_samples,
                timings,
            };
            answer(occupant.entry, Ok(recognition));
        }
    }

    /// A failed batch answers every window in it.
    fn fail(&mut self, slots: &[SlotId], error: &Error) {
        for &slot in slots {
            if let Some(occupant) = self.slots[slot.0].take() {
                self.model.release(slot);
                answer(occupant.entry, Err(error.clone()));
            }
        }
    }
}

fn answer(entry: Entry, result: Result<Recognition, Error>) {
    // A caller that has gone meanwhile is no error.
    let _ = entry.reply.send(result);
}

/// Whether another attempt may do better (openai/whisper `decode_with_fallback`).
fn needs_fallback(hypothesis: &Hypothesis, options: &DecodingOptions) -> bool {
    let repeats = options.compression_ratio_threshold.is_some_and(|max| hypothesis.compression_ratio > max);
    let improbable =
        options.log_probability_threshold.is_some_and(|min| hypothesis.average_log_probability < min);
    let no_speech = options.no_speech_threshold.is_some_and(|max| hypothesis.no_speech_probability > max);
    // Improbable text over likely silence is silence, not a reason to try harder.
    (repeats || improbable) && !(no_speech && improbable)
}

/// Where no attempt is good enough: one that does not repeat itself, then the more probable.
fn is_better(a: &Hypothesis, b: &Hypothesis, options: &DecodingOptions) -> bool {
    let rank = |hypothesis: &Hypothesis| {
        let repeats =
            options.compression_ratio_threshold.is_some_and(|max| hypothesis.compression_ratio > max);
        (!repeats, hypothesis.average_log_probability)
    };
    rank(a) > rank(b)
}

fn is_silence(hypothesis: &Hypothesis, options: &DecodingOptions) -> bool {
    let no_speech = options.no_speech_threshold.is_some_and(|max| hypothesis.no_speech_probability > max);
    let probable =
        options.log_probability_threshold.is_some_and(|min| hypothesis.average_log_probability > min);
    no_speech && !probable
}
