//! The agent's participant in one room, from its joining to its leaving.

mod callers;

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use str0m::Event;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaTime, Mid, Pt, Writer};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::LiveKit;
use super::data::{self, Inbox, Meaning, meaning};
use super::peer::{Peer, PeerError, local_ip, streams};
use super::protocol::{
    AUDIO, AddTrack, DISCONNECT, MICROPHONE, PUBLISHER, Participant, Ping, Request, Response, SUBSCRIBER,
    SessionDescription, UpdateMetadata,
};
use super::signal::{Signal, SignalError};
use super::sound::{FRAME, FRAME_TICKS, SoundError, Speaking};
use crate::sts::event::Event as SessionEvent;
use crate::sts::room::{Inbound, MediaState, Outbound};
use crate::sts::session::EndReason;
use crate::sts::sessions::{Live, now};
use crate::sts::{Error, Service};
use callers::Caller;

/// To the server's first word, and to its answer to our offer.
const JOIN_WAIT: Duration = Duration::from_secs(10);
/// Joins in a row that may fail, and the pause before the second; before each next one it is twice as long.
const ATTEMPTS_MAX: u32 = 5;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// A connection that held so long was none of those that fail.
const SETTLED: Duration = Duration::from_secs(30);
/// The first caller's seat is taken when the agent's track is subscribed to, so that no word of the
/// greeting is lost; but it is not waited for longer than this.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(5);
/// What was said last is still on its way when the session is over.
const GOODBYE: Duration = Duration::from_millis(600);
/// Where the server does not say.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Data that waits for its channel to open.
const WAITING_MAX: usize = 256;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Signal(#[from] SignalError),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Sound(#[from] SoundError),
    #[error("the LiveKit server did not answer in time")]
    Silent,
    #[error("the LiveKit server asks to join anew")]
    Anew,
    #[error("no place in the room")]
    Seat(#[source] Error),
}

/// Why a connection is over for good.
enum Over {
    /// The session is.
    Session,
    /// The server closed the room, or put the agent out of it.
    Closed,
}

/// Serves the room until it or the session is over.
pub async fn run(livekit: &LiveKit, service: &Arc<Service>, live: &Arc<Live>) {
    let mut attempts = 0;
    loop {
        let begun = Instant::now();
        let failure = match connect(livekit, service, live).await {
            Ok(Over::Session) => return,
            Ok(Over::Closed) => return closed(service, live).await,
            // Its last word may be lost.
            Err(Failure::Signal(SignalError::Closed))
                if matches!(livekit.has_room(&live.room_name).await, Ok(false)) =>
            {
                return closed(service, live).await;
            }
            Err(failure) => failure,
        };
        if live.read(|session| session.check_open().is_err()) {
            return;
        }
        attempts = if begun.elapsed() > SETTLED { 1 } else { attempts + 1 };
        tracing::warn!(
            session = live.id,
            attempts,
            error = &failure as &dyn std::error::Error,
            "the agent lost its room"
        );
        if attempts >= ATTEMPTS_MAX {
            live.room.set_media(MediaState::Failed(failure.to_string()));
            return end(service, live, EndReason::RoomFailed).await;
        }
        live.room.set_media(MediaState::Connecting);
        tokio::select! {
            () = live.over() => return,
            () = tokio::time::sleep(ATTEMPT_PAUSE * 2_u32.pow(attempts - 1)) => {}
        }
    }
}

async fn closed(service: &Service, live: &Live) {
    tracing::info!(session = live.id, "the room was closed");
    live.room.set_media(MediaState::Closed);
    let was_used = live.room.is_agent_there();
    end(service, live, if was_used { EndReason::Left } else { EndReason::Expired }).await;
}

async fn end(service: &Service, live: &Live, reason: EndReason) {
    if let Err(error) = service.sessions.end(live, reason).await {
        tracing::error!(session = live.id, %error, "the end is not noted");
    }
}

async fn connect(livekit: &LiveKit, service: &Arc<Service>, live: &Arc<Live>) -> Result<Over, Failure> {
    let identity = format!("agent-{}", live.id);
    let token = livekit.0.account.agent(&live.room_name, &identity, now() / 1000);
    let mut signal = Signal::connect(livekit, &token).await?;
    let join = tokio::time::timeout(JOIN_WAIT, async {
        loop {
            match signal.next().await? {
                Response::Join(join) => return Ok(join),
                Response::Leave(_) => return Err(Failure::Anew),
                _ => {}
            }
        }
    });
    let join = join.await.map_err(|_| Failure::Silent)??;
    let seconds =
        |given: i32, usual| u64::try_from(given).ok().filter(|n| *n > 0).map_or(usual, Duration::from_secs);
    let ip = local_ip(&livekit.0.url).await?;
    let ping_interval = seconds(join.ping_interval, PING_INTERVAL);
    let ping_timeout = seconds(join.ping_timeout, PING_TIMEOUT);
    let mut pings = interval(ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut agent = Connection {
        service,
        live,
        signal,
        publisher: Peer::new(ip).await?,
        subscriber: Peer::new(ip).await?,
        cid: format!("TR_{:016x}", rand::random::<u64>()),
        track: None,
        is_subscribed: false,
        mid: None,
        channel: None,
        waiting: Vec::new(),
        speaking: Speaking::new()?,
        clock: interval(FRAME),
        tick: u64::from(rand::random::<u32>()),
        callers: Vec::new(),
        known: HashMap::new(),
        subscribed: HashSet::new(),
        streams: HashMap::new(),
        inbox: Inbox::default(),
        pings,
        unanswered: 0,
        unanswered_max: ping_timeout.as_secs().div_ceil(ping_interval.as_secs()),
        // Otherwise there is nothing to hear by until somebody speaks.
        hears: !join.subscriber_primary,
        heard_by: Some(Instant::now() + JOIN_WAIT),
        hears_by: join.subscriber_primary.then(|| Instant::now() + JOIN_WAIT),
        ending: None,
    };
    let (cid, name) = (agent.cid.clone(), "agent".to_owned());
    let track = AddTrack { cid, name, r#type: AUDIO, source: MICROPHONE, disable_red: true };
    agent.signal.send(Request::AddTrack(track)).await?;
    agent.update(join.other_participants).await?;
    agent.serve().await
}

struct Connection<'a> {
    service: &'a Arc<Service>,
    live: &'a Arc<Live>,
    signal: Signal,
    publisher: Peer,
    subscriber: Peer,
    /// What we call our track, and what the server does.
    cid: String,
    track: Option<String>,
    /// Whether anybody hears it.
    is_subscribed: bool,
    mid: Option<Mid>,
    /// The way out for data.
    channel: Option<ChannelId>,
    waiting: Vec<Vec<u8>>,
    speaking: Speaking,
    clock: Interval,
    /// Of the next frame, in ticks of Opus.
    tick: u64,
    /// In the order of their coming: the agent speaks to all what it says to the first.
    callers: Vec<Caller>,
    /// People who are not to be seated yet, and since when they could be.
    known: HashMap<String, (Participant, Instant)>,
    subscribed: HashSet<String>,
    /// Streams of the server's last offer, by the section they are in.
    streams: HashMap<String, String>,
    inbox: Inbox,
    pings: Interval,
    /// Pings since the server last said anything. They are counted rather than the time, which goes by as
    /// well where it is we who stand still.
    unanswered: u64,
    unanswered_max: u64,
    /// Whether the way in for data was opened: before, the server passes nothing on.
    hears: bool,
    /// When the agent has to be heard, where it is not, and when it has to hear.
    heard_by: Option<Instant>,
    hears_by: Option<Instant>,
    /// When to leave.
    ending: Option<Instant>,
}

impl Connection<'_> {
    async fn serve(&mut self) -> Result<Over, Failure> {
        let mut events = self.live.watch();
        if self.live.read(|session| session.check_open().is_err()) {
            self.ending = Some(Instant::now());
        }
        loop {
            let due = [self.heard_by, self.hears_by, self.ending].into_iter().flatten().min();
            tokio::select! {
                response = self.signal.next() => {
                    if let Some(over) = self.take(response?).await? {
                        return Ok(over);
                    }
                }
                event = self.publisher.next() => self.published(event?).await?,
                event = self.subscriber.next() => self.heard(event?).await?,
                (at, outbound) = next(&mut self.callers) => self.give(at, outbound).await?,
                now = self.clock.tick() => self.frame(now).await?,
                event = events.recv() => match event {
                    Ok(SessionEvent::SessionEnded { .. }) | Err(RecvError::Closed) => {
                        self.ending.get_or_insert(Instant::now() + GOODBYE);
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                },
                _ = self.pings.tick() => {
                    if self.unanswered >= self.unanswered_max {
                        return Err(Failure::Silent);
                    }
                    self.unanswered += 1;
                    let timestamp = i64::try_from(now()).unwrap_or_default();
                    self.signal.send(Request::Ping(Ping { timestamp })).await?;
                }
                now = async {
                    match due {
                        Some(due) => sleep_until(due).await,
                        None => std::future::pending().await,
                    }
                    Instant::now()
                } => {
                    if self.ending.is_some_and(|at| now >= at) {
                        self.live.room.set_media(MediaState::Closed);
                        return Ok(Over::Session);
                    }
                    if self.heard_by.is_some_and(|at| now >= at) || self.hears_by.is_some_and(|at| now >= at) {
                        return Err(Failure::Silent);
                    }
                }
            }
        }
    }

    async fn take(&mut self, response: Response) -> Result<Option<Over>, Failure> {
        self.unanswered = 0;
        match response {
            Response::TrackPublished(published) if published.cid == self.cid && self.track.is_none() => {
                self.track = Some(published.track.unwrap_or_default().sid);
                let (mid, sdp) = self.publisher.offer(&self.cid)?;
                self.mid = Some(mid);
                let offer = SessionDescription { r#type: "offer".into(), sdp, id: 1 };
                self.signal.send(Request::Offer(offer)).await?;
            }
            Response::Answer(answer) => self.publisher.answered(&answer.sdp)?,
            Response::Offer(offer) => {
                self.streams = streams(&offer.sdp).into_iter().collect();
                let sdp = self.subscriber.answer(&offer.sdp)?;
                let answer = SessionDescription { r#type: "answer".into(), sdp, id: offer.id };
                self.signal.send(Request::Answer(answer)).await?;
            }
            Response::Trickle(trickle) => match trickle.target {
                PUBLISHER => self.publisher.candidate(&trickle.candidate_init),
                SUBSCRIBER => self.subscriber.candidate(&trickle.candidate_init),
                _ => {}
            },
            Response::Update(update) => self.update(update.participants).await?,
            Response::TrackSubscribed(_) => self.is_subscribed = true,
            Response::Leave(leave) if leave.action == DISCONNECT => return Ok(Some(Over::Closed)),
            Response::Leave(_) => return Err(Failure::Anew),
            _ => {}
        }
        Ok(None)
    }

    async fn published(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::ChannelOpen(id, _) => {
                self.heard_by = None;
                self.channel = Some(id);
                self.is_there().await?;
                for packet in std::mem::take(&mut self.waiting) {
                    self.send(&packet);
                }
            }
            Event::Closed => return Err(Failure::Anew),
            Event::IceConnectionStateChange(state) if state.is_disconnected() => {
                // It may come back, but not for ever.
                self.heard_by.get_or_insert(Instant::now() + JOIN_WAIT);
            }
            Event::IceConnectionStateChange(state) if state.is_connected() && self.channel.is_some() => {
                self.heard_by = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.channel.is_some() && self.hears
    }

    /// Says so where the agent is heard and hears.
    async fn is_there(&mut self) -> Result<(), Failure> {
        if self.is_ready() {
            self.live.room.set_media(MediaState::Ready);
            self.set_state("listening").await?;
        }
        Ok(())
    }

    /// What the agent gives to the caller at `at`; none where it is gone.
    async fn give(&mut self, at: usize, outbound: Option<Outbound>) -> Result<(), Failure> {
        let Some(outbound) = outbound.filter(|outbound| !matches!(outbound, Outbound::End)) else {
            self.ending.get_or_insert(Instant::now() + GOODBYE);
            self.callers.retain({
                let mut index = 0;
                move |_| {
                    index += 1;
                    index != at + 1
                }
            });
            return Ok(());
        };
        if at != 0 {
            return Ok(());
        }
        match outbound {
            Outbound::Audio(samples, range) => self.speaking.push(samples, range),
            Outbound::Mark(mark) => self.speaking.mark(mark),
            Outbound::Clear => {
                let marks = self.speaking.clear();
                self.played(marks).await;
            }
            Outbound::Message(text) => {
                self.send(&data::message(&text));
                match meaning(&text) {
                    Meaning::State(state) => self.set_state(&state).await?,
                    Meaning::Line { is_agent, text } => {
                        let caller = self.callers.first().filter(|_| !is_agent);
                        let identity = caller.map_or("", |caller| &caller.identity);
                        let track = caller.map_or(self.track.as_deref(), |caller| Some(&caller.track));
                        for packet in data::line(&text, identity, track.unwrap_or_default()) {
                            self.send(&packet);
                        }
                    }
                    Meaning::Other => {}
                }
            }
            Outbound::End => {}
        }
        Ok(())
    }

    async fn played(&mut self, marks: Vec<u64>) {
        let Some(caller) = self.callers.first_mut() else { return };
        for mark in marks {
            caller.seat.send(Inbound::Played(mark)).await;
        }
    }

    async fn set_state(&mut self, state: &str) -> Result<(), Failure> {
        let attributes = HashMap::from([("lk.agent.state".to_owned(), state.to_owned())]);
        Ok(self.signal.send(Request::UpdateMetadata(UpdateMetadata { attributes })).await?)
    }

    /// What cannot be sent is lost: a peer that reads nothing, or a message larger than any is taken.
    fn send(&mut self, packet: &[u8]) {
        match self.channel.and_then(|id| self.publisher.rtc.channel(id)) {
            Some(mut channel) => drop(channel.write(true, packet)),
            None if self.waiting.len() < WAITING_MAX => self.waiting.push(packet.to_vec()),
            None => {}
        }
    }

    /// Every 20 ms: what the agent says goes out, and who says nothing is silent.
    async fn frame(&mut self, now: Instant) -> Result<(), Failure> {
        self.seat(now).await?;
        let frame = self.speaking.frame()?;
        self.tick += FRAME_TICKS;
        if let (Some(packet), Some(mid)) = (frame.packet, self.mid)
            && let Some(writer) = self.publisher.rtc.writer(mid)
            && let Some(pt) = payload_type(&writer)
        {
            let time = MediaTime::new(self.tick, Frequency::FORTY_EIGHT_KHZ);
            let writer = writer.start_of_talkspurt(frame.is_first);
            writer.write(pt, now.into(), time, packet).map_err(PeerError::Rtc)?;
        }
        self.played(frame.marks).await;
        for caller in &mut self.callers {
            let silence = caller.hearing.silence(now.into());
            caller.seat.audio(silence).await;
        }
        Ok(())
    }
}

/// What the server knows Opus by.
fn payload_type(writer: &Writer<'_>) -> Option<Pt> {
    writer.payload_params().find(|params| params.spec().codec == Codec::Opus).map(|params| params.pt())
}

/// The next thing that the agent gives to any of them. Cancel-safe.
async fn next(callers: &mut [Caller]) -> (usize, Option<Outbound>) {
    poll_fn(|context| {
        for (at, caller) in callers.iter_mut().enumerate() {
            if let Poll::Ready(outbound) = caller.seat.from_agent.poll_recv(context) {
                return Poll::Ready((at, outbound));
            }
        }
        Poll::Pending
    })
    .await
}
