//! The decoder by the kernels of [`crate::cuda`], which choose the tokens too: a step's input and output stay on the
//! device, and the host reads the chosen tokens a step later.
//!
//! Weights, caches and buffers are libtorch's tensors, made once; a step allocates nothing. A launch takes rows, a
//! token each, in as many as its bucket: steps of many slots, or parts of prompts. Slots are named by the rows, so
//! a bucket's graph serves any of them.

mod alignment;
mod launch;
mod network;

use std::sync::Arc;

use tch::Tensor;

pub use self::alignment::{CostsRequest, PendingCosts, kept_heads};
pub use self::network::rows_max;
use self::network::{Network, address};
use super::torch::{self, Placement};
use super::{AlignmentWeights, Logits, Run, plain};
use crate::cuda::{Address, Device, Download, Outcome, Row, State, TRANSFER_BYTES, TrieNode, Wanted};
use crate::engine::SlotId;
use crate::models::whisper::bias::Bias;
use crate::models::whisper::rules::Table;
use crate::models::{Error, weights};

pub struct Decoder {
    // First, so that the device is idle before the memory is freed.
    device: Box<dyn Device>,
    /// The step under way.
    pending: Option<(Vec<SlotId>, Download)>,
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

/// The result of a prefill.
pub struct Begun {
    pub no_speech_probability: f32,
    pub first: Outcome,
}

impl Decoder {
    /// `table`: the decoding rules as the kernels read them.
    pub fn new(
        weights: &weights::Weights,
        placement: Placement,
        device: Box<dyn Device>,
        table: Table,
    ) -> Result<Self, Error> {
        let heads = weights.decoder_heads;
        let base = torch::Decoder::new(weights, placement.clone())?;
        let network = Network::new(&base, &placement, table, heads)?;
        let mut decoder = Self { device, pending: None, tries: vec![None; network.slots], network, base };
        decoder.device.after_libtorch()?;
        // The first launch of each size loads what it needs, the second captures its graph.
        let mut rows = 1;
        while rows <= decoder.network.rows_max {
            for _ in 0..2 {
                decoder.launch(&vec![Row::NONE; rows])?;
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

    /// Fills the audio caches of `slots` from the encoder's output (windows, audio positions, d).
    pub fn set_audio(&mut self, slots: &[SlotId], audio: &Tensor) -> Result<(), Error> {
        self.device.before_libtorch()?;
        self.base.set_audio(slots, audio)?;
        let (_, length, _) = audio.size3()?;
        for slot in slots {
            let _ = self.network.buffers.lengths.f_get(slot.0 as i64)?.f_fill_(length)?;
        }
        Ok(self.device.after_libtorch()?)
    }

    /// See [`torch::Decoder::alignment`].
    pub fn alignment(&mut self, runs: &[Run]) -> Result<Vec<AlignmentWeights>, Error> {
        self.device.before_libtorch()?;
        let attention = self.base.alignment(runs)?;
        self.device.after_libtorch()?;
        Ok(attention)
    }

    /// See [`torch::Decoder::forward`]. Chooses no token.
    pub fn forward(&mut self, runs: &[Run], wanted: &[usize]) -> Result<Logits, Error> {
        let rows: Vec<Row> = runs.iter().flat_map(|run| of_run(run, |_| Wanted::default())).collect();
        let mut values = Vec::with_capacity(wanted.len() * self.network.vocabulary);
        for (start, part) in parts(&rows, self.network.rows_max) {
            self.launch(&part)?;
            let here: Vec<i64> = wanted
                .iter()
                .filter(|&&row| (start..start + part.len()).contains(&row))
                .map(|&row| (row - start) as i64)
                .collect();
            if here.is_empty() {
                continue;
            }
            self.device.before_libtorch()?;
            let logits = &self.network.buffers.logits;
            let here = Tensor::from_slice(&here).f_to_device(logits.device())?;
            values.extend(plain(&logits.f_index_select(0, &here)?.f_to_device(tch::Device::Cpu)?)?);
            self.device.after_libtorch()?;
        }
        Ok(Logits { values, vocabulary: self.network.vocabulary })
    }

    /// Runs prompts and chooses the first tokens. [`Decoder::settle`] comes before.
    pub fn begin(&mut self, prefills: &[Prefill]) -> Result<Vec<Begun>, Error> {
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
        let mut no_speech = Vec::with_capacity(prefills.len());
        let mut first = Vec::with_capacity(prefills.len());
        for (_, part) in parts(&rows, self.network.rows_max) {
            self.launch(&part)?;
            for (row, outcome) in part.iter().zip(self.outcomes(part.len())?) {
                no_speech.extend(row.wanted.no_speech.then_some(outcome.no_speech));
                first.extend(row.wanted.choice.then_some(outcome));
            }
        }
        let begun = no_speech.into_iter().zip(first);
        Ok(begun.map(|(no_speech_probability, first)| Begun { no_speech_probability, first }).collect())
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

    /// Enqueues the next token of each of `slots`, which were begun before, and returns the outcomes of the previous
    /// step: the device runs one step while the host reads another. Sequences that are finished on the device stay as
    /// they are.
    pub fn step(&mut self, slots: &[SlotId]) -> Result<Vec<(SlotId, Outcome)>, Error> {
        let mut next = None;
        if !slots.is_empty() {
            let rows = slots.iter().enumerate().map(|(index, slot)| Ok(Row::step(self.slot(*slot)?, index)));
            let rows = rows.collect::<Result<Vec<_>, Error>>()?;
            self.launch(&rows)?;
            let outcomes = self.outcomes_address();
            next = Some((slots.to_vec(), self.device.download(outcomes, rows.len() * Outcome::BYTES)?));
        }
        let before = std::mem::replace(&mut self.pending, next);
        self.read(before)
    }

    /// Waits for the step under way and returns its outcomes.
    pub fn settle(&mut self) -> Result<Vec<(SlotId, Outcome)>, Error> {
        let pending = self.pending.take();
        self.read(pending)
    }

    fn read(&mut self, step: Option<(Vec<SlotId>, Download)>) -> Result<Vec<(SlotId, Outcome)>, Error> {
        let Some((slots, download)) = step else { return Ok(Vec::new()) };
        let outcomes = Outcome::read_all(&self.device.wait(download)?);
        Ok(slots.into_iter().zip(outcomes).collect())
    }

    fn outcomes_address(&self) -> Address {
        // SAFETY: a contiguous buffer, of an outcome for each row of the largest launch, that outlives the device.
        unsafe { address(&self.network.buffers.outcomes) }
    }

    fn outcomes(&mut self, rows: usize) -> Result<Vec<Outcome>, Error> {
        let outcomes = self.outcomes_address();
        let download = self.device.download(outcomes, rows * Outcome::BYTES)?;
        Ok(Outcome::read_all(&self.device.wait(download)?))
    }

    /// Launches `rows`, at most as many as the largest launch takes, filled up to a bucket.
    fn launch(&mut self, rows: &[Row]) -> Result<(), Error> {
        let bucket = self.network.bucket(rows.len());
        let mut bytes = Vec::with_capacity(bucket * Row::BYTES);
        rows.iter().chain(std::iter::repeat(&Row::NONE)).take(bucket).for_each(|row| row.write(&mut bytes));
        // SAFETY: a contiguous buffer of as many rows as the largest launch has, that outlives the device.
        let place = unsafe { address(&self.network.buffers.rows) };
        self.device.upload(&bytes, place)?;
        let network = &self.network;
        Ok(self.device.replay(bucket, &|queue| launch::enqueue(network, queue, bucket))?)
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
