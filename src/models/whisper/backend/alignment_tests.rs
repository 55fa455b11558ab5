//! Costs of word times from the scores that the device keeps while it decodes, against libtorch's pass over the same
//! tokens and the host's arithmetic: on a small model with random weights, emulated everywhere, and on a GPU if there is
//! one.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use super::tests::{BF16_TOLERANCE, FP8_TOLERANCE, Normal, SHAPE, small, tokenizer};
use super::{AlignmentRequest, Backend, Costs, CudaBackend, Start};
use crate::cuda::emulated::devices;
use crate::engine::{SlotId, Term};
use crate::models::whisper::bias::Bias;
use crate::models::whisper::decoder::device::{self, CostsRequest, Found, Prefill};
use crate::models::whisper::decoder::{AlignmentWeights, Run, torch};
use crate::models::whisper::rules::Rules;
use crate::models::whisper::sequence::{Predicted, Sequence, Sequences};
use crate::models::whisper::tokenizer::Tokenizer;

const SLOTS: usize = 3;
/// Tokens of every attempt.
const TOKENS: usize = 14;
/// Audio positions of each slot: more than a block of the kernels takes, few, one.
const LENGTHS: [usize; SLOTS] = [300, 97, 1];
/// Tokens of each slot's prompt. The first one's text reaches beyond the rows that are kept, and begins anew.
const PROMPTS: [usize; SLOTS] = [250, 4, 1];

fn placement(torch_device: Device, audio_kind: Kind) -> torch::Placement {
    torch::Placement {
        slots: SLOTS,
        torch_device,
        kind: Kind::BFloat16,
        audio_kind,
        alignment_heads: vec![(0, 1), (1, 0), (1, 1)],
    }
}

/// The encoder's output for a slot: (1, positions, d).
fn audio(slot: usize, torch_device: Device) -> Tensor {
    let mut random = Normal(5 + slot as u64);
    let audio: Vec<f32> = (0..LENGTHS[slot] * SHAPE.width).map(|_| random.draw()).collect();
    let audio = Tensor::from_slice(&audio).view([1, LENGTHS[slot] as i64, SHAPE.width as i64]);
    audio.to_kind(Kind::BFloat16).to_device(torch_device)
}

struct Decoding<'a> {
    decoder: device::Decoder,
    tokenizer: &'a Tokenizer,
    sequences: Sequences,
    /// Terms that were taken back.
    returns: usize,
    /// A slot whose logits are asked for before each step.
    beside: Option<usize>,
    tolerance: f64,
}

impl<'a> Decoding<'a> {
    /// With audio in every slot, on each device and in each format of the audio.
    fn on_each(tokenizer: &'a Tokenizer) -> Vec<Self> {
        let kinds = [(Kind::BFloat16, BF16_TOLERANCE), (Kind::Float8e4m3fn, FP8_TOLERANCE)];
        let mut all = Vec::new();
        for (audio_kind, tolerance) in kinds {
            for (torch_device, device) in devices() {
                let placement = placement(torch_device, audio_kind);
                let rules = Rules::new(tokenizer, None, None);
                let mut decoder = device::Decoder::new(&small(), placement, device, rules.table(tokenizer))
                    .expect("it fits");
                for slot in 0..SLOTS {
                    decoder.set_audio(&[SlotId(slot)], &audio(slot, torch_device)).expect("it fits");
                }
                let sequences = Sequences::new(SLOTS);
                let tolerance = f64::from(tolerance);
                all.push(Self { decoder, tokenizer, sequences, returns: 0, beside: None, tolerance });
            }
        }
        all
    }

    fn prompt(slot: usize) -> Vec<u32> {
        (0..PROMPTS[slot] as u32).map(|n| n * 17 % 350).collect()
    }

