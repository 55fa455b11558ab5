//! CAM++ up to its pooling: from filter banks to features of 20 ms each.

use std::ops::Range;

use super::super::error::Error;
use super::super::network::{CHANNELS, MEL_BINS};
use super::super::weights::Weights;
use super::architecture::{BLOCKS, FIRST, FIRST_KERNEL, FIRST_STRIDE, GROWTH};
use super::dense_block::{self, DenseBlock};
use super::head::{self, Head};
use super::layers::{Features, Norm, Projection};
use crate::cpu::convolution::{Convolution, Epilogue, Job, Layout, Operand, Output};
use crate::cpu::{Level, Places, Threads};

/// Frames that go through the dense blocks together, about: pieces share the reading of the weights, and their
/// features stay in the cache.
const GROUP: usize = 600;

/// The trunk's weights, in the precision that the processor computes fast with.
pub(super) struct Trunk<E: Operand> {
    level: Level,
    head: Head<E>,
    /// The first layer over time; it halves the frames.
    first: Convolution<E>,
    /// Each followed by the projection that halves its channels.
    blocks: Vec<(DenseBlock<E>, Projection<E>)>,
}

impl<E: Operand> Trunk<E> {
    pub fn load(weights: &Weights, level: Level) -> Result<Self, Error> {
        let weight = weights.values("xvector.tdnn.linear.weight", &[FIRST, head::WIDTH, FIRST_KERNEL])?;
        let norm = Norm::load(weights, "xvector.tdnn.nonlinear.batchnorm", FIRST)?;
        let place: Vec<usize> = (0..head::WIDTH).map(head::reference_channel).collect();
        let first = norm.folded(1, FIRST_KERNEL * head::WIDTH, |output, input| {
            let (frame, value) = (input / head::WIDTH, input % head::WIDTH);
            weight[(output * head::WIDTH + place[value]) * FIRST_KERNEL + frame]
        });
        let mut blocks = Vec::with_capacity(BLOCKS.len());
        let mut channels = FIRST;
        for (index, (layers, dilation)) in BLOCKS.into_iter().enumerate() {
            let block = DenseBlock::load(
                weights,
                &format!("xvector.block{}", index + 1),
                layers,
                channels,
                dilation,
            )?;
            channels += layers * GROWTH;
            let transit = format!("xvector.transit{}", index + 1);
            let norm = Norm::load(weights, &format!("{transit}.nonlinear.batchnorm"), channels)?;
            let weight = weights.values(&format!("{transit}.linear.weight"), &[channels / 2, channels, 1])?;
            let weight = |output, input| weight[output * channels + input];
            // The norm at the end folds into the last projection.
            let product = if index + 1 == BLOCKS.len() {
                Norm::load(weights, "xvector.out_nonlinear.batchnorm", CHANNELS)?.folded(1, channels, weight)
            } else {
                Convolution::new(1, channels, &vec![0.0; channels / 2], weight)
            };
            blocks.push((block, Projection { norm, product }));
            channels /= 2;
        }
        Ok(Self { level, head: Head::load(weights)?, first, blocks })
    }

    /// The features of each piece, (frames / 2 rounded up, [`CHANNELS`]).
    pub fn apply(&self, threads: &Threads, pieces: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let groups = groups(pieces);
        let mut features = vec![Vec::new(); pieces.len()];
        let places = Places::new(&mut features);
        threads.split(groups.len(), |range| {
            let mut scratch = (head::Scratch::new(), dense_block::Scratch::new());
            for group in &groups[range] {
                // SAFETY: `split` hands out each group once, and groups don't overlap.
                let places = unsafe { places.range(group.clone()) };
                let features = self.group(&pieces[group.clone()], &mut scratch);
                places.iter_mut().zip(features).for_each(|(place, features)| *place = features);
            }
        });
        features
    }

    fn group(
        &self,
        pieces: &[Vec<f32>],
        (planes, scratch): &mut (head::Scratch<E>, dense_block::Scratch<E>),
    ) -> impl Iterator<Item = Vec<f32>> {
        let mut features: Vec<Features> = pieces.iter().map(|piece| self.start(piece, planes)).collect();
        for (index, (block, transit)) in self.blocks.iter().enumerate() {
            block.apply(self.level, &mut features, scratch);
            let next = self.blocks.get(index + 1);
            let outputs = transit.product.outputs();
            // Room for what the next block adds; at the end nothing is.
            let channels = next.map_or(outputs, |(_, transit)| transit.norm.scale.len());
            let epilogue = if next.is_some() { Epilogue::Store } else { Epilogue::Relu };
            for features in &mut features {
                let mut y = Features::new(features.frames(), channels);
                let (place, to) = (Output::Wide(&mut y.values), Layout::rows(0, channels));
                transit.apply(self.level, features, &mut scratch.operands, place, to, epilogue);
                *features = y;
            }
        }
        features.into_iter().map(|features| features.values)
    }

    fn start(&self, piece: &[f32], planes: &mut head::Scratch<E>) -> Features {
        let frames = (piece.len() / MEL_BINS).div_ceil(FIRST_STRIDE);
        let x = self.head.apply(self.level, piece, planes);
        let channels = self.blocks[0].1.norm.scale.len();
        let mut features = Features::new(frames, channels);
        self.first.apply(
            self.level,
            Job {
                rows: frames,
                x: &x,
                from: Layout::rows(0, FIRST_STRIDE * head::WIDTH),
                tap: 0,
                y: Output::Wide(&mut features.values),
                to: Layout::rows(0, channels),
                epilogue: Epilogue::Relu,
            },
        );
        planes.recycle(x);
        features
    }
}

/// Neighbours of about [`GROUP`] frames together; a longer piece is a group of its own.
fn groups(pieces: &[Vec<f32>]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut frames = 0;
    for (index, piece) in pieces.iter().enumerate() {
        frames += piece.len() / MEL_BINS;
        match groups.last_mut() {
            Some(group) if frames <= GROUP => group.end = index + 1,
            _ => {
                frames = piece.len() / MEL_BINS;
                groups.push(index..index + 1);
            }
        }
    }
    groups
}
