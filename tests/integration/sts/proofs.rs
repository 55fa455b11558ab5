//! No reader sees the proofs that callers give: not in status, in the room's events, on disk nor at the chat
//! interface; while the agent asks for one, after it was right, and after the lock-out.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use verbatim::secret::Secret;

use super::doubles::Double;
use super::room::{Caller, recording};
use super::service::{Service, Setup};
use super::voices;

/// The right code, and other answers of callers.
const RIGHT: &str = "1234";
const CODES: [&str; 7] = ["1234", "4567", "9876", "four five", "six seven", "nine eight", "one two"];

fn start() -> Value {
    json!({
        "greeting": "Hello.",
        "documents": [{"title": "Parking", "type": "text", "content": "Parking is free behind the building."}],
        "verification_rules": {"patient_information": {
            "voice_prompt": "Your digits, please.", "voice_prompt_short": "Again, please.",
        }},
    })
}

async fn with_records(folder: &Path, mut setup: Setup) -> Service {
    let records = folder.join("records.json");
    std::fs::write(&records, format!(r#"[{{"digits": "{RIGHT}"}}]"#)).expect("writable");
    setup.config.verification.records = Some(records);
    Service::start_in(folder, setup).await
}

async fn join(service: &Service) -> (String, Caller) {
    let (id, started) = service.session(start()).await;
    service.ready(&id).await;
    let mut caller = Caller::join(service, &started).await;
    caller.listen().await;
    (id, caller)
}

/// Asks for something secured and gives wrong answers until no more are taken.
async fn lock_out(caller: &mut Caller) {
    caller.write("What are my test results?").await;
    assert_eq!(caller.listen().await, "Your digits, please.");
    for (wrong, reply) in [
        ("4567", "Again, please."),
        ("four five six seven", "Again, please."),
        ("It's 98 76.", "could not verify"),
    ] {
        caller.write(wrong).await;
        let said = caller.listen().await;
        assert!(said.contains(reply), "{said} to {wrong}");
    }
}

fn assert_hidden(what: &str, text: &str) {
    let text = text.to_lowercase();
    for code in CODES {
        assert!(!text.contains(code), "{code} is in {what}: {text}");
    }
}

/// Every text of the sessions that lie on disk.
fn assert_not_on_disk(folder: &Path) {
    let kept = rusqlite::Connection::open(folder.join("sts.sqlite3")).expect("a database");
    let mut rows = kept.prepare("SELECT state FROM sessions").expect("a table");
    let rows = rows.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let mut count = 0;
    for row in rows {
        let row: Value = serde_json::from_str(&row.expect("text")).expect("JSON");
        for part in ["transcript", "page", "completion", "verifications", "warnings", "announcements"] {
            // Times have digits of their own.
            let mut part = row[part].clone();
            without_numbers(&mut part);
            assert_hidden("a row", &part.to_string());
        }
        assert!(row.get("given").is_none());
        count += 1;
    }
    assert!(count > 0);
}

fn without_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_numbers),
        Value::Object(map) => map.values_mut().for_each(without_numbers),
        Value::Number(_) => *value = Value::Null,
        _ => {}
    }
}

async fn assert_nowhere(service: &Service, id: &str, folder: &Path) {
    let status = service.status(id).await;
    let texts = |part: &str| match &status[part] {
        Value::Array(lines) if part == "transcript" => {
            lines.iter().map(|line| line["text"].clone()).collect()
        }
        // Times have digits of their own.
        Value::Object(map) => {
            map.iter().filter(|(name, _)| *name != "at").map(|(_, inner)| inner.clone()).collect()
        }
        other => vec![other.clone()],
    };
    for part in ["transcript", "page_context", "completion", "warnings"] {
        assert_hidden(part, &json!(texts(part)).to_string());
    }
    let verification = status["verification"].as_object().expect("an object");
    verification.values().for_each(|state| assert_hidden("details", &state["details"].to_string()));
    assert_not_on_disk(folder);
}

