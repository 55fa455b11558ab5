//! `wss /v1/listen` over a real socket: the protocol as the SDKs of the wire format know it.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use verbatim::live::Config;

use crate::server::{Setup, TestServer, client, refusal};
use crate::socket::{self, Handshake, Said, Socket, connect};
use crate::tones::{FAILS, Listener, bytes, utter};

pub const RAW: &str = "encoding=linear16&sample_rate=16000";

pub async fn start(live: Config) -> TestServer {
    TestServer::start(Setup { live, model: Some(Box::new(Listener::new())), ..Setup::default() }).await
}

pub async fn handshake(server: &TestServer, query: &str) -> Handshake {
    socket::listen(server.address, &server.key, query).await
}

pub async fn open(server: &TestServer, query: &str) -> Socket {
    let handshake = handshake(server, query).await;
    handshake.socket.unwrap_or_else(|| panic!("{} {}", handshake.status, handshake.body))
}

pub fn transcript(message: &Value) -> &str {
    message["channel"]["alternatives"][0]["transcript"].as_str().expect("a transcript")
}

/// The text of the final results, after checks that hold for every stream of one channel.
pub fn finals(messages: &[Value]) -> String {
    let (mut end, mut text, mut word_end) = (0.0, Vec::new(), 0.0);
    for message in messages.iter().filter(|message| message["type"] == "Results") {
        let start = message["start"].as_f64().expect("a number");
        assert!((start - end).abs() < 1e-9, "a span starts at {start}, the last one ended at {end}");
        if message["is_final"] == false {
            assert_eq!(message["speech_final"], false);
            continue;
        }
        end = ((start + message["duration"].as_f64().expect("a number")) * 1e3).round() / 1e3;
        for word in message["channel"]["alternatives"][0]["words"].as_array().expect("words") {
            let [from, to] = ["start", "end"].map(|name| word[name].as_f64().expect("a number"));
            assert!(word_end <= from && from <= to && start <= from && to <= end + 1e-9, "{message}");
            word_end = to;
        }
        text.extend(Some(transcript(message)).filter(|text| !text.is_empty()));
    }
    text.join(" ")
}

#[tokio::test]
async fn a_stream_gives_results_then_metadata_then_1000() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, &format!("{RAW}&punctuate=true&tag=t&extra=a:b&paragraphs=true")).await;
    let audio = bytes(&utter(&[(5, 0.5, 0.1), (6, 0.5, 1.0), (7, 0.25, 0.25)]));
    for piece in audio.chunks(3200) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    assert_eq!(finals(&messages), "W5, W6, W7,");

    let [first, second, metadata] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!((&first["is_final"], &first["speech_final"]), (&json!(true), &json!(true)));
    assert_eq!((&second["is_final"], &second["speech_final"]), (&json!(true), &json!(false)));
    assert_eq!(first["channel_index"], json!([0, 1]));
    assert_eq!((&first["start"], &first["from_finalize"]), (&json!(0.0), &json!(false)));
    let word = json!({"word": "w6", "start": 0.6, "end": 1.1, "confidence": 0.9, "punctuated_word": "W6,"});
    assert_eq!(first["channel"]["alternatives"][0]["words"][1], word);
    let info = json!({"name": "listener", "version": env!("CARGO_PKG_VERSION"), "arch": "whisper"});
    assert_eq!(first["metadata"]["model_info"], info);
    assert_eq!(first["metadata"]["extra"], json!({"a": "b"}));

    let sha256: String = Sha256::digest(&audio).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(metadata["type"], "Metadata");
    assert_eq!(metadata["sha256"], sha256);
    assert_eq!((&metadata["duration"], &metadata["channels"]), (&json!(2.6), &json!(1)));
    assert_eq!(metadata["request_id"], first["metadata"]["request_id"]);
    assert_eq!(metadata["models"], json!([first["metadata"]["model_uuid"]]));
    assert_eq!(metadata["warnings"][0]["parameter"], "paragraphs");
    assert_eq!(metadata["tags"], json!(["t"]));
}

