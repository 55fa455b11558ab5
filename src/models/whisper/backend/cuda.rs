//! Whisper by the kernels of [`crate::cuda`], which choose the tokens themselves, a step ahead of the host.

use tch::Tensor;

use super::super::decoder::device::{Decoder, Prefill};
use super::super::decoder::torch::Placement;
use super::super::decoder::{Logits, Run};
use super::super::encoder::torch::Encoder;
use super::super::features::DeviceLogMel;
use super::super::rules::Table;
use super::super::sequence::Sequences;
use super::super::tokenizer::TokenId;
use super::{AlignmentRequest, Attention, Backend, Start, forced};
use crate::audio::LogMel;
use crate::cuda::{Device, Outcome};
use crate::engine::{EncodeRequest, SlotId};
use crate::models::{Error, weights};

pub struct CudaBackend {
    // First, so that the device is idle before the memory is freed.
    decoder: Decoder,
    log_mel: DeviceLogMel,
    encoder: Encoder,
    end_of_text: TokenId,
}

impl CudaBackend {
    /// Takes the weights, to free the encoder's once they are placed. `table`: the decoding rules as the kernels
    /// read them.
    pub fn new(
        mut weights: weights::Weights,
        placement: Placement,
        device: Box<dyn Device>,
        table: Table,
    ) -> Result<Self, Error> {
        let (_, bands, _) = weights.conv1.weight.size3()?;
        let log_mel = DeviceLogMel::new(&LogMel::new(bands as usize), placement.torch_device)?;
        let encoder = Encoder::new(&weights, placement.torch_device, placement.kind)?;
        weights.encoder_layers.clear();
        let end_of_text = table.end_of_text as TokenId;
        Ok(Self { decoder: Decoder::new(&weights, placement, device, table)?, log_mel, encoder, end_of_text })
    }

    /// The encoder's output: (windows, positions, d), on the device.
    pub fn states(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<Tensor, Error> {
        let windows: Vec<&[f32]> = requests.iter().map(|request| request.pcm.samples()).collect();
        self.encoder.forward(&self.log_mel.compute(self.decoder.device(), &windows, frames)?)
    }

    /// Fills the audio caches of `slots` with the `states` of as many windows.
    pub fn set_audio(&mut self, slots: &[SlotId], states: &Tensor) -> Result<(), Error> {
        self.decoder.set_audio(slots, states)
    }
}

/// Extends the sequences by the tokens that the device chose. A sequence that was cleared or finished meanwhile
/// takes nothing.
fn take(outcomes: Vec<(SlotId, Outcome)>, sequences: &mut Sequences, end_of_text: TokenId) {
    for (slot, outcome) in outcomes {
        if let Some(sequence) = sequences.get_mut(slot) {
            sequence.take(&outcome, end_of_text);
        }
    }
}

impl Backend for CudaBackend {
    fn encode(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<(), Error> {
        let states = self.states(requests, frames)?;
        let slots: Vec<SlotId> = requests.iter().map(|request| request.slot).collect();
        self.set_audio(&slots, &states)
    }

    fn logits(&mut self, runs: &[Run], wanted: &[usize]) -> Result<Logits, Error> {
        self.decoder.forward(runs, wanted)
    }

    fn begin(&mut self, starts: Vec<Start>, sequences: &mut Sequences) -> Result<(), Error> {
        // The step under way belongs to the attempts before, so their sequences take it.
        take(self.decoder.settle()?, sequences, self.end_of_text);
        let prefills = starts.iter().map(|start| Prefill {
            run: start.run(),
            start_of_transcript: start.start_of_transcript,
            state: start.sequence.state(),
            bias: start.sequence.bias(),
        });
        let begun = self.decoder.begin(&prefills.collect::<Vec<_>>())?;
        for (mut start, begun) in starts.into_iter().zip(begun) {
            start.sequence.no_speech_probability = begun.no_speech_probability;
            start.sequence.take(&begun.first, self.end_of_text);
            sequences.replace(start.slot, start.sequence);
        }
        Ok(())
    }

    /// Enqueues a step, and takes the tokens of the one before.
    fn step(&mut self, slots: &[SlotId], sequences: &mut Sequences) -> Result<(), Error> {
        let running: Vec<SlotId> =
            slots.iter().filter(|&&slot| sequences.running(slot).is_some()).copied().collect();
        take(self.decoder.step(&running)?, sequences, self.end_of_text);
        Ok(())
    }

    fn align(&mut self, requests: &[AlignmentRequest]) -> Result<Vec<Box<dyn Attention>>, Error> {
        let runs: Vec<Run> = requests.iter().map(AlignmentRequest::run).collect();
        Ok(forced::attention(requests, self.decoder.alignment(&runs)?))
    }
}
