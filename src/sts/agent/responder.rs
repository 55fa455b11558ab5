//! The embedded responder: answers from what the session was given, and says so when it does not know.
//! Pure: the same question over the same facts has the same answer.

use serde_json::Value;

use crate::sts::knowledge::{Knowledge, sentences, terms};
use crate::sts::session::{Role, Session};
use crate::sts::setup::Setup;

/// What an answer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Say {
    Sentence(String),
    Act(Effect),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send a link of the catalogue, if it may be.
    SendLink(String),
    /// Verify the caller first.
    Verify(String),
    /// Say no more after this.
    End,
}

/// What an answer is made from.
pub struct Facts<'a> {
    pub setup: &'a Setup,
    pub session: &'a Session,
    pub knowledge: &'a Knowledge,
}

/// A passage with less of what was asked is about something else.
const COVERAGE_MIN: f32 = 0.45;
/// A sentence with less of it is not the one.
const SENTENCE_COVERAGE_MIN: f32 = 0.3;
const PASSAGES_MAX: usize = 4;
/// About what can be listened to at once.
const ANSWER_WORDS_MAX: usize = 45;
/// A shorter sentence, such as a heading, says little without the next.
const SENTENCE_WORDS_MIN: usize = 7;

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
const PAGES: &[&str] = &[
    "what is next",
    "what's next",
    "next step",
    "what now",
    "missing",
    "this page",
    "this form",
    "this step",
    "where am i",
    "what do i do",
    "fill in",
    "which step",
];
/// What an instruction to the agent begins with: it is no answer to anybody.
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
/// What callers say who want something of a category that names no keywords of its own.
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
const DONT_KNOW: &str = "I'm sorry, I don't have that information.";

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

/// Whether somebody who hears the agent says no more than that they do.
pub fn is_backchannel(text: &str) -> bool {
    const WORDS: &[&str] = &[
        "mm", "mmm", "mhm", "hm", "hmm", "uh", "huh", "um", "ah", "oh", "ok", "okay", "yeah", "yes", "yep",
        "right", "sure", "i", "see", "aha", "got", "it", "alright", "you", "thank",
    ];
    plain(text).split_whitespace().all(|word| WORDS.contains(&word))
}

/// The category of which a caller wants something that must be verified first.
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

/// Wants to be done with a question that was asked of them.
pub fn is_refusal(text: &str) -> bool {
    has(
        &plain(text),
        &["never mind", "nevermind", "cancel", "stop", "forget it", "no thanks", "i don't want"],
    )
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
    if has(&said, PAGES)
        && let Some(answer) = page(facts.session.page.as_ref().map(|page| &page.context))
    {
        return sentence(&answer);
    }
    if terms(text).is_empty() {
        return sentence("Could you tell me a little more about what you need?");
    }
    if let Some(answer) = retrieve(facts.knowledge, text) {
        return answer.into_iter().map(Say::Sentence).collect();
    }
    if !facts.session.knowledge.is_ready {
        return sentence("I'm still reading up on that. Please ask me again in a moment.");
    }
    vec![Say::Sentence(DONT_KNOW.into()), Say::Sentence("Is there something else I can help with?".into())]
}

/// Somebody wants a link of the catalogue: sent where it may be, and read out where not.
fn link(facts: &Facts<'_>, text: &str, said: &str) -> Option<Vec<Say>> {
    if !has(said, SENDS) {
        return None;
    }
    let wanted = terms(text);
    let fit = |key: &str, link: &crate::sts::setup::Link| {
        let names = format!(
            "{} {} {}",
            key.replace(['_', '-'], " "),
            link.title.as_deref().unwrap_or_default(),
            link.keywords.join(" ")
        );
        let names = terms(&names);
        wanted.iter().filter(|term| names.contains(term)).count()
    };
    let best = facts.setup.link_catalog.iter().max_by_key(|(key, link)| fit(key, link));
    let (key, link) = best.filter(|(key, link)| fit(key, link) > 0)?;
    let name = link.title.clone().unwrap_or_else(|| key.replace(['_', '-'], " "));
    if !facts.setup.sends_sms() {
        return Some(vec![Say::Sentence(format!("You can find {name} at {}.", link.url))]);
    }
    let promise = match facts.session.caller_number {
        Some(_) => format!("I'll text you the link to {name}."),
        None => format!("I'll text you the link to {name} as soon as I know your number."),
    };
    Some(vec![Say::Act(Effect::SendLink(key.clone())), Say::Sentence(promise)])
}

