//! Errors of the audio cache in bf16 and in e4m3, on a real model and real speech: run by hand, with the
//! figures of benches/RESULTS.md.

use std::any::Any;
use std::path::PathBuf;

use tch::{Device, Kind, Tensor};

use super::{Run, torch};
use crate::audio::{self, DecodeOptions, Pcm};
use crate::cuda::emulated::Emulated;
use crate::engine::{
    Attempt, DecodingOptions, EncodeRequest, LanguageChoice, SlotId, SpeechModel, StepOutcome, Token,
    WINDOW_SAMPLES,
};
use crate::models::whisper::backend::HostBackend;
use crate::models::whisper::generation::Generation;
use crate::models::whisper::load::{Accelerator, Hardware, Model};
use crate::models::whisper::tokenizer::Tokenizer;
use crate::models::whisper::{WINDOW_FRAMES, Whisper};
use crate::models::{self, AudioContext, ComputeType, Config, weights};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models/base")
}

/// `VERBATIM_CLIPS`: paths, separated by spaces.
fn clips() -> Vec<(String, Pcm)> {
    let paths = std::env::var("VERBATIM_CLIPS").expect("VERBATIM_CLIPS names files of speech");
    let options = DecodeOptions { raw: None, split_channels: false, limits: audio::Limits::default() };
    let read = |path: &str| {
        let bytes = std::fs::read(path).expect(path);
        let pcm = audio::decode(bytes.into(), &options).expect(path).channels[0].pcm(..);
        let samples = &pcm.samples()[..pcm.len().min(WINDOW_SAMPLES)];
        (path.rsplit('/').next().unwrap_or(path).to_owned(), Pcm::new(samples.to_vec()))
    };
    paths.split_whitespace().map(read).collect()
}

fn config(audio_cache: models::AudioCacheType, compute_type: ComputeType) -> Config {
    Config { compute_type, audio_cache, audio_context: AudioContext::Full, slots: 1, ..Config::default() }
}

fn model(config: &Config, hardware: Hardware) -> Whisper {
    let folder = folder();
    let model = Model {
        name: "base".into(),
        weights: weights::read(&folder).expect("it is there"),
        tokenizer: Tokenizer::read(&folder, 51_865).expect("it is there"),
        generation: Generation::read(&folder).expect("it is there"),
    };
    Whisper::build(model, config, hardware).expect("it fits")
}

fn heard(model: &mut Whisper, pcm: &Pcm) -> Vec<Token> {
    let slot = SlotId(0);
    let language = LanguageChoice::Named("en".into());
    let options = DecodingOptions { language, ..DecodingOptions::default() };
    model.encode(&[EncodeRequest { slot, pcm }]).expect("it works");
    model.begin(&[Attempt { slot, options: &options, temperature: 0.0 }]).expect("it works");
    while model.step(&[slot]).expect("it works")[0] == StepOutcome::Running {}
    model.finish(&[slot]).expect("it works").remove(0).tokens
}

fn on_cpu(compute_type: ComputeType) -> Whisper {
    let config = config(models::AudioCacheType::Auto, compute_type);
    model(&config, Hardware::Cpu)
}

/// A layer's cross-attention queries, at each token of `run`.
fn cross_query(decoder: &mut torch::Decoder, run: &Run, layer: usize) -> Result<Tensor, models::Error> {
    let runs = std::slice::from_ref(run);
    let x = decoder.hidden(runs, layer, None)?;
    let layer = &decoder.layers[layer];
    let fused = layer.query_key_value.forward(&layer.attention_norm.forward(&x)?)?;
    let x = x.f_add(&layer.output.forward(&decoder.text_attention(layer, runs, &fused)?)?)?;
    layer.cross_query.forward(&layer.cross_norm.forward(&x)?)
}

fn length(tensor: &Tensor) -> f64 {
    f64::try_from(tensor.to_kind(Kind::Double).square().sum(Kind::Double)).expect("a number").sqrt()
}

