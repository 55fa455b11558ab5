//! Pseudorandom numbers for tests of kernels.

/// `length` numbers from -1 to 1, the same for the same `seed`.
pub fn noise(seed: u32, length: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..length).map(|_| next()).collect()
}
