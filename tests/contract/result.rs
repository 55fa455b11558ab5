//! Sections 1 and 2.1: a transcript, and every field of it.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::doors::Doors;
use super::table::{Row, row};
use crate::server::{RAW, alternative, answer, say};
use crate::speech::word_errors;

pub const JFK: &str = "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country.";

/// The words of the shared answer.
async fn words(doors: &Doors) -> &Vec<Value> {
    let words = alternative(&doors.spoken().await.1)["words"].as_array().expect("words");
    assert!(!words.is_empty());
    words
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub fn rows() -> Vec<Row> {
    let mut rows = overview();
    rows.extend(metadata());
    rows.extend(results());
    rows.extend(open_points());
    rows
}

fn overview() -> Vec<Row> {
    vec![
        row("1", "raw audio bytes sent to POST /v1/listen come back as their text", async |doors| {
            let (status, body) = answer(doors.hear("", "speech/austen_0930.wav")).await;
            assert_eq!(status, 200, "{body}");
            let heard = alternative(&body)["transcript"].as_str().expect("a transcript");
            assert!(word_errors("He might even have been made amiable himself.", heard) <= 1, "{heard}");
        }),
        row("1", "a JSON body with a `url` is fetched and comes back as its text", async |doors| {
            let body = json!({"url": doors.media_url("speech/austen_0880.wav")}).to_string();
            let request = doors.program.listen("").header("content-type", "application/json").body(body);
            let (status, body) = answer(request).await;
            assert_eq!(status, 200, "{body}");
            let heard = alternative(&body)["transcript"].as_str().expect("a transcript");
            assert!(word_errors("He was not an ill-disposed young man.", heard) <= 1, "{heard}");
        }),
        row("1", "the answer is a JSON document, and says so", async |doors| {
            let (headers, body) = doors.spoken().await;
            assert_eq!(headers["content-type"], "application/json");
            let names: Vec<&String> = body.as_object().expect("an object").keys().collect();
            assert_eq!(names, ["metadata", "results"]);
        }),
        row("1", "speech in another language is transcribed in that language", async |doors| {
            let (_, body) = answer(doors.hear("", "speech/es_conteo.wav")).await;
            let heard = alternative(&body)["transcript"].as_str().expect("a transcript");
            let said = "Uno dos tres cuatro cinco seis siete ocho nueve diez.";
            let digits = "1 2 3 4 5 6 7 8 9 10";
            assert!(word_errors(said, heard).min(word_errors(digits, heard)) <= 1, "{heard}");
        }),
    ]
}

fn metadata() -> Vec<Row> {
    vec![
        row("2.1", "metadata.request_id is a UUID", async |doors| {
            let id = doors.spoken().await.1["metadata"]["request_id"].as_str().expect("text");
            assert_eq!(uuid::Uuid::parse_str(id).expect("a UUID").to_string(), id);
        }),
        row("2.1", "metadata.created is the time of the request, ISO 8601 in UTC", async |doors| {
            let created = doors.spoken().await.1["metadata"]["created"].as_str().expect("text");
            assert!(created.ends_with('Z') && created.contains('T'), "{created}");
            let at = humantime::parse_rfc3339(created).expect("a timestamp");
            let age = SystemTime::now().duration_since(at).expect("in the past");
            assert!(age < Duration::from_secs(600), "{created}");
        }),
        row("2.1", "metadata.duration is the length of the audio in seconds", async |doors| {
            let duration = number(&doors.spoken().await.1["metadata"]["duration"]);
            assert!((duration - 11.0).abs() < 0.01, "{duration}");
        }),
        row("2.1", "metadata.channels is the number of channels, as an integer", async |doors| {
            assert_eq!(doors.spoken().await.1["metadata"]["channels"], json!(1));
        }),
        row(
            "2.1",
            "metadata.channels counts the channels of the file, also where they are mixed",
            async |doors| {
                let (_, body) = answer(doors.hear("", "fixtures/pcm24_stereo_44k.wav")).await;
                assert_eq!(body["metadata"]["channels"], json!(2));
                assert_eq!(body["results"]["channels"].as_array().map(Vec::len), Some(1));
            },
        ),
    ]
}

fn results() -> Vec<Row> {
    vec![
        row("2.1", "results.channels has one entry for each channel that is transcribed", async |doors| {
            let stereo: Vec<u8> = say(10)
                .chunks(2)
                .zip(say(20).chunks(2))
                .flat_map(|(left, right)| [left, right].concat())
                .collect();
            let query = format!("{RAW}&channels=2&multichannel=true");
            let (_, body) = answer(doors.reader.listen(&query, stereo)).await;
            assert_eq!(crate::server::transcripts(&body), ["Number 10.", "Number 20."]);
        }),
        row("2.1", "alternatives are ranked, and the first one is the transcript", async |doors| {
            let channel = &doors.spoken().await.1["results"]["channels"][0];
            let alternatives = channel["alternatives"].as_array().expect("alternatives");
            let ranks: Vec<f64> = alternatives.iter().map(|each| number(&each["confidence"])).collect();
            assert!(!ranks.is_empty() && ranks.is_sorted_by(|a, b| a >= b), "{ranks:?}");
        }),
        row("2.1", "transcript is the full text of what was said", async |doors| {
            let heard = alternative(&doors.spoken().await.1)["transcript"].as_str().expect("text");
            assert_eq!(word_errors(JFK, heard), 0, "{heard}");
        }),
        row("2.1", "confidence lies between 0 and 1", async |doors| {
            let confidence = number(&alternative(&doors.spoken().await.1)["confidence"]);
            assert!((0.5..=1.0).contains(&confidence), "{confidence} for clear speech");
        }),
        row("2.1", "confidence is derived from the words' confidences: their mean", async |doors| {
            let words = words(doors).await;
            let sum: f64 = words.iter().map(|word| number(&word["confidence"])).sum();
            let confidence = number(&alternative(&doors.spoken().await.1)["confidence"]);
            assert!((confidence - sum / words.len() as f64).abs() < 1e-4, "{confidence} and {words:?}");
        }),
        row("2.1", "words are absent where per-word timestamps are not requested", async |doors| {
            let (_, body) = answer(doors.reader.listen(RAW, say(7))).await;
            let expected = json!({"transcript": "Number 7.", "confidence": 0.9});
            assert_eq!(*alternative(&body), expected);
        }),
        row(
            "2.1",
            "words are there, one entry for each word, where timestamps are requested",
            async |doors| {
                let spoken: Vec<&str> = JFK.split_whitespace().collect();
                assert_eq!(words(doors).await.len(), spoken.len());
            },
        ),
        row("2.1", "words[].word is the word as transcribed", async |doors| {
            let joined: Vec<&str> =
                words(doors).await.iter().map(|word| word["word"].as_str().expect("text")).collect();
            assert_eq!(word_errors(JFK, &joined.join(" ")), 0, "{joined:?}");
        }),
        row("2.1", "words[].start is a time in seconds, and never goes back", async |doors| {
            let starts: Vec<f64> = words(doors).await.iter().map(|word| number(&word["start"])).collect();
            assert!(starts.is_sorted() && starts[0] < 1.0 && starts[starts.len() - 1] > 9.0, "{starts:?}");
        }),
        row("2.1", "words[].end is a time in seconds, after the start and within the audio", async |doors| {
            for word in words(doors).await {
                let (start, end) = (number(&word["start"]), number(&word["end"]));
                assert!(start <= end && end <= 11.0 && end - start < 2.0, "{word}");
            }
        }),
    ]
}

/// The contract shows neither; these are the choices made.
fn open_points() -> Vec<Row> {
    vec![
        row("2.1 decided", "each word carries its own confidence between 0 and 1", async |doors| {
            for word in words(doors).await {
                assert!((0.0..=1.0).contains(&number(&word["confidence"])), "{word}");
            }
        }),
        row("2.1 decided", "words carry no speaker unless diarization was asked for", async |doors| {
            assert!(words(doors).await.iter().all(|word| word.get("speaker").is_none()));
        }),
        row(
            "2.1 decided",
            "silence is a success: an empty transcript, confidence 0 and no words",
            async |doors| {
                let request = doors.program.listen(RAW).header("timestamps", "true").body(vec![0; 64_000]);
                let (status, body) = answer(request).await;
                assert_eq!(status, 200, "{body}");
                assert_eq!(*alternative(&body), json!({"transcript": "", "confidence": 0.0, "words": []}));
            },
        ),
        row("2.1 decided", "a feature that was not asked for is an absent key, never null", async |doors| {
            fn has_null(value: &Value) -> bool {
                match value {
                    Value::Null => true,
                    Value::Array(items) => items.iter().any(has_null),
                    Value::Object(map) => map.values().any(has_null),
                    _ => false,
                }
            }
            let body = &doors.spoken().await.1;
            assert!(!has_null(body), "{body}");
            assert!(
                body["metadata"].get("extra").is_none() && body["metadata"].get("tags").is_none(),
                "{body}"
            );
        }),
    ]
}
