//! The device's choice of tokens and its logits against the host's, on a small model with random weights: emulated
//! everywhere, and on a GPU if there is one. Whole windows are in `tests.rs` beside this.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::tests::{BF16_TOLERANCE, FP8_TOLERANCE, Normal, SHAPE, small, tokenizer};
use crate::cpu::Threads;
use crate::cuda::emulated::devices;
use crate::cuda::{Address, Device, Kernel, Outcome, Row, State, TrieNode, Wanted};
use crate::engine::{SlotId, Term, Token};
use crate::models::whisper::bias::tests::Spelled;
use crate::models::whisper::bias::{Bias, continues_word};
use crate::models::whisper::decoder::{Run, device, host, torch};
use crate::models::whisper::rules::{self, Rules};
use crate::models::whisper::sequence::Sequence;
use crate::models::whisper::tokenizer::Tokenizer;

const SLOTS: usize = 4;

/// Rules that leave out every seventh token.
fn some_rules(tokenizer: &Tokenizer) -> Rules {
    Rules::new(tokenizer, Some((0..350).step_by(7).collect()), Some(vec![32, tokenizer.special.end_of_text]))
}

fn address(tensor: &Tensor) -> Address {
    // SAFETY: contiguous memory of the tensor, which each test keeps to its end.
    unsafe { Address::new(tensor.data_ptr()) }
}

/// The kernel `choose` alone, for as many slots as rows.
struct Chooser {
    torch_device: tch::Device,
    device: Box<dyn Device>,
    table: rules::Table,
    suppressed: Tensor,
    states: Tensor,
    tries: Tensor,
    /// Nodes in the trie of a slot.
    trie_size: usize,
    gains: Tensor,
}

impl Chooser {
    fn new(
        torch_device: tch::Device,
        device: Box<dyn Device>,
        table: rules::Table,
        states: &[State],
        biases: &[Option<Arc<Bias>>],
    ) -> Self {
        let mut bytes = Vec::new();
        states.iter().for_each(|state| state.write(&mut bytes));
        let nodes: Vec<Vec<TrieNode>> = biases
            .iter()
            .map(|bias| bias.as_ref().map(|bias| bias.nodes().to_vec()).unwrap_or_default())
            .collect();
        let trie_size = nodes.iter().map(Vec::len).max().unwrap_or(0);
        let mut tries = vec![0u8; nodes.len() * trie_size * TrieNode::BYTES];
        for (slot, nodes) in nodes.iter().enumerate() {
            let mut bytes = Vec::new();
            nodes.iter().for_each(|node| node.write(&mut bytes));
            tries[slot * trie_size * TrieNode::BYTES..][..bytes.len()].copy_from_slice(&bytes);
        }
        Self {
            torch_device,
            device,
            suppressed: Tensor::from_slice(&table.suppressed).to_device(torch_device),
            states: Tensor::from_slice(&bytes).to_device(torch_device),
            tries: Tensor::from_slice(&tries).to_device(torch_device),
            trie_size,
            gains: Tensor::zeros(
                [states.len() as i64, table.suppressed.len() as i64],
                (Kind::Float, torch_device),
            ),
            table,
        }
    }

    fn choose(&mut self, rows: &[Row], position: i32, logits: &[f32]) -> Vec<Outcome> {
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.write(&mut bytes));
        let row_bytes = Tensor::from_slice(&bytes).to_device(self.torch_device);
        let positions: Vec<i32> =
            rows.iter().map(|row| if row.slot.is_some() { position } else { -1 }).collect();
        let positions = Tensor::from_slice(&positions).to_device(self.torch_device);
        let logits = Tensor::from_slice(logits).to_device(self.torch_device);
        let length = rows.len() * Outcome::BYTES;
        let outcomes = Tensor::zeros([length as i64], (Kind::Uint8, self.torch_device));
        let arguments = [
            address(&row_bytes).into(),
            address(&positions).into(),
            address(&logits).into(),
            address(&self.suppressed).into(),
            self.table.suppressed.len().into(),
            self.table.end_of_text.into(),
            self.table.timestamp_begin.into(),
            self.table.initial_timestamp_max.into(),
            self.table.no_speech.into(),
            448.into(),
            address(&self.tries).into(),
            self.trie_size.into(),
            address(&self.gains).into(),
            address(&self.states).into(),
            address(&outcomes).into(),
        ];
        self.device.after_libtorch().expect("the device works");
        self.device.launch(Kernel::Choose, [rows.len(), 1, 1], &arguments).expect("launched");
        let download = self.device.download(address(&outcomes), length).expect("enqueued");
        Outcome::read_all(&self.device.wait(download).expect("the device works"))
    }
}

