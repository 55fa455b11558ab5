//! Unusual formats and corner cases of the usual ones: each is transcribed correctly, whole and in pieces, and
//! unsupported ones are named in the refusal.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use verbatim::audio::{
    Bare, DecodeOptions, Decoded, Error, Limits, LogMel, PcmStream, SpeechCoding, StreamFormat,
    StreamOptions, decode,
};
use verbatim::live::Config;

use crate::audio::random;
use crate::server::{Setup, TestServer, answer};
use crate::socket::Said;
use crate::streams::{decoded, fixture, options};

fn repository(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first two seconds of the reading that the fixtures of ./setup have, in other codings.
pub fn coded(name: &str) -> Vec<u8> {
    repository(&format!("tests/fixtures/coded/{name}"))
}

fn of_file(raw: Option<Bare>) -> DecodeOptions {
    DecodeOptions { raw, split_channels: false, limits: Limits::default() }
}

fn file(bytes: Vec<u8>, raw: Option<Bare>) -> Result<Decoded, Error> {
    decode(bytes.into(), &of_file(raw))
}

fn reading() -> Vec<f32> {
    let decoded = file(fixture("pcm16.wav"), None).expect("the reading");
    decoded.channels[0].pcm(..).samples().to_vec()
}

/// How alike a second sounds, from 0.6 s on, at the best shift of up to 100 ms: 1 is equal. The spectra are
/// compared up to 3.4 kHz, which telephones have: their codecs rebuild the voice, not its waveform.
fn likeness(said: &[f32], heard: &[f32]) -> f64 {
    const START: usize = 9_600;
    const SHIFT: usize = 1_600;
    let spectrum = spectrum(&said[START..]);
    let shifts = (START - SHIFT..=START + SHIFT).step_by(40);
    shifts.map(|start| correlation(&spectrum, &self::spectrum(&heard[start..]))).fold(0.0, f64::max)
}

fn spectrum(samples: &[f32]) -> Vec<f64> {
    const FRAMES: usize = 90;
    const BANDS: usize = 80;
    const TELEPHONE: std::ops::Range<usize> = 4..52;
    let mut energies = vec![0.0; FRAMES * BANDS];
    LogMel::new(BANDS).log_energies(samples, 2..2 + FRAMES, &mut energies);
    // Sound 40 dB below speech counts as silence, which differs from codec to codec.
    let floor = energies.iter().fold(f32::MIN, |most, energy| most.max(*energy)) - 4.0;
    energies
        .chunks_exact(BANDS)
        .flat_map(|frame| &frame[TELEPHONE])
        .map(|energy| f64::from(energy.max(floor)))
        .collect()
}

fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let centred = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| value - mean).collect::<Vec<_>>()
    };
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (one, other) = (centred(one), centred(other));
    product(&one, &other) / (product(&one, &one) * product(&other, &other)).sqrt()
}

/// Speech at another time, or at another speed, has less likeness than this.
const SAME: f64 = 0.9;

#[test]
fn likeness_tells_one_passage_from_another() {
    let said = reading();
    let quiet: Vec<f32> = said.iter().map(|sample| sample / 10.0).collect();
    assert!(likeness(&said, &quiet) > 0.999);
    for other in [1, 2, 3, 4] {
        let alike = likeness(&said, &said[other * 16_000..]);
        assert!(alike < 0.75, "{other}: {alike}");
    }
    let slow: Vec<f32> = said.iter().flat_map(|&sample| [sample; 2]).collect();
    assert!(likeness(&said, &slow) < 0.75);
}

async fn stream(format: StreamFormat, pieces: impl Iterator<Item = &[u8]>) -> Result<Vec<f32>, Error> {
    let pieces: Vec<&[u8]> = pieces.collect();
    let channels = decoded(options(format, false), &pieces).await?;
    Ok(channels.into_iter().next().unwrap_or_default())
}

