//! A filter for a page's state that removes, at any depth, the members that identify a person. An agent has no use for
//! them, and no log or snapshot may show them.

use serde_json::{Map, Value};

/// Parts of the names of members that identify a person, such as `ssn_last4` and `dateOfBirth`, without separators.
const SECRETS: [&str; 12] = [
    "socialsecurity",
    "dateofbirth",
    "birthdate",
    "birthday",
    "last4",
    "lastfour",
    "passcode",
    "password",
    "pincode",
    "securitycode",
    "verificationcode",
    "accesscode",
];
/// Beginnings and ends of such names. Inside a name they mean nothing: `className`.
const SHORT_SECRETS: [&str; 2] = ["ssn", "dob"];
/// Names so short that they occur inside many words: only the whole name counts.
const WHOLE_SECRETS: [&str; 6] = ["pin", "otp", "cvv", "cvc", "digits", "tin"];
/// Members by which a form names a field, and by which it gives the field's content.
const NAMES: [&str; 5] = ["name", "id", "key", "field", "label"];
const CONTENTS: [&str; 5] = ["value", "values", "text", "default", "answer"];
/// Levels that are kept: no page's state is deeper.
const DEPTH_MAX: usize = 8;

/// `value` without the members that identify a person. A list of field names stays whole.
pub fn without_identity_within(value: Value) -> Value {
    any(value, DEPTH_MAX)
}

/// `page` without the members that identify a person; a field of a form stays, without its content.
pub fn without_identity(page: Map<String, Value>) -> Map<String, Value> {
    object(page, DEPTH_MAX)
}

fn object(map: Map<String, Value>, depth: usize) -> Map<String, Value> {
    let named = NAMES.iter().filter_map(|name| map.get(*name)?.as_str());
    let is_secret_field = named.into_iter().any(is_secret);
    map.into_iter()
        .filter(|(name, value)| {
            // A flag says whether the field is filled in, not with what content.
            let is_content = is_secret_field && CONTENTS.contains(&name.as_str());
            let is_flag = value.is_boolean() || value.is_null();
            is_flag || !(is_content || (is_secret(name) && !value.is_object()))
        })
        .map(|(name, value)| {
            // `"ssn": {"filled": true, "value": "…"}` is a field that its member's name names.
            let value = match value {
                Value::Object(mut inner) if is_secret(&name) => {
                    inner.retain(|_, value| value.is_boolean());
                    inner.into()
                }
                value => any(value, depth),
            };
            (name, value)
        })
        .collect()
}

fn any(value: Value, depth: usize) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) if depth == 0 => Value::Null,
        Value::Object(map) => object(map, depth - 1).into(),
        Value::Array(items) => items.into_iter().map(|item| any(item, depth - 1)).collect(),
        plain => plain,
    }
}

fn is_secret(name: &str) -> bool {
    let bare: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    SECRETS.iter().any(|secret| bare.contains(secret))
        || WHOLE_SECRETS.contains(&bare.as_str())
        || SHORT_SECRETS.iter().any(|secret| bare.starts_with(secret) || bare.ends_with(secret))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_identifies_somebody_is_taken_out_wherever_it_lies() {
        let page = json!({
            "page": "/forms", "step": 2, "ssn_last4": "4567",
            "sections": [
                {"title": "You", "fields": [
                    {"name": "ssn_last4", "label": "Last four", "value": "4567", "filled": true},
                    {"id": "dateOfBirth", "value": "1984-03-09", "required": true},
                    {"label": "Social Security Number", "text": "4567"},
                    {"name": "city", "value": "Springfield", "className": "wide"},
                ]},
                {"identity": {"SSN": 4567, "birth_date": ["1984", "03"], "name": "Jo"}},
                {"ssn": {"value": "4567", "filled": true}, "dob": false},
            ],
        });
        let Value::Object(page) = page else { panic!("an object") };
        let kept = Value::Object(without_identity(page));
        let expected = json!({
            "page": "/forms", "step": 2,
            "sections": [
                {"title": "You", "fields": [
                    {"name": "ssn_last4", "label": "Last four", "filled": true},
                    {"id": "dateOfBirth", "required": true},
                    {"label": "Social Security Number"},
                    {"name": "city", "value": "Springfield", "className": "wide"},
                ]},
                {"identity": {"name": "Jo"}},
                {"ssn": {"filled": true}, "dob": false},
            ],
        });
        assert_eq!(kept, expected);
    }

    #[test]
    fn what_is_too_deep_is_not_kept() {
        let deep = (0..100).fold(json!("1984"), |inner, _| json!([inner]));
        let kept = without_identity(Map::from_iter([("sections".to_owned(), deep)]));
        assert!(!Value::Object(kept).to_string().contains("1984"));
    }
}
