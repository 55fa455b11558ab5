//! The decoder by the kernels of [`crate::cpu`]: plain rows of numbers, without tensors or libtorch's allocator.

use super::super::host::{Norm, pack, plain};
use super::{AlignmentWeights, Logits, Run};
use crate::cpu::attention::{Cache, CachePrecision, HEAD, Query};
use crate::cpu::matrix::{Epilogue, Matrix, Precision};
use crate::cpu::{Level, Places, Threads, rows};
use crate::engine::SlotId;
use crate::models::{Error, weights};

/// Positions whose keys and values a thread computes at a time.
const PANEL: usize = 96;

/// The number formats of weights and caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub weights: Precision,
    pub text_cache: CachePrecision,
    pub audio_cache: CachePrecision,
}

impl Numbers {
    pub const F32: Self =
        Self { weights: Precision::F32, text_cache: CachePrecision::F32, audio_cache: CachePrecision::F32 };
    pub const BF16: Self = Self {
        weights: Precision::Bf16,
        text_cache: CachePrecision::Bf16,
        audio_cache: CachePrecision::Bf16,
    };
    pub const INT8: Self = Self {
        weights: Precision::Int8,
        text_cache: CachePrecision::Bf16,
        audio_cache: CachePrecision::Int8,
    };
}

/// How large the decoder is and how it computes.
pub struct Placement {
    pub slots: usize,
    pub numbers: Numbers,
    pub threads: Threads,
    /// (layer, head), by layer.
    pub alignment_heads: Vec<(usize, usize)>,
}

pub struct Decoder {
    level: Level,
    threads: Threads,
    width: usize,
    heads: usize,
    /// Embedding and output projection in one: (vocabulary, d).
    embedding: Matrix,
    /// (text positions, d)
    positions: Vec<f32>,
    layers: Vec<Layer>,
    norm: Norm,
    /// For each slot, the audio positions that its cross-attention sees.
    audio_lengths: Vec<usize>,
    alignment_heads: Vec<(usize, usize)>,
}

struct Layer {
    attention_norm: Norm,
    query_key_value: Matrix,
    output: Matrix,
    cross_norm: Norm,
    cross_query: Matrix,
    cross_key_value: Matrix,
    cross_output: Matrix,
    feed_forward_norm: Norm,
    expand: Matrix,
    contract: Matrix,
    text_cache: Cache,
    audio_cache: Cache,
}

/// One token of a call.
struct Row {
    slot: usize,
    position: usize,
}

/// Attention of the alignment heads: for each of them (rows, positions).
struct Collected {
    heads: Vec<Vec<f32>>,
    positions: usize,
}

impl Decoder {
    /// Takes the weights, to free each layer's once it is packed.
    pub fn new(weights: weights::Weights, placement: Placement) -> Result<Self, Error> {
        let Placement { slots, numbers, threads, alignment_heads } = placement;
        let heads = weights.decoder_heads;
        let (text_positions, width) = weights.decoder_positions.size2()?;
        let (audio_positions, _) = weights.encoder_positions.size2()?;
        if width as usize != heads * HEAD {
            return Err(Error::BadWeights(format!("{heads} heads of {HEAD} do not make the width {width}")));
        }
        let precision = numbers.weights;
        let layers = weights.decoder_layers.into_iter().map(|layer| {
            let cross = &layer.cross_attention;
            Ok(Layer {
                attention_norm: Norm::new(&layer.attention.norm)?,
                query_key_value: pack(&layer.attention.query_key_value, precision)?,
                output: pack(&layer.attention.output, precision)?,
                cross_norm: Norm::new(&cross.norm)?,
                cross_query: pack(&cross.query, precision)?,
                cross_key_value: pack(&cross.key_value, precision)?,
                cross_output: pack(&cross.output, precision)?,
                feed_forward_norm: Norm::new(&layer.feed_forward.norm)?,
                expand: pack(&layer.feed_forward.expand, precision)?,
                contract: pack(&layer.feed_forward.contract, precision)?,
                text_cache: Cache::new(slots, heads, text_positions as usize, numbers.text_cache),
                audio_cache: Cache::new(slots, heads, audio_positions as usize, numbers.audio_cache),
            })
        });
        let layers = layers.collect::<Result<_, Error>>()?;
        Ok(Self {
            level: Level::detect(),
            threads,
            width: width as usize,
            heads,
            embedding: Matrix::new(&plain(&weights.token_embedding)?, None, width as usize, precision),
            positions: plain(&weights.decoder_positions)?,
            layers,
            norm: Norm::new(&weights.decoder_norm)?,
            audio_lengths: vec![0; slots],
            alignment_heads,
        })
    }

