//! The embedded responder: answers from the session's knowledge, and admits it when it does not know. Pure: the
//! same question over the same facts gets the same answer.

use super::page;
use crate::knowledge::{Knowledge, Passage, terms, ways};
use crate::room::FunctionCall;
use crate::session::{Link, Role, Session, Setup, SmsStatus};

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    Sentence(String),
    Act(Effect),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send a link of the catalogue, if that is allowed.
    SendLink(String),
    /// Verify the caller first.
    Verify(String),
    /// Have the client run a function.
    Call(FunctionCall),
    /// End the call.
    End,
}

/// The material of an answer.
pub struct Facts<'a> {
    pub setup: &'a Setup,
    pub session: &'a Session,
    pub knowledge: &'a Knowledge,
    /// Text messages can be sent.
    pub can_text: bool,
}

const GOODBYES: &[&str] =
    &["goodbye", "good bye", "bye", "bye bye", "that is all", "that's all", "hang up", "have a nice day"];
const THANKS: &[&str] = &["thank you", "thanks", "thank you very much", "thanks a lot", "great thank you"];
const GREETINGS: &[&str] =
    &["hello", "hi", "hey", "good morning", "good afternoon", "good evening", "hello there"];
const REPEATS: &[&str] =
    &["repeat", "say that again", "say it again", "come again", "pardon", "what did you say", "once more"];
const PEOPLE: &[&str] =
    &["human", "real person", "an agent", "a person", "representative", "operator", "somebody else"];
const SENDS: &[&str] = &["send", "text me", "link", "sms", "message me"];
/// Beginnings of instructions to the agent, which are not answers.
const ORDERS: &[&str] = &[
    "you are",
    "you're",
    "you should",
    "you must",
    "always",
    "never",
    "do not",
    "don't",
    "be ",
    "if the",
    "act ",
    "answer",
    "speak",
    "keep",
    "your ",
    "when the caller",
    "when the user",
    "ask ",
    "greet",
];
/// Phrases that mean the category `patient_information` if its rule names no keywords.
const PATIENT_INFORMATION: &[&str] = &[
    "patient information",
    "patient record",
    "patient records",
    "medical record",
    "medical records",
    "my record",
    "my records",
    "my information",
    "my appointment",
    "my appointments",
    "test results",
    "my results",
    "lab results",
    "my prescription",
    "my account",
    "my chart",
];
const NO_PAGE: &str = "I can't see what you have open at the moment.";
pub const DONT_KNOW: &str = "I'm sorry, I don't have that information.";

/// Lower case, single spaces, no punctuation; with a space on either side.
fn plain(text: &str) -> String {
    let bare =
        |c: char| if c.is_alphanumeric() || c == '\'' { c.to_lowercase().next().unwrap_or(c) } else { ' ' };
    let words: String = text.chars().map(|c| bare(if c == '’' { '\'' } else { c })).collect();
    format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn has(plain: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| plain.contains(&format!(" {phrase} ")))
}

fn is(plain: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| plain.trim() == *phrase)
}

/// The category that a caller must be verified for before getting what they ask for.
pub fn secured(setup: &Setup, text: &str) -> Option<String> {
    let plain = plain(text);
    setup.verification_rules.iter().find_map(|(category, rule)| {
        let is_meant = if rule.keywords.is_empty() {
            let spoken = category.replace(['_', '-'], " ");
            has(&plain, &[spoken.as_str()])
                || (category == "patient_information" && has(&plain, PATIENT_INFORMATION))
        } else {
            let keywords: Vec<String> =
                rule.keywords.iter().map(|word| self::plain(word).trim().to_owned()).collect();
            keywords.iter().any(|word| !word.is_empty() && has(&plain, &[word.as_str()]))
        };
        is_meant.then(|| category.clone())
    })
}

/// Whether a caller declines to answer.
pub fn is_refusal(text: &str) -> bool {
    has(
        &plain(text),
        &["never mind", "nevermind", "cancel", "stop", "forget it", "no thanks", "i don't want"],
    )
}

/// Whether a caller wants to talk to a person.
pub fn asks_for_a_person(text: &str) -> bool {
    has(&plain(text), PEOPLE)
}

