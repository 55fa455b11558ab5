//! Programs that people install by name and point at an OpenAI base address: one that writes captions, one for the command
//! line, and Vercel's AI SDK, of which many chat front ends are made.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::program::Program;
use crate::sdks::{node, printed};
use crate::server::{client, new_key};
use crate::speech::{cache, word_errors};

const TEXT: &str = "The quick brown fox jumps over the lazy dog. The office is open on Monday.";
const SAID: &str = "He might even have been made amiable himself.";

/// The program, with a voice.
pub struct Server {
    pub program: Program,
    pub key: String,
    folder: TempDir,
}

impl Server {
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let key = new_key(folder.path());
        let models = cache("models");
        let settings = [
            ("VERBATIM_MODEL_DIR", models.to_str().expect("text")),
            ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro"),
        ];
        let program = Program::start_with(folder.path(), &cache("models/base"), &settings).await;
        Self { program, key, folder }
    }

    /// A tool of tests/sdks/tools.txt, by the statement that its script runs, with nothing set but address and key.
    fn tool(&self, statement: &str) -> Command {
        let mut command = Command::new(cache("sdks/tools").join("bin/python"));
        command
            .args(["-c", statement])
            .env("OPENAI_BASE_URL", self.program.url("/v1"))
            .env("OPENAI_API_KEY", &self.key)
            // It has its settings there.
            .env("HOME", self.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

async fn run(name: &str, mut tool: Command) -> String {
    let output = tool.output().await.expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The captions' lines of text.
fn text_of_srt(path: &Path) -> String {
    let captions = std::fs::read_to_string(path).expect("written");
    assert!(captions.starts_with("1\n00:00:0"), "{captions}");
    let texts = captions.split("\n\n").filter(|caption| !caption.trim().is_empty());
    let texts = texts.map(|caption| caption.lines().skip(2).collect::<Vec<_>>().join(" "));
    texts.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn tools_work_with_another_address_and_key() {
    let server = Server::start().await;
    let spoken = client()
        .post(server.program.url("/v1/speak"))
        .bearer_auth(&server.key)
        .header("content-type", "application/json")
        .body(json!({"text": TEXT}).to_string())
        .send()
        .await
        .expect("an answer");
    let (mp3, srt) = (server.folder.path().join("said.mp3"), server.folder.path().join("said.srt"));
    std::fs::write(&mp3, spoken.bytes().await.expect("speech")).expect("written");

    let mut captions = server.tool("from transcribe.interface.cli import main; main()");
    captions.arg(&mp3).arg("-o").arg(&srt).arg("--no-vocabulary");
    run("whisper-srt", captions).await;
    let heard = text_of_srt(&srt);
    assert!(word_errors(TEXT, &heard) <= 3, "{heard}");

    for (model, format) in [("whisper-1", "srt"), ("gpt-4o-transcribe", "text")] {
        let mut line = server.tool("from whisper_cli.cli import cli; cli()");
        line.arg("transcribe").arg(&mp3).args(["--model", model, "--response-format", format]);
        let heard = run("openai-whisper-api-cli", line).await;
        let heard = if format == "srt" {
            std::fs::write(&srt, heard.trim_start()).expect("written");
            text_of_srt(&srt)
        } else {
            heard
        };
        assert!(word_errors(TEXT, heard.trim()) <= 3, "{format}: {heard}");
    }
}

#[tokio::test]
async fn vercels_sdk_works_with_another_address_and_key() {
    let server = Server::start().await;
    let Some(mut sdk) = node("ai-sdk.js") else { return };
    sdk.env("SERVER", server.program.url(""))
        .env("KEY", &server.key)
        .env("AUDIO", cache("speech/austen_0930.wav"))
        .env("TEXT", TEXT);
    let told = printed(sdk).await;
    for way in ["plain", "prompted"] {
        let heard = told[way].as_str().expect("text");
        assert!(word_errors(SAID, heard.trim()) <= 1, "{way}: {told}");
    }
    let segments = told["segments"].as_array().expect("a list");
    assert!(!segments.is_empty() && segments.iter().all(|segment| segment["text"].is_string()), "{told}");
    assert_eq!(told["mediaType"], "audio/mpeg", "{told}");
    // Over `/v1/realtime`, with the key as a subprotocol.
    for part in ["text", "deltas"] {
        let streamed = told["streamed"][part].as_str().expect("text");
        assert!(word_errors(TEXT, streamed.trim()) <= 3, "{told}");
    }
    let spoken = told["spoken"].as_str().expect("text");
    assert!(word_errors(TEXT, spoken.trim()) <= 3, "{told}");
}
