//! Voice activity and the cut into windows, on one thread. The model is where `./setup` puts it.
//!
//! `cargo bench --bench vad`

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::audio::{Pcm, SAMPLE_RATE};
use verbatim::transcribe::{Policy, plan_windows};
use verbatim::vad::{FRAME_SAMPLES, Vad, VadOptions, speech_spans};

/// Noise, loud and faint by turns. What it is doesn't matter: the network has no branch on it.
fn noise(seconds: usize) -> Pcm {
    let mut state = 1_u32;
    let sample = |i: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let level = if (i / 8000).is_multiple_of(3) { 0.001 } else { 0.3 };
        level * (f64::from(state) / f64::from(u32::MAX) - 0.5) as f32
    };
    Pcm::new((0..seconds * SAMPLE_RATE as usize).map(sample).collect::<Vec<_>>())
}

fn network(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models/silero-vad");
    let vad = Vad::load(&folder).expect("`./setup` puts the model there");
    let pcm = noise(30);
    let mut group = c.benchmark_group("vad");
    group.throughput(Throughput::Elements((pcm.len() / FRAME_SAMPLES) as u64));
    group.bench_function("30 s at once", |b| b.iter(|| vad.probabilities(black_box(&pcm))));
    group.bench_function("30 s frame by frame", |b| {
        b.iter(|| {
            let mut stream = vad.stream();
            pcm.samples().chunks(FRAME_SAMPLES).flat_map(|frame| stream.push(black_box(frame))).sum::<f32>()
        });
    });
    group.finish();
}

fn plan(c: &mut Criterion) {
    const HOUR: usize = 3600 * SAMPLE_RATE as usize;
    // Phrases of about 3 s with a pause after each, some of them long.
    let probability = |frame: usize| match (frame % 97, frame % 1009) {
        (_, 0..130) => 0.001,
        (pause @ 0..12, _) => 0.002 * pause as f32,
        _ => 0.98,
    };
    let probabilities: Vec<f32> = (0..HOUR.div_ceil(FRAME_SAMPLES)).map(probability).collect();
    c.bench_function("windows of an hour", |b| {
        b.iter(|| {
            let spans = speech_spans(black_box(&probabilities), HOUR, &VadOptions::default());
            plan_windows(&spans, &probabilities, HOUR, Policy::Pack)
        });
    });
}

criterion_group!(benches, network, plan);
criterion_main!(benches);
