//! The decoder by the kernels of [`crate::cuda`], which choose the tokens too: what a step begins with and what
//! it ends with stays on the device, and the host learns of it a step later.
//!
//! Weights, caches and buffers are libtorch's tensors, made once; a step allocates nothing. A launch takes rows, a
//! token each, in as many as its bucket: steps of many slots, or parts of prompts. Slots are named by the rows, so
//! a bucket's graph serves any of them.

use tch::{Kind, Tensor};

use super::{AlignmentWeights, Logits, Placement, Run, plain, torch};
use crate::cuda::{
    ATTENTION_SPLIT, Address, Device, Download, Error as DeviceError, HEAD, Kernel, Outcome, Product, Queue,
    Row, State, Wanted,
};
use crate::engine::SlotId;
use crate::models::whisper::layers::{LayerNorm, Linear};
use crate::models::whisper::rules::Table;
use crate::models::{Error, weights};

/// Rows of the largest launch, at least: long prompts go in parts of so many tokens.
const ROWS_MIN: usize = 64;

/// Rows of the largest launch for so many slots.
pub fn rows_max(slots: usize) -> usize {
    slots.next_power_of_two().max(ROWS_MIN)
}
/// Widths that the norm's kernel is written for.
const WIDTH_MAX: usize = 2048;

pub struct Decoder {
    // First, so that nothing is under way any more when the memory goes.
    device: Box<dyn Device>,
    /// The step under way.
    pending: Option<(Vec<SlotId>, Download)>,
    network: Network,
    base: torch::Decoder,
}

/// An attempt at a window.
pub struct Start<'a> {
    /// The prompt, from position 0.
    pub run: Run<'a>,
    /// Index of the token that opens the transcript.
    pub start_of_transcript: usize,
    pub state: State,
}

/// What the prompt's end brought.
pub struct Begun {
    pub no_speech_probability: f32,
    pub first: Outcome,
}

/// Sizes, weights and buffers, as the kernels see them.
struct Network {
    slots: usize,
    rows_max: usize,
    width: usize,
    heads: usize,
    vocabulary: usize,
    text_positions: usize,
    audio_positions: usize,
    table: Table,
    suppressed: Tensor,
    embedding: Address,
    positions: Address,
    norm: Norm,
    layers: Vec<Layer>,
    buffers: Buffers,
    /// Biases in f32, by address in the layers.
    _biases: Vec<Tensor>,
}

struct Layer {
    attention_norm: Norm,
    query_key_value: Weight,
    output: Weight,
    cross_norm: Norm,
    cross_query: Weight,
    cross_output: Weight,
    feed_forward_norm: Norm,
    expand: Weight,
    contract: Weight,
    text_keys: Address,
    text_values: Address,
    audio_keys: Address,
    audio_values: Address,
}

struct Norm {
    gamma: Address,
    beta: Address,
}

struct Weight {
    weight: Address,
    bias: Address,
    inputs: usize,
    outputs: usize,
}

/// What a launch works on; sizes in rows.
struct Buffers {
    rows: Tensor,
    states: Tensor,
    /// Audio positions of each slot.
    lengths: Tensor,
    positions: Tensor,
    /// The residual, f32.
    x: Tensor,
    /// What goes into a product, bf16: (rows, 4 · d) at most.
    input: Tensor,
    /// What comes out of one, f32: (rows, 4 · d) at most.
    product: Tensor,
    parts: Tensor,
    /// (rows, vocabulary), f32.
    logits: Tensor,
    outcomes: Tensor,
}

impl Buffers {
    fn new(place: tch::Device, slots: usize, rows: usize, widths: [usize; 3]) -> Result<Self, Error> {
        let [width, parts, vocabulary] = widths.map(|width| width as i64);
        let (slots, rows) = (slots as i64, rows as i64);
        let zeros = |size: [i64; 2], kind| Tensor::f_zeros(size, (kind, place));
        Ok(Self {
            rows: zeros([rows, Row::BYTES as i64], Kind::Uint8)?,
            states: zeros([slots, State::BYTES as i64], Kind::Uint8)?,
            lengths: zeros([slots, 1], Kind::Int)?,
            positions: zeros([rows, 1], Kind::Int)?,
            x: zeros([rows, width], Kind::Float)?,
            input: zeros([rows, 4 * width], Kind::BFloat16)?,
            product: zeros([rows, 4 * width], Kind::Float)?,
            parts: zeros([rows, parts], Kind::Float)?,
            logits: zeros([rows, vocabulary], Kind::Float)?,
            outcomes: zeros([rows, Outcome::BYTES as i64], Kind::Uint8)?,
        })
    }
}

