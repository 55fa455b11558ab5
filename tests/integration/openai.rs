//! OpenAI's routes over a real socket: forms, answers and refusals.

use std::sync::mpsc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use verbatim::api::{self, openai::names};
use verbatim::engine;
use verbatim::http;

use crate::formatting::conforms;
use crate::live_audio::wave;
use crate::server::{FAILS, Setup, TERMS, TestServer, client};

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
pub const BOUNDARY: &str = "a-boundary";

/// A WAV file in which the model hears `Number N.`, N below 30 000, in each second.
pub fn file(number: i16, seconds: f64) -> Vec<u8> {
    let mut samples = vec![0; (seconds * 16_000.0) as usize];
    samples.iter_mut().step_by(16_000).for_each(|sample| *sample = number);
    wave(16_000, u32::try_from(samples.len() * 2).expect("small"), &samples)
}

/// A form of text fields and files; a file has an empty name.
pub fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, value) in fields {
        let file = if *name == "file" { "; filename=\"a.wav\"\r\nContent-Type: audio/wav" } else { "" };
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        form.extend([head.as_bytes(), value, b"\r\n"].concat());
    }
    form.extend(format!("--{BOUNDARY}--\r\n").bytes());
    form
}

pub fn post(server: &TestServer, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    let form = format!("multipart/form-data; boundary={BOUNDARY}");
    client().post(server.url(path)).bearer_auth(&server.key).header("content-type", form).body(body)
}

fn transcribe(server: &TestServer, audio: &[u8], fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
    post(server, TRANSCRIPTIONS, form(&fields.chain([("file", audio)]).collect::<Vec<_>>()))
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.bytes().await.expect("a whole body");
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&body))))
}

/// Status and error of a refusal, which has that API's form.
async fn refusal(request: reqwest::RequestBuilder) -> (u16, Value) {
    let (status, body) = answer(request).await;
    let keys: Vec<&str> = body["error"].as_object().expect("an error").keys().map(String::as_str).collect();
    assert_eq!(keys, ["code", "message", "param", "type"], "{body}");
    assert_eq!(body.as_object().expect("an object").len(), 1, "{body}");
    (status, body["error"].clone())
}

async fn plain(request: reqwest::RequestBuilder) -> String {
    let response = request.send().await.expect("an answer");
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (200.try_into().unwrap(), &"text/plain; charset=utf-8".parse().unwrap())
    );
    response.text().await.expect("text")
}

#[tokio::test]
async fn a_file_is_transcribed_in_each_format() {
    let server = TestServer::start(Setup::default()).await;
    let (status, body) = answer(transcribe(&server, &file(7, 1.0), &[("model", "whisper-1")])).await;
    let expected = json!({"text": "Number 7.", "languages": [{"code": "en"}], "usage": {"type": "duration", "seconds": 1}});
    assert_eq!((status, body), (200, expected));
    for (format, expected) in [
        ("text", "Number 7.\n"),
        ("srt", "1\n00:00:00,250 --> 00:00:01,250\nNumber 7.\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.250 --> 00:00:01.250\nNumber 7.\n\n"),
    ] {
        let written = plain(transcribe(&server, &file(7, 1.0), &[("response_format", format)])).await;
        assert_eq!(written, expected, "{format}");
    }
    let fields =
        [("response_format", "verbose_json"), ("timestamp_granularities[]", "word"), ("language", "es")];
    let (_, body) = answer(transcribe(&server, &file(7, 1.0), &fields)).await;
    let words =
        json!([{"word": "Number", "start": 0.25, "end": 0.5}, {"word": "7", "start": 0.5, "end": 0.75}]);
    assert_eq!(
        body,
        json!({"task": "transcribe", "language": "spanish", "duration": 1.0, "text": "Number 7.", "words": words,
            "usage": {"type": "duration", "seconds": 1}})
    );
}

#[tokio::test]
async fn fields_without_effect_and_damaged_audio_are_warned_of_in_every_format() {
    let server = TestServer::start(Setup::default()).await;
    let (whole, cut) = (file(7, 1.0), file(7, 4.0));
    let fields = [("colour", "red"), ("languages[]", "es"), ("language", "en")];
    let (_, body) = answer(transcribe(&server, &whole, &fields)).await;
    let warnings = body["warnings"].to_string();
    assert!(warnings.contains("`colour`") && warnings.contains("`languages`"), "{body}");
    for format in ["text", "srt", "vtt"] {
        let fields = [("colour", "red"), ("response_format", format)];
        let sent = transcribe(&server, &cut[..cut.len() / 2], &fields).send().await.expect("an answer");
        assert_eq!(sent.status(), 200, "{format}");
        let warnings = sent.headers().get_all("x-verbatim-warning").iter();
        let warnings: Vec<_> = warnings.map(|warning| warning.to_str().expect("text")).collect();
        assert!(warnings.iter().any(|warning| warning.contains("`colour`")), "{format}: {warnings:?}");
        assert!(warnings.iter().any(|warning| warning.contains("breaks off")), "{format}: {warnings:?}");
    }
}

