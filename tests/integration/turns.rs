//! `wss /v2/listen` over a real socket: the turns of a conversation, as the clients of the wire format know them.

use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::live::Config;

use crate::live::{RAW, start};
use crate::program::Program;
use crate::server::{Setup, TestServer, client, new_key, read as answer};
use crate::socket::{Handshake, Said, Socket, connect};
use crate::speech::{cache, passages, read, word_errors};
use crate::tones::{Listener, bytes, utter};

async fn handshake(address: std::net::SocketAddr, key: &str, query: &str) -> Handshake {
    let token = format!("Token {key}");
    connect(address, &format!("/v2/listen?{query}"), &[("authorization", &token)]).await
}

async fn open(server: &TestServer, query: &str) -> Socket {
    let handshake = handshake(server.address, &server.key, &format!("{RAW}&{query}")).await;
    let mut socket = handshake.socket.unwrap_or_else(|| panic!("{} {}", handshake.status, handshake.body));
    let connected = socket.message().await;
    assert_eq!((&connected["type"], &connected["sequence_id"]), (&json!("Connected"), &json!(0)));
    assert_eq!(connected["request_id"].as_str().map(str::len), Some(36));
    socket
}

/// The changes of turns: event, number and transcript, after checks that hold for every stream. `messages` begin with the
/// one after `Connected`.
fn changes(messages: &[Value]) -> Vec<(String, u64, String)> {
    let (mut index, mut is_open, mut announced, mut end) = (0, false, None, 0.0);
    let mut told = Vec::new();
    for (number, message) in (1u64..).zip(messages) {
        assert_eq!(message["sequence_id"], number, "{message}");
        if message["type"] != "TurnInfo" {
            continue;
        }
        let text = |name: &str| message[name].as_str().unwrap_or_else(|| panic!("{message}")).to_owned();
        let [from, to] =
            ["audio_window_start", "audio_window_end"].map(|name| message[name].as_f64().unwrap());
        // A quarter of a second, rounded up to a frame of the detector.
        assert!(
            from <= to && end <= to && to - end < 0.25 + 0.032 + 1e-6 || is_open,
            "{message} after {end}"
        );
        end = to;
        assert_eq!(message["turn_index"], index, "{message}");
        let confidence = message["end_of_turn_confidence"].as_f64().expect("a number");
        assert!((0.0..=1.0).contains(&confidence), "{message}");
        let words = message["words"].as_array().expect("words");
        let word = |word: &Value| word["word"].as_str().expect("a word").to_owned();
        let transcript = text("transcript");
        assert_eq!(words.iter().map(word).collect::<Vec<_>>().join(" "), transcript);
        let event = text("event");
        match event.as_str() {
            "StartOfTurn" => {
                assert!(!std::mem::replace(&mut is_open, true) && !words.is_empty(), "{message}")
            }
            "EagerEndOfTurn" => {
                assert!(is_open && announced.replace(transcript.clone()).is_none(), "{message}");
            }
            "TurnResumed" => assert!(announced.take().is_some(), "{message}"),
            "EndOfTurn" => {
                assert!(std::mem::take(&mut is_open), "{message}");
                assert!(announced.take().is_none_or(|announced| announced == transcript), "{message}");
            }
            _ => assert!(event == "Update" && (is_open || words.is_empty()), "{message}"),
        }
        assert_eq!(message["trigger"].is_string(), event == "EndOfTurn", "{message}");
        if event != "Update" {
            told.push((event.clone(), index, transcript));
        }
        index += u64::from(event == "EndOfTurn");
    }
    assert!(!is_open, "the last turn is open");
    told
}

fn told(event: &str, index: u64, transcript: &str) -> (String, u64, String) {
    (event.to_owned(), index, transcript.to_owned())
}

/// Sends it all, and the end of it; the messages up to the goodbye, which must be 1000.
async fn converse(mut socket: Socket, words: &[(u8, f64, f64)]) -> Vec<Value> {
    for piece in bytes(&utter(words)).chunks(3200) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    messages
}

fn last<'a>(messages: &'a [Value], event: &str) -> &'a Value {
    messages.iter().rfind(|message| message["event"] == event).unwrap_or_else(|| panic!("no {event}"))
}

