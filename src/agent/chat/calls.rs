//! Tools that a model calls: put together from their pieces, and turned into what the agent does.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

use super::prompt::{SEARCH, found};
use crate::agent::persona::Called;
use crate::agent::responder::{Effect, Say};
use crate::knowledge::Knowledge;
use crate::room::{Function, FunctionCall};

/// Calls of one request.
const CALLS_MAX: usize = 8;
const ARGUMENTS_BYTES_MAX: usize = 256 << 10;
const NOTHING: &str = "Nothing was found.";

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// The calls of a request, by index.
#[derive(Default)]
pub struct Calls(BTreeMap<u64, Call>);

/// The outcome of a model's turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    /// Lines and effects.
    Act(Vec<Say>),
    /// To go on with these results.
    Search(Vec<Called>),
}

impl Calls {
    pub fn take(&mut self, index: u64, id: &str, name: &str, arguments: &str) {
        if self.0.len() >= CALLS_MAX && !self.0.contains_key(&index) {
            return;
        }
        let call = self.0.entry(index).or_default();
        call.id.push_str(id);
        call.name.push_str(name);
        call.arguments.push_str(arguments);
        call.arguments.truncate(call.arguments.floor_char_boundary(ARGUMENTS_BYTES_MAX));
    }

    /// `functions`: those that the client runs. A call without words gets some, unless the model `has_spoken`.
    pub fn wishes(self, functions: &[Function], knowledge: &Knowledge, has_spoken: bool) -> Wish {
        let calls: Vec<Call> = self.0.into_values().collect();
        let is_client = |call: &Call| functions.iter().any(|function| function.name == call.name);
        if !calls.is_empty() && calls.iter().all(|call| call.name == SEARCH && !is_client(call)) {
            return Wish::Search(calls.into_iter().map(|call| call.search(knowledge)).collect());
        }
        let mut says = Vec::new();
        for call in calls {
            if is_client(&call) {
                says.push(Say::Act(Effect::Call(call.request())));
                continue;
            }
            let Some((line, effect)) = call.effect() else { continue };
            if let (Some(line), false) = (line, has_spoken) {
                says.push(Say::Sentence(line.into()));
            }
            says.push(Say::Act(effect));
        }
        Wish::Act(says)
    }
}

impl Call {
    fn argument(&self, name: &str) -> Option<String> {
        let arguments: Value = serde_json::from_str(&self.arguments).ok()?;
        arguments.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    /// One of the session's own actions, and words for it.
    fn effect(&self) -> Option<(Option<&'static str>, Effect)> {
        match self.name.as_str() {
            "verify" => Some((None, Effect::Verify(self.argument("category")?))),
            "send_link" => Some((Some("I'm sending you the link."), Effect::SendLink(self.argument("key")?))),
            "end_call" => Some((Some("Goodbye!"), Effect::End)),
            _ => None,
        }
    }

    fn request(self) -> FunctionCall {
        let id = if self.id.is_empty() { format!("call_{}", Uuid::new_v4().simple()) } else { self.id };
        let arguments = if self.arguments.is_empty() { "{}".to_owned() } else { self.arguments };
        FunctionCall { id, name: self.name, arguments, client_side: true }
    }

    fn search(self, knowledge: &Knowledge) -> Called {
        let query = self.argument("query").unwrap_or_default();
        let content = found(knowledge, &query).unwrap_or_else(|| NOTHING.into());
        Called { call: FunctionCall { client_side: false, ..self.request() }, content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::{Rationed, passages};

    fn calls(pieces: &[(u64, &str, &str)]) -> Calls {
        let mut calls = Calls::default();
        pieces.iter().for_each(|(index, name, arguments)| calls.take(*index, "", name, arguments));
        calls
    }

    #[test]
    fn tools_are_put_together_from_their_pieces() {
        let pieces = [(0, "send_link", "{\"ke"), (0, "", "y\":\"forms\"}"), (1, "rm", "{}")];
        let wish = |has_spoken| calls(&pieces).wishes(&[], &Knowledge::default(), has_spoken);
        let link = Say::Act(Effect::SendLink("forms".into()));
        let line = Say::Sentence("I'm sending you the link.".into());
        assert_eq!(wish(false), Wish::Act(vec![line, link.clone()]));
        assert_eq!(wish(true), Wish::Act(vec![link]));
    }

    #[test]
    fn a_search_finds_passages_for_the_model() {
        let knowledge = Knowledge::new(passages("d", "Parking", "It is free."), Rationed::default());
        let search = |query: &str| {
            let arguments = format!("{{\"query\":\"{query}\"}}");
            match calls(&[(0, SEARCH, &arguments)]).wishes(&[], &knowledge, false) {
                Wish::Search(called) => called.into_iter().map(|called| called.content).collect::<String>(),
                Wish::Act(says) => panic!("{says:?}"),
            }
        };
        assert_eq!(search("parking"), "\n[1] Parking: It is free.");
        assert_eq!(search("prices"), NOTHING);
        // With other calls beside it, the model waits for those.
        let both = calls(&[(0, SEARCH, "{}"), (1, "end_call", "")]).wishes(&[], &knowledge, true);
        assert_eq!(both, Wish::Act(vec![Say::Act(Effect::End)]));
    }
}
