//! The worker thread, which owns a model: receives windows, keeps the slots full and answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};
use tokio::sync::oneshot;

use super::board::Board;
use super::error::Error;
use super::fairness::{Fairness, Flow, Seat};
use super::fallback::Quality;
use super::load::Load;
use super::meters::{Meters, Outcome};
use super::model::{Attempt, EncodeRequest, Hypothesis, SlotId, SpeechModel, StepOutcome};
use super::queue::Queue;
use super::window::{Class, Recognition, Timings, Window};
use crate::audio::SAMPLE_RATE;

/// A submitted window, with the channel for its answer.
pub struct Entry {
    pub window: Window,
    pub reply: oneshot::Sender<Result<Recognition, Error>>,
    pub queued_at: Instant,
    /// Sent to check the model; not counted in metrics or load.
    pub is_probe: bool,
}

impl Entry {
    fn flow(&self) -> Flow {
        Flow::of(self.window.class, self.window.tenant)
    }
}

/// The window in a slot.
struct Occupant {
    entry: Entry,
    /// Index into the options' temperatures.
    attempt: usize,
    /// The best of the attempts that were not good enough.
    best: Option<Hypothesis>,
    started_at: Instant,
    encoded_at: Instant,
    /// Its share of the model's time.
    busy: Duration,
}

pub struct Worker {
    model: TimedModel,
    commands: Receiver<Entry>,
    queue: Queue<Entry>,
    fairness: Fairness,
    slots: Vec<Option<Occupant>>,
    /// The slots of the current step, in order; kept to reuse its memory.
    active: Vec<SlotId>,
    meters: Meters,
}

/// The model, with its calls timed and reported.
struct TimedModel {
    model: Box<dyn SpeechModel>,
    load: Arc<Load>,
    board: Arc<Board>,
    /// Time in the model since it was last reported.
    busy: Duration,
}

