//! PyanNet; see [`crate::speakers::segmentation`].

use tch::{Kind, TchError, Tensor};

use super::place::Place;
use crate::speakers::error::Error;
use crate::speakers::network::CLASSES;
use crate::speakers::segmentation::architecture::{
    FEATURES, HIDDEN, KERNEL, LAYERS, NORM_EPSILON, POOL, STEP, UNITS,
};
use crate::speakers::segmentation::sinc;
use crate::speakers::weights::Weights;

/// Up to the LSTMs all is f32: the first norm sees samples of any loudness, and this part is small.
pub(super) struct Segmentation {
    kind: Kind,
    first_norm: Norm,
    convolutions: Vec<(Linear, i64, Norm)>,
    /// As libtorch takes them: for each layer and direction two weights and two biases.
    lstm: Vec<Tensor>,
    linear: Vec<Linear>,
    classifier: Linear,
}

struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn load(weights: &Weights, place: Place, name: &str, channels: usize) -> Result<Self, Error> {
        let part = |part: &str| place.tensor(weights, &format!("{name}.{part}"), &[channels]);
        Ok(Self { weight: part("weight")?, bias: part("bias")? })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let none = None::<&Tensor>;
        x.f_instance_norm(Some(&self.weight), Some(&self.bias), none, none, true, 0.0, NORM_EPSILON, true)
    }
}

impl Linear {
    fn load(weights: &Weights, place: Place, name: &str, shape: &[usize]) -> Result<Self, Error> {
        let bias = place.tensor(weights, &format!("{name}.bias"), &shape[..1])?;
        Ok(Self { weight: place.tensor(weights, &format!("{name}.weight"), shape)?, bias: Some(bias) })
    }

    fn apply(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_linear(&self.weight, self.bias.as_ref())
    }
}

impl Segmentation {
    pub fn load(weights: &Weights, place: Place) -> Result<Self, Error> {
        let wide = Place { kind: Kind::Float, ..place };
        let filters = [sinc::FILTERS, 1, sinc::LENGTH];
        let filters =
            Linear { weight: wide.put(&sinc::filters(weights)?, &filters, Kind::Float)?, bias: None };
        let norm =
            |index: usize, channels| Norm::load(weights, wide, &format!("sincnet.norm1d.{index}"), channels);
        let mut convolutions = vec![(filters, STEP as i64, norm(0, sinc::FILTERS)?)];
        for (index, inputs) in [(1, sinc::FILTERS), (2, FEATURES)] {
            let name = format!("sincnet.conv1d.{index}");
            let convolution = Linear::load(weights, wide, &name, &[FEATURES, inputs, KERNEL])?;
            convolutions.push((convolution, 1, norm(index, FEATURES)?));
        }
        let mut lstm = Vec::with_capacity(8 * LAYERS);
        for layer in 0..LAYERS {
            let inputs = if layer == 0 { FEATURES } else { 2 * UNITS };
            for direction in ["", "_reverse"] {
                let part = |part: &str, shape: &[usize]| {
                    place.tensor(weights, &format!("lstm.{part}_l{layer}{direction}"), shape)
                };
                lstm.push(part("weight_ih", &[4 * UNITS, inputs])?);
                lstm.push(part("weight_hh", &[4 * UNITS, UNITS])?);
                lstm.push(part("bias_ih", &[4 * UNITS])?);
                lstm.push(part("bias_hh", &[4 * UNITS])?);
            }
        }
        Ok(Self {
            kind: place.kind,
            first_norm: Norm::load(weights, wide, "sincnet.wav_norm1d", 1)?,
            convolutions,
            lstm,
            linear: vec![
                Linear::load(weights, place, "linear.0", &[HIDDEN, 2 * UNITS])?,
                Linear::load(weights, place, "linear.1", &[HIDDEN, HIDDEN])?,
            ],
            classifier: Linear::load(weights, place, "classifier", &[CLASSES, HIDDEN])?,
        })
    }

    /// (windows, 1, samples) to log-probabilities, (windows, frames, classes).
    pub fn apply(&self, windows: &Tensor) -> Result<Tensor, TchError> {
        let pool = POOL as i64;
        let mut x = self.first_norm.apply(windows)?;
        for (index, (convolution, stride, norm)) in self.convolutions.iter().enumerate() {
            x = x.f_conv1d(&convolution.weight, convolution.bias.as_ref(), *stride, 0, 1, 1)?;
            if index == 0 {
                x = x.f_abs_()?;
            }
            x = norm.apply(&x.f_max_pool1d(pool, pool, 0, 1, false)?)?.f_leaky_relu()?;
        }
        let x = x.f_transpose(1, 2)?.f_to_kind(self.kind)?.f_contiguous()?;
        let state = Tensor::f_zeros([2 * LAYERS as i64, x.size()[0], UNITS as i64], (x.kind(), x.device()))?;
        let start = [&state, &state];
        let lstm: Vec<&Tensor> = self.lstm.iter().collect();
        let (mut x, _, _) = x.f_lstm(&start, &lstm, true, LAYERS as i64, 0.0, false, true, true)?;
        for linear in &self.linear {
            x = linear.apply(&x)?.f_leaky_relu()?;
        }
        self.classifier.apply(&x)?.f_log_softmax(-1, Kind::Float)
    }
}
