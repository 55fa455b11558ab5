//! The caller's open page in words: where they are, and what remains to be done there.
//!
//! The contract leaves the contents of `page_context` open. The demo sends `page`, `step`, `form_name` and
//! `sections`; other likely members are understood too. The agent never reads out the value of a field.

use serde_json::{Map, Value};

/// Fields named in one sentence.
const NAMED_MAX: usize = 3;
/// Members that name a thing on a page, the best first.
const NAMES: [&str; 4] = ["label", "title", "name", "id"];
/// Members that hold the parts of a page.
const PARTS: [&str; 3] = ["sections", "fields", "items"];
const DONE: [&str; 5] = ["complete", "completed", "done", "filled", "valid"];

const PLACES: [&str; 6] = ["step", "page", "form", "screen", "section", "part"];
/// Phrases that follow a place's name in questions about the current place: "which form is this", but not "which
/// form do I need".
const HERE: [&str; 13] = [
    "am i",
    "are we",
    "is this",
    "is that",
    "is it",
    "is open",
    "i am",
    "i'm",
    "we are",
    "we're",
    "this is",
    "do you see",
    "did i open",
];
const WHERE: &[&str] = &[
    "where am i",
    "where are we",
    "this page",
    "this form",
    "this step",
    "this screen",
    "how far am i",
    "what am i looking at",
    "what do you see",
];
const TASKS: &[&str] = &[
    "what is next",
    "what's next",
    "what comes next",
    "next step",
    "what now",
    "missing",
    "what is left",
    "what's left",
    "what else do i have to",
    "fill in",
    "fill out",
    "what goes here",
    "what goes in here",
    "what belongs here",
    "which field",
    "which fields",
    "what fields",
    "am i done",
    "have i finished",
];
const VERBS: [&str; 8] = ["do", "enter", "put", "write", "type", "fill", "say", "choose"];

/// A caller's question about their page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The current page or step.
    Place,
    /// The task there.
    Task,
}

/// The question about the page in `said` (plain words with a space on either side), and whether it can only be
/// about the page.
pub fn asked(said: &str) -> Option<(Asked, bool)> {
    let has = |phrase: &str| said.contains(&format!(" {phrase} "));
    let is_here = has("here") || PLACES.iter().any(|place| has(&format!("this {place}")));
    let is_task = TASKS.iter().any(|phrase| has(phrase)) || asks_what_to_do(said);
    if is_task {
        return Some((Asked::Task, is_here));
    }
    let is_place = |place: &&str| {
        let follows = |word: &str| HERE.iter().any(|here| has(&format!("{word} {place} {here}")));
        follows("what") || follows("which") || has(&format!("what is this {place}"))
    };
    if PLACES.iter().any(is_place) {
        return Some((Asked::Place, true));
    }
    WHERE.iter().any(|phrase| has(phrase)).then_some((Asked::Place, false))
}

/// "What do I enter here", "what should I put", but not "what do I do if I lose my card".
fn asks_what_to_do(said: &str) -> bool {
    let begins = ["what do i", "what should i", "what must i", "what can i", "what do we", "what am i to"];
    begins.iter().flat_map(|begin| VERBS.map(|verb| format!(" {begin} {verb} "))).any(|phrase| {
        let rest = said.find(&phrase).map(|at| said[at + phrase.len()..].trim());
        rest.is_some_and(|rest| {
            let next = rest.split(' ').next().unwrap_or_default();
            matches!(
                next,
                "" | "in" | "into" | "here" | "there" | "now" | "next" | "first" | "on" | "at" | "please"
            )
        })
    })
}

/// The caller's place and, briefly, what is missing there.
pub fn shown(context: &Value) -> Option<String> {
    let place = place(context)?;
    let mut missing = Vec::new();
    open(context, None, &mut missing);
    Some(match missing.first() {
        Some(field) => format!("{place} What is still missing is {field}."),
        None => place,
    })
}

