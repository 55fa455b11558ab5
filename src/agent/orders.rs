//! Obeys the owner of the session: changes of the persona, lines to say, the end of a turn.

use std::sync::Arc;

use tokio::time::Instant;

use super::conversation::Agent;
use super::reply::{Job, Plan};
use super::state::Hearing;
use crate::engine::Term;
use crate::knowledge::{Knowledge, passages};
use crate::room::{AgentSettings, Behavior, Function, FunctionCall, Listen, Message, Order, Speak, Think};

/// Functions that may be asked for one question.
const CALLS_MAX: usize = 16;
/// Warnings that wait for a participant.
const WARNINGS_MAX: usize = 64;
/// The weight of a key term, as on `/v1/listen`.
const KEYTERM_WEIGHT: f32 = 1.0;
/// The source of the passages that the instructions are.
const INSTRUCTIONS: &str = "instructions";

impl Agent {
    /// The settings from before the first participant; the prompt is in the session's setup.
    pub(super) fn set_up(&mut self, settings: AgentSettings) {
        self.persona.history = settings.history.unwrap_or(true);
        self.persona.context = settings.context.into();
        self.warn_unused(&settings.unused);
        if settings.omitted > 0 {
            let omitted = settings.omitted;
            let problem = format!(
                "{omitted} of `agent.context.messages` are left out: the newest 100 lines of `user` and `assistant` \
                 count, each of at most 8 KiB"
            );
            self.warn("CONTEXT_CUT", problem);
        }
        let heard = &self.tools.settings.language;
        if settings.language.is_some_and(|language| heard != "auto" && *heard != language) {
            self.warn_unused(&["language"]);
        }
        if let Some(think) = settings.think {
            self.set_functions(think.functions, think.model, think.unused);
        }
        if let Some(speak) = settings.speak {
            self.set_voice(speak);
        }
        if let Some(listen) = settings.listen {
            self.set_listening(listen);
        }
    }

    pub(super) async fn obey(&mut self, order: Order) {
        match order {
            Order::UpdatePrompt(prompt) => {
                self.set_prompt(&prompt);
                self.message(&Message::PromptUpdated);
            }
            Order::UpdateThink(Think { prompt, functions, model, unused }) => {
                if let Some(prompt) = prompt {
                    self.set_prompt(&prompt);
                }
                self.set_functions(functions, model, unused);
                self.message(&Message::ThinkUpdated);
            }
            Order::UpdateSpeak(speak) => {
                if self.set_voice(speak) {
                    self.message(&Message::SpeakUpdated);
                }
            }
            Order::UpdateListen(listen) => {
                self.set_listening(listen);
                self.message(&Message::ListenUpdated);
            }
            Order::InjectAgentMessage { message, behavior } => self.inject(message, behavior).await,
            Order::ForceEndTurn => self.end_turns().await,
            Order::FunctionCallResponse { id, name, content } => self.called(id.as_deref(), &name, content),
        }
    }

    fn set_prompt(&mut self, prompt: &str) {
        self.persona.prompt = Some(Arc::from(prompt));
        let known = self.handle.knowledge();
        let others = known.passages().iter().filter(|passage| passage.source != INSTRUCTIONS).cloned();
        let all = others.chain(passages(INSTRUCTIONS, "", prompt)).collect();
        self.handle.learn(Knowledge::new(all, self.handle.setup().rationed()), false);
    }

    fn set_functions(
        &mut self,
        functions: Option<Vec<Function>>,
        model: Option<String>,
        mut unused: Vec<&'static str>,
    ) {
        // The server's operator chooses the chat model.
        if model.is_some_and(|model| self.tools.chat.as_ref().is_none_or(|chat| chat.model() != model)) {
            unused.push("model");
        }
        if let Some(functions) = functions {
            if self.tools.chat.is_none() && !functions.is_empty() {
                self.warn(
                    "FUNCTIONS_NOT_SUPPORTED",
                    "functions are called by a chat model, and this server has none",
                );
            }
            self.persona.functions = functions.into();
        }
        self.warn_unused(&unused);
    }

