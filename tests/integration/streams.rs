//! Streams without a network: incremental decoding, and recognition of growing audio.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::sync::Semaphore;
use verbatim::audio::{
    self, DecodeOptions, Pcm, PcmStream, Piece, RawEncoding, RawFormat, StreamFormat, StreamOptions,
};
use verbatim::engine::{self, Engine, LanguageChoice, SpeechModel, TenantId};
use verbatim::live::{Config, Event, Live, Options, Progress, Results};
use verbatim::share::Tenants;
use verbatim::transcript::Word;

use crate::speech;
use crate::tones::{Listener, bytes, utter};

const LINEAR16: StreamFormat =
    StreamFormat::Raw(RawFormat { encoding: RawEncoding::Linear16, sample_rate_hz: 16_000, channels: 1 });

pub fn options(format: StreamFormat, split_channels: bool) -> StreamOptions {
    StreamOptions { format, split_channels, max_channels: 8, readers: Arc::new(Semaphore::new(4)) }
}

/// All audio decoded from `pieces`.
pub async fn decoded(options: StreamOptions, pieces: &[&[u8]]) -> Result<Vec<Vec<f32>>, audio::Error> {
    let mut stream = PcmStream::new(options);
    let mut output: Vec<Vec<f32>> = Vec::new();
    let mut pieces = pieces.iter();
    let mut has_ended = false;
    loop {
        while !has_ended && stream.is_hungry() {
            match pieces.next() {
                Some(piece) => stream.push(Bytes::copy_from_slice(piece))?,
                None => {
                    stream.finish()?;
                    has_ended = true;
                }
            }
        }
        match stream.next().await? {
            Piece::Pcm(channels) => {
                output.resize(output.len().max(channels.len()), Vec::new());
                output.iter_mut().zip(channels).for_each(|(output, channel)| output.extend(channel));
            }
            Piece::CaughtUp => {}
            Piece::End => return Ok(output),
        }
    }
}

pub fn cut<'a>(bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            return pieces;
        }
        let (piece, left) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = left;
    }
    pieces
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn where_raw_bytes_are_cut_changes_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..20_000), sizes in prop::collection::vec(1_usize..3000, 1..20),
        encoding in prop::sample::select(vec![RawEncoding::Linear16, RawEncoding::Linear32, RawEncoding::Mulaw, RawEncoding::Alaw]),
        sample_rate_hz in prop::sample::select(vec![8_000, 16_000, 44_100, 48_000]), channels in 1_u16..4, split in any::<bool>(),
    ) {
        let format = StreamFormat::Raw(RawFormat { encoding, sample_rate_hz, channels });
        runtime().block_on(async {
            let whole = decoded(options(format, split), &[&bytes]).await.expect("raw");
            let in_pieces = decoded(options(format, split), &cut(&bytes, &sizes)).await.expect("raw");
            prop_assert!(whole == in_pieces);
            let frames = bytes.len() / (usize::from(channels) * match encoding {
                RawEncoding::Linear16 => 2,
                RawEncoding::Linear32 => 4,
                _ => 1,
            });
            let expected = (frames as f64 * 16_000.0 / f64::from(sample_rate_hz)).round() as usize;
            prop_assert!(whole.iter().all(|channel| channel.len() == expected), "{} samples", expected);
            Ok(())
        })?;
    }
}

pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(speech::cache(&format!("fixtures/{name}"))).expect("readable")
}

#[tokio::test]
async fn containers_are_read_as_they_come_and_as_whole_files_are() {
    for (name, format) in [
        ("pcm16.wav", StreamFormat::Container),
        ("mulaw_8k.wav", StreamFormat::Container),
        ("flac.flac", StreamFormat::Container),
        ("opus.ogg", StreamFormat::Container),
        ("vorbis.ogg", StreamFormat::Container),
        ("opus.webm", StreamFormat::Container),
        ("mp3.mp3", StreamFormat::Container),
        ("mp3.mp3", StreamFormat::Mpeg),
        ("adts.aac", StreamFormat::Adts),
    ] {
        let bytes = fixture(name);
        let whole = decoded(options(format, false), &[&bytes]).await.expect(name);
        for sizes in [&[1000][..], &[1, 3000, 7], &[48]] {
            let in_pieces = decoded(options(format, false), &cut(&bytes, sizes)).await.expect(name);
            assert!(whole == in_pieces, "{name} in pieces of {sizes:?}");
        }
        let limits = audio::Limits::default();
        let file = audio::decode(bytes.into(), &DecodeOptions { raw: None, split_channels: false, limits });
        let file = file.expect(name).channels[0].len();
        // A file may declare its length at its end; a stream has none.
        assert!(
            whole[0].len().abs_diff(file) <= 2400,
            "{name}: {} samples, {file} of the file",
            whole[0].len()
        );
    }
}