#[tokio::test]
async fn without_the_models_a_stream_that_asks_for_speakers_is_refused() {
    let server = start(Config::default()).await;
    for name in ["diarize", "diarization", "diarize_model", "diarize_version", "identify_speakers"] {
        let handshake = handshake(&server, &format!("{RAW}&{name}=true")).await;
        assert_eq!(handshake.status, 400, "{name}");
        let message = handshake.body["err_msg"].as_str().expect("a text");
        assert!(message.starts_with(&format!("`{name}` is not available")), "{message}");
        open(&server, &format!("{RAW}&{name}=false")).await;
    }
}

#[tokio::test]
async fn the_contracts_raw_samples_need_no_rate() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, "encoding=s16le").await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 0.1), (6, 0.5, 0.9)]))).await;
    socket.control("CloseStream").await;
    let (messages, _) = socket.rest().await;
    assert_eq!(finals(&messages), "W5, W6,");
    assert_eq!(messages.last().unwrap()["duration"], 2.0);
}

#[tokio::test]
async fn a_stream_without_audio_has_metadata_alone() {
    let server = start(Config::default()).await;
    for query in [RAW, "interim_results=true"] {
        let mut socket = open(&server, query).await;
        // An empty message is the older form of CloseStream.
        socket.audio(&[]).await;
        let (messages, end) = socket.rest().await;
        assert_eq!(end, Said::Close(1000, String::new()));
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!((&messages[0]["duration"], &messages[0]["channels"]), (&json!(0.0), &json!(0)));
        assert!(messages[0]["sha256"].as_str().expect("text").starts_with("e3b0c442"));
    }
}

#[tokio::test]
async fn finalize_closes_what_is_open_and_the_stream_goes_on() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, RAW).await;
    // Nothing has been sent yet; the answer arrives anyway.
    socket.control("Finalize").await;
    let empty = socket.message().await;
    assert_eq!((&empty["from_finalize"], transcript(&empty)), (&json!(true), ""));

    let audio = bytes(&utter(&[(5, 0.3, 0.1), (6, 0.3, 0.1), (7, 0.3, 0.1), (8, 0.3, 0.0)]));
    let (before, after) = audio.split_at(16_000 * 2 * 8 / 10);
    socket.audio(before).await;
    socket.control("Finalize").await;
    let closed = socket.message().await;
    assert_eq!(transcript(&closed), "W5, W6,");
    assert_eq!((&closed["is_final"], &closed["from_finalize"]), (&json!(true), &json!(true)));
    assert_eq!((&closed["speech_final"], &closed["duration"]), (&json!(false), &json!(0.8)));
    socket.audio(after).await;
    socket.control("CloseStream").await;
    let (messages, _) = socket.rest().await;
    assert_eq!(messages[0]["start"], 0.8);
    assert_eq!(transcript(&messages[0]), "W7, W8,");
}

#[tokio::test]
async fn silence_gives_results_that_say_nothing() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, &format!("{RAW}&interim_results=true")).await;
    socket.audio(&vec![0; 16_000 * 2 * 12]).await;
    socket.control("CloseStream").await;
    let (messages, _) = socket.rest().await;
    assert_eq!(finals(&messages), "");
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(
        messages[0]["channel"]["alternatives"][0],
        json!({"transcript": "", "confidence": 0.0, "words": []})
    );
}

