//! Costs of aligning tokens with audio, from the cross-attention of a pass over the tokens: each head's weights without
//! the padding's share, standardised over the tokens, without what a median filter leaves of them.
//!
//! After openai/whisper `timing.py`. Sums are taken in the order of the plain formulas, so the results are theirs to the
//! last bit.

use super::instructions::multiversion;

const MEDIAN_WIDTH: usize = 7;
const HALF: usize = MEDIAN_WIDTH / 2;
/// Rows that are summed side by side, each in order: within a row every addition waits for the one before.
const LANES: usize = 8;

/// Cross-attention after the softmax: (heads, tokens, positions).
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    pub weights: &'a [f32],
    pub tokens: usize,
    pub positions: usize,
}

multiversion! {
    /// Writes the costs (rows, columns) of the tokens from `first_token` on: the mean of all heads. Only the first
    /// `columns` positions hold audio.
    pub fn costs(attention: Attention, first_token: usize, columns: usize, costs: &mut [f32]) = costs_body
}

#[inline(always)]
fn costs_body<const FMA: bool>(attention: Attention, first_token: usize, columns: usize, costs: &mut [f32]) {
    let Attention { weights, tokens, positions } = attention;
    if weights.is_empty() || columns == 0 {
        return;
    }
    costs.fill(0.0);
    let mut shares = vec![0.0; tokens * columns];
    let mut mean = vec![0.0; columns];
    let mut inverse = vec![0.0; columns];
    // A row with what is reflected at its ends.
    let mut padded = vec![0.0; columns + 2 * HALF];
    let heads = weights.chunks_exact(tokens * positions);
    let count = heads.len() as f32;
    for head in heads {
        audio_shares(head, positions, columns, &mut shares);
        mean.fill(0.0);
        for row in shares.chunks_exact(columns) {
            mean.iter_mut().zip(row).for_each(|(mean, share)| *mean += share);
        }
        mean.iter_mut().for_each(|mean| *mean /= tokens as f32);
        inverse.fill(0.0);
        for row in shares.chunks_exact(columns) {
            for ((square, mean), share) in inverse.iter_mut().zip(&mean).zip(row) {
                *square += (share - mean) * (share - mean);
            }
        }
        for square in &mut inverse {
            *square = 1.0 / at_least((*square / tokens as f32).sqrt(), 1e-12);
        }
        let rows = shares.chunks_exact(columns).skip(first_token);
        for (row, costs) in rows.zip(costs.chunks_exact_mut(columns)) {
            let normal = &mut padded[HALF..HALF + columns];
            for (((normal, share), mean), inverse) in normal.iter_mut().zip(row).zip(&mean).zip(&inverse) {
                *normal = (share - mean) * inverse;
            }
            subtract_median_filtered(&mut padded, costs);
        }
    }
    costs.iter_mut().for_each(|cost| *cost /= count);
}

/// Each weight's share of its row's audio: a softmax over the audio alone.
#[inline(always)]
fn audio_shares(head: &[f32], positions: usize, columns: usize, shares: &mut [f32]) {
    let blocks = head.chunks(LANES * positions).zip(shares.chunks_mut(LANES * columns));
    for (rows, shares) in blocks {
        let mut sums = [0.0f32; LANES];
        if rows.len() == LANES * positions {
            let rows: [&[f32]; LANES] = std::array::from_fn(|lane| &rows[lane * positions..][..columns]);
            for column in 0..columns {
                for (sum, row) in sums.iter_mut().zip(&rows) {
                    *sum += row[column];
                }
            }
        } else {
            for (sum, row) in sums.iter_mut().zip(rows.chunks_exact(positions)) {
                *sum = row[..columns].iter().sum();
            }
        }
        let rows = rows.chunks_exact(positions).zip(shares.chunks_exact_mut(columns));
        for ((row, shares), sum) in rows.zip(sums) {
            let sum = at_least(sum, f32::MIN_POSITIVE);
            shares.iter_mut().zip(row).for_each(|(share, weight)| *share = weight / sum);
        }
    }
}

/// `target -= median of each neighbourhood` of the row in the middle of `padded`, reflected at its ends. A row too short
/// to be reflected is its own median.
#[inline(always)]
fn subtract_median_filtered(padded: &mut [f32], target: &mut [f32]) {
    let columns = target.len();
    if columns <= HALF {
        target.iter_mut().zip(&padded[HALF..]).for_each(|(target, value)| *target -= value);
        return;
    }
    for beyond in 1..=HALF {
        padded[HALF - beyond] = padded[HALF + beyond];
        padded[HALF + columns - 1 + beyond] = padded[HALF + columns - 1 - beyond];
    }
    for (target, window) in target.iter_mut().zip(padded.windows(MEDIAN_WIDTH)) {
        if let &[a, b, c, d, e, f, g] = window {
            *target -= median([a, b, c, d, e, f, g]);
        }
    }
}

/// The fourth of seven numbers, without branches: of the six around the one in the middle, the third and the fourth
/// bound it.
#[inline(always)]
fn median(window: [f32; MEDIAN_WIDTH]) -> f32 {
    let [a, b, c] = sorted([window[0], window[1], window[2]]);
    let [d, e, f] = sorted([window[4], window[5], window[6]]);
    let third = at_most(at_most(c, at_least(b, d)), at_most(at_least(a, e), f));
    let fourth = at_most(at_most(at_least(a, f), at_least(b, e)), at_least(c, d));
    at_least(third, at_most(window[HALF], fourth))
}

