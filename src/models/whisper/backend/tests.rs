//! One suite for all backends: the CPU's kernels in f32 (the reference), bf16 and int8, and the CUDA kernels with an
//! audio cache in bf16 and fp8, emulated everywhere and on a GPU if there is one. The model is small, with random
//! weights.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

use tch::{Kind, Tensor};

use super::{CudaBackend, HostBackend};
use crate::audio::Pcm;
use crate::cuda::emulated::devices;
use crate::cuda::{Stage, StageTimes};
use crate::engine::{
    Attempt, DecodingOptions, EncodeRequest, LanguageChoice, SlotId, SpeechModel, StepOutcome, Term, Token,
};
use crate::models::weights::{self, Shape, Weights};
use crate::models::whisper::bias::Bias;
use crate::models::whisper::decoder::Run;
use crate::models::whisper::generation::Generation;
use crate::models::whisper::load::{Accelerator, Hardware, Model};
use crate::models::whisper::rules::Rules;
use crate::models::whisper::synthetic::split_mix;
use crate::models::whisper::tokenizer::Tokenizer;
use crate::models::whisper::{Lengths, MIN_FRAMES, Slot, WINDOW_FRAMES, Whisper};
use crate::models::{AudioCacheType, AudioContext, ComputeType, Config};

pub const SHAPE: Shape =
    Shape { name: "small", width: 128, encoder_layers: 2, decoder_layers: 2, bands: 80, vocabulary: 1870 };
/// So large that attention and logits are far from even.
const DEVIATION: f32 = 0.1;
/// Tokens of every attempt at a window.
const TOKENS: usize = 16;
/// How far a logit may be from one in f32 in this model, whose logits have a deviation of about 1.
pub const BF16_TOLERANCE: f32 = 0.12;
pub const FP8_TOLERANCE: f32 = 0.2;
const INT8_TOLERANCE: f32 = 0.3;

/// The same at every call.
pub fn small() -> Weights {
    of_shape(&SHAPE)
}

fn of_shape(shape: &Shape) -> Weights {
    let random = RefCell::new(Normal(7));
    let numbers = |size: &[i64]| {
        let mut random = random.borrow_mut();
        let numbers: Vec<f32> = (0..size.iter().product()).map(|_: i64| random.draw() * DEVIATION).collect();
        Ok(Tensor::from_slice(&numbers).f_view(size)?)
    };
    weights::of_numbers(shape, (tch::Device::Cpu, Kind::Float), numbers).expect("memory")
}

