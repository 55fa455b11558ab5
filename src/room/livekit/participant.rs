//! The agent's participant in one room, from joining to leaving.

mod callers;

use std::collections::HashMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use str0m::Event;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaTime, Mid, Pt, Writer};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::caller::{Caller, Callers};
use super::data::{self, Inbox, Meaning, meaning};
use super::peer::{Peer, PeerError, local_ip, streams};
use super::protocol::{
    AUDIO, AddTrack, DISCONNECT, MICROPHONE, PUBLISHER, Ping, Request, Response, SUBSCRIBER,
    SessionDescription, UpdateMetadata,
};
use super::server::LiveKit;
use super::signal::{Signal, SignalError};
use super::sound::{FRAME, FRAME_TICKS, SoundError, Speaking};
use crate::clock::now;
use crate::room::reception::{NoSeat, Reception, RoomEnd};
use crate::room::seat::{Inbound, Outbound};

/// Time limit for the server's first message, and for its answer to the offer.
const JOIN_WAIT: Duration = Duration::from_secs(10);
/// Failed joins in a row before giving up, and the pause before the second one; it doubles each time.
const ATTEMPTS_MAX: u32 = 5;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lasted longer does not count as a failed join.
const SETTLED: Duration = Duration::from_secs(30);
/// A caller is seated once the agent's track is subscribed to, so that no word of the greeting is lost, but no
/// later than this.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(5);
/// Time for the agent's last words to arrive after the session is over.
const GOODBYE: Duration = Duration::from_millis(600);
/// The default if the server gives none.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Packets that can wait for the data channel to open.
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
    #[error(transparent)]
    Seat(#[from] NoSeat),
}

impl LiveKit {
    /// Serves the room of a session until either of them is over.
    pub async fn serve(&self, session: &str, room: &str, reception: &dyn Reception) -> RoomEnd {
        let mut attempts = 0;
        loop {
            let begun = Instant::now();
            let failure = match connect(self, session, room, reception).await {
                Ok(end) => return end,
                // The server's last message may be lost.
                Err(Failure::Signal(SignalError::Closed))
                    if matches!(self.has_room(room).await, Ok(false)) =>
                {
                    return RoomEnd::Closed;
                }
                Err(failure) => failure,
            };
            if reception.is_over() {
                return RoomEnd::SessionOver;
            }
            attempts = if begun.elapsed() > SETTLED { 1 } else { attempts + 1 };
            tracing::warn!(
                session,
                attempts,
                error = &failure as &dyn std::error::Error,
                "the agent lost its room"
            );
            if attempts >= ATTEMPTS_MAX {
                return RoomEnd::Failed(failure.to_string());
            }
            reception.connecting();
            tokio::select! {
                () = reception.over() => return RoomEnd::SessionOver,
                () = tokio::time::sleep(ATTEMPT_PAUSE * 2_u32.pow(attempts - 1)) => {}
            }
        }
    }
}