#[tokio::test]
async fn every_coding_is_heard_as_what_was_said() {
    let said = reading();
    for (name, rate, channels) in [
        ("nb.amr", 8_000, 1),
        ("nb_dtx.amr", 8_000, 1),
        ("nb.3gp", 8_000, 1),
        ("wb.amr", 16_000, 1),
        ("wb.3gp", 16_000, 1),
        ("speex_nb.ogg", 8_000, 1),
        ("speex_wb.ogg", 16_000, 1),
        ("speex_uwb.ogg", 32_000, 1),
        ("alac.m4a", 8_000, 1),
        ("caf.caf", 8_000, 1),
        ("aifc.aiff", 8_000, 1),
        ("ima.wav", 8_000, 1),
        ("ms.wav", 8_000, 1),
        ("mp3.wav", 16_000, 1),
        ("mp2.mp2", 16_000, 1),
        ("opus_51.ogg", 48_000, 6),
        ("he_aac.m4a", 24_000, 1),
    ] {
        let bytes = coded(name);
        let decoded = file(bytes.clone(), None).expect(name);
        let source = (decoded.source_sample_rate_hz, decoded.source_channels);
        assert_eq!((source, decoded.damaged), ((rate, channels), false), "{name}");
        assert!((1.99..2.1).contains(&decoded.duration_seconds), "{name}: {} s", decoded.duration_seconds);
        let alike = likeness(&said, decoded.channels[0].pcm(..).samples());
        assert!(alike > SAME, "{name}: {alike}");
        for size in [bytes.len(), 1_000, 48, 7] {
            let heard = stream(StreamFormat::Container, bytes.chunks(size)).await.expect(name);
            let alike = likeness(&said, &heard);
            assert!(alike > SAME, "{name} in pieces of {size}: {alike}");
        }
    }
}

#[tokio::test]
async fn speech_without_a_container_is_what_the_sender_says() {
    let said = reading();
    for (bytes, coding) in [
        (coded("nb.amr")[6..].to_vec(), SpeechCoding::AmrNarrow),
        (coded("nb.amr"), SpeechCoding::AmrNarrow),
        (coded("wb.amr")[9..].to_vec(), SpeechCoding::AmrWide),
        // A file identifies itself.
        (coded("wb.amr"), SpeechCoding::AmrNarrow),
        (coded("g729.bin"), SpeechCoding::G729),
    ] {
        let decoded = file(bytes.clone(), Some(Bare::Speech(coding))).expect("speech");
        assert!(
            !decoded.damaged && likeness(&said, decoded.channels[0].pcm(..).samples()) > SAME,
            "{coding:?}"
        );
        // 4,000 bytes hold all of it, 251 no whole frames.
        for size in [4_000, 251, 1] {
            let heard = stream(StreamFormat::Speech(coding), bytes.chunks(size)).await.expect("speech");
            assert!(likeness(&said, &heard) > SAME, "{coding:?} in pieces of {size}");
            assert!(heard.len().abs_diff(decoded.channels[0].len()) < 800, "{coding:?}");
        }
    }
    // Packets of Speex have no bounds of their own.
    let packets = crate::streams::ogg_packets(&coded("speex_wb.ogg"));
    let coding = SpeechCoding::Speex { sample_rate_hz: 16_000 };
    let heard = stream(StreamFormat::Speech(coding), packets.iter().map(Vec::as_slice)).await.expect("Speex");
    assert!(likeness(&said, &heard) > SAME);
    let in_ogg = coded("speex_wb.ogg");
    let heard = stream(StreamFormat::Speech(coding), in_ogg.chunks(100)).await.expect("Speex in Ogg");
    assert!(likeness(&said, &heard) > SAME);
    let refused = file(packets.concat(), Some(Bare::Speech(coding)));
    assert!(matches!(refused, Err(Error::Unsupported(what)) if what.starts_with("Speex without Ogg")));
}

#[tokio::test]
async fn a_telephones_packet_may_end_in_the_noise_of_a_silence() {
    let frames = coded("g729.bin");
    // 20 ms of speech and 10 ms of silence in each.
    let packets: Vec<Vec<u8>> = frames.chunks(20).map(|speech| [speech, &[0x5A, 0x3C]].concat()).collect();
    let heard = stream(StreamFormat::Speech(SpeechCoding::G729), packets.iter().map(Vec::as_slice)).await;
    assert_eq!(heard.expect("packets").len(), packets.len() * 480);
}

#[tokio::test]
async fn what_is_no_frame_of_speech_is_refused_or_passed_over() {
    let text = b"It is a truth universally acknowledged, that a single man in possession of a fortune. "
        .repeat(2_000);
    for coding in [SpeechCoding::AmrNarrow, SpeechCoding::AmrWide] {
        let refused = file(text.clone(), Some(Bare::Speech(coding)));
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{coding:?}: {refused:?}");
        let refused = stream(StreamFormat::Speech(coding), text.chunks(500)).await;
        assert!(
            matches!(refused, Err(Error::Corrupt(_))),
            "{coding:?}: {:?} samples",
            refused.map(|heard| heard.len())
        );
    }
    let coding = SpeechCoding::Speex { sample_rate_hz: 8_000 };
    let too_long = vec![0x55; 100_000];
    let refused = stream(StreamFormat::Speech(coding), std::iter::repeat_n(&too_long[..], 30)).await;
    assert!(matches!(refused, Err(Error::Corrupt(_))));
    // A few stray bytes between frames cost only themselves, and the file counts as damaged.
    let mut damaged = coded("nb.amr");
    damaged.splice(6 + 32 * 10..6 + 32 * 10, *b"###");
    let heard = file(damaged, None).expect("the rest");
    assert!(heard.damaged && likeness(&reading(), heard.channels[0].pcm(..).samples()) > SAME);
}

