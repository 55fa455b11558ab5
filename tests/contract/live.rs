//! Section 4.1, streaming: opening a stream, its messages and its parameters.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use verbatim::http;

use super::doors::{Doors, recorded};
use super::table::{Row, row};
use crate::live::{RAW, finals, open, transcript};
use crate::protocol::certified;
use crate::server::{Setup, TestServer, client, refusal};
use crate::socket::Said;
use crate::speech::word_errors;
use crate::tones::{bytes, utter};

/// All that a stream of these words says, up to its goodbye.
pub async fn streamed(doors: &Doors, query: &str, words: &[(u8, f64, f64)]) -> (Vec<Value>, Said) {
    let mut socket = open(&doors.listener, &format!("{RAW}&{query}")).await;
    for piece in bytes(&utter(words)).chunks(3200) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    socket.rest().await
}

/// Interim results of a stream that is still open, as many as asked for, and then all the rest.
pub async fn with_interims(doors: &Doors, query: &str, interims: usize) -> Vec<Value> {
    let mut socket = open(&doors.listener, &format!("{RAW}&interim_results=true&{query}")).await;
    let mut messages = Vec::new();
    for _ in 0..interims {
        socket.audio(&bytes(&utter(&[(5, 0.4, 0.1), (6, 0.4, 0.1), (7, 0.4, 0.1)]))).await;
        messages.push(socket.message().await);
    }
    socket.control("CloseStream").await;
    messages.extend(socket.rest().await.0);
    messages
}

pub fn is_final(message: &&Value) -> bool {
    message["is_final"] == true
}

/// A file streamed to the program: the final text.
async fn spoken(doors: &Doors, query: &str, file: &str) -> String {
    let handshake = doors.program.stream(query).await;
    let mut socket = handshake.socket.unwrap_or_else(|| panic!("{} {}", handshake.status, handshake.body));
    for piece in recorded(file).chunks(8000) {
        socket.audio(piece).await;
    }
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    finals(&messages)
}

pub fn rows() -> Vec<Row> {
    let mut rows = opening();
    rows.extend(results());
    rows.extend(redaction());
    rows.extend(parameters());
    rows
}

fn opening() -> Vec<Row> {
    vec![
        row("1", "POST and WebSocket share the path /v1/listen and the port", async |doors| {
            let socket = doors.program.stream(RAW).await;
            let posted = doors.program.listen(RAW).body(vec![0; 3200]).send().await.expect("an answer");
            assert_eq!((socket.status, posted.status().as_u16()), (101, 200));
        }),
        row("4.1", "with a certificate, streams come by wss on the same host", async |_| {
            assert!(upgraded_over_tls().await.starts_with("HTTP/1.1 101 "));
        }),
        row(
            "6",
            "once the connection is established, the server sends nothing before the first result",
            async |doors| {
                let mut socket = open(&doors.listener, RAW).await;
                socket.frame(0x89, b"?").await;
                assert_eq!(socket.said().await, Said::Pong(b"?".to_vec()));
            },
        ),
        row("wire 3", "GET without an upgrade is refused with 426", async |doors| {
            let request = client().get(doors.listener.url("/v1/listen")).bearer_auth(&doors.listener.key);
            let response = request.try_clone().expect("no body").send().await.expect("an answer");
            assert_eq!(response.headers()["upgrade"], "websocket");
            assert_eq!(refusal(request).await, (426, "UPGRADE_REQUIRED".into()));
        }),
        row("wire 4", "permessage-deflate may be offered, and is declined", async |doors| {
            // The test offers it, and fails if the server accepts it.
            assert_eq!(doors.handshake(RAW).await.status, 101);
        }),
    ]
}

/// The head of the answer to a handshake over TLS.
async fn upgraded_over_tls() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let (made, tls) = certified(folder.path());
    let http = http::Config { tls: Some(tls), ..http::Config::default() };
    let server = TestServer::start(Setup { http, ..Setup::default() }).await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.der().to_vec())).expect("a certificate");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(server.address).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    let request = format!(
        "GET /v1/listen?{RAW} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: token, {}\r\n\r\n",
        server.key
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}

