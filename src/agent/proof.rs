//! Proofs of identity: asks for one before a secured question is answered, and reacts to the result.

use super::conversation::Agent;
use super::reply::{Job, Plan};
use super::responder::is_refusal;
use super::state::Inward;
use super::verify::Outcome;
use crate::session::{AgentState, Checked, Line, MASK, Role, Sms, SmsStatus, has_digits};

const PROMPT: &str =
    "Before I can help with that, I need to verify you. Please say or key in your four digit code.";
const PROMPT_SHORT: &str = "That did not match. Please say the four digits again.";
/// Wrong answers from one telephone number, across calls: calling again gives no new attempts.
const NUMBER_ATTEMPTS_MAX: u32 = 9;
const UNASKED: &str = "Could you tell me what you need?";
const LOCKED: &str = "I'm sorry, I could not verify you, so I can't help with that.";

impl Agent {
    /// Takes an utterance or keys as the proof for `category`.
    pub(super) async fn prove(&mut self, text: &str, category: String) {
        // Transcripts must not show a proof. Number words are known in English only.
        let has_digits = has_digits(text);
        let is_readable = !has_digits && (self.tools.settings.language == "en" || is_refusal(text));
        let (line, given) = (if is_readable { text } else { MASK }.to_owned(), text.to_owned());
        self.show(&line);
        self.change(move |session, at, events| {
            session.given.note(&given);
            let (role, interrupted, latency_ms) = (Role::User, false, None);
            session.say(Line { id: 0, role, content: line, interrupted, at, latency_ms }, events);
            Ok(())
        })
        .await;
        if is_refusal(text) {
            self.change(|session, _, _| {
                session.pending_verification = None;
                Ok(())
            })
            .await;
            self.questions.gated = None;
            return self.queue(Job::say(["All right. What else can I do for you?"]));
        }
        self.set_state(AgentState::Thinking);
        let (tools, handle, to_self) = (self.tools.clone(), self.handle.clone(), self.to_self.clone());
        let text = text.to_owned();
        self.tools.tasks.spawn(async move {
            match tools.verifier.check(&handle.id, &text, &category).await {
                Outcome::Unavailable => drop(to_self.send(Inward::Unchecked).await),
                Outcome::Checked { verified: false, .. } if !has_digits => {
                    drop(to_self.send(Inward::Unproven { category }).await);
                }
                Outcome::Checked { verified, source, details } => {
                    let checked = Checked { verified, source, details };
                    let setup = handle.setup();
                    // The agent learns the result from the event, like all watchers.
                    let changed = handle.change(|session, now, events| {
                        session.check_open()?;
                        session.verify(&category, checked, &setup, now, events)
                    });
                    if let Err(error) = changed.await {
                        tracing::warn!(session = handle.id, %error, "a verification is not noted");
                    }
                    tools.deliver(handle.clone());
                }
            }
        });
    }

    /// Whether a category or the calling number has had too many wrong answers.
    fn is_shut(&self, category: &str) -> bool {
        let (is_locked, number) = self.handle.read(|session| {
            let state = session.verifications.get(category);
            (state.is_some_and(|state| state.locked), session.caller_number.clone())
        });
        let sessions = &self.tools.sessions;
        let wrong = number.map_or(0, |number| sessions.wrong_answers(self.handle.tenant, &number));
        is_locked || wrong >= NUMBER_ATTEMPTS_MAX
    }

    /// Asks for a proof if the category is not verified. Returns whether it asked, or refused to.
    pub(super) async fn gate(&mut self, category: &str, question: Option<&str>) -> bool {
        if self.handle.read(|session| session.is_verified(category)) {
            return false;
        }
        let wanted = category.to_owned();
        if self.is_shut(category) {
            self.change(move |session, _, _| {
                session.asked.insert(wanted);
                Ok(())
            })
            .await;
            self.queue(Job::say([LOCKED]));
            return true;
        }
        self.questions.gated = question.map(str::to_owned);
        self.change(move |session, _, events| {
            session.ask(&wanted, events);
            Ok(())
        })
        .await;
        let setup = self.handle.setup();
        let rule = setup.verification_rules.get(category);
        let prompt = rule.and_then(|rule| rule.voice_prompt.clone()).unwrap_or_else(|| PROMPT.into());
        self.queue(Job::say([prompt]));
        true
    }

    pub(super) async fn verified(&mut self, category: &str, verified: bool, attempts: u32, locked: bool) {
        if verified {
            let is_sending = self.tools.courier.can_send()
                && self.handle.read(|session| {
                    let is_on_its_way =
                        |message: &Sms| message.to.is_some() && message.status != SmsStatus::Failed;
                    session
                        .messages
                        .iter()
                        .any(|message| message.category == category && is_on_its_way(message))
                });
            let mut lines = vec!["Thank you, you are verified.".to_owned()];
            if is_sending {
                lines.push("I'm sending you the link by text message.".into());
            }
            let question = self.questions.gated.take();
            if question.is_none() {
                lines.push("How can I help you?".into());
            }
            self.queue(Job::say(lines));
            if let Some(question) = question {
                self.queue(Job::new(Plan::Answer(question)));
            }
        } else if locked {
            self.questions.gated = None;
            self.queue(Job::say([LOCKED]));
        } else if attempts > 0 {
            self.ask_again(category);
        }
    }

    /// Reacts to digits that were not asked for but may be meant as a proof.
    pub(super) fn unasked_digits(&mut self) {
        let open = self.handle.read(|session| {
            let open = session.asked.iter().filter(|category| !session.is_verified(category));
            open.cloned().collect::<Vec<_>>()
        });
        let is_shut = open.iter().any(|category| self.is_shut(category));
        self.queue(Job::say([if is_shut { LOCKED } else { UNASKED }]));
    }

    pub(super) fn ask_again(&mut self, category: &str) {
        let setup = self.handle.setup();
        let rule = setup.verification_rules.get(category);
        let prompt = rule.and_then(|rule| rule.voice_prompt_short.clone());
        self.queue(Job::say([prompt.unwrap_or_else(|| PROMPT_SHORT.into())]));
    }
}