async fn connect(
    livekit: &LiveKit,
    session: &str,
    room: &str,
    reception: &dyn Reception,
) -> Result<RoomEnd, Failure> {
    let identity = format!("agent-{session}");
    let token = livekit.account().agent(room, &identity, now() / 1000);
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
    let ip = local_ip(livekit.url()).await?;
    let ping_interval = seconds(join.ping_interval, PING_INTERVAL);
    let ping_timeout = seconds(join.ping_timeout, PING_TIMEOUT);
    let mut pings = interval(ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let soon = Instant::now() + JOIN_WAIT;
    let mut agent = Connection {
        reception,
        signal,
        publisher: Peer::new(ip).await?,
        subscriber: Peer::new(ip).await?,
        track: Track {
            cid: format!("TR_{:016x}", rand::random::<u64>()),
            sid: None,
            mid: None,
            is_subscribed: false,
            speaking: Speaking::new()?,
            tick: u64::from(rand::random::<u32>()),
        },
        clock: interval(FRAME),
        data: Data::default(),
        callers: Callers::default(),
        health: Health {
            pings,
            unanswered: 0,
            unanswered_max: ping_timeout.as_secs().div_ceil(ping_interval.as_secs()),
            // Without a subscriber connection from the start, there is nothing to hear by until a caller speaks.
            hears: !join.subscriber_primary,
            heard_by: Some(soon),
            hears_by: join.subscriber_primary.then_some(soon),
        },
        ending: None,
    };
    let (cid, name) = (agent.track.cid.clone(), "agent".to_owned());
    let track = AddTrack { cid, name, r#type: AUDIO, source: MICROPHONE, disable_red: true };
    agent.signal.send(Request::AddTrack(track)).await?;
    agent.update(join.other_participants).await?;
    agent.serve().await
}

struct Connection<'a> {
    reception: &'a dyn Reception,
    signal: Signal,
    publisher: Peer,
    subscriber: Peer,
    track: Track,
    /// Ticks once per frame of audio.
    clock: Interval,
    data: Data,
    callers: Callers,
    health: Health,
    /// When to leave.
    ending: Option<Instant>,
}

/// The agent's audio track.
struct Track {
    /// The client's identifier of the track, and the server's.
    cid: String,
    sid: Option<String>,
    mid: Option<Mid>,
    /// Whether a caller hears it.
    is_subscribed: bool,
    speaking: Speaking,
    /// The time of the next frame, in ticks of Opus.
    tick: u64,
}

/// The data channels.
#[derive(Default)]
struct Data {
    /// For outgoing data, once it is open.
    channel: Option<ChannelId>,
    /// Packets that wait for it.
    waiting: Vec<Vec<u8>>,
    inbox: Inbox,
}

/// Whether the connection is alive.
struct Health {
    pings: Interval,
    /// Pings since the server's last message. Counting them is safer than measuring time, which also passes while
    /// this process is stalled.
    unanswered: u64,
    unanswered_max: u64,
    /// Whether incoming data is open: before that, the server passes nothing on.
    hears: bool,
    /// Deadlines by which the agent must be heard, and must hear.
    heard_by: Option<Instant>,
    hears_by: Option<Instant>,
}

impl Connection<'_> {
    async fn serve(&mut self) -> Result<RoomEnd, Failure> {
        if self.reception.is_over() {
            self.ending = Some(Instant::now());
        }
        loop {
            let due = [self.health.heard_by, self.health.hears_by, self.ending].into_iter().flatten().min();
            tokio::select! {
                response = self.signal.next() => {
                    if let Some(end) = self.take(response?).await? {
                        return Ok(end);
                    }
                }
                event = self.publisher.next() => self.published(event?).await?,
                event = self.subscriber.next() => self.heard(event?).await?,
                (at, outbound) = next(&mut self.callers.seated) => self.give(at, outbound).await?,
                now = self.clock.tick() => self.frame(now).await?,
                () = self.reception.over(), if self.ending.is_none() => {
                    self.ending = Some(Instant::now() + GOODBYE);
                }
                _ = self.health.pings.tick() => {
                    if self.health.unanswered >= self.health.unanswered_max {
                        return Err(Failure::Silent);
                    }
                    self.health.unanswered += 1;
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
                        return Ok(RoomEnd::SessionOver);
                    }
                    if self.health.heard_by.is_some_and(|at| now >= at) || self.health.hears_by.is_some_and(|at| now >= at) {
                        return Err(Failure::Silent);
                    }
                }
            }
        }
    }

    async fn take(&mut self, response: Response) -> Result<Option<RoomEnd>, Failure> {
        self.health.unanswered = 0;
        match response {
            Response::TrackPublished(published)
                if published.cid == self.track.cid && self.track.sid.is_none() =>
            {
                self.track.sid = Some(published.track.unwrap_or_default().sid);
                let (mid, sdp) = self.publisher.offer(&self.track.cid)?;
                self.track.mid = Some(mid);
                let offer = SessionDescription { r#type: "offer".into(), sdp, id: 1 };
                self.signal.send(Request::Offer(offer)).await?;
            }
            Response::Answer(answer) => self.publisher.answered(&answer.sdp)?,
            Response::Offer(offer) => {
                self.callers.streams = streams(&offer.sdp).into_iter().collect();
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
            Response::TrackSubscribed(_) => self.track.is_subscribed = true,
            Response::Leave(leave) if leave.action == DISCONNECT => return Ok(Some(RoomEnd::Closed)),
            Response::Leave(_) => return Err(Failure::Anew),
            _ => {}
        }
        Ok(None)
    }

    async fn published(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::ChannelOpen(id, _) => {
                self.health.heard_by = None;
                self.data.channel = Some(id);
                self.is_there().await?;
                for packet in std::mem::take(&mut self.data.waiting) {
                    self.send(&packet);
                }
            }
            Event::Closed => return Err(Failure::Anew),
            Event::IceConnectionStateChange(state) if state.is_disconnected() => {
                // The connection may recover, within limits.
                self.health.heard_by.get_or_insert(Instant::now() + JOIN_WAIT);
            }
            Event::IceConnectionStateChange(state) if state.is_connected() && self.data.channel.is_some() => {
                self.health.heard_by = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.data.channel.is_some() && self.health.hears
    }

    /// Announces the agent as soon as it is heard and hears.
    async fn is_there(&mut self) -> Result<(), Failure> {
        if self.is_ready() {
            self.reception.ready();
            self.set_state("listening").await?;
        }
        Ok(())
    }

    /// Passes on the agent's output to the caller at `at`; none if the agent is gone.
    async fn give(&mut self, at: usize, outbound: Option<Outbound>) -> Result<(), Failure> {
        let Some(outbound) = outbound.filter(|outbound| !matches!(outbound, Outbound::End)) else {
            self.ending.get_or_insert(Instant::now() + GOODBYE);
            self.callers.seated.retain({
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
            Outbound::Audio(samples, range) => self.track.speaking.push(samples, range),
            Outbound::Mark(mark) => self.track.speaking.mark(mark),
            Outbound::Clear => {
                let marks = self.track.speaking.clear();
                self.played(marks).await;
            }
            Outbound::Message(text) => {
                self.send(&data::message(&text));
                match meaning(&text) {
                    Meaning::State(state) => self.set_state(&state).await?,
                    Meaning::Line { is_agent, text } => {
                        let caller = self.callers.seated.first().filter(|_| !is_agent);
                        let identity = caller.map_or("", |caller| &caller.identity);
                        let track = caller.map_or(self.track.sid.as_deref(), |caller| Some(&caller.track));
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
        let Some(caller) = self.callers.seated.first_mut() else { return };
        for mark in marks {
            caller.seat.send(Inbound::Played(mark)).await;
        }
    }

    async fn set_state(&mut self, state: &str) -> Result<(), Failure> {
        let attributes = HashMap::from([("lk.agent.state".to_owned(), state.to_owned())]);
        Ok(self.signal.send(Request::UpdateMetadata(UpdateMetadata { attributes })).await?)
    }

    /// Sends a packet. It is lost if the peer reads nothing or the packet is too large.
    fn send(&mut self, packet: &[u8]) {
        match self.data.channel.and_then(|id| self.publisher.rtc.channel(id)) {
            Some(mut channel) => drop(channel.write(true, packet)),
            None if self.data.waiting.len() < WAITING_MAX => self.data.waiting.push(packet.to_vec()),
            None => {}
        }
    }

    /// Every 20 ms: sends the agent's next frame, and fills gaps in callers' audio with silence.
    async fn frame(&mut self, now: Instant) -> Result<(), Failure> {
        self.seat(now).await?;
        let frame = self.track.speaking.frame()?;
        self.track.tick += FRAME_TICKS;
        if let (Some(packet), Some(mid)) = (frame.packet, self.track.mid)
            && let Some(writer) = self.publisher.rtc.writer(mid)
            && let Some(pt) = payload_type(&writer)
        {
            let time = MediaTime::new(self.track.tick, Frequency::FORTY_EIGHT_KHZ);
            let writer = writer.start_of_talkspurt(frame.is_first);
            writer.write(pt, now.into(), time, packet).map_err(PeerError::Rtc)?;
        }
        self.played(frame.marks).await;
        for caller in &mut self.callers.seated {
            let silence = caller.hearing.silence(now.into());
            caller.seat.audio(silence).await;
        }
        Ok(())
    }
}

/// The payload type that was negotiated for Opus.
fn payload_type(writer: &Writer<'_>) -> Option<Pt> {
    writer.payload_params().find(|params| params.spec().codec == Codec::Opus).map(|params| params.pt())
}

/// The next output of the agent for any caller. Cancel-safe.
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
