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
    let status = service.ready(&id).await;
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
    // Clients without a key are organisation 0.
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
    let status = service.ready(&id).await;
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
        let (_, start) = service.session(asked).await;
        let mut caller = Caller::greeted(&service, &start).await;
        caller.write("Where is the lift?").await;
        let heard = caller.listen().await;
        assert!(heard.contains(answer), "{heard}");
    }
}

/// As builders of websites make them: menus, banners, a table that places things, a list of questions.
static WEBSITE: &[(&str, &str)] = &[
    (
        "/",
        r##"<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Acme Dental | Home</title>
<style>.hero{color:red}</style><script>window.dataLayer=window.dataLayer||[];</script></head><body class="home">
<header class="site-header"><div class="logo"><a href="/">Acme</a></div><nav><ul><li><a href="/">Home</a><li><a href="/visit">Visit us</a><li><a href="/prices">Prices</a></ul></nav></header>
<main><section class="hero"><h1>Teeth for the whole family</h1><p>We have looked after the town since 1990.</p></section>
<section><header><h2>Opening hours</h2></header><div>We are open Monday to Friday from nine to five.</div>
<h3>Public holidays</h3>
We are closed on all public holidays.</section>
<section><h2>Our services</h2><ul class="grid"><li><span>Cleanings</span></li><li><span>Fillings</span></li><li>Root canals</li></ul></section>
<section id="faq"><h2>Questions</h2><details><summary>Do you treat children?</summary><div><p>Yes, from the age of three.</p></div></details>
<details><summary>Can I pay by card?</summary><p>We take all cards.</p></details></section></main>
<footer><a href="/visit">Visit us</a><a href="/imprint">Imprint</a></footer></body></html>"##,
    ),
    (
        "/visit",
        r##"<html><head><title>Visit us</title></head><body><table width="100%"><tr><td><ul><li><a href="/">Home</a></ul></td>
<td><h2>Parking</h2><p>The garage is<br>free for patients.</p><h2>How to find us</h2><p>12 Main Street<br>Springfield</p>
<dl><dt>Bus</dt><dd>Lines 4 and 9</dd><dt>Tram</dt><dd>Line 1</dd></dl></td></tr></table></body></html>"##,
    ),
    (
        "/prices",
        r##"<title>Prices</title><h1>Prices</h1><table><thead><tr><th>Treatment</th><th>Price</th><th>Duration</th></tr></thead>
<tbody><tr><td>Whitening</td><td>$200</td><td>an hour</td></tr><tr><td>Check-up</td><td>$60</td><td>20 minutes</td></tr></tbody></table>
<h2>Emergency</h2><p>Call us at once.</p>"##,
    ),
];

#[tokio::test]
async fn headings_items_and_cells_of_a_website_stand_apart_in_answers() {
    let (url, _door) = doubles::website(WEBSITE).await;
    let service = Service::start(Setup::default()).await;
    let (id, start) = service.session(json!({"website_url": url, "greeting": "Hello."})).await;
    let status = service.ready(&id).await;
    assert_eq!(status["knowledge"]["website"]["pages"], 3, "{}", status["knowledge"]);
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    for (question, answer) in [
        ("What are your opening hours?", "We are open Monday to Friday from nine to five."),
        ("What about public holidays?", "We are closed on all public holidays."),
        ("Which services do you offer?", "Cleanings. Fillings. Root canals."),
        ("Do you treat children?", "Yes, from the age of three."),
        ("Can I pay by card?", "We take all cards."),
        ("Is there parking?", "The garage is free for patients."),
        ("How much is whitening?", "Whitening: price $200, duration an hour."),
        ("Which bus goes there?", "Bus: Lines 4 and 9."),
    ] {
        caller.write(question).await;
        assert_eq!(caller.listen().await, answer, "{question}");
    }
    let lines = service.status(&id).await["transcript"].to_string();
    for heading in ["Opening hours We", "Parking The", "Our services", "Emergency Call", "Home"] {
        assert!(!lines.contains(heading), "{heading} in {lines}");
    }
}

#[tokio::test]
async fn headings_of_documents_stand_apart_as_well() {
    let documents = json!([
        {"title": "Clinic", "type": "text", "content": "# Acme Dental\n\n## Opening hours\n\nWe are open from nine to five.\n\n## Prices\n- Cleaning: $90\n- Filling: $150\n"},
        {"title": "", "type": "text", "content": "Parking\nThe garage is behind the building."},
    ]);
    let service = Service::start(Setup::default()).await;
    let (_, start) = service.session(json!({"documents": documents, "greeting": "Hello."})).await;
    let mut caller = Caller::greeted(&service, &start).await;
    for (question, answer) in [
        ("What are your opening hours?", "We are open from nine to five."),
        ("How much is a cleaning?", "Cleaning: $90."),
        ("What are the prices?", "Cleaning: $90. Filling: $150."),
        // A line that could be a heading, or not.
        ("Is there parking?", "Parking. The garage is behind the building."),
    ] {
        caller.write(question).await;
        assert_eq!(caller.listen().await, answer, "{question}");
    }
}
