//! Live streams: `Configure`, search, and values that are passed through.

use std::collections::HashMap;

use serde_json::{Value, json};
use verbatim::live::Config;

use crate::live::{RAW, open, start};
use crate::server::{Setup, TERMS, TestServer};
use crate::socket::{Said, Socket};
use crate::tones::{bytes, utter};

/// The model that reads a number from the first sample, which must be loud enough to be voice.
async fn reader(says: &[(i16, &'static str)]) -> TestServer {
    TestServer::start(Setup { says: HashMap::from_iter(says.iter().copied()), ..Setup::default() }).await
}

/// The results of a second in which the reading model finds `number`, wherever its window begins; after so
/// much silence that nothing before it helps to hear it.
async fn heard(socket: &mut Socket, number: i16) -> Value {
    finalized(socket, &[0; 48_000]).await;
    finalized(socket, &[number; 16_000]).await
}

async fn finalized(socket: &mut Socket, samples: &[i16]) -> Value {
    socket.audio(&bytes(samples)).await;
    socket.control("Finalize").await;
    socket.message().await
}

fn transcript(results: &Value) -> &str {
    results["channel"]["alternatives"][0]["transcript"].as_str().expect("a transcript")
}

#[tokio::test]
async fn features_and_keyterms_can_be_changed_on_the_way() {
    let server = reader(&[(3000, "I have twenty three dogs")]).await;
    let mut socket = open(&server, &format!("{RAW}&keyterm=Old&language=en")).await;
    assert_eq!(transcript(&heard(&mut socket, 3000).await), "I have twenty three dogs");
    assert_eq!(transcript(&heard(&mut socket, TERMS).await), "Old:1");

    socket.text(r#"{"type":"Configure","features":{"numerals":true},"keyterms":["New York","Ada"]}"#).await;
    let said = socket.message().await;
    assert_eq!((&said["type"], &said["keyterms"]), (&json!("ConfigureSuccess"), &json!(["New York", "Ada"])));
    assert_eq!(transcript(&heard(&mut socket, 3000).await), "I have 23 dogs");
    assert_eq!(transcript(&heard(&mut socket, TERMS).await), "New York:1 Ada:1");

    // A change that isn't possible leaves everything as it was.
    for (change, code) in [
        (r#"{"numerals":false,"telepathy":true}"#, "CONFIGURE_FEATURE_NOT_SUPPORTED"),
        (r#"{"multichannel":true}"#, "CONFIGURE_FEATURE_NOT_SUPPORTED"),
    ] {
        socket.text(&format!(r#"{{"type":"Configure","features":{change}}}"#)).await;
        let said = socket.message().await;
        assert_eq!((&said["type"], &said["code"]), (&json!("ConfigureFailure"), &json!(code)));
        assert_eq!(said["request_id"].as_str().map(str::len), Some(36));
    }
    assert_eq!(transcript(&heard(&mut socket, 3000).await), "I have 23 dogs");
    // Neither of the two is named: nothing changes, and that is done.
    socket.text(r#"{"type":"Configure","keyterms":null,"features":null}"#).await;
    let said = socket.message().await;
    assert_eq!((&said["type"], said.get("keyterms")), (&json!("ConfigureSuccess"), None));
    socket.text(r#"{"type":"Configure","keyterms":[]}"#).await;
    assert_eq!(socket.message().await["keyterms"], json!([]));
    assert_eq!(transcript(&heard(&mut socket, TERMS).await), "");
}

#[tokio::test]
async fn terms_are_searched_for_in_each_result_and_find_nothing_that_is_hidden() {
    let server = reader(&[(3000, "my card is 4111 1111 1111 1111 in London")]).await;
    let query = format!("{RAW}&search=London&search=4111&redact=pci&language=en");
    let mut socket = open(&server, &query).await;
    let results = heard(&mut socket, 3000).await;
    let search = results["channel"]["search"].as_array().expect("a search");
    assert_eq!((&search[0]["query"], &search[1]["query"]), (&json!("London"), &json!("4111")));
    assert_eq!(search[0]["hits"][0]["snippet"], "london");
    assert_eq!(search[0]["hits"][0]["confidence"], 1.0);
    assert!(
        search[1]["hits"].as_array().expect("hits").iter().all(|hit| hit["confidence"] != 1.0),
        "{search:?}"
    );
    assert!(!results.to_string().contains("1111"), "{results}");

    socket.control("CloseStream").await;
    assert_eq!(socket.rest().await.1, Said::Close(1000, String::new()));
    let mut plain = open(&server, RAW).await;
    assert_eq!(heard(&mut plain, 3000).await["channel"].get("search"), None);
}

#[tokio::test]
async fn the_requests_own_text_comes_back_and_what_belongs_to_files_is_warned_of() {
    let server = start(Config::default()).await;
    let query =
        "metadata=%7B%22a%22%3A1%7D&paragraphs=true&utterances=true&utt_split=1&alternatives=3&summarize=v2";
    let mut socket = open(&server, &format!("{RAW}&{query}")).await;
    socket.audio(&bytes(&utter(&[(5, 0.5, 0.1)]))).await;
    socket.control("CloseStream").await;
    let (messages, _) = socket.rest().await;
    let metadata = messages.last().expect("metadata");
    assert_eq!(metadata["metadata"], r#"{"a":1}"#);
    let warned: Vec<&str> = metadata["warnings"]
        .as_array()
        .expect("warnings")
        .iter()
        .filter_map(|warning| warning["parameter"].as_str())
        .collect();
    assert_eq!(warned, ["alternatives", "summarize", "paragraphs", "utterances", "utt_split"]);
}
