//! Redaction as a client of a live stream meets it: in interims and finals, with other features on, over
//! finals that cut a number, in channels, and at a callback.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use verbatim::fetch;
use verbatim::live::Config;

use crate::live::{RAW, open, transcript};
use crate::receiver::{Receiver, callback_parameter};
use crate::redaction::{Entry, corpus, leaks};
use crate::server::{Setup, TestServer};
use crate::socket::{Said, Socket};
use crate::tones::{Listener, Script, bytes, utter};

const WORD_SECONDS: f64 = 0.15;
/// Pings for the results of a piece, which need a few; some pieces have none.
const ROUNDS: usize = 20;
const SETTINGS: [(&str, char); 5] = [
    ("redact=numbers", 'n'),
    ("redact=true&redact_mode=label", 'n'),
    ("redact=aggressive_numbers", 'a'),
    ("redact=ssn&redact_mode=label", 's'),
    ("redact=pci", 'p'),
];
const FEATURES: [&str; 6] = [
    "punctuate=true",
    "smart_format=true",
    "numerals=true&punctuate=true",
    "dictation=true&filler_words=true",
    "search=four&search=123&replace=number:figure&replace=is",
    "punctuate=false&measurements=true",
];

async fn server(script: &Script) -> TestServer {
    let model = Box::new(Listener::saying(script.clone()));
    let live = Config { hop_ms: 100, ..Config::default() };
    TestServer::start(Setup { live, model: Some(model), ..Setup::default() }).await
}

fn say(script: &Script, words: &[&str]) {
    *script.lock().expect("nothing panics while it is held") =
        words.iter().map(|word| (*word).to_owned()).collect();
}

/// Words `from..to` of the script, in sequence.
fn audio(from: usize, to: usize) -> Vec<u8> {
    let words: Vec<(u8, f64, f64)> = (from..to).map(|word| (word as u8 + 1, WORD_SECONDS, 0.0)).collect();
    bytes(&utter(&words))
}

/// Sends it piece by piece, each after the results of the previous one, if it has any; adds all answers to `into`.
async fn send(socket: &mut Socket, audio: &[u8], into: &mut Vec<Value>) {
    for piece in audio.chunks(3200) {
        socket.audio(piece).await;
        let before = into.len();
        for _ in 0..ROUNDS {
            socket.frame(0x89, b"?").await;
            loop {
                match socket.said().await {
                    Said::Message(message) => into.push(message),
                    Said::Pong(_) => break,
                    other => panic!("{other:?}"),
                }
            }
            if into.len() > before {
                break;
            }
        }
    }
}

