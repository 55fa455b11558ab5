//! The cost of decoding: estimated from the header, and bounded if the header is wrong.

use bytes::Bytes;
use verbatim::audio::{
    Bare, DecodeOptions, Error, Limits, Progress, RawEncoding, RawFormat, SpeechCoding, decode,
    decode_within, estimate,
};

use crate::audio::fixtures;
use crate::formats::coded;

const SPEECH: [&str; 19] = [
    "nb.amr",
    "nb_dtx.amr",
    "nb.3gp",
    "wb.amr",
    "wb.3gp",
    "speex_nb.ogg",
    "speex_wb.ogg",
    "speex_uwb.ogg",
    "alac.m4a",
    "caf.caf",
    "aifc.aiff",
    "ima.wav",
    "ms.wav",
    "mp3.wav",
    "mp2.mp2",
    "opus_51.ogg",
    "he_aac.m4a",
    "g729.bin",
    "raw",
];

/// Files of every kind, with the sender's description of raw ones.
fn files() -> Vec<(String, Bytes, Option<Bare>)> {
    let raw = RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: 16_000, channels: 1 };
    let file = |name: &str| match name {
        "raw" => (name.to_owned(), vec![1; 7 * 32_000].into(), Some(raw.into())),
        "g729.bin" => (name.to_owned(), coded(name).into(), Some(Bare::Speech(SpeechCoding::G729))),
        _ => (name.to_owned(), coded(name).into(), None),
    };
    let others = fixtures().into_iter().map(|(name, bytes)| (name, bytes.into(), None));
    SPEECH.into_iter().map(file).chain(others).collect()
}

fn options(raw: Option<Bare>) -> DecodeOptions {
    DecodeOptions { raw, split_channels: false, limits: Limits::default() }
}

const FLAC_RATE_HZ: u32 = 8192;

/// A FLAC file of a few bytes a block: each is constant, or, where it is not good, one that cannot be decoded.
/// Its header says that it has `claimed` frames.
fn flac(channels: u8, claimed: u64, blocks: impl Iterator<Item = bool>) -> Bytes {
    fn crc(bytes: &[u8], width: u32, polynomial: u32) -> u32 {
        let top = 1 << (width - 1);
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte) << (width - 8), |crc, _| {
                let shifted = (crc << 1) & (2 * top - 1);
                if crc & top == 0 { shifted } else { shifted ^ polynomial }
            })
        })
    }
    let shape = u64::from(FLAC_RATE_HZ) << 44 | u64::from(channels - 1) << 41 | 15 << 36 | claimed;
    let mut file = b"fLaC\x80\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    file.extend(shape.to_be_bytes());
    file.extend([0; 16]);
    for (number, is_good) in (0..).zip(blocks) {
        let mut block = vec![0xFF, 0xF8, 0xC0, (channels - 1) << 4 | 8];
        let number = char::from_u32(number).expect("not so many blocks");
        block.extend(number.encode_utf8(&mut [0; 4]).bytes());
        block.push(crc(&block, 8, 0x07) as u8);
        for _ in 0..channels {
            // A subframe of one value, or of a kind that is reserved.
            block.extend([if is_good { 0 } else { 4 }, 1, 2]);
        }
        block.extend((crc(&block, 16, 0x8005) as u16).to_be_bytes());
        file.extend(block);
    }
    file.into()
}

#[test]
fn what_is_foreseen_is_about_what_is_decoded() {
    for (name, bytes, raw) in files() {
        let foreseen = estimate(&bytes, &options(raw)).expect(&name);
        let decoded = decode(bytes, &options(raw)).expect(&name);
        // For speech coders only a usual rate is known, for bare frames of AAC only the average of a few.
        let by_rate = [".amr", "speex_nb.ogg", "speex_wb.ogg", "speex_uwb.ogg", ".aac"];
        let slack = if by_rate.iter().any(|end| name.ends_with(end)) { 2.0 } else { 1.1 };
        let ratio = foreseen.seconds / decoded.duration_seconds;
        assert!((1.0 / slack..=slack).contains(&ratio), "{name}: {foreseen:?}");
        let tells_all = [".wav", ".flac", ".mp3", ".mp2", ".aiff", "opus.ogg", "vorbis.ogg", "raw"];
        if tells_all.iter().any(|end| name.ends_with(end)) {
            let source = (decoded.source_channels, decoded.source_sample_rate_hz);
            assert_eq!((foreseen.channels, foreseen.sample_rate_hz), source, "{name}");
        }
    }
}