/// Normal numbers that do not depend on libtorch's generator, of which other tests draw meanwhile.
pub struct Normal(pub u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        (split_mix(&mut self.0) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }

    pub fn draw(&mut self) -> f32 {
        ((-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()) as f32
    }
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::synthetic(SHAPE.vocabulary).expect("large enough")
}

struct Backend {
    name: String,
    model: Whisper,
    tolerance: f32,
    /// Windows that were encoded.
    heard: Vec<Heard>,
}

struct Heard {
    samples: usize,
    states: States,
}

/// An encoded window, as its backend keeps it.
enum States {
    Host(Vec<f32>),
    Cuda(Tensor),
}

impl States {
    fn of(model: &mut Whisper, pcm: &Pcm, frames: usize) -> Self {
        let requests = [EncodeRequest { slot: SlotId(0), pcm }];
        let backend: &mut dyn Any = model.backend.as_mut();
        if let Some(host) = backend.downcast_mut::<HostBackend>() {
            return Self::Host(host.states(&requests, frames).expect("it works").remove(0));
        }
        let cuda = backend.downcast_mut::<CudaBackend>().expect("there is no other");
        Self::Cuda(cuda.states(&requests, frames).expect("it works"))
    }

    fn put_into(&self, model: &mut Whisper, slot: SlotId) {
        let backend: &mut dyn Any = model.backend.as_mut();
        match self {
            Self::Host(states) => {
                backend.downcast_mut::<HostBackend>().expect("its own").set_audio(slot, states);
            }
            Self::Cuda(states) => {
                let cuda = backend.downcast_mut::<CudaBackend>().expect("its own");
                cuda.set_audio(&[slot], states).expect("it works");
            }
        }
    }
}

impl Backend {
    fn new(name: String, mut model: Whisper, tolerance: f32, windows: u32) -> Self {
        // It would talk until it is stopped.
        model.lengths = Some(Lengths::between(TOKENS, TOKENS));
        let heard = (0..windows).map(|seed| {
            let pcm = tones(seed);
            // The first one whole.
            let context = if seed == 0 { WINDOW_FRAMES } else { MIN_FRAMES };
            let states = tch::no_grad(|| States::of(&mut model, &pcm, context));
            Heard { samples: pcm.len(), states }
        });
        let heard = heard.collect();
        Self { name, model, tolerance, heard }
    }

    /// Puts a window into a slot, as if it was encoded there.
    fn hear(&mut self, window: usize, slot: usize) {
        let Heard { samples, states } = &self.heard[window];
        tch::no_grad(|| states.put_into(&mut self.model, SlotId(slot)));
        self.model.sequences.clear(SlotId(slot));
        self.model.slots[slot] = Slot { samples: *samples, ..Slot::default() };
    }

    /// All attempts, each a slot with its terms, to their ends: what each wrote.
    fn decode_with(&mut self, attempts: &[(usize, &Arc<[Term]>)], temperature: f32) -> Vec<Vec<Token>> {
        let options: Vec<DecodingOptions> = attempts.iter().map(|(_, terms)| options(terms)).collect();
        let slots: Vec<SlotId> = attempts.iter().map(|&(slot, _)| SlotId(slot)).collect();
        let attempts: Vec<_> = slots
            .iter()
            .zip(&options)
            .map(|(&slot, options)| Attempt { slot, options, temperature })
            .collect();
        self.model.begin(&attempts).expect("it works");
        let mut active = slots.clone();
        while !active.is_empty() {
            let outcomes = self.model.step(&active).expect("it works");
            let pairs = active.iter().zip(outcomes);
            let running = pairs.filter(|(_, outcome)| *outcome == StepOutcome::Running);
            active = running.map(|(&slot, _)| slot).collect();
        }
        let hypotheses = self.model.finish(&slots).expect("it works");
        hypotheses.into_iter().map(|hypothesis| hypothesis.tokens).collect()
    }

    fn decode(&mut self, slots: &[usize], temperature: f32) -> Vec<Vec<Token>> {
        let none: Arc<[Term]> = Arc::default();
        let attempts: Vec<_> = slots.iter().map(|&slot| (slot, &none)).collect();
        self.decode_with(&attempts, temperature)
    }
}

fn suppressed() -> Option<Vec<u32>> {
    Some((0..350).step_by(7).collect())
}

fn build(shape: &Shape, config: &Config, hardware: Hardware) -> Whisper {
    let generation = Generation { suppressed: suppressed(), ..Generation::default() };
    let tokenizer = Tokenizer::synthetic(shape.vocabulary).expect("large enough");
    let model = Model { name: "small".into(), weights: of_shape(shape), tokenizer, generation };
    Whisper::build(model, config, hardware).expect("it fits")
}

/// Each with as many slots and windows. The reference comes first.
fn backends(shape: &Shape, slots: usize, windows: u32) -> Vec<Backend> {
    let config = |compute_type, audio_cache| Config {
        compute_type,
        audio_cache,
        audio_context: AudioContext::Full,
        // Tests run side by side.
        threads: 1,
        slots,
        ..Config::default()
    };
    let on_cpu =
        [(ComputeType::F32, 1e-3), (ComputeType::Bf16, BF16_TOLERANCE), (ComputeType::Int8, INT8_TOLERANCE)];
    let mut backends: Vec<Backend> = on_cpu
        .into_iter()
        .map(|(compute_type, tolerance)| {
            let model = build(shape, &config(compute_type, AudioCacheType::Auto), Hardware::Cpu);
            Backend::new(format!("cpu in {compute_type:?}"), model, tolerance, windows)
        })
        .collect();
    for (audio_cache, tolerance) in
        [(AudioCacheType::Auto, BF16_TOLERANCE), (AudioCacheType::Fp8, FP8_TOLERANCE)]
    {
        for (torch_device, device) in devices() {
            let name = format!("kernels on {torch_device:?}, audio {audio_cache:?}");
            let accelerator = Accelerator { torch_device, device, memory: None, name: name.clone() };
            let hardware = Hardware::Kernels(accelerator);
            let model = build(shape, &config(ComputeType::Bf16, audio_cache), hardware);
            backends.push(Backend::new(name, model, tolerance, windows));
        }
    }
    backends
}

fn options(terms: &Arc<[Term]>) -> DecodingOptions {
    DecodingOptions {
        language: LanguageChoice::Named("en".into()),
        temperatures: vec![0.0, 0.4],
        bias: terms.clone(),
        ..DecodingOptions::default()
    }
}

fn attempt(slot: usize, options: &DecodingOptions) -> Attempt<'_> {
    Attempt { slot: SlotId(slot), options, temperature: 0.0 }
}

