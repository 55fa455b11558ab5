//! What a session answers from: documents by address, documents that lie ready, and what is said of those
//! that are not there.

use serde_json::json;

use super::doubles;
use super::room::Caller;
use super::service::{Service, Setup};

#[tokio::test]
async fn documents_are_read_from_their_addresses() {
    static PAGES: &[(&str, &str)] = &[
        ("/prices", "<title>Prices</title><nav>Home</nav><p>A cleaning costs ninety dollars.</p>"),
        ("/plain.txt", "Dogs are welcome in the waiting room."),
    ];
    let (url, _door) = doubles::website(PAGES).await;
    let service = Service::start(Setup::default()).await;
    let (id, start) = service
        .session(json!({"documents": [
            {"title": "", "type": "url", "content": format!("{url}/prices")},
            {"title": "Animals", "type": "url", "content": format!("{url}/plain.txt")},
            {"title": "Lost", "type": "url", "content": format!("{url}/nothing")},
            {"title": "Inside", "type": "url", "content": "http://10.0.0.1/secret"},
        ]}))
        .await;
    let status = service.until(&id, |status| status["knowledge"]["ready"] == true).await;
    let warnings = status["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].as_str().expect("text").contains("`Lost`"), "{warnings:?}");
    assert_eq!(warnings[1], "document `Inside`: the address is not a public one");
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    caller.write("How much is a cleaning?").await;
    assert_eq!(caller.listen().await, "A cleaning costs ninety dollars.");
    caller.write("Are dogs welcome?").await;
    assert_eq!(caller.listen().await, "Dogs are welcome in the waiting room.");
}

#[tokio::test]
async fn documents_that_lie_ready_are_named_by_their_id() {
    let folder = tempfile::tempdir().expect("a folder");
    // Those who show no key are organisation 0.
    for (tenant, id, text) in [
        ("0", "parking.txt", "Parking is free behind the building."),
        ("0", "results.html", "<p>Test results are ready after three days.</p>"),
        ("1", "secret.txt", "The safe is behind the painting."),
    ] {
        let documents = folder.path().join("documents").join(tenant);
        std::fs::create_dir_all(&documents).expect("writable");
        std::fs::write(documents.join(id), text).expect("writable");
    }
    let service = Service::start_in(folder.path(), Setup::default()).await;
    let ids = json!(["parking", "results", "gone", "secret", "../1/secret"]);
    let (id, start) = service.session(json!({"rag_doc_ids": ids, "rag_max_chunks_per_doc": 5})).await;
    let status = service.until(&id, |status| status["knowledge"]["ready"] == true).await;
    let missing = ["gone", "secret", "../1/secret"].map(|id| format!("document `{id}` is not there"));
    assert_eq!(status["warnings"], json!(missing));
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    caller.write("Where can I park?").await;
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
    caller.write("When are results ready?").await;
    assert_eq!(caller.listen().await, "Test results are ready after three days.");
    caller.write("Where is the safe?").await;
    assert!(caller.listen().await.contains("don't have that information"));
}

#[tokio::test]
async fn an_answer_is_made_of_the_best_passages_of_a_document_and_of_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let documents = folder.path().join("documents/0");
    std::fs::create_dir_all(&documents).expect("writable");
    let history: String =
        (1..60).map(|year| format!("In year {year} the house got a new roof and a new owner. ")).collect();
    let text = format!("{history}The lift is behind the reception.");
    std::fs::write(documents.join("house.txt"), text).expect("writable");
    let service = Service::start_in(folder.path(), Setup::default()).await;
    for (passages, answer) in [(1, "The lift is behind the reception."), (0, "don't have that information")] {
        let asked = json!({"rag_doc_ids": ["house"], "rag_max_chunks_per_doc": passages});
        let (id, start) = service.session(asked).await;
        service.until(&id, |status| status["knowledge"]["ready"] == true).await;
        let mut caller = Caller::join(&service, &start).await;
        caller.listen().await;
        caller.write("Where is the lift?").await;
        let heard = caller.listen().await;
        assert!(heard.contains(answer), "{heard}");
    }
}
