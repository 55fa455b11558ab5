//! The setup of a session: the optional fields of the contract's `start`, read once.
//!
//! The contract leaves the contents of `link_catalog` and `verification_rules` open. Both may be an object keyed
//! by name, or an array of named objects. Entries that make no sense are dropped with a warning, so that clients
//! of other versions still get their session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::error::Error;
use super::number::phone_number;
use super::talk::{self, TalkRules};
use crate::fields::{self, Fields};
use crate::knowledge::{Content, Document, Rationed, Sources};

/// Longest instructions and longest text of a document, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest greeting, prompt or address, in bytes.
const LINE_BYTES_MAX: usize = 8 << 10;
const NAME_BYTES_MAX: usize = 200;
const DOCUMENTS_MAX: usize = 100;
const ENTRIES_MAX: usize = 200;
/// Unknown fields that warnings name, and characters shown of each name.
const UNKNOWN_NAMED_MAX: usize = 20;
const UNKNOWN_SHOWN_CHARACTERS: usize = 80;

/// All fields of a start. `session_id` belongs to the other actions, but some clients send it with every request.
const FIELDS: [&str; 19] = [
    "action",
    "instructions",
    "greeting",
    "documents",
    "rag_doc_ids",
    "rag_max_chunks_per_doc",
    "website_url",
    "link_catalog",
    "verification_rules",
    "caller_number",
    "channel",
    "sms_enabled",
    "page_guidance_enabled",
    "voice",
    "functions",
    "integration_id",
    "client_reference_id",
    "tenant_id",
    "session_id",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Web,
    Phone,
}

/// An entry of the link catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub url: String,
    pub title: Option<String>,
    pub keywords: Vec<String>,
    /// The whole message, where it is not to be made of title and address.
    pub sms_text: Option<String>,
}

/// How a category is verified and what follows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub voice_prompt: Option<String>,
    pub voice_prompt_short: Option<String>,
    /// Phrases by which callers ask for something in this category.
    pub keywords: Vec<String>,
    pub sms_catalog_key: Option<String>,
    pub max_attempts: Option<u32>,
}

/// The fields of `start` that never change afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    pub instructions: Option<String>,
    pub greeting: Option<String>,
    pub documents: Vec<Document>,
    pub rag_doc_ids: Vec<String>,
    pub rag_max_chunks_per_doc: Option<u32>,
    pub website_url: Option<String>,
    pub link_catalog: BTreeMap<String, Link>,
    pub verification_rules: BTreeMap<String, Rule>,
    pub sms_enabled: Option<bool>,
    pub page_guidance_enabled: bool,
    /// The name of a voice, as clients know it.
    pub voice: Option<String>,
    /// Functions that the chat model may call and the room's clients run, as they were sent.
    #[serde(default)]
    pub functions: Vec<Value>,
    #[serde(default)]
    pub talk: TalkRules,
    pub integration_id: Option<String>,
    pub client_reference_id: Option<String>,
    pub tenant_id: Option<String>,
}

impl Setup {
    /// Whether links may be sent as text messages: by default, if there are any.
    pub fn sends_sms(&self) -> bool {
        self.sms_enabled.unwrap_or(!self.link_catalog.is_empty())
    }

    /// The sources of the session's knowledge.
    pub fn sources(&self, tenant: u64) -> Sources<'_> {
        Sources {
            tenant,
            instructions: self.instructions.as_deref(),
            documents: &self.documents,
            stored: &self.rag_doc_ids,
            website_url: self.website_url.as_deref(),
        }
    }

    /// How many passages of each stored document an answer may use.
    pub fn rationed(&self) -> Rationed {
        let passages_max = self.rag_max_chunks_per_doc.map_or(usize::MAX, |count| count as usize);
        Rationed { sources: self.rag_doc_ids.clone(), passages_max }
    }
}

/// A start request: the setup, and initial values of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub setup: Setup,
    pub channel: Channel,
    pub caller_number: Option<String>,
    /// About dropped entries, for the snapshot.
    pub warnings: Vec<String>,
    /// The public id of the key that starts it, if one does.
    pub key: Option<Uuid>,
    /// The room of someone else's to which the agent goes; none for a room of its own.
    pub room: Option<String>,
}