fn results() -> Vec<Row> {
    vec![
        row("4.1", "encoding=mp3 streams MP3", async |doors| {
            let heard = spoken(doors, "encoding=mp3&interim_results=true", "fixtures/mp3.mp3").await;
            let said = "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them.";
            assert!(word_errors(said, &heard) <= 2, "{heard}");
        }),
        row("6", "transcript messages carry the text at channel.alternatives[0].transcript", async |doors| {
            let heard = spoken(doors, "", "speech/austen_0880.wav").await;
            assert!(word_errors("He was not an ill-disposed young man.", &heard) <= 1, "{heard}");
        }),
        row("4.1", "interim_results=true sends results before they are final", async |doors| {
            let messages = with_interims(doors, "", 1).await;
            assert_eq!(messages[0]["is_final"], false);
            assert!(transcript(&messages[0]).starts_with("W5,"), "{}", messages[0]);
        }),
        row("4.1", "interim results are off by default", async |doors| {
            let (messages, _) = streamed(doors, "", &[(5, 0.4, 0.1), (6, 0.4, 1.0), (7, 0.4, 0.6)]).await;
            assert!(messages.iter().all(|message| message["is_final"] != false), "{messages:?}");
            assert_eq!(finals(&messages), "W5, W6, W7,");
        }),
    ]
}

fn redaction() -> Vec<Row> {
    let words = [(5, 0.5, 0.5)];
    vec![
        row("4.1", "redact hides numbers on a stream", async move |doors| {
            let (messages, _) = streamed(doors, "redact=aggressive_numbers", &words).await;
            let text = transcript(&messages[0]);
            assert!(text.contains('*') && !text.contains('5'), "{text}");
        }),
        row("4.1", "redact hides them word by word, too", async move |doors| {
            let (messages, _) = streamed(doors, "redact=aggressive_numbers&punctuate=true", &words).await;
            let word = &messages[0]["channel"]["alternatives"][0]["words"][0];
            let (bare, written) = (word["word"].as_str(), word["punctuated_word"].as_str());
            assert!(bare.is_some_and(|text| !text.contains('5')), "{word}");
            assert!(written.is_some_and(|text| text.contains('*') && !text.contains('5')), "{word}");
        }),
        row("4.1", "redact_mode=label names the class of the hidden number", async move |doors| {
            let (messages, _) = streamed(doors, "redact=aggressive_numbers&redact_mode=label", &words).await;
            let text = transcript(&messages[0]);
            assert!(text.contains("[NUMBER]") && !text.contains('5'), "{text}");
        }),
        row("4.1", "redact holds for interim results", async |doors| {
            let messages = with_interims(doors, "redact=aggressive_numbers", 2).await;
            assert!(messages.iter().any(|message| message["is_final"] == false));
            for message in messages.iter().filter(|message| message["type"] == "Results") {
                let alternative = &message["channel"]["alternatives"][0];
                let words: Vec<&Value> = alternative["words"]
                    .as_array()
                    .expect("words")
                    .iter()
                    .map(|word| &word["word"])
                    .collect();
                let shown = format!("{}{words:?}", transcript(message));
                assert!(!shown.contains(|c: char| c.is_ascii_digit()), "{message}");
            }
        }),
        row("4.1", "redact hides a number that an interim result shows the beginning of", async |_| {
            for said in [
                "my social security number is one two three four five",
                "the number is 123 45 67",
                "it is double four seven oh one",
            ] {
                let says = HashMap::from([(3000, said)]);
                let server = TestServer::start(Setup { says, ..Setup::default() }).await;
                let mut socket =
                    open(&server, &format!("{RAW}&interim_results=true&redact=ssn&language=en")).await;
                socket.audio(&bytes(&[3000; 40_000])).await;
                let interim = socket.message().await;
                assert_eq!(interim["is_final"], false, "{interim}");
                let shown = interim["channel"].to_string();
                for digits in ["one", "two", "five", "123", "45", "67", "four", "seven", "oh"] {
                    assert!(
                        !shown.contains(&format!("{digits} ")) && !shown.contains(&format!("\"{digits}\"")),
                        "{shown}"
                    );
                }
            }
        }),
        row("wire 3", "redact takes pci, numbers, aggressive_numbers, ssn, true and false", async |doors| {
            for class in ["pci", "numbers", "aggressive_numbers", "ssn", "true", "false"] {
                assert_eq!(doors.handshake(&format!("{RAW}&redact={class}")).await.status, 101, "{class}");
            }
        }),
        row(
            "4.1 decided",
            "a class or mode of redaction that is not known is refused, not passed over",
            async |doors| {
                for query in ["redact=secrets", "redact=ssn&redact_mode=burn"] {
                    let handshake = doors.handshake(&format!("{RAW}&{query}")).await;
                    let code = &handshake.body["err_code"];
                    assert_eq!((handshake.status, code), (400, &json!("INVALID_QUERY_PARAMETER")), "{query}");
                }
            },
        ),
    ]
}

