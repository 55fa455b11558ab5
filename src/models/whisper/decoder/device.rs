//! The decoder by the kernels of [`crate::cuda`], which choose the tokens too: a launch's input and output stay on the
//! device, and the host reads the chosen tokens with the next step.
//!
//! Weights, caches and buffers are libtorch's tensors, made once; a step allocates nothing. A launch takes rows, a
//! token each, in as many as its bucket: steps of many slots, or parts of prompts. Slots are named by the rows, so
//! a bucket's graph serves any of them.

mod alignment;
mod kept;
mod launch;
mod network;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tch::Tensor;

pub use self::alignment::{CostsRequest, PendingCosts};
pub use self::kept::kept_heads;
use self::network::{Network, address};
use super::torch::{self, Placement};
use super::{AlignmentWeights, Logits, Run};
use crate::cuda::{
    DOWNLOADS, Device, Download, Mark, Outcome, Row, Stage, State, TRANSFER_BYTES, TrieNode, Wanted,
};
use crate::engine::SlotId;
use crate::models::whisper::bias::Bias;
use crate::models::whisper::rules::Table;
use crate::models::{Error, weights};

pub struct Decoder {
    // First, so that the device is idle before the memory is freed.
    device: Box<dyn Device>,
    /// Launches whose outcomes the host has not read yet, in order.
    pending: VecDeque<Pending>,
    /// Outcomes that had to be read before the caller asked for them.
    read: Vec<Found>,
    /// For each slot, the mark in the side queue after which its audio caches are filled; `None` once the kernels'
    /// queue is ordered after it.
    filled: Vec<Option<Mark>>,
    /// For each slot, the terms whose trie it has on the device.
    tries: Vec<Option<Arc<Bias>>>,
    network: Network,
    base: torch::Decoder,
}

/// The prompt of an attempt, and the state that its slot begins with.
pub struct Prefill<'a> {
    /// From position 0.
    pub run: Run<'a>,
    /// Index of the token that opens the transcript.
    pub start_of_transcript: usize,
    pub state: State,
    /// Present where the state says so.
    pub bias: Option<&'a Arc<Bias>>,
}

/// The outcome of a row, with what it was wanted for.
pub struct Found {
    pub slot: SlotId,
    pub wanted: Wanted,
    pub outcome: Outcome,
}

/// A launch under way, and the rows of it whose outcomes are wanted.
struct Pending {
    rows: Vec<(usize, SlotId, Wanted)>,
    download: Download,
}

/// Launches that may be under way at once, unread: half of the downloads that may be.
const PENDING_MAX: usize = DOWNLOADS / 2;

impl Decoder {
    /// `table`: the decoding rules as the kernels read them.
    pub fn new(
        weights: &weights::Weights,
        placement: Placement,
        device: Box<dyn Device>,
        table: Table,
    ) -> Result<Self, Error> {
        let heads = weights.decoder_heads;
        device.libtorch_beside()?;
        let base = torch::Decoder::new(weights, placement.clone())?;
        let network = Network::new(&base, &placement, table, heads)?;
        let mut decoder = Self {
            device,
            pending: VecDeque::new(),
            read: Vec::new(),
            filled: vec![None; network.slots],
            tries: vec![None; network.slots],
            network,
            base,
        };
        decoder.device.after_libtorch()?;
        // The first launch of each size loads what it needs, the second captures its graph.
        let mut rows = 1;
        while rows <= decoder.network.rows_max {
            for _ in 0..2 {
                decoder.launch(&vec![Row::NONE; rows], Stage::Step)?;
            }
            rows *= 2;
        }
        decoder.warm_costs()?;
        Ok(decoder)
    }

    /// The device, for kernels that must run in order with the decoder's.
    pub fn device(&mut self) -> &mut dyn Device {
        self.device.as_mut()
    }