    /// Fills the audio cache of `slot` from the encoder's output (positions, d).
    pub fn set_audio(&mut self, slot: SlotId, audio: &[f32]) {
        let (level, threads, width) = (self.level, &self.threads, self.width);
        let length = audio.len() / width;
        let mut product = vec![0.0; 2 * audio.len()];
        for layer in &mut self.layers {
            let matrix = &layer.cross_key_value;
            let places = Places::new(&mut product);
            threads.split(length.div_ceil(PANEL), |panels| {
                for panel in panels {
                    let panel = panel * PANEL..((panel + 1) * PANEL).min(length);
                    let rows = matrix.rows(level, &audio[panel.start * width..panel.end * width]);
                    // SAFETY: panels do not overlap.
                    let output = unsafe { places.range(panel.start * 2 * width..panel.end * 2 * width) };
                    matrix.multiply_rows(level, &rows, output, Epilogue::Store);
                }
            });
            // A row of the product: a key, then a value.
            layer.audio_cache.write(level, threads, slot.0, 0..length, |n| {
                product[n * 2 * width..][..2 * width].split_at(width)
            });
        }
        self.audio_lengths[slot.0] = length;
    }

    /// Runs `runs` and returns logits. `wanted`: indices into the tokens of all runs, in order.
    pub fn forward(&mut self, runs: &[Run], wanted: &[usize]) -> Logits {
        let (x, _) = self.hidden(runs, self.layers.len(), false);
        let mut last = vec![0.0; wanted.len() * self.width];
        for (&row, last) in wanted.iter().zip(last.chunks_exact_mut(self.width)) {
            let x = &x[row * self.width..][..self.width];
            self.norm.apply(self.level, x, last);
        }
        let vocabulary = self.embedding.outputs();
        let mut values = vec![0.0; wanted.len() * vocabulary];
        self.embedding.multiply(self.level, &self.threads, &last, &mut values, Epilogue::Store);
        Logits { values, vocabulary }
    }

    /// Runs `runs` as far as the last layer that has alignment heads and returns their attention.
    pub fn alignment(&mut self, runs: &[Run]) -> Vec<AlignmentWeights> {
        let layers = self.alignment_heads.iter().map(|&(layer, _)| layer + 1).max().unwrap_or(0);
        let (_, collected) = self.hidden(runs, layers, true);
        let heads = self.alignment_heads.len();
        let mut first = 0;
        let of_run = |run: &Run| {
            let rows = first..first + run.tokens.len();
            first = rows.end;
            let positions = self.audio_lengths[run.slot.0];
            let mut values = Vec::with_capacity(heads * rows.len() * positions);
            for head in &collected.heads {
                for row in rows.clone() {
                    values.extend_from_slice(&head[row * collected.positions..][..positions]);
                }
            }
            AlignmentWeights { values, heads, tokens: rows.len(), positions }
        };
        runs.iter().map(of_run).collect()
    }