#[tokio::test]
async fn interim_results_grow_over_the_same_span() {
    let server = start(Config { hop_ms: 100, ..Config::default() }).await;
    let mut socket =
        open(&server, &format!("{RAW}&interim_results=true&vad_events=true&utterance_end_ms=1000")).await;
    let word = |number| (number, 0.4, 0.1);
    let words =
        [(0, 0.0, 0.32), word(5), word(6), word(7), word(8), word(9), word(5), word(6), (7, 0.4, 2.0)];
    let audio = bytes(&utter(&words));
    let is_interim = |message: &&Value| message["is_final"] == false;
    let mut messages = Vec::new();
    // One piece at a time, each answered before the next: the pace is that of the server. It is waited for
    // where one word has been said, and where all but one have.
    for (piece, audio) in audio.chunks(16_000 / 5).enumerate() {
        let interims_min =
            [(38, 2), (9, 1)].iter().find(|(from, _)| piece >= *from).map_or(0, |(_, min)| *min);
        socket.audio(audio).await;
        loop {
            socket.frame(0x89, b"?").await;
            loop {
                match socket.said().await {
                    Said::Message(message) => messages.push(message),
                    Said::Pong(_) => break,
                    other => panic!("{other:?}"),
                }
            }
            if messages.iter().filter(is_interim).count() >= interims_min {
                break;
            }
        }
    }
    socket.control("CloseStream").await;
    let (rest, _) = socket.rest().await;
    messages.extend(rest);
    assert_eq!(finals(&messages), "W5, W6, W7, W8, W9, W5, W6, W7,");
    let kind = |message: &Value| message["type"].as_str().expect("text").to_owned();
    let interims: Vec<&str> = messages.iter().filter(is_interim).map(transcript).collect();
    assert!(
        interims.windows(2).all(|pair| pair[1].starts_with(pair[0].trim_end_matches(','))),
        "{interims:?}"
    );
    assert_eq!(messages[0], json!({"type": "SpeechStarted", "channel": [0, 1], "timestamp": 0.32}));
    let spoken =
        messages.iter().position(|message| message["speech_final"] == true).expect("an end of speech");
    let ended =
        messages.iter().position(|message| kind(message) == "UtteranceEnd").expect("an end of utterance");
    assert!(spoken < ended);
    assert_eq!(messages[ended], json!({"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 4.22}));
    assert_eq!(messages.iter().filter(|message| kind(message) == "UtteranceEnd").count(), 1);
    assert_eq!(messages.last().map(kind).as_deref(), Some("Metadata"));
}

#[tokio::test]
async fn keys_come_in_the_header_or_as_a_subprotocol() {
    let server = start(Config::default()).await;
    let path = format!("/v1/listen?{RAW}");
    let key = &server.key;
    for (header, value, agreed) in [
        ("authorization", format!("Token {key}"), None),
        ("authorization", format!("bearer {key}"), None),
        ("sec-websocket-protocol", format!("token, {key}"), Some("token")),
        ("sec-websocket-protocol", format!("bearer,{key}"), Some("bearer")),
        ("sec-websocket-protocol", format!("token, {key}, x-deepgram-session-id, 1"), Some("token")),
    ] {
        let handshake = connect(server.address, &path, &[(header, &value)]).await;
        assert_eq!((handshake.status, handshake.header("sec-websocket-protocol")), (101, agreed), "{header}");
        uuid::Uuid::parse_str(handshake.header("dg-request-id").expect("an id")).expect("a uuid");
    }
    for (header, value) in [
        ("authorization", "Token org_nobody".to_owned()),
        ("authorization", format!("Basic {key}")),
        ("sec-websocket-protocol", "token, org_nobody".to_owned()),
        ("sec-websocket-protocol", "token".to_owned()),
        ("sec-websocket-protocol", format!("{key}, token")),
        ("x-nothing", "1".to_owned()),
    ] {
        let handshake = connect(server.address, &path, &[(header, &value)]).await;
        assert_eq!(
            (handshake.status, &handshake.body["err_code"]),
            (401, &json!("INVALID_AUTH")),
            "{header}: {value}"
        );
        assert_eq!(handshake.header("dg-error"), Some("Invalid credentials."));
        assert_eq!(handshake.header("dg-request-id"), handshake.body["request_id"].as_str());
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_before_the_upgrade() {
    let server = start(Config { max_streams: 1, ..Config::default() }).await;
    for (query, status, code) in [
        ("encoding=linear16", 400, "INVALID_QUERY_PARAMETER"),
        ("encoding=speex&sample_rate=44100", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("redact=name", 400, "INVALID_QUERY_PARAMETER"),
        ("redact=ssn&redact_mode=burn", 400, "INVALID_QUERY_PARAMETER"),
        ("endpointing=soon", 400, "INVALID_QUERY_PARAMETER"),
        ("language=tlh", 400, "Bad Request"),
        ("callback_method=get", 400, "INVALID_QUERY_PARAMETER"),
        ("callback=http://127.0.0.1:9/", 400, "INVALID_QUERY_PARAMETER"),
        ("callback=ws://localhost/", 400, "INVALID_QUERY_PARAMETER"),
    ] {
        let handshake = handshake(&server, query).await;
        assert_eq!((handshake.status, &handshake.body["err_code"]), (status, &json!(code)), "{query}");
        assert_eq!(handshake.header("dg-error"), handshake.body["err_msg"].as_str());
    }
    let plain = client().get(server.url("/v1/listen")).bearer_auth(&server.key);
    assert_eq!(refusal(plain).await, (426, "UPGRADE_REQUIRED".to_owned()));

    let first = open(&server, RAW).await;
    let second = handshake(&server, RAW).await;
    assert_eq!(second.status, 503);
    let after = second.header("retry-after").and_then(|after| after.parse().ok()).expect("seconds");
    assert_eq!(server.live.streams(), 1);
    drop(first);
    while server.live.streams() > 0 {
        tokio::task::yield_now().await;
    }
    // Until then the place is kept for the one who was told to come back.
    tokio::time::sleep(Duration::from_secs(after)).await;
    assert_eq!(handshake(&server, RAW).await.status, 101);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_closed_and_keepalive_prevents_it() {
    let server = start(Config { idle_timeout_ms: 4_000, ..Config::default() }).await;
    let mut kept = open(&server, RAW).await;
    let mut silent = open(&server, RAW).await;
    let keep = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            kept.control("KeepAlive").await;
        }
    };
    let end = tokio::select! {
        end = silent.said() => end,
        () = keep => unreachable!("it goes on for ever"),
    };
    let reason = "Deepgram did not receive audio data or a text message within the timeout window. See https://dpgr.am/net0001";
    assert_eq!(end, Said::Close(1011, reason.to_owned()));
    kept.control("CloseStream").await;
    assert_eq!(kept.rest().await.1, Said::Close(1000, String::new()));
}

#[tokio::test]
async fn who_spoke_while_we_stood_still_is_not_taken_for_silent() {
    let server = start(Config { idle_timeout_ms: 1_000, ..Config::default() }).await;
    let mut socket = open(&server, RAW).await;
    for _ in 0..6 {
        socket.control("KeepAlive").await;
        // The server runs on this thread, too.
        std::thread::sleep(Duration::from_millis(1_100));
        socket.frame(0x89, b"?").await;
        assert_eq!(socket.said().await, Said::Pong(b"?".to_vec()));
    }
    socket.control("CloseStream").await;
    assert_eq!(socket.rest().await.1, Said::Close(1000, String::new()));
}

#[tokio::test]
async fn what_breaks_the_protocol_is_closed_with_its_code() {
    let server = start(Config { message_bytes_max: 100_000, ..Config::default() }).await;
    let unmasked = [0x82, 4, 1, 2, 3, 4];
    let large = [&[0x82, 0x80 | 127][..], &200_000u64.to_be_bytes(), &[0; 4]].concat();
    for (bytes, code) in [(&unmasked[..], 1002), (&large, 1009), (&[0xF2, 0x80, 0, 0, 0, 0], 1002)] {
        let mut socket = open(&server, RAW).await;
        socket.raw(bytes).await;
        assert!(matches!(socket.said().await, Said::Close(found, _) if found == code), "{code}");
        assert_eq!(socket.said().await, Said::Gone);
    }
    let mut endless = open(&server, RAW).await;
    endless.frame(0x02, &[0; 60_000]).await;
    endless.frame(0x00, &[0; 60_000]).await;
    assert!(matches!(endless.said().await, Said::Close(1009, _)));
    let mut mistaken = open(&server, RAW).await;
    mistaken.frame(0x81, &[b'{', 0xFF]).await;
    assert!(matches!(mistaken.said().await, Said::Close(1007, _)));
    let mut polite = open(&server, RAW).await;
    polite.frame(0x88, &[&1000u16.to_be_bytes()[..], b"bye"].concat()).await;
    assert_eq!(polite.said().await, Said::Close(1000, String::new()));
}

#[tokio::test]
async fn frames_may_be_cut_mixed_and_misunderstood() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, RAW).await;
    let audio = bytes(&utter(&[(5, 0.5, 0.5)]));
    let (first, rest) = audio.split_at(777);
    socket.frame(0x02, first).await;
    socket.frame(0x89, b"are you there").await;
    assert_eq!(socket.said().await, Said::Pong(b"are you there".to_vec()));
    socket.frame(0x00, &rest[..10_000]).await;
    socket.frame(0x80, &rest[10_000..]).await;
    socket.text("hello").await;
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(finals(&messages), "W5,");
    assert!(messages.iter().any(|message| message["type"] == "Error" && message["variant"] == "SchemaError"));
    assert_eq!(end, Said::Close(1000, String::new()));
}

#[tokio::test]
async fn what_is_no_audio_and_what_the_model_fails_on_end_the_stream_with_a_reason() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, "").await;
    socket.audio(&[b'x'; 8192]).await;
    let (_, end) = socket.rest().await;
    assert!(matches!(&end, Said::Close(1008, reason) if reason.starts_with("DATA-0000")), "{end:?}");
    let mut socket = open(&server, RAW).await;
    socket.audio(&bytes(&utter(&[(FAILS, 0.5, 1.0)]))).await;
    let (_, end) = socket.rest().await;
    assert!(matches!(&end, Said::Close(1011, reason) if !reason.contains("script")), "{end:?}");
}

#[tokio::test]
async fn channels_are_heard_apart_where_asked() {
    let server = start(Config::default()).await;
    let (left, right) = (utter(&[(5, 0.5, 0.5)]), utter(&[(0, 0.0, 0.4), (9, 0.5, 0.1)]));
    let stereo: Vec<i16> = left.iter().zip(&right).flat_map(|(left, right)| [*left, *right]).collect();
    let mut socket = open(&server, &format!("{RAW}&channels=2&multichannel=true")).await;
    socket.audio(&bytes(&stereo)).await;
    socket.control("CloseStream").await;
    let (messages, _) = socket.rest().await;
    let of = |index: u64| -> Vec<Value> {
        messages.iter().filter(|message| message["channel_index"] == json!([index, 2])).cloned().collect()
    };
    assert_eq!((finals(&of(0)).as_str(), finals(&of(1)).as_str()), ("W5,", "W9,"));
    assert_eq!(messages.last().expect("metadata")["channels"], 2);
}

#[tokio::test]
async fn numbers_are_redacted_in_text_and_words() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, &format!("{RAW}&redact=aggressive_numbers&punctuate=true")).await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 0.5)]))).await;
    socket.control("CloseStream").await;
    let (messages, _) = socket.rest().await;
    let alternative = &messages[0]["channel"]["alternatives"][0];
    let word = &alternative["words"][0];
    assert_eq!((&alternative["transcript"], &word["punctuated_word"]), (&json!("**,"), &json!("**,")));
    assert_eq!(word["word"], "**");
}