    /// Enqueues to the side queue: fills the audio caches of `slots` from the encoder's output there (windows, audio
    /// positions, d). Whatever reads them waits for it.
    pub fn set_audio(&mut self, slots: &[SlotId], audio: &Tensor) -> Result<(), Error> {
        self.device.libtorch_beside()?;
        // Launches under way may still read what the slots held before.
        self.device.side_waits()?;
        self.device.stage_begins(Stage::CacheFill)?;
        self.base.set_audio(slots, audio)?;
        let (_, length, _) = audio.size3()?;
        let lengths = &self.network.buffers.lengths;
        for slot in slots {
            let _ = lengths.f_get(slot.0 as i64)?.f_fill_(length)?;
        }
        self.device.stage_ends()?;
        let spans =
            || slots.iter().flat_map(|slot| self.base.audio_spans(*slot, lengths)).collect::<Vec<_>>();
        let mark = self.device.mark(&spans)?;
        for slot in slots {
            self.filled[slot.0] = Some(mark);
        }
        Ok(())
    }

    /// Whether the audio caches of `slots` are filled; does not wait.
    pub fn is_filled(&mut self, slots: &[SlotId]) -> Result<bool, Error> {
        Ok(self.last_filled(slots).map_or(Ok(true), |mark| self.device.is_reached(mark))?)
    }

    /// Waits on the host until the audio caches of `slots` are filled.
    pub fn wait_filled(&mut self, slots: &[SlotId]) -> Result<(), Error> {
        Ok(self.last_filled(slots).map_or(Ok(()), |mark| self.device.wait_for_mark(mark))?)
    }

    /// The mark after which the audio caches of all `slots` are filled.
    fn last_filled(&self, slots: &[SlotId]) -> Option<Mark> {
        slots.iter().filter_map(|slot| *self.filled.get(slot.0)?).max()
    }

    /// Orders the launches from now on after the filling of the audio caches of `slots`.
    fn wait_for_audio(&mut self, slots: impl Iterator<Item = SlotId>) -> Result<(), Error> {
        for slot in slots {
            let slot = self.slot(slot)?;
            if let Some(mark) = self.filled[slot].take() {
                self.device.after_mark(mark)?;
            }
        }
        Ok(())
    }

    /// See [`torch::Decoder::alignment`].
    pub fn alignment(&mut self, runs: &[Run]) -> Result<Vec<AlignmentWeights>, Error> {
        self.wait_for_audio(runs.iter().map(|run| run.slot))?;
        self.device.before_libtorch()?;
        self.device.stage_begins(Stage::Alignment)?;
        let attention = self.base.alignment(runs)?;
        self.device.stage_ends()?;
        self.device.after_libtorch()?;
        Ok(attention)
    }

    /// Runs `runs` and returns the logits of `tokens`, a range of the vocabulary. `wanted`: indices into the tokens of all
    /// runs, in order. Chooses no token.
    pub fn forward(&mut self, runs: &[Run], wanted: &[usize], tokens: Range<usize>) -> Result<Logits, Error> {
        self.wait_for_audio(runs.iter().map(|run| run.slot))?;
        let rows: Vec<Row> = runs.iter().flat_map(|run| of_run(run, |_| Wanted::default())).collect();
        let mut values = Vec::with_capacity(wanted.len() * tokens.len());
        for (start, part) in parts(&rows, self.network.rows_max) {
            self.launch(&part, Stage::Prefill)?;
            // The host waits for this launch, so for those before it too. Their downloads make room.
            while !self.pending.is_empty() {
                self.read_first()?;
            }
            let here = wanted.iter().filter_map(|row| row.checked_sub(start)).filter(|row| *row < part.len());
            for rows in here.collect::<Vec<_>>().chunks(DOWNLOADS) {
                let mut downloads = Vec::with_capacity(rows.len());
                for &row in rows {
                    let of_row = self.network.buffers.logits.f_get(row as i64)?;
                    let of_row = of_row.f_narrow(0, tokens.start as i64, tokens.len() as i64)?;
                    // SAFETY: as many contiguous f32 numbers, in a buffer that outlives the device.
                    let from = unsafe { address(&of_row) };
                    downloads.push(self.device.download(from, tokens.len() * size_of::<f32>())?);
                }
                for download in downloads {
                    let bytes = self.device.wait(download)?;
                    let (numbers, _) = bytes.as_chunks();
                    values.extend(numbers.iter().map(|number| f32::from_ne_bytes(*number)));
                }
            }
        }
        Ok(Logits { values, vocabulary: tokens.len() })
    }