/// What is on the page that the caller has open, and what is still to be done there.
pub fn page(context: Option<&Value>) -> Option<String> {
    let context = context?;
    let text = |name: &str| match context.get(name)? {
        Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let place = match (text("form_name").or_else(|| text("page")), text("step")) {
        (Some(form), Some(step)) => format!("You are at step {step} of {}.", form.replace('_', " ")),
        (Some(form), None) => format!("You are on {}.", form.replace('_', " ")),
        (None, Some(step)) => format!("You are at step {step}."),
        (None, None) => return None,
    };
    Some(match missing(context) {
        Some(field) => format!("{place} What is still missing is {}.", field.replace('_', " ")),
        None => place,
    })
}

/// The first section or field that is marked as not done, or empty although required.
fn missing(value: &Value) -> Option<String> {
    let name = |value: &Value| {
        let name = ["label", "title", "name", "id"].iter().find_map(|name| value.get(name)?.as_str());
        name.map(str::to_owned)
    };
    match value {
        Value::Array(items) => items.iter().find_map(missing),
        Value::Object(map) => {
            let inner = ["sections", "fields", "items"].iter().find_map(|name| missing(map.get(*name)?));
            if inner.is_some() {
                return inner;
            }
            if let Some(Value::Array(names)) = map.get("missing_fields").or_else(|| map.get("missing")) {
                return names
                    .first()
                    .and_then(|first| first.as_str().map(str::to_owned).or_else(|| name(first)));
            }
            let flag = |name: &str| map.get(name).and_then(Value::as_bool);
            let is_empty = map.get("value").is_some_and(|v| v.is_null() || v.as_str() == Some(""));
            let is_open = ["complete", "completed", "done", "filled", "valid"]
                .iter()
                .any(|name| flag(name) == Some(false));
            if is_open || (flag("required") == Some(true) && is_empty) { name(value) } else { None }
        }
        _ => None,
    }
}

/// One or two sentences that answer the question, word for word from what was given.
pub fn retrieve(knowledge: &Knowledge, question: &str) -> Option<Vec<String>> {
    let hits = knowledge.search(question, PASSAGES_MAX);
    let mut best: Option<(f32, Vec<String>)> = None;
    for hit in hits.iter().filter(|hit| hit.coverage >= COVERAGE_MIN) {
        let of_passage: Vec<String> = sentences(&hit.passage.text)
            .into_iter()
            .filter(|sentence| hit.passage.source != "instructions" || !is_order(sentence))
            .collect();
        let title = knowledge.coverage(question, &hit.passage.title);
        for (at, sentence) in of_passage.iter().enumerate() {
            // What the title says need not be said again by the sentence.
            let coverage = knowledge.coverage(question, sentence);
            let score = coverage + 0.3 * title + 0.01 * hit.score;
            if coverage.max(title) < SENTENCE_COVERAGE_MIN
                || best.as_ref().is_some_and(|(other, _)| *other >= score)
            {
                continue;
            }
            let mut answer = vec![sentence.clone()];
            let mut words = sentence.split_whitespace().count();
            for next in of_passage.iter().skip(at + 1) {
                let more = next.split_whitespace().count();
                let is_wanted =
                    words < SENTENCE_WORDS_MIN || knowledge.coverage(question, next) >= COVERAGE_MIN;
                if !is_wanted || words + more > ANSWER_WORDS_MAX {
                    break;
                }
                answer.push(next.clone());
                words += more;
            }
            best = Some((score, answer));
        }
    }
    best.map(|(_, answer)| answer)
}

fn is_order(sentence: &str) -> bool {
    let plain = plain(sentence);
    ORDERS.iter().any(|order| plain.trim_start().starts_with(order))
}

#[cfg(test)]
mod tests;
