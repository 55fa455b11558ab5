//! The built program at its most talkative: whatever clients say, and whatever the agent says to them, none of it is
//! logged, neither by the program nor by its libraries.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::checkpoint::Checkpoint;
use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{RAW, answer, client, new_key, say};
use crate::socket::{self, Said, connect};
use crate::sts::service::models;

/// Dictionary words that no log contains otherwise.
const SENTENCE: &str = "Periwinkle marmalade.";
const NUMBER: &str = "+14155552671";

async fn speaks(program: &Program) {
    let mut socket = connect(program.address, "/v1/agent/converse", &[]).await.socket.expect("agreed");
    let settings = json!({
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16_000},
            "output": {"encoding": "linear16", "sample_rate": 24_000, "container": "none"},
        },
        "agent": {"greeting": SENTENCE, "think": {"prompt": SENTENCE}},
    });
    socket.text(&settings.to_string()).await;
    let mut heard = 0;
    let greeted = async {
        loop {
            match socket.said().await {
                Said::Audio(bytes) => heard += bytes.len(),
                Said::Message(message) if message["type"] == "AgentAudioDone" => return,
                Said::Message(_) | Said::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), greeted).await.expect("it speaks");
    assert!(heard > 0, "nothing was heard");
    socket.text(&json!({"type": "InjectUserMessage", "content": SENTENCE}).to_string()).await;
    socket.text(SENTENCE).await;
    socket.control("Close").await;
    let (messages, end) = socket.rest().await;
    assert!(matches!(end, Said::Close(1000, _)), "{end:?} after {messages:?}");
}

async fn streams(program: &Program, key: &str, asked: &str) {
    let handshake = socket::listen(program.address, key, &format!("{RAW}&{asked}")).await;
    let mut socket = handshake.socket.expect("agreed");
    socket.audio(&say(1)).await;
    socket.text(&json!({"type": "Configure", "keyterms": [SENTENCE]}).to_string()).await;
    socket.text(SENTENCE).await;
    socket.control("CloseStream").await;
    assert!(matches!(socket.rest().await.1, Said::Close(1000, _)));
}

#[tokio::test]
async fn nothing_that_is_said_reaches_the_log() {
    let (state, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Checkpoint::random(1).write_hugging_face(model.path());
    let key = &new_key(state.path());
    let receiver = Receiver::start(&[]).await;
    let (allowed, models) = (receiver.allowed(), models());
    let settings = [
        ("VERBATIM_LOG__LEVEL", "trace,misaki_rs=trace,misaki_rs::g2p=trace,symphonia=trace,[request]=trace"),
        ("VERBATIM_MODEL_DIR", models.to_str().expect("text")),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro"),
        ("VERBATIM_STS__AUTH", "loopback"),
        ("VERBATIM_FETCH_ALLOW", allowed.as_str()),
    ];
    let program = Program::start_with(state.path(), model.path(), &settings).await;

    let asked = "keyterm=periwinkle&tag=marmalade&search=periwinkle";
    let listen = |query: &str, body: Vec<u8>| {
        client().post(program.url(&format!("/v1/listen?{query}"))).bearer_auth(key).body(body)
    };
    let media = json!({"url": format!("http://periwinkle:marmalade@{allowed}/periwinkle?marmalade")});
    let callback = callback_parameter(&format!("http://periwinkle:marmalade@{allowed}/periwinkle"));
    let start = json!({
        "action": "start", "channel": "phone", "caller_number": NUMBER, "greeting": SENTENCE,
        "documents": [{"title": SENTENCE, "type": "text", "content": SENTENCE}],
    });
    let service = |body: &Value| {
        let request = client().post(program.url("/STS/interactiveAgent")).body(body.to_string());
        request.header("content-type", "application/json")
    };
    for request in [
        listen(&format!("{RAW}&{asked}"), say(1)),
        listen(&format!("{RAW}&{callback}&metadata=periwinkle"), say(1)),
        listen(RAW, media.to_string().into_bytes()).header("content-type", "application/json"),
        listen("", SENTENCE.into()),
        client().post(program.url("/v1/listen")).bearer_auth("org_periwinkle").body(SENTENCE),
        client().get(program.url("/periwinkle?marmalade")),
    ] {
        answer(request).await;
    }
    let (status, started) = answer(service(&start)).await;
    assert_eq!(status, 200, "{started}");
    let (id, room) = (&started["session_id"], &started["room_name"]);
    let (_, session) = answer(service(&json!({"action": "status", "session_id": id}))).await;
    assert_eq!(session["agent"]["engine"]["voice"], "kokoro");
    let query = format!("session_id={}&room_name={}", id.as_str().unwrap(), room.as_str().unwrap());
    let call = client().post(program.url(&format!("/api/twilio/incoming-call?{query}&from=%2B14155552671")));
    assert_eq!(call.body("From=%2B14155552671").send().await.expect("an answer").status(), 200);
    streams(&program, key, asked).await;
    speaks(&program).await;

    program.signal("-TERM");
    while !program.log().contains("\"message\":\"stopped\"") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = program.log();
    assert!(log.contains("\"route\":\"/v1/agent/converse\""), "{log}");
    let shown = |canary: &str| {
        let line = log.lines().find(|line| line.to_lowercase().contains(&canary.to_lowercase()));
        line.map(str::to_owned)
    };
    for canary in ["periwinkle", "marmalade", &NUMBER[1..], &key[12..]] {
        assert_eq!(shown(canary), None, "{canary}");
    }
}