    /// Enqueues prompts and the choice of the first tokens, whose outcomes come with the next step's. Outcomes of the
    /// slots' attempts before are dropped.
    pub fn begin(&mut self, prefills: &[Prefill]) -> Result<(), Error> {
        let is_begun = |slot: SlotId| prefills.iter().any(|prefill| prefill.run.slot == slot);
        self.read.retain(|found| !is_begun(found.slot));
        for pending in &mut self.pending {
            pending.rows.retain(|&(_, slot, _)| !is_begun(slot));
        }
        self.wait_for_audio(prefills.iter().map(|prefill| prefill.run.slot))?;
        let mut rows = Vec::new();
        for start in prefills {
            let mut state = Vec::with_capacity(State::BYTES);
            start.state.write(&mut state);
            let slot = self.slot(start.run.slot)?;
            let of_slot = self.network.buffers.states.f_get(slot as i64)?;
            // SAFETY: the contiguous bytes of one state, in a buffer that outlives the device.
            let place = unsafe { address(&of_slot) };
            self.device.upload(&state, place)?;
            if let Some(bias) = start.bias {
                self.expect(slot, bias)?;
            }
            let last = start.run.tokens.len().saturating_sub(1);
            rows.extend(of_run(&start.run, |index| Wanted {
                no_speech: index == start.start_of_transcript,
                choice: index == last,
            }));
        }
        for (_, part) in parts(&rows, self.network.rows_max) {
            self.launch(&part, Stage::Prefill)?;
            let wanted = part.iter().enumerate().filter(|(_, row)| row.wanted != Wanted::default());
            let wanted = wanted.filter_map(|(index, row)| Some((index, SlotId(row.slot?), row.wanted)));
            self.expect_outcomes(wanted.collect())?;
        }
        Ok(())
    }

    /// Uploads the trie of `bias` to `slot`, unless an earlier attempt left it there.
    fn expect(&mut self, slot: usize, bias: &Arc<Bias>) -> Result<(), Error> {
        if self.tries[slot].as_ref().is_some_and(|known| Arc::ptr_eq(known, bias)) {
            return Ok(());
        }
        self.tries[slot] = None;
        let nodes = bias.nodes();
        let mut bytes = Vec::with_capacity(nodes.len() * TrieNode::BYTES);
        nodes.iter().for_each(|node| node.write(&mut bytes));
        let trie = self.network.buffers.tries.f_get(slot as i64)?;
        for (index, part) in bytes.chunks(TRANSFER_BYTES).enumerate() {
            let to = trie.f_narrow(0, (index * TRANSFER_BYTES) as i64, part.len() as i64)?;
            // SAFETY: as many contiguous bytes as the part has, in a buffer that outlives the device.
            let place = unsafe { address(&to) };
            self.device.upload(part, place)?;
        }
        self.tries[slot] = Some(bias.clone());
        Ok(())
    }

    /// Enqueues the next token of each of `slots`, which were begun before, and returns the outcomes of what was enqueued
    /// before: the device runs one step while the host reads another. Sequences that are finished on the device stay as
    /// they are.
    pub fn step(&mut self, slots: &[SlotId]) -> Result<Vec<Found>, Error> {
        let before = self.pending.len();
        if !slots.is_empty() {
            let rows = slots.iter().enumerate().map(|(index, slot)| Ok(Row::step(self.slot(*slot)?, index)));
            let rows = rows.collect::<Result<Vec<_>, Error>>()?;
            self.launch(&rows, Stage::Step)?;
            let wanted = slots.iter().zip(&rows).enumerate();
            self.enqueue_download(wanted.map(|(index, (slot, row))| (index, *slot, row.wanted)).collect())?;
        }
        for _ in 0..before {
            self.read_first()?;
        }
        Ok(std::mem::take(&mut self.read))
    }

