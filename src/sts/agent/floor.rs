//! Who has the floor: what is heard, what stops the agent, and what is to be answered.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::ear::{Ear, Noticed};
use super::reply::{Job, Plan};
use super::responder::{is_backchannel, secured};
use super::{Agent, Inward, Paused};
use crate::audio::Pcm;
use crate::sts::concealed::{Caution, MASK, concealed, is_all_digits};
use crate::sts::room::{AgentState, Outbound, wire};
use crate::sts::session::EndReason;
use crate::vad::Utterance;

const UNHEARD: &str = "I'm sorry, I could not hear that. Could you say it again?";
const UNAVAILABLE: &str = "I'm sorry, I can't check that at the moment. Please try again later.";

impl Agent {
    pub(super) async fn listen(&mut self, seat: u64, samples: &[f32]) {
        let Some(vad) = &self.service.parts.vad else { return };
        let turn = &self.service.config.turn;
        let judged = self.service.turn_model.is_some();
        let ear = self.ears.entry(seat).or_insert_with(|| Ear::new(vad, turn, judged));
        for noticed in ear.listen(samples) {
            match noticed {
                Noticed::Began => {
                    self.speaking.insert(seat);
                    if !self.is_talking() {
                        self.message(wire::bare("UserStartedSpeaking"));
                    }
                }
                Noticed::Insists => self.interrupt().await,
                Noticed::Paused(so_far, pause) => self.judge(seat, so_far, pause),
                Noticed::Ended(utterance) => self.turn_over(seat, utterance),
            }
        }
    }

    /// Lets the model say whether a pause ends a turn, and lets it end now or when it has lasted too long.
    fn judge(&self, seat: u64, so_far: Pcm, pause: u64) {
        let (service, to_self) = (self.service.clone(), self.to_self.clone());
        self.service.tasks.spawn(async move {
            let turn = &service.config.turn;
            let began = Instant::now();
            let complete = match &service.turn_model {
                Some(model) => model.is_complete(so_far).await,
                None => None,
            };
            let silence_ms = match complete {
                Some(true) => 0,
                Some(false) => turn.wait_ms,
                None => turn.silence_ms,
            };
            let wait = Duration::from_millis(silence_ms.saturating_sub(turn.pause_ms));
            tokio::select! {
                () = service.stop.cancelled() => return,
                () = sleep_until(began + wait) => {}
            }
            // The agent may have gone.
            let _ = to_self.send(Inward::PauseOver { seat, pause }).await;
        });
    }

    fn turn_over(&mut self, seat: u64, utterance: Utterance) {
        self.speaking.remove(&seat);
        self.quiet_since = Instant::now();
        self.message(wire::bare("UserStoppedSpeaking"));
        self.unheard += 1;
        let recognition = (self.service.parts.recognize)(utterance, self.live.tenant);
        let (to_self, ended) = (self.to_self.clone(), Instant::now());
        self.service.tasks.spawn(async move {
            let text = recognition.await;
            // The agent may have gone.
            let _ = to_self.send(Inward::Heard { text, ended }).await;
        });
    }

    /// Somebody speaks over the agent: it is silent at once, and may go on later.
    pub(super) async fn interrupt(&mut self) {
        let now = Instant::now();
        let Some(reply) = &mut self.reply else { return };
        if !reply.is_interruptible || self.paused.is_some() {
            return;
        }
        let stopped = self.playback.stop(now);
        reply.is_paused = true;
        self.paused = Some(Paused { heard: stopped.heard, rest: stopped.rest });
        self.message(wire::bare("UserStartedSpeaking"));
        // Also where nothing of ours is left to go out: what went out may not have been played.
        self.tell(&Outbound::Clear);
        self.set_state(AgentState::Listening);
    }

    /// It was no interruption: the agent goes on from the word it was stopped at.
    fn go_on(&mut self) {
        let Some(paused) = self.paused.take() else { return };
        if let Some(reply) = &mut self.reply {
            reply.is_paused = false;
            reply.heard.push(paused.heard);
        }
        for clip in paused.rest {
            self.playback.push(clip);
        }
        self.set_state(AgentState::Speaking);
    }

