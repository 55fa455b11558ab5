//! The agent's state and its loop.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

use super::ear::Ear;
use super::page;
use super::persona::{Calls, Persona};
use super::playback::{Clip, Due, Playback};
use super::reply::{Job, Plan, Reply, Spoken};
use super::responder::Effect;
use super::tools::Tools;
use crate::figures::Seconds;
use crate::patience::Patience;
use crate::room::{Inbound, Kind, Message, Outbound, Participant};
use crate::session::{AgentState, EndReason, Error, Event, Handle, Line, Role, Session, SmsStatus};
use crate::telemetry::metrics;

/// Loop interval while the agent speaks.
const TICK: Duration = Duration::from_millis(20);
/// Loop interval while nothing is due.
const REST: Duration = Duration::from_secs(5);
/// Wait after the last key of a row.
const KEYS_WAIT: Duration = Duration::from_millis(2500);
const KEYS_MAX: usize = 32;
/// Digits of a code.
const CODE_DIGITS: usize = 4;
/// A page is mentioned only if it stays open for this long.
const PAGE_REST: Duration = Duration::from_millis(1000);
const JOBS_MAX: usize = 16;

const GREETING: &str = "Hello! How can I help you?";

/// Results of work that runs beside the agent.
pub(super) enum Inward {
    Heard {
        text: Result<String, String>,
        ended: Instant,
    },
    /// The wait after a pause is over: the pause ends the turn unless speech has resumed.
    PauseOver {
        seat: u64,
        pause: u64,
    },
    /// The verifier could not check the answer.
    Unchecked,
    /// The answer contained no proof. Asking again costs no attempt.
    Unproven {
        category: String,
    },
}

pub(super) struct Agent {
    pub(super) tools: Arc<Tools>,
    pub(super) handle: Arc<Handle>,
    events: broadcast::Receiver<Event>,
    inward: mpsc::Receiver<Inward>,
    pub(super) to_self: mpsc::Sender<Inward>,
    pub(super) people: Vec<Participant>,
    pub(super) hearing: Hearing,
    pub(super) talk: Talk,
    pub(super) questions: Questions,
    pub(super) persona: Persona,
    pub(super) calls: Calls,
    /// Warnings for the next participant.
    pub(super) warnings: Vec<(&'static str, String)>,
    keypad: Keypad,
    page: Page,
    pub(super) absence: Absence,
    is_greeted: bool,
    begun: Instant,
    pub(super) ending: Option<EndReason>,
}

/// The participants' speech.
#[derive(Default)]
pub(super) struct Hearing {
    pub(super) ears: HashMap<u64, Ear>,
    /// Seats in the middle of a turn.
    pub(super) speaking: HashSet<u64>,
    /// Utterances that are being recognised.
    pub(super) unheard: usize,
}

/// The agent's speech.
#[derive(Default)]
pub(super) struct Talk {
    pub(super) jobs: VecDeque<Job>,
    pub(super) reply: Option<Reply>,
    pub(super) playback: Playback,
    /// The rest of the reply, while a participant speaks over it.
    pub(super) paused: Option<Paused>,
}

pub(super) struct Paused {
    pub(super) heard: String,
    pub(super) rest: Vec<Clip>,
}

/// Questions to come back to.
#[derive(Default)]
pub(super) struct Questions {
    /// To be answered as soon as its category is verified.
    pub(super) gated: Option<String>,
    /// The caller continued it before it was answered.
    pub(super) unanswered: Option<String>,
}

/// Digits keyed on a telephone.
#[derive(Default)]
struct Keypad {
    keys: String,
    /// When the row of keys counts as complete.
    due: Option<Instant>,
}

/// The page that a participant has open.
#[derive(Default)]
struct Page {
    place: Option<String>,
    /// When to speak of it.
    due: Option<Instant>,
}

/// Silence and empty rooms.
pub(super) struct Absence {
    /// When a participant last said something, or the agent last stopped.
    pub(super) quiet_since: Instant,
    pub(super) nudges: u32,
    /// How long the agent waits for a participant to come back to an empty room.
    pub(super) alone: Option<Patience>,
    /// Whether the last participant to leave was a telephone.
    pub(super) hung_up: bool,
}

/// Serves a session's participants until the session ends or the server stops.
pub async fn run(tools: Arc<Tools>, handle: Arc<Handle>, mut inbound: mpsc::Receiver<Inbound>) {
    let stop = tools.stop.clone();
    let mut agent = Agent::new(tools, handle);
    tokio::select! {
        () = stop.cancelled() => {}
        reason = agent.serve(&mut inbound) => {
            agent.handle.set_agent_state(AgentState::Left);
            if let Err(error) = agent.tools.sessions.end(&agent.handle, reason).await {
                tracing::error!(session = agent.handle.id, %error, "the end is not noted");
            }
            agent.pass_on_events();
            agent.tell(&Outbound::End);
        }
    }
}

impl Agent {
    fn new(tools: Arc<Tools>, handle: Arc<Handle>) -> Self {
        let (to_self, inward) = mpsc::channel(64);
        let now = Instant::now();
        let persona = Persona::of(&handle.setup(), &tools.voice);
        Self {
            events: handle.watch(),
            is_greeted: handle.read(|session| !session.transcript.is_empty()),
            tools,
            handle,
            inward,
            to_self,
            people: Vec::new(),
            hearing: Hearing::default(),
            talk: Talk::default(),
            questions: Questions::default(),
            persona,
            calls: Calls::default(),
            warnings: Vec::new(),
            keypad: Keypad::default(),
            page: Page::default(),
            absence: Absence { quiet_since: now, nudges: 0, alone: None, hung_up: false },
            begun: now,
            ending: None,
        }
    }

