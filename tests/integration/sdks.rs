//! The wire format's own SDKs against the built program, with nothing changed but address and key.
//!
//! `./setup` installs them under `.verbatim/sdks`. Without node or Go, that SDK is skipped with a message; with
//! `TEST_ALL_SDKS` set, as in CI, a missing node is a failure.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::hosts;
use crate::program::Program;
use crate::receiver::Receiver;
use crate::server::new_key;
use crate::speech::{cache, word_errors, words};

const SAID: &str = "He might even have been made amiable himself.";
/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs `program` of tests/sdks with an SDK: `python` is the newest, `python-3` is 3.x.
pub fn python(version: &str, program: &str) -> Command {
    let mut command = Command::new(cache(&format!("sdks/{version}")).join("bin/python"));
    command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdks").join(program));
    command
}

/// Runs `program` of tests/sdks/node; `None` if the machine has no node.
pub fn node(program: &str) -> Option<Command> {
    let folder = cache("sdks/node");
    if !folder.join("node_modules").exists() {
        assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "there was no npm when ./setup ran");
        eprintln!("skipped: there was no npm when ./setup ran");
        return None;
    }
    let mut command = Command::new("node");
    // Node looks for packages beside the program, but they are in the cache.
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdks/node").join(program);
    let script = std::fs::read_to_string(source).expect("readable");
    command.current_dir(folder).args(["--input-type=module", "--eval", &script]);
    Some(command)
}

/// Runs `program` of tests/sdks/rust.
pub fn rust(program: &str) -> Command {
    Command::new(cache("sdks/rust").join(program))
}

/// Runs `program` of tests/sdks/go; `None` if the machine has no Go.
pub fn go(program: &str) -> Option<Command> {
    let client = cache("sdks/go/sdk-client");
    if !client.exists() {
        eprintln!("skipped: there was no Go when ./setup ran");
        return None;
    }
    let mut command = Command::new(client);
    command.arg(program);
    Some(command)
}

/// The result that a client prints; all use the same form.
pub async fn printed(mut client: Command) -> Value {
    let text = text(&mut client).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{client:?}: {error}: {text}"))
}

/// The text that `client` prints. It must succeed.
pub async fn text(client: &mut Command) -> String {
    let output = client.stderr(Stdio::piped()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("in time").expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn sdks_work_with_another_address_and_key() {
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let audio = cache("speech/austen_0930.wav");
    let port = hosts::file(std::fs::read(&audio).expect("readable"), |_| true).await;
    let url = format!("http://127.0.0.1:{port}/speech.wav");
    let mut receiver = Receiver::start(&[]).await;
    let allowed = format!("127.0.0.1:{port},{}", receiver.allowed());
    let program = Program::start(state.path(), &cache("models/tiny.en"), &allowed).await;
    let clients = [
        ("Python, newest", Some(python("python", "client.py"))),
        ("Python, 3.x", Some(python("python-3", "client.py"))),
        ("Node", node("client.js")),
        ("Rust", Some(rust("sdk-client"))),
        ("Go", go("files")),
    ];
    for (name, client) in clients {
        let Some(mut client) = client else { continue };
        client
            .env("SERVER", format!("http://{}", program.address))
            .env("KEY", &key)
            .env("AUDIO", &audio)
            .env("URL", &url)
            .env("CALLBACK", format!("http://127.0.0.1:{}/done", receiver.port));
        let told = printed(client).await;
        for way in ["bytes", "url", "utterances"] {
            let heard = &told[way];
            let transcript = heard["transcript"].as_str().expect("text");
            assert!(word_errors(SAID, transcript) <= 1, "{name}, {way}: {transcript}");
            let timed = heard["words"].as_array().expect("words");
            assert_eq!(timed.len(), transcript.split_whitespace().count(), "{name}, {way}: {heard}");
            assert!(timed.iter().all(|word| word[1].as_f64() <= word[2].as_f64()), "{name}, {way}: {heard}");
        }
        let utterances = told["utterances"]["utterances"].as_array().expect("a list");
        let said: Vec<&str> = utterances.iter().filter_map(Value::as_str).collect();
        let transcript = told["utterances"]["transcript"].as_str().expect("text");
        assert_eq!(words(&said.join(" ")), words(transcript), "{name}");
        let delivered = receiver.next().await.json();
        assert_eq!(delivered["metadata"]["request_id"], told["callback"], "{name}");
        let transcript = &delivered["results"]["channels"][0]["alternatives"][0]["transcript"];
        assert!(word_errors(SAID, transcript.as_str().expect("text")) <= 1, "{name}: {transcript}");
    }
}