#[test]
fn a_small_file_of_many_channels_is_known_for_what_it_holds() {
    let bomb = flac(8, 599 * u64::from(FLAC_RATE_HZ), (0..1198).map(|_| true));
    assert!(bomb.len() < 45_000);
    let foreseen = estimate(&bomb, &options(None)).expect("FLAC");
    assert_eq!((foreseen.channels, foreseen.seconds), (8, 599.0));
    assert_eq!((foreseen.held_bytes(false), foreseen.held_bytes(true)), (599 * 32_000, 8 * 599 * 32_000));
    assert_eq!(foreseen.source_samples(), 8.0 * 599.0 * f64::from(FLAC_RATE_HZ));
    // As much as was foreseen, and not a byte more.
    let apart = DecodeOptions { split_channels: true, ..options(None) };
    let mut told = Progress::default();
    let decoded = decode_within(bomb, &apart, &mut |progress| {
        assert!(progress.output_samples <= told.output_samples + 8 * 16_000, "told too late");
        told = progress;
        Ok(())
    });
    let decoded = decoded.expect("FLAC");
    let held: usize = decoded.channels.iter().map(|sound| 2 * sound.len()).sum();
    assert_eq!((decoded.channels.len(), held as u64), (8, foreseen.held_bytes(true)));
    assert!(told.held_bytes() <= foreseen.held_bytes(true));
    assert_eq!(told.source_samples as f64, foreseen.source_samples());
}

#[test]
fn a_header_that_lies_about_the_length_changes_the_estimate_alone() {
    let second = u64::from(FLAC_RATE_HZ);
    let claims = [(second, Some(1.0)), (600 * second, Some(600.0)), ((1 << 36) - 1, Some(600.0)), (0, None)];
    for (claimed, foreseen) in claims {
        let small = flac(1, claimed, (0..2).map(|_| true));
        let estimate = estimate(&small, &options(None)).expect("FLAC");
        assert!(foreseen.is_none_or(|seconds| estimate.seconds == seconds), "{estimate:?} of {claimed}");
        assert_eq!(decode(small, &options(None)).expect("FLAC").duration_seconds, 1.0, "{claimed}");
    }
    let long = flac(1, second, (0..1200).map(|_| true));
    assert_eq!(estimate(&long, &options(None)).expect("FLAC").seconds, 1.0);
    assert_eq!(decode(long.clone(), &options(None)).expect("FLAC").duration_seconds, 600.0);
    let mut most = 0;
    let stopped = decode_within(long, &options(None), &mut |progress| {
        most = progress.output_samples;
        if most > 160_000 { Err(Error::Stopped) } else { Ok(()) }
    });
    assert_eq!(stopped.err(), Some(Error::Stopped));
    assert!(most < 200_000, "{most} samples of {}", 600 * 16_000);
    let longer = flac(1, second, (0..1201).map(|_| true));
    assert_eq!(decode(longer, &options(None)).err(), Some(Error::TooLong { limit_seconds: 600.0 }));
}

#[test]
fn samples_that_are_too_many_are_refused_before_they_are_decoded() {
    let raw = RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: 8_000, channels: 2 };
    let limits = Limits { max_seconds: 2.0, ..Limits::default() };
    let options = DecodeOptions { raw: Some(raw.into()), split_channels: false, limits };
    let of = |seconds: f64| estimate(&vec![1; (seconds * 32_000.0) as usize].into(), &options);
    assert_eq!(of(3.5).err(), Some(Error::TooLong { limit_seconds: 2.0 }));
    assert_eq!(of(2.5).map(|estimate| estimate.seconds), Ok(2.0));
    assert_eq!(of(1.5).map(|estimate| estimate.output_seconds(true)), Ok(3.0));
    assert_eq!(estimate(&Bytes::new(), &options).err(), Some(Error::Empty));
}

#[test]
fn every_reader_is_stopped_by_its_budget() {
    for (name, bytes, raw) in files() {
        let mut most = 0;
        let stopped = decode_within(bytes, &options(raw), &mut |progress| {
            most = progress.output_samples;
            if most >= 16_000 { Err(Error::Stopped) } else { Ok(()) }
        });
        assert_eq!(stopped.err(), Some(Error::Stopped), "{name}");
        // The report that is due after a second comes with the end of a piece, which has a second at most; G.729 is
        // read in pieces of four seconds.
        assert!(most < 2 * 16_000 || name == "g729.bin", "{name}: {most}");
    }
}

#[test]
fn packets_that_yield_nothing_are_reported_and_bounded() {
    let mut reports = 0;
    let stopped = decode_within(flac(1, 0, (0..1_000).map(|_| false)), &options(None), &mut |progress| {
        assert_eq!(progress.output_samples, 0);
        reports += 1;
        if reports == 3 { Err(Error::Stopped) } else { Ok(()) }
    });
    assert_eq!((stopped.err(), reports), (Some(Error::Stopped), 3));
    // A good one now and then does not keep the reader going for ever.
    let rare = (0..40_010).map(|number| number % 4_001 == 4_000);
    let decoded = decode(flac(1, 0, rare), &options(None)).expect("what was good");
    assert_eq!((decoded.duration_seconds, decoded.damaged), (0.5, true));
}
