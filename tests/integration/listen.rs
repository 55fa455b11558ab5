//! `POST /v1/listen` over a real socket: answers and refusals.

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use verbatim::audio::Limits;
use verbatim::{api, fetch, jobs};

use crate::hosts;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{
    FAILS, RAW, Setup, TestServer, answer, client, read, refusal, say, say_for, transcripts,
};

#[tokio::test]
async fn the_contracts_request_gets_the_contracts_answer() {
    let server = TestServer::start(Setup::default()).await;
    let response = server.listen(RAW, say(7)).send().await.unwrap();
    assert_eq!(response.headers()["dg-model-name"], "reader");
    let request_id = response.headers()["dg-request-id"].to_str().unwrap().to_owned();
    let (status, body) = read(response).await;
    assert_eq!(status, 200);
    assert_eq!(body["metadata"]["request_id"], request_id.as_str());
    assert_eq!(body["metadata"]["duration"], 1.0);
    assert_eq!(body["metadata"]["channels"], 1);
    let sha256: String = Sha256::digest(say(7)).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(body["metadata"]["sha256"], sha256);
    let alternative = json!({"transcript": "Number 7.", "confidence": 0.9});
    assert_eq!(body["results"], json!({"channels": [{"alternatives": [alternative]}]}));
}

#[tokio::test]
async fn words_come_where_they_are_asked_for() {
    let server = TestServer::start(Setup::default()).await;
    let words = json!([
        {"word": "number", "start": 0.25, "end": 0.5, "confidence": 0.9},
        {"word": "7", "start": 0.5, "end": 0.75, "confidence": 0.9},
    ]);
    let token = format!("Token {}", server.key);
    let asked = server.listen(RAW, say(7)).header("timestamps", "true");
    let by_sdk =
        client().post(server.url(&format!("/v1/listen?{RAW}"))).header("authorization", token).body(say(7));
    for request in [asked, by_sdk] {
        let (_, body) = answer(request).await;
        assert_eq!(body["results"]["channels"][0]["alternatives"][0]["words"], words);
    }
    let (_, body) = answer(server.listen(&format!("{RAW}&punctuate=true"), say(7))).await;
    let word = &body["results"]["channels"][0]["alternatives"][0]["words"][1];
    assert_eq!((&word["word"], &word["punctuated_word"]), (&json!("7"), &json!("7.")));
}

#[tokio::test]
async fn words_are_left_out_where_that_is_asked_for() {
    let server = TestServer::start(Setup::default()).await;
    let by_token = |query: &str, timestamps: &str| {
        client()
            .post(server.url(&format!("/v1/listen?{RAW}&{query}")))
            .header("authorization", format!("Token {}", server.key))
            .header("timestamps", timestamps.to_owned())
            .body(say(7))
    };
    for query in ["", "punctuate=true", "smart_format=true", "utterances=true&search=number"] {
        let (_, body) = answer(by_token(query, "False")).await;
        assert!(body["results"]["channels"][0]["alternatives"][0].get("words").is_none(), "{query}: {body}");
        let (_, body) = answer(by_token(query, "true")).await;
        assert!(body["results"]["channels"][0]["alternatives"][0]["words"].is_array(), "{query}: {body}");
    }
    // The contract's speakers require words.
    let (status, body) = answer(by_token("diarization=true", "false")).await;
    assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
    assert!(
        body["err_msg"].as_str().unwrap().starts_with("`diarization` requires word timestamps"),
        "{body}"
    );
}

