//! Random weights of a model's shape, to measure speed with.

use tch::{Device, Kind, Tensor};

use super::tensors::{
    AUDIO_POSITIONS, CrossAttention, DecoderLayer, EncoderLayer, FeedForward, LayerNorm, Linear,
    SelfAttention, TEXT_POSITIONS, Weights,
};
use crate::models::Error;

/// Deviation of the weights of a model before it is trained.
pub const DEVIATION: f64 = 0.02;

/// The sizes in which models differ (openai/whisper `model.py`, and its model card for large-v3 and turbo).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub name: &'static str,
    pub width: usize,
    pub encoder_layers: usize,
    pub decoder_layers: usize,
    pub bands: usize,
    pub vocabulary: usize,
}

impl Shape {
    pub const ALL: [Self; 6] = [
        Self::new("tiny", 384, (4, 4), 80, 51_865),
        Self::new("base", 512, (6, 6), 80, 51_865),
        Self::new("small", 768, (12, 12), 80, 51_865),
        Self::new("medium", 1024, (24, 24), 80, 51_865),
        Self::new("large-v3", 1280, (32, 32), 128, 51_866),
        Self::new("large-v3-turbo", 1280, (32, 4), 128, 51_866),
    ];

    const fn new(
        name: &'static str,
        width: usize,
        (encoder_layers, decoder_layers): (usize, usize),
        bands: usize,
        vocabulary: usize,
    ) -> Self {
        Self { name, width, encoder_layers, decoder_layers, bands, vocabulary }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name == name)
    }

    /// Products and sums for one window, counted as two: the convolutions, the encoder's layers, and the keys and
    /// values of its output for every layer of the decoder.
    pub fn window_flops(&self) -> f64 {
        let (t, d) = (AUDIO_POSITIONS as f64, self.width as f64);
        let layers = self.encoder_layers as f64;
        let convolutions = 6.0 * (2.0 * t * self.bands as f64 * d + t * d * d);
        let encoder = layers * (24.0 * d * d * t + 4.0 * t * t * d);
        convolutions + encoder + 4.0 * d * d * t * self.decoder_layers as f64
    }

    /// Operations for one token after `text` others.
    pub fn token_flops(&self, text: f64) -> f64 {
        let (d, layers) = (self.width as f64, self.decoder_layers as f64);
        28.0 * d * d * layers
            + 2.0 * self.vocabulary as f64 * d
            + 4.0 * (AUDIO_POSITIONS as f64 + text) * d * layers
    }

    /// Bytes that every step reads: the decoder's weights, two bytes each.
    pub fn step_bytes(&self) -> f64 {
        let (d, layers) = (self.width as f64, self.decoder_layers as f64);
        28.0 * d * d * layers + 2.0 * self.vocabulary as f64 * d
    }

    /// Bytes that a step reads for each slot with `text` tokens: keys and values, two bytes each for text and
    /// `audio_bytes` each for audio.
    pub fn token_bytes(&self, text: f64, audio_bytes: f64) -> f64 {
        let positions = AUDIO_POSITIONS as f64 * audio_bytes + text * 2.0;
        2.0 * positions * self.width as f64 * self.decoder_layers as f64
    }
}

/// Normally distributed weights on `device`, with norms that are the identity.
///
/// # Errors
/// Those of libtorch: memory.
pub fn random(shape: &Shape, deviation: f64, (device, kind): (Device, Kind)) -> Result<Weights, Error> {
    of_numbers(shape, (device, kind), |size| {
        Ok(Tensor::f_randn(size, (kind, device))?.f_mul_scalar_(deviation)?)
    })
}

/// Weights whose tensors `numbers` makes by their sizes, with norms that are the identity.
///
/// # Errors
/// Those of `numbers`, and of libtorch: memory.
pub fn of_numbers(
    shape: &Shape,
    (device, kind): (Device, Kind),
    numbers: impl Fn(&[i64]) -> Result<Tensor, Error>,
) -> Result<Weights, Error> {
    let width = shape.width;
    let normal = |size: &[usize]| {
        let size: Vec<i64> = size.iter().map(|&length| length as i64).collect();
        numbers(&size)
    };
    let linear = |outputs: usize, inputs: usize| -> Result<Linear, Error> {
        Ok(Linear { weight: normal(&[outputs, inputs])?, bias: Some(normal(&[outputs])?) })
    };
    let convolution = |inputs: usize| -> Result<Linear, Error> {
        Ok(Linear { weight: normal(&[width, inputs, 3])?, bias: Some(normal(&[width])?) })
    };
    let norm = || -> Result<LayerNorm, Error> {
        let size = [width as i64];
        Ok(LayerNorm {
            gamma: Tensor::f_ones(size, (kind, device))?,
            beta: Tensor::f_zeros(size, (kind, device))?,
        })
    };
    let attention = || -> Result<SelfAttention, Error> {
        Ok(SelfAttention {
            norm: norm()?,
            query_key_value: linear(3 * width, width)?,
            output: linear(width, width)?,
        })
    };
    let feed_forward = || -> Result<FeedForward, Error> {
        Ok(FeedForward {
            norm: norm()?,
            expand: linear(4 * width, width)?,
            contract: linear(width, 4 * width)?,
        })
    };
    let encoder_layer = |_| -> Result<EncoderLayer, Error> {
        Ok(EncoderLayer { attention: attention()?, feed_forward: feed_forward()? })
    };
    let decoder_layer = |_| -> Result<DecoderLayer, Error> {
        Ok(DecoderLayer {
            attention: attention()?,
            cross_attention: CrossAttention {
                norm: norm()?,
                query: linear(width, width)?,
                key_value: linear(2 * width, width)?,
                output: linear(width, width)?,
            },
            feed_forward: feed_forward()?,
        })
    };
    let heads = width / 64;
    let weights = Weights {
        conv1: convolution(shape.bands)?,
        conv2: convolution(width)?,
        encoder_positions: normal(&[AUDIO_POSITIONS, width])?,
        encoder_layers: (0..shape.encoder_layers).map(encoder_layer).collect::<Result<_, _>>()?,
        encoder_norm: norm()?,
        token_embedding: normal(&[shape.vocabulary, width])?,
        decoder_positions: normal(&[TEXT_POSITIONS, width])?,
        decoder_layers: (0..shape.decoder_layers).map(decoder_layer).collect::<Result<_, _>>()?,
        decoder_norm: norm()?,
        encoder_heads: heads,
        decoder_heads: heads,
    };
    weights.check()?;
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_window_and_of_a_token_is_that_of_the_architecture() {
        // Billions of operations and millions of bytes, worked out by hand from the layers' sizes.
        for (name, window, token, step, audio) in
            [("base", 97.0, 0.116, 97.0, 18.4), ("large-v3", 2588.0, 1.85, 1601.0, 245.8)]
        {
            let shape = Shape::named(name).expect("known");
            let close = |found: f64, expected: f64| {
                assert!((found / expected - 1.0).abs() < 0.02, "{name}: {found} against {expected}");
            };
            close(shape.window_flops() / 1e9, window);
            close(shape.token_flops(0.0) / 1e9, token);
            close(shape.step_bytes() / 1e6, step);
            close(shape.token_bytes(0.0, 2.0) / 1e6, audio);
        }
    }
}
