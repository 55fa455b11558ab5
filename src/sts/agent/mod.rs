//! The agent of one room: it listens, answers and speaks.
//!
//! ```text
//! audio ─▶ Ear (voice activity) ─ utterance ─▶ recognise ─ text ─▶ Job ─▶ reply: responder → voice
//!                ├─ pause ─▶ is the turn complete? ─▶ utterance, at once or later
//!                └─ speech while the agent speaks ─▶ pause                         │
//! people ◀────────────────── Playback (a little ahead of the ear) ◀───────────────┘
//! ```
//! One task owns it all. What takes time — recognition, answers, speech, the hook — runs beside it and
//! comes back by channels, so that a caller is heard at every moment.
//!
//! Somebody who speaks while the agent speaks pauses it at once. When it is known what was said, the
//! agent either goes on («mhm») or has lost the floor: then the history keeps what was heard of it.

mod absence;
pub mod chat;
mod ear;
mod floor;
mod page;
mod playback;
mod proof;
mod reply;
pub mod responder;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

use super::event::Event;
use super::room::{AgentState, Inbound, Outbound, Participant, wire};
use super::session::{EndReason, Line, Role, SmsStatus};
use super::sessions::Live;
use super::token::Kind;
use super::{Error, Service};
use crate::patience::Patience;
use crate::telemetry::metrics;
use ear::Ear;
use playback::{Clip, Due, Playback};
use reply::{Job, Plan, Reply, Spoken};
use responder::Effect;

/// While the agent speaks.
const TICK: Duration = Duration::from_millis(20);
/// While nothing is due.
const REST: Duration = Duration::from_secs(5);
/// After the last key of a row.
const KEYS_WAIT: Duration = Duration::from_millis(2500);
const KEYS_MAX: usize = 32;
/// What the keypad sends to prove something has so many digits.
const CODE_DIGITS: usize = 4;
/// A page that changes again at once is not spoken of.
const PAGE_REST: Duration = Duration::from_millis(1000);
const JOBS_MAX: usize = 16;

const GREETING: &str = "Hello! How can I help you?";

/// What runs beside the agent and comes back.
enum Inward {
    Heard {
        text: Result<String, String>,
        ended: Instant,
    },
    /// A pause that ends a turn, if it is one still.
    PauseOver {
        seat: u64,
        pause: u64,
    },
    /// Nobody could say whether the answer was right.
    Unchecked,
    /// It was none: asking again costs no attempt.
    Unproven {
        category: String,
    },
}

struct Agent {
    service: Arc<Service>,
    live: Arc<Live>,
    events: broadcast::Receiver<Event>,
    inward: mpsc::Receiver<Inward>,
    to_self: mpsc::Sender<Inward>,
    people: Vec<Participant>,
    ears: HashMap<u64, Ear>,
    /// Who is in the middle of a turn.
    speaking: HashSet<u64>,
    /// Utterances that are being recognised.
    unheard: usize,
    jobs: VecDeque<Job>,
    reply: Option<Reply>,
    playback: Playback,
    /// What was being said when somebody began to speak.
    paused: Option<Paused>,
    /// What is to be answered when its category is verified.
    stashed: Option<String>,
    /// A question that was cut off by its own end.
    unanswered: Option<String>,
    keys: String,
    keys_due: Option<Instant>,
    page_due: Option<Instant>,
    last_place: Option<String>,
    is_greeted: bool,
    begun: Instant,
    /// When somebody last said something, or the agent last stopped.
    quiet_since: Instant,
    nudges: u32,
    /// How long the agent waits for a participant to come back, where all have left.
    alone: Option<Patience>,
    /// Whether it was a telephone that left last.
    hung_up: bool,
    ending: Option<EndReason>,
}

struct Paused {
    heard: String,
    rest: Vec<Clip>,
}

/// Serves a room until its session ends, or the server stops.
pub async fn run(service: Arc<Service>, live: Arc<Live>, mut inbound: mpsc::Receiver<Inbound>) {
    let stop = service.stop.clone();
    let mut agent = Agent::new(service, live);
    tokio::select! {
        () = stop.cancelled() => {}
        reason = agent.serve(&mut inbound) => {
            agent.live.room.set_agent_state(AgentState::Left);
            if let Err(error) = agent.service.sessions.end(&agent.live, reason).await {
                tracing::error!(session = agent.live.id, %error, "the end is not noted");
            }
            agent.pass_on_events();
            agent.tell(&Outbound::End);
        }
    }
}

