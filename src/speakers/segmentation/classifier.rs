//! The last layers: from the LSTMs' outputs to log-probabilities.

use super::architecture::HIDDEN;
use super::lstm;
use crate::cpu::Level;
use crate::cpu::matrix::{Epilogue, Matrix, Precision};
use crate::speakers::error::Error;
use crate::speakers::network::{CLASSES, LogProbabilities};
use crate::speakers::weights::Weights;

/// Rows computed at once.
const PANEL: usize = 96;

pub(super) struct Classifier {
    hidden: [Matrix; 2],
    classes: Matrix,
}

impl Classifier {
    pub fn new(weights: &Weights, precision: Precision) -> Result<Self, Error> {
        let layer = |name: &str, outputs, inputs, precision| {
            let weight = weights.values(&format!("{name}.weight"), &[outputs, inputs])?;
            let bias = weights.values(&format!("{name}.bias"), &[outputs])?;
            Ok(Matrix::new(&weight, Some(&bias), inputs, precision))
        };
        Ok(Self {
            hidden: [
                layer("linear.0", HIDDEN, lstm::OUTPUTS, precision)?,
                layer("linear.1", HIDDEN, HIDDEN, precision)?,
            ],
            classes: layer("classifier", CLASSES, HIDDEN, Precision::F32)?,
        })
    }

    /// `x`, (rows, [`lstm::OUTPUTS`]), to the log-probabilities of each row.
    pub fn apply(&self, level: Level, x: &[f32]) -> Vec<LogProbabilities> {
        let mut classes = vec![[0.0; CLASSES]; x.len() / lstm::OUTPUTS];
        for (x, classes) in x.chunks(PANEL * lstm::OUTPUTS).zip(classes.chunks_mut(PANEL)) {
            let mut activations = x.to_vec();
            for layer in &self.hidden {
                activations = product(level, layer, &activations);
                activations.iter_mut().for_each(|y| *y = y.max(0.01 * *y));
            }
            classes.as_flattened_mut().copy_from_slice(&product(level, &self.classes, &activations));
        }
        classes.iter_mut().for_each(log_softmax);
        classes
    }
}

fn product(level: Level, layer: &Matrix, x: &[f32]) -> Vec<f32> {
    let rows = layer.rows(level, x);
    let mut y = vec![0.0; x.len() / layer.inputs() * layer.outputs()];
    layer.multiply_rows(level, &rows, &mut y, Epilogue::Store);
    y
}

fn log_softmax(classes: &mut LogProbabilities) {
    let greatest = classes.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum = classes.iter().map(|class| (class - greatest).exp()).sum::<f32>();
    let log_sum = greatest + sum.ln();
    classes.iter_mut().for_each(|class| *class -= log_sum);
}