impl Start {
    pub fn new(setup: Setup, channel: Channel) -> Self {
        Self { setup, channel, caller_number: None, warnings: Vec::new(), key: None, room: None }
    }

    /// # Errors
    /// A field has the wrong kind, is too long or has too many entries; the number is not a telephone number.
    pub fn read(fields: Fields<'_>) -> Result<Self, Error> {
        let mut warnings = unknown(fields);
        let channel = match fields.text("channel", NAME_BYTES_MAX)? {
            None => Channel::Web,
            Some(name) if name.eq_ignore_ascii_case("web") => Channel::Web,
            Some(name) if name.eq_ignore_ascii_case("phone") => Channel::Phone,
            Some(_) => {
                return Err(fields::Error::Kind { field: "channel", expected: "`web` or `phone`" }.into());
            }
        };
        let caller_number = caller_number(fields)?;
        let owned = |name, bytes_max| Ok::<_, Error>(fields.text(name, bytes_max)?.map(str::to_owned));
        let setup = Setup {
            instructions: owned("instructions", TEXT_BYTES_MAX)?,
            greeting: owned("greeting", LINE_BYTES_MAX)?,
            documents: documents(fields)?,
            rag_doc_ids: document_ids(fields)?,
            rag_max_chunks_per_doc: fields.count("rag_max_chunks_per_doc")?,
            website_url: owned("website_url", LINE_BYTES_MAX)?,
            link_catalog: entries(fields, "link_catalog", &mut warnings, link)?,
            verification_rules: entries(fields, "verification_rules", &mut warnings, rule)?,
            sms_enabled: fields.flag("sms_enabled")?,
            page_guidance_enabled: fields.flag("page_guidance_enabled")?.unwrap_or(false),
            voice: fields.any("voice").and_then(Value::as_str).map(str::to_owned),
            functions: fields.any("functions").and_then(Value::as_array).cloned().unwrap_or_default(),
            talk: TalkRules::read(fields)?,
            integration_id: owned("integration_id", NAME_BYTES_MAX)?,
            client_reference_id: owned("client_reference_id", NAME_BYTES_MAX)?,
            tenant_id: owned("tenant_id", NAME_BYTES_MAX)?,
        };
        Ok(Self { caller_number, warnings, ..Self::new(setup, channel) })
    }
}

/// Warnings about unknown fields, so that a misspelled name does not go unnoticed.
fn unknown(fields: Fields<'_>) -> Vec<String> {
    // Of another kind, these two belong to clients of something else.
    let is_other = |name: &str, value: &Value| match name {
        "voice" => !(value.is_string() || value.is_null()),
        "functions" => !(value.is_array() || value.is_null()),
        name => talk::is_other(name, value).unwrap_or(!FIELDS.contains(&name)),
    };
    let mut names = fields.0.iter().filter(|(name, value)| is_other(name, value)).map(|(name, _)| name);
    let warning = |name: &String| {
        let shown: String = name.chars().take(UNKNOWN_SHOWN_CHARACTERS).collect();
        format!("`{shown}` is not a field of a start and was left out")
    };
    let mut warnings: Vec<_> = names.by_ref().take(UNKNOWN_NAMED_MAX).map(warning).collect();
    match names.count() {
        0 => {}
        more => warnings.push(format!("{more} more fields are not those of a start and were left out")),
    }
    warnings
}

/// # Errors
/// [`Error::PhoneNumber`].
pub fn caller_number(fields: Fields<'_>) -> Result<Option<String>, Error> {
    let Some(text) = fields.text("caller_number", NAME_BYTES_MAX)? else { return Ok(None) };
    phone_number(text).map(Some).ok_or(Error::PhoneNumber)
}