/// The answer to a question about the page.
pub fn answer(context: &Value, asked: Asked) -> Option<String> {
    let place = place(context);
    if asked == Asked::Place {
        let page = name_of(context, &["page_title", "page"]).map(|page| format!("The page is {page}."));
        // The form's name may be the page's.
        let page = page.filter(|_| name_of(context, FORMS).is_some());
        let parts: Vec<String> = page.into_iter().chain(shown(context)).collect();
        return (!parts.is_empty()).then(|| parts.join(" "));
    }
    let mut missing = Vec::new();
    open(context, None, &mut missing);
    let mut fields = Vec::new();
    named(context, None, &mut fields);
    let task = match (missing.is_empty(), fields.is_empty()) {
        (false, _) => Some(format!("What is still missing is {}.", listed(&missing))),
        (true, false) if has_state(context) => Some("Nothing is missing there.".to_owned()),
        (true, false) => Some(format!("You fill in {} there.", listed(&fields))),
        (true, true) => None,
    };
    let focus = name_of(context, &["current_field", "focused_field", "active_field", "field"]);
    let focus = focus.map(|field| format!("You are in the field {field}."));
    let parts: Vec<String> = place.into_iter().chain(focus).chain(task).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

const FORMS: &[&str] = &["form_name", "form_title", "form"];

fn place(context: &Value) -> Option<String> {
    let form = name_of(context, FORMS).or_else(|| name_of(context, &["page_title", "page", "title", "url"]));
    let step =
        ["step", "current_step", "step_number", "step_name"].iter().find_map(|name| context.get(*name));
    let step = step.and_then(|step| step_of(step, context));
    Some(match (form, step) {
        (Some(form), Some((step, true))) => format!("You are at step {step} in {form}."),
        (Some(form), Some((step, false))) => format!("You are at step {step} of {form}."),
        (Some(form), None) => format!("You are on {form}."),
        (None, Some((step, _))) => format!("You are at step {step}."),
        (None, None) => return None,
    })
}

/// A step in words, and whether it includes the number of steps.
fn step_of(step: &Value, context: &Value) -> Option<(String, bool)> {
    let count = |value: &Value| value.as_u64().or_else(|| value.as_array().map(|steps| steps.len() as u64));
    let of = |map: &Value, names: &[&str]| names.iter().find_map(|name| count(map.get(*name)?));
    let total = of(context, &["total_steps", "steps_total", "step_count", "steps"]);
    let (number, title, total) = match step {
        Value::Object(_) => {
            let number = of(step, &["number", "index", "current", "step"]).map(|number| number.to_string());
            (number, name_of(step, &NAMES), of(step, &["total", "of", "count"]).or(total))
        }
        step => (words(step), None, total),
    };
    let is_number = number.as_ref().is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let total = total.filter(|_| is_number);
    let number = match (number, total) {
        (Some(number), Some(total)) => Some(format!("{number} of {total}")),
        (number, _) => number,
    };
    let parts: Vec<String> = number.into_iter().chain(title).collect();
    (!parts.is_empty()).then(|| (parts.join(", "), total.is_some()))
}

fn name_of(value: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| words(value.get(*name)?))
}

/// A name in spoken form: `healthcare_signup`, `/forms/insurance` and `https://a.example/forms?x=1` are words.
fn words(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim(),
        Value::Number(number) => return Some(number.to_string()),
        Value::Object(map) => return NAMES.iter().find_map(|name| words(map.get(*name)?)),
        _ => return None,
    };
    if text.contains(' ') || text.is_empty() {
        return Some(text.to_owned()).filter(|text| !text.is_empty());
    }
    let path =
        text.split_once("://").map_or(text, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    let path = path.strip_suffix(".html").unwrap_or(path);
    if path.is_empty() {
        return Some("the first page".to_owned());
    }
    Some(path.replace(['/', '_', '-'], " "))
}

