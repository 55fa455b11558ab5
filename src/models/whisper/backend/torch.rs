//! Whisper by libtorch's operations on a CUDA device: the reference there, in f32, which [`crate::cuda`] has no
//! kernels for.

use std::ops::Range;

use tch::{Device, Tensor};

use super::super::decoder::torch::{Decoder, Placement};
use super::super::decoder::{Logits, Run};
use super::super::encoder::torch::Encoder;
use super::super::features::HostLogMel;
use super::super::sequence::Sequences;
use super::{AlignmentRequest, Attention, Backend, Sampler, Start, forced};
use crate::cpu::Threads;
use crate::engine::{EncodeRequest, SlotId};
use crate::models::{Error, weights};

pub struct TorchBackend {
    torch_device: Device,
    log_mel: HostLogMel,
    encoder: Encoder,
    decoder: Decoder,
    sampler: Sampler,
}

impl TorchBackend {
    /// Takes the weights, to free the encoder's once they are placed. `threads` compute the log-mel features.
    pub fn new(
        mut weights: weights::Weights,
        placement: Placement,
        threads: Threads,
        sampler: Sampler,
    ) -> Result<Self, Error> {
        let torch_device = placement.torch_device;
        let log_mel = HostLogMel::new(&weights, threads)?;
        let encoder = Encoder::new(&weights, torch_device, placement.kind)?;
        weights.encoder_layers.clear();
        Ok(Self { torch_device, log_mel, encoder, decoder: Decoder::new(&weights, placement)?, sampler })
    }
}

impl Backend for TorchBackend {
    fn encode(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<(), Error> {
        let features = self.log_mel.compute(requests, frames);
        let features = Tensor::from_slice(&features)
            .f_view([-1, frames as i64, self.log_mel.bands() as i64])?
            .f_to_device(self.torch_device)?;
        let audio = self.encoder.forward(&features.f_transpose(1, 2)?)?;
        let slots: Vec<SlotId> = requests.iter().map(|request| request.slot).collect();
        self.decoder.set_audio(&slots, &audio)
    }

    fn logits(&mut self, runs: &[Run], wanted: &[usize], tokens: Range<usize>) -> Result<Logits, Error> {
        Ok(self.decoder.forward(runs, wanted)?.of(tokens))
    }

    fn begin(&mut self, starts: Vec<Start>, sequences: &mut Sequences) -> Result<(), Error> {
        self.sampler.begin(starts, sequences, |runs, wanted| self.decoder.forward(runs, wanted))
    }

    fn step(&mut self, slots: &[SlotId], sequences: &mut Sequences) -> Result<(), Error> {
        self.sampler.step(slots, sequences, |runs, wanted| self.decoder.forward(runs, wanted))
    }

    fn align(&mut self, requests: &[AlignmentRequest]) -> Result<Vec<Box<dyn Attention>>, Error> {
        let runs: Vec<Run> = requests.iter().map(AlignmentRequest::run).collect();
        Ok(forced::attention(requests, self.decoder.alignment(&runs)?))
    }
}
