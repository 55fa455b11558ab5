//! `verbatim stream` against a server: its output and its end.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use verbatim::live::Config;

use crate::commands::{home, run, texts, verbatim, write_silence};
use crate::live::start;
use crate::server::TestServer;
use crate::tones::{bytes, utter};

const PATIENCE: Duration = Duration::from_secs(60);
const RAW: [&str; 2] = ["--query", "encoding=linear16&sample_rate=16000"];

type Ended = (Option<i32>, String, String);

/// `verbatim stream SOURCE`, to `server`.
fn stream(server: &TestServer, home: &tempfile::TempDir, source: &str) -> Command {
    let url = format!("http://{}", server.address);
    let mut command = verbatim(home, &["stream", source, "--url", &url]);
    command.env("VERBATIM_KEY", &server.key).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn ended(child: Child) -> Ended {
    let ended = tokio::task::spawn_blocking(move || texts(&child.wait_with_output().expect("it ends")));
    tokio::time::timeout(PATIENCE, ended).await.expect("in time").expect("it is waited for")
}

async fn ran(mut command: Command) -> Ended {
    ended(command.spawn().expect("it runs")).await
}

/// Raw samples in which two words are said, without a pause that would end their span.
fn words() -> Vec<u8> {
    bytes(&utter(&[(0, 0.0, 0.32), (5, 0.6, 0.1), (6, 0.6, 0.0)]))
}

/// Until the server has recognised more than `windows`.
async fn heard(server: &TestServer, windows: u64) {
    let heard = async {
        while server.engine.counts().windows <= windows {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("the words are heard");
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_streamed_fails() {
    let (server, home) = (start(Config::default()).await, home());
    let empty = home.path().join("empty.wav");
    std::fs::write(&empty, "").expect("writable");
    let missing = home.path().join("missing.wav");
    for real_time in [false, true] {
        for (source, reason) in
            [(home.path(), "it is a folder"), (&empty, "it is empty"), (&missing, "there is no such file")]
        {
            let source = source.to_str().expect("text");
            let mut command = stream(&server, &home, source);
            if real_time {
                command.arg("--real-time");
            }
            let (code, output, error) = ran(command).await;
            assert_eq!((code, output.as_str()), (Some(1), ""), "{error}");
            assert!(error.contains(source) && error.contains(reason), "{error}");
        }
    }
    let (code, _, error) = ran(stream(&server, &home, "-")).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("it is empty"), "{error}");
    let junk = home.path().join("junk.wav");
    std::fs::write(&junk, "this is no audio, however long it is. ".repeat(1000)).expect("writable");
    let (code, _, error) = ran(stream(&server, &home, junk.to_str().expect("text"))).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("1008"), "{error}");
    let silence = home.path().join("silence.wav");
    write_silence(&silence, 1);
    let (code, _, error) = ran(stream(&server, &home, silence.to_str().expect("text"))).await;
    assert_eq!(code, Some(0), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_come_in_is_told_where_and_why_and_never_waits_for_input() {
    let (server, home) = (start(Config::default()).await, home());
    // Standard input stays open: nothing of it is needed to see that the key is wrong.
    let (_open, input) = {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (writer, reader)
    };
    let mut command = stream(&server, &home, "-");
    let (code, _, error) = ran({
        command.env("VERBATIM_KEY", "org_wrong").stdin(input);
        command
    })
    .await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(&server.address.to_string()) && error.contains("401"), "{error}");
    assert!(!error.contains("org_wrong"), "{error}");

    let silence = home.path().join("silence.wav");
    write_silence(&silence, 1);
    let source = silence.to_str().expect("text");
    let (code, _, error) =
        run(&mut verbatim(&home, &["stream", source, "--key", "k", "--url", "ws://127.0.0.1:1"]));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("127.0.0.1:1") && error.contains("verbatim serve"), "{error}");
    let (code, _, error) =
        run(&mut verbatim(&home, &["stream", source, "--key", "k", "--url", "ftp://a.example"]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("wss://"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_audio_and_not_its_results() {
    let (server, home) = (start(Config::default()).await, home());
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let windows = server.engine.counts().windows;
        let (input, mut audio) = std::io::pipe().expect("a pipe");
        let mut command = stream(&server, &home, "-");
        command.args(RAW).stdin(input);
        let child = command.spawn().expect("it runs");
        drop(command);
        audio.write_all(&words()).expect("it reads");
        heard(&server, windows).await;
        signal(&child, name);
        let (ended, output, error) = ended(child).await;
        assert_eq!(ended, Some(code), "{error}");
        assert!(output.starts_with("W5,") && output.ends_with('\n'), "{output:?}: {error}");
        assert!(error.contains(&format!("stopped by SIG{}", &name[1..])), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_microphone_ends_with_control_c_and_that_is_no_failure() {
    let (server, home) = (start(Config::default()).await, home());
    // A recorder that takes its sound from a pipe, and lets go of the terminal.
    let pipe = home.path().join("sound");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let recorder = home.path().join("arecord");
    std::fs::write(&recorder, format!("#!/bin/sh\nexec cat '{}' 2>/dev/null\n", pipe.display()))
        .expect("writable");
    assert!(Command::new("chmod").arg("+x").arg(&recorder).status().expect("chmod").success());
    let path = std::env::var("PATH").expect("a path");
    let mut command = stream(&server, &home, "mic");
    command.env("PATH", format!("{}:{path}", home.path().display()));
    let child = command.spawn().expect("it runs");
    let mut sound =
        tokio::task::spawn_blocking(move || File::create(pipe)).await.expect("opened").expect("a pipe");
    sound.write_all(&words()).expect("it is recorded");
    heard(&server, 0).await;
    signal(&child, "-INT");
    let (code, output, error) = ended(child).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(output.starts_with("W5,"), "{output:?}: {error}");
    drop(sound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_stream_who_has_had_enough_is_no_error() {
    let (server, home) = (start(Config::default()).await, home());
    let raw = home.path().join("speech.raw");
    std::fs::write(&raw, words()).expect("writable");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = stream(&server, &home, raw.to_str().expect("text"));
    command.args(RAW).stdout(writer);
    let (code, _, error) = ran(command).await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(server.engine.counts().windows > 0, "there was something to write");
}
