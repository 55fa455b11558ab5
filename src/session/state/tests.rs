use serde_json::json;

use super::*;
use crate::fields::Fields;

fn start() -> Start {
    let value = json!({
        "link_catalog": {"forms": "https://a.example/f"},
        "verification_rules": {"patient_information": {"sms_catalog_key": "forms"}},
    });
    Start::read(Fields::of(&value).unwrap()).unwrap()
}

fn checked(verified: bool, source: Source) -> Checked {
    Checked { verified, source, details: Value::Null }
}

#[test]
fn ids_have_their_form() {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let id = new_id();
    let digits = id.strip_prefix("sess_").unwrap();
    assert!(digits.len() == 12 && hex(digits), "{id}");
    assert!(uuid::Uuid::parse_str(new_room().strip_prefix("sts-").unwrap()).is_ok());
}

#[test]
fn a_verification_sends_its_link_once_and_waits_for_a_number() {
    let (start, mut events) = (start(), Vec::new());
    let mut session = Session::new(1, &start, 0, 1000);
    for _ in 0..2 {
        session
            .verify("patient_information", checked(true, Source::Action), &start.setup, 1, &mut events)
            .unwrap();
    }
    assert_eq!(session.messages.len(), 1);
    assert_eq!(session.messages[0].status, SmsStatus::AwaitingNumber);
    session.bind_caller("+14155552671", &mut events);
    assert_eq!(session.messages[0].status, SmsStatus::Queued);
    assert!(session.is_verified("patient_information"));
}

#[test]
fn another_number_is_not_verified() {
    let (start, mut events) = (start(), Vec::new());
    let mut session = Session::new(1, &start, 0, 1000);
    session.bind_caller("+14155552671", &mut events);
    session.verify("form", checked(true, Source::Action), &start.setup, 1, &mut events).unwrap();
    session.bind_caller("+14155552671", &mut events);
    assert!(session.is_verified("form"));
    session.bind_caller("+14155552672", &mut events);
    assert!(!session.is_verified("form"));
}

#[test]
fn three_wrong_answers_lock_a_category_and_only_a_client_opens_it() {
    let (start, mut events) = (start(), Vec::new());
    let mut session = Session::new(1, &start, 0, 1000);
    for attempt in 1..=3 {
        session.verify("form", checked(false, Source::Hook), &start.setup, 1, &mut events).unwrap();
        assert_eq!(session.verifications["form"].locked, attempt == 3);
    }
    session.verify("form", checked(true, Source::Action), &start.setup, 1, &mut events).unwrap();
    assert!(session.is_verified("form") && !session.verifications["form"].locked);
}