/// The packets of the fixture, 20 ms each.
pub fn opus_packets() -> Vec<Vec<u8>> {
    ogg_packets(&fixture("opus.ogg"))
}

/// Packets without their Ogg pages (RFC 3533), and without the two header packets.
pub fn ogg_packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut packets, mut packet, mut rest) = (Vec::new(), Vec::new(), bytes);
    while let [b'O', b'g', b'g', b'S', ..] = rest {
        let segments = usize::from(rest[26]);
        let (lengths, mut body) = rest[27..].split_at(segments);
        for &length in lengths {
            let (part, after) = body.split_at(usize::from(length));
            packet.extend_from_slice(part);
            body = after;
            if length < 255 {
                packets.push(std::mem::take(&mut packet));
            }
        }
        rest = body;
    }
    packets.split_off(2)
}

#[tokio::test]
async fn packets_of_opus_sound_as_they_do_in_their_container() {
    let packets = opus_packets();
    let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let alone = decoded(options(StreamFormat::Opus { channels: 1 }, false), &packets).await.expect("packets");
    let ogg = fixture("opus.ogg");
    for format in [StreamFormat::Container, StreamFormat::Opus { channels: 1 }] {
        let packaged = decoded(options(format, false), &[&ogg]).await.expect("a container");
        // The container says how much of the beginning is to be left out: 312 samples at 48 kHz.
        let lag = alone[0].len() - packaged[0].len();
        assert!(lag < 16_000 * 40 / 1000, "{lag} samples");
        let (one, other) = (&alone[0][lag..], &packaged[0]);
        let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let likeness = (0..lag + 200)
            .map(|shift| sum(&alone[0][shift..], other) / (sum(one, one) * sum(other, other)).sqrt())
            .fold(0.0, f64::max);
        assert!(likeness > 0.98, "{likeness}");
    }
}

#[tokio::test]
async fn what_is_no_container_is_refused_and_threads_are_bounded() {
    let noise = vec![b'x'; 10_000];
    assert_eq!(
        decoded(options(StreamFormat::Container, false), &[&noise]).await,
        Err(audio::Error::Unsupported("audio of no known format".into()))
    );
    let cut_off = &fixture("flac.flac")[..200];
    assert!(decoded(options(StreamFormat::Container, false), &[cut_off]).await.is_err());
    let none =
        StreamOptions { readers: Arc::new(Semaphore::new(0)), ..options(StreamFormat::Container, false) };
    assert_eq!(decoded(none, &[&fixture("flac.flac")]).await, Err(audio::Error::Busy));
}

fn live() -> Live {
    let load = || Ok::<Box<dyn SpeechModel>, Infallible>(Box::new(Listener::new()));
    let engine = Engine::start(&engine::Config::default(), load).expect("a scripted model loads");
    Live::new(engine, None, Config { hop_ms: 200, ..Config::default() }, Tenants::default())
}

pub fn wanted() -> Options {
    Options {
        format: LINEAR16,
        multichannel: false,
        language: LanguageChoice::Detect { among: Vec::new(), expected: None },
        interim_results: true,
        endpointing: Some(Duration::from_millis(10)),
        utterance_end: None,
        speech_started: false,
        voice: false,
        voice_threshold: None,
        speakers: None,
        voices: None,
        prompt: None,
        bias: Arc::default(),
        tenant: TenantId(1),
    }
}

/// The final results of `pieces`, pushed as fast as they are taken.
pub async fn heard(live: &Live, wanted: Options, pieces: &[&[u8]]) -> Vec<Results> {
    let mut session = live.open(live.admit(TenantId::default()).expect("room"), wanted);
    let mut results = Vec::new();
    let mut pieces = pieces.iter();
    let mut has_ended = false;
    loop {
        while !has_ended && session.wants_audio() {
            match pieces.next() {
                Some(piece) => session.push(Bytes::copy_from_slice(piece)).expect("audio"),
                None => {
                    session.finish().expect("audio");
                    has_ended = true;
                }
            }
        }
        match session.next().await.expect("no failure") {
            Progress::Event(Event::Results(heard)) if heard.is_final => results.push(heard),
            Progress::Event(_) | Progress::Moved => {}
            Progress::Ended => return results,
        }
    }
}

pub fn words(results: &[Results]) -> Vec<Word> {
    results.iter().flat_map(|results| results.words.clone()).collect()
}

#[tokio::test]
async fn a_minute_and_a_half_without_a_pause_is_cut_between_words() {
    let said: Vec<(u8, f64, f64)> = (0..300).map(|n| (1 + (n % 100) as u8, 0.25, 0.05)).collect();
    let audio = bytes(&utter(&said));
    let results = heard(&live(), wanted(), &cut(&audio, &[32_000])).await;
    let heard: Vec<String> = words(&results).iter().map(|word| word.text.clone()).collect();
    let expected: Vec<String> = said.iter().map(|(word, ..)| format!(" W{word},")).collect();
    assert_eq!(heard, expected);
    assert!(
        results.len() >= 4 && results.iter().all(|results| !results.speech_final && results.duration < 30.0)
    );
    let starts: Vec<f64> = words(&results).iter().map(|word| word.start).collect();
    assert!(starts.iter().enumerate().all(|(n, start)| (start - n as f64 * 0.3).abs() < 0.05), "{starts:?}");
}

