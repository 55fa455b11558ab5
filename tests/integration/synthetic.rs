//! A server whose model is random weights of a known shape.

use std::ffi::OsStr;

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{home, run, verbatim};
use crate::program::Program;
use crate::server::{RAW, client, new_key, read, say_for};
use crate::socket::{self, Said};
use crate::tones::{bytes, utter};

/// Times are rounded to milliseconds at the most.
const EPSILON: f64 = 1e-3;

/// The words of the first channel, and when each begins and ends.
fn words(body: &Value) -> Vec<(f64, f64)> {
    let words = body["results"]["channels"][0]["alternatives"][0]["words"].as_array().expect("words");
    let time = |word: &Value, name: &str| word[name].as_f64().expect("a time");
    words.iter().map(|word| (time(word, "start"), time(word, "end"))).collect()
}

#[tokio::test]
async fn random_weights_serve_under_a_name_that_says_so() {
    let state = TempDir::new().expect("a directory");
    let key = new_key(state.path());
    let arguments = ["--model", "synthetic:tiny", "--tokens", "8", "--device", "cpu"].map(OsStr::new);
    let program = Program::serve(state.path(), &arguments, &[]).await;
    let log = program.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let loaded: Vec<Value> = lines.filter(|line| line["model"] == "synthetic:tiny").collect();
    assert!(loaded.iter().any(|line| line["level"] == "WARN"), "{log}");

    // A full window and a rest: each is decoded once, and consumed whole.
    let listen = client().post(program.url(&format!("/v1/listen?{RAW}"))).bearer_auth(&key);
    let response =
        listen.header("timestamps", "true").body(say_for(1, 33.0)).send().await.expect("an answer");
    assert_eq!(response.headers()["dg-model-name"], "synthetic:tiny");
    let (status, body) = read(response).await;
    assert_eq!(status, 200, "{body}");
    let info = body["metadata"]["model_info"].as_object().expect("models");
    assert!(info.values().all(|info| info["name"] == "synthetic:tiny") && info.len() == 1, "{body}");
    let words = words(&body);
    // One token of each window is its timestamp.
    assert!((3..=8).contains(&words.len()), "{body}");
    let mut before = 0.0;
    for &(start, end) in &words {
        assert!(before <= start + EPSILON && start <= end && end <= 33.0 + EPSILON, "{words:?}");
        before = start;
    }
    assert_eq!(words.iter().filter(|(start, _)| *start >= 30.0).count(), 1, "{words:?}");

    let handshake = socket::listen(program.address, &key, RAW).await;
    let mut socket = handshake.socket.expect("a WebSocket");
    for piece in bytes(&utter(&[(5, 2.0, 1.0), (6, 1.0, 0.5)])).chunks(3200) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    let (metadata, results) = messages.split_last().expect("messages");
    assert_eq!(metadata["type"], "Metadata");
    let info = metadata["model_info"].as_object().expect("models");
    assert!(info.values().all(|info| info["name"] == "synthetic:tiny") && info.len() == 1, "{metadata}");
    assert!(results.iter().any(|results| results["is_final"] == true), "{results:?}");
    for results in results {
        assert_eq!(results["metadata"]["model_info"]["name"], "synthetic:tiny", "{results}");
    }
    program.stop().await;
}

#[test]
fn a_synthetic_model_is_only_started_by_its_whole_name_and_with_its_tokens() {
    let home = home();
    let serve = |arguments: &[&str]| {
        run(&mut verbatim(&home, &[&["serve", "--listen", "127.0.0.1:0"], arguments].concat()))
    };
    for (arguments, expected) in [
        (&["--model", "synthetic:tiny"][..], "`models.synthetic_tokens` is not set"),
        (&["--tokens", "8"], "`models.synthetic_tokens` = \"8\" (the flag --tokens) must be left out"),
        (&["--model", "base", "--tokens", "8"], "must be left out"),
        (&["--model", "synthetic:enormous", "--tokens", "8"], "large-v3-turbo"),
        (&["--model", "synthetic:", "--tokens", "8"], "large-v3-turbo"),
        (&["--model", "synthetic:tiny", "--tokens", "8-4"], "20-220"),
        (&["--model", "synthetic:tiny", "--tokens", "many"], "20-220"),
    ] {
        let (code, _, error) = serve(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{expected} is not in: {error}");
    }
    let file = home.path().join("verbatim.toml");
    let config = ["config", "--config", file.to_str().expect("text")];
    for written in ["64", "\"64\"", "\"20-220\""] {
        let text = format!("[models]\nmodel = \"synthetic:tiny\"\nsynthetic_tokens = {written}\n");
        std::fs::write(&file, text).expect("writable");
        let (code, printed, error) = run(&mut verbatim(&home, &config));
        assert_eq!(code, Some(0), "{error}");
        let table: toml::Table = printed.parse().expect("TOML");
        assert_eq!(table["models"]["synthetic_tokens"].as_str(), Some(written.trim_matches('"')));
    }
    std::fs::write(&file, "[models]\nmodel = \"synthetic:tiny\"\n").expect("writable");
    let (code, _, error) = run(&mut verbatim(&home, &config));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("`models.synthetic_tokens` is not set"), "{error}");
}
