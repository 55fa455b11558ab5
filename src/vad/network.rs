//! The weights of Silero VAD and the part of its network that looks at single frames.
//!
//! ```text
//! 640 samples → |STFT| 4 × 129 → conv 4 × 128 → conv 2 × 64 → conv 1 × 64 → conv 128
//!             → gates 512 → LSTM (frame by frame) → 1 output
//! ```
//!
//! A convolution over so few columns is a handful of matrix products: for each column of its output,
//! the columns of its input under the kernel lie side by side in memory, and those beyond the edge are zero
//! and left out. All frames of a batch go through one product.

use std::collections::HashMap;
use std::path::Path;

use super::constants::{self, TensorProto};
use super::dense::{Activation, Dense, Rows, RowsMut};
use super::error::Error;
use super::lstm::{GATES, Recurrence, UNITS, sigmoid};
use super::spectrum::{BINS, COLUMNS, Spectrum};
use crate::cpu::Level;

/// The file that the weights are read from. The safetensors file published beside it holds other weights
/// (snakers4/silero-vad issue 768).
pub(super) const FILE: &str = "silero_vad_16k_op15.onnx";

/// Silero VAD's weights, packed for this processor.
pub(super) struct Network {
    pub spectrum: Spectrum,
    pub recurrence: Recurrence,
    convolutions: [Convolution; 4],
    gates: Dense,
    output_weight: Vec<f32>,
    output_bias: f32,
}

/// A convolution of kernel 3 and padding 1 over a fixed number of columns.
struct Convolution {
    /// Channels in.
    inputs: usize,
    /// Channels out.
    outputs: usize,
    columns: usize,
    /// For each column of the output: the first column of the input under the kernel, and the product.
    products: Vec<(usize, Dense)>,
}

impl Convolution {
    fn columns_out(&self) -> usize {
        self.products.len()
    }

    /// `[frame][column][channel]` to the same.
    fn apply(&self, frames: usize, x: &[f32], y: &mut [f32]) {
        let stride = self.columns * self.inputs;
        let out_stride = self.columns_out() * self.outputs;
        for (column, (first, product)) in self.products.iter().enumerate() {
            product.apply(
                Rows { values: &x[first * self.inputs..], stride, count: frames },
                RowsMut { values: &mut y[column * self.outputs..], stride: out_stride },
            );
        }
    }
}

impl Network {
    /// Reads the weights from `folder`.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`], [`Error::Unexpected`].
    pub fn load(folder: &Path, level: Level) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let bytes = std::fs::read(&path).map_err(|source| Error::Unreadable { path, source })?;
        Self::from_bytes(&bytes, level)
    }

    pub fn from_bytes(bytes: &[u8], level: Level) -> Result<Self, Error> {
        let tensors = Tensors(constants::initializers(bytes).ok_or(Error::Malformed)?);
        let spectrum = Spectrum::new();
        let basis = "model.stft.forward_basis_buffer";
        if !spectrum.is_written_as(&tensors.values(basis, &[2 * BINS, 1, 2 * (BINS - 1)])?) {
            return Err(Error::Unexpected { tensor: basis.to_owned() });
        }
        let convolution = |name: &str, inputs, outputs, columns, stride| {
            tensors.convolution(level, name, Shape { inputs, outputs, columns, stride })
        };
        let input = tensors.values("model.decoder.rnn.weight_ih", &[GATES, UNITS])?;
        let hidden = tensors.values("model.decoder.rnn.weight_hh", &[GATES, UNITS])?;
        let biases = [
            tensors.values("model.decoder.rnn.bias_ih", &[GATES])?,
            tensors.values("model.decoder.rnn.bias_hh", &[GATES])?,
        ];
        let bias: Vec<f32> = biases[0].iter().zip(&biases[1]).map(|(a, b)| a + b).collect();
        Ok(Self {
            spectrum,
            convolutions: [
                convolution("model.encoder.0.reparam_conv", BINS, 128, COLUMNS, 1)?,
                convolution("model.encoder.1.reparam_conv", 128, 64, 4, 2)?,
                convolution("model.encoder.2.reparam_conv", 64, 64, 2, 2)?,
                convolution("model.encoder.3.reparam_conv", 64, UNITS, 1, 1)?,
            ],
            gates: Dense::new(level, UNITS, &bias, Activation::None, |gate, unit| input[gate * UNITS + unit]),
            recurrence: Recurrence::new(level, |gate, unit| hidden[gate * UNITS + unit]),
            output_weight: tensors.values("model.decoder.decoder.2.weight", &[1, UNITS, 1])?,
            output_bias: tensors.values("model.decoder.decoder.2.bias", &[1])?[0],
        })
    }

    /// The input's part of the LSTM's gate sums for each frame. `magnitudes` is `[frame][column][bin]`; the
    /// result, `[frame][gate]`, is left in `layers`.
    pub fn gates<'a>(&self, frames: usize, magnitudes: &[f32], layers: &'a mut Layers) -> &'a [[f32; GATES]] {
        let Layers { odd, even, gates } = layers;
        let [first, second, third, fourth] = &self.convolutions;
        first.apply(frames, magnitudes, odd);
        second.apply(frames, odd, even);
        third.apply(frames, even, odd);
        fourth.apply(frames, odd, even);
        self.gates.apply(
            Rows { values: even, stride: UNITS, count: frames },
            RowsMut { values: gates.as_flattened_mut(), stride: GATES },
        );
        &gates[..frames]
    }

    /// The probability of speech in a frame, from the LSTM's hidden state after it.
    pub fn output(&self, hidden: &[f32; UNITS]) -> f32 {
        let weighted = self.output_weight.iter().zip(hidden).map(|(weight, unit)| weight * unit.max(0.0));
        sigmoid::<false>(weighted.sum::<f32>() + self.output_bias)
    }
}

/// Working memory for the activations of some frames.
#[derive(Default)]
pub(super) struct Layers {
    odd: Vec<f32>,
    even: Vec<f32>,
    gates: Vec<[f32; GATES]>,
}

impl Layers {
    /// Makes room for `frames` frames.
    pub fn reserve(&mut self, frames: usize) {
        if self.gates.len() < frames {
            self.odd.resize(frames * COLUMNS * 128, 0.0);
            self.even.resize(frames * 2 * 64, 0.0);
            self.gates.resize(frames, [0.0; GATES]);
        }
    }
}

struct Shape {
    inputs: usize,
    outputs: usize,
    columns: usize,
    stride: usize,
}

/// A weights file, whose shapes are checked whenever a tensor is read.
struct Tensors(HashMap<String, TensorProto>);

impl Tensors {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let values = self.0.get(name).and_then(|tensor| tensor.values(shape));
        values.ok_or_else(|| Error::Unexpected { tensor: name.to_owned() })
    }

    fn convolution(&self, level: Level, name: &str, shape: Shape) -> Result<Convolution, Error> {
        const KERNEL: usize = 3;
        let Shape { inputs, outputs, columns, stride } = shape;
        let weight = self.values(&format!("{name}.weight"), &[outputs, inputs, KERNEL])?;
        let bias = self.values(&format!("{name}.bias"), &[outputs])?;
        let products = (0..columns)
            .step_by(stride)
            .map(|centre| {
                let first = centre.saturating_sub(1);
                let met = (centre + 2).min(columns) - first;
                let product = Dense::new(level, met * inputs, &bias, Activation::Relu, |output, input| {
                    let tap = input / inputs + first + 1 - centre;
                    weight[(output * inputs + input % inputs) * KERNEL + tap]
                });
                (first, product)
            })
            .collect();
        Ok(Convolution { inputs, outputs, columns, products })
    }
}
