//! Whisper's audio encoder: two convolutions, then transformer layers without a mask. On a CPU by our
//! own kernels where it has the instructions, otherwise by libtorch.

mod host;
mod torch;

use tch::{Device, Kind, Tensor};

use super::host::plain;
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
    /// `host`: precision and threads of our own kernels, where they may be used; `kind` is for libtorch.
    pub fn new(
        weights: &weights::Weights,
        (device, kind): (Device, Kind),
        host: Option<(Precision, Threads)>,
    ) -> Result<Self, Error> {
        if let Some((precision, threads)) = host
            && host::is_fit_for(weights, precision)
        {
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
            Self::Torch { device, .. } => {
                let features = Tensor::from_slice(&features)
                    .f_view([-1, frames as i64, bands as i64])?
                    .f_to_device(*device)?;
                self.forward_tensor(&features.f_transpose(1, 2)?)
            }
        }
    }

    /// As [`Encoder::forward`], of features (windows, bands, frames) that are on the device.
    pub fn forward_tensor(&self, features: &Tensor) -> Result<Vec<AudioStates>, Error> {
        match self {
            Self::Host(_) => {
                let (_, bands, frames) = features.size3()?;
                let features = plain(&features.f_transpose(1, 2)?)?;
                self.forward(features, frames as usize, bands as usize)
            }
            Self::Torch { encoder, kind, .. } => {
                Ok(vec![AudioStates::Torch(encoder.forward(&features.f_to_kind(*kind)?)?)])
            }
        }
    }
}