#[tokio::test]
async fn a_conversation_is_told_turn_by_turn() {
    let server = start(Config::default()).await;
    let socket = open(&server, "model=flux-general-en").await;
    let messages = converse(socket, &[(5, 0.5, 0.1), (6, 0.5, 1.0), (7, 0.5, 1.0)]).await;
    let told_all = changes(&messages);
    let events: Vec<&str> = told_all.iter().map(|(event, ..)| event.as_str()).collect();
    assert_eq!(events, ["StartOfTurn", "EndOfTurn", "StartOfTurn", "EndOfTurn"]);
    assert_eq!(told_all[1], told("EndOfTurn", 0, "W5, W6,"));
    assert_eq!(told_all[3], told("EndOfTurn", 1, "W7,"));
    let first = messages.iter().find(|message| message["event"] == "EndOfTurn").expect("an end");
    assert_eq!(first["words"][1], json!({"word": "W6,", "confidence": 0.9, "start": 0.6, "end": 1.1}));
    assert_eq!(first["trigger"], "model");
    // Silence of 0.6 s ends a turn where there is no model, and is seen at the next frame.
    let end = first["audio_window_end"].as_f64().unwrap();
    assert!((1.7..1.8).contains(&end), "{end}");
    assert_eq!(last(&messages, "EndOfTurn")["audio_window_start"], first["audio_window_end"]);
}

#[tokio::test]
async fn thresholds_decide_when_a_turn_ends() {
    let server = start(Config::default()).await;
    let ends = async |query: &str, words: &[(u8, f64, f64)]| {
        let messages = converse(open(&server, query).await, words).await;
        let events: Vec<String> = changes(&messages).into_iter().map(|(event, ..)| event).collect();
        let end = last(&messages, "EndOfTurn");
        (events.join(" "), end["trigger"].clone(), end["audio_window_end"].as_f64().unwrap())
    };
    let (_, trigger, end) = ends("eot_threshold=0.5", &[(5, 0.5, 3.0)]).await;
    assert!(trigger == "model" && (0.8..0.95).contains(&end), "{trigger} {end}");
    let (_, trigger, end) = ends("eot_threshold=0.9", &[(5, 0.5, 3.0)]).await;
    assert!(trigger == "model" && (1.6..1.75).contains(&end), "{trigger} {end}");
    let (_, trigger, end) = ends("eot_threshold=1.0&eot_timeout_ms=2000", &[(5, 0.5, 3.0)]).await;
    assert!(trigger == "timeout" && (2.5..2.6).contains(&end), "{trigger} {end}");
    // The end of the audio ends a turn that nothing else does.
    let (_, trigger, _) = ends("eot_threshold=1", &[(5, 0.5, 3.0)]).await;
    assert_eq!(trigger, "manual");
    let (events, trigger, _) =
        ends("eot_threshold=0.9&eager_eot_threshold=0.5", &[(5, 0.5, 0.7), (6, 0.5, 3.0)]).await;
    assert_eq!(events, "StartOfTurn EagerEndOfTurn TurnResumed EagerEndOfTurn EndOfTurn");
    assert_eq!(trigger, "model");
}

/// The messages up to one for which this holds, and that.
async fn until(socket: &mut Socket, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut messages = Vec::new();
    loop {
        let message = socket.message().await;
        let found = wanted(&message);
        messages.push(message);
        if found {
            return messages;
        }
    }
}

