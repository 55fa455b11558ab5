//! The wire format's section 3: messages both ways, and how a stream ends.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::live::{is_final, streamed, with_interims};
use super::table::{Row, row};
use crate::live::{RAW, finals, open, transcript};
use crate::receiver::{Receiver, callback_parameter};
use crate::socket::Said;
use crate::tones::{FAILS, bytes, utter};

const WORDS: [(u8, f64, f64); 3] = [(5, 0.5, 0.1), (6, 0.5, 1.0), (7, 0.25, 0.25)];

fn names(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn is_uuid(value: &Value) -> bool {
    value.as_str().is_some_and(|text| uuid::Uuid::parse_str(text).is_ok())
}

pub fn rows() -> Vec<Row> {
    let mut rows = results();
    rows.extend(metadata());
    rows.extend(control());
    rows.extend(endings());
    rows
}

fn results() -> Vec<Row> {
    vec![
        row("wire 3.2", "Results have every field that SDKs read", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let mut fields = names(&messages[0]);
            fields.sort_unstable();
            let expected = [
                "channel",
                "channel_index",
                "duration",
                "from_finalize",
                "is_final",
                "metadata",
                "speech_final",
                "start",
                "type",
            ];
            assert_eq!((fields.as_slice(), &messages[0]["type"]), (&expected[..], &json!("Results")));
        }),
        row("wire 3.2", "Results always carry words, with word, start, end and confidence", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let word = &messages[0]["channel"]["alternatives"][0]["words"][1];
            assert_eq!(*word, json!({"word": "w6", "start": 0.6, "end": 1.1, "confidence": 0.9}));
        }),
        row("wire 3.2", "punctuated_word comes with punctuate", async |doors| {
            let (messages, _) = streamed(doors, "punctuate=true", &WORDS).await;
            assert_eq!(messages[0]["channel"]["alternatives"][0]["words"][1]["punctuated_word"], "W6,");
        }),
        row("wire 3.2", "Results.metadata has the request_id and one flat model_info", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let metadata = &messages[0]["metadata"];
            assert!(is_uuid(&metadata["request_id"]) && is_uuid(&metadata["model_uuid"]), "{metadata}");
            let info = &metadata["model_info"];
            assert!(["name", "version", "arch"].iter().all(|name| info[name].is_string()), "{info}");
        }),
        row("wire 3.2", "channel_index is [0, 1] where channels are mixed", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            assert_eq!(messages[0]["channel_index"], json!([0, 1]));
        }),
        row(
            "wire 3.2",
            "start is seconds of audio, and each span starts where the one before ended",
            async |doors| {
                let (messages, _) = streamed(doors, "", &WORDS).await;
                // `finals` checks the seams and that words lie within their spans.
                assert_eq!(finals(&messages), "W5, W6, W7,");
                assert_eq!(messages[0]["start"], 0.0);
            },
        ),
        row("wire 3.2", "times count audio, not the time that passes between messages", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            let audio = bytes(&utter(&WORDS));
            for piece in audio.chunks(3200) {
                socket.control("KeepAlive").await;
                socket.audio(piece).await;
            }
            socket.control("CloseStream").await;
            let (messages, _) = socket.rest().await;
            assert_eq!(messages.last().expect("metadata")["duration"], 2.6);
        }),
        row("wire 3.2", "interims repeat the start of their span with growing duration", async |doors| {
            let messages = with_interims(doors, "endpointing=false", 2).await;
            assert_eq!((&messages[0]["start"], &messages[1]["start"]), (&json!(0.0), &json!(0.0)));
            let duration = |message: &Value| message["duration"].as_f64().expect("seconds");
            assert!(duration(&messages[0]) < duration(&messages[1]), "{messages:?}");
        }),
        row("wire 3.2", "speech_final comes with is_final at the end of speech", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            assert_eq!(
                (&messages[0]["is_final"], &messages[0]["speech_final"]),
                (&json!(true), &json!(true))
            );
        }),
        row("wire 3.2", "interim results are never speech_final", async |doors| {
            let messages = with_interims(doors, "endpointing=false", 2).await;
            let interims: Vec<&Value> =
                messages.iter().filter(|message| message["is_final"] == false).collect();
            assert!(interims.len() >= 2, "{messages:?}");
            assert!(interims.iter().all(|message| message["speech_final"] == false), "{interims:?}");
        }),
        row("wire 3.2", "silence still gives Results, with an empty transcript", async |doors| {
            let (messages, _) = streamed(doors, "", &[(0, 0.0, 12.0)]).await;
            let empty = json!({"transcript": "", "confidence": 0.0, "words": []});
            assert_eq!(messages[0]["channel"]["alternatives"][0], empty);
        }),
    ]
}

