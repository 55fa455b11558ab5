//! Errors of a configuration: the setting, its value, the value's source, and the values that are allowed.

use std::path::PathBuf;

use figment::error::Kind;
use figment::value::Value;
use figment::{Figment, Metadata, Source};

use super::bounds;

/// Errors of a configuration, each one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the configuration file {} cannot be read: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("there is no setting `{name}` ({origin}); {known}")]
    Unknown { name: String, origin: String, known: String },
    /// `value` is empty for a secret.
    #[error("the setting `{name}`{value} ({origin}) must be {allowed}")]
    Value { name: String, value: String, origin: String, allowed: String },
    #[error("the setting `{name}` is not set, and `{needed_by}` ({origin}) needs it: {reason}")]
    Missing { name: String, needed_by: String, origin: String, reason: &'static str },
}

impl Error {
    /// The setting `name` of `figment` has a value that isn't allowed.
    pub(super) fn value(figment: &Figment, name: &str, allowed: impl Into<String>) -> Self {
        let value = match figment.find_value(name) {
            Ok(value) if !is_secret(name) => format!(" = {}", shown(&value)),
            _ => String::new(),
        };
        Self::Value { name: name.to_owned(), value, origin: origin(figment, name), allowed: allowed.into() }
    }

    /// `name` isn't set, and `needed_by` needs it.
    pub(super) fn missing(figment: &Figment, name: &str, needed_by: &str, reason: &'static str) -> Self {
        let (name, needed_by) = (name.to_owned(), needed_by.to_owned());
        Self::Missing { origin: origin(figment, &needed_by), name, needed_by, reason }
    }

    /// serde's complaint about a value, in plain words.
    pub(super) fn explained(figment: &Figment, error: &figment::Error) -> Self {
        let mut path: &[String] = &error.path;
        match &error.kind {
            Kind::UnknownField(field, known) => {
                if path.last() == Some(field) {
                    path = &path[..path.len() - 1];
                }
                let table = path.join(".");
                let name = if table.is_empty() { field.clone() } else { format!("{table}.{field}") };
                let known = match table.as_str() {
                    "" => format!("the settings and their tables are: {}", known.join(", ")),
                    table => format!("`{table}` has: {}", known.join(", ")),
                };
                return Self::Unknown { origin: origin(figment, &name), name, known };
            }
            Kind::MissingField(field) => {
                let table = path.join(".");
                let name = format!("{table}.{field}");
                return Self::missing(figment, &name, &table, "both or neither");
            }
            _ => {}
        }
        // An item of a list is named by its index.
        while let [shorter @ .., last] = path
            && last.bytes().all(|byte| byte.is_ascii_digit())
        {
            path = shorter;
        }
        let name = path.join(".");
        let allowed = match (bounds::allowed(&name), &error.kind) {
            (Some(bound), _) => bound.text(),
            (None, Kind::UnknownVariant(_, known)) => format!("one of {}", known.join(", ")),
            (None, Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected)) => plain(expected),
            (None, Kind::Message(message)) if message.contains("socket address") => {
                "an IP address and a port, such as 127.0.0.1:8000 or [::1]:8000".to_owned()
            }
            // These messages come from this crate's types, which name the allowed values and quote no secret.
            (None, Kind::Message(message)) => match message.split_once("is none of ") {
                Some((_, known)) => format!("one of {known}"),
                None => format!("something else: {message}"),
            },
            (None, other) => format!("something else: {other}"),
        };
        Self::value(figment, &name, allowed)
    }
}

/// The source of a setting's value, or of the table that it belongs to.
pub(super) fn origin(figment: &Figment, name: &str) -> String {
    let mut name = name;
    loop {
        if let Some(metadata) = figment.find_metadata(name) {
            return source(metadata);
        }
        match name.rsplit_once('.') {
            Some((table, _)) => name = table,
            None => return "default".into(),
        }
    }
}

pub(super) fn source(metadata: &Metadata) -> String {
    match &metadata.source {
        Some(Source::File(path)) => path.display().to_string(),
        Some(_) => "default".into(),
        None => metadata.name.to_string(),
    }
}

/// Whether the value of the setting `name` must never be shown.
fn is_secret(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last != "accept_token_scheme"
        && (last.ends_with("secret") || last.ends_with("_key") || last.ends_with("_token"))
}

/// A value as it was written, without a password in an address.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Num(_, number) => match (number.to_u128(), number.to_i128(), number.to_f64()) {
            (Some(whole), ..) => whole.to_string(),
            (_, Some(whole), _) => whole.to_string(),
            (.., Some(number)) => number.to_string(),
            _ => "a number".into(),
        },
        Value::Dict(..) => "a table".into(),
        other => toml::Value::try_from(other).map_or_else(|_| "nothing".into(), |value| value.to_string()),
    };
    let Some((scheme, rest)) = text.split_once("://") else { return text };
    match rest.split_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}"),
        None => text,
    }
}

/// Plain words for Rust's names of types.
fn plain(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "f32" | "f64" => "a number",
        "bool" | "a boolean" => "true or false",
        "a string" | "path string" => "text",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        expected if expected.starts_with("struct ") || expected == "a map" => {
            "a table, whose settings are set one by one"
        }
        expected => expected,
    }
    .to_owned()
}