fn address(tensor: &Tensor) -> Address {
    // SAFETY: contiguous memory of a tensor that the decoder keeps as long as its device, of the size and type that
    // `Network::enqueue` calls the kernels with.
    unsafe { Address::new(tensor.data_ptr()) }
}

impl Network {
    fn new(base: &torch::Decoder, placement: &Placement, table: Table, heads: usize) -> Result<Self, Error> {
        let (vocabulary, width) = base.embedding.size2()?;
        let (text_positions, _) = base.positions.size2()?;
        let (width, vocabulary) = (width as usize, vocabulary as usize);
        if width != heads * HEAD || width > WIDTH_MAX || table.suppressed.len() != vocabulary {
            let refused = format!("{heads} heads, width {width}: not what the kernels are written for");
            return Err(Error::BadWeights(refused));
        }
        let mut biases = Vec::new();
        let mut weight = |linear: &Linear| -> Result<Weight, Error> {
            let (outputs, inputs) = linear.weight.size2()?;
            let bias = match &linear.bias {
                Some(bias) => {
                    let bias = bias.f_to_kind(Kind::Float)?.f_contiguous()?;
                    let at = address(&bias);
                    biases.push(bias);
                    at
                }
                None => Address::NULL,
            };
            let (inputs, outputs) = (inputs as usize, outputs as usize);
            Ok(Weight { weight: address(&linear.weight), bias, inputs, outputs })
        };
        let norm = |norm: &LayerNorm| Norm { gamma: address(&norm.gamma), beta: address(&norm.beta) };
        let half = |cache: &Tensor, index| Ok::<_, Error>(address(&cache.f_select(0, index)?));
        let mut layers = Vec::with_capacity(base.layers.len());
        let mut audio_positions = 0;
        for layer in &base.layers {
            audio_positions = layer.audio_cache.size().get(3).copied().unwrap_or(0) as usize;
            layers.push(Layer {
                attention_norm: norm(&layer.attention_norm),
                query_key_value: weight(&layer.query_key_value)?,
                output: weight(&layer.output)?,
                cross_norm: norm(&layer.cross_norm),
                cross_query: weight(&layer.cross_query)?,
                cross_output: weight(&layer.cross_output)?,
                feed_forward_norm: norm(&layer.feed_forward.norm),
                expand: weight(&layer.feed_forward.expand)?,
                contract: weight(&layer.feed_forward.contract)?,
                text_keys: half(&layer.text_cache, 0)?,
                text_values: half(&layer.text_cache, 1)?,
                audio_keys: half(&layer.audio_cache, 0)?,
                audio_values: half(&layer.audio_cache, 1)?,
            });
        }
        let rows_max = rows_max(placement.slots);
        let parts = heads * audio_positions.div_ceil(ATTENTION_SPLIT) * (HEAD + 2);
        Ok(Self {
            slots: placement.slots,
            rows_max,
            width,
            heads,
            vocabulary,
            text_positions: text_positions as usize,
            audio_positions,
            suppressed: Tensor::from_slice(&table.suppressed).f_to_device(placement.place)?,
            table,
            embedding: address(&base.embedding),
            positions: address(&base.positions),
            norm: norm(&base.norm),
            layers,
            buffers: Buffers::new(placement.place, placement.slots, rows_max, [width, parts, vocabulary])?,
            _biases: biases,
        })
    }

