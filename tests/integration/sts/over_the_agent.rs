//! Sound while the agent speaks: interruptions, signs of attention, noise, and its own voice out of a loudspeaker.

use std::time::Duration;

use serde_json::json;
use verbatim::audio::RateConverter;
use verbatim::sts::Recognize;
use verbatim::sts::config::EndOfTurn;
use verbatim::vad::{FRAME_SAMPLES, Vad};

use super::room::{Caller, clip, recording};
use super::service::{Service, Setup, models};
use super::voices::{Voice, patiently};
use crate::socket::{Said, Socket, connect};

/// Half a minute of the agent's voice.
const LONG: &str = "The history of the clinic begins in a small house near the river where two brothers opened a practice. \
    The people of the valley came with their many animals and it went on for a very long time until today. \
    Nobody remembers who planted the tree in the yard but everybody knows the story of the storm and the old mill.";

/// A client that owns its session, once the agent has greeted it.
async fn owner(service: &Service) -> Socket {
    let mut socket = connect(service.address, "/v1/agent/converse", &[]).await.socket.expect("agreed");
    let settings = json!({
        "type": "Settings",
        "audio": {"input": {"encoding": "linear16", "sample_rate": 16_000},
            "output": {"encoding": "linear16", "sample_rate": 24_000, "container": "none"}},
        "agent": {"greeting": "Hello.", "think": {"prompt": "Parking is free behind the building."}},
    });
    socket.text(&settings.to_string()).await;
    until(&mut socket, "AgentAudioDone").await;
    socket
}

async fn until(socket: &mut Socket, kind: &str) {
    let wait = async {
        loop {
            match socket.said().await {
                Said::Message(message) if message["type"] == kind => return,
                Said::Message(_) | Said::Audio(_) => {}
                other => panic!("{other:?} instead of {kind}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.unwrap_or_else(|_| panic!("no {kind}"));
}

async fn say(socket: &mut Socket, line: &str) {
    let message = json!({"type": "InjectAgentMessage", "message": line, "behavior": "queue"});
    socket.text(&message.to_string()).await;
    until(socket, "AgentStartedSpeaking").await;
}

fn bytes(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|sample| ((sample * 32_767.0) as i16).to_le_bytes()).collect()
}

/// Frames of a caller's audio, from the first one with speech on, until the agent falls silent.
async fn frames_until_silent(service: &Service) -> usize {
    let mut socket = owner(service).await;
    say(&mut socket, LONG).await;
    let speech = clip("en_quick_brown_fox.wav");
    let probabilities = Vad::load(&models().join("silero-vad")).expect("run ./setup").probabilities(&speech);
    let onset = probabilities.iter().position(|probability| *probability >= 0.5).expect("speech");
    for (index, piece) in speech.samples().chunks(FRAME_SAMPLES).enumerate() {
        socket.audio(&bytes(piece)).await;
        // The refusal comes when the agent has taken the audio before it, whatever the time.
        let question = json!({"type": "InjectAgentMessage", "message": "Never said.", "behavior": "default"});
        socket.text(&question.to_string()).await;
        let mut is_silent = false;
        loop {
            match socket.said().await {
                Said::Message(message) if message["type"] == "InjectionRefused" => break,
                Said::Message(message) => is_silent |= message["type"] == "UserStartedSpeaking",
                Said::Audio(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if is_silent {
            return index + 1 - onset;
        }
    }
    panic!("the agent went on");
}

#[tokio::test]
async fn the_agent_falls_silent_within_so_many_frames_of_a_callers_speech() {
    let voice = Voice::start().await;
    let mut setup = Setup::default();
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    // `interrupt_ms` are 12 frames of speech; some within words are none.
    let frames = frames_until_silent(&service).await;
    assert!((12..=20).contains(&frames), "{frames} frames");

    // What is said may only be «mhm»: while that is being found out, the agent goes on, but not for long.
    let recognize: Recognize = std::sync::Arc::new(|_, _| Box::pin(std::future::pending()));
    let mut setup = Setup { recognize: Some(recognize), ..Setup::default() };
    setup.config.turn.end_of_turn = EndOfTurn::Model;
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let frames = frames_until_silent(&service).await;
    assert!((25..=36).contains(&frames), "{frames} frames");
}

#[tokio::test]
async fn after_noise_or_a_sign_of_attention_the_agent_goes_on_at_its_word() {
    for heard in ["", "Mhm."] {
        let voice = Voice::start().await;
        let mut setup = Setup { heard: vec![heard], ..Setup::default() };
        voice.give(&mut setup);
        let service = Service::start(setup).await;
        let line =
            "The history of the clinic begins in a small house near the river where two brothers lived.";
        let documents = json!([{"title": "History", "type": "text", "content": line}]);
        let (id, start) = service.session(json!({"greeting": "Welcome.", "documents": documents})).await;
        let mut caller = Caller::greeted(&service, &start).await;
        caller.write("Tell me about the history of the clinic.").await;
        caller.message("AgentStartedSpeaking").await;
        caller.hear(1.0).await;
        caller.speak(&recording("en_quick_brown_fox.wav")).await;
        caller.message("Clear").await;
        let rest = caller.find(|m| m["type"] == "ConversationText" && m["role"] == "assistant").await;
        let rest = rest["content"].as_str().expect("text").to_owned();
        assert!(line.ends_with(&format!(" {rest}")) || line == rest, "«{rest}» of «{line}»");
        caller.message("AgentAudioDone").await;
        let status = service.status(&id).await;
        let last = status["transcript"].as_array().and_then(|lines| lines.last()).expect("a line").clone();
        assert_eq!((&last["text"], &last["interrupted"]), (&json!(line), &json!(false)), "after «{heard}»");
    }
}

#[tokio::test]
async fn the_agents_voice_out_of_a_loudspeaker_is_nobodys_turn() {
    let voice = Voice::start().await;
    let mut setup = Setup { heard: vec!["Where can I park?"; 20], ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let mut socket = owner(&service).await;
    say(&mut socket, LONG).await;
    let mut converter = RateConverter::new(24_000, 16_000).expect("usual rates");
    // What comes is played 0.25 s later at the latest, and returns a little after that.
    let (mut line, mut returned) = (Vec::new(), 0);
    let talk = async {
        loop {
            match socket.said().await {
                Said::Audio(bytes) => {
                    let (samples, _) = bytes.as_chunks::<2>();
                    let samples: Vec<f32> = samples
                        .iter()
                        .map(|two| f32::from(i16::from_le_bytes(*two)) / 32_768.0 * 0.15)
                        .collect();
                    line.extend(converter.push(&samples));
                    let ready = line.len().saturating_sub(16_000 * 3 / 10);
                    let echo: Vec<f32> = line.drain(..ready).collect();
                    returned += echo.len();
                    socket.audio(&self::bytes(&echo)).await;
                }
                Said::Message(message) if message["type"] == "AgentAudioDone" => return,
                Said::Message(message) => {
                    let is_turn = message["type"] == "ConversationText" && message["role"] == "user";
                    assert!(
                        !is_turn && message["interrupted"] != true,
                        "the agent answers itself: {message}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    };
    patiently(talk).await;
    assert!(returned > 16_000 * 10, "{returned} samples");
}
