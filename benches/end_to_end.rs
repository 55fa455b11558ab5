//! Bytes of a file to its transcript with words, through the library: decoding, voice activity, `base` on
//! the CPU. The model and the speech are what `./setup` fetches.
//!
//! `cargo bench --bench end_to_end`

use std::path::{Path, PathBuf};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::audio::{DecodeOptions, Limits, decode};
use verbatim::engine::{Config as EngineConfig, Engine, LanguageChoice};
use verbatim::models::{self, Config, DeviceChoice};
use verbatim::transcribe::{TranscribeOptions, Transcriber};
use verbatim::vad::{Vad, VadOptions};

/// `None`, with a message, if something is missing.
fn cache(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim").join(name);
    if !path.exists() {
        eprintln!("{} is not there: run ./setup to measure the whole path", path.display());
        return None;
    }
    Some(path)
}

fn end_to_end(criterion: &mut Criterion) {
    let (Some(model), Some(vad), Some(speech)) =
        (cache("models/base"), cache("models/silero-vad"), cache("speech/jfk.wav"))
    else {
        return;
    };
    let config = Config { device: DeviceChoice::Cpu, ..Config::default() };
    let engine = Engine::start(&EngineConfig::unbounded(), move || models::load(&model, &config));
    let vad = Vad::load(&vad).expect("the model loads");
    let engine = engine.expect("the model loads");
    let transcriber = Transcriber::with_vad(engine, vad, VadOptions::default());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bytes = Bytes::from(std::fs::read(speech).expect("readable"));
    let decoding = DecodeOptions { raw: None, split_channels: false, limits: Limits::default() };
    let options = TranscribeOptions::new(LanguageChoice::Named("en".into()));
    let transcribe = || {
        let decoded = decode(bytes.clone(), &decoding).expect("decoded");
        let pcm = decoded.channels.into_iter().next().expect("a channel");
        runtime.block_on(transcriber.transcribe(pcm, &options)).expect("transcribed")
    };
    let transcript = transcribe();
    assert!(transcript.text().contains("country"), "{}", transcript.text());
    let mut group = criterion.benchmark_group("end_to_end");
    group.sample_size(10);
    // Hundredths of a second of audio.
    group.throughput(Throughput::Elements((transcript.duration * 100.0) as u64));
    group.bench_function(format!("{:.0} s of speech, base", transcript.duration), |bencher| {
        bencher.iter(transcribe);
    });
    group.finish();
}

criterion_group!(benches, end_to_end);
criterion_main!(benches);
