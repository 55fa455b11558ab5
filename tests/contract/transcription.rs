//! Section 4.1: headers, query parameters and bodies of a transcription request.

use serde_json::{Value, json};

use super::doors::{Doors, MEDIA_USER, recorded};
use super::table::{Row, row};
use crate::server::{RAW, answer, client, refusal, say, transcripts};
use crate::speech::word_errors;

/// All encoded copies are of this passage.
const PASSAGE: &str = "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them.";

fn words(body: &Value) -> Option<&Vec<Value>> {
    body["results"]["channels"][0]["alternatives"][0]["words"].as_array()
}

/// Whether a refusal says that a server without the models can't tell speakers apart.
fn lacks_speaker_models(body: &Value) -> bool {
    body["err_msg"] == "`diarization` is not available: this server has no speaker models."
}

/// Transcribes an encoded copy of the passage.
async fn holds_the_passage(doors: &Doors, file: &str) {
    let (status, body) = answer(doors.hear("", &format!("fixtures/{file}"))).await;
    assert_eq!(status, 200, "{body}");
    assert!(word_errors(PASSAGE, transcripts(&body)[0]) <= 1, "{body}");
}

/// Fails unless an alias gives the answer that the path itself gives.
async fn answers_alike(doors: &Doors, alias: &str) {
    let mut bodies = Vec::new();
    for path in ["/v1/listen", alias] {
        let url = doors.reader.url(&format!("{path}?{RAW}&tag=t&punctuate=true"));
        let request = client().post(url).bearer_auth(&doors.reader.key).header("timestamps", "true");
        let (status, mut body) = answer(request.body(say(3))).await;
        assert_eq!(status, 200, "{path}: {body}");
        body["metadata"]["request_id"].take();
        body["metadata"]["created"].take();
        bodies.push(body);
    }
    assert_eq!(bodies[0], bodies[1]);
}

pub fn rows() -> Vec<Row> {
    let mut rows = paths_and_headers();
    rows.extend(parameters());
    rows.extend(containers());
    rows.extend(raw_audio());
    rows.extend(urls());
    rows
}

fn paths_and_headers() -> Vec<Row> {
    vec![
        row("4.1", "/v1/listen/media behaves as /v1/listen", async |doors| {
            answers_alike(doors, "/v1/listen/media").await;
        }),
        row("4.1", "/v1/listen/media/transcribe behaves as /v1/listen", async |doors| {
            answers_alike(doors, "/v1/listen/media/transcribe").await;
        }),
        row("4.1", "/v1/listen/media/transcribe_file behaves as /v1/listen", async |doors| {
            answers_alike(doors, "/v1/listen/media/transcribe_file").await;
        }),
        row("4.1", "the header timestamps: true adds the words with their times", async |doors| {
            let (_, body) = answer(doors.reader.listen(RAW, say(7)).header("timestamps", "true")).await;
            let expected = json!([
                {"word": "number", "start": 0.25, "end": 0.5, "confidence": 0.9},
                {"word": "7", "start": 0.5, "end": 0.75, "confidence": 0.9},
            ]);
            assert_eq!(json!(words(&body)), expected);
        }),
        row("4.1", "the header timestamps: false adds no words", async |doors| {
            let (_, body) = answer(doors.reader.listen(RAW, say(7)).header("timestamps", "false")).await;
            assert_eq!(words(&body), None);
        }),
        row(
            "4.1 decided",
            "timestamps: false counts for a client with the Token scheme, too",
            async |doors| {
                let request = client().post(doors.reader.url(&format!("/v1/listen?{RAW}"))).body(say(7));
                let request = request.header("authorization", format!("Token {}", doors.reader.key));
                let (_, body) = answer(request.header("timestamps", "false")).await;
                assert!(words(&body).is_none_or(Vec::is_empty), "{body}");
            },
        ),
        row("4.1 decided", "a timestamps header that is neither true nor false is refused", async |doors| {
            let request = doors.reader.listen(RAW, say(7)).header("timestamps", "perhaps");
            assert_eq!(refusal(request).await, (400, "INVALID_HEADER".into()));
        }),
        row("4.1", "Content-Type: application/json marks a body with a url", async |doors| {
            let (status, body) = answer(doors.by_url(&doors.media_url("number"))).await;
            assert_eq!((status, transcripts(&body)), (200, vec!["Number 9."]));
        }),
        row("4.1", "audio bytes need no Content-Type, and a wrong one does no harm", async |doors| {
            for media_type in [None, Some("text/plain"), Some("audio/mpeg")] {
                let request = doors.reader.listen(RAW, say(5));
                let request =
                    media_type.iter().fold(request, |request, name| request.header("content-type", *name));
                assert_eq!(transcripts(&answer(request).await.1), ["Number 5."], "{media_type:?}");
            }
        }),
        row("4.1", "synchronous success has status 200", async |doors| {
            let response = doors.reader.listen(RAW, say(1)).send().await.expect("an answer");
            assert_eq!(response.status().as_u16(), 200);
        }),
    ]
}

