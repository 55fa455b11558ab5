//! The changes that the owner of a session may make while its agent talks: the prompt, the voice, the functions.

use std::sync::Arc;

use crate::engine::Term;
use crate::room::{Author, Function, FunctionCall, functions};
use crate::session::Setup;
use crate::speech::{Manner, Voice};

/// How the agent of one session thinks and speaks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Persona {
    pub manner: Manner,
    /// Instead of the setup's instructions.
    pub prompt: Option<Arc<str>>,
    /// Functions of the client that the chat model may call.
    pub functions: Arc<[Function]>,
    /// The conversation before the session.
    pub context: Arc<[(Author, String)]>,
    /// Silence that ends a turn, whatever was said; none: as configured.
    pub turn_timeout_ms: Option<u64>,
    /// How sure it must be that a turn is over, 0.5 to 1; none: as the model has it.
    pub end_threshold: Option<f64>,
    /// Terms to expect in the speech.
    pub terms: Arc<[Term]>,
    /// Lines are reported as `History` too.
    pub history: bool,
}

impl Persona {
    /// As the session was set up. Without a voice of its own, one speaks that knows the callers' `language`, a code or
    /// `auto`.
    pub fn of(setup: &Setup, voice: &Voice, language: &str) -> Self {
        let own = setup.voice.as_deref().and_then(|name| voice.find(name));
        let voice = own.or_else(|| voice.for_language(language)).map(str::to_owned);
        // They were read when the session started.
        let functions = functions(&setup.functions).unwrap_or_default();
        Self { manner: Manner { voice, ..Manner::default() }, functions: functions.into(), ..Self::default() }
    }

    /// The setup with the prompt in effect.
    pub fn setup(&self, setup: Arc<Setup>) -> Arc<Setup> {
        match &self.prompt {
            None => setup,
            Some(prompt) => Arc::new(Setup { instructions: Some(prompt.to_string()), ..(*setup).clone() }),
        }
    }
}

/// Functions that the client was asked to run for one question.
#[derive(Default)]
pub struct Calls {
    pub question: String,
    pub pending: Vec<FunctionCall>,
    pub done: Vec<Called>,
}

/// A function that the client has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub call: FunctionCall,
    pub content: String,
}

impl Calls {
    /// Notes what the client answered; false if it was not asked. Older clients name the function alone.
    pub fn answered(&mut self, id: Option<&str>, name: &str, content: String) -> bool {
        let is_it = |call: &FunctionCall| id.map_or(call.name == name, |id| call.id == id);
        let Some(at) = self.pending.iter().position(is_it) else { return false };
        let call = self.pending.remove(at);
        self.done.push(Called { call, content });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_answered_once_by_its_id_or_its_name() {
        let call = |id: &str| FunctionCall {
            id: id.into(),
            name: "weather".into(),
            arguments: "{}".into(),
            client_side: true,
        };
        let mut calls = Calls { pending: vec![call("a"), call("b")], ..Calls::default() };
        assert!(calls.answered(Some("b"), "weather", "rain".into()));
        assert!(!calls.answered(Some("b"), "weather", "rain".into()));
        assert!(!calls.answered(None, "news", "none".into()));
        assert!(calls.answered(None, "weather", "sun".into()));
        let done: Vec<_> = calls.done.iter().map(|called| (&*called.call.id, &*called.content)).collect();
        assert!(calls.pending.is_empty() && done == [("b", "rain"), ("a", "sun")]);
    }
}
