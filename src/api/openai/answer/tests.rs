use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::engine::LanguageChoice;
use crate::transcript::{DetectedLanguage, Speaker, Token, Word};

fn asked(format: ResponseFormat) -> Asked {
    Asked {
        task: Task::Transcribe,
        language: LanguageChoice::Named("en".into()),
        prompt: None,
        prompt_tokens: 0,
        temperature: 0.0,
        keywords: Arc::default(),
        format,
        words: true,
        segments: true,
        log_probabilities: true,
        streams: false,
        known_speakers: Vec::new(),
        warnings: Vec::new(),
    }
}

fn word(text: &str, start: f64, speaker: usize) -> Word {
    let speaker = Some(Speaker { index: speaker, confidence: 1.0 });
    Word { text: text.into(), start, end: start + 0.4, probability: 0.9, speaker }
}

fn transcript() -> Transcript {
    let token = |id, text: &str, probability| Token { id, bytes: text.as_bytes().into(), probability };
    let segment = Segment {
        text: " \"Hello,\" Ada.".into(),
        start: 30.5,
        end: 31.4,
        words: vec![word(" \"Hello,\"", 30.5, 1), word(" Ada.", 31.0, 0)],
        average_log_probability: -0.25,
        no_speech_probability: 0.01,
        compression_ratio: 1.25,
        temperature: 0.2,
        tokens: vec![token(50364, "", 1.0), token(1, " \"Hello,\"", 0.25), token(2, " Ada.", 1.0)],
        window_start: 30.0,
        ..Segment::default()
    };
    Transcript {
        segments: vec![segment],
        language: DetectedLanguage { code: "en".into(), probability: 1.0 },
        languages: Vec::new(),
        duration: 31.5,
        voice_without_words: 0.0,
    }
}

fn shown(format: ResponseFormat) -> Value {
    match answer(&asked(format), &transcript(), &[None, Some("agent".into())], false) {
        Answer::Json(body) => serde_json::to_value(body),
        Answer::Verbose(body) => serde_json::to_value(body),
        Answer::Diarized(body) => serde_json::to_value(body),
        Answer::Text(body, _) => serde_json::to_value(body),
    }
    .expect("JSON")
}

#[test]
fn json_has_text_usage_and_log_probabilities_of_text_tokens() {
    let shown = shown(ResponseFormat::Json);
    assert_eq!(shown["text"], "\"Hello,\" Ada.");
    assert_eq!(shown["usage"], json!({"type": "duration", "seconds": 32}));
    assert_eq!(shown["languages"], json!([{"code": "en"}]));
    let logprobs = shown["logprobs"].as_array().expect("a list");
    assert_eq!(logprobs.len(), 2, "no timestamps");
    assert_eq!(logprobs[1], json!({"token": " Ada.", "logprob": 0.0, "bytes": b" Ada."}));
    assert_eq!(logprobs[0]["logprob"], -1.386294);
}

#[test]
fn verbose_json_has_the_models_own_figures() {
    let shown = shown(ResponseFormat::VerboseJson);
    assert_eq!((&shown["task"], &shown["language"]), (&json!("transcribe"), &json!("english")));
    assert_eq!(
        shown["segments"],
        json!([{
            "id": 0, "seek": 3000, "start": 30.5, "end": 31.4, "text": " \"Hello,\" Ada.", "tokens": [50364, 1, 2],
            "temperature": 0.2, "avg_logprob": -0.25, "compression_ratio": 1.25, "no_speech_prob": 0.01,
        }])
    );
    assert_eq!(shown["words"][0], json!({"word": "Hello", "start": 30.5, "end": 30.9}));
    assert_eq!(shown["words"][1]["word"], "Ada");
}

#[test]
fn speakers_have_their_names_or_letters() {
    let shown = shown(ResponseFormat::DiarizedJson);
    let segments = shown["segments"].as_array().expect("a list");
    assert_eq!(
        segments[0],
        json!({"type": "transcript.text.segment", "id": "seg_001", "start": 30.5, "end": 30.9, "text": "\"Hello,\"", "speaker": "agent"})
    );
    assert_eq!(segments[1]["speaker"], "A");
    assert_eq!(label(1, &[Some("agent".into()), None]), "A", "the first without a name");
    assert_eq!(
        [0, 25, 26, 51, 52, 701, 702].map(|n| label(n, &[])),
        ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]
    );
}

#[test]
fn a_translation_is_english_and_has_no_usage() {
    let mut asked = asked(ResponseFormat::VerboseJson);
    asked.task = Task::Translate;
    let german =
        Transcript { language: DetectedLanguage { code: "de".into(), probability: 1.0 }, ..transcript() };
    let Answer::Verbose(body) = answer(&asked, &german, &[], true) else { panic!("verbose") };
    assert_eq!((body.task, body.language.as_str(), body.usage), ("translate", "english", None));
    assert!(body.warnings[0].contains("31.50 s"), "{:?}", body.warnings);
}

#[test]
fn the_last_event_counts_tokens() {
    let asked_with_prompt = Asked { prompt_tokens: 5, ..asked(ResponseFormat::Json) };
    let event = serde_json::to_value(done(&asked_with_prompt, &transcript(), false)).expect("JSON");
    assert_eq!((&event["type"], &event["text"]), (&json!("transcript.text.done"), &json!("\"Hello,\" Ada.")));
    let usage = json!({
        "type": "tokens", "input_tokens": 1580, "input_token_details": {"text_tokens": 5, "audio_tokens": 1575},
        "output_tokens": 2, "total_tokens": 1582,
    });
    assert_eq!(event["usage"], usage);
    let silence = Transcript { segments: Vec::new(), ..transcript() };
    let Answer::Json(body) = answer(&asked(ResponseFormat::Json), &silence, &[], false) else {
        panic!("JSON")
    };
    assert_eq!((body.text.as_str(), body.languages), ("", Some(Vec::new())));
}
