//! Sections 0 and 1 of the wire format: requests of its SDKs, and every field that they require.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use verbatim::http;

use super::doors::{DICTATED, Doors, MEASURED, PAUSED, RUDE};
use super::table::{Row, row};
use crate::server::{
    RAW, Setup, TERMS, TestServer, alternative, answer, client, refusal, say, say_for, transcripts,
};

/// The answer to a request as an SDK makes it.
async fn to_sdk(doors: &Doors, headers: &[(&str, &str)]) -> Value {
    let request = client().post(doors.reader.url(&format!("/v1/listen?{RAW}"))).body(say(7));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    answer(request).await.1
}

async fn with_query(doors: &Doors, query: &str) -> Value {
    let (status, body) = answer(doors.reader.listen(&format!("{RAW}&{query}"), say(7))).await;
    assert_eq!(status, 200, "{query}: {body}");
    body
}

/// Fails unless the parameter is taken, and named in a warning.
async fn is_warned_of(doors: &Doors, query: &str) {
    let body = with_query(doors, query).await;
    let name = query.split('=').next().expect("a name");
    let warnings = body["metadata"]["warnings"].as_array().unwrap_or_else(|| panic!("{query}: {body}"));
    let warning = warnings.iter().find(|warning| warning["parameter"] == name);
    let warning = warning.unwrap_or_else(|| panic!("{query}: {warnings:?}"));
    assert!(warning["type"].is_string() && warning["message"].is_string(), "{warning}");
}

pub fn rows() -> Vec<Row> {
    let mut rows = sdks();
    rows.extend(metadata());
    rows.extend(parameters());
    rows.extend(formatting());
    rows.extend(bounds());
    rows.extend(results());
    rows
}

/// The transcript of [`DICTATED`] and its like under a query.
async fn written(doors: &Doors, query: &str, number: i16) -> String {
    let (status, body) = answer(doors.reader.listen(&format!("{RAW}&{query}"), say_for(number, 20.0))).await;
    assert_eq!(status, 200, "{query}: {body}");
    transcripts(&body)[0].to_owned()
}

fn formatting() -> Vec<Row> {
    vec![
        row("wire 1.1", "filler words are left out unless filler_words=true keeps them", async |doors| {
            assert!(written(doors, "filler_words=false", DICTATED).await.starts_with("It's "));
            assert!(written(doors, "filler_words=true", DICTATED).await.starts_with("Um, it's "));
        }),
        row("wire 1.1", "smart_format=true writes money as it is written", async |doors| {
            assert_eq!(written(doors, "smart_format=true", DICTATED).await, "It's $55 comma due may second.");
        }),
        row("wire 1.1", "dictation=true writes spoken punctuation as signs", async |doors| {
            let said = written(doors, "smart_format=true&dictation=true", DICTATED).await;
            assert_eq!(said, "It's $55, due may second.");
        }),
        row("wire 1.1", "profanity_filter=true masks with asterisks", async |doors| {
            assert_eq!(written(doors, "profanity_filter=true", RUDE).await, "**** happens.");
        }),
        row("wire 1.1", "measurements=true abbreviates units", async |doors| {
            assert_eq!(written(doors, "measurements=true", MEASURED).await, "2.5 g");
        }),
    ]
}

fn bounds() -> Vec<Row> {
    let refuses = async |doors: &Doors, query: String| {
        let refused = refusal(doors.reader.listen(&format!("{RAW}{query}"), say(1))).await;
        assert_eq!(refused, (400, "INVALID_QUERY_PARAMETER".into()), "{query}");
    };
    vec![
        row("wire 1.1", "search takes up to 50 terms", async move |doors| {
            let terms = |count| (0..count).map(|n| format!("&search=term{n}")).collect::<String>();
            assert_eq!(answer(doors.reader.listen(&format!("{RAW}{}", terms(50)), say(1))).await.0, 200);
            refuses(doors, terms(51)).await;
        }),
        row("wire 1.1", "a tag has at most 128 characters", async move |doors| {
            let tag = |length| format!("&tag={}", "t".repeat(length));
            assert_eq!(answer(doors.reader.listen(&format!("{RAW}{}", tag(128)), say(1))).await.0, 200);
            refuses(doors, tag(129)).await;
        }),
        row("wire 1", "raw audio has at most 20 channels", async move |doors| {
            assert_eq!(answer(doors.reader.listen(&format!("{RAW}&channels=20"), say(1))).await.0, 200);
            refuses(doors, "&channels=21".to_owned()).await;
        }),
        row("wire 1.3", "pages of an allowed origin may read the answer and its ids", async |_| {
            let http =
                http::Config { cors_origins: vec!["https://app.example".into()], ..http::Config::default() };
            let server = TestServer::start(Setup { http, ..Setup::default() }).await;
            let request = server.listen(RAW, say(1)).header("origin", "https://app.example");
            let response = request.send().await.expect("an answer");
            assert_eq!(response.headers()["access-control-allow-origin"], "https://app.example");
            let exposed = response.headers()["access-control-expose-headers"].to_str().expect("text");
            assert!(exposed.contains("dg-request-id") && exposed.contains("dg-error"), "{exposed}");
            let other = server.listen(RAW, say(1)).header("origin", "https://other.example").send().await;
            assert!(other.expect("an answer").headers().get("access-control-allow-origin").is_none());
        }),
    ]
}

