//! The numbers of clusters.

/// `labels` from 0 without gaps.
pub fn compact(labels: Vec<Option<usize>>) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = labels.iter().copied().flatten().collect();
    order.sort_unstable();
    order.dedup();
    labels.into_iter().map(|label| label.and_then(|label| order.binary_search(&label).ok())).collect()
}

/// The same, where every chunk has a label.
pub fn renumbered(labels: &[usize]) -> Vec<usize> {
    compact(labels.iter().copied().map(Some).collect()).into_iter().flatten().collect()
}