pub fn respond(facts: &Facts<'_>, text: &str) -> Vec<Say> {
    let said = plain(text);
    let sentence = |text: &str| vec![Say::Sentence(text.to_owned())];
    if is(&said, GREETINGS) {
        return sentence("Hello! How can I help you?");
    }
    if is(&said, THANKS) {
        return sentence("You're welcome. Is there anything else?");
    }
    if has(&said, GOODBYES) {
        return vec![Say::Sentence("Goodbye!".into()), Say::Act(Effect::End)];
    }
    if has(&said, REPEATS) {
        let last = facts.session.transcript.iter().rev().find(|line| line.role == Role::Assistant);
        return sentence(last.map_or("I haven't said anything yet.", |line| &line.content));
    }
    if has(&said, PEOPLE) {
        return sentence(
            "I'm sorry, I can't connect you to a person. I can answer questions, or you can call again later.",
        );
    }
    if let Some(answer) = link(facts, text, &said) {
        return answer;
    }
    if let Some((asked, is_sure)) = page::asked(&said) {
        let context = facts.session.page.as_ref().map(|page| &page.context);
        match context.and_then(|context| page::answer(context, asked)) {
            Some(answer) => return sentence(&answer),
            None if is_sure => return sentence(NO_PAGE),
            None => {}
        }
    }
    if terms(text).is_empty() {
        return sentence("Could you tell me a little more about what you need?");
    }
    // Instructions to the agent are no answers.
    let is_answer =
        |passage: &Passage, sentence: &str| passage.source != "instructions" || !is_order(sentence);
    if let Some(answer) = facts.knowledge.answer(text, is_answer) {
        return answer.into_iter().map(Say::Sentence).collect();
    }
    if !facts.session.knowledge.is_ready {
        return sentence("I'm still reading up on that. Please ask me again in a moment.");
    }
    vec![Say::Sentence(DONT_KNOW.into()), Say::Sentence("Is there something else I can help with?".into())]
}

/// Answers a request for a link of the catalogue: sends it if possible, otherwise reads it out.
fn link(facts: &Facts<'_>, text: &str, said: &str) -> Option<Vec<Say>> {
    if !has(said, SENDS) {
        return None;
    }
    let wanted: Vec<_> = terms(text).iter().map(|term| ways(term)).collect();
    let fit = |key: &str, link: &Link| {
        let names = format!(
            "{} {} {}",
            key.replace(['_', '-'], " "),
            link.title.as_deref().unwrap_or_default(),
            link.keywords.join(" ")
        );
        let names = terms(&names);
        wanted.iter().filter(|ways| ways.iter().any(|(way, _)| names.contains(way))).count()
    };
    let best = facts.setup.link_catalog.iter().max_by_key(|(key, link)| fit(key, link));
    let (key, link) = best.filter(|(key, link)| fit(key, link) > 0)?;
    let name = link.title.clone().unwrap_or_else(|| key.replace(['_', '-'], " "));
    let earlier = facts.session.messages.iter().find(|message| {
        message.sms_catalog_key == *key && matches!(message.status, SmsStatus::Sent | SmsStatus::Failed)
    });
    if let Some(message) = earlier {
        let what = if message.status == SmsStatus::Sent { "was sent" } else { "could not be sent" };
        return Some(vec![
            Say::Sentence(format!("The text message with the link to {name} {what}.")),
            Say::Sentence(format!("You can find it at {}.", link.url)),
        ]);
    }
    if !facts.setup.sends_sms() || !facts.can_text {
        return Some(vec![Say::Sentence(format!("You can find {name} at {}.", link.url))]);
    }
    let promise = match facts.session.caller_number {
        Some(_) => format!("I'll text you the link to {name}."),
        None => format!("I'll text you the link to {name} as soon as I know your number."),
    };
    Some(vec![Say::Act(Effect::SendLink(key.clone())), Say::Sentence(promise)])
}

fn is_order(sentence: &str) -> bool {
    let plain = plain(sentence);
    ORDERS.iter().any(|order| plain.trim_start().starts_with(order))
}

#[cfg(test)]
mod tests;