#[tokio::test]
async fn fields_come_in_any_order_and_unknown_ones_are_ignored() {
    let server = TestServer::start(Setup::default()).await;
    let audio = file(8, 1.0);
    let body =
        form(&[("unknown", &[0xff; 100_000]), ("file", &audio), ("", b"x"), ("response_format", b"text")]);
    assert_eq!(plain(post(&server, TRANSCRIPTIONS, body)).await, "Number 8.\n");
    let (_, body) =
        answer(transcribe(&server, &file(TERMS, 1.0), &[("keywords[]", "Ada"), ("keywords[]", "Grace")]))
            .await;
    assert_eq!(body["text"], "Ada:1 Grace:1");
}

#[tokio::test]
async fn a_translation_is_to_english_and_takes_no_speakers() {
    let server = TestServer::start(Setup::default()).await;
    let audio = file(7, 1.0);
    let translate = |more: &[(&str, &[u8])]| {
        post(&server, "/v1/audio/translations", form(&[more, &[("file", &audio)]].concat()))
    };
    assert_eq!(answer(translate(&[])).await, (200, json!({"text": "Number 7."})));
    let (_, body) = answer(translate(&[("response_format", b"verbose_json")])).await;
    assert_eq!((&body["task"], &body["language"]), (&json!("translate"), &json!("english")));
    let (status, error) = refusal(translate(&[("response_format", b"diarized_json")])).await;
    assert_eq!((status, &error["param"]), (400, &json!("response_format")));
}

#[tokio::test]
async fn the_text_is_streamed_as_it_becomes_final() {
    let (open, gate) = mpsc::channel();
    let server = TestServer::start(Setup { gate: Some(gate), ..Setup::default() }).await;
    // Two windows: the first may be recognised now, the second later.
    open.send(()).expect("the model waits");
    let fields = [("stream", "true"), ("prompt", "Jane Austen, 1811")];
    let mut response = transcribe(&server, &file(7, 40.0), &fields).send().await.expect("events");
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let first = response.chunk().await.expect("readable").expect("an event");
    assert_eq!(first, "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Number 7.\"}\n\n");
    open.send(()).expect("the model waits");
    let mut rest = Vec::new();
    while let Some(piece) = response.chunk().await.expect("readable") {
        rest.extend_from_slice(&piece);
    }
    let rest = String::from_utf8(rest).expect("text");
    let events: Vec<Value> = rest
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    assert_eq!(events[0], json!({"type": "transcript.text.delta", "delta": " Number 7."}));
    assert_eq!(
        (&events[1]["type"], &events[1]["text"]),
        (&json!("transcript.text.done"), &json!("Number 7. Number 7."))
    );
    let usage = &events[1]["usage"];
    assert_eq!((events.len(), &usage["input_tokens"]), (2, &json!(2003)));
    assert_eq!(usage["input_token_details"], json!({"text_tokens": 3, "audio_tokens": 2000}));
}