    /// An attempt in each of `slots`, to its end.
    fn decode(&mut self, slots: &[usize], bias: Option<&Arc<Bias>>) {
        let end_of_text = self.tokenizer.special.end_of_text;
        let prompts: Vec<Vec<u32>> = slots.iter().map(|&slot| Self::prompt(slot)).collect();
        let mut sequences = Vec::new();
        for prompt in &prompts {
            let mut sequence = Sequence::new(0.0, 0, Some(TOKENS), bias.cloned());
            sequence.prompt = prompt.len();
            sequences.push(sequence);
        }
        let mut prefills = Vec::new();
        for ((&slot, prompt), sequence) in slots.iter().zip(&prompts).zip(&sequences) {
            prefills.push(Prefill {
                run: Run { slot: SlotId(slot), position: 0, tokens: prompt },
                start_of_transcript: prompt.len() - 1,
                state: sequence.state(),
                bias,
            });
        }
        self.decoder.begin(&prefills).expect("it works");
        for (&slot, sequence) in slots.iter().zip(sequences) {
            self.sequences.replace(SlotId(slot), sequence);
        }
        loop {
            let slots = slots.iter().copied().map(SlotId);
            let running: Vec<SlotId> = slots.filter(|&slot| self.sequences.running(slot).is_some()).collect();
            if let Some(slot) = self.beside {
                let run = Run { slot: SlotId(slot), position: 0, tokens: &[1, 2] };
                let logits = self.decoder.forward(&[run], &[0, 1], 5..8).expect("it works");
                assert_eq!(logits.values.len(), 6);
            }
            let found = self.decoder.step(&running).expect("it works");
            for Found { slot, outcome, .. } in found.into_iter().filter(|found| found.wanted.choice) {
                let sequence = self.sequences.get_mut(slot).expect("it was begun");
                self.returns += usize::from(!sequence.finished && outcome.written < sequence.tokens.len());
                sequence.take(&outcome, end_of_text);
            }
            if running.is_empty() {
                return;
            }
        }
    }

    /// Where the queries stand that predicted the tokens of a slot.
    fn text_positions(&self, slot: usize) -> Vec<usize> {
        let sequence = self.sequences.get(SlotId(slot)).expect("it was begun");
        assert_eq!(sequence.tokens.len(), TOKENS);
        (sequence.prompt - 1..sequence.prompt - 1 + TOKENS).collect()
    }

    /// The attention that the kept scores of a slot stand for.
    fn kept(&mut self, slot: usize, text_positions: &[usize]) -> AlignmentWeights {
        let scores = self.decoder.kept_scores(SlotId(slot), text_positions).expect("they are kept");
        let weights = scores.narrow(2, 0, LENGTHS[slot] as i64).softmax(2, Kind::Float);
        let (heads, tokens, positions) = weights.size3().expect("three dimensions");
        AlignmentWeights {
            values: weights.contiguous().view([-1]).try_into().expect("numbers"),
            heads: heads as usize,
            tokens: tokens as usize,
            positions: positions as usize,
        }
    }

    /// libtorch's attention in the same rows, if the whole text is given to it.
    fn passed(&mut self, slot: usize) -> AlignmentWeights {
        let mut tokens = Self::prompt(slot);
        let sequence = self.sequences.get(SlotId(slot)).expect("it was begun");
        tokens.extend(sequence.tokens.iter().map(|token| token.id));
        // Nothing was predicted after the last one.
        tokens.pop();
        let run = Run { slot: SlotId(slot), position: 0, tokens: &tokens };
        let all = self.decoder.alignment(&[run]).expect("it works").remove(0);
        let first = PROMPTS[slot] - 1;
        let heads = all.values.chunks_exact(all.tokens * all.positions);
        let rows = heads.flat_map(|head| &head[first * all.positions..]).copied();
        AlignmentWeights { values: rows.collect(), tokens: all.tokens - first, ..all }
    }

    /// Compares a slot's kept scores with libtorch's pass.
    fn check_scores(&mut self, slot: usize, what: &str) {
        let text_positions = self.text_positions(slot);
        let found = self.kept(slot, &text_positions);
        let expected = self.passed(slot);
        assert_eq!((found.heads, found.tokens), (expected.heads, expected.tokens), "{what}");
        let pairs = found.values.iter().zip(&expected.values);
        let worst = pairs.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        println!("attention of slot {slot} that was kept is off by {worst}: {what}");
        assert!(worst < self.tolerance / 4.0, "{what}, slot {slot}: {worst}");
        // Rows of other tokens are further off.
        let off = |shift: usize| -> f64 {
            let pairs = found.values.iter().zip(expected.values.iter().skip(shift * expected.positions));
            pairs.map(|(a, b)| f64::from((a - b).abs())).sum()
        };
        assert!(LENGTHS[slot] == 1 || 2.0 * off(0) < off(1), "{what}, slot {slot}: {} {}", off(0), off(1));
    }
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let pairs = found.iter().zip(expected);
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // Columns that hardly differ over the rows are scaled up with their rounding.
    assert!(worst < 5e-3, "{what}: {worst}");
}

