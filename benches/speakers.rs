//! The networks of diarization on one thread. Throughput is counted in seconds of audio. The models are where
//! `./setup` puts them.
//!
//! `cargo bench --bench speakers`

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::audio::SAMPLE_RATE;
use verbatim::cpu::{Level, Threads};
use verbatim::speakers::{Embedding, MEL_BINS, Segmentation, WINDOW_SAMPLES, filter_banks};

/// Noise. What it is doesn't matter: the networks have no branch on it.
fn noise(samples: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let sample = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        0.3 * (f64::from(state) / f64::from(u32::MAX) - 0.5) as f32
    };
    (0..samples).map(sample).collect()
}

fn segmentation(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models/speakers");
    let segmentation = Segmentation::load(&folder, Level::detect()).expect("`./setup` puts the models there");
    let threads = Threads::new(1);
    let mut group = c.benchmark_group("segmentation");
    for count in [1, 8] {
        let windows = vec![noise(WINDOW_SAMPLES); count];
        group.throughput(Throughput::Elements((count * WINDOW_SAMPLES) as u64 / u64::from(SAMPLE_RATE)));
        group.bench_function(format!("{count} windows of 10 s"), |b| {
            b.iter(|| segmentation.segment(&threads, black_box(&windows)).expect("computed"));
        });
    }
    group.finish();
}

fn embedding(c: &mut Criterion) {
    const SECONDS: usize = 6;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models/speakers");
    let embedding = Embedding::load(&folder, Level::detect()).expect("`./setup` puts the models there");
    let threads = Threads::new(1);
    let samples = noise(SECONDS * SAMPLE_RATE as usize);
    let mut group = c.benchmark_group("embedding");
    group.throughput(Throughput::Elements(SECONDS as u64));
    group.bench_function("filter banks", |b| b.iter(|| filter_banks(black_box(&samples))));
    let banks = filter_banks(&samples);
    for frames in [50, 150, 590] {
        let pieces: Vec<Vec<f32>> = banks.chunks_exact(frames * MEL_BINS).map(<[f32]>::to_vec).collect();
        group.throughput(Throughput::Elements((pieces.len() * frames) as u64 / 100));
        group.bench_function(format!("trunk of {} pieces of {frames} frames", pieces.len()), |b| {
            b.iter(|| embedding.trunk(&threads, black_box(&pieces)).expect("computed"));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = segmentation, embedding
}
criterion_main!(benches);