fn metadata() -> Vec<Row> {
    vec![
        row("wire 3.2", "Metadata has every field that SDKs read", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let metadata = messages.last().expect("metadata");
            let mut fields = names(metadata);
            fields.sort_unstable();
            let expected = [
                "channels",
                "created",
                "duration",
                "model_info",
                "models",
                "request_id",
                "sha256",
                "transaction_key",
                "type",
            ];
            assert_eq!((fields.as_slice(), &metadata["type"]), (&expected[..], &json!("Metadata")));
        }),
        row("wire 3.2", "Metadata.sha256 is that of all audio received", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let digest = Sha256::digest(bytes(&utter(&WORDS)));
            let expected: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(messages.last().expect("metadata")["sha256"], expected);
        }),
        row("wire 3.2", "Metadata.duration and channels are those of the audio received", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let metadata = messages.last().expect("metadata");
            assert_eq!((&metadata["duration"], &metadata["channels"]), (&json!(2.6), &json!(1)));
        }),
        row("wire 3.2", "Metadata.model_info is keyed by the UUIDs of models", async |doors| {
            let (messages, _) = streamed(doors, "", &WORDS).await;
            let metadata = messages.last().expect("metadata");
            let model = metadata["models"][0].as_str().expect("a UUID");
            assert!(metadata["model_info"][model]["name"].is_string(), "{metadata}");
        }),
        row("wire 3.2", "the request_id is the same in the handshake, Results and Metadata", async |doors| {
            let handshake = doors.handshake(RAW).await;
            let id = handshake.header("dg-request-id").expect("an id").to_owned();
            let mut socket = handshake.socket.expect("agreed");
            socket.audio(&bytes(&utter(&WORDS))).await;
            socket.control("CloseStream").await;
            let (messages, _) = socket.rest().await;
            assert_eq!(messages[0]["metadata"]["request_id"], id);
            assert_eq!(messages.last().expect("metadata")["request_id"], id);
        }),
        row(
            "wire 3.2",
            "a stream without audio has duration 0, channels 0 and the hash of nothing",
            async |doors| {
                let mut socket = open(&doors.listener, RAW).await;
                socket.control("CloseStream").await;
                let (messages, end) = socket.rest().await;
                let metadata = messages.last().expect("metadata");
                assert_eq!((&metadata["duration"], &metadata["channels"]), (&json!(0.0), &json!(0)));
                assert!(
                    metadata["sha256"].as_str().is_some_and(|hash| hash.starts_with("e3b0c442")),
                    "{metadata}"
                );
                assert_eq!(end, Said::Close(1000, String::new()));
            },
        ),
    ]
}

