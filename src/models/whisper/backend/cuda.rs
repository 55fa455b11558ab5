//! Whisper by the kernels of [`crate::cuda`], which choose the tokens themselves, a step ahead of the host.

use tch::Tensor;

use super::super::decoder::device::{CostsRequest, Decoder, PendingCosts, Prefill};
use super::super::decoder::torch::Placement;
use super::super::decoder::{Logits, Run};
use super::super::encoder::torch::Encoder;
use super::super::features::DeviceLogMel;
use super::super::rules::Table;
use super::super::sequence::Sequences;
use super::super::tokenizer::TokenId;
use super::{AlignmentRequest, Attention, Backend, Costs, Start, forced};
use crate::audio::LogMel;
use crate::cuda::{Argument, Device, Outcome};
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
        let features = self.log_mel.compute(self.decoder.device(), &windows, frames)?;
        let device: &dyn Device = self.decoder.device();
        let launch = |kernel, grid, arguments: &[Argument]| {
            device.after_libtorch()?;
            device.launch(kernel, grid, arguments)?;
            device.before_libtorch()
        };
        self.encoder.forward_on(&features, &launch)
    }

    /// Fills the audio caches of `slots` with the `states` of as many windows.
    pub fn set_audio(&mut self, slots: &[SlotId], states: &Tensor) -> Result<(), Error> {
        self.decoder.set_audio(slots, states)
    }

    /// The rows of `request`, if their scores are kept.
    fn kept(&self, request: &AlignmentRequest) -> Option<CostsRequest> {
        let &AlignmentRequest { slot, positions, .. } = request;
        let text_positions = request.decoded_at.clone()?;
        self.decoder.has_scores(&text_positions).then_some(CostsRequest { slot, text_positions, positions })
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

    /// From the scores that the device has kept, or else by libtorch's pass.
    fn align(&mut self, requests: &[AlignmentRequest]) -> Result<Vec<Box<dyn Attention>>, Error> {
        let (mut kept, mut others) = (Vec::new(), Vec::new());
        for (index, request) in requests.iter().enumerate() {
            match self.kept(request) {
                Some(costs) => kept.push((index, costs)),
                None => others.push(index),
            }
        }
        let (places, costs): (Vec<usize>, Vec<CostsRequest>) = kept.into_iter().unzip();
        let pending = self.decoder.alignment_costs(&costs)?.into_iter();
        let pending = pending.map(|costs| Box::new(Gathered(costs)) as Box<dyn Attention>);
        let mut attention: Vec<_> = places.into_iter().zip(pending).collect();
        if !others.is_empty() {
            let runs: Vec<Run> = others.iter().map(|&index| requests[index].run()).collect();
            for (index, weights) in others.into_iter().zip(self.decoder.alignment(&runs)?) {
                let request = std::slice::from_ref(&requests[index]);
                let forced = forced::attention(request, vec![weights]);
                attention.extend(forced.into_iter().map(|forced| (index, forced)));
            }
        }
        attention.sort_unstable_by_key(|(index, _)| *index);
        Ok(attention.into_iter().map(|(_, attention)| attention).collect())
    }
}

/// Costs that the device makes of the scores it has kept.
struct Gathered(PendingCosts);

impl Attention for Gathered {
    fn costs(self: Box<Self>) -> Result<Costs, Error> {
        let PendingCosts { rows, positions, .. } = self.0;
        Ok(Costs { values: self.0.wait()?, rows, positions })
    }
}
