//! Numbers in JSON, in every kind of answer: no more digits than they mean.

use serde_json::{Value, json};

use crate::server::{RAW, Setup, TestServer, answer, say_for};

/// Times, which are exact to the millisecond.
const TIMES: [&str; 8] =
    ["start", "end", "timestamp", "last_word_end", "total_latency", "tts_latency", "ttt_latency", "latency"];
const DIGITS_MAX: usize = 6;
const TIME_DIGITS_MAX: usize = 3;

/// How many numbers with a point `value` holds; none may have digits that mean nothing.
pub fn count(value: &Value) -> usize {
    members("", value)
}

fn members(name: &str, value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|item| members(name, item)).sum(),
        Value::Object(object) => object.iter().map(|(name, value)| members(name, value)).sum(),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            let most = if TIMES.contains(&name) { TIME_DIGITS_MAX } else { DIGITS_MAX };
            assert!(digits <= most && !text.contains('e'), "{name}: {text}");
            1
        }
        _ => 0,
    }
}

#[test]
#[should_panic(expected = "end: 3.3000000000000003")]
fn digits_without_meaning_are_found() {
    count(&json!({"words": [{"start": 1.1, "end": 1.1 + 2.2}]}));
}

#[tokio::test]
async fn answers_have_no_digits_without_meaning() {
    let says = [(1, "Hello there. | How are you? It costs $55 and 20 cents.")].into_iter().collect();
    let server = TestServer::start(Setup { says, ..Setup::default() }).await;
    let query = "smart_format=true&utterances=true&paragraphs=true&search=helo&detect_language=true";
    let (status, body) = answer(server.listen(&format!("{RAW}&{query}"), say_for(1, 20.0 + 1.0 / 3.0))).await;
    assert_eq!(status, 200, "{body}");
    assert!(count(&body) > 50, "{body}");
    let merged = &body["results"]["channels"][0]["alternatives"][0]["words"][7];
    assert_eq!(merged["punctuated_word"], "$55.20.");
    assert_eq!(merged["confidence"], 0.9);
}
