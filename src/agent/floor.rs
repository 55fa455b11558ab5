//! The floor: handles what participants say, interrupts the agent, and decides what needs an answer.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::conversation::{Agent, Inward, Paused};
use super::ear::{Ear, Noticed};
use super::recognizer::Whose;
use super::reply::{Job, Plan};
use super::responder::{is_backchannel, secured};
use crate::audio::Pcm;
use crate::room::{Message, Outbound};
use crate::session::{AgentState, Caution, EndReason, MASK, concealed, is_all_digits};
use crate::turn::{Judgement, THRESHOLD};
use crate::vad::Utterance;

const UNHEARD: &str = "I'm sorry, I could not hear that. Could you say it again?";
const UNAVAILABLE: &str = "I'm sorry, I can't check that at the moment. Please try again later.";

impl Agent {
    pub(super) async fn listen(&mut self, seat: u64, samples: &[f32]) {
        let Some(vad) = &self.tools.vad else { return };
        let turn = &self.tools.settings.turn;
        let judged = self.tools.turn_model.is_some() || self.persona.end_threshold.is_some();
        let ear = self.hearing.ears.entry(seat).or_insert_with(|| Ear::new(vad, turn, judged));
        for noticed in ear.listen(samples) {
            match noticed {
                Noticed::Began => {
                    self.hearing.speaking.insert(seat);
                    if !self.is_talking() {
                        self.message(&Message::UserStartedSpeaking);
                    }
                }
                Noticed::Insists => self.interrupt().await,
                Noticed::Paused(so_far, pause) => self.judge(seat, so_far, pause),
                Noticed::Ended(utterance) => self.turn_over(seat, utterance),
            }
        }
    }

    /// Asks the model whether a pause ends the turn: at once if so, otherwise when the pause has lasted too long.
    fn judge(&self, seat: u64, so_far: Pcm, pause: u64) {
        let (tools, to_self) = (self.tools.clone(), self.to_self.clone());
        let wait_ms = self.persona.turn_timeout_ms.unwrap_or(tools.settings.turn.wait_ms);
        let threshold = self.persona.end_threshold;
        self.tools.tasks.spawn(async move {
            let turn = &tools.settings.turn;
            let began = Instant::now();
            let probability = match &tools.turn_model {
                Some(model) => model.probability(so_far).await,
                None => None,
            };
            let silence_ms = match (threshold, probability) {
                (Some(threshold), _) => {
                    let after = Duration::from_millis(turn.pause_ms).as_secs_f64();
                    let complete = |p: f32| Judgement::Complete { probability: p.into(), after };
                    let judgement = probability.map_or(Judgement::Unknown, complete);
                    let silence = judgement.silence_until(threshold);
                    silence.map_or(wait_ms, |seconds| ((seconds * 1000.0) as u64).min(wait_ms))
                }
                (None, Some(probability)) if probability >= THRESHOLD => 0,
                (None, Some(_)) => wait_ms,
                (None, None) => turn.silence_ms,
            };
            let wait = Duration::from_millis(silence_ms.saturating_sub(turn.pause_ms));
            tokio::select! {
                () = tools.stop.cancelled() => return,
                () = sleep_until(began + wait) => {}
            }
            // The agent may be gone.
            let _ = to_self.send(Inward::PauseOver { seat, pause }).await;
        });
    }

    pub(super) fn turn_over(&mut self, seat: u64, utterance: Utterance) {
        self.hearing.speaking.remove(&seat);
        self.absence.quiet_since = Instant::now();
        self.message(&Message::UserStoppedSpeaking);
        self.hearing.unheard += 1;
        let whose = Whose { tenant: self.handle.tenant, terms: self.persona.terms.clone() };
        let recognition = (self.tools.recognize)(utterance, whose);
        let (to_self, ended) = (self.to_self.clone(), Instant::now());
        self.tools.tasks.spawn(async move {
            let text = recognition.await;
            // The agent may be gone.
            let _ = to_self.send(Inward::Heard { text, ended }).await;
        });
    }

    /// A participant speaks over the agent: it falls silent at once, and may continue later.
    pub(super) async fn interrupt(&mut self) {
        let now = Instant::now();
        let Some(reply) = &mut self.talk.reply else { return };
        if !reply.is_interruptible || self.talk.paused.is_some() {
            return;
        }
        let stopped = self.talk.playback.stop(now);
        reply.is_paused = true;
        self.talk.paused = Some(Paused { heard: stopped.heard, rest: stopped.rest });
        self.message(&Message::UserStartedSpeaking);
        // Even with nothing left to send: audio that was sent may not have been played.
        self.tell(&Outbound::Clear);
        self.set_state(AgentState::Listening);
    }