    /// All of a launch of `rows` rows: embeddings, layers, logits, the next tokens.
    fn enqueue(&self, queue: &dyn Queue, rows: usize) -> Result<(), DeviceError> {
        let at = &self.buffers;
        let (row, positions, x) = (address(&at.rows), address(&at.positions), address(&at.x));
        let (input, product) = (address(&at.input), address(&at.product));
        let (width, heads) = (self.width, self.heads);
        let multiply = |weight: &Weight| {
            let &Weight { weight, inputs, outputs, .. } = weight;
            queue.multiply(Product { weight, x: input, out: product, rows, inputs, outputs })
        };
        // The residual takes up the last product, and is normalised for the next.
        let add_norm = |y: Address, bias: Address, norm: &Norm| {
            let arguments = [
                positions.into(),
                x.into(),
                y.into(),
                bias.into(),
                norm.gamma.into(),
                norm.beta.into(),
                width.into(),
                input.into(),
            ];
            queue.launch(Kernel::AddNorm, [rows, 1, 1], &arguments)
        };
        let embed = [
            row.into(),
            address(&at.states).into(),
            self.embedding.into(),
            self.positions.into(),
            width.into(),
            self.vocabulary.into(),
            self.text_positions.into(),
            positions.into(),
            x.into(),
        ];
        queue.launch(Kernel::Embed, [rows, 1, 1], &embed)?;
        let mut before = (Address::NULL, Address::NULL);
        for layer in &self.layers {
            add_norm(before.0, before.1, &layer.attention_norm)?;
            multiply(&layer.query_key_value)?;
            let attention = [
                row.into(),
                positions.into(),
                product.into(),
                layer.query_key_value.bias.into(),
                heads.into(),
                self.text_positions.into(),
                layer.text_keys.into(),
                layer.text_values.into(),
                input.into(),
            ];
            queue.launch(Kernel::TextAttention, [rows, heads, 1], &attention)?;
            multiply(&layer.output)?;

            add_norm(product, layer.output.bias, &layer.cross_norm)?;
            multiply(&layer.cross_query)?;
            let splits = self.audio_positions.div_ceil(ATTENTION_SPLIT);
            let parts = address(&at.parts);
            let attention = [
                row.into(),
                positions.into(),
                product.into(),
                layer.cross_query.bias.into(),
                heads.into(),
                self.audio_positions.into(),
                address(&at.lengths).into(),
                layer.audio_keys.into(),
                layer.audio_values.into(),
                parts.into(),
            ];
            queue.launch(Kernel::CrossAttention, [rows, heads, splits], &attention)?;
            let join = [positions.into(), parts.into(), splits.into(), input.into()];
            queue.launch(Kernel::CrossJoin, [rows, heads, 1], &join)?;
            multiply(&layer.cross_output)?;

            add_norm(product, layer.cross_output.bias, &layer.feed_forward_norm)?;
            multiply(&layer.expand)?;
            let wide = layer.expand.outputs;
            let gelu =
                [positions.into(), product.into(), layer.expand.bias.into(), wide.into(), input.into()];
            queue.launch(Kernel::BiasGelu, [rows, wide.div_ceil(1024), 1], &gelu)?;
            multiply(&layer.contract)?;
            before = (product, layer.contract.bias);
        }
        add_norm(before.0, before.1, &self.norm)?;
        let logits = address(&at.logits);
        queue.multiply(Product {
            weight: self.embedding,
            x: input,
            out: logits,
            rows,
            inputs: width,
            outputs: self.vocabulary,
        })?;
        let choose = [
            row.into(),
            positions.into(),
            logits.into(),
            address(&self.suppressed).into(),
            self.vocabulary.into(),
            self.table.end_of_text.into(),
            self.table.timestamp_begin.into(),
            self.table.initial_timestamp_max.into(),
            self.table.no_speech.into(),
            self.text_positions.into(),
            address(&at.states).into(),
            address(&at.outcomes).into(),
        ];
        queue.launch(Kernel::Choose, [rows, 1, 1], &choose)
    }

    /// The size of a launch that `rows` fit into: a power of two.
    fn bucket(&self, rows: usize) -> usize {
        rows.next_power_of_two().min(self.rows_max)
    }
}

impl Decoder {
    /// `table`: what the kernels know of the rules.
    pub fn new(
        weights: &weights::Weights,
        placement: Placement,
        device: Box<dyn Device>,
        table: Table,
    ) -> Result<Self, Error> {
        let heads = weights.decoder_heads;
        let base = torch::Decoder::new(weights, placement.clone())?;
        let network = Network::new(&base, &placement, table, heads)?;
        let mut decoder = Self { device, pending: None, network, base };
        decoder.device.after_libtorch()?;
        // Once to load what each size needs, once more to capture its graph.
        let mut rows = 1;
        while rows <= decoder.network.rows_max {
            for _ in 0..2 {
                decoder.launch(&vec![Row::NONE; rows])?;
            }
            rows *= 2;
        }
        Ok(decoder)
    }

