//! The device's way of decoding against the host's, on a small model with random weights: emulated everywhere, and
//! on a GPU where there is one.

use tch::{Kind, Tensor};

use crate::audio::Pcm;
use crate::cpu::Threads;
use crate::cuda::emulated::devices;
use crate::cuda::{Address, Device, Kernel, Outcome, Row, State, Wanted};
use crate::engine::{
    DecodingOptions, EncodeRequest, LanguageChoice, SlotId, SpeechModel, StepOutcome, Token,
};
use crate::models::weights::{self, Shape, Weights};
use crate::models::whisper::decoder::{Decoder, Numbers, OnDevice, Placement, Run};
use crate::models::whisper::encoder::AudioStates;
use crate::models::whisper::generation::Generation;
use crate::models::whisper::load::{Hall, Model};
use crate::models::whisper::rules::Rules;
use crate::models::whisper::sequence::Sequence;
use crate::models::whisper::tokenizer::Tokenizer;
use crate::models::whisper::{Lengths, Whisper, rules};
use crate::models::{AudioContext, ComputeType, Config};

const SHAPE: Shape =
    Shape { name: "small", width: 128, encoder_layers: 2, decoder_layers: 2, bands: 80, vocabulary: 1870 };
/// So large that attention and logits are far from even.
const DEVIATION: f64 = 0.1;
const SLOTS: usize = 4;
/// Of every attempt at a window.
const TOKENS: usize = 16;
/// How far a logit in bf16 may be from one in f32 in this model, whose logits have a deviation of about 1.
const LOGIT_TOLERANCE: f32 = 0.12;

/// The same at every call.
fn small() -> Weights {
    tch::manual_seed(7);
    weights::random(&SHAPE, DEVIATION, (tch::Device::Cpu, Kind::Float)).expect("memory")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::synthetic(SHAPE.vocabulary).expect("large enough")
}

/// Rules that leave out every seventh token.
fn some_rules(tokenizer: &Tokenizer) -> Rules {
    Rules::new(tokenizer, Some((0..350).step_by(7).collect()), Some(vec![32, tokenizer.special.end_of_text]))
}

/// Normal numbers that do not depend on libtorch's generator.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }

    fn draw(&mut self) -> f32 {
        ((-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()) as f32
    }
}

fn address(tensor: &Tensor) -> Address {
    // SAFETY: contiguous memory of the tensor, which each test keeps to its end.
    unsafe { Address::new(tensor.data_ptr()) }
}

/// The kernel `choose` alone, for as many slots as rows.
struct Chooser {
    place: tch::Device,
    device: Box<dyn Device>,
    table: rules::Table,
    suppressed: Tensor,
    states: Tensor,
}

impl Chooser {
    fn new(place: tch::Device, device: Box<dyn Device>, table: rules::Table, states: &[State]) -> Self {
        let mut bytes = Vec::new();
        states.iter().for_each(|state| state.write(&mut bytes));
        let suppressed = Tensor::from_slice(&table.suppressed).to_device(place);
        Self { place, device, table, suppressed, states: Tensor::from_slice(&bytes).to_device(place) }
    }

    fn choose(&mut self, rows: &[Row], position: i32, logits: &[f32]) -> Vec<Outcome> {
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.write(&mut bytes));
        let row_bytes = Tensor::from_slice(&bytes).to_device(self.place);
        let positions: Vec<i32> =
            rows.iter().map(|row| if row.slot.is_some() { position } else { -1 }).collect();
        let positions = Tensor::from_slice(&positions).to_device(self.place);
        let logits = Tensor::from_slice(logits).to_device(self.place);
        let length = rows.len() * Outcome::BYTES;
        let outcomes = Tensor::zeros([length as i64], (Kind::Uint8, self.place));
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
    for (place, device) in devices() {
        let attempts = [None, None, None, Some(30), Some(5)];
        let mut sequences: Vec<Sequence> =
            attempts.iter().map(|&forced| Sequence::new(0.0, 0, forced, None)).collect();
        let states: Vec<State> = sequences.iter().map(Sequence::state).collect();
        let mut chooser = Chooser::new(place, device, rules.table(&tokenizer), &states);
        let mut random = Normal(1);
        for step in 0..40 {
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
                let before = sequence.average_log_probability() * (sequence.tokens.len() + 1) as f32;
                sequence.advance(logits, &rules, &tokenizer);
                let after = sequence.average_log_probability() * (sequence.tokens.len() + 1) as f32;
                let ended = sequence.finished && outcome.token == Some(special.end_of_text);
                let expected = if ended {
                    Token { id: special.end_of_text, probability: outcome.probability }
                } else {
                    *sequence.tokens.last().expect("one was written")
                };
                assert_eq!(outcome.token, Some(expected.id), "slot {slot}, step {step}");
                assert_eq!(outcome.finished, sequence.finished, "slot {slot}, step {step}");
                assert!((outcome.probability - expected.probability).abs() < 1e-5);
                assert!((outcome.log_probability - (after - before)).abs() < 1e-3);
            }
        }
        assert!(sequences.iter().all(|sequence| sequence.finished));
        assert_eq!([sequences[3].tokens.len(), sequences[4].tokens.len()], [30, 5]);
        let timestamps = sequences.iter().flat_map(|sequence| &sequence.tokens);
        assert!(timestamps.filter(|token| tokenizer.is_timestamp(token.id)).count() > 10);
    }
}

