//! Whisper's audio encoder: two convolutions, then transformer layers without a mask. On a CPU by our
//! own kernels where it has the instructions, otherwise by libtorch.

mod host;
mod torch;

use tch::{Device, Kind, Tensor};

use crate::cpu::Threads;
use crate::cpu::matrix::Precision;
use crate::models::{Error, weights};

/// What the decoder looks at.
pub enum AudioStates {
    /// Of one window: (positions, d).
    Host(Vec<f32>),
    /// (windows, positions, d)
    Torch(Tensor),
}

pub enum Encoder {
    Host(Box<host::Encoder>),
    Torch { encoder: torch::Encoder, device: Device, kind: Kind },
}

impl Encoder {
    /// `precision` and `threads` are for our own kernels, `kind` is for libtorch.
    pub fn new(
        weights: &weights::Weights,
        (device, kind): (Device, Kind),
        precision: Precision,
        threads: Threads,
    ) -> Result<Self, Error> {
        if device == Device::Cpu && host::is_fit_for(weights, precision) {
            return Ok(Self::Host(Box::new(host::Encoder::new(weights, precision, threads)?)));
        }
        Ok(Self::Torch { encoder: torch::Encoder::new(weights, device, kind)?, device, kind })
    }

    /// Features (windows, frames, bands) to audio states of frames / 2 positions. `frames` is even and at
    /// most twice the number of positions.
    pub fn forward(
        &self,
        features: Vec<f32>,
        frames: usize,
        bands: usize,
    ) -> Result<Vec<AudioStates>, Error> {
        match self {
            Self::Host(encoder) => {
                let windows = features.chunks_exact(frames * bands);
                Ok(windows.map(|window| AudioStates::Host(encoder.forward(window))).collect())
            }
            Self::Torch { encoder, device, kind } => {
                let features = Tensor::from_slice(&features)
                    .f_view([-1, frames as i64, bands as i64])?
                    .f_transpose(1, 2)?
                    .f_to_device(*device)?
                    .f_to_kind(*kind)?;
                Ok(vec![AudioStates::Torch(encoder.forward(&features)?)])
            }
        }
    }
}