/// The tokens of this model's words are single letters, none of which is sure enough to be out of a term's reach.
fn some_terms() -> Arc<[Term]> {
    let term = |text: &str, weight| Term { text: text.into(), weight };
    let letters = ('a'..='z').map(|letter| term(&letter.to_string(), 3.0));
    letters
        .chain([term("oak", 3.0), term("elm", 3.0), term("we", 2.0), term("it", 1.0), term("as", -1.0)])
        .collect()
}

fn tones(seed: u32) -> Pcm {
    let samples = (0..48_000 + 8000 * seed).map(|n| {
        let t = n as f32 / 16_000.0;
        ((t * (200.0 + 50.0 * seed as f32)).sin() * 9000.0).round() / 32_768.0
    });
    Pcm::new(samples.collect::<Vec<_>>())
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

/// Where the reference, given the tokens before, would not be sure of its own choice if its logits were off by
/// `tolerance`; each token of `written` is one that it would choose then. `host` has the window's audio in `slot`.
fn unsure(host: &mut Whisper, slot: usize, written: &[Token], terms: &[Term], tolerance: f32) -> Vec<usize> {
    let mut tokens = host.opening(&host.slots[slot]);
    let prefix = tokens.len();
    tokens.extend(written.iter().map(|token| token.id));
    let wanted: Vec<usize> = (prefix - 1..tokens.len() - 1).collect();
    let run = Run { slot: SlotId(slot), position: 0, tokens: &tokens };
    let mut logits = host.backend.logits(&[run], &wanted, 0..SHAPE.vocabulary).expect("it works");
    let bias = Bias::new(terms, &host.tokenizer);
    let rules = Rules::new(&host.tokenizer, suppressed(), None);
    let begin = host.tokenizer.special.timestamp_begin as usize;
    let mut unsure = Vec::new();
    for (index, logits) in logits.rows_mut().enumerate() {
        logits[host.tokenizer.special.end_of_text as usize] = f32::NEG_INFINITY;
        let before = &written[..index];
        let edges = bias.edges_after(&ids(before));
        // Whether it is a timestamp, and whether a term may stand, hangs on the difference of both kinds.
        let choices = [-tolerance, 0.0, tolerance].map(|shift| {
            let mut logits = logits.to_vec();
            logits[begin..].iter_mut().for_each(|logit| *logit += shift);
            rules.apply(&mut logits, before);
            let mut penalised = logits.clone();
            for &(token, gain) in edges.iter().filter(|(_, gain)| *gain < 0.0) {
                penalised[token as usize] += gain;
            }
            let best = |logits: &[f32]| logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let close = |&token: &usize| {
                let in_term =
                    edges.iter().find(|&&(edge, _)| edge as usize == token).map_or(0.0, |edge| edge.1);
                best(&logits) - logits[token] <= 2.0 * tolerance + in_term.max(0.0)
                    || best(&penalised) - penalised[token] <= 2.0 * tolerance
            };
            (0..logits.len()).filter(close).collect::<Vec<_>>()
        });
        let chosen = written[index].id as usize;
        assert!(choices.concat().contains(&chosen), "token {index}: {chosen}, not {choices:?}");
        if choices.concat().iter().any(|&token| token != chosen) {
            unsure.push(index);
        }
    }
    unsure
}

#[test]
fn tokens_are_those_of_the_reference_where_it_is_sure() {
    const WINDOWS: usize = 4;
    let mut backends = backends(&SHAPE, WINDOWS, WINDOWS as u32);
    let slots: Vec<usize> = (0..WINDOWS).collect();
    for with in [Arc::default(), some_terms()] {
        let mut expected: Vec<Vec<u32>> = Vec::new();
        for index in 0..backends.len() {
            let backend = &mut backends[index];
            slots.iter().for_each(|&slot| backend.hear(slot, slot));
            let attempts: Vec<_> = slots.iter().map(|&slot| (slot, &with)).collect();
            let found = backend.decode_with(&attempts, 0.0);
            let (name, tolerance) = (backend.name.clone(), backend.tolerance);
            if expected.is_empty() {
                expected = found.iter().map(|tokens| ids(tokens)).collect();
            }
            let mut same = 0;
            for slot in 0..WINDOWS {
                assert_eq!(found[slot].len(), TOKENS, "{name}");
                let pairs = ids(&found[slot]).into_iter().zip(expected[slot].iter().copied());
                let until = pairs.take_while(|(found, expected)| found == expected).count();
                let unsure = unsure(&mut backends[0].model, slot, &found[slot], &with, tolerance);
                assert!(until == TOKENS || unsure.contains(&until), "{name}: token {until} of window {slot}");
                same += until;
            }
            println!("{name}: {same} of {} tokens until the first that differs", WINDOWS * TOKENS);
            // Weights in int8 are another model, nearly.
            let share = if name.contains("Int8") { 8 } else { 2 };
            assert!(same * share >= WINDOWS * TOKENS, "{name}: {same}");
        }
    }
}

#[test]
fn company_changes_nothing_at_any_size_of_a_launch() {
    const SLOTS: usize = 64;
    let none: Arc<[Term]> = Arc::default();
    let terms = some_terms();
    for mut backend in backends(&SHAPE, SLOTS, 4) {
        let name = backend.name.clone();
        backend.model.lengths = Some(Lengths::between(4, 4));
        backend.hear(1, 0);
        let alone = backend.decode(&[0], 0.0).remove(0);
        let expecting = backend.decode_with(&[(0, &terms)], 0.0).remove(0);
        assert_ne!(alone, expecting, "{name}");
        let last = SLOTS - 1;
        (0..last).for_each(|slot| backend.hear(1 + slot % 3, slot));
        backend.hear(1, last);
        for rows in [1, 2, 3, 4, 8, 16, 32, 64] {
            // Half of the others expect terms, and so does the window that is looked at, now and then.
            let others = (0..rows - 1).map(|other| (other, if other % 2 == 0 { &terms } else { &none }));
            let (own, expected) = if rows % 3 == 1 { (&terms, &expecting) } else { (&none, &alone) };
            let attempts: Vec<_> = others.chain([(last, own)]).collect();
            let together = backend.decode_with(&attempts, 0.0);
            assert_eq!(together.last(), Some(expected), "{name}, {rows} rows");
        }
    }
}

#[test]
fn slots_are_used_again_and_others_join_and_leave() {
    for mut backend in backends(&SHAPE, 4, 4) {
        let name = backend.name.clone();
        backend.hear(1, 2);
        let alone = backend.decode(&[2], 0.0).remove(0);
        // A second attempt, then the slot's next window, with others beside them.
        let again = backend.decode(&[2], 0.4).remove(0);
        assert_ne!(again, alone, "{name}");
        for (window, slot) in [(3, 0), (1, 1), (2, 2)] {
            backend.hear(window, slot);
        }
        let together = backend.decode(&[0, 1, 2], 0.0);
        assert_eq!(together[1], alone, "{name}");
        assert_ne!(together[2], alone, "{name}");

        let ours = &mut backend.model;
        let mut hypothesis = ours.finish(&[SlotId(1)]).expect("it works").remove(0);
        let alignment = ours.align(&[(SlotId(1), &hypothesis)]).expect("it works").remove(0);
        alignment.finish(&mut hypothesis).expect("it works");
        let words: Vec<_> = hypothesis.segments.iter().flat_map(|segment| &segment.words).collect();
        assert!(words.windows(2).all(|pair| pair[0].start <= pair[1].start), "{words:?}");

        let options = options(&Arc::default());
        ours.begin(&[attempt(1, &options)]).expect("it works");
        let mut steps = 0;
        loop {
            steps += 1;
            let mut active = vec![SlotId(1)];
            if steps % 5 == 2 {
                ours.begin(&[attempt(0, &options)]).expect("it works");
                active.insert(0, SlotId(0));
            }
            let outcomes = ours.step(&active).expect("it works");
            if outcomes.last() == Some(&StepOutcome::Finished) {
                break;
            }
        }
        assert_eq!(ours.finish(&[SlotId(1)]).expect("it works")[0].tokens, alone, "{name}");
    }
}

#[test]
fn windows_are_encoded_while_others_are_decoded() {
    for mut backend in backends(&SHAPE, 3, 3) {
        let name = backend.name.clone();
        let alone = [1, 2].map(|window| {
            backend.hear(window, 0);
            backend.decode(&[0], 0.0).remove(0)
        });
        backend.hear(1, 0);
        let options = options(&Arc::default());
        backend.model.begin(&[attempt(0, &options)]).expect("it works");
        let _ = backend.model.step(&[SlotId(0)]).expect("it works");
        backend.hear(1, 1);
        backend.hear(2, 2);
        while backend.model.step(&[SlotId(0)]).expect("it works")[0] == StepOutcome::Running {}
        assert_eq!(backend.model.finish(&[SlotId(0)]).expect("it works")[0].tokens, alone[0], "{name}");
        // The emulated device takes until the second question.
        let both = [SlotId(1), SlotId(2)];
        let mut is_encoded = || backend.model.backend.is_encoded(&both).expect("it works");
        if name.starts_with("kernels on Cpu") {
            assert!(!is_encoded(), "{name}");
        }
        while !is_encoded() {
            std::thread::yield_now();
        }
        assert_eq!(backend.decode(&[1, 2], 0.0), alone, "{name}");
    }
}

#[test]
fn stages_are_counted_where_times_are_wanted() {
    for (torch_device, device) in devices() {
        let times = StageTimes::default();
        let config = Config {
            compute_type: ComputeType::Bf16,
            audio_context: AudioContext::Full,
            threads: 1,
            slots: 1,
            stage_times: Some(times.clone()),
            ..Config::default()
        };
        let accelerator = Accelerator { torch_device, device, memory: None, name: "timed".into() };
        let model = build(&SHAPE, &config, Hardware::Kernels(accelerator));
        let mut backend = Backend::new("timed".into(), model, BF16_TOLERANCE, 1);
        backend.hear(0, 0);
        backend.decode(&[0], 0.0);
        let totals = times.totals();
        let count = |is_it: fn(Stage) -> bool| -> u64 {
            totals.iter().filter(|(stage, ..)| is_it(*stage)).map(|(_, count, _)| count).sum()
        };
        assert_eq!(count(|stage| stage == Stage::Mel), 1, "{totals:?}");
        assert_eq!(count(|stage| stage == Stage::Encoder), 1, "{totals:?}");
        assert_eq!(count(|stage| stage == Stage::CacheFill), 1, "{totals:?}");
        assert_eq!(count(|stage| matches!(stage, Stage::Prefill(_))), 1, "{totals:?}");
        // The last ones may still be under way.
        let steps = count(|stage| stage == Stage::Step(1)) as usize;
        assert!((TOKENS - 4..=TOKENS + 1).contains(&steps), "{totals:?}");
    }
}

#[test]
fn terms_change_their_own_window_alone() {
    let (none, terms) = (Arc::default(), some_terms());
    for mut backend in backends(&SHAPE, 3, 4) {
        let name = backend.name.clone();
        (0..3).for_each(|slot| backend.hear(1 + slot, slot));
        let without = backend.decode(&[0, 1, 2], 0.0);
        let mixed = backend.decode_with(&[(0, &none), (1, &terms), (2, &none)], 0.0);
        assert_eq!([&mixed[0], &mixed[2]], [&without[0], &without[2]], "{name}");
        assert_ne!(mixed[1], without[1], "{name}");
        let said = backend.model.tokenizer.decode(&ids(&mixed[1]));
        assert!(said.contains(|letter: char| letter.is_ascii_alphabetic()), "{name}: {said}");
        // The slot's next attempt, and its next window, know nothing of them.
        assert_eq!(backend.decode(&[1], 0.0)[0], without[1], "{name}");
        backend.hear(1, 1);
        assert_eq!(backend.decode(&[1], 0.0)[0], without[0], "{name}");
        // Others take their place, and they come back.
        backend.hear(2, 1);
        let others: Arc<[Term]> = ('!'..='@').map(|sign| Term { text: sign.into(), weight: 3.0 }).collect();
        let other = backend.decode_with(&[(1, &others)], 0.0).remove(0);
        assert!(other != mixed[1] && other != without[1], "{name}");
        assert_eq!(backend.decode_with(&[(1, &terms)], 0.0)[0], mixed[1], "{name}");
    }
}

#[test]
fn languages_are_named_as_by_the_reference() {
    let shape = Shape { vocabulary: 51_865, ..SHAPE };
    let pairs = [["en", "zh"], ["de", "es"], ["ru", "ko"], ["jw", "su"]];
    let mut expected = Vec::new();
    for mut backend in backends(&shape, 1, 1) {
        backend.model.lengths = Some(Lengths::between(1, 1));
        // How much likelier the first one is, as ln of the odds.
        let leads = pairs.map(|pair| {
            backend.hear(0, 0);
            let detect = LanguageChoice::Detect { among: pair.map(str::to_owned).to_vec(), expected: None };
            let options = DecodingOptions { language: detect, ..options(&Arc::default()) };
            backend.model.begin(&[attempt(0, &options)]).expect("it works");
            let found = backend.model.finish(&[SlotId(0)]).expect("it works").remove(0).language;
            let odds = (found.probability / (1.0 - found.probability)).ln();
            if found.code == pair[0] { odds } else { -odds }
        });
        expected.extend(leads.iter().copied().filter(|_| backend.tolerance < 0.01));
        for (lead, expected) in leads.iter().zip(&expected) {
            assert!((lead - expected).abs() <= 2.0 * backend.tolerance, "{}: {leads:?}", backend.name);
        }
    }
    assert_eq!(expected.len(), pairs.len());
}
