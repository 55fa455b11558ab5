//! Whisper by the kernels of [`crate::cuda`], which choose the tokens themselves, a step ahead of the host.

use std::ops::Range;

use tch::Tensor;

use super::super::WINDOW_FRAMES;
use super::super::decoder::device::{CostsRequest, Decoder, Found, PendingCosts, Prefill};
use super::super::decoder::torch::Placement;
use super::super::decoder::{Logits, Run};
use super::super::encoder::torch::Encoder;
use super::super::features::DeviceLogMel;
use super::super::rules::Table;
use super::super::sequence::{Predicted, Sequences};
use super::super::tokenizer::TokenId;
use super::{AlignmentRequest, Attention, Backend, Costs, Start, forced};
use crate::audio::{LogMel, Pcm};
use crate::cuda::{Argument, Device, Stage, StageTimes};
use crate::engine::{EncodeRequest, SlotId, WINDOW_SAMPLES};
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
        device.libtorch_beside()?;
        let (_, bands, _) = weights.conv1.weight.size3()?;
        let log_mel = DeviceLogMel::new(&LogMel::new(bands as usize), placement.torch_device)?;
        let encoder = Encoder::new(&weights, placement.torch_device, placement.kind)?;
        weights.encoder_layers.clear();
        let end_of_text = table.end_of_text as TokenId;
        Ok(Self { decoder: Decoder::new(&weights, placement, device, table)?, log_mel, encoder, end_of_text })
    }

    /// Encodes silence in batches of every size up to `batch`, so that libraries choose and load for each what they
    /// need, and memory is allocated, before the first window comes.
    pub fn warm_up(&mut self, batch: usize) -> Result<(), Error> {
        let silence = Pcm::new(vec![0.0; WINDOW_SAMPLES]);
        for windows in (1..=batch).rev() {
            let requests: Vec<EncodeRequest> =
                (0..windows).map(|slot| EncodeRequest { slot: SlotId(slot), pcm: &silence }).collect();
            self.encode(&requests, WINDOW_FRAMES)?;
        }
        Ok(())
    }

    /// Measures the device's stages from now on.
    pub fn measure(&mut self, times: StageTimes) {
        self.decoder.device().measure(times);
    }

    /// The encoder's output: (windows, positions, d), in the device's side queue.
    pub fn states(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<Tensor, Error> {
        let windows: Vec<&[f32]> = requests.iter().map(|request| request.pcm.samples()).collect();
        let device = self.decoder.device();
        let features = self.log_mel.compute(device, &windows, frames)?;
        device.stage_begins(Stage::Encoder)?;
        let launch = |kernel, grid, arguments: &[Argument]| device.launch_beside(kernel, grid, arguments);
        let states = self.encoder.forward_on(&features, &launch)?;
        device.stage_ends()?;
        Ok(states)
    }

    /// Fills the audio caches of `slots` with the `states` of as many windows.
    pub fn set_audio(&mut self, slots: &[SlotId], states: &Tensor) -> Result<(), Error> {
        self.decoder.set_audio(slots, states)
    }

    /// All rows of the attempt, if their scores are kept: costs are standardised over them, as over the whole
    /// teacher-forced pass. With them the indices of those that `request` is for.
    fn kept(&self, request: &AlignmentRequest) -> Option<(CostsRequest, Vec<usize>)> {
        let &AlignmentRequest { slot, positions, .. } = request;
        let Predicted { all, text } = request.decoded_at.as_ref()?;
        let text_positions: Vec<usize> = all.clone().collect();
        let rows = text.iter().map(|position| position.checked_sub(all.start)).collect::<Option<_>>()?;
        let has_scores = self.decoder.has_scores(&text_positions);
        has_scores.then_some((CostsRequest { slot, text_positions, positions }, rows))
    }
}

/// Extends the sequences by the tokens that the device chose. A sequence that was cleared or finished meanwhile
/// takes nothing.
fn take(found: Vec<Found>, sequences: &mut Sequences, end_of_text: TokenId) {
    for Found { slot, wanted, outcome } in found {
        let Some(sequence) = sequences.get_mut(slot) else { continue };
        if wanted.no_speech {
            sequence.no_speech_probability = outcome.no_speech;
        }
        if wanted.choice {
            sequence.take(&outcome, end_of_text);
        }
    }
}

impl Backend for CudaBackend {
    /// Enqueues the work beside the decoder's, and returns.
    fn encode(&mut self, requests: &[EncodeRequest], frames: usize) -> Result<(), Error> {
        let states = self.states(requests, frames)?;
        let slots: Vec<SlotId> = requests.iter().map(|request| request.slot).collect();
        self.set_audio(&slots, &states)
    }

    fn is_encoded(&mut self, slots: &[SlotId]) -> Result<bool, Error> {
        self.decoder.is_filled(slots)
    }

    fn wait_encoded(&mut self, slots: &[SlotId]) -> Result<(), Error> {
        self.decoder.wait_filled(slots)
    }

    fn logits(&mut self, runs: &[Run], wanted: &[usize], tokens: Range<usize>) -> Result<Logits, Error> {
        self.decoder.forward(runs, wanted, tokens)
    }

    fn begin(&mut self, starts: Vec<Start>, sequences: &mut Sequences) -> Result<(), Error> {
        let prefills = starts.iter().map(|start| Prefill {
            run: start.run(),
            start_of_transcript: start.start_of_transcript,
            state: start.sequence.state(),
            bias: start.sequence.bias(),
        });
        self.decoder.begin(&prefills.collect::<Vec<_>>())?;
        for start in starts {
            sequences.replace(start.slot, start.sequence);
        }
        Ok(())
    }

    /// Enqueues a step, and takes the tokens of what was enqueued before: the last step, and prompts since then.
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
                Some((costs, rows)) => kept.push((costs, (index, rows))),
                None => others.push(index),
            }
        }
        let (costs, wanted): (Vec<CostsRequest>, Vec<(usize, Vec<usize>)>) = kept.into_iter().unzip();
        let pending = self.decoder.alignment_costs(&costs)?;
        let mut attention: Vec<(usize, Box<dyn Attention>)> = Vec::with_capacity(requests.len());
        for ((index, rows), pending) in wanted.into_iter().zip(pending) {
            attention.push((index, Box::new(Gathered { pending, rows })));
        }
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

/// Costs that the device makes of the scores it has kept, and the rows of them that are wanted.
struct Gathered {
    pending: PendingCosts,
    rows: Vec<usize>,
}

impl Attention for Gathered {
    fn costs(self: Box<Self>) -> Result<Costs, Error> {
        let Self { pending, rows } = *self;
        let positions = pending.positions;
        let all = pending.wait()?;
        let wanted = rows.iter().filter_map(|&row| all.chunks_exact(positions).nth(row));
        Ok(Costs { values: wanted.flatten().copied().collect(), rows: rows.len(), positions })
    }
}