#[test]
fn with_a_temperature_tokens_come_as_often_as_they_are_likely() {
    let tokenizer = tokenizer();
    let rules = Rules::new(&tokenizer, Some(vec![0]), None);
    for (place, device) in devices() {
        let state = |seed| State { tokens_max: 10, forced: false, temperature: 0.5, seed };
        let states: Vec<State> = (0..400).map(state).collect();
        let mut chooser = Chooser::new(place, device, rules.table(&tokenizer), &states);
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
    }
}

fn placement(place: tch::Device, kind: Kind) -> Placement {
    Placement {
        slots: SLOTS,
        place,
        kind,
        numbers: Numbers::F32,
        threads: Threads::new(1),
        alignment_heads: vec![(1, 0), (1, 1)],
    }
}

#[test]
fn logits_are_those_of_the_host_whatever_else_is_in_the_launch() {
    let tokenizer = tokenizer();
    let table = || some_rules(&tokenizer).table(&tokenizer);
    let mut random = Normal(2);
    let length = 300;
    let audio: Vec<f32> = (0..length * SHAPE.width).map(|_| random.draw()).collect();
    let mut host = Decoder::new(small(), placement(tch::Device::Cpu, Kind::Float), None).expect("it fits");
    host.set_audio(&[SlotId(1)], &[AudioStates::Host(audio.clone())]).expect("it fits");
    // Longer than the largest launch.
    let long: Vec<u32> = (0..100).map(|n| n * 17 % 360).collect();
    let wanted = [0, 63, 64, 99];
    for (place, device) in devices() {
        let on_device: OnDevice = (device, table());
        let mut decoder =
            Decoder::new(small(), placement(place, Kind::BFloat16), Some(on_device)).expect("it fits");
        let states = Tensor::from_slice(&audio).view([1, length as i64, SHAPE.width as i64]);
        let states = states.to_kind(Kind::BFloat16).to_device(place);
        for slot in [1, 3] {
            decoder.set_audio(&[SlotId(slot)], &[AudioStates::Torch(states.copy())]).expect("it fits");
        }
        let run = |slot| Run { slot: SlotId(slot), position: 0, tokens: &long };
        let expected = host.forward(&[run(1)], &wanted).expect("it works");
        let alone = decoder.forward(&[run(1)], &wanted).expect("it works");
        let worst = expected.values.iter().zip(&alone.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < LOGIT_TOLERANCE, "{worst}");
        let short = Run { slot: SlotId(3), position: 0, tokens: &long[..30] };
        let after: Vec<usize> = wanted.iter().map(|row| row + 30).collect();
        let together = decoder.forward(&[short, run(1)], &after).expect("it works");
        assert_eq!(alone.values, together.values);
        // A token at a time is the same as a prompt.
        for (position, token) in long.iter().enumerate().take(40) {
            let one = Run { slot: SlotId(3), position, tokens: std::slice::from_ref(token) };
            let logits = decoder.forward(&[one], &[0]).expect("it works");
            if position == 39 {
                let at_once =
                    decoder.forward(&[Run { tokens: &long[..40], ..run(1) }], &[39]).expect("it works");
                assert_eq!(logits.values, at_once.values);
            }
        }
        let looked_at = decoder.alignment(&[run(1)]).expect("it works");
        let expected = host.alignment(&[run(1)]).expect("it works");
        let pairs = looked_at[0].values.iter().zip(&expected[0].values);
        assert!(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) < 0.02);
    }
}

fn model(config: &Config, hall: Hall) -> Whisper {
    let tokenizer = tokenizer();
    let generation = Generation { suppressed: Some((0..350).step_by(7).collect()), ..Generation::default() };
    let model = Model { name: "small".into(), weights: small(), tokenizer, generation };
    let mut model = Whisper::build(model, config, hall).expect("it fits");
    // It would talk until it is stopped.
    model.lengths = Some(Lengths::between(TOKENS, TOKENS));
    model
}

fn options() -> DecodingOptions {
    DecodingOptions {
        language: LanguageChoice::Named("en".into()),
        temperatures: vec![0.0, 0.4],
        ..DecodingOptions::default()
    }
}

fn tones(seed: u32) -> Pcm {
    let samples = (0..48_000 + 8000 * seed).map(|n| {
        let t = n as f32 / 16_000.0;
        ((t * (200.0 + 50.0 * seed as f32)).sin() * 9000.0).round() / 32_768.0
    });
    Pcm::new(samples.collect::<Vec<_>>())
}

