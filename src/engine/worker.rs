//! The worker thread, which owns a model: receives windows, keeps the slots full and hands on what was recognised.

mod admission;
mod batching;
mod calls;
mod conclusion;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};

use self::batching::Batching;
use self::calls::TimedModel;
use super::aligners::Aligners;
use super::answers::Answers;
use super::board::Board;
use super::device::Turns;
use super::entry::{Entry, Occupant};
use super::error::Error;
use super::fairness::{Fairness, Flow, Seat};
use super::load::Load;
use super::model::{SlotId, SpeechModel, StepOutcome};
use super::queue::Queue;
use super::window::Class;

/// The shortest interval between lookups of ages, each of which visits every waiting tenant.
const AGES_EVERY: Duration = Duration::from_millis(250);

pub struct Worker {
    model: TimedModel,
    turns: Turns,
    commands: Receiver<Entry>,
    queue: Queue<Entry>,
    fairness: Fairness,
    batching: Batching,
    /// The windows that are being encoded, in slots already.
    encoding: Option<Encoding>,
    slots: Vec<Option<Occupant>>,
    /// The slots of the current step, in order; kept to reuse its memory.
    active: Vec<SlotId>,
    aligners: Aligners,
    answers: Arc<Answers>,
    /// When ages were looked up.
    ages_at: Option<Instant>,
}

/// Windows that are encoded together.
struct Encoding {
    slots: Vec<SlotId>,
    /// The flows of all windows, those whose callers have left since included.
    flows: Vec<Flow>,
    begun_at: Instant,
    /// How long the call took, which may only have enqueued the work.
    call: Duration,
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
        (board, turns): (Arc<Board>, Turns),
    ) -> Self {
        let (slots, encode_batch) = (model.info().slots, model.info().encode_batch);
        let answers = Arc::new(Answers::new(&model.info().name, load, board.clone()));
        Self {
            model: TimedModel::new(model, board),
            turns,
            commands,
            queue: Queue::new(),
            fairness: Fairness::default(),
            batching: Batching::new(slots, encode_batch),
            encoding: None,
            slots: (0..slots).map(|_| None).collect(),
            active: Vec::with_capacity(slots),
            aligners: Aligners::start(slots, &answers),
            answers,
            ages_at: None,
        }
    }

    /// Runs until every handle on the engine is gone and all accepted windows are answered.
    pub fn run(mut self) {
        let _end = End(self.answers.board.clone());
        while self.receive() {
            let begun = Instant::now();
            self.drop_abandoned();
            let slots = self.slots.iter().flatten().map(|occupant| occupant.entry.flow());
            self.fairness.begin_round(self.queue.flows(), slots, Instant::now());
            let mut waited = self.take_turn();
            self.begin_encoded();
            self.admit();
            // An encoding may take long.
            waited += self.take_turn();
            self.step();
            let in_model = self.publish();
            self.answers.board.looped(begun.elapsed().saturating_sub(in_model + waited));
        }
        self.turns.rest();
        // Waits for the windows whose words are still being aligned.
        drop(self.aligners);
    }

    /// Waits for the device, if other models use it, and returns how long that took.
    fn take_turn(&mut self) -> Duration {
        let begun = Instant::now();
        let elsewhere = self.turns.take(self.fairness.active());
        self.fairness.set_elsewhere(elsewhere);
        begun.elapsed()
    }

    /// Takes the windows that have arrived; waits for one when idle. False when all work is done.
    fn receive(&mut self) -> bool {
        if self.is_idle() {
            self.turns.rest();
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

    /// Windows whose words are being aligned need nothing from this thread.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.slots.iter().all(Option::is_none)
    }

    fn enqueue(&mut self, entry: Entry) {
        let (class, tenant, samples) = (entry.window.class, entry.window.tenant, entry.window.pcm.len());
        if !entry.is_probe {
            self.answers.meters.arrived(class, entry.window.pcm.duration_seconds());
        }
        self.queue.push(class, tenant, samples, entry);
    }

    /// Frees windows whose callers have gone. Walks the queue only after a caller has left.
    fn drop_abandoned(&mut self) {
        if !self.answers.board.take_left() {
            return;
        }
        let answers = &self.answers;
        self.queue.retain(|entry| !answers.is_abandoned(entry));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.take_if(|occupant| answers.is_abandoned(&occupant.entry)).is_some() {
                self.model.release(SlotId(index));
            }
        }
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

    /// The windows in slots that are being decoded.
    fn decoded(&self) -> impl Iterator<Item = (SlotId, &Occupant)> {
        let occupied = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let occupant = slot.as_ref()?;
            Some((SlotId(index), occupant))
        });
        occupied.filter(|(_, occupant)| occupant.is_encoded())
    }

    /// Decodes a token for every window that is encoded, or for those whose turn it is, and concludes finished ones.
    fn step(&mut self) {
        let mut active = std::mem::take(&mut self.active);
        active.clear();
        if self.fairness.is_alone() {
            active.extend(self.decoded().map(|(slot, _)| slot));
        } else {
            active.extend(self.fairness.select(&self.seats()));
        }
        if !active.is_empty() {
            self.step_with(&active);
        }
        self.active = active;
    }

    fn seats(&self) -> Vec<Seat> {
        let seat = |(slot, occupant): (SlotId, &Occupant)| Seat {
            slot,
            flow: occupant.entry.flow(),
            goes_first: occupant.entry.window.class == Class::Live
                && self.fairness.goes_first(occupant.entry.flow()),
            since: occupant.started_at,
        };
        self.decoded().map(seat).collect()
    }

    fn step_with(&mut self, active: &[SlotId]) {
        let (outcomes, took) = self.model.call(|model| model.step(active));
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return self.fail(active, &error),
        };
        self.spent(active, took);
        self.fairness.stepped(active.len(), took);
        self.answers.board.stepped(active.len() as u64);
        self.answers.meters.stepped(active.len() as u64);
        let outcomes = active.iter().zip(outcomes);
        let finished: Vec<SlotId> = outcomes
            .filter(|(_, outcome)| *outcome == StepOutcome::Finished)
            .map(|(slot, _)| *slot)
            .collect();
        if !finished.is_empty() {
            self.conclude(&finished);
        }
    }

    /// A failed batch answers every window in it.
    fn fail(&mut self, slots: &[SlotId], error: &Error) {
        for &slot in slots {
            if let Some(occupant) = self.slots[slot.0].take() {
                self.model.release(slot);
                self.answers.failed(occupant.entry, error.clone());
            }
        }
    }

    /// Publishes load and occupancy, once for each step. Returns the model's time since the last call.
    fn publish(&mut self) -> Duration {
        let in_model = self.model.take_busy();
        let busy = in_model.as_secs_f64();
        if busy > 0.0 {
            self.answers.load.busy(busy);
            self.answers.meters.busy(busy);
        }
        let active = self.slots.iter().filter(|slot| slot.is_some()).count();
        let board = &self.answers.board;
        board.occupied(active, self.queue.lengths());
        let now = Instant::now();
        if self.ages_at.is_none_or(|at| now.saturating_duration_since(at) >= AGES_EVERY) {
            self.ages_at = Some(now);
            board.oldest_since(self.queue.oldest(|entry| entry.queued_at));
        }
        in_model
    }
}