impl TimedModel {
    /// Calls the model and measures the time. A panic fails only the windows of this call, as the next use of their
    /// slots overwrites them.
    fn call<T>(
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

    fn release(&mut self, slot: SlotId) {
        self.model.release(slot);
    }
}

/// Marks the worker as ended when dropped, even by a panic.
struct End(Arc<Board>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Worker {
    pub fn new(
        model: Box<dyn SpeechModel>,
        commands: Receiver<Entry>,
        load: Arc<Load>,
        board: Arc<Board>,
    ) -> Self {
        let slots: Vec<Option<Occupant>> = (0..model.info().slots).map(|_| None).collect();
        Self {
            active: Vec::with_capacity(slots.len()),
            slots,
            model: TimedModel { model, load, board, busy: Duration::ZERO },
            commands,
            queue: Queue::new(),
            fairness: Fairness::default(),
            meters: Meters::new(),
        }
    }

    /// Runs until every handle on the engine is gone and all accepted windows are answered.
    pub fn run(mut self) {
        let _end = End(self.model.board.clone());
        while self.receive() {
            let begun = Instant::now();
            self.drop_abandoned();
            let slots = self.slots.iter().flatten().map(|occupant| occupant.entry.flow());
            self.fairness.begin_round(self.queue.flows(), slots, Instant::now());
            self.admit();
            self.step();
            let in_model = self.publish();
            self.model.board.looped(begun.elapsed().saturating_sub(in_model));
        }
    }

    /// Takes the windows that have arrived; waits for one when idle. False when all work is done.
    fn receive(&mut self) -> bool {
        if self.is_idle() {
            match self.commands.recv() {
                Ok(entry) => self.enqueue(entry),
                Err(_) => return false,
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(entry) => self.enqueue(entry),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !self.is_idle(),
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.slots.iter().all(Option::is_none)
    }

    fn enqueue(&mut self, entry: Entry) {
        let (class, tenant, samples) = (entry.window.class, entry.window.tenant, entry.window.pcm.len());
        if !entry.is_probe {
            self.meters.arrived(class, entry.window.pcm.duration_seconds());
        }
        self.queue.push(class, tenant, samples, entry);
    }

    /// Frees windows whose callers have gone. Walks the queue only after a caller has left.
    fn drop_abandoned(&mut self) {
        if !self.model.board.take_left() {
            return;
        }
        let meters = &self.meters;
        let abandoned = |entry: &Entry| {
            let closed = entry.reply.is_closed();
            if closed && !entry.is_probe {
                meters.left(entry.window.class, Outcome::Abandoned);
            }
            closed
        };
        self.queue.retain(|entry| !abandoned(entry));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.take_if(|occupant| abandoned(&occupant.entry)).is_some() {
                self.model.release(SlotId(index));
            }
        }
    }

    /// Encodes one micro-batch of waiting windows into free slots and starts decoding them.
    fn admit(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let now = Instant::now();
        let batch = self.fairness.encode_batch(self.model.model.info().encode_batch);
        let mut free: Vec<SlotId> =
            (0..self.slots.len()).filter(|&index| self.slots[index].is_none()).map(SlotId).collect();
        let kept = self.fairness.keeps_a_slot(now) && free.len() == 1 && self.slots.len() > 1;
        free.truncate(batch);
        let mut admitted: Vec<(SlotId, Entry)> = Vec::new();
        for slot in free {
            let Some(entry) = self.next_in_time(now, kept) else { break };
            self.fairness.begins(entry.flow());
            admitted.push((slot, entry));
        }
        if admitted.is_empty() {
            return;
        }
        let requests: Vec<EncodeRequest> = admitted
            .iter()
            .map(|(slot, entry)| EncodeRequest { slot: *slot, pcm: &entry.window.pcm })
            .collect();
        let (encoded, took) = self.model.call(|model| model.encode(&requests));
        let encoded_at = now + took;
        self.meters.encoded(took);
        let flows: Vec<Flow> = admitted.iter().map(|(_, entry)| entry.flow()).collect();
        self.fairness.encoded(&flows, took);
        if let Err(error) = encoded {
            for (slot, entry) in admitted {
                self.model.release(slot);
                self.failed(entry, error.clone());
            }
            return;
        }
        let busy = took / admitted.len() as u32;
        let started: Vec<SlotId> = admitted.iter().map(|(slot, _)| *slot).collect();
        for (slot, entry) in admitted {
            self.meters.queued(entry.window.class, now.saturating_duration_since(entry.queued_at));
            self.slots[slot.0] =
                Some(Occupant { entry, attempt: 0, best: None, started_at: now, encoded_at, busy });
        }
        self.begin(&started);
    }

    /// The next window whose caller still waits and whose deadline has not passed. `newcomers`: only of flows that
    /// have no slot.
    fn next_in_time(&mut self, now: Instant, newcomers: bool) -> Option<Entry> {
        loop {
            let fairness = &self.fairness;
            let may_begin = |flow| fairness.may_begin(flow) && !(newcomers && fairness.has_slot(flow));
            let goes_first = |flow| fairness.goes_first(flow);
            let next = self.queue.pop(goes_first, |flow| fairness.is_next(flow) && may_begin(flow));
            let entry = next.or_else(|| self.queue.pop(goes_first, may_begin))?;
            if entry.reply.is_closed() {
                // Its caller left after the last call of `drop_abandoned`.
                if !entry.is_probe {
                    self.meters.left(entry.window.class, Outcome::Abandoned);
                }
                continue;
            }
            if entry.window.deadline.is_none_or(|deadline| !deadline.has_passed(now)) {
                return Some(entry);
            }
            self.meters.left(entry.window.class, Outcome::Expired);
            answer(entry, Err(Error::DeadlineExceeded));
        }
    }

    fn begin(&mut self, slots: &[SlotId]) {
        let attempts: Vec<Attempt> = slots
            .iter()
            .filter_map(|&slot| {
                let occupant = self.slots[slot.0].as_ref()?;
                let options = &occupant.entry.window.options;
                let temperature = options.temperatures.get(occupant.attempt).copied().unwrap_or(0.0);
                Some(Attempt { slot, options, temperature })
            })
            .collect();
        let (begun, took) = self.model.call(|model| model.begin(&attempts));
        if let Err(error) = begun {
            return self.fail(slots, &error);
        }
        self.spent(slots, took);
    }

    /// Divides the time of a call among the windows that it was for.
    fn spent(&mut self, slots: &[SlotId], took: Duration) {
        let share = took / slots.len().max(1) as u32;
        for slot in slots {
            if let Some(occupant) = &mut self.slots[slot.0] {
                occupant.busy += share;
                self.fairness.charge(occupant.entry.flow(), share.as_secs_f64());
            }
        }
    }

    /// Decodes a token for every occupied slot, or for those whose turn it is, and concludes finished ones.
    fn step(&mut self) {
        let mut active = std::mem::take(&mut self.active);
        active.clear();
        if self.fairness.is_alone() {
            active.extend((0..self.slots.len()).filter(|&index| self.slots[index].is_some()).map(SlotId));
        } else {
            active.extend(self.fairness.select(&self.seats()));
        }
        if !active.is_empty() {
            self.step_with(&active);
        }
        self.active = active;
    }

    fn seats(&self) -> Vec<Seat> {
        let occupied =
            self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)));
        let seat = |(index, occupant): (usize, &Occupant)| Seat {
            slot: SlotId(index),
            flow: occupant.entry.flow(),
            goes_first: occupant.entry.window.class == Class::Live
                && self.fairness.goes_first(occupant.entry.flow()),
            since: occupant.started_at,
        };
        occupied.map(seat).collect()
    }