#[tokio::test]
async fn a_failure_before_the_first_event_is_a_status_and_a_later_one_an_event() {
    let server = TestServer::start(Setup::default()).await;
    let (status, error) = refusal(transcribe(&server, b"not audio", &[("stream", "true")])).await;
    assert_eq!((status, &error["param"]), (400, &json!("file")));
    let response =
        transcribe(&server, &file(FAILS, 1.0), &[("stream", "true")]).send().await.expect("events");
    assert_eq!(response.status(), 200);
    let text = response.text().await.expect("text");
    let event: Value =
        serde_json::from_str(text.trim().strip_prefix("data: ").expect("an event")).expect("JSON");
    assert_eq!(event["error"]["type"], "server_error");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn forms_that_are_not_valid_name_their_fault() {
    let server = TestServer::start(Setup::default()).await;
    let audio = file(7, 1.0);
    for (name, fields, param) in [
        ("no file", vec![("model", &b"m"[..])], "file"),
        ("an empty file", vec![("file", &b""[..])], "file"),
        ("two files", vec![("file", &audio[..]), ("file", &audio[..])], "file"),
        ("no audio", vec![("file", &b"not audio"[..])], "file"),
        ("two models", vec![("model", &b"a"[..]), ("model", b"b"), ("file", &audio)], "model"),
        ("no text", vec![("prompt", &b"\xff"[..]), ("file", &audio)], "prompt"),
        ("a long prompt", vec![("prompt", &[b'a'; 70_000][..]), ("file", &audio)], "prompt"),
        ("no such format", vec![("response_format", &b"xml"[..]), ("file", &audio)], "response_format"),
        ("speakers", vec![("response_format", &b"diarized_json"[..]), ("file", &audio)], "response_format"),
        ("a language", vec![("language", &b"xx"[..]), ("file", &audio)], "language"),
    ] {
        let (status, error) = refusal(post(&server, TRANSCRIPTIONS, form(&fields))).await;
        assert_eq!(
            (status, &error["param"], &error["type"]),
            (400, &json!(param), &json!("invalid_request_error")),
            "{name}: {error}"
        );
    }
    let whole = form(&[("file", &audio)]);
    for body in [&b""[..], b"--", b"--a-boundary\r\n", &whole[..whole.len() / 2], &whole[..whole.len() - 8]] {
        let (status, error) = refusal(post(&server, TRANSCRIPTIONS, body.to_vec())).await;
        assert_eq!(status, 400, "{}: {error}", String::from_utf8_lossy(&body[..body.len().min(30)]));
    }
    for media_type in ["application/json", "multipart/form-data", "audio/wav", ""] {
        let request = client().post(server.url(TRANSCRIPTIONS)).bearer_auth(&server.key);
        let request = request.header("content-type", media_type).body(whole.clone());
        assert_eq!(refusal(request).await.0, 400, "{media_type}");
    }
    let encoded = post(&server, TRANSCRIPTIONS, whole).header("content-encoding", "gzip");
    assert_eq!(refusal(encoded).await.0, 415);
}

#[tokio::test]
async fn refusals_of_these_paths_have_that_apis_form() {
    let server = TestServer::start(Setup::default()).await;
    let at = |method: &str, path: &str| client().request(method.parse().expect("a method"), server.url(path));
    let (status, error) = refusal(at("POST", TRANSCRIPTIONS)).await;
    assert_eq!((status, &error["code"]), (401, &json!("invalid_api_key")));
    let (status, error) = refusal(at("POST", "/v1/audio/nothing")).await;
    assert_eq!((status, &error["code"]), (404, &json!("unknown_url")));
    let response = at("GET", TRANSCRIPTIONS).send().await.expect("an answer");
    assert_eq!(response.headers()["allow"], "POST");
    let (status, error) = refusal(at("GET", TRANSCRIPTIONS)).await;
    assert_eq!((status, &error["code"]), (405, &json!("method_not_supported")));
    let (status, error) = refusal(at("GET", "/v1/models")).await;
    assert_eq!((status, &error["code"]), (401, &json!("invalid_api_key")));
    // The wire format's clients have their own.
    let (status, body) = answer(at("GET", "/v1/models").header("authorization", "Token none")).await;
    assert_eq!((status, &body["err_code"]), (401, &json!("INVALID_AUTH")));
    let (status, body) = answer(at("POST", "/v1/listen")).await;
    assert_eq!((status, &body["err_code"]), (401, &json!("INVALID_AUTH")));
}

#[tokio::test]
async fn a_full_server_says_when_to_come_back() {
    let (server, open, first) = TestServer::full().await;
    let request = transcribe(&server, &file(7, 1.0), &[]);
    let response = request.try_clone().expect("bytes").send().await.expect("an answer");
    assert!(response.headers().contains_key("retry-after"));
    let (status, error) = refusal(request).await;
    assert_eq!(
        (status, &error["type"], &error["code"]),
        (503, &json!("server_error"), &json!("server_overloaded"))
    );
    drop(open);
    assert_eq!(first.await.expect("no panic").0, 200);
}

#[tokio::test]
async fn models_have_the_form_that_the_client_knows() {
    let openai = names::Config { any_model: false };
    let api = api::Config { openai, ..api::Config::default() };
    let server = TestServer::start(Setup { api, names: vec!["whisper-1".into()], ..Setup::default() }).await;
    let get = |path: &str| client().get(server.url(path)).bearer_auth(&server.key);
    let (_, body) = answer(get("/v1/models")).await;
    let ids: Vec<&Value> =
        body["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    assert_eq!((&body["object"], ids), (&json!("list"), vec![&json!("reader"), &json!("whisper-1")]));
    let (_, body) = answer(get("/v1/models/whisper-1")).await;
    assert_eq!((&body["id"], &body["object"]), (&json!("whisper-1"), &json!("model")));
    let (status, error) = refusal(get("/v1/models/gpt%2F4")).await;
    assert_eq!((status, &error["code"], &error["param"]), (404, &json!("model_not_found"), &json!("model")));
    assert!(error["message"].as_str().expect("text").contains("`gpt/4`"), "{error}");

    let token = format!("Token {}", server.key);
    let wire = |path: &str| client().get(server.url(path)).header("authorization", &token);
    let (_, body) = answer(wire("/v1/models")).await;
    assert_eq!((&body["stt"][0]["name"], &body["tts"]), (&json!("reader"), &json!([])));
    let uuid = body["stt"][0]["uuid"].as_str().expect("text").to_owned();
    let (_, body) = answer(wire(&format!("/v1/models/{uuid}"))).await;
    assert_eq!((&body["canonical_name"], &body["languages"]), (&json!("reader"), &json!(["en", "es"])));
    assert_eq!(answer(wire("/v1/models/none")).await.0, 404);

    let audio = file(7, 1.0);
    assert_eq!(answer(transcribe(&server, &audio, &[("model", "whisper-1")])).await.0, 200);
    let (status, error) = refusal(transcribe(&server, &audio, &[("model", "gpt-4o-transcribe")])).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn an_upload_that_is_too_large_is_refused_before_it_is_read() {
    let server = TestServer::start(Setup::default()).await;
    let mut socket = TcpStream::connect(server.address).await.expect("a connection");
    let head = format!(
        "POST {TRANSCRIPTIONS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\nexpect: 100-continue\r\n\
         content-type: multipart/form-data; boundary=a\r\ncontent-length: {}\r\n\r\n",
        server.key,
        1u64 << 30
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.expect("an answer");
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
    assert!(reply.contains("\"code\":\"payload_too_large\""), "{reply}");

    let http = http::Config { body_bytes_max: 100_000, ..http::Config::default() };
    let small = TestServer::start(Setup { http, ..Setup::default() }).await;
    let pieces = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b'a'; 10_000])));
    let whole = form(&[("file", &[])]);
    let begin = whole[..whole.len() - BOUNDARY.len() - 8].to_vec();
    let chunks = futures_util::StreamExt::chain(futures_util::stream::iter([Ok(begin)]), pieces);
    let (status, error) = refusal(post(&small, TRANSCRIPTIONS, reqwest::Body::wrap_stream(chunks))).await;
    assert_eq!((status, &error["code"]), (413, &json!("payload_too_large")));
}