#[tokio::test]
async fn options_change_while_the_stream_runs() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, "eot_threshold=1.0&eot_timeout_ms=60000&keyterm=old").await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 1.5)]))).await;
    let seen = |message: &Value| message["audio_window_end"].as_f64().is_some_and(|end| end > 1.7);
    let before = until(&mut socket, seen).await;
    assert!(before.iter().all(|message| message["event"] != "EndOfTurn"), "{before:?}");

    for (change, code) in [
        (r#"{"type":"Configure","thresholds":{"eager_eot_threshold":0.2}}"#, "INVALID_THRESHOLD"),
        (r#"{"type":"Configure","keyterms":[""],"thresholds":{"eot_threshold":0.5}}"#, "INVALID_KEYTERMS"),
        (r#"{"type":"Configure","language_hints":["xx"]}"#, "INVALID_LANGUAGE_HINTS"),
        (r#"{"type":"Configure","numerals":"true"}"#, "INVALID_CONFIGURE"),
        (r#"{"type":"Configure","keyterms":1}"#, "INVALID_CONFIGURE"),
    ] {
        socket.text(change).await;
        let refused = until(&mut socket, |message| message["type"] == "ConfigureFailure").await;
        assert_eq!(refused.last().unwrap()["code"], code);
    }
    // A whole number as some clients write it; a member of the query has no effect here, and the client learns that.
    socket
        .text(r#"{"type":"Configure","thresholds":{"eot_timeout_ms":60000.0},"profanity_filter":true}"#)
        .await;
    let warned = until(&mut socket, |message| message["type"] == "ConfigureSuccess").await;
    assert!(
        warned.iter().any(|message| message["type"] == "Warning" && message["code"] == "WITHOUT_EFFECT"),
        "{warned:?}"
    );
    socket.text(r#"{"type":"Configure","thresholds":{"eot_threshold":0.5},"keyterms":["a","b c"],"numerals":true}"#).await;
    let accepted = until(&mut socket, |message| message["type"] == "ConfigureSuccess").await;
    let accepted = accepted.last().unwrap();
    assert_eq!(accepted["thresholds"], json!({"eot_threshold": 0.5, "eot_timeout_ms": 60_000}));
    assert_eq!((&accepted["keyterms"], &accepted["numerals"]), (&json!(["a", "b c"]), &json!(true)));
    socket.audio(&bytes(&utter(&[(0, 0.0, 0.2)]))).await;
    let after = until(&mut socket, |message| message["event"] == "EndOfTurn").await;
    assert_eq!(
        (&after.last().unwrap()["trigger"], &after.last().unwrap()["transcript"]),
        (&json!("model"), &json!("W5,"))
    );
}

#[tokio::test]
async fn the_client_ends_a_turn_but_not_a_silence() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, "eot_threshold=1.0").await;
    socket.control("ForceEndTurn").await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 0.1)]))).await;
    socket.control("ForceEndTurn").await;
    let ended = until(&mut socket, |message| message["event"] == "EndOfTurn").await;
    let end = ended.last().unwrap();
    assert_eq!(
        (&end["trigger"], &end["transcript"], &end["turn_index"]),
        (&json!("manual"), &json!("W5,"), &json!(0))
    );
    socket.audio(&bytes(&utter(&[(0, 0.0, 0.5)]))).await;
    socket.control("KeepAlive").await;
    socket.control("ForceEndTurn").await;
    socket.audio(&bytes(&utter(&[(6, 0.5, 0.0)]))).await;
    // An empty message is the older form of CloseStream.
    socket.audio(&[]).await;
    let (rest, goodbye) = socket.rest().await;
    assert_eq!(goodbye, Said::Close(1000, String::new()));
    let messages: Vec<Value> = ended.into_iter().chain(rest).collect();
    let ends: Vec<_> = changes(&messages).into_iter().filter(|(event, ..)| event == "EndOfTurn").collect();
    assert_eq!(ends, [told("EndOfTurn", 0, "W5,"), told("EndOfTurn", 1, "W6,")]);
}

#[tokio::test]
async fn a_silent_stream_has_updates_alone() {
    let server = start(Config::default()).await;
    let messages = converse(open(&server, "").await, &[(0, 0.0, 2.0)]).await;
    assert_eq!(changes(&messages), []);
    assert_eq!(messages.len(), 7);
    assert_eq!(messages[3]["transcript"], "");
    assert!(converse(open(&server, "").await, &[]).await.is_empty());
}

#[tokio::test]
async fn languages_are_told_where_they_are_detected() {
    let server = start(Config::default()).await;
    let socket = open(&server, "model=flux-general-multi&language_hint=en&language_hint=es").await;
    let messages = converse(socket, &[(5, 0.5, 1.0)]).await;
    let end = last(&messages, "EndOfTurn");
    assert_eq!((&end["languages"], &end["languages_hinted"]), (&json!(["en"]), &json!(["en", "es"])));
    let messages = converse(open(&server, "model=flux-general-en").await, &[(5, 0.5, 1.0)]).await;
    assert!(last(&messages, "EndOfTurn").get("languages").is_none());
    let mut socket = handshake(server.address, &server.key, "model=flux-general-en&language_hint=es")
        .await
        .socket
        .unwrap();
    assert_eq!(socket.message().await["type"], "Connected");
    let warning = socket.message().await;
    assert_eq!((&warning["type"], &warning["code"]), (&json!("Warning"), &json!("WITHOUT_EFFECT")));
    assert!(
        warning["description"].as_str().is_some_and(|text| text.contains("`language_hint`")),
        "{warning}"
    );
}