/// A WAVE file of `samples` with `chunks` before them.
fn wave(magic: &[u8; 4], chunks: &[&[u8]], data_bytes: u32, samples: &[u8]) -> Vec<u8> {
    let format = b"fmt \x10\0\0\0\x01\0\x01\0\x80\x3E\0\0\0\x7D\0\0\x02\0\x10\0";
    [magic, &[0xFF; 4][..], b"WAVE", &chunks.concat(), format, b"data", &data_bytes.to_le_bytes(), samples]
        .concat()
}

#[tokio::test]
async fn a_wave_file_may_lie_about_its_length_and_hold_other_things() {
    let all = fixture("pcm16.wav");
    let samples = &all[all.len() - 7 * 32_000..];
    let length = samples.len() as u32;
    let ds64 = [&b"ds64\x1C\0\0\0"[..], &[0; 8], &u64::from(length).to_le_bytes(), &[0; 12]].concat();
    let list = b"LIST\x05\0\0\0INFOx\0";
    let odd = b"junk\x03\0\0\0abc\0";
    for (what, file_bytes, damaged) in [
        ("RF64", wave(b"RF64", &[&ds64], u32::MAX, samples), false),
        ("BW64", wave(b"BW64", &[&ds64, odd], u32::MAX, samples), false),
        ("a list first", wave(b"RIFF", &[list, odd], length, samples), false),
        ("from a pipe", wave(b"RIFF", &[], u32::MAX, samples), false),
        ("from another pipe", wave(b"RIFF", &[], 0x7FFF_FFD8, samples), false),
        ("never corrected", wave(b"RIFF", &[], 0, samples), false),
        ("a list last", [wave(b"RIFF", &[], length, samples), list.to_vec()].concat(), false),
        ("cut off", wave(b"RIFF", &[], length + 10_000, samples), true),
    ] {
        let decoded = file(file_bytes.clone(), None).expect(what);
        assert_eq!((decoded.duration_seconds, decoded.damaged), (7.0, damaged), "{what}");
        let heard = stream(StreamFormat::Container, file_bytes.chunks(997)).await.expect(what);
        assert!(heard.starts_with(decoded.channels[0].pcm(..).samples()), "{what}");
    }
}

#[tokio::test]
async fn streams_one_after_another_are_all_heard_whatever_their_rates() {
    let said = reading();
    let seconds = said.len() as f64 / 16_000.0;
    let chained = [fixture("opus.ogg"), fixture("vorbis.ogg"), coded("opus_51.ogg")].concat();
    let decoded = file(chained.clone(), None).expect("Ogg");
    assert!(!decoded.damaged);
    assert!((decoded.duration_seconds - 2.0 * seconds - 2.0).abs() < 0.1, "{}", decoded.duration_seconds);
    let pcm = decoded.channels[0].pcm(..);
    let samples = pcm.samples();
    for start in [0.0, seconds, 2.0 * seconds] {
        let alike = likeness(&said, &samples[(start * 16_000.0) as usize..]);
        assert!(alike > SAME, "from {start} s on: {alike}");
    }
    let heard = stream(StreamFormat::Container, chained.chunks(1_000)).await.expect("Ogg");
    assert!(heard.len().abs_diff(samples.len()) < 800);
    let twice = [coded("speex_nb.ogg"), coded("speex_wb.ogg")].concat();
    let decoded = file(twice, None).expect("Speex");
    assert!((decoded.duration_seconds - 4.0).abs() < 0.1 && !decoded.damaged);
}