/// All attempts in `slots` to their ends: what each wrote.
fn decode(model: &mut Whisper, slots: &[usize], temperature: f32) -> Vec<Vec<Token>> {
    let options = options();
    let slots: Vec<SlotId> = slots.iter().copied().map(SlotId).collect();
    let attempts: Vec<_> = slots.iter().map(|&slot| (slot, &options, temperature)).collect();
    model.begin(&attempts).expect("it works");
    let mut active = slots.clone();
    while !active.is_empty() {
        let outcomes = model.step(&active).expect("it works");
        let running = active.iter().zip(outcomes);
        active =
            running.filter(|(_, outcome)| *outcome == StepOutcome::Running).map(|(&slot, _)| slot).collect();
    }
    let hypotheses = model.finish(&slots).expect("it works");
    hypotheses.into_iter().map(|hypothesis| hypothesis.tokens).collect()
}

fn encode(model: &mut Whisper, seed: u32, slot: usize) {
    let pcm = tones(seed);
    model.encode(&[EncodeRequest { slot: SlotId(slot), pcm: &pcm }]).expect("it works");
}

#[test]
fn a_window_comes_to_the_same_tokens_as_on_the_host_alone_and_in_company() {
    let config = Config {
        compute_type: ComputeType::F32,
        audio_context: AudioContext::Full,
        threads: 2,
        slots: SLOTS,
        ..Config::default()
    };
    let mut host = model(&config, Hall { place: tch::Device::Cpu, device: None, name: "cpu".into() });
    encode(&mut host, 1, 0);
    let expected = decode(&mut host, &[0], 0.0).remove(0);
    assert_eq!(expected.len(), TOKENS);
    for (place, device) in devices() {
        let config = Config { compute_type: ComputeType::Bf16, ..config.clone() };
        let mut ours = model(&config, Hall { place, device: Some(device), name: "test".into() });
        encode(&mut ours, 1, 2);
        let alone = decode(&mut ours, &[2], 0.0).remove(0);
        follows(&mut host, &alone);
        let same = expected.iter().zip(&alone).take_while(|(a, b)| a.id == b.id).count();
        println!("on {place:?} the first {same} of {} tokens are those of the reference", expected.len());
        assert!(same >= 8, "{same}");

        // A second attempt, then the slot's next window, with others beside them.
        let again = decode(&mut ours, &[2], 0.4).remove(0);
        assert_ne!(again, alone);
        for (seed, slot) in [(3, 0), (1, 1), (2, 2)] {
            encode(&mut ours, seed, slot);
        }
        let together = decode(&mut ours, &[0, 1, 2], 0.0);
        assert_eq!(together[1], alone);
        assert_ne!(together[2], alone);

        let mut hypothesis = ours.finish(&[SlotId(1)]).expect("it works").remove(0);
        ours.align(&mut [(SlotId(1), &mut hypothesis)]).expect("it works");
        let words: Vec<_> = hypothesis.segments.iter().flat_map(|segment| &segment.words).collect();
        assert!(words.windows(2).all(|pair| pair[0].start <= pair[1].start), "{words:?}");

        // Others join and leave while it runs.
        let options = options();
        ours.begin(&[(SlotId(1), &options, 0.0)]).expect("it works");
        let mut steps = 0;
        loop {
            steps += 1;
            let mut active = vec![SlotId(1)];
            if steps % 5 == 2 {
                ours.begin(&[(SlotId(0), &options, 0.0)]).expect("it works");
                active.insert(0, SlotId(0));
            }
            let outcomes = ours.step(&active).expect("it works");
            if outcomes.last() == Some(&StepOutcome::Finished) {
                break;
            }
        }
        assert_eq!(ours.finish(&[SlotId(1)]).expect("it works")[0].tokens, alone);
    }
}

/// Each token of `written` is one that the reference, given those before it, finds as likely as its own choice, to
/// within what bf16 may be off. `host` has the window's audio in slot 0.
fn follows(host: &mut Whisper, written: &[Token]) {
    let mut tokens = host.opening(&host.slots[0]);
    let prefix = tokens.len();
    tokens.extend(written.iter().map(|token| token.id));
    let wanted: Vec<usize> = (prefix - 1..tokens.len() - 1).collect();
    let run = Run { slot: SlotId(0), position: 0, tokens: &tokens };
    let mut logits = host.decoder.forward(&[run], &wanted).expect("it works");
    for (index, logits) in logits.rows_mut().enumerate() {
        logits[host.tokenizer.special.end_of_text as usize] = f32::NEG_INFINITY;
        host.rules.apply(logits, &written[..index]);
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let chosen = logits[written[index].id as usize];
        assert!(best - chosen <= 2.0 * LOGIT_TOLERANCE, "token {index}: {chosen} against {best}");
    }
}