#[tokio::test]
async fn an_announced_end_hides_what_its_end_hides() {
    let server = start(Config::default()).await;
    let socket = open(&server, "redact=aggressive_numbers&eot_threshold=0.9&eager_eot_threshold=0.4").await;
    let messages = converse(socket, &[(5, 0.5, 2.0)]).await;
    changes(&messages);
    for event in ["EagerEndOfTurn", "EndOfTurn"] {
        assert_eq!(last(&messages, event)["transcript"], "**,");
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_before_the_upgrade() {
    let server = start(Config::default()).await;
    for (query, code, name) in [
        ("eot_threshold=0.4", "INVALID_QUERY_PARAMETER", "eot_threshold"),
        ("eager_eot_threshold=0.95", "INVALID_QUERY_PARAMETER", "eager_eot_threshold"),
        ("eot_threshold=0.5&eager_eot_threshold=0.6", "INVALID_QUERY_PARAMETER", "eager_eot_threshold"),
        ("eot_timeout_ms=100", "INVALID_QUERY_PARAMETER", "eot_timeout_ms"),
        ("encoding=linear16", "INVALID_QUERY_PARAMETER", "sample_rate"),
        ("language_hint=", "INVALID_QUERY_PARAMETER", "language_hint"),
        ("language_hint=xx", "Bad Request", "language"),
        ("model=nova-3", "V1_MODEL_ON_V2_LISTEN_ENDPOINT", "/v1/listen"),
    ] {
        let refused = handshake(server.address, &server.key, query).await;
        assert_eq!((refused.status, &refused.body["err_code"]), (400, &json!(code)), "{query}");
        let message = refused.body["err_msg"].as_str().expect("a text");
        assert!(message.contains(name), "{query}: {message}");
        assert_eq!(refused.header("dg-error"), Some(message), "{query}");
    }
    assert_eq!(handshake(server.address, "org_none", RAW).await.status, 401);

    // Its models are not served on the other endpoint, nor files on this one.
    let token = format!("Token {}", server.key);
    let path = format!("/v1/listen?{RAW}&model=flux-general-en");
    let refused = connect(server.address, &path, &[("authorization", &token)]).await;
    assert_eq!(refused.body["err_code"], "V2_MODEL_ON_V1_LISTEN_ENDPOINT");
    let (status, body) =
        answer(server.listen("model=flux-general-multi", vec![0; 100]).send().await.unwrap()).await;
    assert_eq!((status, &body["err_code"]), (400, &json!("V2_MODEL_ON_V1_LISTEN_ENDPOINT")));
    let posted =
        client().post(server.url("/v2/listen")).bearer_auth(&server.key).body("x").send().await.unwrap();
    assert_eq!((posted.status().as_u16(), &posted.headers()["allow"]), (405, &"GET, HEAD".parse().unwrap()));
}

/// What other streams' clients send by default is no reason to refuse them.
#[tokio::test]
async fn parameters_of_other_streams_are_warned_of() {
    let server = start(Config::default()).await;
    let query = "model=listener&no_delay=true&endpointing=25&vad_events=true&filler_words=true&interim_results=true\
                 &diarize_model=latest&dictation=true&mip_opt_out=False&channels=1&profanity_filter=false";
    let mut socket =
        handshake(server.address, &server.key, &format!("{RAW}&{query}")).await.socket.expect("taken");
    assert_eq!(socket.message().await["type"], "Connected");
    for name in [
        "no_delay",
        "endpointing",
        "vad_events",
        "filler_words",
        "interim_results",
        "diarize_model",
        "dictation",
    ] {
        let warning = socket.message().await;
        assert_eq!(warning["type"], "Warning", "{warning}");
        let text = warning["description"].as_str().expect("a text");
        assert!(text.starts_with(&format!("`{name}`")), "{text}");
    }
    // Nothing else is warned of.
    socket.control("CloseStream").await;
    assert_eq!(socket.rest().await, (Vec::new(), Said::Close(1000, String::new())));
}

#[tokio::test]
async fn what_ends_a_stream_is_told_in_an_error() {
    let server = start(Config { idle_timeout_ms: 300, ..Config::default() }).await;
    let error = async |mut socket: Socket| {
        let (messages, end) = socket.rest().await;
        let Said::Close(code, _) = end else { panic!("{end:?}") };
        let error = messages.last().expect("an error").clone();
        assert_eq!(error["type"], "Error", "{error}");
        assert!(error["description"].is_string() && error["sequence_id"].is_u64(), "{error}");
        (error["code"].as_str().expect("a code").to_owned(), code)
    };
    for text in [r#"{"type":"Finalize"}"#, "hello", r#"{"type":["Configure"]}"#] {
        let mut socket = open(&server, "").await;
        socket.text(text).await;
        assert_eq!(error(socket).await, ("UNPARSABLE_CLIENT_MESSAGE".to_owned(), 1008), "{text}");
    }
    assert_eq!(error(open(&server, "").await).await, ("NET-0001".to_owned(), 1011));
    let mut socket = handshake(server.address, &server.key, "").await.socket.expect("taken");
    socket.message().await;
    socket.audio(b"this is no audio, whatever one takes it for; it goes on for a while").await;
    socket.control("CloseStream").await;
    assert_eq!(error(socket).await, ("DATA-0000".to_owned(), 1008));
}

#[tokio::test]
async fn tenants_have_streams_of_their_own() {
    let setup = Setup {
        organisations: 2,
        live: Config { max_streams: 2, ..Config::default() },
        model: Some(Box::new(Listener::new())),
        ..Setup::default()
    };
    let server = TestServer::start(setup).await;
    let one = open(&server, "").await;
    let other = handshake(server.address, &server.others[0], RAW).await;
    let mut other = other.socket.expect("taken");
    other.message().await;
    let third = handshake(server.address, &server.key, RAW).await;
    assert!(matches!(third.status, 429 | 503) && third.header("retry-after").is_some(), "{}", third.status);
    let (ours, theirs) =
        tokio::join!(converse(one, &[(5, 0.5, 1.0)]), converse(other, &[(6, 0.5, 1.0), (7, 0.5, 1.0)]));
    assert_eq!(changes(&ours).last(), Some(&told("EndOfTurn", 0, "W5,")));
    assert_eq!(changes(&theirs).last(), Some(&told("EndOfTurn", 1, "W7,")));
    assert_eq!(server.live.streams(), 0);
}

#[tokio::test]
async fn a_drain_ends_the_turn_of_every_stream() {
    let server = start(Config::default()).await;
    let mut socket = open(&server, "").await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 0.1)]))).await;
    // So that the audio is surely there before the end.
    socket.frame(0x89, b"").await;
    while socket.said().await != Said::Pong(Vec::new()) {}
    let stopped = server.door.begin_to_stop();
    let (messages, end) = socket.rest().await;
    assert_eq!(last(&messages, "EndOfTurn")["transcript"], "W5,");
    assert!(matches!(end, Said::Close(1001, _)), "{end:?}");
    drop(socket);
    stopped.await.expect("no panic").expect("served");
}