fn parameters() -> Vec<Row> {
    vec![
        row(
            "4.1",
            "diarization=true requires word timestamps: it brings them, and cannot do without",
            async |doors| {
                let asked = || doors.reader.listen(&format!("{RAW}&diarization=true"), say(7));
                let (_, body) = answer(asked().header("timestamps", "false")).await;
                assert!(
                    body["err_msg"].as_str().is_some_and(|text| text.contains("requires word timestamps")),
                    "{body}"
                );
                let (status, body) = answer(asked()).await;
                let has_words = words(&body).is_some_and(|words| words.len() == 2);
                assert!(has_words || status == 400 && lacks_speaker_models(&body), "{body}");
            },
        ),
        row(
            "4.1",
            "diarization=true labels speakers, or the refusal names the parameter as it was sent",
            async |doors| {
                let (status, body) = answer(doors.hear("diarization=true", "speech/jfk.wav")).await;
                let has_speakers =
                    words(&body).is_some_and(|words| words.iter().all(|word| word["speaker"].is_u64()));
                assert!(has_speakers || status == 400 && lacks_speaker_models(&body), "{body}");
            },
        ),
        row("4.1", "diarization is a boolean: other values are refused", async |doors| {
            let request = doors.reader.listen(&format!("{RAW}&diarization=perhaps"), say(7));
            assert_eq!(refusal(request).await, (400, "INVALID_QUERY_PARAMETER".into()));
        }),
        row("4.1", "language names the language that is spoken", async |doors| {
            let (_, body) = answer(doors.hear("language=es", "speech/es_conteo.wav")).await;
            let (words, digits) =
                ("Uno dos tres cuatro cinco seis siete ocho nueve diez.", "1 2 3 4 5 6 7 8 9 10");
            let heard = transcripts(&body)[0];
            assert!(word_errors(words, heard).min(word_errors(digits, heard)) <= 1, "{heard}");
        }),
        row("4.1", "lang is an alias of language", async |doors| {
            // A feature for English only warns if another language is named.
            for (query, warned) in [("lang=es", true), ("lang=en", false)] {
                let (_, body) =
                    answer(doors.reader.listen(&format!("{RAW}&numerals=true&{query}"), say(1))).await;
                let warning = &body["metadata"]["warnings"][0];
                assert_eq!(warning["type"] == "unsupported_language", warned, "{query}: {body}");
            }
            let request = doors.reader.listen(&format!("{RAW}&lang=tlh"), say(1));
            assert_eq!(refusal(request).await, (400, "Bad Request".into()));
        }),
        row("4.1", "language is a BCP-47 identifier: letter case and region do not matter", async |doors| {
            for language in ["en", "EN", "en-US", "en-gb", "en-Latn-US"] {
                let (status, body) =
                    answer(doors.reader.listen(&format!("{RAW}&language={language}"), say(1))).await;
                assert_eq!(status, 200, "{language}: {body}");
            }
        }),
        row("4.1", "Spanish may be given as `es` or in a regional form", async |doors| {
            for language in ["es", "es-ES", "es-MX", "es-419"] {
                let query = format!("{RAW}&language={language}");
                let (status, body) = answer(doors.reader.listen(&query, say(1))).await;
                assert_eq!(status, 200, "{language}: {body}");
            }
        }),
        row("4.1 decided", "a language that the model does not know is refused", async |doors| {
            let (status, body) = answer(doors.reader.listen(&format!("{RAW}&language=tlh"), say(1))).await;
            let message = "No such model/language/tier combination found.";
            assert_eq!((status, &body["err_msg"]), (400, &json!(message)));
        }),
        row("4.1 decided", "smart formatting is `smart_format=true`", async |doors| {
            let (_, body) = answer(doors.hear("smart_format=true", "speech/en_counting.wav")).await;
            let paragraphs = &body["results"]["channels"][0]["alternatives"][0]["paragraphs"];
            assert!(paragraphs["transcript"].is_string(), "{body}");
        }),
        row(
            "4.1 decided",
            "language detection is `detect_language=true`, and says what it found",
            async |doors| {
                let (_, body) = answer(doors.hear("detect_language=true", "speech/fr_comptage.wav")).await;
                let channel = &body["results"]["channels"][0];
                assert_eq!(channel["detected_language"], "fr", "{body}");
                assert!(channel["language_confidence"].as_f64().is_some_and(|sure| sure > 0.5), "{body}");
            },
        ),
        row("4.1 decided", "unknown parameters are ignored", async |doors| {
            let (status, body) = answer(doors.reader.listen(&format!("{RAW}&nonsense=1"), say(4))).await;
            assert_eq!((status, transcripts(&body)), (200, vec!["Number 4."]));
        }),
        row("4.1", "PII redaction is unavailable here: redact is refused", async |doors| {
            for query in ["redact=pii", "redact=ssn", "redact=true"] {
                let request = doors.reader.listen(&format!("{RAW}&{query}"), say(1));
                assert_eq!(refusal(request).await, (400, "INVALID_QUERY_PARAMETER".into()), "{query}");
            }
        }),
        row("4.1", "a request that asks for no redaction is taken", async |doors| {
            let (status, _) = answer(doors.reader.listen(&format!("{RAW}&redact=false"), say(1))).await;
            assert_eq!(status, 200);
        }),
    ]
}

