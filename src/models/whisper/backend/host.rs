//! Whisper on a CPU: the kernels of [`crate::cpu`], and libtorch's encoder if the CPU lacks the instructions that make
//! those of the encoder faster.

use std::ops::Range;
use std::time::Instant;

use tch::{Device, Kind, Tensor};

use super::super::decoder::host::{Decoder, Placement};
use super::super::decoder::{Logits, Run};
use super::super::encoder::{host, torch};
use super::super::features::HostLogMel;
use super::super::host::plain;
use super::super::sequence::Sequences;
use super::{AlignmentRequest, Attention, Backend, Sampler, Start, forced};
use crate::cpu::matrix::Precision;
use crate::cuda::{Stage, StageTimes};
use crate::engine::{EncodeRequest, SlotId};
use crate::models::{Error, weights};

pub struct HostBackend {
    log_mel: HostLogMel,
    encoder: Encoder,
    decoder: Decoder,
    sampler: Sampler,
    stage_times: Option<StageTimes>,
}

/// Runs `work`, and adds its time to `stage` if times are wanted.
fn timed<T>(times: Option<&StageTimes>, stage: Stage, work: impl FnOnce() -> T) -> T {
    let Some(times) = times else { return work() };
    let begun = Instant::now();
    let done = work();
    times.add(stage, begun.elapsed());
    done
}

enum Encoder {
    Kernels(Box<host::Encoder>),
    Torch(torch::Encoder),
}

impl Encoder {
    fn new(weights: &weights::Weights, placement: &Placement) -> Result<Self, Error> {
        let precision = placement.numbers.weights;
        if host::is_fit_for(weights, precision) {
            let encoder = host::Encoder::new(weights, precision, placement.threads.clone())?;
            return Ok(Self::Kernels(Box::new(encoder)));
        }
        let kind = if precision == Precision::F32 { Kind::Float } else { Kind::BFloat16 };
        Ok(Self::Torch(torch::Encoder::new(weights, Device::Cpu, kind)?))
    }
}

impl HostBackend {
    /// Takes the weights, to free each layer's once it is packed.
    pub fn new(mut weights: weights::Weights, placement: Placement, sampler: Sampler) -> Result<Self, Error> {
        let log_mel = HostLogMel::new(&weights, placement.threads.clone())?;
        let encoder = Encoder::new(&weights, &placement)?;
        weights.encoder_layers.clear();
        Ok(Self { log_mel, encoder, decoder: Decoder::new(weights, placement)?, sampler, stage_times: None })
    }

    /// Adds the time that each stage takes to `times`, by the clock. Decoding includes the choice of tokens.
    pub fn timed_by(self, times: Option<StageTimes>) -> Self {
        Self { stage_times: times, ..self }
    }

    /// The encoder's output for each window: (positions, d).
    pub fn states(&self, requests: &[EncodeRequest], frames: usize) -> Result<Vec<Vec<f32>>, Error> {
        let times = self.stage_times.as_ref();
        let features = timed(times, Stage::Mel, || self.log_mel.compute(requests, frames));
        let bands = self.log_mel.bands();
        timed(times, Stage::Encoder, || match &self.encoder {
            Encoder::Kernels(encoder) => {
                Ok(features.chunks_exact(frames * bands).map(|window| encoder.forward(window)).collect())
            }
            Encoder::Torch(encoder) => {
                let features = Tensor::from_slice(&features).f_view([-1, frames as i64, bands as i64])?;
                let values = plain(&encoder.forward(&features.f_transpose(1, 2)?)?)?;
                let windows = values.chunks_exact(values.len() / requests.len().max(1));
                Ok(windows.map(<[f32]>::to_vec).collect())
            }
        })
    }

    /// Fills the audio cache of `slot` with a window's `states`.
    pub fn set_audio(&mut self, slot: SlotId, states: &[f32]) {
        self.decoder.set_audio(slot, states);
    }
}

impl Backend for HostBackend {
    fn encode(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<(), Error> {
        let states = self.states(requests, frames)?;
        let times = self.stage_times.clone();
        timed(times.as_ref(), Stage::CacheFill, || {
            for (request, states) in requests.iter().zip(&states) {
                self.set_audio(request.slot, states);
            }
        });
        Ok(())
    }

    fn logits(&mut self, runs: &[Run], wanted: &[usize], tokens: Range<usize>) -> Result<Logits, Error> {
        Ok(self.decoder.forward(runs, wanted).of(tokens))
    }

    fn begin(&mut self, starts: Vec<Start>, sequences: &mut Sequences) -> Result<(), Error> {
        let rows = starts.iter().map(|start| start.prompt.len()).sum();
        timed(self.stage_times.as_ref(), Stage::Prefill(rows), || {
            self.sampler.begin(starts, sequences, |runs, wanted| Ok(self.decoder.forward(runs, wanted)))
        })
    }

    fn step(&mut self, slots: &[SlotId], sequences: &mut Sequences) -> Result<(), Error> {
        timed(self.stage_times.as_ref(), Stage::Step(slots.len()), || {
            self.sampler.step(slots, sequences, |runs, wanted| Ok(self.decoder.forward(runs, wanted)))
        })
    }

    fn align(&mut self, requests: &[AlignmentRequest]) -> Result<Vec<Box<dyn Attention>>, Error> {
        let runs: Vec<Run> = requests.iter().map(AlignmentRequest::run).collect();
        let attention = timed(self.stage_times.as_ref(), Stage::Alignment, || self.decoder.alignment(&runs));
        Ok(forced::attention(requests, attention))
    }
}
