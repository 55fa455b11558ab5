//! The agent's state and its loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

use super::observers::Observers;
use super::page;
use super::persona::{Calls, Persona};
use super::reply::{Job, Reply};
use super::state::{Absence, Hearing, Inward, Keypad, Page, Questions, Talk};
use super::timing::Timing;
use super::tools::Tools;
use crate::recording::Tape;
use crate::room::{Inbound, Kind, Message, Outbound, Participant};
use crate::session::{AgentState, EndReason, Error, Event, Handle, Line, Role, Session, SmsStatus};

/// Loop interval while the agent speaks.
const TICK: Duration = Duration::from_millis(20);
/// Loop interval while nothing is due.
const REST: Duration = Duration::from_secs(5);
/// A page is mentioned only if it stays open for this long.
const PAGE_REST: Duration = Duration::from_millis(1000);
const JOBS_MAX: usize = 16;

const GREETING: &str = "Hello! How can I help you?";

pub(super) struct Agent {
    pub(super) tools: Arc<Tools>,
    pub(super) handle: Arc<Handle>,
    pub(super) events: broadcast::Receiver<Event>,
    inward: mpsc::Receiver<Inward>,
    pub(super) to_self: mpsc::Sender<Inward>,
    pub(super) people: Vec<Participant>,
    pub(super) observers: Observers,
    pub(super) hearing: Hearing,
    pub(super) talk: Talk,
    pub(super) questions: Questions,
    pub(super) persona: Persona,
    pub(super) calls: Calls,
    /// Warnings for the next participant.
    pub(super) warnings: Vec<(&'static str, String)>,
    pub(super) keypad: Keypad,
    page: Page,
    pub(super) absence: Absence,
    is_greeted: bool,
    pub(super) timing: Timing,
    pub(super) tape: Option<Tape>,
    pub(super) ending: Option<EndReason>,
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
        let persona = Persona::of(&handle.setup(), &tools.voice, &tools.settings.language);
        let timing = Timing::of(now, &tools.settings, &handle.setup());
        Self {
            events: handle.watch(),
            is_greeted: handle.read(|session| !session.transcript.is_empty()),
            tools,
            handle,
            inward,
            to_self,
            people: Vec::new(),
            observers: Observers::default(),
            hearing: Hearing::default(),
            talk: Talk::default(),
            questions: Questions::default(),
            persona,
            calls: Calls::default(),
            warnings: Vec::new(),
            keypad: Keypad::default(),
            page: Page::default(),
            absence: Absence { quiet_since: now, nudges: 0, alone: None, hung_up: false },
            timing,
            tape: None,
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
        let due = [self.keypad.due, self.page.due, alone, self.next_reminder(now)];
        due.into_iter().flatten().fold(now + REST, Instant::min).max(now + TICK)
    }

    /// A moment on the agent's clock.
    pub(super) fn seconds(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.timing.begun).as_secs_f64()
    }

    /// Whether a participant is connected. This notices a closed connection before its `Left` arrives.
    pub(super) fn is_heard(&self) -> bool {
        self.people.iter().any(|person| !person.output.is_closed())
    }

    pub(super) fn tell(&mut self, outbound: &Outbound) {
        self.record_said(outbound);
        // Drops participants who cannot keep up or have left.
        self.people.retain(|person| person.output.try_send(outbound.clone()).is_ok());
        self.observers.tell(outbound);
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
                self.begin_recording().await;
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
                self.go_on_from(seat);
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
            Inbound::Order(order) => {
                self.talk.prepared = None;
                self.obey(*order).await;
            }
            Inbound::Digit(digit) => self.key(digit, now),
            Inbound::PageContext(context) => {
                self.change(|session, now, events| {
                    session.check_open()?;
                    session.show_page(&context, now, events);
                    Ok(())
                })
                .await;
            }
            Inbound::Played(mark) => self.talk.playback.echoed(mark),
            Inbound::Observed(output) => self.observers.add(output),
        }
    }

    pub(super) async fn note_line(
        &self,
        role: Role,
        content: String,
        interrupted: bool,
        latency_ms: Option<u64>,
    ) {
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

    /// Handles a change of the session, whatever caused it: passes it on to participants and reacts to it.
    async fn note(&mut self, event: Event) {
        self.pass_on(&event);
        if !matches!(event, Event::ConversationText(_)) {
            // Perhaps it changes the answer.
            self.talk.prepared = None;
        }
        match event {
            Event::VerificationUpdated { category, verified, attempts, locked } => {
                self.verified(&category, verified, attempts, locked).await;
            }
            Event::CompletionNotice(_) => self.announce().await,
            Event::TransferRequested => self.hand_over().await,
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

    /// Does everything that is due. Returns why the session is over, if it is.
    async fn advance(&mut self, now: Instant) -> Option<EndReason> {
        self.roll_tape(now);
        if let Some(reason) = self.play(now).await {
            return Some(reason);
        }
        self.take_keys(now).await;
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
        if let Some(reason) = self.keep_time(now).or_else(|| self.gone(now)) {
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
            self.begin(job);
        }
        None
    }
}
