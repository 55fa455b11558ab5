//! k-means, for the rows of the spectral embedding.

use super::random::Random;

/// Beginnings, of which the best is kept; rounds of each at the most.
const TRIES: u64 = 8;
const ROUNDS: usize = 50;

/// The cluster, of `count`, of each row.
///
/// Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.
pub fn kmeans(rows: &[Vec<f64>], count: usize) -> Vec<usize> {
    let tries = (0..TRIES).map(|seed| attempt(rows, count, &mut Random::new(seed)));
    let best = tries.min_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(labels, _)| labels).unwrap_or_default()
}

fn attempt(rows: &[Vec<f64>], count: usize, random: &mut Random) -> (Vec<usize>, f64) {
    let mut centres = seeds(rows, count, random);
    let mut labels = vec![0; rows.len()];
    let mut spread = f64::INFINITY;
    for _ in 0..ROUNDS {
        let nearest: Vec<(usize, f64)> = rows.iter().map(|row| nearest(row, &centres)).collect();
        let now: f64 = nearest.iter().map(|nearest| nearest.1).sum();
        labels = nearest.iter().map(|nearest| nearest.0).collect();
        if now >= spread {
            break;
        }
        spread = now;
        for (label, centre) in centres.iter_mut().enumerate() {
            let own: Vec<&Vec<f64>> =
                rows.iter().zip(&labels).filter(|row| *row.1 == label).map(|row| row.0).collect();
            for (dimension, value) in centre.iter_mut().enumerate().filter(|_| !own.is_empty()) {
                *value = own.iter().map(|row| row[dimension]).sum::<f64>() / own.len() as f64;
            }
        }
    }
    (labels, spread)
}

fn seeds(rows: &[Vec<f64>], count: usize, random: &mut Random) -> Vec<Vec<f64>> {
    let mut centres: Vec<Vec<f64>> = Vec::new();
    while centres.len() < count.min(rows.len()) {
        let weights: Vec<f64> =
            rows.iter().map(|row| if centres.is_empty() { 1.0 } else { nearest(row, &centres).1 }).collect();
        let mut left = random.unit() * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        centres.push(rows[chosen.unwrap_or(rows.len() - 1)].clone());
    }
    centres
}

fn nearest(row: &[f64], centres: &[Vec<f64>]) -> (usize, f64) {
    let distance = |centre: &Vec<f64>| -> f64 { centre.iter().zip(row).map(|(a, b)| (a - b).powi(2)).sum() };
    let distances = centres.iter().map(distance).enumerate();
    distances.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_that_lie_apart_are_found() {
        let rows: Vec<Vec<f64>> = (0..60)
            .map(|at| vec![f64::from(at % 3) * 10.0 + f64::from(at) * 0.01, f64::from(at % 2)])
            .collect();
        let labels = kmeans(&rows, 3);
        for (at, label) in labels.iter().enumerate() {
            assert_eq!(*label, labels[at % 3]);
        }
        assert_ne!(labels[0], labels[1]);
        assert_ne!(labels[1], labels[2]);
        assert_ne!(labels[0], labels[2]);
    }
}