    async fn serve(&mut self, inbound: &mut mpsc::Receiver<Inbound>) -> EndReason {
        loop {
            let wake = self.next_wake(Instant::now());
            tokio::select! {
                Some(inbound) = inbound.recv() => self.take(inbound).await,
                Ok(event) = self.events.recv() => self.note(event).await,
                Some(inward) = self.inward.recv() => self.understand(inward).await,
                spoken = Reply::next(&mut self.talk.reply) => self.spoken(spoken).await,
                () = sleep_until(wake) => {}
            }
            // It may have ended elsewhere: its room is gone, or its time is over.
            if let Some((_, reason)) = self.handle.read(|session| session.ended) {
                return reason;
            }
            if let Some(reason) = self.advance(Instant::now()).await {
                return reason;
            }
        }
    }

    fn next_wake(&self, now: Instant) -> Instant {
        if self.is_talking() {
            return now + TICK;
        }
        let alone = self.absence.alone.map(|alone| alone.until());
        let due = [self.keypad.due, self.page.due, alone];
        due.into_iter().flatten().fold(now + REST, Instant::min).max(now + TICK)
    }

    pub(super) fn is_talking(&self) -> bool {
        self.talk.reply.is_some()
    }

    /// Whether a participant is connected. This notices a closed connection before its `Left` arrives.
    fn is_heard(&self) -> bool {
        self.people.iter().any(|person| !person.output.is_closed())
    }

    pub(super) fn tell(&mut self, outbound: &Outbound) {
        // Drops participants who cannot keep up or have left.
        self.people.retain(|person| person.output.try_send(outbound.clone()).is_ok());
    }

    pub(super) fn message(&mut self, message: &Message<'_>) {
        self.tell(&Outbound::Message(message.to_json().into()));
    }

    pub(super) fn set_state(&mut self, state: AgentState) {
        if self.handle.agent_state() != state {
            self.handle.set_agent_state(state);
            self.message(&Message::AgentState { state: state.name() });
        }
    }

    /// Changes the session. Failures are only logged, because no request waits for the result.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut Session, u64, &mut Vec<Event>) -> Result<(), Error>,
    ) {
        if let Err(error) = self.handle.change(change).await {
            tracing::warn!(session = self.handle.id, %error, "the session did not change");
        }
    }

    async fn take(&mut self, inbound: Inbound) {
        let now = Instant::now();
        match inbound {
            Inbound::Joined(person) => {
                self.people.push(person);
                self.absence.alone = None;
                self.absence.quiet_since = now;
                let state = match self.handle.agent_state() {
                    AgentState::None | AgentState::Left => AgentState::Listening,
                    state => state,
                };
                self.handle.set_agent_state(state);
                self.message(&Message::AgentState { state: state.name() });
                self.pass_on_warnings();
                if !std::mem::replace(&mut self.is_greeted, true) {
                    let greeting = self.handle.setup().greeting.clone().unwrap_or_else(|| GREETING.into());
                    self.queue(Job { is_interruptible: false, ..Job::say([greeting]) });
                }
                self.announce().await;
            }
            Inbound::Left { seat, kind } => {
                self.people.retain(|person| person.seat != seat);
                self.hearing.ears.remove(&seat);
                self.hearing.speaking.remove(&seat);
                self.absence.hung_up = kind == Kind::Phone;
                if self.people.is_empty() {
                    let patience = self.patience();
                    self.absence.alone.get_or_insert(patience);
                }
            }
            Inbound::Audio { seat, samples } => self.listen(seat, &samples).await,
            Inbound::Text(text) => {
                self.interrupt().await;
                self.lose_floor().await;
                self.utterance(&text, now).await;
            }
            Inbound::Settings(settings) => self.set_up(*settings),
            Inbound::Order(order) => self.obey(*order).await,
            Inbound::Digit(digit) => {
                if digit.is_ascii_digit() && self.keypad.keys.len() < KEYS_MAX {
                    self.keypad.keys.push(digit);
                }
                let is_code = self.keypad.keys.len() == CODE_DIGITS
                    && self.handle.read(|s| s.pending_verification.is_some());
                self.keypad.due = Some(if digit == '#' || is_code { now } else { now + KEYS_WAIT });
            }
            Inbound::PageContext(context) => {
                self.change(|session, now, events| {
                    session.check_open()?;
                    session.show_page(&context, now, events);
                    Ok(())
                })
                .await;
            }
            Inbound::Played(mark) => self.talk.playback.echoed(mark),
        }
    }

