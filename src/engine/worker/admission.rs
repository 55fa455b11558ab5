//! Waiting windows on their way into slots: chosen, encoded, and begun once they are encoded.

use std::time::{Duration, Instant};

use super::batching::Situation;
use super::{Encoding, Worker};
use crate::engine::entry::{Entry, Occupant};
use crate::engine::error::Error;
use crate::engine::fairness::{EncodeTime, Flow};
use crate::engine::model::{Attempt, EncodeRequest, SlotId};
use crate::engine::window::Class;

impl Worker {
    /// Encodes one micro-batch of waiting windows into free slots, unless another is under way or a larger one is
    /// worth waiting for.
    pub fn admit(&mut self) {
        let now = Instant::now();
        let waiting = self.queue.lengths();
        let situation = Situation {
            free_slots: self.slots.iter().filter(|slot| slot.is_none()).count(),
            waiting_windows: waiting.iter().sum(),
            is_urgent: waiting[Class::Live as usize] > 0,
            is_decoding: self.decoded().next().is_some(),
        };
        if !self.batching.is_due(situation, now) || self.encoding.is_some() {
            return;
        }
        let batch = self.fairness.encode_batch(self.model.info().encode_batch);
        let keeps_last = self.fairness.keeps_a_slot(now) && self.slots.len() > 1;
        let free: Vec<SlotId> = (0..self.slots.len())
            .filter(|&index| self.slots[index].is_none())
            .map(SlotId)
            .take(batch)
            .collect();
        let mut admitted: Vec<(SlotId, Entry)> = Vec::new();
        for (index, slot) in free.into_iter().enumerate() {
            let is_last = index + 1 == situation.free_slots;
            let Some(entry) = self.next_in_time(now, keeps_last && is_last) else { break };
            self.fairness.begins(entry.flow());
            admitted.push((slot, entry));
        }
        if !admitted.is_empty() {
            self.batching.admitted();
            self.encode(admitted, now);
            self.begin_encoded();
        }
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
            // Its caller may have left after the last call of `drop_abandoned`.
            if self.answers.is_abandoned(&entry) {
                continue;
            }
            if entry.window.deadline.is_none_or(|deadline| !deadline.has_passed(now)) {
                return Some(entry);
            }
            self.answers.expired(entry);
        }
    }

    fn encode(&mut self, admitted: Vec<(SlotId, Entry)>, now: Instant) {
        let requests: Vec<EncodeRequest> = admitted
            .iter()
            .map(|(slot, entry)| EncodeRequest { slot: *slot, pcm: &entry.window.pcm })
            .collect();
        let (encoded, call) = self.model.call(|model| model.encode(&requests));
        let encoding = Encoding {
            slots: admitted.iter().map(|(slot, _)| *slot).collect(),
            flows: admitted.iter().map(|(_, entry)| entry.flow()).collect(),
            begun_at: now,
            call,
        };
        if let Err(error) = encoded {
            self.learn_encoding(&encoding);
            for (slot, entry) in admitted {
                self.model.release(slot);
                self.answers.failed(entry, error.clone());
            }
            return;
        }
        let busy = call / admitted.len().max(1) as u32;
        for (slot, entry) in admitted {
            let queued = now.saturating_duration_since(entry.queued_at);
            self.answers.meters.queued(entry.window.class, queued);
            self.slots[slot.0] =
                Some(Occupant { entry, attempt: 0, best: None, started_at: now, encoded_at: None, busy });
        }
        self.encoding = Some(encoding);
    }

    /// Starts decoding the windows that were being encoded, if they are by now; waits for them if no other window can
    /// be decoded meanwhile.
    pub fn begin_encoded(&mut self) {
        let Some(encoding) = self.encoding.take() else { return };
        let held = |slot: &SlotId| self.slots[slot.0].is_some();
        let slots: Vec<SlotId> = encoding.slots.iter().copied().filter(held).collect();
        if slots.is_empty() {
            // All callers have left. The device encodes the next windows after these.
            return;
        }
        let (is_encoded, _) = self.model.call(|model| model.is_encoded(&slots));
        let encoded = match is_encoded {
            Ok(true) => Ok(()),
            Ok(false) if self.decoded().next().is_some() => {
                self.encoding = Some(encoding);
                return;
            }
            Ok(false) => self.wait_encoded(&slots),
            Err(error) => Err(error),
        };
        if let Err(error) = encoded {
            return self.fail(&slots, &error);
        }
        self.learn_encoding(&encoding);
        self.set_encoded(&slots);
        if let Some(took) = self.begin(&slots) {
            self.spent(&slots, took);
        }
    }

    /// The wait is part of the windows' encoding, whose whole time is charged to their flows.
    fn wait_encoded(&mut self, slots: &[SlotId]) -> Result<(), Error> {
        let (waited, took) = self.model.call(|model| model.wait_encoded(slots));
        let share = took / slots.len().max(1) as u32;
        for slot in slots {
            if let Some(occupant) = &mut self.slots[slot.0] {
                occupant.busy += share;
            }
        }
        waited
    }

    fn set_encoded(&mut self, slots: &[SlotId]) {
        let now = Some(Instant::now());
        for slot in slots {
            if let Some(occupant) = &mut self.slots[slot.0] {
                occupant.encoded_at = now;
            }
        }
    }

    /// Counts the time until now as that of `encoding`.
    fn learn_encoding(&mut self, encoding: &Encoding) {
        let flows: &[Flow] = &encoding.flows;
        let whole = encoding.begun_at.elapsed();
        self.answers.meters.encoded(whole);
        self.fairness.encoded(flows, EncodeTime { whole, alone: encoding.call });
    }

    /// Starts the next attempt of each of `slots`, and returns how long that took; fails them if the model does.
    pub fn begin(&mut self, slots: &[SlotId]) -> Option<Duration> {
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
            self.fail(slots, &error);
            return None;
        }
        Some(took)
    }
}