/// The caller's next line as the room shows it.
async fn line(caller: &mut Caller) -> String {
    let line = caller.find(|m| m["type"] == "ConversationText" && m["role"] == "user").await;
    line["content"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn digits_after_a_lock_out_are_shown_nowhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = with_records(folder.path(), Setup::default()).await;
    let (id, mut caller) = join(&service).await;
    lock_out(&mut caller).await;
    let status = service.status(&id).await;
    assert_eq!(status["verification"]["patient_information"]["locked"], true);
    assert_eq!(status["pending_verification"], Value::Null);
    for (text, hidden) in [
        ("4567", "••••"),
        ("four five six seven", "••••"),
        ("Four, five.", "••••."),
        ("six for seven", "••••"),
        ("45-67!", "••••!"),
        ("My number is forty-five 67, let me in", "My number is ••••, let me in"),
    ] {
        caller.write(text).await;
        assert_eq!(line(&mut caller).await, hidden, "{text}");
        let said = caller.listen().await;
        assert!(hidden.len() > 20 || said.contains("could not verify"), "{said} to {text}");
    }
    // On the keypad, in several pieces.
    for keys in ["45#", "67#", "4567", "9"] {
        caller.key(keys).await;
        assert_eq!(line(&mut caller).await, "••••", "{keys}");
        assert!(caller.listen().await.contains("could not verify"), "{keys}");
    }
    // The talk goes on.
    caller.write("Where can I park?").await;
    assert_eq!(line(&mut caller).await, "Where can I park?");
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
    assert_nowhere(&service, &id, folder.path()).await;
    service.stop().await;
    let service = with_records(folder.path(), Setup::default()).await;
    assert_nowhere(&service, &id, folder.path()).await;
}

#[tokio::test]
async fn speech_after_a_lock_out_is_hidden_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    // The digits are really heard.
    let ears = voices::ears(&[None, Some("Four five six seven."), Some("Where can I park?")]);
    let service = with_records(folder.path(), Setup { recognize: Some(ears), ..Setup::default() }).await;
    let (id, mut caller) = join(&service).await;
    lock_out(&mut caller).await;
    caller.speak(&voices::one_to_four().await).await;
    let heard = voices::patiently(line(&mut caller)).await;
    assert!(heard.contains("••••"), "{heard}");
    assert!(caller.listen().await.contains("could not verify"));
    caller.speak(&recording("en_quick_brown_fox.wav")).await;
    assert_eq!(line(&mut caller).await, "••••.");
    assert!(caller.listen().await.contains("could not verify"));
    caller.speak(&recording("en_quick_brown_fox.wav")).await;
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
    assert_nowhere(&service, &id, folder.path()).await;
}

#[tokio::test]
async fn digits_before_the_question_and_after_the_answer_are_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = with_records(folder.path(), Setup::default()).await;
    let (id, mut caller) = join(&service).await;
    // Given without being asked.
    caller.write("My code is 9876, what are my test results?").await;
    assert_eq!(line(&mut caller).await, "My code is ••••, what are my test results?");
    assert_eq!(caller.listen().await, "Your digits, please.");
    // The question is withdrawn, and the caller answers it anyway.
    caller.write("Never mind.").await;
    caller.listen().await;
    caller.write("nine eight").await;
    assert_eq!(line(&mut caller).await, "••••");
    caller.listen().await;
    caller.write("What are my test results?").await;
    caller.listen().await;
    caller.key(RIGHT).await;
    assert_eq!(line(&mut caller).await, "••••");
    assert!(caller.listen().await.contains("you are verified"));
    caller.listen().await;
    // Repeated after it was right; other numbers can be read again.
    for (text, hidden) in [
        ("Yes, it is 1234.", "Yes, it is ••••."),
        ("I have 2 dogs.", "I have 2 dogs."),
        ("At 10:30?", "At 10:30?"),
    ] {
        caller.write(text).await;
        assert_eq!(line(&mut caller).await, hidden);
        caller.listen().await;
    }
    caller.key("12#").await;
    assert_eq!(line(&mut caller).await, "••••");
    caller.listen().await;
    assert_nowhere(&service, &id, folder.path()).await;
}

#[tokio::test]
async fn a_page_a_completion_and_details_bring_no_digits_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = with_records(folder.path(), Setup::default()).await;
    let (id, mut caller) = join(&service).await;
    lock_out(&mut caller).await;
    let fields =
        json!([{"name": "ssn_last4", "value": "1234", "filled": true}, {"name": "code", "value": "4567"}]);
    let page = json!({"page": "/forms", "date_of_birth": "1984-03-09", "note": "said 9876", "sections": [{"fields": fields}]});
    service.act(json!({"action": "page_context", "session_id": id, "page_context": page})).await;
    let expected = json!({"page": "/forms", "note": "said ••••",
        "sections": [{"fields": [{"name": "ssn_last4", "filled": true}, {"name": "code", "value": "••••"}]}]});
    assert_eq!(caller.message("PageContextUpdated").await["page_context"], expected);
    let status = service.status(&id).await;
    assert_eq!(status["page_context"], expected);
    // By the room's own message, too; a page that is too large is none.
    for (context, warned) in [(page.clone(), false), (json!({"page": "x".repeat(40_000)}), true)] {
        caller.send(json!({"type": "PageContext", "page_context": context})).await;
        let answer = caller.find(|m| m["type"] == "PageContextUpdated" || m["type"] == "Warning").await;
        assert_eq!(answer["type"] == "Warning", warned, "{answer}");
        assert_hidden("the room", &answer.to_string());
    }

    let completion = json!({"action": "completion", "session_id": id, "message": "Done for 4567.",
        "updated_fields": {"ssn_last4": "1234", "names": ["ssn_last4"], "code": 4567}});
    let reply = service.act(completion).await;
    assert_hidden("the reply", &reply.to_string());
    assert_eq!(caller.message("CompletionNotice").await["message"], "Done for ••••.");
    let status = service.status(&id).await;
    assert_eq!(status["completion"]["updated_fields"], json!({"names": ["ssn_last4"], "code": "••••"}));
    let verification = json!({"action": "verification", "session_id": id, "category": "form", "verified": true,
        "details": {"ssn_last4": "4567", "utterance": "It is 4567"}});
    service.act(verification).await;
    let status = service.status(&id).await;
    assert_eq!(status["verification"]["form"]["details"], json!({"utterance": "It is ••••"}));
    assert_nowhere(&service, &id, folder.path()).await;
}