fn documents(fields: Fields<'_>) -> Result<Vec<Document>, Error> {
    let read = |(index, value): (usize, &Value)| {
        let fields =
            value.as_object().map(Fields).ok_or(Error::Document { index, problem: "it is no object" })?;
        let problem = |problem| move |_| Error::Document { index, problem };
        let kind = fields.text("type", NAME_BYTES_MAX).map_err(problem("`type` is no string"))?;
        let content = fields
            .text("content", TEXT_BYTES_MAX)
            .map_err(problem("`content` is no string, or too long"))?
            .ok_or(Error::Document { index, problem: "`content` is missing" })?;
        let title =
            fields.text("title", NAME_BYTES_MAX).map_err(problem("`title` is no string, or too long"))?;
        let content = match kind {
            None | Some("text") => Content::Text(content.to_owned()),
            Some("url") => Content::Url(content.to_owned()),
            Some(_) => return Err(Error::Document { index, problem: "`type` is neither `text` nor `url`" }),
        };
        Ok(Document { title: title.unwrap_or_default().to_owned(), content })
    };
    fields.array("documents", DOCUMENTS_MAX)?.iter().enumerate().map(read).collect()
}

fn document_ids(fields: Fields<'_>) -> Result<Vec<String>, Error> {
    let read = |value: &Value| match value {
        Value::String(text) if text.len() <= NAME_BYTES_MAX => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(fields::Error::Kind { field: "rag_doc_ids", expected: "an array of strings" }.into()),
    };
    fields.array("rag_doc_ids", DOCUMENTS_MAX)?.iter().map(read).collect()
}

/// The entries of an object by name, or of an array of named objects.
fn entries<T>(
    fields: Fields<'_>,
    field: &'static str,
    warnings: &mut Vec<String>,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<BTreeMap<String, T>, Error> {
    let name = |value: &Value| {
        let name = ["key", "category", "id", "name"].iter().find_map(|name| value.get(name)?.as_str());
        name.map(str::to_owned)
    };
    let found: Vec<(Option<String>, &Value)> = match fields.any(field) {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(map)) => map.iter().map(|(name, value)| (Some(name.clone()), value)).collect(),
        Some(Value::Array(items)) => items.iter().map(|value| (name(value), value)).collect(),
        Some(_) => return Err(fields::Error::Kind { field, expected: "an object" }.into()),
    };
    if found.len() > ENTRIES_MAX {
        return Err(fields::Error::TooMany { field, count_max: ENTRIES_MAX }.into());
    }
    let mut entries = BTreeMap::new();
    for (index, (name, value)) in found.into_iter().enumerate() {
        match (name.filter(|name| name.len() <= NAME_BYTES_MAX), read(value)) {
            (Some(name), Some(entry)) => {
                entries.insert(name, entry);
            }
            _ => warnings.push(format!("entry {index} of `{field}` was not understood and left out")),
        }
    }
    Ok(entries)
}

fn line(value: &Value, names: &[&str]) -> Option<String> {
    let text = names.iter().find_map(|name| value.get(name)?.as_str())?.trim();
    (!text.is_empty() && text.len() <= LINE_BYTES_MAX).then(|| text.to_owned())
}

fn keywords(value: &Value) -> Vec<String> {
    let words = value.get("keywords").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words = words.iter().filter_map(Value::as_str).filter(|word| word.len() <= NAME_BYTES_MAX);
    words.take(ENTRIES_MAX).map(str::to_owned).collect()
}

fn link(value: &Value) -> Option<Link> {
    if let Some(url) = value.as_str().map(str::trim) {
        let is_address = !url.is_empty() && url.len() <= LINE_BYTES_MAX;
        return is_address.then(|| Link { url: url.to_owned(), ..Link::default() });
    }
    Some(Link {
        url: line(value, &["url", "href", "link"])?,
        title: line(value, &["title", "label", "description"]),
        keywords: keywords(value),
        sms_text: line(value, &["sms_text", "message"]),
    })
}