#[inline(always)]
fn sorted([a, b, c]: [f32; 3]) -> [f32; 3] {
    let (low, high) = (at_most(a, b), at_least(a, b));
    [at_most(low, c), at_least(low, at_most(high, c)), at_least(high, c)]
}

/// The smaller of two numbers that are not NaN: one instruction, unlike `f32::min`.
#[inline(always)]
fn at_most(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The greater of two numbers that are not NaN.
#[inline(always)]
fn at_least(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use proptest::prelude::*;

    fn filtered(source: &[f32]) -> Vec<f32> {
        let mut padded = vec![0.0; source.len() + 2 * HALF];
        padded[HALF..HALF + source.len()].copy_from_slice(source);
        let mut target = vec![0.0; source.len()];
        subtract_median_filtered(&mut padded, &mut target);
        target
    }

    /// By sorting.
    fn subtract_sorted_median(source: &[f32], target: &mut [f32]) {
        if source.len() <= HALF {
            target.iter_mut().zip(source).for_each(|(target, value)| *target -= value);
            return;
        }
        let last = source.len() - 1;
        for (position, target) in target.iter_mut().enumerate() {
            let mut window: [f32; MEDIAN_WIDTH] = std::array::from_fn(|offset| {
                let index = (position + offset).abs_diff(HALF);
                source[if index > last { 2 * last - index } else { index }]
            });
            window.sort_unstable_by(f32::total_cmp);
            *target -= window[HALF];
        }
    }

    /// The formulas, one after the other.
    fn plain_costs(attention: Attention, first_token: usize, columns: usize, rows: usize) -> Vec<f32> {
        let Attention { weights, tokens, positions } = attention;
        let mut costs = vec![0.0f32; rows * columns];
        let heads = weights.chunks_exact(tokens * positions);
        let count = heads.len() as f32;
        for head in heads {
            let mut normal: Vec<f32> = Vec::new();
            for row in head.chunks_exact(positions) {
                let sum = row[..columns].iter().sum::<f32>().max(f32::MIN_POSITIVE);
                normal.extend(row[..columns].iter().map(|weight| weight / sum));
            }
            for column in 0..columns {
                let of_column = |normal: &[f32], row: usize| normal[row * columns + column];
                let mean = (0..tokens).fold(0.0, |sum, row| sum + of_column(&normal, row)) / tokens as f32;
                let square = |sum: f32, row: usize| {
                    sum + (of_column(&normal, row) - mean) * (of_column(&normal, row) - mean)
                };
                let inverse = 1.0 / ((0..tokens).fold(0.0, square) / tokens as f32).sqrt().max(1e-12);
                for row in normal.chunks_exact_mut(columns) {
                    row[column] = (row[column] - mean) * inverse;
                }
            }
            for (row, costs) in
                normal.chunks_exact(columns).skip(first_token).zip(costs.chunks_exact_mut(columns))
            {
                subtract_sorted_median(row, costs);
            }
        }
        costs.iter_mut().for_each(|cost| *cost /= count);
        costs
    }

    #[test]
    fn the_median_filter_removes_spikes_and_keeps_steps() {
        let source = [9.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0];
        let expected = [0.0, 0.0, 0.0, 0.0, 0.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0];
        assert_eq!(filtered(&source), expected);
    }

    #[test]
    fn every_order_of_seven_has_the_same_median() {
        let mut orders = vec![vec![0.0f32]];
        for next in 1..MEDIAN_WIDTH {
            let with_next = |order: &Vec<f32>| {
                let order = order.clone();
                (0..=order.len()).map(move |place| {
                    let mut longer = order.clone();
                    longer.insert(place, next as f32);
                    longer
                })
            };
            orders = orders.iter().flat_map(with_next).collect();
        }
        assert_eq!(orders.len(), 5040);
        for order in orders {
            assert_eq!(median(order.clone().try_into().expect("seven")), 3.0, "{order:?}");
        }
    }

    proptest! {
        #[test]
        fn medians_are_those_of_a_sort_also_at_the_ends(
            few in prop::collection::vec(-3i8..3, 1..40),
            many in prop::collection::vec(-1e3f32..1e3, 1..60),
        ) {
            let few: Vec<f32> = few.into_iter().map(f32::from).collect();
            for source in [few, many] {
                let mut expected = vec![0.0; source.len()];
                subtract_sorted_median(&source, &mut expected);
                prop_assert_eq!(filtered(&source), expected);
            }
        }

        #[test]
        fn costs_are_those_of_the_formulas_to_the_last_bit(
            heads in 1usize..3,
            tokens in 1usize..20,
            padding in 0usize..9,
            columns in 1usize..40,
            prefix in 0usize..4,
            seed in any::<u64>(),
        ) {
            let positions = columns + padding;
            let mut state = seed;
            let weights: Vec<f32> = (0..heads * tokens * positions)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 40) as f32 / (1u64 << 24) as f32
                })
                .collect();
            let first_token = prefix.min(tokens - 1);
            let rows = tokens - first_token;
            let attention = Attention { weights: &weights, tokens, positions };
            let expected = plain_costs(attention, first_token, columns, rows);
            for level in Level::available() {
                let mut found = vec![f32::NAN; rows * columns];
                costs(level, attention, first_token, columns, &mut found);
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
