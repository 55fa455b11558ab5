//! Documents that arrive slowly or not at all: they delay only their own session, and only for a limited time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::doubles;
use super::ended::leave;
use super::room::Caller;
use super::service::{Service, Setup};
use crate::hosts::Silent;
use crate::server::answer;

static PAGES: &[(&str, &str)] = &[("/dogs.txt", "Dogs are welcome in the waiting room.")];

/// Nothing but an end stops the reading.
fn patient() -> Setup {
    let mut setup = Setup::default();
    (setup.config.crawl.page_timeout_ms, setup.config.crawl.total_timeout_ms) = (600_000, 600_000);
    setup.config.crawl.reading_timeout_ms = 600_000;
    setup
}

fn document(title: &str, url: String) -> Value {
    json!({"title": title, "type": "url", "content": url})
}

#[tokio::test]
async fn slow_documents_of_one_organisation_keep_no_other_waiting() {
    let mut silent = Silent::start().await;
    let (url, _door) = doubles::website(PAGES).await;
    let service = Service::start(patient()).await;
    let slow: Vec<Value> = (0..100).map(|n| document("Slow", format!("{}/{n}", silent.url))).collect();
    let start = json!({"action": "start", "documents": slow});
    for _ in 0..8 {
        let (status, body) = answer(service.request(&start).bearer_auth(&service.keys[0])).await;
        assert_eq!(status, 200, "{body}");
    }
    // They have as many turns as they get; the others wait.
    silent.until(|seen| seen.open == 6).await;
    let fast = json!({"documents": [document("Dogs", format!("{url}/dogs.txt"))], "website_url": url});
    let (id, _) = service.session(fast).await;
    let status = service.ready(&id).await;
    assert_eq!(status["knowledge"]["passages"], 1, "{status}");
    assert_eq!(silent.seen.borrow().open, 6, "the slow ones wait still");
}

#[tokio::test]
async fn what_was_read_by_the_deadline_stands_and_the_rest_is_named() {
    let silent = Silent::start().await;
    let (url, _door) = doubles::website(PAGES).await;
    let mut setup = patient();
    setup.config.crawl.reading_timeout_ms = 3000;
    let service = Service::start(setup).await;
    let mut documents = vec![document("Dogs", format!("{url}/dogs.txt"))];
    // More than are fetched at once, so that some are never asked for.
    documents.extend((0..6).map(|n| document(&format!("Slow {n}"), format!("{}/{n}", silent.url))));
    documents.push(document("", format!("{}/nameless", silent.url)));
    let start = json!({"greeting": "Hello.", "documents": documents, "website_url": silent.url});
    let (id, started) = service.session(start).await;
    let status = service.ready(&id).await;
    let warnings: BTreeSet<&str> = status["warnings"]
        .as_array()
        .expect("warnings")
        .iter()
        .map(|text| text.as_str().expect("text"))
        .collect();
    let late = "the time for reading was over";
    let mut expected: BTreeSet<String> = (0..6).map(|n| format!("document `Slow {n}`: {late}")).collect();
    expected.insert(format!("document `{}/nameless`: {late}", silent.url));
    expected.insert(format!("`website_url` was not read: {late}"));
    assert_eq!(warnings, expected.iter().map(String::as_str).collect());
    assert_eq!(status["knowledge"]["website"]["status"], "failed");
    let mut caller = Caller::join(&service, &started).await;
    caller.listen().await;
    caller.write("Are dogs welcome?").await;
    assert_eq!(caller.listen().await, "Dogs are welcome in the waiting room.");
}

#[tokio::test]
async fn a_session_that_ends_stops_reading() {
    let mut silent = Silent::start().await;
    let service = Service::start(patient()).await;
    let start = json!({"greeting": "Hello.", "documents": [document("Slow", format!("{}/a", silent.url))]});
    let (id, started) = service.session(start).await;
    silent.until(|seen| seen.open == 1).await;
    leave(&service, &started).await;
    silent.until(|seen| seen.open == 0).await;
    let status = service.status(&id).await;
    assert_eq!((&status["status"], &status["knowledge"]["ready"]), (&json!("ended"), &json!(false)));
}

#[tokio::test]
async fn after_a_restart_open_sessions_read_on_and_ended_ones_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut silent = Silent::start().await;
    let reads = |path: &str| {
        let document = document("Slow", format!("{}{path}", silent.url));
        json!({"greeting": "Hello.", "documents": [document]})
    };
    let (open, ended) = (reads("/open"), reads("/ended"));
    let service = Service::start_in(folder.path(), patient()).await;
    service.session(open).await;
    let (_, started) = service.session(ended).await;
    silent.until(|seen| seen.open == 2).await;
    leave(&service, &started).await;
    service.stop().await;
    silent.until(|seen| seen.open == 0).await;

    let service = Service::start_in(folder.path(), patient()).await;
    silent.until(|seen| seen.open == 1).await;
    // All that is read after a restart begins before this one.
    let (id, _) = service.session(json!({"documents": []})).await;
    service.ready(&id).await;
    assert_eq!((silent.count("/open"), silent.count("/ended")), (2, 1));
}