    pub(super) async fn note_user(&self, content: String) {
        self.note_line(Role::User, content, false, None).await;
    }

    async fn note_line(&self, role: Role, content: String, interrupted: bool, latency_ms: Option<u64>) {
        self.change(move |session, at, events| {
            session.say(Line { id: 0, role, content, interrupted, at, latency_ms }, events);
            Ok(())
        })
        .await;
    }

    pub(super) fn queue(&mut self, job: Job) {
        if self.talk.jobs.len() < JOBS_MAX {
            self.talk.jobs.push_back(job);
        }
    }

    /// Announces completions that the agent has not mentioned yet, if a participant can hear it.
    async fn announce(&mut self) {
        if !self.is_heard() || self.handle.read(|session| session.announcements.is_empty()) {
            return;
        }
        let taken = self.handle.change(|session, _, _| Ok(std::mem::take(&mut session.announcements))).await;
        match taken {
            Ok(lines) => lines.into_iter().for_each(|line| self.queue(Job::say([line]))),
            Err(error) => tracing::warn!(session = self.handle.id, %error, "a completion is not announced"),
        }
    }

    /// Handles a change of the session, whatever caused it: passes it on to participants and reacts to it.
    async fn note(&mut self, event: Event) {
        self.pass_on(&event);
        match event {
            Event::VerificationUpdated { category, verified, attempts, locked } => {
                self.verified(&category, verified, attempts, locked).await;
            }
            Event::CompletionNotice(_) => self.announce().await,
            Event::SmsUpdated(message) if message.status == SmsStatus::Failed => {
                self.queue(Job::say(["I'm sorry, the text message could not be sent."]));
            }
            Event::PageContextUpdated { page_context, .. } if self.handle.setup().page_guidance_enabled => {
                let place = page::shown(&page_context);
                if place.is_some() && place != self.page.place {
                    self.page.place = place;
                    self.page.due = Some(Instant::now() + PAGE_REST);
                }
            }
            _ => {}
        }
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    async fn spoken(&mut self, spoken: Option<Spoken>) {
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

    /// Does everything that is due. Returns why the session is over, if it is.
    async fn advance(&mut self, now: Instant) -> Option<EndReason> {
        for due in self.talk.playback.due(now) {
            match due {
                Due::Begin(text) => self.message(&Message::assistant(&text)),
                Due::Audio(samples, range) => self.tell(&Outbound::Audio(samples, range)),
                Due::Mark(mark) => self.tell(&Outbound::Mark(mark)),
            }
        }
        let has_phone = self.people.iter().any(|person| person.kind == Kind::Phone);
        let is_whole = self.talk.reply.as_ref().is_some_and(|reply| reply.is_whole && !reply.is_paused);
        if is_whole && self.talk.playback.is_over(now, has_phone) {
            if let Some(mut reply) = self.talk.reply.take() {
                reply.heard.push(self.talk.playback.take_heard());
                self.said(&reply, false).await;
            }
            self.message(&Message::AgentAudioDone);
            self.set_state(AgentState::Listening);
            self.absence.quiet_since = now;
            if let Some(reason) = self.ending.filter(|_| self.talk.jobs.is_empty()) {
                return Some(reason);
            }
        }
        if self.keypad.due.is_some_and(|due| now >= due) {
            self.keypad.due = None;
            let keys = std::mem::take(&mut self.keypad.keys);
            if !keys.is_empty() {
                self.interrupt().await;
                self.lose_floor().await;
                self.keyed(&keys, now).await;
            }
        }
        let is_idle = self.talk.reply.is_none()
            && self.talk.jobs.is_empty()
            && self.hearing.speaking.is_empty()
            && self.hearing.unheard == 0;
        if self.page.due.is_some_and(|due| now >= due) && is_idle {
            self.page.due = None;
            if let Some(place) = self.page.place.clone() {
                self.queue(Job::say([place]));
            }
        }
        if now >= self.begun + self.tools.settings.talk_max && self.ending.is_none() {
            self.ending = Some(EndReason::TooLong);
            self.queue(Job::say(["I'm sorry, our time is up. Goodbye!"]));
        }
        if let Some(reason) = self.gone(now) {
            return Some(reason);
        }
        self.nudge(now, is_idle);
        // The agent starts no new reply until a participant can hear it.
        if !self.is_heard() && self.talk.reply.is_none() {
            return self.ending;
        }
        // Only the greeting may be spoken over a participant.
        let may_begin =
            self.talk.reply.is_none() && self.hearing.speaking.is_empty() && self.hearing.unheard == 0;
        let is_first = self.talk.jobs.front().is_some_and(|job| !job.is_interruptible);
        if (may_begin || (is_first && self.talk.reply.is_none()))
            && let Some(job) = self.talk.jobs.pop_front()
        {
            if matches!(job.plan, Plan::Answer(_) | Plan::Resume { .. }) {
                self.message(&Message::AgentThinking { content: "" });
                self.set_state(AgentState::Thinking);
            }
            self.talk.reply = Some(Reply::begin(&self.tools, &self.handle, &self.persona, job));
        }
        None
    }
}