#[tokio::test]
async fn the_head_of_a_field_is_bounded() {
    let server = TestServer::start(Setup::default()).await;
    let endless = futures_util::stream::iter((0..3000).map(|_| Ok::<_, std::io::Error>(vec![b'a'; 100])));
    let begin = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"").into_bytes();
    let chunks = futures_util::StreamExt::chain(futures_util::stream::iter([Ok(begin)]), endless);
    let (status, error) = refusal(post(&server, TRANSCRIPTIONS, reqwest::Body::wrap_stream(chunks))).await;
    assert_eq!(status, 400);
    assert!(error["message"].as_str().expect("text").contains("head of a field"), "{error}");
}

#[tokio::test]
async fn many_uploads_at_once_are_answered() {
    let engine = engine::Config { max_requests: 256, ..engine::Config::default() };
    let server = TestServer::start(Setup { engine, ..Setup::default() }).await;
    let uploads = (0..64).map(|number| {
        let request = transcribe(&server, &file(number, 2.0), &[("response_format", "text")]);
        async move { (number, plain(request).await) }
    });
    for (number, text) in futures_util::future::join_all(uploads).await {
        assert_eq!(text, format!("Number {number}.\n"));
    }
}

#[tokio::test]
async fn answers_have_the_form_that_the_document_describes() {
    let server = TestServer::start(Setup::default()).await;
    let (_, document) = answer(client().get(server.url("/openapi.json"))).await;
    let named = |schema: &str| json!({"$ref": format!("#/components/schemas/{schema}")});
    let audio = file(7, 1.0);
    let verbose = [
        ("response_format", "verbose_json"),
        ("timestamp_granularities", "word"),
        ("timestamp_granularities", "segment"),
    ];
    let warned = [("include", "logprobs"), ("chunking_strategy", r#"{"type":"server_vad","threshold":0.5}"#)];
    for (fields, schema) in [(&verbose[..], "OpenAiVerbose"), (&warned[..], "OpenAiTranscription")] {
        let (status, body) = answer(transcribe(&server, &audio, fields)).await;
        assert_eq!(status, 200, "{body}");
        conforms(&document, &named(schema), &body);
    }
    let get = |path: &str| client().get(server.url(path)).bearer_auth(&server.key);
    let (_, body) = answer(get("/v1/models")).await;
    conforms(&document, &named("OpenAiModels"), &body);
    let (_, body) = answer(get("/v1/models/any")).await;
    conforms(&document, &named("OpenAiModel"), &body);
}
