//! The members of a JSON object that a client sent, read by name and kind.

use serde_json::{Map, Value};

use super::Error;

/// An object's members. `null` is as good as missing.
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

    /// A text of at most `bytes_max`, trimmed; an empty one is as good as missing.
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

    /// True or false, also as a string: form fields become JSON that way.
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

/// Levels of arrays and objects in `value`, 0 for a plain one.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// `text` as a telephone number of ITU-T E.164: `+` and 8 to 15 digits. Spaces, hyphens, dots and
/// parentheses are left out.
pub fn phone_number(text: &str) -> Option<String> {
    let number: String = text.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | '(' | ')')).collect();
    let digits = number.strip_prefix('+')?;
    let is_number = (8..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phone_numbers_are_e164() {
        assert_eq!(phone_number("+1 (415) 555-26.71").as_deref(), Some("+14155552671"));
        for text in
            ["", "+", "4155552671", "+0415555267", "+1415", "+1234567890123456", "+1415555a671", "anonymous"]
        {
            assert_eq!(phone_number(text), None, "{text}");
        }
    }

    #[test]
    fn depth_counts_levels() {
        assert_eq!(depth(&serde_json::json!(1)), 0);
        assert_eq!(depth(&serde_json::json!({"a": [1, {"b": 2}]})), 3);
    }
}
