use serde_json::{Value, json};

use super::*;
use crate::fields::Fields;
use crate::knowledge::passages;
use crate::session::Start;

fn ask(start: Value, page: Option<Value>, question: &str) -> Vec<Say> {
    ask_with(true, start, page, question)
}

fn ask_with(can_text: bool, start: Value, page: Option<Value>, question: &str) -> Vec<Say> {
    let start = Start::read(Fields::of(&start).unwrap()).unwrap();
    let mut session = Session::new(0, &start, 0, 1000);
    session.knowledge.is_ready = true;
    if let Some(page) = page {
        session.show_page(&page, 1, &mut Vec::new());
    }
    let mut found =
        passages("instructions", "", "You are a kind assistant of Acme Dental. The clinic is in Oak Street.");
    found.extend(passages(
        "Hours",
        "Opening hours",
        "We are open Monday to Friday from nine to five. On Saturday we are open from ten to two.",
    ));
    found.extend(passages("Parking", "Parking", "Parking is free behind the building."));
    let knowledge = Knowledge::new(found, start.setup.rationed());
    respond(&Facts { setup: &start.setup, session: &session, knowledge: &knowledge, can_text }, question)
}

fn text(says: &[Say]) -> String {
    let sentences =
        says.iter().filter_map(|say| if let Say::Sentence(text) = say { Some(text.as_str()) } else { None });
    sentences.collect::<Vec<_>>().join(" ")
}

#[test]
fn answers_are_what_was_given() {
    for (question, expected) in [
        ("When are you open?", "Monday to Friday from nine to five"),
        ("Are you open on Saturday?", "from ten to two"),
        ("Where can I park my car?", "free behind the building"),
        ("Where is the clinic?", "Oak Street"),
    ] {
        let answer = text(&ask(json!({}), None, question));
        assert!(answer.contains(expected), "{question}: {answer}");
        assert!(!answer.contains("kind assistant"), "{answer}");
    }
}

#[test]
fn what_is_not_known_is_not_invented() {
    for question in ["Do you sell bicycles?", "What is the capital of France?", "How tall is the tower?"] {
        assert!(text(&ask(json!({}), None, question)).starts_with(DONT_KNOW), "{question}");
    }
    assert!(text(&ask(json!({}), None, "What is it?")).contains("a little more"));
}

#[test]
fn links_are_sent_where_they_may_be() {
    let start = json!({"link_catalog": {"privacy": {"url": "https://a.example/p", "title": "the privacy notice"}, "forms": "https://a.example/f"},
        "caller_number": "+14155552671"});
    let says = ask(start.clone(), None, "Can you text me the link to the privacy notice?");
    assert_eq!(says[0], Say::Act(Effect::SendLink("privacy".into())));
    // Without a carrier for messages, the agent promises none.
    let says = ask_with(false, start.clone(), None, "Can you text me the link to the privacy notice?");
    assert_eq!(says, [Say::Sentence("You can find the privacy notice at https://a.example/p.".into())]);
    let mut silent = start;
    silent["sms_enabled"] = json!(false);
    let says = ask(silent, None, "Please send me the forms.");
    assert_eq!(text(&says), "You can find forms at https://a.example/f.");
}

#[test]
fn the_page_says_what_is_missing() {
    let context = json!({"page": "signup", "form_name": "healthcare_signup", "step": 2, "sections": [
        {"name": "Name", "complete": true}, {"name": "address", "fields": [{"label": "street", "required": true, "value": ""}]}]});
    let answer = text(&ask(json!({}), Some(context), "What is missing on this form?"));
    assert_eq!(answer, "You are at step 2 of healthcare signup. What is still missing is street.");
}

#[test]
fn secured_questions_are_told_apart() {
    let rules = |rules: Value| {
        let start = json!({ "verification_rules": rules });
        Start::read(Fields::of(&start).unwrap()).unwrap().setup
    };
    let default = rules(json!({"patient_information": {}}));
    assert_eq!(secured(&default, "What are my test results?").as_deref(), Some("patient_information"));
    assert_eq!(secured(&default, "I'd like some information about parking."), None);
    let named = rules(json!({"billing": {"keywords": ["invoice"]}}));
    assert_eq!(secured(&named, "Where's my invoice?").as_deref(), Some("billing"));
    assert_eq!(secured(&named, "What are my test results?"), None);
}