    /// As [`Decoder::enqueue_download`], but reads the outcomes of the first launches if too many are under way.
    fn expect_outcomes(&mut self, wanted: Vec<(usize, SlotId, Wanted)>) -> Result<(), Error> {
        if wanted.is_empty() {
            return Ok(());
        }
        while self.pending.len() >= PENDING_MAX {
            self.read_first()?;
        }
        self.enqueue_download(wanted)
    }

    /// Enqueues the copy of the last launch's outcomes, as far as the last row that is wanted.
    fn enqueue_download(&mut self, rows: Vec<(usize, SlotId, Wanted)>) -> Result<(), Error> {
        let count = rows.last().map_or(0, |(row, _, _)| row + 1);
        // SAFETY: a contiguous buffer, of an outcome for each row of the largest launch, that outlives the device.
        let outcomes = unsafe { address(&self.network.buffers.outcomes) };
        let download = self.device.download(outcomes, count * Outcome::BYTES)?;
        self.pending.push_back(Pending { rows, download });
        Ok(())
    }

    /// Waits for the first launch under way and reads its outcomes.
    fn read_first(&mut self) -> Result<(), Error> {
        let Some(Pending { rows, download }) = self.pending.pop_front() else { return Ok(()) };
        let outcomes = Outcome::read_all(&self.device.wait(download)?);
        let of_row = |(row, slot, wanted): (usize, SlotId, Wanted)| {
            let outcome = *outcomes.get(row)?;
            Some(Found { slot, wanted, outcome })
        };
        self.read.extend(rows.into_iter().filter_map(of_row));
        Ok(())
    }

    /// Launches `rows`, at most as many as the largest launch takes, filled up to a bucket.
    fn launch(&mut self, rows: &[Row], stage: fn(usize) -> Stage) -> Result<(), Error> {
        let bucket = self.network.bucket(rows.len());
        let mut bytes = Vec::with_capacity(bucket * Row::BYTES);
        rows.iter().chain(std::iter::repeat(&Row::NONE)).take(bucket).for_each(|row| row.write(&mut bytes));
        // SAFETY: a contiguous buffer of as many rows as the largest launch has, that outlives the device.
        let place = unsafe { address(&self.network.buffers.rows) };
        self.device.stage_begins(stage(bucket))?;
        self.device.upload(&bytes, place)?;
        let network = &self.network;
        self.device.replay(bucket, &|queue| launch::enqueue(network, queue, bucket))?;
        Ok(self.device.stage_ends()?)
    }

    fn slot(&self, slot: SlotId) -> Result<usize, Error> {
        let known = (slot.0 < self.network.slots).then_some(slot.0);
        known.ok_or_else(|| Error::BadWeights(format!("there is no slot {}", slot.0)))
    }
}

/// A row for each token. `first` counts from the run's beginning until [`parts`] adjusts it.
fn of_run<'a>(run: &'a Run, wanted: impl Fn(usize) -> Wanted + 'a) -> impl Iterator<Item = Row> + 'a {
    run.tokens.iter().enumerate().map(move |(index, &token)| Row {
        slot: Some(run.slot.0),
        given: Some((token, run.position + index)),
        first: index,
        wanted: wanted(index),
    })
}

/// Rows of whole runs in parts of at most `size`, each with the index of its first row: in each row `first` becomes
/// the index, within its part, of the first row of the part that belongs to the row's run.
fn parts(rows: &[Row], size: usize) -> impl Iterator<Item = (usize, Vec<Row>)> {
    rows.chunks(size.max(1)).enumerate().map(move |(part, rows)| {
        let moved = |(index, row): (usize, &Row)| Row { first: index.saturating_sub(row.first), ..*row };
        (part * size, rows.iter().enumerate().map(moved).collect())
    })
}