    fn step_with(&mut self, active: &[SlotId]) {
        let (outcomes, took) = self.model.call(|model| model.step(active));
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return self.fail(active, &error),
        };
        self.spent(active, took);
        self.fairness.stepped(active.len(), took);
        self.model.board.stepped(active.len() as u64);
        self.meters.stepped(active.len() as u64);
        let outcomes = active.iter().zip(outcomes);
        let finished: Vec<SlotId> = outcomes
            .filter(|(_, outcome)| *outcome == StepOutcome::Finished)
            .map(|(slot, _)| *slot)
            .collect();
        if !finished.is_empty() {
            self.conclude(&finished);
        }
    }

    /// Accepts the attempts in `slots`, or starts the next ones at a higher temperature.
    fn conclude(&mut self, slots: &[SlotId]) {
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
        if !again.is_empty() {
            self.begin(&again);
        }
        self.accept(accepted);
    }

    fn accept(&mut self, mut accepted: Vec<(SlotId, Hypothesis)>) {
        for (slot, hypothesis) in &mut accepted {
            if let Some(occupant) = &self.slots[slot.0]
                && Quality::from(&*hypothesis).is_silence(&occupant.entry.window.options)
            {
                hypothesis.segments.clear();
                hypothesis.consumed_samples = occupant.entry.window.pcm.len().max(1);
            }
        }
        let mut to_align: Vec<(SlotId, &mut Hypothesis)> = accepted
            .iter_mut()
            .filter(|(slot, hypothesis)| {
                let wanted = self.slots[slot.0].as_ref().is_some_and(|o| o.entry.window.options.word_times);
                // The end of the last word decides where the next window begins, so align even if no times are wanted.
                (wanted || !hypothesis.ends_in_silence) && !hypothesis.segments.is_empty()
            })
            .map(|(slot, hypothesis)| (*slot, hypothesis))
            .collect();
        if !to_align.is_empty() {
            let (aligned, took) = self.model.call(|model| model.align(&mut to_align));
            let slots: Vec<SlotId> = to_align.iter().map(|(slot, _)| *slot).collect();
            if let Err(error) = aligned {
                let slots: Vec<SlotId> = accepted.iter().map(|(slot, _)| *slot).collect();
                return self.fail(&slots, &error);
            }
            self.spent(&slots, took);
        }
        let now = Instant::now();
        for (slot, hypothesis) in accepted {
            let Some(occupant) = self.slots[slot.0].take() else { continue };
            self.model.release(slot);
            self.recognised(occupant, hypothesis, now);
        }
    }

    fn recognised(&mut self, occupant: Occupant, hypothesis: Hypothesis, now: Instant) {
        let timings = Timings {
            queued: occupant.started_at.saturating_duration_since(occupant.entry.queued_at),
            encoded: occupant.encoded_at.saturating_duration_since(occupant.started_at),
            decoded: now.saturating_duration_since(occupant.encoded_at),
        };
        let window = &occupant.entry.window;
        if !occupant.entry.is_probe {
            let seconds = hypothesis.consumed_samples.min(window.pcm.len()) as f64 / f64::from(SAMPLE_RATE);
            self.meters.recognised(window.class, seconds, timings.decoded);
            self.model.load.learn(window.pcm.duration_seconds(), occupant.busy.as_secs_f64());
            self.model.board.recognised(now);
        }
        let recognition = Recognition {
            segments: hypothesis.segments,
            language: hypothesis.language,
            consumed_samples: hypothesis.consumed_samples,
            timings,
        };
        answer(occupant.entry, Ok(recognition));
    }

    /// A failed batch answers every window in it.
    fn fail(&mut self, slots: &[SlotId], error: &Error) {
        for &slot in slots {
            if let Some(occupant) = self.slots[slot.0].take() {
                self.model.release(slot);
                self.failed(occupant.entry, error.clone());
            }
        }
    }

    fn failed(&self, entry: Entry, error: Error) {
        if !entry.is_probe {
            self.meters.left(entry.window.class, Outcome::Failed);
        }
        answer(entry, Err(error));
    }

    /// Publishes load and occupancy, once for each step. Returns the model's time since the last call.
    fn publish(&mut self) -> Duration {
        let in_model = std::mem::take(&mut self.model.busy);
        let busy = in_model.as_secs_f64();
        if busy > 0.0 {
            self.model.load.busy(busy);
            self.meters.busy(busy);
        }
        let active = self.slots.iter().filter(|slot| slot.is_some()).count();
        self.model.board.occupied(active, self.queue.lengths());
        let now = Instant::now();
        if self.meters.ages_due(now) {
            self.model.board.oldest_since(self.queue.oldest(|entry| entry.queued_at));
        }
        in_model
    }
}

fn answer(entry: Entry, result: Result<Recognition, Error>) {
    // Fails if the caller has gone, which is not an error.
    let _ = entry.reply.send(result);
}
