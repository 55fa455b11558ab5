//! Percentiles by nearest rank.

/// The value below which `part` (0 to 1) of `sorted` lies; `None` without values.
pub fn percentile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_is_one_of_the_values() {
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[1.0], 0.99), Some(1.0));
        assert_eq!(percentile(&[1.0, 2.0], 0.5), Some(1.0));
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.99), Some(3.0));
    }
}
