//! Products at the sizes of `base` on one thread: a panel of the encoder's feed-forward, and of its
//! convolution. Throughput is counted in multiply-adds.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::cpu::Level;
use verbatim::cpu::matrix::{Epilogue, Matrix, Precision};

const ROWS: usize = 96;

fn numbers(length: usize) -> Vec<f32> {
    (0..length).map(|n| ((n * 7919) % 1000) as f32 / 500.0 - 1.0).collect()
}

fn matrix(criterion: &mut Criterion) {
    let level = Level::detect();
    for (inputs, outputs, epilogue) in
        [(512, 2048, Epilogue::Gelu), (512, 2048, Epilogue::Store), (2048, 512, Epilogue::Add)]
    {
        let mut group = criterion.benchmark_group(format!("{inputs}x{outputs} {epilogue:?}"));
        group.throughput(Throughput::Elements((ROWS * inputs * outputs) as u64));
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let matrix = Matrix::new(&numbers(inputs * outputs), None, inputs, precision);
            let (x, mut y) = (numbers(ROWS * inputs), vec![0.0; ROWS * outputs]);
            let rows = matrix.rows(level, &x);
            group.bench_function(format!("{precision:?}"), |bencher| {
                bencher.iter(|| matrix.multiply_rows(level, black_box(&rows), &mut y, epilogue));
            });
            group.bench_function(format!("{precision:?} and rounding"), |bencher| {
                bencher.iter(|| {
                    let rows = matrix.rows(level, black_box(&x));
                    matrix.multiply_rows(level, &rows, &mut y, epilogue);
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = matrix
}
criterion_main!(benches);