fn control() -> Vec<Row> {
    vec![
        row("wire 3.3", "KeepAlive has no answer", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.control("KeepAlive").await;
            socket.frame(0x89, b"?").await;
            assert_eq!(socket.said().await, Said::Pong(b"?".to_vec()));
        }),
        row("wire 3.3", "Finalize flushes: a final result with from_finalize", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.audio(&bytes(&utter(&[(5, 0.3, 0.1), (6, 0.3, 0.1)]))).await;
            socket.control("Finalize").await;
            let said = socket.message().await;
            assert_eq!(transcript(&said), "W5, W6,");
            assert_eq!((&said["is_final"], &said["from_finalize"]), (&json!(true), &json!(true)));
        }),
        row("wire 3.3", "Finalize with nothing buffered is answered by an empty result", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.control("Finalize").await;
            let said = socket.message().await;
            assert_eq!((transcript(&said), &said["from_finalize"]), ("", &json!(true)));
        }),
        row("wire 3.3", "Finalize leaves the stream open", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.control("Finalize").await;
            socket.message().await;
            socket.audio(&bytes(&utter(&[(8, 0.5, 0.1)]))).await;
            socket.control("CloseStream").await;
            assert_eq!(finals(&socket.rest().await.0), "W8,");
        }),
        row("wire 3.3", "Finalize may name a channel", async |doors| {
            let mut socket = open(&doors.listener, &format!("{RAW}&channels=2&multichannel=true")).await;
            socket.audio(&bytes(&utter(&[(5, 0.5, 0.1)]))).await;
            socket.text(r#"{"type":"Finalize","channel":1}"#).await;
            let said = socket.message().await;
            assert_eq!((&said["channel_index"], &said["from_finalize"]), (&json!([1, 2]), &json!(true)));
        }),
        row("wire 3.3", "an empty binary message closes as CloseStream does", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.audio(&bytes(&utter(&[(5, 0.5, 0.1)]))).await;
            socket.audio(&[]).await;
            let (messages, end) = socket.rest().await;
            assert_eq!((finals(&messages).as_str(), end), ("W5,", Said::Close(1000, String::new())));
        }),
        row("wire 3.3", "Configure with features is answered by ConfigureSuccess", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.text(r#"{"type":"Configure","features":{"numerals":true}}"#).await;
            let said = socket.message().await;
            assert!(said["type"] == "ConfigureSuccess" && is_uuid(&said["request_id"]), "{said}");
        }),
        row("wire 3.3", "Configure with keyterms says which are in effect", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.text(r#"{"type":"Configure","keyterms":["Ada"]}"#).await;
            assert_eq!(socket.message().await["keyterms"], json!(["Ada"]));
        }),
        row("wire 3.3", "older clients' Configure with processors is understood", async |doors| {
            let mut socket = open(&doors.listener, RAW).await;
            socket.text(r#"{"type":"Configure","processors":{"punctuate":true}}"#).await;
            assert_eq!(socket.message().await["type"], "ConfigureSuccess");
        }),
        row(
            "wire 3.2",
            "a Configure that cannot be done is answered by ConfigureFailure with a code",
            async |doors| {
                let mut socket = open(&doors.listener, RAW).await;
                socket.text(r#"{"type":"Configure","features":{"telepathy":true}}"#).await;
                let said = socket.message().await;
                assert_eq!(said["type"], "ConfigureFailure");
                assert!(said["code"].is_string() && said["description"].is_string(), "{said}");
            },
        ),
        row(
            "wire 3.2",
            "a text that is not understood is answered by Error, and the stream goes on",
            async |doors| {
                let mut socket = open(&doors.listener, RAW).await;
                socket.text("la la la").await;
                let said = socket.message().await;
                assert_eq!((&said["type"], &said["variant"]), (&json!("Error"), &json!("SchemaError")));
                assert!(said["description"].is_string(), "{said}");
                socket.control("CloseStream").await;
                assert_eq!(socket.rest().await.1, Said::Close(1000, String::new()));
            },
        ),
    ]
}

