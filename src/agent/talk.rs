//! The agent's speech: takes the parts of a reply, plays them, and notes what was heard of them.

use tokio::time::Instant;

use super::conversation::Agent;
use super::playback::Due;
use super::reply::{Job, Plan, Reply, Spoken};
use super::responder::Effect;
use super::state::Prepared;
use crate::figures::Seconds;
use crate::room::{Kind, Message, Outbound};
use crate::session::{AgentState, EndReason, Role};
use crate::speech::VOICE_RATE;
use crate::telemetry::metrics;
use crate::turn::Reference;

/// Lines that are remembered to recognise an echo by its words.
const LINES_MAX: usize = 3;

impl Agent {
    pub(super) fn is_talking(&self) -> bool {
        self.talk.reply.is_some()
    }

    /// Begins the next job, if it is an answer perhaps where its preparation has come to.
    pub(super) fn begin(&mut self, job: Job) {
        if matches!(job.plan, Plan::Answer(_) | Plan::Resume { .. }) {
            self.message(&Message::AgentThinking { content: "" });
            self.set_state(AgentState::Thinking);
        }
        let prepared = self.talk.prepared.take();
        self.talk.reply = Some(match (&job.plan, prepared) {
            (Plan::Answer(question), Some(Prepared { question: prepared, mut reply, .. }))
                if prepared == *question =>
            {
                (reply.asked, reply.is_interruptible) = (job.asked, job.is_interruptible);
                reply
            }
            _ => Reply::begin(&self.tools, &self.handle, &self.persona, job),
        });
    }

    /// Sends the speech that is due. Returns the reason why the session is over, if a reply was its last.
    pub(super) async fn play(&mut self, now: Instant) -> Option<EndReason> {
        for due in self.talk.playback.due(now) {
            match due {
                Due::Begin(text) => {
                    self.message(&Message::assistant(&text));
                    self.talk.lines.push_back(text);
                    let surplus = self.talk.lines.len().saturating_sub(LINES_MAX);
                    self.talk.lines.drain(..surplus);
                }
                Due::Audio { samples, range, heard_at } => {
                    let seconds = self.seconds(heard_at);
                    let reference = self.talk.reference.get_or_insert_with(|| Reference::new(VOICE_RATE));
                    reference.play(seconds, samples.get(range.clone()).unwrap_or_default());
                    self.tell(&Outbound::Audio(samples, range));
                }
                Due::Mark(mark) => self.tell(&Outbound::Mark(mark)),
            }
        }
        let has_phone = self.people.iter().any(|person| person.kind == Kind::Phone);
        let is_whole = self.talk.reply.as_ref().is_some_and(|reply| reply.is_whole && !reply.is_paused);
        if !is_whole || !self.talk.playback.is_over(now, has_phone) {
            return None;
        }
        if let Some(mut reply) = self.talk.reply.take() {
            reply.heard.push(self.talk.playback.take_heard());
            self.said(&reply, false).await;
        }
        self.message(&Message::AgentAudioDone);
        self.set_state(AgentState::Listening);
        self.absence.quiet_since = now;
        self.ending.filter(|_| self.talk.jobs.is_empty())
    }

    /// Takes the next part of the reply.
    pub(super) async fn spoken(&mut self, spoken: Option<Spoken>) {
        match spoken {
            Some(Spoken::Clip { clip, text_seconds, voice_seconds }) => {
                let Some(reply) = &mut self.talk.reply else { return };
                if let Some(paused) = &mut self.talk.paused {
                    return paused.rest.push(clip);
                }
                if !reply.has_begun {
                    reply.has_begun = true;
                    let total = reply.asked.map(|asked| asked.elapsed());
                    reply.latency_ms = total.and_then(|total| u64::try_from(total.as_millis()).ok());
                    let seconds = total.map_or(text_seconds + voice_seconds, |total| total.as_secs_f64());
                    if total.is_some() {
                        metrics::FIRST_AUDIO.with(&[]).record(seconds);
                    }
                    let [total_latency, tts_latency, ttt_latency] =
                        [seconds, voice_seconds, text_seconds].map(Seconds::new);
                    let started = Message::AgentStartedSpeaking { total_latency, tts_latency, ttt_latency };
                    self.message(&started);
                    if total.is_some() {
                        let ttt_text_latency = ttt_latency;
                        self.message(&Message::LatencyReport {
                            total_latency,
                            tts_latency,
                            ttt_text_latency,
                        });
                    }
                    self.set_state(AgentState::Speaking);
                }
                self.talk.playback.push(clip);
            }
            Some(Spoken::Act(Effect::SendLink(key))) => {
                let setup = self.handle.setup();
                self.change(|session, _, events| {
                    session.send_link("request", &key, &setup, events);
                    Ok(())
                })
                .await;
                self.tools.deliver(self.handle.clone());
            }
            Some(Spoken::Act(Effect::Verify(category))) => {
                if self.handle.setup().verification_rules.contains_key(&category) {
                    self.gate(&category, None).await;
                }
            }
            Some(Spoken::Act(Effect::Call(call))) => self.call(call),
            Some(Spoken::Act(Effect::End)) => self.ending = Some(EndReason::Goodbye),
            None => {
                if let Some(reply) = &mut self.talk.reply {
                    reply.is_whole = true;
                }
            }
        }
    }

    /// Adds the part of a reply that was heard to the transcript.
    pub(super) async fn said(&mut self, reply: &Reply, interrupted: bool) {
        let content =
            reply.heard.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(" ");
        if !content.is_empty() {
            self.note_line(Role::Assistant, content, interrupted, reply.latency_ms).await;
        }
    }
}
