//! Live audio as clients really send it: wrong headers, packets, halves of samples, and data that isn't audio.

use serde_json::{Value, json};
use verbatim::live::Config;

use crate::live::{RAW, finals, open, start};
use crate::socket::{Said, Socket};
use crate::tones::{bytes, utter};

/// A WAVE file whose header says that it holds `declared` bytes.
pub fn wave(rate: u32, declared: u32, samples: &[i16]) -> Vec<u8> {
    let riff = declared.saturating_add(36);
    let mut file = [b"RIFF", &riff.to_le_bytes()[..], b"WAVEfmt ", &16_u32.to_le_bytes()].concat();
    file.extend([1_u16.to_le_bytes(), 1_u16.to_le_bytes()].concat());
    file.extend([rate.to_le_bytes(), (rate * 2).to_le_bytes()].concat());
    file.extend([2_u16.to_le_bytes(), 16_u16.to_le_bytes()].concat());
    file.extend([&b"data"[..], &declared.to_le_bytes()].concat());
    file.extend(bytes(samples));
    file
}

/// The server's messages until it has read everything that was sent, in order.
async fn settled(socket: &mut Socket) -> Vec<Value> {
    let mut messages = Vec::new();
    socket.frame(0x89, b"?").await;
    loop {
        match socket.said().await {
            Said::Message(message) => messages.push(message),
            Said::Pong(_) => return messages,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_wave_header_does_not_say_when_the_stream_ends() {
    let server = start(Config::default()).await;
    let (first, second) = (utter(&[(5, 0.5, 0.1)]), utter(&[(6, 0.5, 0.1)]));
    // As long as its first part, without a length, as programs that write to a pipe say it, and nothing.
    for declared in [first.len() as u32 * 2, u32::MAX, 0] {
        let mut socket = open(&server, "interim_results=true").await;
        for piece in wave(16_000, declared, &first).chunks(1000) {
            socket.audio(piece).await;
        }
        let mut messages = settled(&mut socket).await;
        socket.audio(&bytes(&second)).await;
        messages.extend(settled(&mut socket).await);
        socket.control("CloseStream").await;
        let (rest, end) = socket.rest().await;
        messages.extend(rest);
        assert_eq!(end, Said::Close(1000, String::new()));
        assert_eq!(finals(&messages), "W5, W6,", "{declared} declared");
        assert_eq!(messages.last().expect("metadata")["duration"], 1.2);
    }
}

#[tokio::test]
async fn a_container_that_has_ended_leaves_the_stream_open() {
    let server = start(Config::default()).await;
    for fixture in ["flac.flac", "opus.ogg", "mp3.mp3"] {
        let mut socket = open(&server, "").await;
        for piece in crate::streams::fixture(fixture).chunks(4000) {
            socket.audio(piece).await;
        }
        settled(&mut socket).await;
        // There is an answer however long ago all was decoded.
        for _ in 0..2 {
            socket.control("Finalize").await;
            loop {
                if socket.message().await["from_finalize"] == true {
                    break;
                }
            }
        }
        socket.control("KeepAlive").await;
        settled(&mut socket).await;
        socket.control("CloseStream").await;
        let (messages, end) = socket.rest().await;
        assert_eq!(end, Said::Close(1000, String::new()), "{fixture}");
        let duration = messages.last().expect("metadata")["duration"].as_f64().expect("seconds");
        assert!((6.9..7.3).contains(&duration), "{fixture}: {duration} s");
    }
}

#[tokio::test]
async fn packets_of_opus_come_one_to_a_message() {
    let server = start(Config::default()).await;
    let packets = crate::streams::opus_packets();
    let mut socket = open(&server, "encoding=opus&sample_rate=48000").await;
    for packet in &packets {
        socket.audio(packet).await;
    }
    // One that is broken is passed over.
    socket.audio(&[0xFF; 3]).await;
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    let metadata = messages.last().expect("metadata");
    let duration = metadata["duration"].as_f64().expect("seconds");
    assert!((duration - packets.len() as f64 * 0.02).abs() < 0.05, "{duration} s");
    assert_eq!(metadata["channels"], 1);

    let mut packaged = open(&server, "encoding=opus&sample_rate=48000").await;
    packaged.audio(&crate::streams::fixture("opus.ogg")).await;
    packaged.control("CloseStream").await;
    let (messages, end) = packaged.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    assert!(messages.last().expect("metadata")["duration"].as_f64().expect("seconds") > 6.9);

    let mut none = open(&server, "encoding=opus").await;
    for _ in 0..100 {
        none.audio(&[0xFF; 3]).await;
    }
    let (_, end) = none.rest().await;
    assert!(matches!(&end, Said::Close(1008, reason) if reason.starts_with("DATA-0000")), "{end:?}");
}

#[tokio::test]
async fn halves_of_samples_are_put_together_and_half_a_last_one_is_dropped() {
    let server = start(Config::default()).await;
    let mut audio = bytes(&utter(&[(5, 0.5, 0.1), (6, 0.5, 0.1)]));
    audio.push(0x55);
    let mut socket = open(&server, RAW).await;
    for piece in audio.chunks(333) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    assert_eq!(finals(&messages), "W5, W6,");
    assert_eq!(messages.last().expect("metadata")["duration"], 1.2);
}

#[tokio::test]
async fn a_sample_rate_that_is_a_lie_is_believed_of_samples_and_not_of_containers() {
    let server = start(Config::default()).await;
    let audio = utter(&[(5, 0.5, 0.5)]);
    let mut samples = open(&server, "encoding=linear16&sample_rate=48000").await;
    samples.audio(&bytes(&audio)).await;
    samples.control("CloseStream").await;
    let (messages, end) = samples.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    let duration = messages.last().expect("metadata")["duration"].as_f64().expect("seconds");
    assert!((duration - 1.0 / 3.0).abs() < 1e-3, "{duration} s");

    let mut container = open(&server, "sample_rate=48000").await;
    container.audio(&wave(16_000, 32_000, &audio)).await;
    container.control("CloseStream").await;
    let (messages, end) = container.rest().await;
    assert_eq!((finals(&messages).as_str(), end), ("W5,", Said::Close(1000, String::new())));
    assert_eq!(messages.last().expect("metadata")["duration"], 1.0);

    // Rates that no audio has.
    let mut nonsense = open(&server, "").await;
    nonsense.audio(&wave(1, 32_000, &audio)).await;
    let (_, end) = nonsense.rest().await;
    assert!(matches!(end, Said::Close(1008, _)), "{end:?}");
}

#[tokio::test]
async fn what_breaks_off_into_something_else_is_told_up_to_there_and_closed() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, "").await;
    let flac = crate::streams::fixture("flac.flac");
    socket.audio(&flac[..flac.len() / 2]).await;
    for _ in 0..40 {
        socket.audio(&vec![b'x'; 50_000]).await;
    }
    socket.control("Finalize").await;
    let (messages, end) = socket.rest().await;
    // A reader looks for the next frame as long as there may be one; then there is a reason.
    match &end {
        Said::Close(1008, reason) => assert!(reason.starts_with("DATA-0000"), "{reason}"),
        Said::Close(1011, reason) => assert!(reason.contains("net0001"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let heard: f64 = messages.iter().filter_map(|message| message["duration"].as_f64()).sum();
    assert!(heard > 2.0, "{messages:?}");

    // Text isn't audio: it is answered, and the stream goes on.
    let mut confused = open(&server, RAW).await;
    confused.text(&"la ".repeat(1000)).await;
    assert_eq!(confused.message().await["variant"], json!("SchemaError"));
    confused.audio(&bytes(&utter(&[(5, 0.5, 0.5)]))).await;
    confused.control("CloseStream").await;
    let (messages, end) = confused.rest().await;
    assert_eq!((finals(&messages).as_str(), end), ("W5,", Said::Close(1000, String::new())));
}
