//! Log-mel features of one window of 30 s, on one thread, for both numbers of bands.
//!
//! `cargo bench --bench log_mel`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::cpu::Threads;
use verbatim::engine::WINDOW_SAMPLES;
use verbatim::models::LogMel;

fn log_mel(criterion: &mut Criterion) {
    // A tone that rises; nothing in the computation depends on what it is.
    let sample = |n: usize| (n as f32 * n as f32 * 1e-7).sin() * 0.5;
    let samples: Vec<f32> = (0..WINDOW_SAMPLES).map(sample).collect();
    let frames = LogMel::frames(samples.len());
    let threads = Threads::new(1);
    let mut group = criterion.benchmark_group("log_mel_of_30_s");
    group.throughput(Throughput::Elements(samples.len() as u64));
    for bands in [80, 128] {
        let log_mel = LogMel::new(bands);
        let mut output = vec![0.0; bands * frames];
        group.bench_function(format!("{bands} bands"), |bencher| {
            bencher.iter(|| log_mel.compute(&threads, black_box(&samples), &mut output));
        });
    }
    group.finish();
}

criterion_group!(benches, log_mel);
criterion_main!(benches);
