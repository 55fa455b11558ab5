//! The snippets of the documents, `tests/examples`, against the built program: each as a reader would run it, with the
//! interpreters and SDKs of `sdks.rs`. `tests/documents.rs` checks that the documents show these very files.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use verbatim::audio::{DecodeOptions, Limits, decode};

use crate::hosts;
use crate::live_audio::wave;
use crate::program::Program;
use crate::receiver::Receiver;
use crate::sdks::{node, python, rust};
use crate::server::new_key;
use crate::speech::{cache, word_errors};

const SAID: &str = "He might even have been made amiable himself.";
/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A command of `tests/examples`, for a shell.
fn shell(file: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(file));
    command
}

/// Everything that a snippet prints, once it has succeeded.
async fn printed(name: &str, mut snippet: Command) -> String {
    let output = snippet.stderr(Stdio::piped()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("in time").expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn object(name: &str, printed: &str) -> Value {
    serde_json::from_str(printed).unwrap_or_else(|error| panic!("{name}: {error}: {printed}"))
}

fn transcript(result: &Value) -> &str {
    result["results"]["channels"][0]["alternatives"][0]["transcript"].as_str().expect("a transcript")
}

fn assert_heard(name: &str, transcript: &str) {
    assert!(word_errors(SAID, transcript.trim()) <= 1, "{name}: {transcript}");
}

/// The WAVE file `path`, of 16 kHz, with 24,000 samples a second.
fn at_24_khz(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("readable");
    let options = DecodeOptions { raw: None, split_channels: false, limits: Limits::default() };
    let sound = decode(bytes.into(), &options).expect("decoded").channels[0].clone();
    let samples = sound.pcm(..).samples().to_vec();
    let sample = |at: usize| samples.get(at).copied().unwrap_or_default();
    let between = |n: usize| {
        let (at, share) = (n * 2 / 3, (n * 2 % 3) as f32 / 3.0);
        sample(at) * (1.0 - share) + sample(at + 1) * share
    };
    let stretched: Vec<i16> = (0..samples.len() * 3 / 2).map(|n| (between(n) * 32_767.0) as i16).collect();
    wave(24_000, stretched.len() as u32 * 2, &stretched)
}

#[tokio::test]
async fn snippets_of_the_documents_run() {
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let audio = cache("speech/austen_0930.wav");
    let port = hosts::file(std::fs::read(&audio).expect("readable"), |_| true).await;
    let mut receiver = Receiver::start(&[]).await;
    let allowed = format!("127.0.0.1:{port},{}", receiver.allowed());
    // No voice is loaded: the test only needs the answer of a start.
    let settings = [("VERBATIM_FETCH_ALLOW", allowed.as_str()), ("VERBATIM_STS__SPEECH__EMBEDDED", "none")];
    let program = Program::start_with(state.path(), &cache("models/tiny.en"), &settings).await;
    let run = async |name: &str, mut snippet: Command| {
        snippet
            .env("SERVER", format!("http://{}", program.address))
            .env("KEY", &key)
            .env("AUDIO", &audio)
            .env("URL", format!("http://127.0.0.1:{port}/speech.wav"))
            .env("CALLBACK", format!("http://127.0.0.1:{}/done", receiver.port));
        printed(name, snippet).await
    };

    for (name, snippet) in [
        ("file.py", Some(python("python", "../examples/file.py"))),
        ("live.py", Some(python("python", "../examples/live.py"))),
        ("transcriptions.py", Some(python("openai", "../examples/transcriptions.py"))),
        ("file.js", node("../../examples/file.js")),
        ("file.rs", Some(rust("file"))),
    ] {
        let Some(snippet) = snippet else { continue };
        assert_heard(name, &run(name, snippet).await);
    }
    for name in ["file.sh", "url.sh"] {
        assert_heard(name, transcript(&object(name, &run(name, shell(name)).await)));
    }

    let realtime = state.path().join("24khz.wav");
    std::fs::write(&realtime, at_24_khz(&audio)).expect("written");
    let mut snippet = python("openai", "../examples/realtime.py");
    snippet.env("AUDIO_24KHZ", &realtime);
    assert_heard("realtime.py", &run("realtime.py", snippet).await);

    let acknowledged = object("callback.sh", &run("callback.sh", shell("callback.sh")).await);
    let started = object("agent.sh", &run("agent.sh", shell("agent.sh")).await);
    assert!(started["session_id"].as_str().is_some_and(|id| id.starts_with("sess_")), "{started}");
    let address = started["websocket_url"].as_str().expect("an address");
    assert!(address.starts_with("ws"), "{started}");

    let delivered = receiver.next().await.json();
    assert_eq!(delivered["metadata"]["request_id"], acknowledged["request_id"]);
    assert_eq!(delivered["metadata"]["metadata"], "order-17");
    assert_heard("callback.sh", transcript(&delivered));
}