#[test]
fn tokens_are_chosen_by_the_same_rules() {
    let tokenizer = tokenizer();
    let rules = some_rules(&tokenizer);
    let special = &tokenizer.special;
    // They begin alike, lie in one another, and one is unwanted; the last ones stand first alone.
    let (anywhere, first) = (TrieNode::ANYWHERE, TrieNode::FIRST);
    let terms: [Spelled; 8] = [
        (anywhere, &[1, 2, 3, 4], 10.0),
        (anywhere, &[1, 2, 5], 1.5),
        (anywhere, &[2, 3, 6], 2.0),
        (anywhere, &[3, 1], 1.0),
        (anywhere, &[8], 3.0),
        (anywhere, &[2, 3], -1.0),
        (first, &[8, 1, 9], 1.0),
        (first, &[1, 9], 1.0),
    ];
    let continues = |token| continues_word(tokenizer.bytes(token));
    let kinds = (special.end_of_text, special.timestamp_begin);
    let bias = Arc::new(Bias::of_tokens(&terms, kinds, continues));
    for (torch_device, device) in devices() {
        // (forced, with terms)
        let attempts = [
            (None, false),
            (None, true),
            (None, false),
            (Some(30), false),
            (Some(5), false),
            (Some(35), true),
        ];
        let biases: Vec<Option<Arc<Bias>>> =
            attempts.iter().map(|&(_, terms)| terms.then(|| bias.clone())).collect();
        let mut sequences: Vec<Sequence> = attempts
            .iter()
            .zip(&biases)
            .map(|(&(forced, _), bias)| Sequence::new(0.0, 0, forced, bias.clone()))
            .collect();
        let states: Vec<State> = sequences.iter().map(Sequence::state).collect();
        let mut chooser = Chooser::new(torch_device, device, rules.table(&tokenizer), &states, &biases);
        let mut random = Normal(1);
        let (mut tried, mut taken_back) = (0, 0);
        // Terms that are taken back take steps of their own.
        for step in 0..120 {
            let mut logits: Vec<f32> =
                (0..sequences.len() * SHAPE.vocabulary).map(|_| random.draw() * 2.0).collect();
            let mut rows = Vec::new();
            for (slot, logits) in logits.chunks_exact_mut(SHAPE.vocabulary).enumerate() {
                // Now text, now timestamps, now the end are likely.
                let begin = special.timestamp_begin as usize;
                let more = random.draw() * 3.0 - 3.0;
                logits[begin..].iter_mut().for_each(|logit| *logit += more);
                logits[special.end_of_text as usize] += if step > 20 { 6.0 } else { -6.0 };
                let wanted = Wanted { no_speech: step == 0, choice: true };
                rows.push(match sequences[slot].finished {
                    true => Row::NONE,
                    false => Row { wanted, ..Row::step(slot, slot) },
                });
            }
            let outcomes = chooser.choose(&rows, step, &logits);
            for (slot, logits) in logits.chunks_exact_mut(SHAPE.vocabulary).enumerate() {
                let outcome = outcomes[slot];
                let sequence = &mut sequences[slot];
                if sequence.finished {
                    assert_eq!(outcome.token, None);
                    continue;
                }
                if step == 0 {
                    let expected = (logits[special.no_speech as usize] - rules::log_sum_exp(logits)).exp();
                    assert!((outcome.no_speech - expected).abs() < 1e-5);
                }
                let length = sequence.tokens.len();
                let mut unbiased = logits.to_vec();
                rules.apply(&mut unbiased, &sequence.tokens);
                sequence.advance(logits, &rules);
                let ended = sequence.finished && outcome.token == Some(special.end_of_text);
                let expected = if ended {
                    Token { id: special.end_of_text, probability: outcome.probability }
                } else {
                    *sequence.tokens.last().expect("one was written")
                };
                assert_eq!(outcome.token, Some(expected.id), "slot {slot}, step {step}");
                let best = unbiased.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let is_back = outcome.written < length;
                tried += usize::from(!is_back && unbiased[expected.id as usize] < best);
                taken_back += usize::from(is_back);
                assert_eq!(outcome.written, sequence.tokens.len() - usize::from(!ended));
                assert_eq!(outcome.finished, sequence.finished, "slot {slot}, step {step}");
                assert!((outcome.probability - expected.probability).abs() < 1e-5);
                let log_probability = sequence.last_log_probability();
                assert!((outcome.log_probability - log_probability).abs() < 1e-3);
            }
        }
        assert!(sequences.iter().all(|sequence| sequence.finished));
        assert_eq!([sequences[3].tokens.len(), sequences[4].tokens.len()], [30, 5]);
        println!("{tried} tokens for the terms' sake, {taken_back} terms taken back");
        assert!(tried > 15 && taken_back > 5, "{tried}, {taken_back}");
        let gains = f64::try_from(chooser.gains.abs().max()).expect("a number");
        assert_eq!(gains, 0.0, "what tokens gain is put away");
        let timestamps = sequences.iter().flat_map(|sequence| &sequence.tokens);
        assert!(timestamps.filter(|token| tokenizer.is_timestamp(token.id)).count() > 10);
    }
}