fn sdks() -> Vec<Row> {
    vec![
        row(
            "9",
            "an SDK's request works after changing address and key: Token, and words without asking",
            async |doors| {
                let token = format!("Token {}", doors.reader.key);
                let body = to_sdk(doors, &[("authorization", &token)]).await;
                assert_eq!(alternative(&body)["words"].as_array().map(Vec::len), Some(2), "{body}");
            },
        ),
        row("wire 0", "a Bearer request with an SDK's user agent gets words as well", async |doors| {
            let bearer = format!("Bearer {}", doors.reader.key);
            for agent in ["@deepgram/sdk/4.11", "deepgram-sdk/7.17 python"] {
                let body = to_sdk(doors, &[("authorization", &bearer), ("user-agent", agent)]).await;
                assert!(alternative(&body)["words"].is_array(), "{agent}: {body}");
            }
        }),
        row("wire 4", "SDKs' own headers mark them: x-fern-* and x-deepgram-session-id", async |doors| {
            let bearer = format!("Bearer {}", doors.reader.key);
            for name in ["x-fern-language", "x-deepgram-session-id"] {
                let body = to_sdk(doors, &[("authorization", &bearer), (name, "1")]).await;
                assert!(alternative(&body)["words"].is_array(), "{name}: {body}");
            }
        }),
        row("wire 0", "the media types that SDKs send with bytes are all taken for audio", async |doors| {
            let token = format!("Token {}", doors.reader.key);
            for media_type in ["application/octet-stream", "deepgram/audio+video", "audio/wav"] {
                let body = to_sdk(doors, &[("authorization", &token), ("content-type", media_type)]).await;
                assert_eq!(transcripts(&body), ["Number 7."], "{media_type}");
            }
        }),
        row("wire 1.3", "every answer has dg-request-id, a UUID: that of the body", async |doors| {
            let (headers, body) = doors.spoken().await;
            assert_eq!(headers["dg-request-id"].to_str().ok(), body["metadata"]["request_id"].as_str());
        }),
        row("wire 1.3", "an answer names the model in dg-model-name and dg-model-uuid", async |doors| {
            let (headers, body) = doors.spoken().await;
            assert_eq!(headers["dg-model-name"], "base");
            assert_eq!(headers["dg-model-uuid"].to_str().ok(), body["metadata"]["models"][0].as_str());
        }),
    ]
}

fn metadata() -> Vec<Row> {
    vec![
        row("wire 1.2", "metadata.transaction_key is `deprecated`", async |doors| {
            assert_eq!(doors.spoken().await.1["metadata"]["transaction_key"], "deprecated");
        }),
        row("wire 1.2", "metadata.sha256 is that of the bytes that were sent", async |doors| {
            let digest = Sha256::digest(super::doors::recorded("speech/jfk.wav"));
            let expected: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(doors.spoken().await.1["metadata"]["sha256"], expected);
        }),
        row("wire 1.2", "metadata.sha256 is that of the bytes that were fetched", async |doors| {
            let (_, body) = answer(doors.by_url(&doors.media_url("number"))).await;
            let expected: String = Sha256::digest(say(9)).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(body["metadata"]["sha256"], expected);
        }),
        row("wire 1.2", "metadata.created has milliseconds and Z", async |doors| {
            let created = doors.spoken().await.1["metadata"]["created"].as_str().expect("text");
            assert!(created.len() == "2024-02-06T19:56:16.180Z".len() && created.ends_with('Z'), "{created}");
        }),
        row(
            "wire 1.2",
            "metadata.models lists UUIDs, and model_info has name, version and arch by them",
            async |doors| {
                let metadata = &doors.spoken().await.1["metadata"];
                let model = metadata["models"][0].as_str().expect("a UUID");
                uuid::Uuid::parse_str(model).expect("a UUID");
                let info = &metadata["model_info"][model];
                assert!(["name", "version", "arch"].iter().all(|name| info[name].is_string()), "{info}");
            },
        ),
        row("wire 0", "metadata and extra are both echoed, each in its place", async |doors| {
            let body = with_query(doors, "metadata=mine&extra=order:7").await;
            assert_eq!(body["metadata"]["metadata"], "mine");
            assert_eq!(body["metadata"]["extra"], json!({"order": "7"}));
        }),
        row("wire 1.1", "of one key of extra the last value counts", async |doors| {
            let body = with_query(doors, "extra=a:1&extra=b:2&extra=a:3").await;
            assert_eq!(body["metadata"]["extra"], json!({"a": "3", "b": "2"}));
        }),
        row("wire 1.1", "tags come back in metadata.tags", async |doors| {
            assert_eq!(with_query(doors, "tag=a&tag=b").await["metadata"]["tags"], json!(["a", "b"]));
        }),
    ]
}

