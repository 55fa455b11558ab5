//! Eager ends of turns: what a pause may mean is found out while it lasts, and an answer is prepared. Nothing of it has an
//! effect before the turn has ended, and all of it is dropped if the participant goes on.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::conversation::Agent;
use super::reply::{Job, Plan, Reply};
use super::responder::secured;
use super::state::{Draft, Inward, Prepared};
use crate::session::{Caution, concealed};
use crate::turn::{Ending, Expected, Look, Rules, ending};
use crate::vad::Utterance;

/// Digits of a code.
const CODE_DIGITS: usize = 4;
/// Audio that is on its way counts more than the clock.
const CLOCK_GRACE: Duration = Duration::from_millis(100);

/// The words of a turn that has ended by a pause.
pub(super) enum Drafted {
    Known(Result<String, String>),
    /// They will come as [`Inward::Drafted`].
    Awaited,
}

impl Agent {
    /// How long a participant who pauses is waited for.
    pub(super) fn rules(&self) -> Rules {
        let mut rules = Rules::of(&self.tools.settings.turn);
        rules.threshold = self.persona.end_threshold;
        if let Some(timeout_ms) = self.persona.turn_timeout_ms {
            rules.wait = Duration::from_millis(timeout_ms).as_secs_f64();
        }
        rules
    }

    /// Has a pause judged, and at its begin the words recognised.
    pub(super) fn look(&mut self, seat: u64, look: Look) {
        let Look { pause, silence, speech, utterance } = look;
        let (tools, to_self) = (self.tools.clone(), self.to_self.clone());
        self.tools.tasks.spawn(async move {
            let probability = match &tools.turn_model {
                Some(model) => model.probability(speech).await,
                None => None,
            };
            // The agent may be gone.
            let _ = to_self.send(Inward::Judged { seat, pause, silence, probability }).await;
        });
        let Some(utterance) = utterance.filter(|_| self.tools.settings.turn.eager) else { return };
        self.drop_draft(seat);
        let work = self.recognise(utterance, move |text| Inward::Drafted { seat, pause, text });
        self.hearing.drafts.push(Draft { seat, pause, text: None, ended: None, _work: work });
    }

    /// Recognises an utterance until the result is dropped.
    fn recognise(
        &self,
        utterance: Utterance,
        inward: impl FnOnce(Result<String, String>) -> Inward + Send + 'static,
    ) -> DropGuard {
        let (recognition, to_self) = (self.recognition(utterance), self.to_self.clone());
        let dropped = CancellationToken::new();
        let work = dropped.clone();
        self.tools.tasks.spawn(async move {
            tokio::select! {
                () = work.cancelled() => {}
                text = recognition => {
                    let _ = to_self.send(inward(text)).await;
                }
            }
        });
        dropped.drop_guard()
    }

    /// A participant has spoken over the agent for long enough to stop it, unless the words only signal attention.
    pub(super) async fn insisted(&mut self, seat: u64, utterance: Utterance) {
        let is_heard_out = self.tools.settings.turn.eager && self.tools.turn_model.is_some();
        let begun = self.talk.reply.as_ref().is_some_and(|reply| reply.is_interruptible && reply.has_begun);
        if !is_heard_out || !begun || self.talk.paused.is_some() {
            return self.interrupt().await;
        }
        let work = self.recognise(utterance, move |text| Inward::Interjected { seat, text });
        self.hearing.interjections.insert(seat, work);
    }

    pub(super) async fn interjected(&mut self, seat: u64, text: Result<String, String>) {
        let is_on = self.hearing.interjections.remove(&seat).is_some();
        if is_on && !text.is_ok_and(|text| self.is_aside(seat, &text)) {
            self.interrupt().await;
        }
    }

    /// Forgets the words of a pause that did not end the turn.
    fn drop_draft(&mut self, seat: u64) {
        self.hearing.drafts.retain(|draft| draft.seat != seat || draft.ended.is_some());
    }

    /// The participant goes on: a prepared answer would answer half a question.
    pub(super) fn resumed(&mut self, seat: u64) {
        self.drop_draft(seat);
        if self.talk.prepared.as_ref().is_some_and(|prepared| prepared.seat == seat) {
            self.talk.prepared = None;
        }
    }