fn containers() -> Vec<Row> {
    vec![
        row("4.1", "MP3 is transcribed", async |doors| holds_the_passage(doors, "mp3.mp3").await),
        row("4.1", "AAC is transcribed", async |doors| holds_the_passage(doors, "adts.aac").await),
        row("4.1", "FLAC is transcribed", async |doors| holds_the_passage(doors, "flac.flac").await),
        row("4.1", "WAV is transcribed", async |doors| holds_the_passage(doors, "pcm16.wav").await),
        row("4.1", "OGG (Vorbis) is transcribed", async |doors| holds_the_passage(doors, "vorbis.ogg").await),
        row("4.1", "WebM is transcribed", async |doors| holds_the_passage(doors, "opus.webm").await),
        row("4.1", "Opus is transcribed", async |doors| holds_the_passage(doors, "opus.ogg").await),
        row("4.1", "M4A is transcribed", async |doors| holds_the_passage(doors, "m4a.m4a").await),
    ]
}

fn raw_audio() -> Vec<Row> {
    vec![
        row("4.1", "raw 16-bit PCM is transcribed", async |doors| {
            // The samples of a WAV file, without its header.
            let samples = recorded("speech/austen_0930.wav")[44..].to_vec();
            let (status, body) = answer(doors.program.listen(RAW).body(samples)).await;
            assert_eq!(status, 200, "{body}");
            let said = "He might even have been made amiable himself.";
            assert!(word_errors(said, transcripts(&body)[0]) <= 1, "{body}");
        }),
        row("4.1", "raw samples are signed and little-endian", async |doors| {
            let big_endian: Vec<u8> = say(258).chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
            let heard =
                async |bytes| transcripts(&answer(doors.reader.listen(RAW, bytes)).await.1)[0].to_owned();
            assert_eq!(heard(say(-7)).await, "Number -7.");
            assert_eq!(heard(say(256)).await, "Number 256.");
            assert_eq!(heard(big_endian).await, "Number 513.");
        }),
        row("4.1", "s16le is a name of that encoding", async |doors| {
            let request = doors.reader.listen("encoding=s16le&sample_rate=16000", say(6));
            let (status, body) = answer(request).await;
            assert_eq!(status, 200, "{body}");
            assert_eq!(transcripts(&body), ["Number 6."]);
        }),
        row("4.1 decided", "raw samples without their rate are refused", async |doors| {
            let request = doors.reader.listen("encoding=linear16", say(6));
            assert_eq!(refusal(request).await, (400, "INVALID_QUERY_PARAMETER".into()));
        }),
        row("4.1", "a body may come in chunks, without a length", async |doors| {
            let chunks: Vec<_> =
                say(8).chunks(1000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
            let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
            assert_eq!(transcripts(&answer(doors.reader.listen(RAW, body)).await.1), ["Number 8."]);
        }),
        row("4.1", "a request without a body is refused", async |doors| {
            let request = doors.reader.listen(RAW, "").header("content-length", "0");
            assert_eq!(refusal(request).await, (400, "Bad Request".into()));
        }),
    ]
}

fn urls() -> Vec<Row> {
    vec![
        row("4.1", "url must be a URL", async |doors| {
            let (status, code, message) = doors.url_refusal("speech.wav").await;
            let expected = (400, "REMOTE_CONTENT_ERROR", "Could not parse URL as a URI.");
            assert_eq!((status, code.as_str(), message.as_str()), expected);
        }),
        row("4.1", "JSON without a url is refused", async |doors| {
            for body in ["{}", r#"{"url": 1}"#, "[]", "{"] {
                let request = doors.reader.listen("", body).header("content-type", "application/json");
                assert_eq!(refusal(request).await, (400, "Bad Request".into()), "{body}");
            }
        }),
        row("4.1", "the audio must be publicly reachable: inner addresses are refused", async |doors| {
            for host in ["10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]", "127.0.0.2"] {
                let (status, _, message) = doors.url_refusal(&format!("http://{host}/a.wav")).await;
                let expected = "URL for media download must be publicly routable.";
                assert_eq!((status, message.as_str()), (400, expected), "{host}");
            }
        }),
        row("4.1", "a pre-signed URL is fetched with its query, byte for byte", async |doors| {
            let url = doors.media_url("signed?expires=9&signature=a%2Fb%3D");
            let (status, body) = answer(doors.by_url(&url)).await;
            assert_eq!((status, transcripts(&body)), (200, vec!["Number 9."]));
        }),
        row("4.1", "a URL with user:password@ is a valid one, and is fetched with them", async |doors| {
            let (user, password) = (MEDIA_USER.0, MEDIA_USER.1.replace('@', "%40"));
            let url = format!("http://{user}:{password}@{}/private/number", doors.media.address);
            let (status, body) = answer(doors.by_url(&url)).await;
            assert_eq!(status, 200, "{body}");
            assert_eq!(transcripts(&body), ["Number 9."]);
        }),
        row(
            "4.1 decided",
            "the client learns the status of a host that refuses the download",
            async |doors| {
                let (status, code, message) = doors.url_refusal(&doors.media_url("private/number")).await;
                assert_eq!((status, code.as_str()), (400, "REMOTE_CONTENT_ERROR"));
                assert!(message.contains("403"), "{message}");
            },
        ),
    ]
}