fn parameters() -> Vec<Row> {
    vec![
        row(
            "wire 1.1",
            "a model that is not served is answered by the one that is, with a warning",
            async |doors| {
                is_warned_of(doors, "model=nova-3").await;
            },
        ),
        row("wire 1.1", "model=None, as one SDK sends it, asks for none in particular", async |doors| {
            assert!(with_query(doors, "model=None").await["metadata"].get("warnings").is_none());
        }),
        row("wire 0", "diarize and its newer names are one switch with diarization", async |doors| {
            for name in ["diarize", "diarize_model", "diarize_version"] {
                let (_, body) = answer(doors.reader.listen(&format!("{RAW}&{name}=true"), say(7))).await;
                let lacks_models = format!("`{name}` is not available: this server has no speaker models.");
                assert!(alternative(&body)["words"].is_array() || body["err_msg"] == lacks_models, "{body}");
            }
        }),
        row("wire 1.1", "audio intelligence is taken with a warning, each by its name", async |doors| {
            for query in
                ["summarize=v2", "sentiment=true", "topics=true", "intents=true", "detect_entities=true"]
            {
                is_warned_of(doors, query).await;
            }
        }),
        row("wire 1.1", "alternatives, version and tier are taken with a warning", async |doors| {
            for query in ["alternatives=3", "version=2020-01-01", "tier=enhanced"] {
                is_warned_of(doors, query).await;
            }
        }),
        row("wire 1.1", "booleans are true and false in any case", async |doors| {
            for value in ["true", "True", "TRUE"] {
                let body = with_query(doors, &format!("punctuate={value}")).await;
                assert_eq!(alternative(&body)["words"][1]["punctuated_word"], "7.", "{value}");
            }
        }),
        row("wire 1.1", "detect_language may be given codes to choose among", async |doors| {
            let (_, body) =
                answer(doors.hear("detect_language=es&detect_language=it", "speech/es_conteo.wav")).await;
            assert_eq!(body["results"]["channels"][0]["detected_language"], "es", "{body}");
        }),
        row("wire 1.1", "language=multi says the language of each word and alternative", async |doors| {
            let body = with_query(doors, "language=multi&punctuate=true").await;
            assert_eq!(alternative(&body)["languages"], json!(["en"]));
            assert_eq!(alternative(&body)["words"][0]["language"], "en");
        }),
        row("wire 1.1", "replace changes a term, and without a replacement removes it", async |doors| {
            assert_eq!(transcripts(&with_query(doors, "replace=number:figure").await), ["figure 7."]);
            assert_eq!(transcripts(&with_query(doors, "replace=number").await), ["7."]);
        }),
        row("wire 1.1", "numerals=true writes numbers in digits", async |doors| {
            let (_, body) = answer(doors.hear("numerals=true", "speech/en_counting.wav")).await;
            assert!(transcripts(&body)[0].chars().any(|c| c.is_ascii_digit()), "{body}");
        }),
        row(
            "wire 1.1",
            "punctuate=true adds punctuated_word, and word stays bare and in lower case",
            async |doors| {
                let body = with_query(doors, "punctuate=true").await;
                let word = &alternative(&body)["words"][0];
                assert_eq!((&word["word"], &word["punctuated_word"]), (&json!("number"), &json!("Number")));
            },
        ),
        row("wire 1.1", "punctuate=false takes punctuation and capitals away", async |doors| {
            assert_eq!(transcripts(&with_query(doors, "punctuate=false").await), ["number 7"]);
        }),
        row("wire 1.1", "keyterm and keywords reach the recogniser", async |doors| {
            let query = format!("{RAW}&keyterm=Verbatim&keyterm=New+York&keywords=Ada:2");
            let (_, body) = answer(doors.reader.listen(&query, say(TERMS))).await;
            for term in ["Verbatim", "New York", "Ada"] {
                assert!(transcripts(&body)[0].contains(term), "{term}: {body}");
            }
        }),
        row("wire 1.1", "mulaw, alaw and linear32 are raw audio as well", async |doors| {
            for (encoding, bytes) in [("mulaw", 8_000), ("alaw", 8_000), ("linear32", 32_000)] {
                let query = format!("encoding={encoding}&sample_rate=8000");
                let (status, body) = answer(doors.reader.listen(&query, vec![0xD5; bytes])).await;
                assert_eq!((status, &body["metadata"]["duration"]), (200, &json!(1.0)), "{encoding}: {body}");
            }
        }),
        row(
            "wire 1.1",
            "channels of raw audio are mixed into one where multichannel is off",
            async |doors| {
                let stereo = [say(10), say(10)].concat();
                let (_, body) = answer(doors.reader.listen(&format!("{RAW}&channels=2"), stereo)).await;
                assert_eq!(body["results"]["channels"].as_array().map(Vec::len), Some(1));
                assert_eq!(
                    (&body["metadata"]["channels"], &body["metadata"]["duration"]),
                    (&json!(2), &json!(1.0))
                );
            },
        ),
    ]
}

