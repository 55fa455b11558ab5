//! When a caller's turn ends, by the model that hears whether a sentence is complete.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use verbatim::sts::config::EndOfTurn;
use verbatim::sts::{Recognize, Whose};
use verbatim::vad::Utterance;

use super::room::{Caller, clip};
use super::service::{Service, Setup};
use super::voices::patiently;
use crate::socket::{Said, Socket, connect};

/// Samples of silence that are fewer than end a turn without the model, and more.
const SHORT: usize = 6_400;
const LONG: usize = 19_200;

fn linear16(samples: &[f32], silence: usize) -> Vec<i16> {
    let samples = samples.iter().map(|sample| (sample * 32_767.0) as i16);
    samples.chain(std::iter::repeat_n(0, silence)).collect()
}

/// Generous, for a busy machine; silences that end turns by themselves are longer.
const LONGEST: Duration = Duration::from_secs(120);

#[tokio::test]
async fn the_owner_says_how_sure_an_end_must_be_and_which_terms_to_expect() {
    let terms = Arc::new(Mutex::new(Vec::new()));
    let noted = terms.clone();
    let recognize: Recognize = Arc::new(move |_, whose: Whose| {
        noted
            .lock()
            .expect("no test panics here")
            .push(whose.terms.iter().map(|term| term.text.clone()).collect());
        Box::pin(async { Ok("Where can I park?".to_owned()) })
    });
    let mut setup = Setup { recognize: Some(recognize), ..Setup::default() };
    // By themselves, silences end no turn.
    setup.config.turn.silence_ms = 600_000;
    setup.config.turn.wait_ms = 600_000;
    let service = Service::start(setup).await;
    let mut socket = connect(service.address, "/v1/agent/converse", &[]).await.socket.expect("agreed");
    let listen = |threshold: f64, keyterms: Value| {
        json!({"provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en", "eot_threshold": threshold,
            "keyterms": keyterms}})
    };
    let settings = json!({
        "type": "Settings",
        "audio": {"input": {"encoding": "linear16", "sample_rate": 16_000}},
        "agent": {"greeting": "Hello.", "think": {"prompt": "Parking is free behind the building."},
            "listen": listen(0.5, json!(["Verbatim", "Kokoro"]))},
    });
    socket.text(&settings.to_string()).await;
    let until = async |socket: &mut Socket, kind: &str| {
        let wait = async {
            loop {
                match socket.said().await {
                    Said::Message(message) if message["type"] == kind => return,
                    Said::Message(message) => assert_ne!(message["type"], "Warning", "{message}"),
                    Said::Audio(_) => {}
                    other => panic!("{other:?} instead of {kind}"),
                }
            }
        };
        tokio::time::timeout(LONGEST, wait).await.unwrap_or_else(|_| panic!("no {kind}"));
    };
    until(&mut socket, "AgentAudioDone").await;
    let said: Vec<u8> = linear16(clip("en_quick_brown_fox.wav").samples(), SHORT)
        .into_iter()
        .flat_map(i16::to_le_bytes)
        .collect();
    socket.audio(&said).await;
    until(&mut socket, "UserStoppedSpeaking").await;
    until(&mut socket, "AgentAudioDone").await;
    let update = json!({"type": "UpdateListen", "listen": listen(0.9, json!(["Whisper"]))});
    socket.text(&update.to_string()).await;
    until(&mut socket, "ListenUpdated").await;
    socket.audio(&said).await;
    until(&mut socket, "UserStoppedSpeaking").await;
    until(&mut socket, "AgentAudioDone").await;
    let heard: Vec<Vec<String>> = terms.lock().expect("no test panics here").clone();
    assert_eq!(heard, [vec!["Verbatim", "Kokoro"], vec!["Whisper"]]);
}

#[tokio::test]
async fn who_has_finished_is_answered_and_who_pauses_is_not_interrupted() {
    let (is_whole, was_heard) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (whole, heard) = (is_whole.clone(), was_heard.clone());
    let seconds = Arc::new(Mutex::new(Vec::new()));
    let noted = seconds.clone();
    let recognize: Recognize = Arc::new(move |utterance: Utterance, _| {
        noted.lock().expect("no test panics here").push(utterance.pcm.duration_seconds());
        let words = if whole.load(Ordering::SeqCst) { "Where can I park?" } else { "Where can I" };
        heard.notify_one();
        Box::pin(async move { Ok(words.to_owned()) })
    });
    let mut setup = Setup { recognize: Some(recognize), ..Setup::default() };
    setup.config.turn.end_of_turn = EndOfTurn::Model;
    // Time alone triggers no answer.
    setup.config.turn.wait_ms = 600_000;
    setup.config.turn.silence_ms = 600_000;
    let service = Service::start(setup).await;
    let start = json!({
        "greeting": "Hello.",
        "documents": [{"title": "Parking", "type": "text", "content": "Parking is free behind the building."}],
    });
    let join = async || {
        let (id, reply) = service.session(start.clone()).await;
        let status = service.ready(&id).await;
        assert_eq!(status["agent"]["engine"]["end_of_turn"], "model");
        let mut caller = Caller::join(&service, &reply).await;
        caller.listen().await;
        (id, caller)
    };
    let ((hesitant_id, mut hesitant), (_, mut quick)) = (join().await, join().await);
    let questions = async || {
        let status = service.status(&hesitant_id).await;
        let lines = status["transcript"].as_array().expect("lines").clone();
        lines.iter().filter(|line| line["role"] == "user").count()
    };

    // «Had he married a more amiable woman, he might have been …»
    let sentence = clip("austen_0920.wav");
    let (begin, end) = sentence.samples().split_at(sentence.len() * 9 / 20);
    hesitant.speak(&linear16(begin, LONG)).await;
    hesitant.message("UserStartedSpeaking").await;
    patiently(was_heard.notified()).await;
    is_whole.store(true, Ordering::SeqCst);
    // The model hears one pause after the other: who speaks after the hesitant one is judged after them.
    quick.speak(&linear16(clip("en_quick_brown_fox.wav").samples(), SHORT)).await;
    patiently(quick.message("UserStoppedSpeaking")).await;
    assert_eq!(patiently(quick.listen()).await, "Parking is free behind the building.");
    assert_eq!(questions().await, 0, "the one who paused was interrupted");

    hesitant.speak(&linear16(end, SHORT)).await;
    assert_eq!(patiently(hesitant.listen()).await, "Parking is free behind the building.");
    assert_eq!(questions().await, 1);
    let seconds = seconds.lock().expect("no test panics here").clone();
    assert!(seconds.last().is_some_and(|last| *last > sentence.duration_seconds()), "{seconds:?}");
}
