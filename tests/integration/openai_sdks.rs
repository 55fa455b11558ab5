//! OpenAI's own SDKs against the built program, with nothing changed but address and key.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Program;
use crate::sdks::{node, printed, python};
use crate::server::new_key;
use crate::speakers::write_conversation;
use crate::speech::{cache, word_errors};

const SAID: &str = "He might even have been made amiable himself.";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn assert_said(name: &str, heard: &Value) {
    assert!(word_errors(SAID, text(heard).trim()) <= 1, "{name}: {heard}");
}

/// What the SDKs for Python and Node both print.
fn check(name: &str, told: &Value) {
    assert_said(name, &told["text"]);
    assert_said(name, &told["plain"]);
    assert!(text(&told["srt"]).starts_with("1\n00:00:0"), "{name}: {}", told["srt"]);
    assert!(text(&told["vtt"]).starts_with("WEBVTT\n\n00:00:0"), "{name}: {}", told["vtt"]);

    let verbose = &told["verbose"];
    assert_said(name, &verbose["text"]);
    assert_eq!(verbose["language"], "english", "{name}");
    let words = list(&verbose["words"]);
    assert_eq!(words.len(), text(&verbose["text"]).split_whitespace().count(), "{name}: {verbose}");
    assert!(words.iter().all(|word| word[1].as_f64() <= word[2].as_f64()), "{name}: {verbose}");
    let joined: String = list(&verbose["segments"]).iter().map(|segment| text(&segment["text"])).collect();
    assert_eq!(joined.trim(), text(&verbose["text"]), "{name}");
    for segment in list(&verbose["segments"]) {
        assert!(list(&segment["tokens"]).len() > 2, "{name}: {segment}");
        assert!(
            segment["avg_logprob"].as_f64().is_some_and(|mean| (-1.5..0.0).contains(&mean)),
            "{name}: {segment}"
        );
        assert!(segment["compression_ratio"].as_f64().is_some_and(|ratio| ratio > 0.1), "{name}: {segment}");
        assert!(
            segment["no_speech_prob"].as_f64().is_some_and(|p| (0.0..0.6).contains(&p)),
            "{name}: {segment}"
        );
        assert!(segment["seek"].is_u64() && segment["id"].is_u64(), "{name}: {segment}");
    }

    let events = &told["events"];
    assert_eq!(events["deltas"], events["text"], "{name}");
    assert_said(name, &events["text"]);
    let types = list(&events["types"]);
    let (last, deltas) = types.split_last().expect("events");
    assert_eq!(last, "transcript.text.done", "{name}");
    assert!(
        !deltas.is_empty() && deltas.iter().all(|kind| kind == "transcript.text.delta"),
        "{name}: {events}"
    );

    let speakers: std::collections::BTreeSet<&str> =
        list(&told["turns"]).iter().map(|turn| text(&turn[0])).collect();
    assert_eq!(speakers, ["A", "B"].into(), "{name}: {}", told["turns"]);
    let translation = text(&told["translation"]).to_lowercase();
    assert!(["2, 3", "two, three"].iter().any(|part| translation.contains(part)), "{name}: {translation}");
    assert_eq!(told["models"], json!(["base", "whisper-large-v3", "kokoro"]), "{name}");
    assert_eq!(told["model"], "Systran/whisper", "{name}");

    let refused = &told["refused"];
    let no_key = json!({"kind": "AuthenticationError", "param": null, "code": "invalid_api_key", "type": "invalid_request_error"});
    assert_eq!(refused["key"], no_key, "{name}");
    let no_language = json!({"kind": "BadRequestError", "param": "language", "code": null, "type": "invalid_request_error"});
    assert_eq!(refused["language"], no_language, "{name}");
}

#[tokio::test]
async fn openais_sdks_work_with_another_address_and_key() {
    let state = TempDir::new().expect("a folder");
    let key = new_key(state.path());
    let conversation = state.path().join("conversation.wav");
    write_conversation(&conversation);
    let settings = [
        ("VERBATIM_TRANSCRIBE__WINDOWS", "speech"),
        ("VERBATIM_MODELS__NAMES", r#"{"whisper-large-v3" = "base"}"#),
    ];
    let program = Program::start_with(state.path(), &cache("models/base"), &settings).await;
    let server = format!("http://{}", program.address);
    let clients = [("Python", Some(python("openai", "openai_audio.py"))), ("Node", node("openai-audio.js"))];
    for (name, client) in clients {
        let Some(mut client) = client else { continue };
        client
            .env("SERVER", &server)
            .env("KEY", &key)
            .env("AUDIO", cache("speech/austen_0930.wav"))
            .env("CONVERSATION", &conversation)
            .env("FOREIGN", cache("speech/es_conteo.wav"));
        let told = printed(client).await;
        check(name, &told);
        if name == "Node" {
            continue;
        }
        assert_eq!(told["usage"]["type"], "duration");
        assert_eq!(told["events"]["usage"]["type"], "tokens");
        let tokens = list(&told["logprobs"]["tokens"]);
        let joined: String = tokens.iter().map(|token| text(&token[0])).collect();
        assert_eq!(joined.trim(), text(&told["logprobs"]["text"]));
        assert!(tokens.iter().all(|token| token[1].as_f64().is_some_and(|p| p <= 0.0)), "{tokens:?}");
        assert!(told["events"]["logprobs"].as_u64().is_some_and(|count| count > 5));
        assert!(text(&told["warnings"][0]).contains("threshold"), "{}", told["warnings"]);
        assert_eq!(
            (&told["refused"]["file"]["kind"], &told["refused"]["file"]["param"]),
            (&json!("BadRequestError"), &json!("file"))
        );
        assert_eq!(told["refused"]["path"]["kind"], "NotFoundError");
    }
    let mut wire = python("python", "wire_models.py");
    wire.env("SERVER", &server).env("KEY", &key);
    let told = printed(wire).await;
    assert_eq!((&told["listed"][0][0], &told["one"]), (&json!("base"), &json!("base")), "{told}");
}