/// Words that the model does not know.
fn terms(tokenizer: &Tokenizer) -> Arc<Bias> {
    let term = |letter: char| Term { text: format!("{letter}qzj"), weight: 1.5 };
    Arc::new(Bias::new(&('a'..='p').map(term).collect::<Vec<_>>(), tokenizer))
}

#[test]
fn scores_that_were_kept_are_those_of_the_whole_text() {
    let tokenizer = tokenizer();
    for mut decoding in Decoding::on_each(&tokenizer) {
        decoding.decode(&[0, 1, 2], None);
        (0..SLOTS).for_each(|slot| decoding.check_scores(slot, "first"));
        // Positions that were written for a term, and again without it.
        decoding.decode(&[1], Some(&terms(&tokenizer)));
        assert!(decoding.returns > 0, "no term was taken back");
        decoding.check_scores(1, "after terms");
        // The slot's next attempt, beside one that is as it was.
        decoding.decode(&[1, 2], None);
        (1..SLOTS).for_each(|slot| decoding.check_scores(slot, "again"));
    }
}

#[test]
fn logits_of_one_window_lose_no_token_of_another() {
    let tokenizer = tokenizer();
    for mut decoding in Decoding::on_each(&tokenizer) {
        let mut tokens = |beside: Option<usize>| {
            decoding.beside = beside;
            decoding.decode(&[0, 1], None);
            [0, 1].map(|slot| decoding.sequences.get(SlotId(slot)).expect("it was begun").tokens.clone())
        };
        let alone = tokens(None);
        assert_eq!(tokens(Some(2)), alone);
    }
}

#[test]
fn costs_on_the_device_are_those_of_the_host() {
    let tokenizer = tokenizer();
    for mut decoding in Decoding::on_each(&tokenizer) {
        decoding.decode(&[0, 1, 2], None);
        // With and without padding, rows with gaps, too few positions for the median, more than one launch takes.
        let some = |positions: &[usize]| positions.iter().copied().step_by(3).collect::<Vec<_>>();
        let of = [0, 1, 2].map(|slot| decoding.text_positions(slot));
        let wanted = [
            (0, of[0].clone(), 300),
            (0, of[0].clone(), 257),
            (0, some(&of[0]), 256),
            (0, some(&of[0]), 4),
            (0, of[0].clone(), 3),
            (1, of[1].clone(), 97),
            (1, of[1][..1].to_vec(), 97),
            (1, some(&of[1]), 80),
            (2, of[2].clone(), 1),
            (0, some(&of[0]), 299),
        ];
        let mut expected = Vec::new();
        for (slot, text_positions, positions) in &wanted {
            let kept = decoding.kept(*slot, text_positions);
            expected.push(kept.costs(0, text_positions.len(), *positions));
        }
        let request = |(slot, text_positions, positions): &(usize, Vec<usize>, usize)| CostsRequest {
            slot: SlotId(*slot),
            text_positions: text_positions.clone(),
            positions: *positions,
        };
        let requests: Vec<CostsRequest> = wanted.iter().map(request).collect();
        let pending = decoding.decoder.alignment_costs(&requests).expect("they are kept");
        // The slots are used again before the costs are read.
        decoding.decode(&[0, 1], Some(&terms(&tokenizer)));
        assert_eq!(pending.len(), wanted.len());
        let read = std::thread::spawn(move || {
            let read = |pending: device::PendingCosts| (pending.positions, pending.wait().expect("it works"));
            pending.into_iter().map(read).collect::<Vec<_>>()
        });
        let found = read.join().expect("no panic");
        for (((positions, found), expected), (slot, of, wanted)) in found.iter().zip(&expected).zip(&wanted) {
            assert_eq!(positions, wanted);
            let rows = of.len();
            assert_near(found, expected, &format!("slot {slot}, {rows} rows, {positions} positions"));
        }
    }
}