#[tokio::test]
async fn a_drain_finalises_every_stream() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, RAW).await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 0.1)]))).await;
    // So that the audio is surely there before the end.
    socket.frame(0x89, b"").await;
    assert_eq!(socket.said().await, Said::Pong(Vec::new()));
    let stopped = server.door.begin_to_stop();
    let (messages, end) = socket.rest().await;
    assert_eq!(finals(&messages), "W5,");
    assert_eq!(messages.last().expect("metadata")["type"], "Metadata");
    assert!(matches!(end, Said::Close(1001, _)), "{end:?}");
    drop(socket);
    stopped.await.expect("no panic").expect("served");
}

#[tokio::test]
async fn a_client_that_takes_nothing_in_is_cut_off() {
    let server = start(Config { write_timeout_ms: 100, ..Config::default() }).await;
    let mut socket = open(&server, RAW).await;
    socket.audio(&[0; 3200]).await;
    server.send_until_cut(async || socket.control("Finalize").await).await;
}

/// The same stream, as SDKs in browsers open it: nothing but a URL and a subprotocol.
#[tokio::test]
async fn the_handshakes_key_must_be_one() {
    let server = start(Config::default()).await;
    let request = client()
        .get(server.url("/v1/listen"))
        .bearer_auth(&server.key)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "8")
        .header("sec-websocket-key", base64::engine::general_purpose::STANDARD.encode([1; 16]));
    let response = request.send().await.expect("an answer");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["sec-websocket-version"]),
        (426, &"13".parse().unwrap())
    );
}