fn endings() -> Vec<Row> {
    vec![
        row(
            "wire 3.3",
            "at the end come the last Results, UtteranceEnd, Metadata and the close, in this order",
            async |doors| {
                let query = "interim_results=true&utterance_end_ms=1000";
                let (messages, end) = streamed(doors, query, &[(5, 0.5, 1.6)]).await;
                let kinds: Vec<&str> = messages
                    .iter()
                    .filter(|message| message["type"] != "Results" || message["is_final"] == true)
                    .map(|message| message["type"].as_str().expect("a type"))
                    .collect();
                assert_eq!(kinds.last(), Some(&"Metadata"));
                assert_eq!(kinds.iter().filter(|kind| **kind == "Metadata").count(), 1);
                let ended =
                    kinds.iter().position(|kind| *kind == "UtteranceEnd").expect("an end of the utterance");
                assert_eq!(kinds[0], "Results");
                assert!(0 < ended && ended < kinds.len() - 1, "{kinds:?}");
                assert_eq!(end, Said::Close(1000, String::new()));
            },
        ),
        row("wire 3.4", "CloseStream closes with 1000", async |doors| {
            assert_eq!(streamed(doors, "", &WORDS).await.1, Said::Close(1000, String::new()));
        }),
        row("wire 3.3", "CloseStream loses nothing that was sent before it", async |doors| {
            let (messages, _) = streamed(doors, "endpointing=false", &[(5, 0.4, 0.1), (6, 0.4, 0.0)]).await;
            let text: Vec<&str> = messages.iter().filter(is_final).map(transcript).collect();
            assert_eq!(text.concat(), "W5, W6,");
        }),
        row("wire 3.4", "a payload that is no audio closes with 1008 and DATA-0000", async |doors| {
            let mut socket = open(&doors.listener, "").await;
            socket.audio(&[b'x'; 8192]).await;
            let (_, end) = socket.rest().await;
            assert!(matches!(&end, Said::Close(1008, reason) if reason.starts_with("DATA-0000")), "{end:?}");
        }),
        row(
            "wire 3.4",
            "a failure of the recogniser closes with 1011, and reveals nothing of its insides",
            async |_| {
                // A failing window also fails its neighbours in the batch, so this one gets its own server.
                let server = crate::live::start(verbatim::live::Config::default()).await;
                let mut socket = open(&server, RAW).await;
                socket.audio(&bytes(&utter(&[(FAILS, 0.5, 1.0)]))).await;
                let (_, end) = socket.rest().await;
                assert!(matches!(&end, Said::Close(1011, reason) if !reason.contains("script")), "{end:?}");
            },
        ),
        row("wire 3.4", "KeepAlive alone keeps a stream open, also before any audio", async |_| {
            let config =
                verbatim::live::Config { idle_timeout_ms: 2_000, ..verbatim::live::Config::default() };
            let server = crate::live::start(config).await;
            let (mut kept, mut silent) = (open(&server, RAW).await, open(&server, RAW).await);
            let keep = async {
                loop {
                    kept.control("KeepAlive").await;
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            };
            tokio::select! {
                // The silent one measures the time that the server itself allows.
                end = silent.said() => assert!(matches!(end, Said::Close(1011, _)), "{end:?}"),
                () = keep => unreachable!("it goes on for ever"),
            }
            kept.control("CloseStream").await;
            assert_eq!(kept.rest().await.1, Said::Close(1000, String::new()));
        }),
        row("wire 2", "with callback, each message of a stream is posted there, in order", async |doors| {
            let mut receiver = Receiver::start(&[]).await;
            let callback = callback_parameter(&format!("http://{}/live", receiver.allowed()));
            let (told, _) = streamed(doors, &callback, &[(5, 0.5, 1.0), (6, 0.5, 1.0)]).await;
            let mut posted = vec![receiver.next().await.json()];
            while posted[posted.len() - 1]["type"] != "Metadata" {
                posted.push(receiver.next().await.json());
            }
            assert_eq!(finals(&posted), "W5, W6,");
            assert_eq!(posted.last(), told.last());
        }),
        row("wire 2", "a callback that does not take a stream's messages ends the stream", async |doors| {
            let receiver = Receiver::start(&["500 Oops", "404 None", "302 Away"]).await;
            let callback = callback_parameter(&format!("http://{}/", receiver.allowed()));
            let mut socket = open(&doors.listener, &format!("{RAW}&{callback}")).await;
            socket.audio(&bytes(&utter(&[(5, 0.5, 1.0)]))).await;
            let (_, end) = socket.rest().await;
            assert!(matches!(end, Said::Close(1011, _)), "{end:?}");
        }),
    ]
}