    /// For kernels of others, in order with these.
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

    /// See [`super::Decoder::alignment`].
    pub fn alignment(&mut self, runs: &[Run]) -> Result<Vec<AlignmentWeights>, Error> {
        self.device.before_libtorch()?;
        let attention = self.base.alignment(runs)?;
        self.device.after_libtorch()?;
        Ok(attention)
    }

    /// See [`super::Decoder::forward`]. No token is chosen.
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
    pub fn begin(&mut self, starts: &[Start]) -> Result<Vec<Begun>, Error> {
        let mut rows = Vec::new();
        for start in starts {
            let mut state = Vec::with_capacity(State::BYTES);
            start.state.write(&mut state);
            let slot = self.slot(start.run.slot)?;
            let of_slot = self.network.buffers.states.f_get(slot as i64)?;
            self.device.upload(&state, address(&of_slot))?;
            let last = start.run.tokens.len().saturating_sub(1);
            rows.extend(of_run(&start.run, |index| Wanted {
                no_speech: index == start.start_of_transcript,
                choice: index == last,
            }));
        }
        let mut no_speech = Vec::with_capacity(starts.len());
        let mut first = Vec::with_capacity(starts.len());
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

    /// Enqueues the next token of each of `slots`, each of which was begun, and returns what became of the step
    /// before: one step runs while the host looks at another. What is finished on the device stays as it is.
    pub fn step(&mut self, slots: &[SlotId]) -> Result<Vec<(SlotId, Outcome)>, Error> {
        let mut next = None;
        if !slots.is_empty() {
            let rows = slots.iter().enumerate().map(|(index, slot)| Ok(Row::step(self.slot(*slot)?, index)));
            let rows = rows.collect::<Result<Vec<_>, Error>>()?;
            self.launch(&rows)?;
            let outcomes = address(&self.network.buffers.outcomes);
            next = Some((slots.to_vec(), self.device.download(outcomes, rows.len() * Outcome::BYTES)?));
        }
        let before = std::mem::replace(&mut self.pending, next);
        self.read(before)
    }

    /// Waits for the step under way, and returns what became of it.
    pub fn settle(&mut self) -> Result<Vec<(SlotId, Outcome)>, Error> {
        let pending = self.pending.take();
        self.read(pending)
    }

    fn read(&mut self, step: Option<(Vec<SlotId>, Download)>) -> Result<Vec<(SlotId, Outcome)>, Error> {
        let Some((slots, download)) = step else { return Ok(Vec::new()) };
        let outcomes = Outcome::read_all(&self.device.wait(download)?);
        Ok(slots.into_iter().zip(outcomes).collect())
    }

    fn outcomes(&mut self, rows: usize) -> Result<Vec<Outcome>, Error> {
        let outcomes = address(&self.network.buffers.outcomes);
        let download = self.device.download(outcomes, rows * Outcome::BYTES)?;
        Ok(Outcome::read_all(&self.device.wait(download)?))
    }

    /// `rows`, at most as many as the largest launch, filled up to a bucket.
    fn launch(&mut self, rows: &[Row]) -> Result<(), Error> {
        let bucket = self.network.bucket(rows.len());
        let mut bytes = Vec::with_capacity(bucket * Row::BYTES);
        rows.iter().chain(std::iter::repeat(&Row::NONE)).take(bucket).for_each(|row| row.write(&mut bytes));
        self.device.upload(&bytes, address(&self.network.buffers.rows))?;
        let network = &self.network;
        Ok(self.device.replay(bucket, &|queue| network.enqueue(queue, bucket))?)
    }

    fn slot(&self, slot: SlotId) -> Result<usize, Error> {
        let known = (slot.0 < self.network.slots).then_some(slot.0);
        known.ok_or_else(|| Error::BadWeights(format!("there is no slot {}", slot.0)))
    }
}

/// A row for each token; `first` counts from the run's beginning until [`parts`] moves it.
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