#[test]
fn with_a_temperature_tokens_come_as_often_as_they_are_likely() {
    let tokenizer = tokenizer();
    let rules = Rules::new(&tokenizer, Some(vec![0]), None);
    let bias = Arc::new(Bias::new(&[Term { text: "b".into(), weight: 2.0 }], &tokenizer));
    let letter = |letter: char| tokenizer.encode(&letter.to_string())[0] as usize;
    for (torch_device, device) in devices() {
        let state = |seed| State { tokens_max: 10, forced: false, temperature: 0.5, seed, terms: true };
        let states: Vec<State> = (0..400).map(state).collect();
        let mut chooser = Chooser::new(
            torch_device,
            device,
            rules.table(&tokenizer),
            &states,
            &vec![Some(bias.clone()); 400],
        );
        // The first token is a timestamp: of two, one is e times as likely at temperature 1, e² times at 0.5.
        let begin = tokenizer.special.timestamp_begin as usize;
        let mut logits = vec![-50.0; 100 * SHAPE.vocabulary];
        for row in logits.chunks_exact_mut(SHAPE.vocabulary) {
            (row[begin + 3], row[begin + 4]) = (1.0, 0.0);
        }
        let mut likelier = 0;
        for part in 0..4 {
            let rows: Vec<Row> = (0..100).map(|row| Row::step(part * 100 + row, row)).collect();
            for outcome in chooser.choose(&rows, 0, &logits) {
                let token = outcome.token.expect("chosen") as usize;
                assert!(token == begin + 3 || token == begin + 4, "{token}");
                likelier += usize::from(token == begin + 3);
            }
        }
        // 0.881 of 400, give or take four deviations.
        assert!((327..=378).contains(&likelier), "{likelier}");

        // Then a word: of two that are as likely, the one that is expected. Its probability is what it was.
        logits.fill(-50.0);
        for row in logits.chunks_exact_mut(SHAPE.vocabulary) {
            (row[letter('a')], row[letter('b')]) = (1.0, 1.0);
        }
        for part in 0..4 {
            let rows: Vec<Row> = (0..100).map(|row| Row::step(part * 100 + row, row)).collect();
            for outcome in chooser.choose(&rows, 1, &logits) {
                assert_eq!(outcome.token, Some(letter('b') as u32));
                assert!((outcome.log_probability - 0.5f32.ln()).abs() < 1e-4);
            }
        }
    }
}