#[tokio::test]
async fn a_client_that_takes_nothing_in_is_cut_off() {
    let server = start(Config { write_timeout_ms: 100, ..Config::default() }).await;
    let mut socket = open(&server, "").await;
    server.send_until_cut(async || socket.control("Configure").await).await;
}

/// Real speech, through the built program: the model of turns waits for the second half of a sentence, and not for more
/// after its end.
#[tokio::test]
async fn a_speaker_who_pauses_has_not_finished() {
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let model = cache("models/tiny.en");
    // With the detector of voices, which other tests do without.
    let settings = [("VERBATIM_LIVE__END_OF_TURN", "model"), ("VERBATIM_TRANSCRIBE__WINDOWS", "speech")];
    let program = Program::start_with(state.path(), &model, &settings).await;
    // «Had he married a more amiable woman, he might have been …»
    let sentence = read("speech/austen_0920.wav");
    let said = passages().into_iter().find(|(pcm, _)| pcm.len() == sentence.len()).expect("it is one").1;
    let (begin, end) = sentence.samples().split_at(sentence.len() * 9 / 20);
    let silence = |seconds: f64| vec![0.0; (seconds * 16_000.0) as usize];
    let other = read("speech/austen_0890.wav");
    let audio = [begin, &silence(1.0), end, &silence(1.5), other.samples(), &silence(0.5)].concat();
    let audio: Vec<i16> = audio.iter().map(|sample| (sample * 32_767.0) as i16).collect();

    let query = format!("model=flux-general-en&{RAW}&eager_eot_threshold=0.5");
    let mut socket = handshake(program.address, &key, &query).await.socket.expect("taken");
    assert_eq!(socket.message().await["type"], "Connected");
    let messages = {
        for piece in bytes(&audio).chunks(3200) {
            socket.audio(piece).await;
        }
        socket.control("CloseStream").await;
        let (messages, goodbye) = socket.rest().await;
        assert_eq!(goodbye, Said::Close(1000, String::new()));
        messages
    };
    let ends: Vec<_> = changes(&messages).into_iter().filter(|(event, ..)| event == "EndOfTurn").collect();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(word_errors(&said, &ends[0].2) <= 3, "{ends:?}");
    let first = messages.iter().find(|message| message["event"] == "EndOfTurn").expect("an end");
    assert_eq!(first["trigger"], "model");
    // It ends in the pause after the sentence, not in that within.
    let over = first["audio_window_end"].as_f64().expect("a number");
    let spoken = sentence.duration_seconds() + 1.0;
    assert!((spoken - 0.5..spoken + 1.5).contains(&over), "{over}");
    program.stop().await;
}
