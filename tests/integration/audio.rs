//! Containers, intact and malformed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use verbatim::audio::{DecodeOptions, Error, Limits, RawEncoding, RawFormat, decode, estimate};

pub fn fixtures() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".verbatim/fixtures");
    let entries = std::fs::read_dir(&folder).expect("run ./setup");
    let mut fixtures: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some())
        .map(|path| (path.display().to_string(), std::fs::read(&path).expect("readable")))
        .collect();
    fixtures.sort();
    assert!(fixtures.len() >= 15);
    fixtures
}

/// Numbers below the one given. Knuth's MMIX generator: any will do.
pub fn random(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    }
}

fn options() -> DecodeOptions {
    DecodeOptions { raw: None, split_channels: false, limits: Limits::default() }
}

#[test]
fn every_container_keeps_its_length() {
    for (name, bytes) in fixtures() {
        let decoded = decode(bytes.into(), &options()).expect(&name);
        // The passage is 7.1 s; AAC adds the encoder's first 1024 samples and fills its last frame.
        assert!((7.09..7.16).contains(&decoded.duration_seconds), "{name}: {}", decoded.duration_seconds);
        assert!((decoded.channels[0].duration_seconds() - decoded.duration_seconds).abs() < 1e-3, "{name}");
        assert!(!decoded.damaged, "{name}");
    }
}

#[test]
fn channels_are_mixed_or_kept_apart() {
    let samples: Vec<u8> = (0..16_000i16).flat_map(|n| [n, -n]).flat_map(i16::to_le_bytes).collect();
    let raw = RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: 16_000, channels: 2 };
    let mixed =
        decode(samples.clone().into(), &DecodeOptions { raw: Some(raw.into()), ..options() }).expect("raw");
    assert_eq!(mixed.channels.len(), 1);
    assert!(mixed.channels[0].pcm(..).samples().iter().all(|&sample| sample == 0.0));
    let options = DecodeOptions { raw: Some(raw.into()), split_channels: true, ..options() };
    let split = decode(samples.into(), &options).expect("raw");
    assert_eq!((split.channels.len(), split.source_channels), (2, 2));
    let [left, right] = [0, 1].map(|channel| split.channels[channel].pcm(..));
    assert_eq!(left.samples()[100], -right.samples()[100]);
}

#[test]
fn what_is_louder_than_full_scale_keeps_its_shape() {
    let wave: Vec<f32> = (0..16_000).map(|n| 3.5 * (n as f32 * 0.05).sin()).collect();
    let raw = RawFormat { encoding: RawEncoding::Linear32, sample_rate_hz: 16_000, channels: 1 };
    let bytes: Vec<u8> = wave.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let decoded = decode(bytes.into(), &DecodeOptions { raw: Some(raw.into()), ..options() }).expect("raw");
    let pcm = decoded.channels[0].pcm(..);
    assert!(wave.iter().zip(pcm.samples()).all(|(said, heard)| (said - heard).abs() < 3e-4));
}

#[test]
fn what_is_not_audio_is_told_apart_from_what_is_broken_or_too_long() {
    let refusal = |bytes: &[u8], options: &DecodeOptions| {
        decode(Bytes::copy_from_slice(bytes), options).expect_err("refused")
    };
    assert_eq!(refusal(b"", &options()), Error::Empty);
    assert_eq!(refusal(b"{\"url\": \"https://example.com\"}", &options()), Error::Unsupported("JSON".into()));
    assert_eq!(refusal(&[0x89; 5000], &options()), Error::Unsupported("audio of no known format".into()));
    assert!(matches!(refusal(b"RIFF\x10\0\0\0WAVEjunk", &options()), Error::Corrupt(_)));
    assert!(matches!(refusal(b"fLaC and then nothing of the kind", &options()), Error::Corrupt(_)));
    let short = DecodeOptions { limits: Limits { max_seconds: 5.0, ..Limits::default() }, ..options() };
    for (name, bytes) in fixtures() {
        assert_eq!(refusal(&bytes, &short), Error::TooLong { limit_seconds: 5.0 }, "{name}");
    }
}

#[test]
fn a_file_that_breaks_off_yields_what_came_before() {
    for (name, bytes) in fixtures() {
        let half = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
        match decode(half, &options()) {
            Ok(decoded) => assert!((2.0..7.2).contains(&decoded.duration_seconds), "{name}"),
            // An MP4 file's index is at its end, and a WebM file that isn't a stream refers to its end.
            Err(error) => {
                let refused = ["m4a", "mp4", "webm"].iter().any(|extension| name.ends_with(extension));
                assert!(refused && matches!(error, Error::Corrupt(_)), "{name}: {error}");
            }
        }
    }
}

/// A longer campaign of the same kind, through the HTTP door, is `benches/mutate.py`.
#[test]
fn mutated_files_are_decoded_or_refused_and_take_no_time() {
    let mut random = random(7);
    for (name, bytes) in fixtures() {
        for round in 0..60 {
            let mut mutant = bytes.clone();
            for _ in 0..1 << random(7) {
                // Wrong values do the most harm in headers.
                let place = if round % 2 == 0 { random(mutant.len().min(300)) } else { random(mutant.len()) };
                match random(3) {
                    0 => mutant[place] ^= 1 << random(8),
                    1 => mutant[place] = [0, 0xFF, 0x7F, 0x80][random(4)],
                    _ => mutant.truncate(place.max(16)),
                }
            }
            let began = Instant::now();
            let mutant = Bytes::from(mutant);
            if let Ok(foreseen) = estimate(&mutant, &options()) {
                assert!((0.0..=600.0).contains(&foreseen.seconds), "{name}, round {round}: {foreseen:?}");
            }
            let _ = decode(mutant, &options());
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{name}, round {round}: {:?}",
                began.elapsed()
            );
        }
    }
}
