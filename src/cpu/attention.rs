//! Attention of single queries over stored keys and values: the decoder's, over the text so far and
//! over the audio.
//!
//! Keys lie in blocks of 64 positions, dimension by dimension, so that 64 scores are summed side by
//! side; values lie position by position, so that the 64 dimensions of the output are.

use std::ops::Range;

use super::element::{Bf16, Element, exp, multiply_add};
use super::instructions::multiversion;
use super::rows::{lanes_abs_max, lanes_max};
use super::threads::Places;
use super::{Level, Threads};

/// Dimensions of a head: 64 in every Whisper model.
pub const HEAD: usize = 64;
/// Positions of a block of keys.
const BLOCK: usize = 64;

/// Keys and values of many (slot, head) pairs.
pub struct Cache {
    heads: usize,
    /// The capacity of each pair, in positions: whole blocks.
    room: usize,
    store: Store,
}

enum Store {
    F32(Elements<f32>),
    Bf16(Elements<Bf16>),
    /// With a scale for each key and each value.
    Int8(Elements<i8>, Scales),
}

/// Both: for each slot, for each head, `room` × [`HEAD`].
struct Elements<E> {
    keys: Vec<E>,
    values: Vec<E>,
}

/// Both: for each slot, for each head, `room`.
struct Scales {
    keys: Vec<f32>,
    values: Vec<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePrecision {
    F32,
    Bf16,
    Int8,
}

/// One row of queries, and the positions it attends to.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    pub slot: usize,
    /// The number of positions, from the first.
    pub length: usize,
}

impl Cache {
    pub fn new(slots: usize, heads: usize, positions: usize, precision: CachePrecision) -> Self {
        let room = positions.next_multiple_of(BLOCK);
        let count = slots * heads * room;
        fn elements<E: Element>(count: usize) -> Elements<E> {
            Elements { keys: E::zeros(count * HEAD), values: E::zeros(count * HEAD) }
        }
        let store = match precision {
            CachePrecision::F32 => Store::F32(elements(count)),
            CachePrecision::Bf16 => Store::Bf16(elements(count)),
            CachePrecision::Int8 => {
                Store::Int8(elements(count), Scales { keys: vec![0.0; count], values: vec![0.0; count] })
            }
        };
        Self { heads, room, store }
    }

    pub fn bytes(&self) -> usize {
        match &self.store {
            Store::F32(elements) => 8 * elements.keys.len(),
            Store::Bf16(elements) => 4 * elements.keys.len(),
            Store::Int8(elements, scales) => 2 * elements.keys.len() + 8 * scales.keys.len(),
        }
    }

    /// Stores keys and values for positions from `position` on. `row(n)` gives the key and value of
    /// the n-th, each heads · [`HEAD`] long.
    pub fn write<'a, E: Element>(
        &mut self,
        level: Level,
        threads: &Threads,
        slot: usize,
        positions: Range<usize>,
        row: impl Fn(usize) -> (&'a [E], &'a [E]) + Sync,
    ) {
        let (heads, room) = (self.heads, self.room);
        assert!(positions.end <= room);
        // One task for each head: their places do not overlap.
        match &mut self.store {
            Store::F32(elements) => {
                write(level, threads, elements, None, (slot, heads, room), positions, row)
            }
            Store::Bf16(elements) => {
                write(level, threads, elements, None, (slot, heads, room), positions, row)
            }
            Store::Int8(elements, scales) => {
                write(level, threads, elements, Some(scales), (slot, heads, room), positions, row);
            }
        }
    }

    /// Softmax(q · kᵀ / √64) · v for each row. `queries`, `output`: (rows, heads · 64). Where
    /// `weights` is given it is (rows, heads, room) and receives the softmax.
    pub fn attend(
        &self,
        level: Level,
        threads: &Threads,
        rows: &[Query],
        queries: &[f32],
        output: &mut [f32],
        weights: Option<&mut [f32]>,
    ) {
        let (heads, room) = (self.heads, self.room);
        let width = heads * HEAD;
        assert!(queries.len() == rows.len() * width && output.len() == queries.len());
        assert!(rows.iter().all(|row| row.length <= room));
        let output = Places::new(output);
        let weights = weights.map(|weights| {
            assert!(weights.len() == rows.len() * heads * room);
            Places::new(weights)
        });
        threads.split(rows.len() * heads, |tasks| {
            let mut scores = vec![0.0f32; room];
            for task in tasks {
                let (row, head) = (task / heads, task % heads);
                let Query { slot, length } = rows[row];
                let query = queries[row * width + head * HEAD..].first_chunk::<HEAD>();
                // SAFETY: every task has its own place.
                let place =
                    unsafe { output.range(row * width + head * HEAD..row * width + (head + 1) * HEAD) };
                let (Some(query), Some(place)) = (query, place.first_chunk_mut::<HEAD>()) else {
                    unreachable!("the lengths were checked; this is a bug")
                };
                let pair = slot * heads + head;
                let all = pair * room..(pair + 1) * room;
                let elements = all.start * HEAD..all.end * HEAD;
                match &self.store {
                    Store::F32(store) => {
                        let stored = Stored::of(store, elements, None);
                        attend_head(level, stored, length, query, &mut scores, place);
                    }
                    Store::Bf16(store) => {
                        let stored = Stored::of(store, elements, None);
                        attend_head(level, stored, length, query, &mut scores, place);
                    }
                    Store::Int8(store, scales) => {
                        let stored = Stored::of(store, elements, Some((scales, all)));
                        attend_head(level, stored, length, query, &mut scores, place);
                    }
                }
                if let Some(weights) = &weights {
                    // SAFETY: every task has its own place.
                    let place = unsafe { weights.range(task * room..(task + 1) * room) };
                    place[..length].copy_from_slice(&scores[..length]);
                    place[length..].fill(0.0);
                }
            }
        });
    }

    /// Positions in a row of attention weights.
    pub fn room(&self) -> usize {
        self.room
    }
}