fn parameters() -> Vec<Row> {
    vec![
        row("wire 3", "raw audio needs encoding and sample_rate", async |doors| {
            let handshake = doors.handshake("encoding=linear16").await;
            let code = &handshake.body["err_code"];
            assert_eq!((handshake.status, code), (400, &json!("INVALID_QUERY_PARAMETER")));
        }),
        row("wire 3", "a container needs neither", async |doors| {
            let heard = spoken(doors, "", "fixtures/flac.flac").await;
            assert!(heard.to_lowercase().contains("leisure to consider"), "{heard}");
        }),
        row("wire 3", "endpointing ends a span at a pause of so many milliseconds", async |doors| {
            let words = [(5, 0.4, 0.6), (6, 0.4, 0.1)];
            let spans = async |query: &str| {
                let (messages, _) = streamed(doors, query, &words).await;
                messages.iter().filter(is_final).filter(|message| !transcript(message).is_empty()).count()
            };
            assert_eq!(spans("endpointing=400").await, 2);
            assert_eq!(spans("endpointing=900").await, 1);
        }),
        row("wire 3", "endpointing=false ends no span at a pause", async |doors| {
            let (messages, _) = streamed(doors, "endpointing=false", &[(5, 0.4, 0.9), (6, 0.4, 0.1)]).await;
            let first = messages.iter().find(is_final).expect("a final result");
            assert_eq!(transcript(first), "W5, W6,");
            assert_eq!(first["speech_final"], false);
        }),
        row("wire 3", "vad_events=true tells where speech begins", async |doors| {
            let (messages, _) = streamed(doors, "vad_events=true", &[(0, 0.0, 0.5), (5, 0.5, 0.5)]).await;
            assert_eq!(messages[0]["type"], "SpeechStarted");
            let at = messages[0]["timestamp"].as_f64().expect("seconds");
            assert!((0.3..0.6).contains(&at), "{at}");
            assert_eq!(messages[0]["channel"], json!([0, 1]));
        }),
        row("wire 3", "without vad_events there is no SpeechStarted", async |doors| {
            let (messages, _) = streamed(doors, "vad_events=false", &[(5, 0.5, 0.5)]).await;
            assert!(messages.iter().all(|message| message["type"] != "SpeechStarted"), "{messages:?}");
        }),
        row("wire 3", "utterance_end_ms tells after a gap when the last word ended", async |doors| {
            let words = [(5, 0.5, 2.0), (6, 0.5, 0.1)];
            let (messages, _) = streamed(doors, "interim_results=true&utterance_end_ms=1000", &words).await;
            let ends: Vec<&Value> =
                messages.iter().filter(|message| message["type"] == "UtteranceEnd").collect();
            assert_eq!(ends[0]["last_word_end"], json!(0.5), "{messages:?}");
            assert_eq!(ends[0]["channel"], json!([0, 1]));
        }),
        row("wire 3", "multichannel hears each channel by itself and says which", async |doors| {
            let (left, right) = (utter(&[(5, 0.5, 0.5)]), utter(&[(0, 0.0, 0.4), (9, 0.5, 0.1)]));
            let stereo: Vec<i16> =
                left.iter().zip(&right).flat_map(|(left, right)| [*left, *right]).collect();
            let mut socket = open(&doors.listener, &format!("{RAW}&channels=2&multichannel=true")).await;
            socket.audio(&bytes(&stereo)).await;
            socket.control("CloseStream").await;
            let (messages, _) = socket.rest().await;
            let of = |index: u64| {
                let of_channel = |message: &&Value| message["channel_index"] == json!([index, 2]);
                finals(&messages.iter().filter(of_channel).cloned().collect::<Vec<_>>())
            };
            assert_eq!((of(0).as_str(), of(1).as_str()), ("W5,", "W9,"));
        }),
        row(
            "wire 3",
            "a language that the model does not know is refused before the upgrade",
            async |doors| {
                let handshake = doors.handshake(&format!("{RAW}&language=tlh")).await;
                let message = "No such model/language/tier combination found.";
                assert_eq!((handshake.status, &handshake.body["err_msg"]), (400, &json!(message)));
            },
        ),
        row("wire 3", "search finds terms in each result", async |doors| {
            let (messages, _) = streamed(doors, "search=w5&punctuate=true", &[(5, 0.5, 0.5)]).await;
            let search = &messages[0]["channel"]["search"][0];
            assert_eq!((&search["query"], &search["hits"][0]["snippet"]), (&json!("w5"), &json!("w5")));
        }),
        row("wire 3", "extra and tag come back in the messages' metadata", async |doors| {
            let (messages, _) = streamed(doors, "extra=a:b&tag=t", &[(5, 0.5, 0.5)]).await;
            assert_eq!(messages[0]["metadata"]["extra"], json!({"a": "b"}));
            assert_eq!(messages.last().expect("metadata")["tags"], json!(["t"]));
        }),
        row("wire 3", "a parameter that only files have is accepted with a warning", async |doors| {
            let (messages, _) = streamed(doors, "utterances=true", &[(5, 0.5, 0.5)]).await;
            assert_eq!(messages.last().expect("metadata")["warnings"][0]["parameter"], "utterances");
        }),
        row("wire 3", "language=multi says the language of words and alternatives", async |doors| {
            let (messages, _) = streamed(doors, "language=multi", &[(5, 0.5, 0.5)]).await;
            let alternative = &messages[0]["channel"]["alternatives"][0];
            assert_eq!(
                (&alternative["languages"], &alternative["words"][0]["language"]),
                (&json!(["en"]), &json!("en"))
            );
        }),
        row(
            "wire 4",
            "a handshake with content-type: application/json is one like any other",
            async |doors| {
                let token = format!("token, {}", doors.listener.key);
                let headers =
                    [("sec-websocket-protocol", token.as_str()), ("content-type", "application/json")];
                let path = format!("/v1/listen?{RAW}");
                assert_eq!(crate::socket::connect(doors.listener.address, &path, &headers).await.status, 101);
            },
        ),
        row("wire 6", "the usual parameters of agent frameworks are all taken", async |doors| {
            let query = "model=nova-3&no_delay=true&endpointing=25&vad_events=true&filler_words=true&\
                         interim_results=true&profanity_filter=false&numerals=false&mip_opt_out=true&punctuate=true";
            assert_eq!(doors.handshake(&format!("{RAW}&{query}")).await.status, 101);
        }),
        row("wire 3", "language, smart_format and keyterm of files hold for streams", async |doors| {
            let query = "language=en-US&smart_format=true&keyterm=Verbatim";
            let (messages, _) = streamed(doors, query, &[(5, 0.5, 0.5)]).await;
            let word = &messages[0]["channel"]["alternatives"][0]["words"][0];
            assert!(word["punctuated_word"].is_string(), "{word}");
        }),
    ]
}