#[tokio::test]
async fn a_hook_that_repeats_what_it_was_asked_is_not_quoted() {
    let hook = Double::start("/hook", |body| {
        let asked: Value = serde_json::from_str(body).expect("JSON");
        let details = json!({"heard": asked["utterance"], "ssn_last4": "4567", "sms_catalog_key": "forms"});
        (hyper::StatusCode::OK, json!({"verified": false, "details": details}))
    })
    .await;
    let mut setup = Setup::default();
    setup.config.verification.hook_url = Some(format!("{}/hook", hook.url));
    setup.config.verification.hook_api_key = Some(Secret::from("demo"));
    let service = Service::start(setup).await;
    let (id, mut caller) = join(&service).await;
    lock_out(&mut caller).await;
    let status = service.status(&id).await;
    let details = &status["verification"]["patient_information"]["details"];
    assert_eq!(*details, json!({"heard": "It's ••••.", "sms_catalog_key": "forms"}));
    assert_eq!(hook.bodies().len(), 3);
    // After the lock-out the service asks the hook no more.
    caller.key(RIGHT).await;
    assert!(caller.listen().await.contains("could not verify"));
    assert_eq!(hook.bodies().len(), 3);
}

#[tokio::test]
async fn a_hook_that_is_away_leaves_no_digits_behind() {
    let mut setup = Setup::default();
    // Nothing listens at that port.
    setup.config.verification.hook_url = Some("http://127.0.0.1:1/hook".into());
    setup.config.verification.timeout_ms = Duration::from_secs(2).as_millis() as u64;
    let service = Service::start(setup).await;
    let (id, mut caller) = join(&service).await;
    caller.write("What are my test results?").await;
    caller.listen().await;
    caller.write("1234").await;
    assert!(caller.listen().await.contains("can't check that"));
    caller.write("It's one two three four!").await;
    assert_eq!(line(&mut caller).await, "It's ••••!");
    caller.listen().await;
    let status = service.status(&id).await;
    assert_eq!(status["verification"], json!({}), "this is no wrong answer");
    assert_hidden("the transcript", &status["transcript"].to_string());
}

#[tokio::test]
async fn a_chat_model_is_not_told_the_digits() {
    let model = Double::start("/v1/chat/completions", |_| (hyper::StatusCode::BAD_GATEWAY, json!({}))).await;
    let mut setup = Setup::default();
    setup.config.chat.base_url = Some(format!("{}/v1", model.url));
    let folder = tempfile::tempdir().expect("a folder");
    let service = with_records(folder.path(), setup).await;
    let (id, mut caller) = join(&service).await;
    lock_out(&mut caller).await;
    caller.write("Where can I park with number 4567?").await;
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
    let asked = model.bodies();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains("Where can I park with number ••••?"), "{}", asked[0]);
    assert_hidden("the chat", &asked[0]);
    assert_nowhere(&service, &id, folder.path()).await;
}

#[tokio::test]
async fn where_nothing_is_proved_numbers_can_be_read() {
    let service = Service::start(Setup::default()).await;
    let (id, started) = service.session(json!({"greeting": "Hello."})).await;
    let mut caller = Caller::join(&service, &started).await;
    caller.listen().await;
    caller.write("My order is 4567.").await;
    assert_eq!(line(&mut caller).await, "My order is 4567.");
    caller.listen().await;
    caller.key("12#").await;
    assert_eq!(line(&mut caller).await, "12");
    assert!(service.status(&id).await["transcript"].to_string().contains("4567"));
}