#[tokio::test]
async fn hours_keep_their_time() {
    // Three hours, nearly all of them silent; the last words are in the last second.
    let mut session = {
        let live = live();
        live.open(live.admit(TenantId::default()).expect("room"), wanted())
    };
    let silence = Bytes::from(vec![0; 16_000 * 2 * 10]);
    let mut last = None;
    for block in 0..=1080 {
        if block < 1080 {
            session.push(silence.clone()).expect("audio");
        } else {
            session.push(bytes(&utter(&[(5, 0.5, 0.5)])).into()).expect("audio");
            session.finish().expect("audio");
        }
        loop {
            match session.next().await.expect("no failure") {
                Progress::Event(Event::Results(heard)) if !heard.words.is_empty() => {
                    last = heard.words.last().cloned()
                }
                Progress::Moved if session.wants_audio() && block < 1080 => break,
                Progress::Ended => break,
                _ => {}
            }
        }
    }
    let last = last.expect("a word");
    assert_eq!((last.start, last.end), (10_800.0, 10_800.5));
    assert_eq!(session.duration(), 10_801.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_word_is_lost_or_said_twice_whatever_is_said_and_however_it_comes(
        said in prop::collection::vec((1_u8..100, 0.1_f64..0.6, prop_oneof![0.04_f64..0.3, 0.3..2.0]), 1..60),
        lead in 0.0_f64..7.0, sizes in prop::collection::vec(1_usize..50_000, 1..10),
        endpointing in prop::option::of(0_u64..1500), gap in prop::option::of(400_u64..2000), interim_results in any::<bool>(),
    ) {
        // Two words alike in a row with nothing between would be one.
        let mut all = vec![(0, 0.0, lead)];
        all.extend(said.iter().copied());
        let audio = bytes(&utter(&all));
        let wanted = Options {
            endpointing: endpointing.map(Duration::from_millis),
            utterance_end: gap.map(Duration::from_millis),
            interim_results,
            ..wanted()
        };
        let results = runtime().block_on(async { heard(&live(), wanted, &cut(&audio, &sizes)).await });
        let heard: Vec<String> = words(&results).iter().map(|word| word.text.clone()).collect();
        let expected: Vec<String> = said.iter().map(|(word, ..)| format!(" W{word},")).collect();
        prop_assert_eq!(heard, expected);
        let mut end = 0.0;
        for results in &results {
            prop_assert!((results.start - end).abs() < 1e-9);
            end = results.start + results.duration;
        }
        prop_assert!((end - audio.len() as f64 / 32_000.0).abs() < 1e-6, "{} of {}", end, audio.len());
        let times: Vec<f64> = words(&results).iter().flat_map(|word| [word.start, word.end]).collect();
        prop_assert!(times.is_sorted());
    }
}

#[tokio::test]
async fn a_streamed_passage_says_what_the_file_says() {
    let transcriber = speech::transcriber();
    let (engine, vad) = (transcriber.engine().clone(), transcriber.vad().cloned());
    let live = Live::new(engine, vad, Config::default(), Tenants::default());
    // All passages in sequence, with a reader's pauses.
    let (mut samples, mut said) = (Vec::new(), String::new());
    for (pcm, text) in speech::passages() {
        samples.extend_from_slice(pcm.samples());
        samples.extend([0.0; 8_000]);
        said.push_str(&format!("{text} "));
    }
    let file = speech::transcribe(&transcriber, Pcm::new(samples.clone())).await;
    let linear16: Vec<i16> = samples.iter().map(|sample| (sample * 32_767.0) as i16).collect();
    let wanted = Options { language: LanguageChoice::Named("en".into()), interim_results: false, ..wanted() };
    let results = heard(&live, wanted, &cut(&bytes(&linear16), &[3200])).await;
    let streamed: String = words(&results).iter().map(|word| word.text.as_str()).collect();
    let total = speech::words(&said).len();
    let errors = |heard: &str| speech::word_errors(&said, heard);
    // One word in a hundred more than the file has wrong, or one where there are fewer.
    let most = errors(&file.text()) + (total / 100).max(1);
    assert!(errors(&streamed) <= most, "{} errors in {total} words: {streamed}", errors(&streamed));
    let times: Vec<f64> = words(&results).iter().flat_map(|word| [word.start, word.end]).collect();
    assert!(times.is_sorted());
    assert!(results.iter().any(|results| results.speech_final));
}
