//! The nearness of vectors of unit length.

/// The index of the centre that is nearest to `vector`.
pub fn best(vector: &[f32], centres: &[Vec<f32>]) -> usize {
    let similarities = centres.iter().map(|centre| similarity(vector, centre)).enumerate();
    similarities.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map_or(0, |best| best.0)
}

/// The cosine of two vectors of unit length.
pub fn similarity(left: &[f32], right: &[f32]) -> f32 {
    // Sums in lanes, which the compiler turns into vectors.
    let mut lanes = [0.0f32; 16];
    let (left, left_rest) = left.as_chunks::<16>();
    let (right, right_rest) = right.as_chunks::<16>();
    for (left, right) in left.iter().zip(right) {
        lanes.iter_mut().zip(left.iter().zip(right)).for_each(|(lane, (a, b))| *lane += a * b);
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

/// Scales `vector` to unit length, unless it is zero.
pub fn normalize(vector: &mut [f32]) {
    let length = similarity(vector, vector).sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}