fn write<'a, E: Element, S: Element>(
    level: Level,
    threads: &Threads,
    elements: &mut Elements<S>,
    scales: Option<&mut Scales>,
    (slot, heads, room): (usize, usize, usize),
    positions: Range<usize>,
    row: impl Fn(usize) -> (&'a [E], &'a [E]) + Sync,
) {
    let keys = Places::new(&mut elements.keys);
    let values = Places::new(&mut elements.values);
    let scales = scales.map(|scales| (Places::new(&mut scales.keys), Places::new(&mut scales.values)));
    threads.split(heads, |range| {
        for head in range {
            let all = (slot * heads + head) * room..(slot * heads + head + 1) * room;
            // SAFETY: every head is one thread's own.
            let (keys, values) = unsafe {
                let elements = all.start * HEAD..all.end * HEAD;
                (keys.range(elements.clone()), values.range(elements))
            };
            let mut scales = scales.as_ref().map(|(keys, values)| {
                // SAFETY: as above.
                unsafe { (keys.range(all.clone()), values.range(all.clone())) }
            });
            let (mut key, mut value) = ([0.0; HEAD], [0.0; HEAD]);
            for (index, position) in positions.clone().enumerate() {
                let (keys_of_row, values_of_row) = row(index);
                let part = head * HEAD..(head + 1) * HEAD;
                key.iter_mut().zip(&keys_of_row[part.clone()]).for_each(|(to, from)| *to = from.to_f32());
                value.iter_mut().zip(&values_of_row[part]).for_each(|(to, from)| *to = from.to_f32());
                if let Some((key_scales, value_scales)) = &mut scales {
                    key_scales[position] = scale(level, &mut key);
                    value_scales[position] = scale(level, &mut value);
                }
                let block = &mut keys[position / BLOCK * BLOCK * HEAD..][..BLOCK * HEAD];
                store_key(level, &key, &mut block[position % BLOCK..]);
                store_value(level, &value, &mut values[position * HEAD..][..HEAD]);
            }
        }
    });
}

multiversion! {
    /// Divides by the scale that makes the greatest value 127, and returns it.
    fn scale(values: &mut [f32; HEAD]) -> f32 = scale_body
}

#[inline(always)]
fn scale_body<const FMA: bool>(values: &mut [f32; HEAD]) -> f32 {
    let max = lanes_abs_max(values);
    let inverse = if max > 0.0 { 127.0 / max } else { 0.0 };
    values.iter_mut().for_each(|value| *value = (*value * inverse).round_ties_even());
    max / 127.0
}

multiversion! {
    /// Into every [`BLOCK`]th place.
    fn store_key<S: Element>(key: &[f32; HEAD], places: &mut [S]) = store_key_body
}

#[inline(always)]
fn store_key_body<const FMA: bool, S: Element>(key: &[f32; HEAD], places: &mut [S]) {
    places.iter_mut().step_by(BLOCK).zip(key).for_each(|(place, key)| *place = S::from_f32(*key));
}

multiversion! {
    fn store_value<S: Element>(value: &[f32; HEAD], places: &mut [S]) = store_value_body
}

#[inline(always)]
fn store_value_body<const FMA: bool, S: Element>(value: &[f32; HEAD], places: &mut [S]) {
    places.iter_mut().zip(value).for_each(|(place, value)| *place = S::from_f32(*value));
}

/// One head's keys and values.
struct Stored<'a, E> {
    keys: &'a [E],
    values: &'a [E],
    scales: Option<(&'a [f32], &'a [f32])>,
}

impl<'a, E> Stored<'a, E> {
    fn of(store: &'a Elements<E>, range: Range<usize>, scales: Option<(&'a Scales, Range<usize>)>) -> Self {
        let scales = scales.map(|(scales, range)| (&scales.keys[range.clone()], &scales.values[range]));
        Self { keys: &store.keys[range.clone()], values: &store.values[range], scales }
    }
}

multiversion! {
    fn attend_head<E: Element>(
        stored: Stored<E>,
        length: usize,
        query: &[f32; HEAD],
        scores: &mut [f32],
        output: &mut [f32; HEAD],
    ) = attend_body
}