    /// False if there is no voice of that name.
    fn set_voice(&mut self, speak: Speak) -> bool {
        self.warn_unused(&speak.unused);
        if let Some(name) = &speak.voice {
            let voice = self.tools.voice.find(name).map(str::to_owned);
            // Without any voice, a name is as good as another.
            if voice.is_none() && !self.tools.voice.voices().is_empty() {
                self.warn("UNKNOWN_VOICE", "there is no voice of that name; the agent keeps its own");
                return false;
            }
            self.persona.manner.voice = voice;
        }
        if let Some(speed) = speak.speed {
            self.persona.manner.speed = speed;
        }
        true
    }

    fn set_listening(&mut self, listen: Listen) {
        self.warn_unused(&listen.unused);
        if listen.turn_timeout_ms.is_some() {
            self.persona.turn_timeout_ms = listen.turn_timeout_ms;
        }
        if listen.end_threshold.is_some() {
            self.persona.end_threshold = listen.end_threshold;
            // The others were made without a judge of their pauses, perhaps.
            let Hearing { ears, speaking, .. } = &mut self.hearing;
            ears.retain(|seat, _| speaking.contains(seat));
        }
        if let Some(keyterms) = listen.keyterms {
            let terms = keyterms.into_iter().map(|text| Term { text, weight: KEYTERM_WEIGHT });
            self.persona.terms = terms.collect();
        }
    }

    /// Before the first participant, who has sent the settings, the warning waits for them.
    fn warn(&mut self, code: &'static str, description: impl Into<String>) {
        let description = description.into();
        if !self.people.is_empty() {
            self.message(&Message::Warning { code, description: &description });
        } else if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push((code, description));
        }
    }

    pub(super) fn pass_on_warnings(&mut self) {
        for (code, description) in std::mem::take(&mut self.warnings) {
            self.message(&Message::Warning { code, description: &description });
        }
    }

    fn warn_unused(&mut self, names: &[&'static str]) {
        for name in names {
            self.warn("UNUSED_SETTING", format!("`{name}` has no effect here"));
        }
    }

    async fn inject(&mut self, message: String, behavior: Behavior) {
        let is_busy = self.is_talking()
            || !self.talk.jobs.is_empty()
            || !self.hearing.speaking.is_empty()
            || self.hearing.unheard > 0;
        match behavior {
            Behavior::Default if is_busy => {
                let message = "the agent or the caller is in the middle of a turn";
                return self.message(&Message::InjectionRefused { message });
            }
            Behavior::Default | Behavior::Queue => {}
            Behavior::Interrupt => {
                self.interrupt().await;
                self.lose_floor().await;
                self.talk.jobs.clear();
            }
        }
        self.queue(Job::say([message]));
    }

    /// Ends the turns of all who speak: what was said so far is the turn.
    async fn end_turns(&mut self) {
        let seats: Vec<u64> = self.hearing.speaking.iter().copied().collect();
        for seat in seats {
            if let Some(ear) = self.hearing.ears.remove(&seat) {
                self.turn_over(seat, ear.finish(), None).await;
            }
        }
    }

    /// The model wants a function to be run: the client is asked.
    pub(super) fn call(&mut self, call: FunctionCall) {
        let question = self.talk.reply.as_ref().and_then(|reply| reply.question.clone()).unwrap_or_default();
        if self.calls.question != question {
            self.calls = super::persona::Calls { question, ..Default::default() };
        }
        if self.calls.pending.len() + self.calls.done.len() >= CALLS_MAX {
            tracing::warn!(session = self.handle.id, "the chat model calls too many functions");
            return;
        }
        self.message(&Message::FunctionCallRequest { functions: std::slice::from_ref(&call) });
        self.calls.pending.push(call);
    }

    /// The client has run a function: once all have, the model goes on with its answer.
    fn called(&mut self, id: Option<&str>, name: &str, content: String) {
        if !self.calls.answered(id, name, content) {
            return self.warn("UNKNOWN_FUNCTION_CALL", "no such function call is open");
        }
        if self.calls.pending.is_empty() {
            let (question, called) = (self.calls.question.clone(), self.calls.done.clone());
            let plan = Plan::Resume { question, called };
            self.queue(Job { asked: Some(Instant::now()), ..Job::new(plan) });
        }
    }
}