#[test]
fn windows_with_kept_scores_and_others_are_aligned_together() {
    let tokenizer = tokenizer();
    for (torch_device, device) in devices() {
        let placement = placement(torch_device, Kind::BFloat16);
        let table = Rules::new(&tokenizer, None, None).table(&tokenizer);
        let mut backend = CudaBackend::new(small(), placement, device, table).expect("it fits");
        let mut sequences = Sequences::new(SLOTS);
        let slots = [SlotId(0), SlotId(1)];
        let mut starts = Vec::new();
        for slot in slots {
            backend.set_audio(&[slot], &audio(slot.0, torch_device)).expect("it fits");
            let prompt = Decoding::prompt(slot.0);
            let mut sequence = Sequence::new(0.0, 0, Some(TOKENS), None);
            sequence.prompt = prompt.len();
            starts.push(Start { slot, start_of_transcript: prompt.len() - 1, prompt, sequence });
        }
        backend.begin(starts, &mut sequences).expect("it works");
        while slots.iter().any(|&slot| sequences.running(slot).is_some()) {
            backend.step(&slots, &mut sequences).expect("it works");
        }
        // The rows in `text`, of all those of the attempt.
        let request_for = |slot: usize, is_kept: bool, text: Range<usize>| {
            let mut tokens = Decoding::prompt(slot);
            let prefix = tokens.len() - 1;
            let sequence = sequences.get(SlotId(slot)).expect("it was begun");
            tokens.extend(sequence.tokens.iter().map(|token| token.id));
            AlignmentRequest {
                slot: SlotId(slot),
                prefix: prefix + text.start,
                rows: text.len(),
                decoded_at: is_kept.then(|| Predicted {
                    all: prefix..prefix + TOKENS,
                    text: text.map(|row| prefix + row).collect(),
                }),
                positions: LENGTHS[slot],
                tokens,
            }
        };
        let request = |slot: usize, is_kept: bool| request_for(slot, is_kept, 0..TOKENS);
        let mut costs = |requests: &[AlignmentRequest]| -> Vec<Costs> {
            let attention = backend.align(requests).expect("it works");
            attention.into_iter().map(|attention| attention.costs().expect("it works")).collect()
        };
        let wanted = [(1, true), (1, false), (0, true)];
        let alone = wanted.map(|(slot, is_kept)| costs(&[request(slot, is_kept)]).remove(0));
        assert!(alone[0].values != alone[1].values, "one way only");
        let together = costs(&wanted.map(|(slot, is_kept)| request(slot, is_kept)));
        assert_eq!(together.len(), wanted.len());
        for ((found, expected), (slot, _)) in together.iter().zip(&alone).zip(wanted) {
            assert_eq!((found.rows, found.positions), (TOKENS, LENGTHS[slot]));
            assert_eq!(found.values, expected.values);
        }
        // A single word among timestamps costs what it costs among all words: the attempt's rows are standardised
        // together, whichever are wanted.
        for ((slot, is_kept), whole) in wanted.into_iter().zip(&alone) {
            let word = costs(&[request_for(slot, is_kept, 5..7)]).remove(0);
            assert_eq!((word.rows, word.positions), (2, LENGTHS[slot]));
            assert_eq!(word.values, whole.values[5 * LENGTHS[slot]..7 * LENGTHS[slot]]);
        }
    }
}

#[test]
fn rows_that_are_not_kept_are_refused() {
    let tokenizer = tokenizer();
    let mut decoding = Decoding::on_each(&tokenizer).remove(0);
    assert!(decoding.decoder.has_scores(&[3, 258]));
    assert!(!decoding.decoder.has_scores(&[3, 259]));
    assert!(!decoding.decoder.has_scores(&[]));
    let request = CostsRequest { slot: SlotId(SLOTS), text_positions: vec![1], positions: 5 };
    assert!(decoding.decoder.alignment_costs(&[request]).is_err());
}