/// Leaves the softmax in `scores[..length]` and the output in `output`.
#[inline(always)]
fn attend_body<const FMA: bool, E: Element>(
    stored: Stored<E>,
    length: usize,
    query: &[f32; HEAD],
    scores: &mut [f32],
    output: &mut [f32; HEAD],
) {
    let query = query.map(|q| q * 0.125); // 1 / √64
    let padded = length.next_multiple_of(BLOCK);
    let blocks = stored.keys.as_chunks::<BLOCK>().0.as_chunks::<HEAD>().0;
    for (scores, block) in scores[..padded].as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
        let mut sums = [0.0f32; BLOCK];
        for (row, q) in block.iter().zip(query) {
            for (sum, key) in sums.iter_mut().zip(row) {
                *sum = multiply_add::<FMA>(q, key.to_f32(), *sum);
            }
        }
        *scores = sums;
    }
    if let Some((key_scales, _)) = stored.scales {
        scores[..length].iter_mut().zip(key_scales).for_each(|(score, scale)| *score *= scale);
    }
    scores[length..padded].fill(f32::NEG_INFINITY);
    let max = lanes_max(&scores[..padded]);
    let mut lanes = [0.0f32; 16];
    for chunk in scores[..padded].as_chunks_mut::<16>().0 {
        for (score, lane) in chunk.iter_mut().zip(&mut lanes) {
            *score = exp::<FMA>(*score - max);
            *lane += *score;
        }
    }
    // The exponential of minus infinity is not exactly 0 here, so the positions past the end are subtracted.
    let behind: f32 = scores[length..padded].iter().sum();
    let inverse = 1.0 / (lanes.iter().sum::<f32>() - behind);
    scores[..length].iter_mut().for_each(|score| *score *= inverse);
    let mut sums = [0.0f32; HEAD];
    let values = stored.values.as_chunks::<HEAD>().0;
    match stored.scales {
        None => {
            for (value, &weight) in values.iter().zip(&scores[..length]) {
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = multiply_add::<FMA>(weight, value.to_f32(), *sum);
                }
            }
        }
        Some((_, value_scales)) => {
            for ((value, &weight), scale) in values.iter().zip(&scores[..length]).zip(value_scales) {
                let weight = weight * scale;
                for (sum, value) in sums.iter_mut().zip(value) {
                    *sum = multiply_add::<FMA>(weight, value.to_f32(), *sum);
                }
            }
        }
    }
    *output = sums;
}

#[cfg(test)]
mod tests {
    use super::super::noise::noise;
    use super::*;

    #[test]
    fn attention_agrees_with_the_plain_formula() {
        let (slots, heads, positions) = (3, 2, 150);
        let width = heads * HEAD;
        let (keys, values) = (noise(1, slots * positions * width), noise(2, slots * positions * width));
        let rows =
            [Query { slot: 1, length: 150 }, Query { slot: 0, length: 1 }, Query { slot: 1, length: 64 }];
        let queries: Vec<f32> = noise(3, rows.len() * width).iter().map(|q| q * 4.0).collect();
        // Weighted means of numbers below 1, rounded to 2⁻²⁴, 2⁻⁹ and 2⁻⁸ of them.
        let tolerances =
            [(CachePrecision::F32, 1e-5), (CachePrecision::Bf16, 5e-3), (CachePrecision::Int8, 1e-2)];
        for (precision, tolerance) in tolerances {
            let mut cache = Cache::new(slots, heads, positions, precision);
            for slot in 0..slots {
                let row = |n: usize| {
                    let at = (slot * positions + n) * width;
                    (&keys[at..at + width], &values[at..at + width])
                };
                cache.write(Level::detect(), &Threads::new(2), slot, 0..positions, row);
            }
            for level in Level::available() {
                let mut output = vec![0.0; queries.len()];
                let mut weights = vec![9.0; rows.len() * heads * cache.room()];
                cache.attend(level, &Threads::new(2), &rows, &queries, &mut output, Some(&mut weights));
                for (row, query) in rows.iter().enumerate() {
                    for head in 0..heads {
                        let at = |n: usize| (query.slot * positions + n) * width + head * HEAD;
                        let q = &queries[row * width + head * HEAD..][..HEAD];
                        let score = |n: usize| {
                            let products =
                                q.iter().zip(&keys[at(n)..]).map(|(a, b)| f64::from(*a) * f64::from(*b));
                            products.sum::<f64>() / 8.0
                        };
                        let exps: Vec<f64> = (0..query.length).map(|n| score(n).exp()).collect();
                        let total: f64 = exps.iter().sum();
                        for dimension in 0..HEAD {
                            let weighted = exps
                                .iter()
                                .enumerate()
                                .map(|(n, e)| e * f64::from(values[at(n) + dimension]));
                            let expected = weighted.sum::<f64>() / total;
                            let actual = f64::from(output[row * width + head * HEAD + dimension]);
                            assert!(
                                (actual - expected).abs() < tolerance,
                                "{precision:?} {level:?}: {actual} {expected}"
                            );
                        }
                        let weights = &weights[(row * heads + head) * cache.room()..][..cache.room()];
                        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-4);
                        assert!(weights[query.length..].iter().all(|&weight| weight == 0.0));
                    }
                }
            }
        }
    }
}
