//! Average linkage, for recordings with few chunks.

use super::labels::renumbered;

/// The steps in which clusters are joined, from single items to one cluster: two clusters by the index of their first
/// item, and the mean distance between their items, never falling.
pub struct Linkage {
    steps: Vec<(usize, usize, f32)>,
}

impl Linkage {
    /// Links `count` items, in a time that grows with the cube of their number; returns the `distance` of each pair as well.
    pub fn new(count: usize, distance: impl Fn(usize, usize) -> f32) -> (Self, Vec<f32>) {
        let mut between = vec![vec![f32::INFINITY; count]; count];
        let mut distances = Vec::with_capacity(count * count.saturating_sub(1) / 2);
        for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let distance = distance(a, b);
            (between[a][b], between[b][a]) = (distance, distance);
            distances.push(distance);
        }
        let mut sizes = vec![1.0f32; count];
        let mut left: Vec<usize> = (0..count).collect();
        let mut steps = Vec::new();
        while left.len() > 1 {
            let pairs =
                left.iter().enumerate().flat_map(|(at, &a)| left[at + 1..].iter().map(move |&b| (a, b)));
            let Some((a, b)) = pairs.min_by(|&(a, b), &(c, d)| between[a][b].total_cmp(&between[c][d]))
            else {
                break;
            };
            steps.push((a, b, between[a][b]));
            // Lance and Williams' update for the mean distance.
            for &other in left.iter().filter(|&&other| other != a && other != b) {
                let mean =
                    (sizes[a] * between[a][other] + sizes[b] * between[b][other]) / (sizes[a] + sizes[b]);
                between[a][other] = mean;
                between[other][a] = mean;
            }
            sizes[a] += sizes[b];
            left.retain(|&other| other != b);
        }
        (Self { steps }, distances)
    }

    /// The cluster of each item where clusters nearer than `distance` are joined.
    pub fn within(&self, distance: f32) -> Vec<usize> {
        self.labels(self.steps.iter().take_while(|step| step.2 <= distance).count())
    }

    /// The cluster of each item where `clusters` remain.
    pub fn clusters(&self, clusters: usize) -> Vec<usize> {
        self.labels((self.steps.len() + 1).saturating_sub(clusters.max(1)))
    }

    fn labels(&self, joined: usize) -> Vec<usize> {
        let mut labels: Vec<usize> = (0..=self.steps.len()).collect();
        for &(a, b, _) in &self.steps[..joined] {
            labels.iter_mut().filter(|label| **label == b).for_each(|label| *label = a);
        }
        renumbered(&labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_by_mean_distance() {
        let places = [0.0f32, 1.0, 1.2, 5.0, 9.0, 9.1];
        let (linkage, distances) = Linkage::new(places.len(), |a, b| (places[a] - places[b]).abs());
        assert_eq!(distances.len(), 15);
        assert_eq!(linkage.clusters(6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(linkage.clusters(4), [0, 1, 1, 2, 3, 3]);
        assert_eq!(linkage.clusters(3), [0, 0, 0, 1, 2, 2]);
        // 5 lies 4.05 from the pair about 9 and 4.27 from the three at the left.
        assert_eq!(linkage.clusters(2), [0, 0, 0, 1, 1, 1]);
        assert_eq!(linkage.within(4.0), [0, 0, 0, 1, 2, 2]);
        assert_eq!(linkage.within(f32::INFINITY), [0; 6]);
    }

    #[test]
    fn no_items_and_one() {
        assert_eq!(Linkage::new(1, |_, _| 0.0).0.clusters(3), [0]);
        assert_eq!(Linkage::new(0, |_, _| 0.0).0.steps.len(), 0);
    }
}
