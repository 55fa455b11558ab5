//! The voices to choose from: those of another server, of a program, and of other languages.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::client;
use crate::speak::{PATIENCE, Server, assert_said, body};
use crate::speech::cache;

const FOX: &str = "The quick brown fox jumps over the lazy dog.";
const RAW: &str = "encoding=linear16&container=none&sample_rate=16000";
const HEARD: &str = "encoding=linear16&sample_rate=16000";

#[tokio::test]
async fn a_server_speaks_with_the_voices_of_another() {
    let owner = Server::start(&[]).await;
    let base = owner.program.url("/v1");
    let settings = [
        ("VERBATIM_STS__SPEECH__BASE_URL", base.as_str()),
        ("VERBATIM_STS__SPEECH__API_KEY", owner.key.as_str()),
        ("VERBATIM_STS__SPEECH__MODEL", "tts-1"),
        ("VERBATIM_STS__SPEECH__VOICE", "alloy"),
        ("VERBATIM_STS__SPEECH__VOICES", "[\"am_michael\"]"),
    ];
    let server = Server::start(&settings).await;
    for (voice, named) in [("alloy", "alloy"), ("am_michael", "am_michael"), ("af_heart", "af_heart")] {
        let answer = server.speak(&format!("{RAW}&model={voice}"), FOX).send().await.expect("an answer");
        assert_eq!(answer.headers()["dg-model-name"], named);
        let audio = body(answer).await;
        assert_said(voice, FOX, &server.heard(HEARD, audio).await);
    }
    // Without the other server, its own voice speaks.
    owner.program.kill();
    let audio = body(server.speak(&format!("{RAW}&model=alloy"), FOX).send().await.expect("an answer")).await;
    assert_said("alone", FOX, &server.heard(HEARD, audio).await);
}

#[tokio::test]
async fn a_program_speaks() {
    let folder = TempDir::new().expect("a folder");
    let (script, said) = (folder.path().join("say"), folder.path().join("said"));
    let clip = cache("speech/jfk.wav");
    let text = format!("#!/bin/sh\necho \"$1\" > {0}\ncat >> {0}\ncat {1}\n", said.display(), clip.display());
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).expect("made executable");
    let command = json!([script, "pace={speed}"]).to_string();
    let server = Server::start(&[("VERBATIM_STS__SPEECH__PROGRAM", &command)]).await;
    let query = format!("{RAW}&model=program&speed=1.2");
    let audio = body(server.speak(&query, FOX).send().await.expect("an answer")).await;
    let heard = server.heard(HEARD, audio).await;
    assert!(heard.contains("what your country can do for you"), "{heard}");
    assert_eq!(std::fs::read_to_string(&said).expect("what it read"), format!("pace=1.200\n{FOX}"));
    // Kokoro is there as well.
    let audio =
        body(server.speak(&format!("{RAW}&model=am_michael"), FOX).send().await.expect("an answer")).await;
    assert_said("Kokoro", FOX, &server.heard(HEARD, audio).await);
}

#[tokio::test]
async fn a_voice_that_cannot_be_read_is_refused_with_the_reason() {
    // A folder like the installed one, with a Chinese and a Spanish voice: the styles of another will do.
    let models = TempDir::new().expect("a folder");
    let link = |from: &str, to: &str| {
        std::os::unix::fs::symlink(cache(&format!("models/{from}")), models.path().join(to)).expect("a link");
    };
    for name in ["onnxruntime", "silero-vad"] {
        link(name, name);
    }
    std::fs::create_dir(models.path().join("kokoro")).expect("made");
    for (from, to) in
        [("model.onnx", "model.onnx"), ("af_heart.bin", "af_heart.bin"), ("af_heart.bin", "zf_xiaobei.bin")]
    {
        link(&format!("kokoro/{from}"), &format!("kokoro/{to}"));
    }
    link("kokoro/af_heart.bin", "kokoro/ef_dora.bin");
    let folder = models.path().to_str().expect("text").to_owned();
    let server = Server::start(&[("VERBATIM_MODEL_DIR", &folder)]).await;
    let refused = async |voice: &str| -> Option<String> {
        let answer = server.speak(&format!("model={voice}"), FOX).send().await.expect("an answer");
        let (status, bytes) = (answer.status(), answer.bytes().await.expect("a body"));
        (status == 400).then(|| String::from_utf8_lossy(&bytes).into_owned())
    };
    let reason = refused("zf_xiaobei").await.expect("400");
    assert!(reason.contains("(zh) cannot be read here"), "{reason}");
    // Spanish is spoken if espeak-ng is there to transcribe it.
    if let Some(reason) = refused("ef_dora").await {
        assert!(reason.contains("needs the program espeak-ng"), "{reason}");
    }
    let openai = client()
        .post(server.program.url("/v1/audio/speech"))
        .bearer_auth(&server.key)
        .header("content-type", "application/json")
        .body(json!({"model": "tts-1", "input": FOX, "voice": "zf_xiaobei"}).to_string())
        .timeout(PATIENCE);
    let answer = openai.send().await.expect("an answer");
    assert_eq!(answer.status(), 400);
    let answer: Value = serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON");
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("(zh)")), "{answer}");
}
