//! Files to PCM at 16 kHz: raw samples and a minute of WAVE, made here, and each container of the
//! fixtures that `./setup` makes (7 s of speech).
//!
//! `cargo bench --bench decode_audio`

use std::hint::black_box;
use std::path::Path;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use verbatim::audio::{DecodeOptions, Limits, RawEncoding, RawFormat, decode};

/// Noise, 16 bits, interleaved.
fn samples(seconds: u32, rate: u32, channels: u32) -> Vec<u8> {
    let mut state = 1u32;
    let sample = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 18) as i16 - 8192).to_le_bytes()
    };
    (0..seconds * rate * channels).flat_map(sample).collect()
}

fn wave(seconds: u32, rate: u32, channels: u16) -> Bytes {
    let data = samples(seconds, rate, channels.into());
    let frame = channels * 2;
    let mut wave = b"RIFF".to_vec();
    wave.extend((36 + data.len() as u32).to_le_bytes());
    wave.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    wave.extend(channels.to_le_bytes());
    wave.extend(rate.to_le_bytes());
    wave.extend((rate * u32::from(frame)).to_le_bytes());
    wave.extend(frame.to_le_bytes());
    wave.extend(b"\x10\0data");
    wave.extend((data.len() as u32).to_le_bytes());
    wave.extend(data);
    wave.into()
}

fn made(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a_minute");
    let raw = RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: 16_000, channels: 1 };
    for (name, bytes, raw) in [
        ("raw, 16 kHz", samples(60, 16_000, 1).into(), Some(raw)),
        ("WAVE, 16 kHz", wave(60, 16_000, 1), None),
        ("WAVE, 44.1 kHz, stereo", wave(60, 44_100, 2), None),
    ] {
        let options =
            DecodeOptions { raw: raw.map(Into::into), split_channels: false, limits: Limits::default() };
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| decode(black_box(bytes.clone()), &options)));
    }
    group.finish();
}

fn containers(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/fixtures");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("{} is not there: run ./setup to measure the containers too", folder.display());
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some());
    paths.sort();
    let options = DecodeOptions { raw: None, split_channels: false, limits: Limits::default() };
    let mut group = criterion.benchmark_group("containers");
    for path in paths {
        let bytes = Bytes::from(std::fs::read(&path).expect("readable"));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &bytes, |bencher, bytes| {
            bencher.iter(|| decode(black_box(bytes.clone()), &options).expect("decoded"));
        });
    }
    group.finish();
}

criterion_group!(benches, made, containers);
criterion_main!(benches);