#[tokio::test]
async fn an_index_behind_the_audio_is_waited_for() {
    let said = reading();
    for name in ["m4a.m4a", "mp4.mp4"] {
        let bytes = fixture(name);
        let position = |what: &[u8]| bytes.windows(4).position(|window| window == what).expect(name);
        assert!(position(b"moov") > position(b"mdat"), "{name} is not of this kind");
        let heard = stream(StreamFormat::Container, bytes.chunks(1_000)).await.expect(name);
        assert!(likeness(&said, &heard) > SAME, "{name}");
        // Without its end the file has no index.
        let cut_off = stream(StreamFormat::Container, bytes[..bytes.len() / 2].chunks(1_000)).await;
        assert!(matches!(cut_off, Err(Error::Corrupt(_))), "{name}");
    }
    // No more is kept than is promised, and no more streams than may have readers keep any.
    let start = [&16_u32.to_be_bytes()[..], b"ftypisom\0\0\0\0", &u32::MAX.to_be_bytes(), b"mdat"].concat();
    let audio = vec![7; 1 << 20];
    let pieces = std::iter::once(&start[..]).chain(std::iter::repeat_n(&audio[..], 40));
    let refused = stream(StreamFormat::Container, pieces).await;
    assert!(matches!(&refused, Err(Error::Corrupt(why)) if why.contains("16777216 bytes")), "{refused:?}");
    let options = StreamOptions {
        format: StreamFormat::Container,
        split_channels: false,
        max_channels: 8,
        readers: Arc::new(Semaphore::new(0)),
    };
    assert_eq!(PcmStream::new(options).push(start.into()), Err(Error::Busy));
}

#[test]
fn what_is_not_read_is_named() {
    for (bytes, name) in [
        (coded("ac3.mp4"), "AC-3 in MP4"),
        (coded("g726.wav"), "WAV with G.721, G.723 or G.726"),
        (b"\x30\x26\xB2\x75\x8E\x66\xCF\x11\xA6\xD9".to_vec(), "ASF (Windows Media)"),
        (b"FLV\x01\x05\0\0\0\x09".to_vec(), "Flash video"),
        (b"\x0B\x77\0\0\0\0\0\0".to_vec(), "AC-3"),
        (b"RIFF\0\0\0\0AVI LIST".to_vec(), "AVI"),
        ([0x47; 600].to_vec(), "an MPEG transport stream"),
        (b"#!AMR_MC1.0\n\0\0\0\x02".to_vec(), "AMR with several channels"),
        (b"\xFF\xFB\x00\xC4 free format".to_vec(), "MP3 in free format"),
        (b" <!DOCTYPE html><html>".to_vec(), "a web page"),
        (b"\x1F\x8B\x08\0".to_vec(), "gzip"),
        (vec![0x89; 100], "audio of no known format"),
    ] {
        assert_eq!(file(bytes, None).map(|_| ()), Err(Error::Unsupported(name.into())));
    }
}

#[test]
fn a_file_that_breaks_off_is_heard_up_to_there_and_marked() {
    for name in ["nb.amr", "wb.amr", "speex_nb.ogg", "speex_uwb.ogg", "ima.wav", "ms.wav", "mp3.wav"] {
        let bytes = coded(name);
        // Amid a frame.
        let decoded = file(bytes[..bytes.len() * 6 / 10 + 3].to_vec(), None).expect(name);
        assert!((0.7..1.7).contains(&decoded.duration_seconds), "{name}: {} s", decoded.duration_seconds);
        assert!(decoded.damaged, "{name}");
    }
    // Their heads say how long they are: a cut between frames shows too.
    for name in ["flac.flac", "mp3.mp3"] {
        let bytes = fixture(name);
        for parts in 3..8 {
            let decoded = file(bytes[..bytes.len() * parts / 9].to_vec(), None).expect(name);
            assert!(decoded.damaged, "{name}: {parts} of 9 parts, {} s", decoded.duration_seconds);
        }
    }
}

#[test]
fn mutated_speech_is_decoded_or_refused() {
    let mut random = random(5);
    let speech = [
        "nb.amr",
        "nb_dtx.amr",
        "wb.amr",
        "nb.3gp",
        "wb.3gp",
        "speex_nb.ogg",
        "speex_wb.ogg",
        "speex_uwb.ogg",
    ];
    let others =
        ["g729.bin", "alac.m4a", "caf.caf", "aifc.aiff", "ima.wav", "ms.wav", "opus_51.ogg", "he_aac.m4a"];
    for name in speech.iter().chain(&others) {
        let bytes = coded(name);
        for round in 0..60 {
            let mut mutant = bytes.clone();
            for _ in 0..1 << random(7) {
                let place = random(if round % 2 == 0 { mutant.len().min(300) } else { mutant.len() });
                match random(3) {
                    0 => mutant[place] ^= 1 << random(8),
                    1 => mutant[place] = [0, 0xFF, 0x7F, 0x80][random(4)],
                    _ => mutant.truncate(place.max(16)),
                }
            }
            let raw = [SpeechCoding::G729, SpeechCoding::AmrNarrow, SpeechCoding::AmrWide][random(3)];
            if let Ok(decoded) = file(mutant, Some(Bare::Speech(raw))) {
                assert!(decoded.duration_seconds < 600.0, "{name}, round {round}");
            }
        }
    }
}