#[tokio::test]
async fn raw_samples_of_the_contract_need_no_more_than_their_name() {
    let server = TestServer::start(Setup::default()).await;
    let typed = |query: &str, media_type: &str, body: Vec<u8>| {
        server.listen(query, body).header("content-type", media_type.to_owned())
    };
    let stereo: Vec<u8> = say(8).chunks(2).flat_map(|sample| [sample, sample].concat()).collect();
    for (request, seconds, channels) in [
        (server.listen("encoding=s16le", say(8)), 1.0, 1),
        (server.listen("encoding=S16LE&sample_rate=8000", say(8)), 2.0, 1),
        (server.listen("encoding=s16le&channels=2", stereo.clone()), 1.0, 2),
        (server.listen("sample_rate=8000", say(8)), 2.0, 1),
        (typed("", "audio/pcm", say(8)), 1.0, 1),
        (typed("sample_rate=8000", "audio/x-raw; rate=16000; channels=2", stereo), 1.0, 2),
        (typed("sample_rate=8000", "audio/s16le", say(8)), 2.0, 1),
    ] {
        let (status, body) = answer(request).await;
        assert_eq!((status, transcripts(&body)), (200, vec!["Number 8."]), "{body}");
        assert_eq!(
            (&body["metadata"]["duration"], &body["metadata"]["channels"]),
            (&json!(seconds), &json!(channels))
        );
    }
    // Without an announcement samples look like noise.
    let (status, body) = answer(server.listen("", say(8))).await;
    assert_eq!((status, &body["err_code"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")));
    assert!(body["err_msg"].as_str().unwrap().contains("encoding=s16le"), "{body}");
    let nothing = typed("", "audio/pcm;rate=fast", say(8));
    assert_eq!(refusal(nothing).await, (400, "INVALID_HEADER".into()));
}

#[tokio::test]
async fn without_models_a_request_for_speakers_is_refused_by_the_name_it_was_sent_under() {
    let server = TestServer::start(Setup::default()).await;
    for (name, value) in
        [("diarize", "true"), ("diarization", "True"), ("diarize_model", "latest"), ("diarize_version", "v2")]
    {
        let expected = format!("`{name}` is not available: this server has no speaker models.");
        for query in
            [format!("{RAW}&{name}={value}"), format!("{RAW}&{name}={value}&callback=https://a.example/")]
        {
            let (status, body) = answer(server.listen(&query, say(1))).await;
            assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
            assert_eq!(body["err_msg"], expected, "{query}");
        }
        assert_eq!(answer(server.listen(&format!("{RAW}&{name}=false"), say(1))).await.0, 200);
    }
}

#[tokio::test]
async fn numbers_of_speakers_that_contradict_each_other_are_refused_and_idle_ones_warned_of() {
    let server = TestServer::start(Setup::default()).await;
    for (query, problem) in [
        ("min_speakers=3&max_speakers=2", "`min_speakers` is greater than `max_speakers`"),
        ("min_speakers=3&speakers_expected=2", "`min_speakers` is greater than `speakers_expected`"),
        ("speakers_expected=3&max_speakers=2", "`speakers_expected` is greater than `max_speakers`"),
        (
            "diarize=true&max_speakers=0",
            "invalid value `0` for `max_speakers`: expected a whole number within bounds",
        ),
        ("min_speakers=two", "invalid value `two` for `min_speakers`: expected a whole number within bounds"),
    ] {
        let (status, body) = answer(server.listen(&format!("{RAW}&{query}"), say(1))).await;
        assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
        assert_eq!(body["err_msg"], format!("Failed to deserialize query parameters: {problem}"));
    }
    let (_, body) = answer(server.listen(&format!("{RAW}&max_speakers=2"), say(1))).await;
    let message = "`max_speakers` had no effect without `diarize`.";
    let warning = json!({"parameter": "max_speakers", "type": "without_effect", "message": message});
    assert_eq!(body["metadata"]["warnings"], json!([warning]));
}

#[tokio::test]
async fn a_callbacks_method_that_is_none_is_named() {
    let server = TestServer::start(Setup::default()).await;
    for method in ["GET", "get", "DELETE", "", "POSTS"] {
        let (status, body) = answer(server.listen(&format!("{RAW}&callback_method={method}"), say(1))).await;
        assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
        let expected = format!("invalid value `{method}` for `callback_method`: expected POST or PUT");
        assert!(body["err_msg"].as_str().unwrap().ends_with(&expected), "{body}");
    }
}

#[tokio::test]
async fn the_aliases_behave_alike() {
    let server = TestServer::start(Setup::default()).await;
    for path in
        ["/v1/listen", "/v1/listen/media", "/v1/listen/media/transcribe", "/v1/listen/media/transcribe_file"]
    {
        let url = server.url(&format!("{path}?{RAW}"));
        let (status, body) = answer(client().post(url).bearer_auth(&server.key).body(say(3))).await;
        assert_eq!((status, transcripts(&body)), (200, vec!["Number 3."]), "{path}");
        assert_eq!(refusal(client().post(server.url(path)).body(say(3))).await.0, 401, "{path}");
    }
}

#[tokio::test]
async fn many_at_once_each_get_their_own_words() {
    let server = TestServer::start(Setup::default()).await;
    let requests = (0..200i16).map(|number| {
        let request = server.listen(RAW, say(number));
        tokio::spawn(async move { (number, answer(request).await.1) })
    });
    for request in requests.collect::<Vec<_>>() {
        let (number, body) = request.await.unwrap();
        assert_eq!(transcripts(&body), [format!("Number {number}.")]);
    }
}

#[tokio::test]
async fn channels_are_mixed_or_transcribed_apart() {
    let server = TestServer::start(Setup::default()).await;
    let stereo: Vec<u8> =
        say(10).chunks(2).zip(say(20).chunks(2)).flat_map(|(left, right)| [left, right].concat()).collect();
    let (_, apart) =
        answer(server.listen(&format!("{RAW}&channels=2&multichannel=true"), stereo.clone())).await;
    assert_eq!(transcripts(&apart), ["Number 10.", "Number 20."]);
    let (_, mixed) = answer(server.listen(&format!("{RAW}&channels=2"), stereo)).await;
    assert_eq!(transcripts(&mixed), ["Number 15."]);
    for body in [apart, mixed] {
        assert_eq!(body["metadata"]["channels"], 2);
        assert_eq!(body["metadata"]["duration"], 1.0);
    }
}

#[tokio::test]
async fn languages_are_named_or_detected() {
    let server = TestServer::start(Setup::default()).await;
    let (_, body) = answer(server.listen(&format!("{RAW}&detect_language=true"), say(1))).await;
    assert_eq!(body["results"]["channels"][0]["detected_language"], "en");
    assert_eq!(body["results"]["channels"][0]["language_confidence"], 0.5);
    for query in ["language=es-419", "lang=ES"] {
        assert_eq!(answer(server.listen(&format!("{RAW}&{query}"), say(1))).await.0, 200);
    }
    let (status, body) = answer(server.listen(&format!("{RAW}&language=tlh"), say(1))).await;
    assert_eq!((status, &body["err_msg"]), (400, &json!("No such model/language/tier combination found.")));
}

#[tokio::test]
async fn parameters_are_honoured_warned_of_or_refused() {
    let server = TestServer::start(Setup::default()).await;
    let (_, body) = answer(server.listen(&format!("{RAW}&summarize=true&tag=a&nonsense=1"), say(1))).await;
    assert_eq!(body["metadata"]["warnings"][0]["parameter"], "summarize");
    assert_eq!(body["metadata"]["tags"], json!(["a"]));
    let (status, body) = answer(server.listen(&format!("{RAW}&punctuate=perhaps"), say(1))).await;
    assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
    assert_eq!(
        body["err_msg"],
        "Failed to deserialize query parameters: invalid value `perhaps` for `punctuate`: expected true or false"
    );
    let (_, body) = answer(server.listen("callback=nowhere", say(1))).await;
    assert_eq!(
        body["err_msg"],
        "Invalid callback url. It is not a URL: it must look like https://host/path."
    );
    let (_, body) = answer(server.listen("callback=ftp%3A%2F%2Fa.example%2F", say(1))).await;
    assert_eq!(body["err_msg"], "Invalid callback url. Its scheme must be one of http, https.");
    let redact = server.listen(&format!("{RAW}&redact=pci"), say(1));
    assert_eq!(refusal(redact).await, (400, "INVALID_QUERY_PARAMETER".into()));
    let header = server.listen(RAW, say(1)).header("timestamps", "perhaps");
    assert_eq!(refusal(header).await, (400, "INVALID_HEADER".into()));
    let both = server.listen(RAW, say(1)).header("timestamps", "true").header("timestamps", "false");
    assert_eq!(refusal(both).await, (400, "INVALID_HEADER".into()));
}

#[tokio::test]
async fn bodies_that_are_no_audio_are_refused() {
    let audio = Limits { max_seconds: 2.0, ..Limits::default() };
    let server = TestServer::start(Setup { audio, ..Setup::default() }).await;
    assert_eq!(refusal(server.listen("", "not audio")).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    // Frames of a kind that there is not.
    let amr = server.listen("encoding=amr-nb&sample_rate=8000", vec![0x70; 1000]);
    assert_eq!(refusal(amr).await, (400, "Bad Request".into()));
    let speex = server.listen("encoding=speex&sample_rate=8000", say(1));
    assert_eq!(refusal(speex).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    let gzip = server.listen(RAW, say(1)).header("content-encoding", "gzip");
    assert_eq!(refusal(gzip).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    for second in ["gzip", "identity, br"] {
        let request = server.listen(RAW, say(1)).header("content-encoding", "identity");
        assert_eq!(refusal(request.header("content-encoding", second)).await.0, 415, "{second}");
    }
    let plain = server.listen(RAW, say(1)).header("content-encoding", " identity,");
    assert_eq!(answer(plain).await.0, 200);
    let form = server.listen("", "--x\r\ncontent-disposition: form-data\r\n\r\nsound\r\n--x--\r\n");
    let (status, body) = answer(form.header("content-type", "multipart/form-data; boundary=x")).await;
    assert_eq!(
        (status, &body["err_msg"]),
        (415, &json!("A form is not taken: send the audio itself as the body."))
    );
    assert_eq!(refusal(server.listen(RAW, "")).await, (411, "LENGTH_REQUIRED".into()));
    let empty = server.listen(RAW, "").header("content-length", "0");
    assert_eq!(refusal(empty).await, (400, "Bad Request".into()));
    assert_eq!(refusal(server.listen(RAW, say_for(1, 2.5))).await, (422, "AUDIO_TOO_LONG".into()));
    assert_eq!(answer(server.listen(RAW, say_for(1, 2.0))).await.0, 200);
}

#[tokio::test]
async fn json_that_is_none_is_refused() {
    let server = TestServer::start(Setup::default()).await;
    for json in [" ", "{", "[]", "{}", r#"{"url":1}"#, r#"{"uri":"http://a/"}"#, "\u{feff}{}"] {
        let request = server.listen("", json).header("content-type", "application/json; charset=utf-8");
        let (status, body) = answer(request).await;
        assert_eq!(
            (status, &body["err_msg"]),
            (400, &json!("Content-type was application/json, but we could not process the JSON payload.")),
            "{json}"
        );
    }
    let long = format!(r#"{{"url":"http://a/{}"}}"#, "a".repeat(70_000));
    let request = server.listen("", long).header("content-type", "application/json");
    assert_eq!(refusal(request).await, (413, "PAYLOAD_TOO_LARGE".into()));
}

#[tokio::test]
async fn audio_is_fetched_from_where_it_may_be() {
    let port = hosts::file(say(9), |_| true).await;
    let fetch = fetch::Config { allow: vec![format!("127.0.0.1:{port}")], ..fetch::Config::default() };
    let server = TestServer::start(Setup { fetch, ..Setup::default() }).await;
    let by_url = |url: &str| {
        let body = json!({"url": url, "ignored": [1]}).to_string();
        server.listen(RAW, body).header("content-type", "application/json")
    };
    let (status, body) = answer(by_url(&format!("http://127.0.0.1:{port}/a.raw"))).await;
    assert_eq!((status, transcripts(&body)), (200, vec!["Number 9."]));
    let sha256: String = Sha256::digest(say(9)).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(body["metadata"]["sha256"], sha256);
    for (url, message) in [
        ("http://127.0.0.2/a", "URL for media download must be publicly routable."),
        ("http://[::1]/a", "URL for media download must be publicly routable."),
        ("http://localhost/a", "URL for media download must be publicly routable."),
        ("file:///etc/passwd", "Could not parse URL as a URI."),
        ("a.wav", "Could not parse URL as a URI."),
    ] {
        let (status, body) = answer(by_url(url)).await;
        assert_eq!((status, &body["err_code"]), (400, &json!("REMOTE_CONTENT_ERROR")), "{url}");
        assert_eq!(body["err_msg"], message, "{url}");
    }
    // Without the media type it is audio, and no good as such.
    let body = json!({"url": format!("http://127.0.0.1:{port}/a.raw")}).to_string();
    assert_eq!(refusal(server.listen("", body)).await.0, 415);
}

#[tokio::test]
async fn a_user_in_a_url_is_told_to_its_host() {
    let (sender, seen) = mpsc::channel();
    let tells_user = move |head: &str| {
        let user = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        user.is_some_and(|user| sender.send(user.to_owned()).is_ok())
    };
    let port = hosts::file(say(9), tells_user).await;
    let fetch = fetch::Config { allow: vec![format!("127.0.0.1:{port}")], ..fetch::Config::default() };
    let server = TestServer::start(Setup { fetch, ..Setup::default() }).await;
    let by_url = |user: &str| {
        let body = json!({"url": format!("http://{user}127.0.0.1:{port}/a.raw")}).to_string();
        server.listen(RAW, body).header("content-type", "application/json")
    };
    let (status, body) = answer(by_url("user:p%40ss@")).await;
    assert_eq!((status, transcripts(&body)), (200, vec!["Number 9."]), "{body}");
    assert_eq!(seen.recv().unwrap(), "Basic dXNlcjpwQHNz");
    let (status, body) = answer(by_url("")).await;
    assert_eq!(
        (status, &body["err_msg"]),
        (400, &json!("The remote server hosting the media returned a client error: 401."))
    );
}

#[tokio::test]
async fn a_full_engine_is_busy_before_the_body_is_read() {
    let (server, open, first) = TestServer::full().await;
    // The body is announced and never sent: an answer means that it was not waited for.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /v1/listen?{RAW} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 100000\r\n\r\n",
        server.key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = vec![0; 1024];
    let length = stream.read(&mut reply).await.unwrap();
    let reply = String::from_utf8_lossy(&reply[..length]).to_ascii_lowercase();
    assert!(reply.starts_with("http/1.1 503 "), "{reply}");
    let retry_after = reply.split("retry-after: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    assert!((1..=120).contains(&retry_after.parse::<u32>().unwrap()), "{reply}");
    assert!(reply.contains("\r\nconnection: close\r\n"), "{reply}");
    drop(open);
    assert_eq!(transcripts(&first.await.unwrap().1), ["Number 5."]);
}

#[tokio::test]
async fn a_failing_model_tells_nothing_of_itself() {
    let server = TestServer::start(Setup::default()).await;
    let (status, body) = answer(server.listen(RAW, say(FAILS))).await;
    assert_eq!((status, &body["err_code"]), (500, &json!("INTERNAL_ERROR")));
    assert!(!body.to_string().contains("machine hall"), "{body}");
    assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
}

#[tokio::test]
async fn work_that_is_late_is_given_up() {
    let api = api::Config { processing_timeout_ms: 0, ..api::Config::default() };
    let server = TestServer::start(Setup { api, ..Setup::default() }).await;
    assert_eq!(refusal(server.listen(RAW, say(1))).await, (504, "PROCESSING_TIMEOUT".into()));
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let (open, gate) = mpsc::channel();
    let server = TestServer::start(Setup { gate: Some(gate), ..Setup::default() }).await;
    let request = tokio::spawn(server.listen(RAW, say(5)).send());
    while server.engine.held_seconds() == 0.0 {
        tokio::task::yield_now().await;
    }
    request.abort();
    // The model still waits at its gate: it is the request that gave the audio back.
    while server.engine.held_seconds() > 0.0 {
        tokio::task::yield_now().await;
    }
    drop(open);
    assert_eq!(transcripts(&answer(server.listen(RAW, say(6))).await.1), ["Number 6."]);
}

/// Where the test's log goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whatever a request holds and however it ends, at the most talkative level, none of it is logged.
#[tokio::test]
async fn nothing_of_a_request_reaches_the_log() {
    // With one subscriber alone, tracing asks whichever thread meets a line first whether it is
    // wanted, and remembers the answer: a thread of another test, that has none, would say no.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("verbatim=trace")
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let receiver = Receiver::start(&["500 Canary", "410 Canary"]).await;
    let fetch = fetch::Config { allow: vec![receiver.allowed()], ..fetch::Config::default() };
    let jobs = jobs::Config { retry_delays_seconds: vec![0.01], ..jobs::Config::default() };
    let server = TestServer::start(Setup { fetch, jobs, ..Setup::default() }).await;
    let json = r#"{"url":"http://127.0.0.9/canary?canary=1"}"#;
    let with_user = json!({"url": format!("http://canary:canary@{}/canary", receiver.allowed())}).to_string();
    let callback = callback_parameter(&format!("http://canary:canary@{}/canary?canary", receiver.allowed()));
    for request in [
        server.listen(&format!("{RAW}&keyterm=canary&metadata=canary&extra=k:canary"), say(1)),
        server.listen(&format!("{RAW}&punctuate=canary"), say(1)),
        server.listen(&format!("{RAW}&language=canary"), say(1)),
        server.listen(&format!("{RAW}&callback=http%3A%2F%2Fcanary@127.0.0.9%2Fcanary"), say(1)),
        server.listen(&format!("{RAW}&metadata=canary&{callback}"), say(1)),
        server.listen("", "canary"),
        server.listen(RAW, json).header("content-type", "application/json"),
        server.listen(RAW, with_user).header("content-type", "application/json"),
        server.listen(RAW, "{canary").header("content-type", "application/json"),
        server.listen(RAW, say(1)).header("timestamps", "canary"),
        server.listen(RAW, say(FAILS)).header("user-agent", "canary"),
        client().post(server.url("/canary?canary=canary")).body("canary"),
        client().post(server.url("/v1/listen")).bearer_auth("org_canary").body("canary"),
    ] {
        answer(request).await;
    }
    let logged = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    while !logged().contains("job not delivered, and given up") {
        tokio::task::yield_now().await;
    }
    let log = logged();
    assert!(log.contains("route=\"/v1/listen\"") && log.contains("status=401"), "{log}");
    for secret in ["canary", &server.key[12..]] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}
