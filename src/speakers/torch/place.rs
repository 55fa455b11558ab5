//! Weights on a device.

use tch::{Device, Kind, TchError, Tensor};

use crate::speakers::error::Error;
use crate::speakers::weights::Weights;

/// Where tensors are, and the format of the products.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub device: Device,
    pub kind: Kind,
}

impl Place {
    /// A tensor of the weights in the format of the products.
    pub fn tensor(self, weights: &Weights, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
        self.put(&weights.values(name, shape)?, shape, self.kind)
    }

    pub fn put(self, values: &[f32], shape: &[usize], kind: Kind) -> Result<Tensor, Error> {
        let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let put =
            || Tensor::f_from_slice(values)?.f_reshape(shape)?.f_to_device(self.device)?.f_to_kind(kind);
        put().map_err(failed)
    }
}

pub(super) fn failed(error: TchError) -> Error {
    tracing::error!(%error, "the networks of diarization failed");
    Error::Failed
}