#[tokio::test]
async fn the_server_takes_speech_and_says_what_it_does_not_take() {
    let server = TestServer::start(Setup::default()).await;
    for (query, name) in [
        ("", "nb.3gp"),
        ("", "speex_wb.ogg"),
        ("encoding=amr-nb&sample_rate=8000", "nb.amr"),
        ("encoding=amr-wb", "wb.amr"),
        ("encoding=g729&sample_rate=8000", "g729.bin"),
        ("encoding=speex&sample_rate=16000", "speex_wb.ogg"),
    ] {
        let (status, body) = answer(server.listen(query, coded(name))).await;
        assert_eq!(status, 200, "{query} {name}: {body}");
        let duration = body["metadata"]["duration"].as_f64().expect("seconds");
        assert!((1.99..2.1).contains(&duration), "{query} {name}: {duration} s");
        assert_eq!(body["metadata"].get("warnings"), None, "{query} {name}");
    }
    let (status, body) = answer(server.listen("", coded("ac3.mp4"))).await;
    assert_eq!((status, &body["err_code"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")));
    let message = body["err_msg"].as_str().expect("a message");
    assert!(
        message.starts_with("What was sent is AC-3 in MP4, which is not supported. Supported are MP3,"),
        "{message}"
    );
}

#[tokio::test]
async fn a_file_that_breaks_off_is_answered_with_a_warning() {
    let server = TestServer::start(Setup::default()).await;
    let whole = fixture("pcm16.wav");
    for (bytes, query, is_damaged) in
        [(&whole[..], "", false), (&whole[..100_000], "", true), (&whole[..100_000], "search=one", true)]
    {
        let (status, body) = answer(server.listen(query, bytes.to_vec())).await;
        assert_eq!(status, 200, "{body}");
        let warnings = &body["metadata"]["warnings"];
        let expected = json!([{
            "parameter": "audio",
            "type": "damaged_audio",
            "message": "The audio is damaged or breaks off: 3.12 s of it could be decoded and were transcribed.",
        }]);
        assert_eq!(warnings, if is_damaged { &expected } else { &Value::Null }, "{body}");
    }
}

#[tokio::test]
async fn live_streams_take_speech_too() {
    let server = crate::live::start(Config::default()).await;
    let in_packets = crate::streams::ogg_packets(&coded("speex_nb.ogg"));
    let cut = |bytes: Vec<u8>| bytes.chunks(321).map(<[u8]>::to_vec).collect::<Vec<_>>();
    for (query, pieces) in [
        ("encoding=amr-nb&sample_rate=8000", cut(coded("nb.amr")[6..].to_vec())),
        ("encoding=amr-wb&sample_rate=16000", cut(coded("wb.amr"))),
        ("encoding=g729&sample_rate=8000", cut(coded("g729.bin"))),
        ("encoding=speex&sample_rate=8000", in_packets),
        ("encoding=speex&sample_rate=8000", cut(coded("speex_nb.ogg"))),
        ("", cut(coded("wb.3gp"))),
        ("", cut(coded("nb.3gp"))),
        ("interim_results=true", cut(fixture("m4a.m4a")[..].to_vec())),
    ] {
        let mut socket = crate::live::open(&server, query).await;
        for piece in &pieces {
            socket.audio(piece).await;
        }
        socket.control("KeepAlive").await;
        socket.control("CloseStream").await;
        let (messages, end) = socket.rest().await;
        assert_eq!(end, Said::Close(1000, String::new()), "{query}");
        let duration = messages.last().expect("metadata")["duration"].as_f64().expect("seconds");
        let expected = if query.starts_with("interim") { 7.1 } else { 2.0 };
        assert!((duration - expected).abs() < 0.1, "{query}: {duration} s");
    }
    let mut refused = crate::live::open(&server, "").await;
    refused.audio(&coded("g726.wav")).await;
    let (_, end) = refused.rest().await;
    assert!(matches!(&end, Said::Close(1008, reason) if reason.starts_with("DATA-0000")), "{end:?}");
}