async fn close(mut socket: Socket, mut messages: Vec<Value>) -> Vec<Value> {
    socket.control("CloseStream").await;
    let (rest, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    messages.extend(rest);
    messages
}

/// Each text that a message shows, in words.
fn texts(message: &Value) -> Vec<Vec<String>> {
    let alternative = &message["channel"]["alternatives"][0];
    let split =
        |text: &Value| text.as_str().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let mut texts: Vec<Vec<String>> = vec![split(&alternative["transcript"])];
    for field in ["word", "punctuated_word"] {
        let words = alternative["words"].as_array().expect("words").iter();
        texts.push(words.filter_map(|word| word[field].as_str()).map(str::to_owned).collect());
    }
    for search in message["channel"]["search"].as_array().into_iter().flatten() {
        texts.extend(search["hits"].as_array().expect("hits").iter().map(|hit| split(&hit["snippet"])));
    }
    texts
}

#[track_caller]
fn assert_nothing_leaks(entry: &Entry, messages: &[Value], query: &str) {
    let results: Vec<&Value> = messages.iter().filter(|message| message["type"] == "Results").collect();
    assert!(!results.is_empty(), "{messages:?}");
    for message in results {
        for shown in texts(message) {
            let leaks = leaks(&entry.words, &entry.secrets(), &shown);
            assert_eq!(leaks, Vec::<&str>::new(), "{query}: {shown:?} of {:?}: {message}", entry.text());
        }
    }
}

fn is_interim(message: &&Value) -> bool {
    message["is_final"] == false
}

/// Every number of the corpus, with each of the classes that hide it in turn, and with the other features.
#[tokio::test]
async fn nothing_leaks_while_a_number_is_said() {
    let script = Script::default();
    let server = server(&script).await;
    let (mut streams, mut interims) = (0, 0);
    for (index, entry) in corpus().iter().enumerate() {
        let hiding: Vec<_> = SETTINGS.iter().filter(|(_, letter)| entry.is_hidden_by(*letter)).collect();
        let (setting, _) = hiding[index % hiding.len()];
        let query =
            format!("{RAW}&interim_results=true&language=en&{setting}&{}", FEATURES[index % FEATURES.len()]);
        say(&script, &entry.words);
        let mut socket = open(&server, &query).await;
        let mut messages = Vec::new();
        send(&mut socket, &audio(0, entry.words.len()), &mut messages).await;
        let messages = close(socket, messages).await;
        assert_nothing_leaks(entry, &messages, &query);
        streams += 1;
        interims += messages.iter().filter(is_interim).count();
    }
    println!("{streams} streams, {interims} interim results, none leaks");
    assert!(interims > streams, "{interims} interims in {streams} streams");
}

/// `Finalize`, and a pause, in the middle of each number: neither final shows its part.
#[tokio::test]
async fn nothing_leaks_where_a_final_cuts_a_number() {
    let script = Script::default();
    let server = server(&script).await;
    let mut cuts = 0;
    for (index, entry) in corpus().iter().enumerate() {
        let secrets = entry.secrets();
        let (Some(first), Some(last)) = (secrets.first(), secrets.last()) else { continue };
        if first == last {
            continue;
        }
        let cut = first + 1 + index % (last - first);
        let hiding: Vec<_> = SETTINGS.iter().filter(|(_, letter)| entry.is_hidden_by(*letter)).collect();
        let (setting, _) = hiding[index % hiding.len()];
        let query = format!("{RAW}&interim_results=true&language=en&{setting}");
        say(&script, &entry.words);
        let mut socket = open(&server, &query).await;
        let mut messages = Vec::new();
        send(&mut socket, &audio(0, cut), &mut messages).await;
        if index % 2 == 0 {
            socket.control("Finalize").await;
        } else {
            send(&mut socket, &[0; 16_000], &mut messages).await;
        }
        send(&mut socket, &audio(cut, entry.words.len()), &mut messages).await;
        let messages = close(socket, messages).await;
        assert_nothing_leaks(entry, &messages, &query);
        let finals = messages.iter().filter(|message| message["is_final"] == true);
        cuts += usize::from(finals.filter(|message| !transcript(message).is_empty()).count() > 1);
    }
    println!("{cuts} numbers were cut");
    assert!(cuts > 200, "{cuts} numbers were cut");
}

#[tokio::test]
async fn what_is_no_secret_is_shown_in_finals() {
    let script = Script::default();
    let server = server(&script).await;
    for (setting, said) in [
        ("redact=ssn", "I was born in 1984."),
        ("redact=pci", "1984 was a year and we had two dogs"),
        ("redact=ssn", "Call me at 415-555-0132 after lunch."),
        ("redact=ssn&redact_mode=label", "I want that one."),
    ] {
        let words: Vec<&str> = said.split(' ').collect();
        say(&script, &words);
        let mut socket = open(&server, &format!("{RAW}&interim_results=true&language=en&{setting}")).await;
        let mut messages = Vec::new();
        send(&mut socket, &audio(0, words.len()), &mut messages).await;
        let messages = close(socket, messages).await;
        let last = messages.iter().rfind(|message| message["is_final"] == true).expect("a final");
        assert_eq!(transcript(last), said);
    }
}

#[tokio::test]
async fn each_channel_has_its_own_numbers() {
    let script = Script::default();
    let server = server(&script).await;
    let words =
        "My social is 912 born in 1984 you know 34 5678 okay thanks a lot".split(' ').collect::<Vec<_>>();
    say(&script, &words);
    let query = format!("{RAW}&channels=2&multichannel=true&interim_results=true&redact=ssn&punctuate=true");
    let mut socket = open(&server, &query).await;
    // The first channel's number is cut; meanwhile the second one speaks of a year.
    let stereo = |left: &[u8], right: &[u8]| -> Vec<u8> {
        let silence = [0, 0];
        let samples = left.len().max(right.len()) / 2;
        let at = |channel: &[u8], sample: usize| -> [u8; 2] {
            channel.get(sample * 2..sample * 2 + 2).and_then(|bytes| bytes.try_into().ok()).unwrap_or(silence)
        };
        (0..samples).flat_map(|sample| [at(left, sample), at(right, sample)].concat()).collect()
    };
    let mut messages = Vec::new();
    send(&mut socket, &stereo(&audio(0, 4), &audio(4, 9)), &mut messages).await;
    socket.control("Finalize").await;
    send(&mut socket, &stereo(&audio(9, 15), &[]), &mut messages).await;
    let messages = close(socket, messages).await;
    let finals = |channel: u64| -> Vec<&str> {
        let of =
            messages.iter().filter(|m| m["is_final"] == true && m["channel_index"] == json!([channel, 2]));
        of.map(transcript).filter(|text| !text.is_empty()).collect()
    };
    assert_eq!(finals(0), ["My social is ***", "** **** okay thanks a lot"]);
    assert_eq!(finals(1), ["born in 1984 you know"]);
    let shown: Vec<&Value> =
        messages.iter().filter(|message| message["channel_index"] == json!([0, 2])).collect();
    assert!(shown.iter().all(|message| {
        !["912", "34", "5678"]
            .iter()
            .any(|part| texts(message).iter().flatten().any(|word| word.contains(part)))
    }));
}

#[tokio::test]
async fn what_is_configured_on_the_way_brings_no_number_back() {
    let script = Script::default();
    let server = server(&script).await;
    let words = "It is nine one two three four five six seven eight for you".split(' ').collect::<Vec<_>>();
    say(&script, &words);
    let mut socket = open(&server, &format!("{RAW}&interim_results=true&language=en&redact=ssn")).await;
    let mut messages = Vec::new();
    send(&mut socket, &audio(0, 6), &mut messages).await;
    socket.text(r#"{"type":"Configure","features":{"numerals":true,"smart_format":true}}"#).await;
    // A stream's redaction cannot change once it is open.
    socket.text(r#"{"type":"Configure","features":{"redact":false}}"#).await;
    send(&mut socket, &audio(6, words.len()), &mut messages).await;
    let messages = close(socket, messages).await;
    let kinds: Vec<&str> = messages.iter().filter_map(|message| message["type"].as_str()).collect();
    assert!(kinds.contains(&"ConfigureSuccess") && kinds.contains(&"ConfigureFailure"), "{kinds:?}");
    let results: Vec<&Value> = messages.iter().filter(|message| message["type"] == "Results").collect();
    assert_eq!(transcript(results[results.len() - 1]), "It is * * * * * * * * * for you");
    let digits = ["nine", "one", "two", "three", "four", "five", "six", "seven", "eight"];
    for word in results.iter().flat_map(|message| texts(message)).flatten() {
        assert!(
            !digits.contains(&word.to_lowercase().as_str()) && !word.contains(char::is_numeric),
            "{word}"
        );
    }
}

#[tokio::test]
async fn a_callback_is_told_no_more_than_a_client() {
    let script: Script = Arc::new(Mutex::new(Vec::new()));
    let mut receiver = Receiver::start(&[]).await;
    let fetch = fetch::Config { allow: vec![receiver.allowed()], ..fetch::Config::default() };
    let model = Box::new(Listener::saying(script.clone()));
    let live = Config { hop_ms: 100, ..Config::default() };
    let server = TestServer::start(Setup { live, fetch, model: Some(model), ..Setup::default() }).await;
    let words = "Take 4111 1111. 1111 1111, please, and the CVV is 123 right".split(' ').collect::<Vec<_>>();
    say(&script, &words);
    let callback = callback_parameter(&format!("http://127.0.0.1:{}/live", receiver.port));
    let query = format!("{RAW}&interim_results=true&redact=pci&redact_mode=label&{callback}");
    let mut socket = open(&server, &query).await;
    send(&mut socket, &audio(0, 3), &mut Vec::new()).await;
    socket.control("Finalize").await;
    send(&mut socket, &audio(3, words.len()), &mut Vec::new()).await;
    close(socket, Vec::new()).await;
    let mut finals = Vec::new();
    loop {
        let message = receiver.next().await.json();
        if message["type"] == "Metadata" {
            break;
        }
        let shown = texts(&message);
        assert!(!shown.iter().flatten().any(|word| word.contains(char::is_numeric)), "{message}");
        if message["is_final"] == true && !transcript(&message).is_empty() {
            finals.push(transcript(&message).to_owned());
        }
    }
    assert_eq!(finals, ["Take [PCI].", "[PCI], please, and the CVV is [PCI] right"]);
}
