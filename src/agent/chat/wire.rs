//! The two interfaces of chat models: OpenAI's Chat Completions
//! (<https://platform.openai.com/docs/api-reference/chat>) and Responses
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>).

use serde_json::{Value, json};

use super::prompt::{Item, Prompt};
use crate::agent::config::Interface;
use crate::agent::persona::Called;

/// A part of a streamed answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// A piece of a call: what has its `index` belongs together. `arguments` are appended, the others stay.
    Call {
        index: u64,
        id: String,
        name: String,
        arguments: String,
    },
    /// The answer is whole.
    End,
    /// The model gave up.
    Failure,
}

impl Interface {
    /// Path below the base address.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Self::Completions => &["chat", "completions"],
            Self::Responses => &["responses"],
        }
    }

    pub fn request(self, model: &str, prompt: &Prompt) -> Value {
        match self {
            Self::Completions => completions(model, prompt),
            Self::Responses => responses(model, prompt),
        }
    }

    /// The parts in one event of the stream.
    pub fn parts(self, event: &Value) -> Vec<Part> {
        if event.get("error").is_some_and(|error| !error.is_null()) {
            return vec![Part::Failure];
        }
        match self {
            Self::Completions => parts_of_completion(event),
            Self::Responses => part_of_response(event).into_iter().collect(),
        }
    }
}

fn completions(model: &str, prompt: &Prompt) -> Value {
    let mut messages = vec![json!({"role": "system", "content": prompt.system})];
    for item in &prompt.items {
        match item {
            Item::Line { role, content } => messages.push(json!({"role": role, "content": content})),
            Item::Called(called) => {
                let calls = called.iter().map(|Called { call, .. }| {
                    let function = json!({"name": call.name, "arguments": call.arguments});
                    json!({"id": call.id, "type": "function", "function": function})
                });
                let calls: Vec<Value> = calls.collect();
                messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
                messages.extend(called.iter().map(|Called { call, content }| {
                    json!({"role": "tool", "tool_call_id": call.id, "content": content})
                }));
            }
        }
    }
    let tools = prompt.tools.iter().map(|tool| {
        let function =
            json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
        json!({"type": "function", "function": function})
    });
    let request = json!({"model": model, "stream": true, "messages": messages});
    with_tools(request, tools.collect())
}

/// Interfaces refuse an empty list.
fn with_tools(mut request: Value, tools: Vec<Value>) -> Value {
    if !tools.is_empty() {
        request["tools"] = Value::Array(tools);
    }
    request
}

fn parts_of_completion(event: &Value) -> Vec<Part> {
    let Some(choice) = event.pointer("/choices/0") else { return Vec::new() };
    let mut parts = Vec::new();
    if let Some(text) =
        choice.pointer("/delta/content").and_then(Value::as_str).filter(|text| !text.is_empty())
    {
        parts.push(Part::Text(text.to_owned()));
    }
    let calls = choice.pointer("/delta/tool_calls").and_then(Value::as_array).map(Vec::as_slice);
    for call in calls.unwrap_or_default() {
        let text = |pointer| call.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        parts.push(Part::Call {
            index: call.get("index").and_then(Value::as_u64).unwrap_or_default(),
            id: text("/id"),
            name: text("/function/name"),
            arguments: text("/function/arguments"),
        });
    }
    match choice.get("finish_reason").and_then(Value::as_str) {
        None => {}
        Some("error") => parts.push(Part::Failure),
        Some(_) => parts.push(Part::End),
    }
    parts
}

fn responses(model: &str, prompt: &Prompt) -> Value {
    let mut input = Vec::new();
    for item in &prompt.items {
        match item {
            Item::Line { role, content } => input.push(json!({"role": role, "content": content})),
            Item::Called(called) => {
                for Called { call, content } in called {
                    input.push(json!({"type": "function_call", "call_id": call.id, "name": call.name,
                        "arguments": call.arguments}));
                    input
                        .push(json!({"type": "function_call_output", "call_id": call.id, "output": content}));
                }
            }
        }
    }
    let tools = prompt.tools.iter().map(|tool| {
        json!({"type": "function", "name": tool.name, "description": tool.description,
            "parameters": tool.parameters, "strict": false})
    });
    // The conversation stays here: each request has all of it.
    let request = json!({"model": model, "stream": true, "store": false, "instructions": prompt.system,
        "input": input});
    with_tools(request, tools.collect())
}

fn part_of_response(event: &Value) -> Option<Part> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let index = event.get("output_index").and_then(Value::as_u64).unwrap_or_default();
    let part = match event.get("type").and_then(Value::as_str)? {
        "response.output_text.delta" | "response.refusal.delta" => Part::Text(text("/delta")),
        "response.output_item.added" if text("/item/type") == "function_call" => Part::Call {
            index,
            id: text("/item/call_id"),
            name: text("/item/name"),
            arguments: text("/item/arguments"),
        },
        "response.function_call_arguments.delta" => {
            Part::Call { index, id: String::new(), name: String::new(), arguments: text("/delta") }
        }
        "response.completed" | "response.incomplete" => Part::End,
        "response.failed" | "error" => Part::Failure,
        _ => return None,
    };
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_interfaces_say_the_same() {
        let call = |id: &str, name: &str, arguments: &str| Part::Call {
            index: 1,
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        let expected = [
            Part::Text("Hi".into()),
            call("c1", "verify", ""),
            call("", "", "{\"a\":1}"),
            Part::End,
            Part::Failure,
        ];
        let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
        let completions = [
            delta(json!({"content": "Hi"})),
            delta(
                json!({"tool_calls": [{"index": 1, "id": "c1", "function": {"name": "verify", "arguments": ""}}]}),
            ),
            delta(json!({"tool_calls": [{"index": 1, "function": {"arguments": "{\"a\":1}"}}]})),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"error": {"message": "overloaded"}}),
        ];
        let item = json!({"type": "function_call", "call_id": "c1", "name": "verify", "arguments": ""});
        let responses = [
            json!({"type": "response.output_text.delta", "delta": "Hi"}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": item}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"a\":1}"}),
            json!({"type": "response.completed"}),
            json!({"type": "response.failed", "response": {"error": null}}),
        ];
        for (interface, events) in [(Interface::Completions, completions), (Interface::Responses, responses)]
        {
            let parts: Vec<Part> = events.iter().flat_map(|event| interface.parts(event)).collect();
            assert_eq!(parts, expected, "{interface:?}");
        }
        for event in
            [json!({"choices": []}), json!({"type": "response.created"}), json!({"choices": [], "usage": {}})]
        {
            assert!(
                Interface::Completions.parts(&event).is_empty()
                    && Interface::Responses.parts(&event).is_empty()
            );
        }
    }
}