impl Agent {
    fn new(service: Arc<Service>, live: Arc<Live>) -> Self {
        let (to_self, inward) = mpsc::channel(64);
        let now = Instant::now();
        Self {
            events: live.watch(),
            is_greeted: live.read(|session| !session.transcript.is_empty()),
            service,
            live,
            inward,
            to_self,
            people: Vec::new(),
            ears: HashMap::new(),
            speaking: HashSet::new(),
            unheard: 0,
            jobs: VecDeque::new(),
            reply: None,
            playback: Playback::default(),
            paused: None,
            stashed: None,
            unanswered: None,
            keys: String::new(),
            keys_due: None,
            page_due: None,
            last_place: None,
            begun: now,
            quiet_since: now,
            nudges: 0,
            alone: None,
            hung_up: false,
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
                spoken = Reply::next(&mut self.reply) => self.spoken(spoken).await,
                () = sleep_until(wake) => {}
            }
            // It may have been ended by another: its room is gone, or its time is over.
            if let Some((_, reason)) = self.live.read(|session| session.ended) {
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
        let alone = self.alone.map(|alone| alone.until());
        let due = [self.keys_due, self.page_due, alone];
        due.into_iter().flatten().fold(now + REST, Instant::min).max(now + TICK)
    }

    fn is_talking(&self) -> bool {
        self.reply.is_some()
    }

    /// Whether anyone is connected. This notices a person who left before they say so.
    fn is_heard(&self) -> bool {
        self.people.iter().any(|person| !person.output.is_closed())
    }

    fn tell(&mut self, outbound: &Outbound) {
        // Who does not keep up is dropped; who has left is found out here too.
        self.people.retain(|person| person.output.try_send(outbound.clone()).is_ok());
    }

    fn message(&mut self, text: String) {
        self.tell(&Outbound::Message(text.into()));
    }

    fn set_state(&mut self, state: AgentState) {
        if self.live.room.agent_state() != state {
            self.live.room.set_agent_state(state);
            self.message(wire::state(state.name()));
        }
    }

    /// Changes the session; what fails is logged, as nobody waits for it.
    async fn change(
        &self,
        change: impl FnOnce(&mut super::session::Session, u64, &mut Vec<Event>) -> Result<(), Error>,
    ) {
        if let Err(error) = self.live.change(change).await {
            tracing::warn!(session = self.live.id, %error, "the session did not change");
        }
    }

    async fn take(&mut self, inbound: Inbound) {
        let now = Instant::now();
        match inbound {
            Inbound::Joined(person) => {
                self.people.push(person);
                self.alone = None;
                self.quiet_since = now;
                let state = match self.live.room.agent_state() {
                    AgentState::None | AgentState::Left => AgentState::Listening,
                    state => state,
                };
                self.live.room.set_agent_state(state);
                self.message(wire::state(state.name()));
                if !std::mem::replace(&mut self.is_greeted, true) {
                    let greeting = self.live.setup().greeting.clone().unwrap_or_else(|| GREETING.into());
                    self.queue(Job { is_interruptible: false, ..Job::say([greeting]) });
                }
                self.announce().await;
            }
            Inbound::Left { seat, kind } => {
                self.people.retain(|person| person.seat != seat);
                self.ears.remove(&seat);
                self.speaking.remove(&seat);
                self.hung_up = kind == Kind::Phone;
                if self.people.is_empty() {
                    let patience = self.patience();
                    self.alone.get_or_insert(patience);
                }
            }
            Inbound::Audio { seat, samples } => self.listen(seat, &samples).await,
            Inbound::Text(text) => {
                self.interrupt().await;
                self.lose_floor().await;
                self.utterance(&text, now).await;
            }
            Inbound::Digit(digit) => {
                if digit.is_ascii_digit() && self.keys.len() < KEYS_MAX {
                    self.keys.push(digit);
                }
                let is_code =
                    self.keys.len() == CODE_DIGITS && self.live.read(|s| s.pending_verification.is_some());
                self.keys_due = Some(if digit == '#' || is_code { now } else { now + KEYS_WAIT });
            }
            Inbound::Played(mark) => self.playback.echoed(mark),
        }
    }

    async fn note_user(&self, content: String) {
        self.note_line(Role::User, content, false, None).await;
    }

    async fn note_line(&self, role: Role, content: String, interrupted: bool, latency_ms: Option<u64>) {
        self.change(move |session, at, events| {
            session.say(Line { id: 0, role, content, interrupted, at, latency_ms }, events);
            Ok(())
        })
        .await;
    }

    fn queue(&mut self, job: Job) {
        if self.jobs.len() < JOBS_MAX {
            self.jobs.push_back(job);
        }
    }

    /// Announces completions that the agent has not spoken of yet, where anyone is there to hear it.
    async fn announce(&mut self) {
        if !self.is_heard() || self.live.read(|session| session.announcements.is_empty()) {
            return;
        }
        let taken = self.live.change(|session, _, _| Ok(std::mem::take(&mut session.announcements))).await;
        match taken {
            Ok(lines) => lines.into_iter().for_each(|line| self.queue(Job::say([line]))),
            Err(error) => tracing::warn!(session = self.live.id, %error, "a completion is not announced"),
        }
    }

    /// Something changed in the session, by whomever: all are told, and what concerns the agent is
    /// acted on.
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
            Event::PageContextUpdated { page_context, .. } if self.live.setup().page_guidance_enabled => {
                let place = page::shown(&page_context);
                if place.is_some() && place != self.last_place {
                    self.last_place = place;
                    self.page_due = Some(Instant::now() + PAGE_REST);
                }
            }
            _ => {}
        }
    }

    fn pass_on(&mut self, event: &Event) {
        // The agent's own words have gone out sentence by sentence.
        if let Event::ConversationText(line) = event
            && line.role == Role::Assistant
            && !line.interrupted
        {
            return;
        }
        match serde_json::to_string(event) {
            Ok(text) => self.message(text),
            Err(error) => tracing::error!(%error, "an event could not be written"),
        }
    }

    /// What was published and not yet looked at.
    fn pass_on_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.pass_on(&event);
        }
    }

    async fn spoken(&mut self, spoken: Option<Spoken>) {
        match spoken {
            Some(Spoken::Clip { clip, text_seconds, voice_seconds }) => {
                let Some(reply) = &mut self.reply else { return };
                if let Some(paused) = &mut self.paused {
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
                    self.message(wire::started_speaking(seconds, voice_seconds, text_seconds));
                    self.set_state(AgentState::Speaking);
                }
                self.playback.push(clip);
            }
            Some(Spoken::Act(Effect::SendLink(key))) => {
                let setup = self.live.setup();
                self.change(|session, _, events| {
                    session.send_link("request", &key, &setup, events);
                    Ok(())
                })
                .await;
                self.service.deliver(self.live.clone());
            }
            Some(Spoken::Act(Effect::Verify(category))) => {
                if self.live.setup().verification_rules.contains_key(&category) {
                    self.gate(&category, None).await;
                }
            }
            Some(Spoken::Act(Effect::End)) => self.ending = Some(EndReason::Goodbye),
            None => {
                if let Some(reply) = &mut self.reply {
                    reply.is_whole = true;
                }
            }
        }
    }

    /// Notes what was heard of a reply.
    async fn said(&mut self, reply: &Reply, interrupted: bool) {
        let content =
            reply.heard.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(" ");
        if !content.is_empty() {
            self.note_line(Role::Assistant, content, interrupted, reply.latency_ms).await;
        }
    }

    /// Does what is due; why the session is over, where it is.
    async fn advance(&mut self, now: Instant) -> Option<EndReason> {
        for due in self.playback.due(now) {
            match due {
                Due::Begin(text) => self.message(wire::assistant(&text)),
                Due::Audio(samples, range) => self.tell(&Outbound::Audio(samples, range)),
                Due::Mark(mark) => self.tell(&Outbound::Mark(mark)),
            }
        }
        let has_phone = self.people.iter().any(|person| person.kind == Kind::Phone);
        let is_whole = self.reply.as_ref().is_some_and(|reply| reply.is_whole && !reply.is_paused);
        if is_whole && self.playback.is_over(now, has_phone) {
            if let Some(mut reply) = self.reply.take() {
                reply.heard.push(self.playback.take_heard());
                self.said(&reply, false).await;
            }
            self.message(wire::bare("AgentAudioDone"));
            self.set_state(AgentState::Listening);
            self.quiet_since = now;
            if let Some(reason) = self.ending.filter(|_| self.jobs.is_empty()) {
                return Some(reason);
            }
        }
        if self.keys_due.is_some_and(|due| now >= due) {
            self.keys_due = None;
            let keys = std::mem::take(&mut self.keys);
            if !keys.is_empty() {
                self.interrupt().await;
                self.lose_floor().await;
                self.keyed(&keys, now).await;
            }
        }
        let is_idle =
            self.reply.is_none() && self.jobs.is_empty() && self.speaking.is_empty() && self.unheard == 0;
        if self.page_due.is_some_and(|due| now >= due) && is_idle {
            self.page_due = None;
            if let Some(place) = self.last_place.clone() {
                self.queue(Job::say([place]));
            }
        }
        if now >= self.begun + Duration::from_secs(self.service.config.talk_seconds_max)
            && self.ending.is_none()
        {
            self.ending = Some(EndReason::TooLong);
            self.queue(Job::say(["I'm sorry, our time is up. Goodbye!"]));
        }
        if let Some(reason) = self.gone(now) {
            return Some(reason);
        }
        self.nudge(now, is_idle);
        // The agent starts no new reply until someone can hear it.
        if !self.is_heard() && self.reply.is_none() {
            return self.ending;
        }
        // Nobody is spoken over but by the greeting.
        let may_begin = self.reply.is_none() && self.speaking.is_empty() && self.unheard == 0;
        let is_first = self.jobs.front().is_some_and(|job| !job.is_interruptible);
        if (may_begin || (is_first && self.reply.is_none()))
            && let Some(job) = self.jobs.pop_front()
        {
            if matches!(job.plan, Plan::Answer(_)) {
                self.message(wire::thinking());
                self.set_state(AgentState::Thinking);
            }
            self.reply = Some(Reply::begin(&self.service, &self.live, job));
        }
        None
    }
}
