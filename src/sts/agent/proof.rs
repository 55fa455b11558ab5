//! Who the caller is: asked for before secured questions are answered, checked, and told to all.

use super::reply::{Job, Plan};
use super::responder::is_refusal;
use super::{Agent, Inward};
use crate::sts::digits::digits;
use crate::sts::event::Event;
use crate::sts::room::AgentState;
use crate::sts::session::Checked;
use crate::sts::verify::Outcome;

const PROMPT: &str =
    "Before I can help with that, I need to verify you. Please say or key in your four digit code.";
const PROMPT_SHORT: &str = "That did not match. Please say the four digits again.";
/// Wrong answers from one telephone number, in whichever calls: who calls again does not begin again.
const NUMBER_ATTEMPTS_MAX: u32 = 9;
const LOCKED: &str = "I'm sorry, I could not verify you, so I can't help with that.";

impl Agent {
    /// Takes what was said, or keyed, as an answer to being asked for proof of `category`.
    pub(super) async fn prove(&mut self, text: &str, category: String) {
        // What proves something is nobody's to read.
        let has_digits = !digits(text).is_empty();
        self.note_user(if has_digits { "••••".into() } else { text.to_owned() }).await;
        if is_refusal(text) {
            self.change(|session, _, _| {
                session.pending_verification = None;
                Ok(())
            })
            .await;
            self.stashed = None;
            return self.queue(Job::say(["All right. What else can I do for you?"]));
        }
        self.set_state(AgentState::Thinking);
        let (service, live, to_self) = (self.service.clone(), self.live.clone(), self.to_self.clone());
        let text = text.to_owned();
        self.service.tasks.spawn(async move {
            match service.verifier.check(&live.id, &text, &category).await {
                Outcome::Unavailable => drop(to_self.send(Inward::Unchecked).await),
                Outcome::Checked { verified: false, .. } if !has_digits => {
                    drop(to_self.send(Inward::Unproven { category }).await);
                }
                Outcome::Checked { verified, source, details } => {
                    let checked = Checked { verified, source, details };
                    // The agent hears of it as everybody does.
                    let changed = live.change(|session, now, events| {
                        session.check_open()?;
                        session.verify(&category, checked, &live.setup, now, events)
                    });
                    if let Err(error) = changed.await {
                        tracing::warn!(session = live.id, %error, "a verification is not noted");
                    }
                    service.courier.deliver(&live).await;
                }
            }
        });
    }

    /// Asks for proof where there is none; whether it was asked for, or refused.
    pub(super) async fn gate(&mut self, category: &str, question: Option<&str>) -> bool {
        let (verified, locked, number) = self.live.read(|session| {
            let state = session.verifications.get(category);
            let locked = state.is_some_and(|state| state.locked);
            (session.is_verified(category), locked, session.caller_number.clone())
        });
        let sessions = &self.service.sessions;
        let wrong = number.map_or(0, |number| sessions.wrong_answers(self.live.tenant, &number));
        let locked = locked || wrong >= NUMBER_ATTEMPTS_MAX;
        if verified {
            return false;
        }
        if locked {
            self.queue(Job::say([LOCKED]));
            return true;
        }
        self.stashed = question.map(str::to_owned);
        let wanted = category.to_owned();
        self.change(|session, _, events| {
            session.pending_verification = Some(wanted.clone());
            events.push(Event::VerificationRequested { category: wanted });
            Ok(())
        })
        .await;
        let rule = self.live.setup.verification_rules.get(category);
        let prompt = rule.and_then(|rule| rule.voice_prompt.clone()).unwrap_or_else(|| PROMPT.into());
        self.queue(Job::say([prompt]));
        true
    }

    pub(super) async fn verified(&mut self, category: &str, verified: bool, attempts: u32, locked: bool) {
        if verified {
            let is_sending = self.live.read(|session| {
                session.messages.iter().any(|message| message.category == category && message.to.is_some())
            });
            let mut lines = vec!["Thank you, you are verified.".to_owned()];
            if is_sending {
                lines.push("I'm sending you the link by text message.".into());
            }
            let question = self.stashed.take();
            if question.is_none() {
                lines.push("How can I help you?".into());
            }
            self.queue(Job::say(lines));
            if let Some(question) = question {
                self.queue(Job::new(Plan::Answer(question)));
            }
        } else if locked {
            self.stashed = None;
            self.queue(Job::say([LOCKED]));
        } else if attempts > 0 {
            self.ask_again(category);
        }
    }

    pub(super) fn ask_again(&mut self, category: &str) {
        let rule = self.live.setup.verification_rules.get(category);
        let prompt = rule.and_then(|rule| rule.voice_prompt_short.clone());
        self.queue(Job::say([prompt.unwrap_or_else(|| PROMPT_SHORT.into())]));
    }
}
