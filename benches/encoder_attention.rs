//! The encoder's self-attention at the size of `base`, one window on two threads: our kernel beside
//! libtorch's scaled-dot-product attention, in one run.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tch::{Kind, Tensor};
use verbatim::cpu::encoder_attention::{Shape, attend};
use verbatim::cpu::{Bf16, Element, Level, Threads};

const SHAPE: Shape = Shape { windows: 1, length: 1500, heads: 8 };

fn encoder_attention(criterion: &mut Criterion) {
    let width = SHAPE.heads as i64 * 64;
    let length = SHAPE.length as i64;
    tch::set_num_threads(2);
    let threads = Threads::new(2);
    let mut group = criterion.benchmark_group("encoder_attention");
    let values: Vec<f32> =
        (0..length * 3 * width).map(|n| ((n * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    for (name, kind) in [("f32", Kind::Float), ("bf16", Kind::BFloat16)] {
        let fused = Tensor::from_slice(&values).view([1, length, 3 * width]).to_kind(kind);
        let part = |n: i64| fused.narrow(2, n * width, width).view([1, length, 8, 64]).transpose(1, 2);
        let (query, key, value) = (part(0), part(1), part(2));
        group.bench_function(format!("libtorch/{name}"), |bencher| {
            bencher.iter(|| {
                Tensor::scaled_dot_product_attention(
                    &query,
                    &key,
                    &value,
                    None::<&Tensor>,
                    0.0,
                    false,
                    None,
                    false,
                )
            });
        });
    }
    let mut output = vec![0.0f32; (length * width) as usize];
    group.bench_function("ours/f32", |bencher| {
        bencher.iter(|| attend(Level::detect(), &threads, black_box(&values), SHAPE, &mut output));
    });
    let rounded: Vec<Bf16> = values.iter().map(|&x| Element::from_f32(x)).collect();
    let mut output = vec![Bf16::ZERO; (length * width) as usize];
    group.bench_function("ours/bf16", |bencher| {
        bencher.iter(|| attend(Level::detect(), &threads, black_box(&rounded), SHAPE, &mut output));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = encoder_attention
}
criterion_main!(benches);