    /// The residual after `layers` layers, (rows, d), and the attention of the alignment heads.
    fn hidden(&mut self, runs: &[Run], layers: usize, collect: bool) -> (Vec<f32>, Collected) {
        let (level, width) = (self.level, self.width);
        let threads = &self.threads;
        let alone = Threads::new(1);
        let rows: Vec<Row> = runs
            .iter()
            .flat_map(|run| (run.position..).take(run.tokens.len()).map(|position| (run.slot.0, position)))
            .map(|(slot, position)| Row { slot, position })
            .collect();
        let text: Vec<Query> =
            rows.iter().map(|row| Query { slot: row.slot, length: row.position + 1 }).collect();
        let audio: Vec<Query> =
            rows.iter().map(|row| Query { slot: row.slot, length: self.audio_lengths[row.slot] }).collect();
        let mut x = self.embed(runs, &rows);
        let mut normal = vec![0.0; x.len()];
        let mut attended = vec![0.0; x.len()];
        let mut fused = vec![0.0; 3 * x.len()];
        let mut wide = vec![0.0; 4 * x.len()];
        let mut collected = Collected { heads: Vec::new(), positions: 0 };
        for (index, layer) in self.layers.iter_mut().enumerate().take(layers) {
            normalise(level, threads, &x, &layer.attention_norm, &mut normal);
            layer.query_key_value.multiply(level, threads, &normal, &mut fused, Epilogue::Store);
            let mut first = 0;
            for run in runs {
                let count = run.tokens.len();
                // Writing a single token is faster than waking a thread.
                let threads = if count < 8 { &alone } else { threads };
                layer.text_cache.write(level, threads, run.slot.0, run.position..run.position + count, |n| {
                    let row = &fused[(first + n) * 3 * width..][..3 * width];
                    (&row[width..2 * width], &row[2 * width..])
                });
                first += count;
            }
            for (query, row) in normal.chunks_exact_mut(width).zip(fused.chunks_exact(3 * width)) {
                query.copy_from_slice(&row[..width]);
            }
            layer.text_cache.attend(level, threads, &text, &normal, &mut attended, None);
            layer.output.multiply(level, threads, &attended, &mut x, Epilogue::Add);

            normalise(level, threads, &x, &layer.cross_norm, &mut normal);
            let query = &mut fused[..rows.len() * width];
            layer.cross_query.multiply(level, threads, &normal, query, Epilogue::Store);
            let wanted = self.alignment_heads.iter().filter(|&&(layer, _)| collect && layer == index);
            let wanted: Vec<usize> = wanted.map(|&(_, head)| head).collect();
            let room = layer.audio_cache.room();
            let mut weights = vec![0.0; if wanted.is_empty() { 0 } else { rows.len() * self.heads * room }];
            let looked_at = Some(&mut weights[..]).filter(|_| !wanted.is_empty());
            layer.audio_cache.attend(level, threads, &audio, query, &mut attended, looked_at);
            for head in wanted {
                let of_row = |row: usize| &weights[(row * self.heads + head) * room..][..room];
                collected.heads.push((0..rows.len()).flat_map(of_row).copied().collect());
                collected.positions = room;
            }
            if collect && index + 1 == layers {
                // The attention is all that is wanted.
                break;
            }
            layer.cross_output.multiply(level, threads, &attended, &mut x, Epilogue::Add);

            normalise(level, threads, &x, &layer.feed_forward_norm, &mut normal);
            layer.expand.multiply(level, threads, &normal, &mut wide, Epilogue::Gelu);
            layer.contract.multiply(level, threads, &wide, &mut x, Epilogue::Add);
        }
        (x, collected)
    }

    /// Token and position embeddings: (rows, d).
    fn embed(&self, runs: &[Run], rows: &[Row]) -> Vec<f32> {
        let mut x = vec![0.0; rows.len() * self.width];
        let tokens = runs.iter().flat_map(|run| run.tokens);
        for ((x, &token), row) in x.chunks_exact_mut(self.width).zip(tokens).zip(rows) {
            self.embedding.read_row(token as usize, x);
            rows::add(self.level, x, &self.positions[row.position * self.width..][..self.width]);
        }
        x
    }
}

fn normalise(level: Level, threads: &Threads, x: &[f32], norm: &Norm, normal: &mut [f32]) {
    let width = norm.width();
    let count = x.len() / width;
    let alone = Threads::new(1);
    let threads = if count < 16 { &alone } else { threads };
    let shared = Places::new(normal);
    threads.split(count, |range| {
        // SAFETY: `split` hands out ranges that do not overlap.
        let normal = unsafe { shared.range(range.start * width..range.end * width) };
        let x = &x[range.start * width..range.end * width];
        x.chunks_exact(width)
            .zip(normal.chunks_exact_mut(width))
            .for_each(|(x, normal)| norm.apply(level, x, normal));
    });
}
