//! Responses that several endpoints share.

use serde_json::{Value, json};

pub fn failure(about: &str) -> Value {
    let schema = json!({"$ref": "#/components/schemas/Failure"});
    json!({"description": about, "content": {"application/json": {"schema": schema}}})
}

/// With a time to come back.
pub fn busy(about: &str) -> Value {
    let mut busy = failure(about);
    busy["headers"] = json!({"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}});
    busy
}
