//! The smallest eigenpairs of a sparse graph Laplacian.
//!
//! Subspace iteration with a Chebyshev filter: Zhou, Saad, Tiago and Chelikowsky, "Self-consistent-field calculations using
//! Chebyshev-filtered subspace iteration", Journal of Computational Physics 219 (2006). A block finds eigenvalues that come
//! several times, as 0 does in a graph of separate parts, and a sparse graph makes it a small part of the cost of a dense
//! decomposition, which matters where a stream is clustered again and again.

use super::random::Random;

/// Vectors of the block beyond those that are asked for.
const SPARE: usize = 6;
/// Degree of the filter.
const DEGREE: usize = 12;
/// Rounds at the most, and the change of eigenvalues, as a part of the largest possible, with which they end earlier.
const ROUNDS: usize = 40;
const TOLERANCE: f64 = 1e-6;

/// A symmetric matrix of weights between nodes, without a diagonal: for each node its neighbours.
pub struct Graph {
    pub neighbours: Vec<Vec<(usize, f64)>>,
}

/// Eigenvalues in rising order, and for each its eigenvector.
pub struct Eigenpairs {
    pub values: Vec<f64>,
    pub vectors: Vec<Vec<f64>>,
}

impl Graph {
    /// The `count` smallest eigenpairs of the graph's Laplacian, or all where there are fewer nodes.
    pub fn smallest(&self, count: usize) -> Eigenpairs {
        let nodes = self.neighbours.len();
        let degrees: Vec<f64> =
            self.neighbours.iter().map(|edges| edges.iter().map(|edge| edge.1).sum()).collect();
        // Gershgorin's bound.
        let largest = 2.0 * degrees.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let width = (count + SPARE).min(nodes);
        let mut random = Random::new(1);
        let mut block: Vec<Vec<f64>> =
            (0..width).map(|_| (0..nodes).map(|_| random.unit() - 0.5).collect()).collect();
        let mut values = vec![f64::INFINITY; width];
        for round in 0..ROUNDS {
            // The first round's guess of where the wanted part ends; later ones know.
            let cut = if round == 0 { largest / 4.0 } else { values[width - 1] }
                .clamp(1e-6 * largest, 0.9 * largest);
            for vector in &mut block {
                *vector = self.filtered(&degrees, vector, cut, largest);
            }
            orthonormalize(&mut block, &mut random);
            let products: Vec<Vec<f64>> =
                block.iter().map(|vector| self.laplacian(&degrees, vector)).collect();
            let small: Vec<Vec<f64>> =
                block.iter().map(|left| products.iter().map(|right| dot(left, right)).collect()).collect();
            let (found, rotation) = jacobi(small);
            block = rotation.iter().map(|weights| combine(&block, weights)).collect();
            let change =
                found.iter().zip(&values).take(count).map(|(new, old)| (new - old).abs()).fold(0.0, f64::max);
            values = found;
            if change < TOLERANCE * largest {
                break;
            }
        }
        values.truncate(count);
        block.truncate(count);
        Eigenpairs { values, vectors: block }
    }

    fn laplacian(&self, degrees: &[f64], vector: &[f64]) -> Vec<f64> {
        let nodes = self.neighbours.iter().zip(degrees).zip(vector);
        nodes
            .map(|((edges, degree), value)| {
                degree * value - edges.iter().map(|&(node, weight)| weight * vector[node]).sum::<f64>()
            })
            .collect()
    }

    /// `vector` after a Chebyshev polynomial of the Laplacian that is small from `cut` to `largest` and grows below.
    fn filtered(&self, degrees: &[f64], vector: &[f64], cut: f64, largest: f64) -> Vec<f64> {
        let (half, centre) = ((largest - cut) / 2.0, (largest + cut) / 2.0);
        let apply = |vector: &[f64]| -> Vec<f64> {
            let product = self.laplacian(degrees, vector);
            product.iter().zip(vector).map(|(product, value)| (product - centre * value) / half).collect()
        };
        let mut before = vector.to_vec();
        let mut now = apply(vector);
        for _ in 1..DEGREE {
            let mut next = apply(&now);
            next.iter_mut().zip(&before).for_each(|(next, before)| *next = 2.0 * *next - before);
            // Degrees grow without bound below the cut: a scale common to both keeps the recurrence.
            let scale = 1.0 / dot(&next, &next).sqrt().max(1.0);
            next.iter_mut().chain(&mut now).for_each(|value| *value *= scale);
            before = std::mem::replace(&mut now, next);
        }
        now
    }
}