    /// The words of a turn that has `ended` by its pause `pause`, if they were asked for.
    pub(super) fn take_draft(&mut self, seat: u64, pause: u64, ended: Instant) -> Option<Drafted> {
        let at = self.draft(seat, pause)?;
        let draft = self.hearing.drafts.get_mut(at)?;
        if let Some(text) = draft.text.take() {
            self.hearing.drafts.remove(at);
            return Some(Drafted::Known(text));
        }
        draft.ended = Some(ended);
        Some(Drafted::Awaited)
    }

    fn draft(&self, seat: u64, pause: u64) -> Option<usize> {
        self.hearing.drafts.iter().position(|draft| draft.seat == seat && draft.pause == pause)
    }

    pub(super) async fn drafted(&mut self, seat: u64, pause: u64, text: Result<String, String>) {
        let Some(at) = self.draft(seat, pause) else { return };
        if let Some(ended) = self.hearing.drafts.get(at).and_then(|draft| draft.ended) {
            self.hearing.drafts.remove(at);
            self.hearing.unheard = self.hearing.unheard.saturating_sub(1);
            return self.heard(seat, text, ended).await;
        }
        let (rules, is_aside) = (self.rules(), text.as_ref().is_ok_and(|text| self.is_aside(seat, text)));
        let words = text.as_ref().map_or(Ending::Loose, |text| self.ending(text));
        if let Some(draft) = self.hearing.drafts.get_mut(at) {
            draft.text = Some(text);
        }
        let Some(ear) = self.hearing.ears.get_mut(&seat) else { return };
        let over = if is_aside { ear.end(pause) } else { ear.recognised(pause, words, &rules) };
        match over {
            Some(utterance) => self.turn_over(seat, utterance, Some(pause)).await,
            None => self.wait(seat, pause, &rules),
        }
    }

    pub(super) async fn judged(&mut self, seat: u64, pause: u64, silence: f64, probability: Option<f32>) {
        let rules = self.rules();
        let Some(ear) = self.hearing.ears.get_mut(&seat) else { return };
        match ear.judged(pause, silence, probability, &rules) {
            Some(utterance) => self.turn_over(seat, utterance, Some(pause)).await,
            None => self.wait(seat, pause, &rules),
        }
    }

    /// The end of `text`, as far as its language is known.
    fn ending(&self, text: &str) -> Ending {
        let is_known = matches!(&*self.tools.settings.language, "en" | "auto");
        let is_proof = self.handle.read(|session| session.pending_verification.is_some());
        let expected = if is_proof { Expected::Digits(CODE_DIGITS) } else { Expected::Anything };
        if is_known { ending(text, expected) } else { Ending::Closed }
    }

    /// Waits for more silence, also by the clock, and prepares an answer meanwhile.
    fn wait(&mut self, seat: u64, pause: u64, rules: &Rules) {
        let Some(ear) = self.hearing.ears.get(&seat) else { return };
        let Some((needed, so_far)) = ear.awaits(pause, rules) else { return };
        let is_probable = ear.has_probably_ended(pause);
        let more = Duration::try_from_secs_f64(needed - so_far).unwrap_or_default() + CLOCK_GRACE;
        let (to_self, stop) = (self.to_self.clone(), self.tools.stop.clone());
        self.tools.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(more) => {}
            }
            let _ = to_self.send(Inward::Waited { seat, pause, silence: needed }).await;
        });
        if is_probable {
            self.prepare(seat, pause);
        }
    }

    /// Begins the answer to what was said before a pause, if nothing but an answer can follow from it.
    fn prepare(&mut self, seat: u64, pause: u64) {
        let is_alone = self.hearing.speaking.iter().all(|other| *other == seat) && self.hearing.unheard == 0;
        let is_free = !self.is_talking() && self.talk.jobs.is_empty() && self.talk.prepared.is_none();
        if !is_alone || !is_free || !self.is_heard() {
            return;
        }
        let draft = self.draft(seat, pause).and_then(|at| self.hearing.drafts.get(at));
        let Some(Ok(text)) = draft.and_then(|draft| draft.text.as_ref()) else { return };
        let question = self.whole_question(text);
        let caution = self.caution();
        // Proofs, secured questions and numbers that may be a code go other ways.
        if self.handle.read(|session| session.pending_verification.is_some())
            || caution == Caution::Digits
            || concealed(text, caution) != *text
            || secured(&self.handle.setup(), &question).is_some()
        {
            return;
        }
        let job = Job::new(Plan::Answer(question.clone()));
        let reply = Reply::begin(&self.tools, &self.handle, &self.persona, job);
        self.talk.prepared = Some(Prepared { seat, question, reply });
    }
}