    /// It was not an interruption: the agent continues from the word at which it stopped.
    fn go_on(&mut self) {
        let Some(paused) = self.talk.paused.take() else { return };
        if let Some(reply) = &mut self.talk.reply {
            reply.is_paused = false;
            reply.heard.push(paused.heard);
        }
        for clip in paused.rest {
            self.talk.playback.push(clip);
        }
        self.set_state(AgentState::Speaking);
    }

    /// A participant has the floor: the agent drops the rest of its reply.
    pub(super) async fn lose_floor(&mut self) {
        let Some(paused) = self.talk.paused.take() else { return };
        let Some(mut reply) = self.talk.reply.take() else { return };
        // A caller who continues before the answer began asks one question, not two.
        if !reply.has_begun {
            self.questions.unanswered = reply.question.take();
        }
        reply.heard.push(paused.heard);
        self.said(&reply, true).await;
        // Older questions are dropped; announcements stay.
        self.talk.jobs.retain(|job| matches!(job.plan, Plan::Say(_)));
        self.absence.quiet_since = Instant::now();
    }

    pub(super) async fn understand(&mut self, inward: Inward) {
        let (text, ended) = match inward {
            Inward::Unchecked => {
                self.change(|session, _, _| {
                    session.pending_verification = None;
                    Ok(())
                })
                .await;
                self.questions.gated = None;
                return self.queue(Job::say([UNAVAILABLE]));
            }
            Inward::Unproven { category } => return self.ask_again(&category),
            Inward::PauseOver { seat, pause } => {
                // The caller may have resumed speaking.
                if let Some(utterance) = self.hearing.ears.get_mut(&seat).and_then(|ear| ear.end(pause)) {
                    self.turn_over(seat, utterance);
                }
                return;
            }
            Inward::Heard { text, ended } => (text, ended),
        };
        self.hearing.unheard = self.hearing.unheard.saturating_sub(1);
        match text {
            Err(error) => {
                tracing::warn!(session = self.handle.id, %error, "an utterance was not recognised");
                self.lose_floor().await;
                self.queue(Job::say([UNHEARD]));
            }
            Ok(text) if text.trim().is_empty() => self.go_on(),
            // "Mhm" while the agent speaks is not a question.
            Ok(text) if self.is_talking() && is_backchannel(&text) => self.go_on(),
            Ok(text) => {
                self.lose_floor().await;
                self.utterance(&text, ended).await;
            }
        }
    }

    /// Handles an utterance that needs an answer.
    pub(super) async fn utterance(&mut self, text: &str, ended: Instant) {
        (self.absence.nudges, self.absence.quiet_since) = (0, Instant::now());
        // A caller who asks something more does not want to end the call yet.
        self.ending = self.ending.filter(|reason| *reason != EndReason::Goodbye);
        let pending = self.handle.read(|session| session.pending_verification.clone());
        if let Some(category) = pending {
            return self.prove(text, category).await;
        }
        let caution = self.caution();
        let text = self.concealed(text, caution).await;
        // Number words are known in English only.
        let is_readable = caution != Caution::Digits || self.tools.settings.language == "en";
        self.note_user(if is_readable { text.clone() } else { MASK.to_owned() }).await;
        if caution == Caution::Digits && is_all_digits(&text) {
            return self.unasked_digits();
        }
        self.question(&text, ended).await;
    }

    /// Like [`Self::utterance`], for keys. Any keyed digit may be part of a code.
    pub(super) async fn keyed(&mut self, keys: &str, ended: Instant) {
        let caution = self.caution();
        if self.handle.read(|session| session.pending_verification.is_some()) || caution != Caution::Codes {
            return self.utterance(keys, ended).await;
        }
        (self.absence.nudges, self.absence.quiet_since) = (0, Instant::now());
        self.ending = self.ending.filter(|reason| *reason != EndReason::Goodbye);
        self.note_user(MASK.to_owned()).await;
        // A menu choice can be answered; a possible code is not passed on.
        self.question(&concealed(keys, caution), ended).await;
    }

    /// Which digits in callers' words are hidden now.
    fn caution(&self) -> Caution {
        let setup = self.handle.setup();
        self.handle.read(|session| session.caution(&setup))
    }

    /// `text` as it may be shown. While a proof is owed, its digits are remembered.
    async fn concealed(&self, text: &str, caution: Caution) -> String {
        let hidden = concealed(text, caution);
        if caution == Caution::Digits && hidden != text {
            let given = text.to_owned();
            self.change(move |session, _, _| {
                session.given.note(&given);
                Ok(())
            })
            .await;
        }
        hidden
    }

    pub(super) async fn question(&mut self, text: &str, ended: Instant) {
        let text = &match self.questions.unanswered.take() {
            Some(begun) => format!("{begun} {text}"),
            None => text.to_owned(),
        };
        if let Some(category) = secured(&self.handle.setup(), text)
            && self.gate(&category, Some(text)).await
        {
            return;
        }
        self.queue(Job { asked: Some(ended), ..Job::new(Plan::Answer(text.to_owned())) });
    }
}