/// Gram-Schmidt, twice. A vector that depends on those before it is replaced.
fn orthonormalize(block: &mut [Vec<f64>], random: &mut Random) {
    for at in 0..block.len() {
        let (before, rest) = block.split_at_mut(at);
        let vector = &mut rest[0];
        for _ in 0..3 {
            let size = dot(vector, vector).sqrt();
            for other in before.iter().chain(before.iter()) {
                let shared = dot(vector, other);
                vector.iter_mut().zip(other).for_each(|(value, other)| *value -= shared * other);
            }
            let left = dot(vector, vector).sqrt();
            if left > 1e-8 * size && left.is_finite() {
                vector.iter_mut().for_each(|value| *value /= left);
                break;
            }
            vector.iter_mut().for_each(|value| *value = random.unit() - 0.5);
        }
    }
}

/// Eigenvalues of a small symmetric matrix in rising order, and their vectors, by Jacobi's rotations.
fn jacobi(mut matrix: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let size = matrix.len();
    let mut vectors: Vec<Vec<f64>> =
        (0..size).map(|row| (0..size).map(|column| f64::from(u8::from(row == column))).collect()).collect();
    for _sweep in 0..30 {
        let off: f64 =
            (0..size).flat_map(|p| (0..p).map(move |q| (p, q))).map(|(p, q)| matrix[p][q].powi(2)).sum();
        let total: f64 = matrix.iter().flatten().map(|value| value * value).sum();
        if off <= 1e-22 * total || !off.is_finite() {
            break;
        }
        for p in 0..size {
            for q in p + 1..size {
                if matrix[p][q].abs() < 1e-300 {
                    continue;
                }
                let theta = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
                let tangent = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
                let sine = tangent * cosine;
                for row in &mut matrix {
                    (row[p], row[q]) = (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
                }
                rotate(&mut matrix, p, q, cosine, sine);
                rotate(&mut vectors, p, q, cosine, sine);
            }
        }
    }
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&a, &b| matrix[a][a].total_cmp(&matrix[b][b]));
    let values = order.iter().map(|&at| matrix[at][at]).collect();
    (values, order.iter().map(|&at| vectors[at].clone()).collect())
}

fn rotate(rows: &mut [Vec<f64>], p: usize, q: usize, cosine: f64, sine: f64) {
    let (head, tail) = rows.split_at_mut(q);
    for (a, b) in head[p].iter_mut().zip(&mut tail[0]) {
        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
    }
}

fn combine(block: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; block.first().map_or(0, Vec::len)];
    for (vector, weight) in block.iter().zip(weights) {
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * value);
    }
    sum
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of `length` nodes with weights of 1: its Laplacian has the eigenvalues 2 - 2 cos(2πk / length).
    fn ring(length: usize, at: usize) -> impl Iterator<Item = Vec<(usize, f64)>> {
        (0..length)
            .map(move |node| vec![(at + (node + 1) % length, 1.0), (at + (node + length - 1) % length, 1.0)])
    }

    #[test]
    fn separate_rings_have_the_known_eigenvalues() {
        let graph = Graph { neighbours: ring(12, 0).chain(ring(20, 12)).chain(ring(9, 32)).collect() };
        let found = graph.smallest(8);
        let of =
            |length: usize, k: usize| 2.0 - 2.0 * (std::f64::consts::TAU * k as f64 / length as f64).cos();
        let mut known: Vec<f64> =
            [12, 20, 9].iter().flat_map(|&length| (0..length).map(move |k| of(length, k))).collect();
        known.sort_by(f64::total_cmp);
        for (found, known) in found.values.iter().zip(&known) {
            assert!((found - known).abs() < 1e-3, "{found} {known}");
        }
        // The first three span the indicators of the rings: constant on each.
        for vector in &found.vectors[..3] {
            for ring in [0..12, 12..32, 32..41] {
                let first = vector[ring.start];
                assert!(vector[ring].iter().all(|value| (value - first).abs() < 1e-3));
            }
        }
    }

    #[test]
    fn fewer_nodes_than_asked_for_and_no_edges() {
        assert_eq!(Graph { neighbours: ring(3, 0).collect() }.smallest(16).values.len(), 3);
        let empty = Graph { neighbours: vec![Vec::new(); 5] }.smallest(3);
        assert!(empty.values.iter().all(|value| value.abs() < 1e-9));
    }
}