/// `A, B and C`, and the count of the rest.
fn listed(names: &[String]) -> String {
    let (shown, rest) = names.split_at(names.len().min(NAMED_MAX));
    let rest = match rest.len() {
        0 => None,
        1 => Some("one more".to_owned()),
        more => Some(format!("{more} more")),
    };
    let mut all: Vec<String> = shown.iter().cloned().chain(rest).collect();
    match all.pop() {
        Some(last) if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// The parts of a page and, if they are keyed by name, their names.
fn parts(map: &Map<String, Value>) -> impl Iterator<Item = (Option<&str>, &Value)> {
    PARTS.iter().filter_map(|name| map.get(*name)).flat_map(|listed| -> Vec<(Option<&str>, &Value)> {
        match listed {
            Value::Array(items) => items.iter().map(|item| (None, item)).collect(),
            Value::Object(map) => map.iter().map(|(name, item)| (Some(name.as_str()), item)).collect(),
            _ => Vec::new(),
        }
    })
}

fn called(map: &Map<String, Value>, key: Option<&str>) -> Option<String> {
    NAMES.iter().find_map(|name| words(map.get(*name)?)).or_else(|| words(&Value::from(key?)))
}

/// Sections and fields that are marked as incomplete, or are required and empty.
fn open(value: &Value, key: Option<&str>, found: &mut Vec<String>) {
    let Value::Object(map) = value else {
        // `"fields": {"name": true, "city": false}`
        if let (Some(key), Value::Bool(false)) = (key, value) {
            found.extend(words(&key.into()));
        }
        return;
    };
    let before = found.len();
    for (key, part) in parts(map) {
        open(part, key, found);
    }
    if found.len() > before {
        return;
    }
    if let Some(Value::Array(names)) = map.get("missing_fields").or_else(|| map.get("missing")) {
        found.extend(names.iter().filter_map(words));
        return;
    }
    let flag = |name: &str| map.get(name).and_then(Value::as_bool);
    let is_empty = map.get("value").is_some_and(|value| value.is_null() || value.as_str() == Some(""));
    let is_open = DONE.iter().any(|name| flag(name) == Some(false));
    if is_open || (flag("required") == Some(true) && is_empty) {
        found.extend(called(map, key));
    }
}

/// The fields of a page, or its sections if it lists no fields.
fn named(value: &Value, key: Option<&str>, found: &mut Vec<String>) {
    let Value::Object(map) = value else {
        // `"fields": ["name", "city"]`, or by name with whatever they hold.
        let name = key.map(Value::from).or_else(|| value.as_str().map(Value::from));
        found.extend(name.as_ref().and_then(words));
        return;
    };
    let before = found.len();
    let mut is_whole = false;
    for (key, part) in parts(map) {
        is_whole = true;
        named(part, key, found);
    }
    if found.len() == before && (key.is_some() || !is_whole) && !is_page(map) {
        found.extend(called(map, key));
    }
}

/// Whether it is the page itself and not a part of it.
fn is_page(map: &Map<String, Value>) -> bool {
    ["page", "step", "form_name"].iter().any(|name| map.contains_key(*name))
}

/// Whether the page says anywhere what has been filled in.
fn has_state(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            DONE.iter().any(|name| map.get(*name).is_some_and(Value::is_boolean))
                || map.get("value").is_some()
                || parts(map).any(|(key, part)| (key.is_some() && part.is_boolean()) || has_state(part))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_about_the_page_are_told_from_others() {
        let asked = |text: &str| super::asked(&format!(" {text} "));
        for text in [
            "what step am i on",
            "which page is this",
            "can you tell me what page i'm on",
            "what form is this",
            "which section are we in",
            "what is this page for",
        ] {
            assert_eq!(asked(text), Some((Asked::Place, true)), "{text}");
        }
        assert_eq!(asked("where am i"), Some((Asked::Place, false)));
        for text in [
            "what do i fill in here",
            "what do i enter here",
            "what should i put in this form",
            "what should i write here",
            "what goes here",
        ] {
            assert_eq!(asked(text), Some((Asked::Task, true)), "{text}");
        }
        for text in ["what do i do now", "what's left", "which fields are missing", "what is the next step"] {
            assert_eq!(asked(text), Some((Asked::Task, false)), "{text}");
        }
        for text in
            ["which form do i need", "what do i do if i lose my card", "what forms do you take", "hello"]
        {
            assert_eq!(asked(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_is_told_however_it_is_described() {
        for (context, place) in [
            (json!({"page": "/forms/insurance.html"}), "You are on forms insurance."),
            (json!({"page": "https://a.example/sign-up?x=1", "step": 2}), "You are at step 2 of sign up."),
            (json!({"page": "/"}), "You are on the first page."),
            (json!({"step": 2, "total_steps": 5}), "You are at step 2 of 5."),
            (
                json!({"form_name": "signup", "step": {"number": 2, "total": 5, "title": "Address"}}),
                "You are at step 2 of 5, Address in signup.",
            ),
            (
                json!({"form_name": "signup", "step": "name", "steps": ["name", "city"]}),
                "You are at step name of signup.",
            ),
            (json!({"page": {"title": "Sign up"}}), "You are on Sign up."),
        ] {
            assert_eq!(shown(&context).as_deref(), Some(place), "{context}");
        }
        for context in
            [json!({}), json!({"sections": []}), json!({"page": [1], "step": null}), json!({"page": ""})]
        {
            assert_eq!(shown(&context), None, "{context}");
        }
    }

    #[test]
    fn what_is_to_be_done_is_told_with_names_and_without_contents() {
        let task = |context: Value| answer(&context, Asked::Task).unwrap_or_default();
        let fields = json!([{"label": "Street", "value": ""}, {"name": "zip_code", "value": "12345"}]);
        assert_eq!(
            task(json!({"page": "signup", "fields": ["name", "birth_date", "city", "street", "country"]})),
            "You are on signup. You fill in name, birth date, city and 2 more there."
        );
        assert_eq!(
            task(
                json!({"page": "signup", "sections": {"you": {"fields": {"name": true, "city": false, "zip": false}}}})
            ),
            "You are on signup. What is still missing is city and zip."
        );
        assert_eq!(
            task(json!({"page": "signup", "sections": [{"title": "Address", "fields": fields}]})),
            "You are on signup. Nothing is missing there."
        );
        assert_eq!(
            task(
                json!({"page": "signup", "sections": [{"title": "Address"}, {"title": "Payment"}], "current_field": "iban"})
            ),
            "You are on signup. You are in the field iban. You fill in Address and Payment there."
        );
        assert_eq!(
            task(json!({"missing_fields": ["a", {"label": "B"}]})),
            "What is still missing is a and B."
        );
        assert_eq!(
            answer(&json!({"page": "/forms", "form_name": "healthcare_signup", "step": 2}), Asked::Place)
                .as_deref(),
            Some("The page is forms. You are at step 2 of healthcare signup.")
        );
        assert_eq!(answer(&json!({"other": 1}), Asked::Place), None);
    }
}
