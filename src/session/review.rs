//! The embedded summary of a talk, made of its facts and the caller's own words.

use serde_json::Value;

use super::event::Role;
use super::message::SmsStatus;
use super::state::Session;
use super::summary::{Author, Summary, shortened};

const QUESTIONS_MAX: usize = 3;
const QUESTION_CHARACTERS_MAX: usize = 160;
const NAMES_MAX: usize = 20;
const NAME_CHARACTERS_MAX: usize = 80;
const TEXT_CHARACTERS_MAX: usize = 2000;

/// The embedded summary of a session; none if no word was said and nothing happened.
pub fn review(session: &Session) -> Option<Summary> {
    let turns = |role| session.transcript.iter().filter(|line| line.role == role).count();
    let (caller_turns, agent_turns) = (turns(Role::User), turns(Role::Assistant));
    if caller_turns + agent_turns == 0 && session.completion.is_none() {
        return None;
    }
    let categories = |verified| {
        let those = session.verifications.iter().filter(move |(_, state)| state.verified == verified);
        names(those.map(|(name, _)| name.as_str()))
    };
    let sent = session.messages.iter().filter(|message| message.status == SmsStatus::Sent);
    let ended = session.ended.map_or(session.updated, |(at, _)| at);
    let mut summary = Summary {
        text: String::new(),
        by: Author::Embedded,
        seconds: ended.saturating_sub(session.created) / 1000,
        caller_turns,
        agent_turns,
        verified: categories(true),
        not_verified: categories(false),
        messages_sent: names(sent.map(|message| message.sms_catalog_key.as_str())),
        fields: session.completion.as_ref().map_or_else(Vec::new, |done| filled(&done.updated_fields)),
        completion: session.completion.as_ref().map(|done| shortened(&done.status, NAME_CHARACTERS_MAX)),
    };
    summary.text = sentences(&summary, session);
    Some(summary)
}

fn sentences(summary: &Summary, session: &Session) -> String {
    let mut text = format!(
        "The talk took {} with {} of the caller and {} of the agent.",
        duration(summary.seconds),
        counted(summary.caller_turns, "turn"),
        counted(summary.agent_turns, "turn"),
    );
    let questions = session.transcript.iter().filter(|line| line.role == Role::User);
    let questions: Vec<String> = questions
        .take(QUESTIONS_MAX)
        .map(|line| format!("«{}»", shortened(&line.content, QUESTION_CHARACTERS_MAX)))
        .collect();
    if !questions.is_empty() {
        text += &format!(" The caller said: {}.", questions.join(", "));
    }
    let lists = [
        ("Verified", &summary.verified),
        ("Not verified", &summary.not_verified),
        ("Text messages sent", &summary.messages_sent),
        ("Fields filled", &summary.fields),
    ];
    for (about, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        text += &format!(" {about}: {}.", names.join(", "));
    }
    if let Some(status) = &summary.completion {
        text += &format!(" The client's flow is complete: {status}.");
    }
    shortened(&text, TEXT_CHARACTERS_MAX)
}

/// The names of updated fields: the keys of an object, or the texts of an array.
fn filled(fields: &Value) -> Vec<String> {
    match fields {
        Value::Object(map) => {
            names(map.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str()))
        }
        Value::Array(items) => names(items.iter().filter_map(|item| {
            item.as_str().or_else(|| item.get("name").or_else(|| item.get("field"))?.as_str())
        })),
        _ => Vec::new(),
    }
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<String> {
    all.take(NAMES_MAX).map(|name| shortened(name, NAME_CHARACTERS_MAX)).collect()
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn duration(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::{Channel, Checked, EndReason, Line, Notice, Setup, Source, Start};

    fn session() -> Session {
        let setup = Setup::default();
        let start = Start::new(setup, Channel::Web);
        Session::new(1, &start, 1000, 60_000)
    }

    #[test]
    fn a_summary_has_the_facts_and_the_callers_words() {
        let (mut session, mut events) = (session(), Vec::new());
        assert_eq!(review(&session), None);
        let mut say = |session: &mut Session, role, content: &str| {
            let line =
                Line { id: 0, role, content: content.into(), interrupted: false, at: 2, latency_ms: None };
            session.say(line, &mut events);
        };
        say(&mut session, Role::Assistant, "Welcome.");
        say(&mut session, Role::User, "Where can I park?");
        say(&mut session, Role::Assistant, "Behind the building.");
        let checked = |verified| Checked { verified, source: Source::Hook, details: Value::Null };
        session.verify("patient", checked(true), &Setup::default(), 3, &mut events).expect("room");
        session.verify("billing", checked(false), &Setup::default(), 3, &mut events).expect("room");
        let updated_fields = json!({"name": "Ann", "phone": null});
        let notice = Notice { status: "submitted".into(), message: None, updated_fields };
        session.complete(&notice, 4, &mut events);
        session.end(EndReason::Goodbye, 1000 + 75_000, &mut events);
        let summary = review(&session).expect("one");
        assert_eq!((summary.seconds, summary.caller_turns, summary.agent_turns), (75, 1, 2));
        assert_eq!(
            (&summary.verified[..], &summary.not_verified[..]),
            (&["patient".to_owned()][..], &["billing".to_owned()][..])
        );
        assert_eq!(
            (&summary.fields[..], summary.completion.as_deref()),
            (&["name".to_owned()][..], Some("submitted"))
        );
        assert_eq!(
            summary.text,
            "The talk took 1 min 15 s with 1 turn of the caller and 2 turns of the agent. The caller said: «Where can \
             I park?». Verified: patient. Not verified: billing. Fields filled: name. The client's flow is complete: \
             submitted."
        );
        let written = summary.written(&"long ".repeat(1000));
        assert_eq!(written.by, Author::Chat);
        assert!(written.text.chars().count() <= TEXT_CHARACTERS_MAX + 1 && written.seconds == 75);
    }

    #[test]
    fn fields_may_be_an_object_or_a_list() {
        assert_eq!(filled(&json!(["a", {"name": "b"}, {"field": "c"}, 4])), ["a", "b", "c"]);
        assert!(filled(&json!("x")).is_empty());
        assert_eq!(shortened("ääää", 2), "ää…");
    }
}
