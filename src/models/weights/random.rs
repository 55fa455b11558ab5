//! Random weights of a model's shape, to measure speed with.

use tch::{Device, Kind, Tensor};

use super::tensors::{
    AUDIO_POSITIONS, CrossAttention, DecoderLayer, Dimensions, EncoderLayer, FeedForward, LayerNorm, Linear,
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

    /// (layer, head) pairs whose attention follows the audio in the trained model: a word's times cost as much as with
    /// its weights (`generation_config.json` of each).
    pub fn alignment_heads(&self) -> Option<&'static [(usize, usize)]> {
        Some(match self.name {
            "tiny" => &[(2, 2), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5)],
            "base" => &[(3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)],
            "small" => &[(5, 3), (5, 9), (8, 0), (8, 4), (8, 7), (8, 8), (9, 0), (9, 7), (9, 9), (10, 5)],
            "medium" => &[(13, 15), (15, 4), (15, 15), (16, 1), (20, 0), (23, 4)],
            "large-v3" => &[
                (7, 0),
                (10, 17),
                (12, 18),
                (13, 12),
                (16, 1),
                (17, 14),
                (19, 11),
                (21, 4),
                (24, 1),
                (25, 6),
            ],
            "large-v3-turbo" => &[(2, 4), (2, 11), (3, 3), (3, 6), (3, 11), (3, 14)],
            _ => return None,
        })
    }

    /// The dimensions of [`random`]'s weights, without making them.
    pub fn dimensions(&self) -> Dimensions {
        let d = self.width;
        let convolutions = 3 * d * (self.bands + d) + 2 * d;
        let encoder = self.encoder_layers * (12 * d * d + 13 * d);
        let decoder = self.decoder_layers * (16 * d * d + 19 * d);
        let embeddings = (AUDIO_POSITIONS + TEXT_POSITIONS + self.vocabulary) * d;
        let norms = 4 * d;
        Dimensions {
            width: d,
            decoder_layers: self.decoder_layers,
            elements: convolutions + encoder + decoder + embeddings + norms,
        }
    }

    /// Products and sums for one window, counted as two: the encoder's, and those of [`Self::audio_flops`].
    pub fn window_flops(&self) -> f64 {
        self.encoder_flops() + self.audio_flops()
    }

    /// Operations of the encoder for one window: the convolutions and the layers.
    pub fn encoder_flops(&self) -> f64 {
        let (t, d) = (AUDIO_POSITIONS as f64, self.width as f64);
        let layers = self.encoder_layers as f64;
        let convolutions = 6.0 * (2.0 * t * self.bands as f64 * d + t * d * d);
        convolutions + layers * (24.0 * d * d * t + 4.0 * t * t * d)
    }

    /// Operations for the keys and values of one window's audio, for every layer of the decoder.
    pub fn audio_flops(&self) -> f64 {
        let (t, d) = (AUDIO_POSITIONS as f64, self.width as f64);
        4.0 * d * d * t * self.decoder_layers as f64
    }

    /// Bytes of the encoder's weights, two each, which every batch reads.
    pub fn encoder_bytes(&self) -> f64 {
        let d = self.width as f64;
        let convolutions = 3.0 * d * (self.bands as f64 + d);
        2.0 * (convolutions + 12.0 * d * d * self.encoder_layers as f64)
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
            close(shape.encoder_flops() + shape.audio_flops(), shape.window_flops());
        }
    }

    #[test]
    fn dimensions_are_those_of_the_weights() {
        let shape = Shape::named("tiny").expect("known");
        let elements = std::cell::Cell::new(0);
        of_numbers(&shape, (Device::Cpu, Kind::Float), |size| {
            elements.set(elements.get() + size.iter().product::<i64>() as usize);
            Ok(Tensor::f_zeros(size, (Kind::Float, Device::Cpu))?)
        })
        .expect("memory");
        // Norms are no random numbers: two for each layer of the encoder, three of the decoder, one at either end.
        let norms = 2 * shape.encoder_layers + 3 * shape.decoder_layers + 2;
        assert_eq!(shape.dimensions().elements, elements.get() + norms * 2 * shape.width);
    }

    #[test]
    fn alignment_heads_are_heads_of_the_shape() {
        for shape in Shape::ALL {
            let heads = shape.alignment_heads().expect("known");
            let inside =
                |&(layer, head): &(usize, usize)| layer < shape.decoder_layers && head < shape.width / 64;
            assert!(heads.iter().all(inside) && heads.is_sorted(), "{}", shape.name);
        }
    }
}