/// (layer, head), by layer.
fn alignment_heads() -> Vec<(usize, usize)> {
    vec![(1, 0), (1, 1)]
}

#[test]
fn logits_are_those_of_the_host_whatever_else_is_in_the_launch() {
    let tokenizer = tokenizer();
    let table = || some_rules(&tokenizer).table(&tokenizer);
    let mut random = Normal(2);
    let length = 300;
    let audio: Vec<f32> = (0..length * SHAPE.width).map(|_| random.draw()).collect();
    let on_cpu = host::Placement {
        slots: SLOTS,
        numbers: host::Numbers::F32,
        threads: Threads::new(1),
        alignment_heads: alignment_heads(),
    };
    let mut host = host::Decoder::new(small(), on_cpu).expect("it fits");
    host.set_audio(SlotId(1), &audio);
    // Longer than the largest launch.
    let long: Vec<u32> = (0..100).map(|n| n * 17 % 360).collect();
    let wanted = [0, 63, 64, 99];
    let all = || 0..SHAPE.vocabulary;
    let kinds = [(Kind::BFloat16, BF16_TOLERANCE), (Kind::Float8e4m3fn, FP8_TOLERANCE)];
    for ((torch_device, device), (audio_kind, tolerance)) in
        kinds.into_iter().flat_map(|kind| devices().into_iter().map(move |device| (device, kind)))
    {
        let placement = torch::Placement {
            slots: SLOTS,
            torch_device,
            kind: Kind::BFloat16,
            audio_kind,
            alignment_heads: alignment_heads(),
        };
        let mut decoder = device::Decoder::new(&small(), placement, device, table()).expect("it fits");
        let states = Tensor::from_slice(&audio).view([1, length as i64, SHAPE.width as i64]);
        let states = states.to_kind(Kind::BFloat16).to_device(torch_device);
        for slot in [1, 3] {
            decoder.set_audio(&[SlotId(slot)], &states).expect("it fits");
        }
        let run = |slot| Run { slot: SlotId(slot), position: 0, tokens: &long };
        let expected = host.forward(&[run(1)], &wanted);
        let alone = decoder.forward(&[run(1)], &wanted, all()).expect("it works");
        let worst = expected.values.iter().zip(&alone.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("logits with audio in {audio_kind:?} are off by {worst}");
        assert!(worst < tolerance, "{worst}");
        let some = decoder.forward(&[run(1)], &wanted, 365..380).expect("it works");
        assert_eq!(some.values, alone.of(365..380).values);
        let short = Run { slot: SlotId(3), position: 0, tokens: &long[..30] };
        let after: Vec<usize> = wanted.iter().map(|row| row + 30).collect();
        let together = decoder.forward(&[short, run(1)], &after, all()).expect("it works");
        assert_eq!(alone.values, together.values);
        // A token at a time is the same as a prompt.
        for (position, token) in long.iter().enumerate().take(40) {
            let one = Run { slot: SlotId(3), position, tokens: std::slice::from_ref(token) };
            let logits = decoder.forward(&[one], &[0], all()).expect("it works");
            if position == 39 {
                let at_once = decoder
                    .forward(&[Run { tokens: &long[..40], ..run(1) }], &[39], all())
                    .expect("it works");
                assert_eq!(logits.values, at_once.values);
            }
        }
        let looked_at = decoder.alignment(&[run(1)]).expect("it works");
        let expected = host.alignment(&[run(1)]);
        let pairs = looked_at[0].values.iter().zip(&expected[0].values);
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("attention with audio in {audio_kind:?} is off by {worst}");
        assert!(worst < tolerance / 6.0, "{worst}");
    }
}
