//! The bodies of the fuzz targets: cargo-fuzz runs them without end, tests/integration/fuzzed.rs for a while.
//! An input is answered or refused; a fault of the program shows as a panic.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use verbatim::api::Parameters;
use verbatim::api::messages::{self, Socket};
use verbatim::api::openai;
use verbatim::api::parameters::LiveParameters;
use verbatim::audio::{self, Bare, DecodeOptions, Limits, SpeechCoding};
use verbatim::engine::{ModelInfo, TokenCount};
use verbatim::{jwt, keys, sts};

/// A query string, as of a file and as of a stream.
pub fn query(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(parameters) = Parameters::parse(&text) {
        // Everything asked for is either done or named.
        let _ = (parameters.unsupported(), parameters.implies_words(), parameters.english_only());
        assert!(parameters.redact.is_empty(), "redaction is refused where it is not done");
        let live = LiveParameters::parse(&text);
        assert!(live.is_ok() || names_what_only_streams_have(&text), "a stream refuses what a file takes");
    }
}

fn names_what_only_streams_have(text: &str) -> bool {
    use verbatim::api::parameters::LIVE_TABLE;
    LIVE_TABLE.iter().any(|row| text.contains(row.name) || text.contains('%'))
}

/// A JSON body that names a URL.
pub fn json_body(input: &[u8]) {
    let found = verbatim::api::url_of(&Bytes::copy_from_slice(input));
    let other = serde_json::from_slice::<serde_json::Value>(input).ok();
    let other = other.as_ref().and_then(|body| body.get("url")).and_then(serde_json::Value::as_str);
    // If two readers understood the same input differently, one could be used to get past the other's checks.
    if let (Some(found), Some(other)) = (&found, other) {
        assert_eq!(found, other);
    }
}

/// A file, of whatever container, or speech without one.
pub fn container(input: &[u8]) {
    for raw in [None, Some(SpeechCoding::AmrNarrow), Some(SpeechCoding::AmrWide), Some(SpeechCoding::G729)] {
        decoded(input, raw.map(Bare::Speech));
    }
}

fn decoded(input: &[u8], raw: Option<Bare>) {
    let limits = Limits { max_seconds: 5.0, ..Limits::default() };
    let checked = audio::check(input, raw);
    let options = DecodeOptions { raw, split_channels: false, limits };
    let bytes = Bytes::copy_from_slice(input);
    let estimated = audio::estimate(&bytes, &options);
    if let Ok(estimate) = &estimated {
        assert!((0.0..=5.0).contains(&estimate.seconds) && estimate.channels > 0);
    }
    if let Ok(decoded) = audio::decode(bytes, &options) {
        assert!(checked.is_ok() && estimated.is_ok(), "what is refused at once is never read");
        assert!(decoded.duration_seconds.is_finite() && decoded.duration_seconds <= 5.1);
        for sound in &decoded.channels {
            assert!(sound.pcm(..).samples().iter().all(|sample| sample.is_finite()), "samples are numbers");
        }
    }
}

/// The boundary of [`form`]s.
pub const BOUNDARY: &str = "x";

/// A multipart form that asks for a transcript. Its first byte says in how large pieces it comes.
pub fn form(input: &[u8]) {
    let (size, body) =
        input.split_first().map_or((1, input), |(first, rest)| (usize::from(*first).max(1), rest));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let asks = |pieces: Vec<Bytes>| runtime.block_on(openai::asks_for_transcript(pieces, BOUNDARY, &model()));
    let whole = asks(vec![Bytes::copy_from_slice(body)]);
    let in_pieces = asks(body.chunks(size).map(Bytes::copy_from_slice).collect());
    assert_eq!(whole, in_pieces, "a form means the same however it comes");
}

/// A token, and the claims of one.
pub fn token(input: &[u8]) {
    const KEY: [u8; 32] = [7; 32];
    const NOW: u64 = 1_800_000_000;
    let is_valid = |text: &str| keys::is_valid_token(KEY, text, UNIX_EPOCH + Duration::from_secs(NOW));
    assert!(!is_valid(&String::from_utf8_lossy(input)), "it was signed here alone");
    let signed = jwt::with_signature(&KEY, &format!("{}.{}", jwt::HEADER, BASE64URL_NOPAD.encode(input)));
    if !is_valid(&signed) {
        return;
    }
    let claims: serde_json::Value = serde_json::from_slice(input).expect("claims are JSON");
    let time = |name: &str| claims[name].as_u64().expect("seconds");
    assert!(time("exp") > NOW && time("exp").saturating_sub(time("iat")) <= 3600, "{claims}");
    for place in 0..signed.len() {
        let mut changed = signed.clone().into_bytes();
        changed[place] ^= 1;
        assert!(!is_valid(&String::from_utf8_lossy(&changed)), "changed at {place}");
    }
}

/// A client's text message, at each socket.
pub fn message(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for socket in [Socket::Listen, Socket::Turns, Socket::Realtime, Socket::Speak, Socket::SpeechTurns] {
        let is_understood = messages::understands(socket, &text, &model());
        assert!(
            !is_understood || text.trim_start().starts_with('{'),
            "{socket:?} understands what is no object"
        );
    }
    let _ = sts::understands(&text);
}

/// The parts of an agent's settings, each of which [`settings`] replaces.
pub const PARTS: [&str; 17] = [
    "",
    "/tags",
    "/flags",
    "/flags/history",
    "/audio",
    "/audio/input",
    "/audio/input/sample_rate",
    "/audio/output",
    "/agent",
    "/agent/greeting",
    "/agent/language",
    "/agent/context",
    "/agent/context/messages",
    "/agent/listen",
    "/agent/think",
    "/agent/think/functions",
    "/agent/speak",
];

/// An agent's settings, one part of which is the input: its first byte says which. What is no JSON is text.
pub fn settings(input: &[u8]) {
    let mut whole = serde_json::json!({
        "type": "Settings",
        "tags": ["a"],
        "flags": {"history": true},
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16000},
            "output": {"encoding": "mulaw", "sample_rate": 8000, "container": "none"},
        },
        "agent": {
            "greeting": "Hello.",
            "language": "en",
            "context": {"messages": [{"type": "History", "role": "user", "content": "Hi."}]},
            "listen": {"provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en", "keyterms": ["a"]}},
            "think": {
                "provider": {"type": "open_ai", "model": "m", "temperature": 0.5},
                "prompt": "Be brief.",
                "functions": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
            },
            "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en", "speed": 1.1}},
        },
    });
    assert!(sts::understands(&whole.to_string()), "the whole is right");
    let (first, rest) = input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest));
    let text = || serde_json::Value::String(String::from_utf8_lossy(rest).into_owned());
    let part = serde_json::from_slice(rest).unwrap_or_else(|_| text());
    *whole.pointer_mut(PARTS[first % PARTS.len()]).expect("a part of it") = part;
    let is_understood = sts::understands(&whole.to_string());
    assert!(!is_understood || whole["type"].is_string(), "a message says what it is");
}

fn model() -> ModelInfo {
    ModelInfo {
        name: "m".into(),
        uuid: ModelInfo::uuid_of("m"),
        languages: vec!["en".into(), "es".into()],
        slots: 1,
        encode_batch: 1,
        device: String::new(),
        prompt_tokens: TokenCount::default(),
    }
}
