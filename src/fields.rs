//! Members of a JSON object that a client sent, read by name and kind.

use serde_json::{Map, Value};

/// Largest member of any kind, as JSON in bytes: fields of a form, not documents.
const VALUE_BYTES_MAX: usize = 32 << 10;
const DEPTH_MAX: usize = 8;

/// Why a member is refused. The texts are for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("The body must be a JSON object.")]
    NotAnObject,
    #[error("`{0}` is missing.")]
    Missing(&'static str),
    #[error("`{field}` must be {expected}.")]
    Kind { field: &'static str, expected: &'static str },
    #[error("`{field}` has more than {bytes_max} bytes.")]
    TooLong { field: &'static str, bytes_max: usize },
    #[error("`{field}` has more than {count_max} entries.")]
    TooMany { field: &'static str, count_max: usize },
}

/// An object's members. `null` counts as missing.
#[derive(Clone, Copy)]
pub struct Fields<'a>(pub &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// # Errors
    /// [`Error::NotAnObject`].
    pub fn of(value: &'a Value) -> Result<Self, Error> {
        value.as_object().map(Self).ok_or(Error::NotAnObject)
    }

    pub fn any(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text of at most `bytes_max`, trimmed. An empty text counts as missing.
    ///
    /// # Errors
    /// [`Error::Kind`], [`Error::TooLong`].
    pub fn text(&self, name: &'static str, bytes_max: usize) -> Result<Option<&'a str>, Error> {
        let Some(value) = self.any(name) else { return Ok(None) };
        let text = value.as_str().ok_or(Error::Kind { field: name, expected: "a string" })?.trim();
        if text.len() > bytes_max {
            return Err(Error::TooLong { field: name, bytes_max });
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// # Errors
    /// As [`Self::text`], and [`Error::Missing`].
    pub fn required_text(&self, name: &'static str, bytes_max: usize) -> Result<&'a str, Error> {
        self.text(name, bytes_max)?.ok_or(Error::Missing(name))
    }

    /// True or false. A string is accepted too, because form fields become JSON that way.
    ///
    /// # Errors
    /// [`Error::Kind`].
    pub fn flag(&self, name: &'static str) -> Result<Option<bool>, Error> {
        match self.any(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(_) => Err(Error::Kind { field: name, expected: "true or false" }),
        }
    }

    /// # Errors
    /// [`Error::Kind`].
    pub fn count(&self, name: &'static str) -> Result<Option<u32>, Error> {
        let Some(value) = self.any(name) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.map(Some).ok_or(Error::Kind { field: name, expected: "a whole number, 0 or more" })
    }

    /// # Errors
    /// [`Error::Kind`].
    pub fn object(&self, name: &'static str) -> Result<Option<Fields<'a>>, Error> {
        let Some(value) = self.any(name) else { return Ok(None) };
        value
            .as_object()
            .map(|map| Some(Fields(map)))
            .ok_or(Error::Kind { field: name, expected: "an object" })
    }

    /// A member of any kind that is neither large nor deep; `null` if it is missing.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Kind`].
    pub fn bounded(&self, name: &'static str) -> Result<Value, Error> {
        let Some(value) = self.any(name) else { return Ok(Value::Null) };
        if value.to_string().len() > VALUE_BYTES_MAX {
            return Err(Error::TooLong { field: name, bytes_max: VALUE_BYTES_MAX });
        }
        if depth(value) > DEPTH_MAX {
            return Err(Error::Kind { field: name, expected: "at most 8 levels deep" });
        }
        Ok(value.clone())
    }

    /// # Errors
    /// [`Error::Kind`], [`Error::TooMany`].
    pub fn array(&self, name: &'static str, count_max: usize) -> Result<&'a [Value], Error> {
        let Some(value) = self.any(name) else { return Ok(&[]) };
        let items = value.as_array().ok_or(Error::Kind { field: name, expected: "an array" })?;
        if items.len() > count_max {
            return Err(Error::TooMany { field: name, count_max });
        }
        Ok(items)
    }
}

/// Nesting of arrays and objects in `value`: 0 for a scalar.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_levels() {
        assert_eq!(depth(&serde_json::json!(1)), 0);
        assert_eq!(depth(&serde_json::json!({"a": [1, {"b": 2}]})), 3);
    }
}