/// Everything in f32 but keys and values of the audio, given what the reference wrote.
#[test]
#[ignore = "needs base and VERBATIM_CLIPS; takes minutes"]
fn attention_and_choices_with_audio_in_fewer_bits() {
    let _guard = tch::no_grad_guard();
    let mut reference = on_cpu(ComputeType::F32);
    let weights = weights::read(&folder()).expect("it is there");
    let placement = |audio_kind| torch::Placement {
        slots: 1,
        torch_device: Device::Cpu,
        kind: Kind::Float,
        audio_kind,
        alignment_heads: vec![],
    };
    let mut exact = torch::Decoder::new(&weights, placement(Kind::Float)).expect("memory");
    let clips = clips();
    for kind in [Kind::BFloat16, Kind::Float8e4m3fn] {
        let mut rounded = torch::Decoder::new(&weights, placement(kind)).expect("memory");
        // By layer: off, and of how much; tokens of another choice, and all.
        let mut errors = vec![(0.0, 0.0); exact.layers.len()];
        let (mut other, mut all, mut logits_off, mut logits_of) = (0, 0, 0.0, 0.0);
        for (_, pcm) in &clips {
            let written = heard(&mut reference, pcm);
            let request = EncodeRequest { slot: SlotId(0), pcm };
            let backend: &mut dyn Any = reference.backend.as_mut();
            let host = backend.downcast_mut::<HostBackend>().expect("it is on the CPU");
            let states = host.states(&[request], WINDOW_FRAMES).expect("it works");
            let audio = Tensor::from_slice(&states[0]).view([1, 1500, 512]);
            exact.set_audio(&[SlotId(0)], &audio).expect("it fits");
            rounded.set_audio(&[SlotId(0)], &audio).expect("it fits");
            let mut tokens = vec![50_258, 50_259, 50_359];
            tokens.extend(written.iter().map(|token| token.id));
            let run = || Run { slot: SlotId(0), position: 0, tokens: &tokens };
            for (index, (off, of)) in errors.iter_mut().enumerate() {
                let query = cross_query(&mut exact, &run(), index).expect("it works");
                let look = |decoder: &torch::Decoder| {
                    decoder.audio_attention(&decoder.layers[index], &[run()], &query, None).expect("it works")
                };
                let expected = look(&exact);
                *off += length(&(look(&rounded) - &expected)).powi(2);
                *of += length(&expected).powi(2);
            }
            let wanted: Vec<usize> = (2..tokens.len()).collect();
            let expected = exact.forward(&[run()], &wanted).expect("it works");
            let found = rounded.forward(&[run()], &wanted).expect("it works");
            let size = [wanted.len() as i64, expected.vocabulary as i64];
            let [expected, found] =
                [&expected, &found].map(|logits| Tensor::from_slice(&logits.values).view(size));
            logits_off += length(&(&found - &expected)).powi(2);
            logits_of += length(&(&expected - expected.mean(Kind::Float))).powi(2);
            let differ = found.argmax(1, false).ne_tensor(&expected.argmax(1, false)).sum(Kind::Int64);
            other += i64::try_from(differ).expect("a number");
            all += wanted.len();
        }
        let errors: Vec<String> = errors
            .iter()
            .map(|(off, of): &(f64, f64)| format!("{:.2} %", 100.0 * (off / of).sqrt()))
            .collect();
        println!("{kind:?}: output of cross-attention off by {} in layers 0 to 5", errors.join(", "));
        println!("    logits off by {:.2} % of their deviation", 100.0 * f64::sqrt(logits_off / logits_of));
        println!("    {other} of {all} likeliest tokens are others, in {} clips", clips.len());
    }
}

/// The whole way, on the emulated device.
#[test]
#[ignore = "needs base and VERBATIM_CLIPS; takes minutes"]
fn words_with_audio_in_fewer_bits() {
    let on_device = |audio_cache| {
        let accelerator = Accelerator {
            torch_device: Device::Cpu,
            device: Box::new(Emulated::default()),
            memory: None,
            name: "emulated".into(),
        };
        model(&config(audio_cache, ComputeType::Bf16), Hardware::Kernels(accelerator))
    };
    let mut models = [
        on_cpu(ComputeType::F32),
        on_device(models::AudioCacheType::Auto),
        on_device(models::AudioCacheType::Fp8),
    ];
    for (name, pcm) in clips() {
        let found = models.each_mut().map(|model| heard(model, &pcm));
        let ids = found.each_ref().map(|tokens| tokens.iter().map(|token| token.id).collect::<Vec<_>>());
        let same = |a: &[u32], b: &[u32]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        println!(
            "{name}: {} tokens in f32; the same until the end or {} in bf16, {} with audio in fp8 (of {} and {})",
            ids[0].len(),
            same(&ids[0], &ids[1]),
            same(&ids[0], &ids[2]),
            ids[1].len(),
            ids[2].len(),
        );
        let texts = ids.each_ref().map(|ids| models[0].tokenizer.decode(ids));
        if texts[1] != texts[0] || texts[2] != texts[0] {
            println!("    f32 {}\n    bf16 {}\n    fp8 {}", texts[0], texts[1], texts[2]);
        }
    }
}
