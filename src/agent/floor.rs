//! The floor: handles what participants say, interrupts the agent, and decides what needs an answer.

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::conversation::Agent;
use super::eager::Drafted;
use super::recognizer::Whose;
use super::reply::{Job, Plan};
use super::responder::secured;
use super::state::{Inward, Paused};
use crate::audio::SAMPLE_RATE;
use crate::room::{Message, Outbound};
use crate::session::{AgentState, Caution, EndReason, MASK, concealed, is_all_digits};
use crate::turn::{Ear, Noticed, are_own_words, is_backchannel};
use crate::vad::Utterance;

const UNHEARD: &str = "I'm sorry, I could not hear that. Could you say it again?";
const UNAVAILABLE: &str = "I'm sorry, I can't check that at the moment. Please try again later.";

impl Agent {
    pub(super) async fn listen(&mut self, seat: u64, samples: &[f32]) {
        self.record_heard(seat, samples);
        self.observers.hear(seat, samples);
        let Some(vad) = &self.tools.vad else { return };
        let rules = self.rules();
        let judged = self.tools.turn_model.is_some() || self.persona.end_threshold.is_some();
        let begins = self.seconds(Instant::now()) - samples.len() as f64 / f64::from(SAMPLE_RATE);
        let ear = self.hearing.ears.entry(seat);
        let ear = ear.or_insert_with(|| Ear::new(vad, &self.tools.settings.turn, judged));
        let agent = self.talk.reference.as_ref().map(|reference| (reference, begins));
        for noticed in ear.listen(samples, &rules, agent) {
            match noticed {
                Noticed::Began => self.turn_begun(seat),
                Noticed::Insists(utterance) => self.insisted(seat, utterance).await,
                Noticed::Persists => self.interrupt().await,
                Noticed::Paused(look) => self.look(seat, look),
                Noticed::Resumed => self.resumed(seat),
                Noticed::Ended(utterance, pause) => self.turn_over(seat, utterance, pause).await,
                Noticed::Echoed => self.go_on_from(seat),
            }
        }
        self.overhear(seat);
    }

    fn turn_begun(&mut self, seat: u64) {
        self.hearing.speaking.insert(seat);
        match self.is_talking() {
            true => self.hearing.overlapping.insert(seat),
            false => self.hearing.overlapping.remove(&seat),
        };
        if !self.is_talking() {
            self.message(&Message::UserStartedSpeaking);
        }
    }

    /// `pause`: the number of the pause that ended it, whose words may be known.
    pub(super) async fn turn_over(&mut self, seat: u64, utterance: Utterance, pause: Option<u64>) {
        self.hearing.speaking.remove(&seat);
        self.hearing.interjections.remove(&seat);
        self.hearing.overhearing.turn_over(seat);
        self.absence.quiet_since = Instant::now();
        self.message(&Message::UserStoppedSpeaking);
        let ended = Instant::now();
        match pause.and_then(|pause| self.take_draft(seat, pause, ended)) {
            Some(Drafted::Known(text)) => return self.heard(seat, text, ended).await,
            Some(Drafted::Awaited) => return self.hearing.unheard += 1,
            None => {}
        }
        self.hearing.unheard += 1;
        let recognition = self.recognition(utterance);
        let to_self = self.to_self.clone();
        self.tools.tasks.spawn(async move {
            let text = recognition.await;
            // The agent may be gone.
            let _ = to_self.send(Inward::Heard { seat, text, ended }).await;
        });
    }

    pub(super) fn recognition(&self, utterance: Utterance) -> BoxFuture<'static, Result<String, String>> {
        let whose = Whose { tenant: self.handle.tenant, terms: self.persona.terms.clone() };
        (self.tools.recognize)(utterance, whose)
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
        let has_begun = self.talk.reply.as_ref().is_some_and(|reply| reply.has_begun);
        self.set_state(if has_begun { AgentState::Speaking } else { AgentState::Thinking });
    }

    /// The speech was not the participant's, or they have left: the agent continues.
    pub(super) fn go_on_from(&mut self, seat: u64) {
        self.hearing.speaking.remove(&seat);
        self.hearing.interjections.remove(&seat);
        if self.hearing.speaking.is_empty() && self.hearing.unheard == 0 {
            self.go_on();
        }
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
        match inward {
            Inward::Unchecked => {
                self.change(|session, _, _| {
                    session.pending_verification = None;
                    Ok(())
                })
                .await;
                self.questions.gated = None;
                self.queue(Job::say([UNAVAILABLE]));
            }
            Inward::Unproven { category } => self.ask_again(&category),
            Inward::Interjected { seat, text } => self.interjected(seat, text).await,
            Inward::Drafted { seat, pause, text } => self.drafted(seat, pause, text).await,
            Inward::Judged { seat, pause, silence, probability } => {
                self.judged(seat, pause, silence, probability).await;
            }
            Inward::Waited { seat, pause, silence } => {
                let rules = self.rules();
                let ear = self.hearing.ears.get_mut(&seat);
                // The caller may have resumed speaking.
                if let Some(utterance) = ear.and_then(|ear| ear.waited(pause, silence, &rules)) {
                    self.turn_over(seat, utterance, Some(pause)).await;
                }
            }
            Inward::Overheard(overheard) => self.overheard(overheard),
            Inward::Heard { seat, text, ended } => {
                self.hearing.unheard = self.hearing.unheard.saturating_sub(1);
                self.heard(seat, text, ended).await;
            }
        }
    }

    /// Takes the words of a turn.
    pub(super) async fn heard(&mut self, seat: u64, text: Result<String, String>, ended: Instant) {
        self.hearing.overhearing.speaker = Some(seat);
        match text {
            Err(error) => {
                tracing::warn!(session = self.handle.id, %error, "an utterance was not recognised");
                self.lose_floor().await;
                self.queue(Job::say([UNHEARD]));
            }
            Ok(text) if self.is_aside(seat, &text) => self.go_on_from(seat),
            Ok(text) => {
                self.lose_floor().await;
                self.utterance(&text, ended).await;
            }
        }
        self.hearing.overhearing.speaker = None;
    }

    /// Whether words of a participant need no answer: there are none, they only signal attention while the agent has the
    /// floor, or they are the agent's own, out of a loudspeaker.
    pub(super) fn is_aside(&self, seat: u64, text: &str) -> bool {
        let has_floor = self.is_talking() || !self.talk.jobs.is_empty() || self.hearing.unheard > 0;
        let said = || self.talk.lines.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        text.trim().is_empty()
            || (has_floor && is_backchannel(text))
            || (self.hearing.overlapping.contains(&seat) && are_own_words(text, &said()))
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
    pub(super) fn caution(&self) -> Caution {
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
        let text = &self.whole_question(text);
        self.questions.unanswered = None;
        if let Some(category) = secured(&self.handle.setup(), text)
            && self.gate(&category, Some(text)).await
        {
            return;
        }
        if self.is_handed_over(text).await {
            return;
        }
        self.queue(Job { asked: Some(ended), ..Job::new(Plan::Answer(text.to_owned())) });
    }

    /// `text` with the question that it continues.
    pub(super) fn whole_question(&self, text: &str) -> String {
        match &self.questions.unanswered {
            Some(begun) => format!("{begun} {text}"),
            None => text.to_owned(),
        }
    }
}