fn results() -> Vec<Row> {
    vec![
        row(
            "wire 1.2",
            "an utterance has start, end, confidence, channel, transcript, words and a UUID",
            async |doors| {
                let utterance =
                    with_query(doors, "utterances=true").await["results"]["utterances"][0].clone();
                assert_eq!((&utterance["start"], &utterance["end"]), (&json!(0.25), &json!(0.75)));
                assert_eq!(
                    (&utterance["channel"], &utterance["transcript"]),
                    (&json!(0), &json!("Number 7."))
                );
                assert_eq!(utterance["words"].as_array().map(Vec::len), Some(2));
                assert!(utterance["confidence"].is_number(), "{utterance}");
                uuid::Uuid::parse_str(utterance["id"].as_str().expect("text")).expect("a UUID");
            },
        ),
        row("wire 1.1", "utt_split is the pause that ends an utterance", async |doors| {
            let utterances = async |query: &str| {
                let query = format!("{RAW}&utterances=true{query}");
                let (_, body) = answer(doors.reader.listen(&query, say(PAUSED))).await;
                let utterances = body["results"]["utterances"].as_array().expect("utterances").clone();
                utterances.iter().map(|each| each["transcript"].clone()).collect::<Vec<_>>()
            };
            assert_eq!(utterances("").await, ["One two", "three"]);
            assert_eq!(utterances("&utt_split=1.5").await, ["One two three"]);
        }),
        row("wire 1.2", "paragraphs have a transcript, sentences, num_words, start and end", async |doors| {
            let paragraphs = alternative(&with_query(doors, "paragraphs=true").await)["paragraphs"].clone();
            assert_eq!(paragraphs["transcript"], "\nNumber 7.");
            let paragraph = &paragraphs["paragraphs"][0];
            assert_eq!(paragraph["sentences"], json!([{"text": "Number 7.", "start": 0.25, "end": 0.75}]));
            assert_eq!(
                (&paragraph["num_words"], &paragraph["start"], &paragraph["end"]),
                (&json!(2), &json!(0.25), &json!(0.75))
            );
        }),
        row("wire 1.1", "paragraphs imply punctuation", async |doors| {
            let body = with_query(doors, "paragraphs=true").await;
            assert_eq!(alternative(&body)["words"][1]["punctuated_word"], "7.");
        }),
        row("wire 1.2", "a search hit has confidence, start, end and snippet", async |doors| {
            let body = with_query(doors, "search=number").await;
            let search = &body["results"]["channels"][0]["search"][0];
            let expected = json!({"confidence": 1.0, "start": 0.25, "end": 0.5, "snippet": "number"});
            assert_eq!((&search["query"], &search["hits"][0]), (&json!("number"), &expected));
        }),
        row(
            "wire 1.2",
            "with multichannel each utterance says its channel, in order of time",
            async |doors| {
                let stereo: Vec<u8> = say_for(10, 2.0)
                    .chunks(2)
                    .zip(say_for(20, 2.0).chunks(2))
                    .flat_map(|(left, right)| [left, right].concat())
                    .collect();
                let query = format!("{RAW}&channels=2&multichannel=true&utterances=true");
                let (_, body) = answer(doors.reader.listen(&query, stereo)).await;
                let utterances = body["results"]["utterances"].as_array().expect("utterances");
                let mut channels: Vec<u64> =
                    utterances.iter().filter_map(|each| each["channel"].as_u64()).collect();
                let starts: Vec<f64> = utterances.iter().filter_map(|each| each["start"].as_f64()).collect();
                channels.sort_unstable();
                assert!(channels == [0, 1] && starts.is_sorted(), "{utterances:?}");
            },
        ),
    ]
}