fn rule(value: &Value) -> Option<Rule> {
    value.as_object()?;
    Some(Rule {
        voice_prompt: line(value, &["voice_prompt"]),
        voice_prompt_short: line(value, &["voice_prompt_short"]),
        keywords: keywords(value),
        sms_catalog_key: line(value, &["sms_catalog_key"]),
        max_attempts: value.get("max_attempts").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Start, Error> {
        Start::read(Fields::of(&value).expect("an object"))
    }

    #[test]
    fn a_start_may_be_empty() {
        let start = read(json!({"action": "start", "greeting": null, "documents": []})).unwrap();
        assert_eq!((start.setup, start.channel), (Setup::default(), Channel::Web));
    }

    #[test]
    fn catalogues_of_several_shapes_are_understood() {
        let start = read(json!({
            "link_catalog": {"forms": "https://a.example/f", "privacy": {"url": "https://a.example/p", "title": "Privacy"}, "odd": 7},
            "verification_rules": [{"category": "patient_information", "voice_prompt": "Say it.", "sms_catalog_key": "forms"}, 3],
        }))
        .unwrap();
        let catalog = &start.setup.link_catalog;
        assert_eq!(catalog.keys().collect::<Vec<_>>(), ["forms", "privacy"]);
        assert_eq!(catalog["privacy"].title.as_deref(), Some("Privacy"));
        assert_eq!(
            start.setup.verification_rules["patient_information"].voice_prompt.as_deref(),
            Some("Say it.")
        );
        assert_eq!(start.warnings.len(), 2);
        assert!(start.setup.sends_sms());
    }

    #[test]
    fn unknown_fields_are_named_and_not_without_end() {
        let start =
            read(json!({"action": "start", "session_id": "s", "instruction": "x", "Greeting": 1})).unwrap();
        let warning = |name| format!("`{name}` is not a field of a start and was left out");
        assert_eq!(start.warnings, [warning("Greeting"), warning("instruction")]);
        let many: serde_json::Map<_, _> = (0..100).map(|n| (format!("{n:0>1000}"), json!(n))).collect();
        let start = read(many.into()).unwrap();
        assert_eq!(start.warnings.len(), UNKNOWN_NAMED_MAX + 1);
        assert!(start.warnings.iter().all(|warning| warning.len() < 200), "{:?}", start.warnings);
        assert!(start.warnings[UNKNOWN_NAMED_MAX].starts_with("80 more"));
    }

    #[test]
    fn a_field_of_another_kind_is_named() {
        for (value, field) in [
            (json!({"instructions": 1}), "instructions"),
            (json!({"greeting": ["hi"]}), "greeting"),
            (json!({"documents": {}}), "documents"),
            (json!({"documents": [{"type": "pdf", "content": "x"}]}), "documents[0]"),
            (json!({"documents": [{"type": "text", "content": "x"}, "y"]}), "documents[1]"),
            (json!({"documents": [{"type": "url"}]}), "documents[0]"),
            (json!({"rag_doc_ids": "x"}), "rag_doc_ids"),
            (json!({"rag_doc_ids": [{}]}), "rag_doc_ids"),
            (json!({"rag_max_chunks_per_doc": -1}), "rag_max_chunks_per_doc"),
            (json!({"website_url": false}), "website_url"),
            (json!({"link_catalog": "x"}), "link_catalog"),
            (json!({"verification_rules": 5}), "verification_rules"),
            (json!({"sms_enabled": "maybe"}), "sms_enabled"),
            (json!({"page_guidance_enabled": 1}), "page_guidance_enabled"),
            (json!({"channel": "fax"}), "channel"),
            (json!({"caller_number": "555"}), "caller_number"),
            (json!({"tenant_id": {}}), "tenant_id"),
        ] {
            let error = read(value).expect_err(field).to_string();
            assert!(error.contains(&format!("`{field}`")), "{error}");
        }
    }

    #[test]
    fn phone_numbers_are_e164() {
        assert_eq!(phone_number("+1 (415) 555-26.71").as_deref(), Some("+14155552671"));
        for text in
            ["", "+", "4155552671", "+0415555267", "+1415", "+1234567890123456", "+1415555a671", "anonymous"]
        {
            assert_eq!(phone_number(text), None, "{text}");
        }
    }
}