    /// Somebody else has the floor: the rest of what was being said is not said any more.
    pub(super) async fn lose_floor(&mut self) {
        let Some(paused) = self.paused.take() else { return };
        let Some(mut reply) = self.reply.take() else { return };
        // Who goes on before a word was answered asks one question, not two.
        if !reply.has_begun {
            self.unanswered = reply.question.take();
        }
        reply.heard.push(paused.heard);
        self.said(&reply, true).await;
        // Older questions are not answered any more; what happened is still to be told.
        self.jobs.retain(|job| matches!(job.plan, Plan::Say(_)));
        self.quiet_since = Instant::now();
    }

    pub(super) async fn understand(&mut self, inward: Inward) {
        let (text, ended) = match inward {
            Inward::Unchecked => {
                self.change(|session, _, _| {
                    session.pending_verification = None;
                    Ok(())
                })
                .await;
                self.stashed = None;
                return self.queue(Job::say([UNAVAILABLE]));
            }
            Inward::Unproven { category } => return self.ask_again(&category),
            Inward::PauseOver { seat, pause } => {
                // Who has gone on speaking is not cut off.
                if let Some(utterance) = self.ears.get_mut(&seat).and_then(|ear| ear.end(pause)) {
                    self.turn_over(seat, utterance);
                }
                return;
            }
            Inward::Heard { text, ended } => (text, ended),
        };
        self.unheard = self.unheard.saturating_sub(1);
        match text {
            Err(error) => {
                tracing::warn!(session = self.live.id, %error, "an utterance was not recognised");
                self.lose_floor().await;
                self.queue(Job::say([UNHEARD]));
            }
            Ok(text) if text.trim().is_empty() => self.go_on(),
            // Also where the agent speaks on: «mhm» is no question.
            Ok(text) if self.is_talking() && is_backchannel(&text) => self.go_on(),
            Ok(text) => {
                self.lose_floor().await;
                self.utterance(&text, ended).await;
            }
        }
    }

    /// Somebody has said something that is to be answered.
    pub(super) async fn utterance(&mut self, text: &str, ended: Instant) {
        (self.nudges, self.quiet_since) = (0, Instant::now());
        // Who asks one thing more does not want to go yet.
        self.ending = self.ending.filter(|reason| *reason != EndReason::Goodbye);
        let pending = self.live.read(|session| session.pending_verification.clone());
        if let Some(category) = pending {
            return self.prove(text, category).await;
        }
        let caution = self.caution();
        let text = self.concealed(text, caution).await;
        // Numbers are known by their words in English alone.
        let is_readable = caution != Caution::Digits || self.service.config.language == "en";
        self.note_user(if is_readable { text.clone() } else { MASK.to_owned() }).await;
        if caution == Caution::Digits && is_all_digits(&text) {
            return self.unasked_digits();
        }
        self.question(&text, ended).await;
    }

    /// As [`Self::utterance`], keyed. On a keypad every digit may be one of a code.
    pub(super) async fn keyed(&mut self, keys: &str, ended: Instant) {
        let caution = self.caution();
        if self.live.read(|session| session.pending_verification.is_some()) || caution != Caution::Codes {
            return self.utterance(keys, ended).await;
        }
        (self.nudges, self.quiet_since) = (0, Instant::now());
        self.ending = self.ending.filter(|reason| *reason != EndReason::Goodbye);
        self.note_user(MASK.to_owned()).await;
        // A choice of a menu can be answered; what could be a code is not passed on.
        self.question(&concealed(keys, caution), ended).await;
    }

    /// Which digits of what callers say are hidden now.
    fn caution(&self) -> Caution {
        let setup = self.live.setup();
        self.live.read(|session| session.caution(&setup))
    }

    /// `text` as it may be read, and remembered where a proof is owed.
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
        let text = &match self.unanswered.take() {
            Some(begun) => format!("{begun} {text}"),
            None => text.to_owned(),
        };
        if let Some(category) = secured(&self.live.setup(), text)
            && self.gate(&category, Some(text)).await
        {
            return;
        }
        self.queue(Job { asked: Some(ended), ..Job::new(Plan::Answer(text.to_owned())) });
    }
}
