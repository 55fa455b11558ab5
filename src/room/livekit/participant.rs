//! The agent's participant in one room, from joining to leaving.

mod callers;
mod output;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use str0m::Event;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaTime, Mid, Pt, Writer};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::caller::{Caller, Callers};
use super::data::Inbox;
use super::link::{Identity, Link, agent_of};
use super::peer::{Peer, PeerError, Ways, local_ip, streams};
use super::protocol::{
    AUDIO, AddTrack, DISCONNECT, IceServer, MICROPHONE, PUBLISHER, Ping, RESUME, Request, Response,
    SUBSCRIBER, SessionDescription, Subscription,
};
use super::relay_server::RelayServer;
use super::server::LiveKit;
use super::signal::Signal;
use super::socket::SignalError;
use super::sound::{FRAME, FRAME_TICKS, SoundError, Speaking};
use super::transcription::Lines;
use crate::clock::now;
use crate::room::reception::{NoSeat, Reception, RoomEnd};
use crate::room::seat::Outbound;

/// Time limit for the server's first message, and for its answer to the offer.
const JOIN_WAIT: Duration = Duration::from_secs(10);
/// Failed joins in a row before giving up, and the pause before the second one; it doubles each time, up to a limit. A
/// server that starts again within half a minute is waited for.
const ATTEMPTS_MAX: u32 = 8;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
const ATTEMPT_PAUSE_MAX: Duration = Duration::from_secs(8);
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
            let pause = (ATTEMPT_PAUSE * 2_u32.pow(attempts - 1)).min(ATTEMPT_PAUSE_MAX);
            tokio::select! {
                () = reception.over() => return RoomEnd::SessionOver,
                () = tokio::time::sleep(pause) => {}
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
    let identity = Identity { room: room.to_owned(), name: agent_of(session) };
    let mut signal = Signal::connect(livekit, &identity.token(livekit), None).await?;
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
    let me = join.participant.unwrap_or_default();
    let seconds =
        |given: i32, usual| u64::try_from(given).ok().filter(|n| *n > 0).map_or(usual, Duration::from_secs);
    let ip = local_ip(livekit.url()).await?;
    let ways = Ways { relay: livekit.relay(), relays: RelayServer::read(&join.ice_servers) };
    let ping_interval = seconds(join.ping_interval, PING_INTERVAL);
    let ping_timeout = seconds(join.ping_timeout, PING_TIMEOUT);
    let mut pings = interval(ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let soon = Instant::now() + JOIN_WAIT;
    let mut agent = Connection {
        reception,
        link: Link::new(livekit.clone(), identity, me.sid, signal),
        offers: 0,
        publisher: Peer::new(ip, ways.clone()).await?,
        subscriber: Peer::new(ip, ways).await?,
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
    agent.link.send(Request::AddTrack(track)).await;
    agent.update(join.other_participants).await?;
    agent.serve().await
}

struct Connection<'a> {
    reception: &'a dyn Reception,
    link: Link,
    /// Offers so far.
    offers: u32,
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
    lines: Lines,
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
                response = self.link.next() => {
                    if let Some(end) = self.take(response?).await? {
                        return Ok(end);
                    }
                }
                event = self.publisher.next() => self.published(event?).await?,
                event = self.subscriber.next() => self.heard(event?).await?,
                (at, outbound) = next(&mut self.callers.seated) => self.give(at, outbound).await,
                now = self.clock.tick() => self.frame(now).await?,
                () = self.reception.over(), if self.ending.is_none() => {
                    self.ending = Some(Instant::now() + GOODBYE);
                }
                _ = self.health.pings.tick() => {
                    if self.health.unanswered >= self.health.unanswered_max {
                        self.health.unanswered = 0;
                        self.link.resume();
                    }
                    self.health.unanswered += u64::from(self.link.is_up());
                    let timestamp = i64::try_from(now()).unwrap_or_default();
                    self.link.send(Request::Ping(Ping { timestamp })).await;
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
                self.offer(sdp).await;
            }
            Response::Answer(answer) => self.publisher.answered(&answer.sdp)?,
            Response::Offer(offer) => {
                self.callers.streams = streams(&offer.sdp).into_iter().collect();
                let sdp = self.subscriber.answer(&offer.sdp)?;
                let answer = SessionDescription { r#type: "answer".into(), sdp, id: offer.id };
                self.link.send(Request::Answer(answer)).await;
            }
            Response::Trickle(trickle) => match trickle.target {
                PUBLISHER => self.publisher.candidate(&trickle.candidate_init),
                SUBSCRIBER => self.subscriber.candidate(&trickle.candidate_init),
                _ => {}
            },
            Response::Update(update) => self.update(update.participants).await?,
            Response::TrackSubscribed(_) => self.track.is_subscribed = true,
            Response::Reconnect(resumed) => self.resumed(&resumed.ice_servers).await?,
            Response::Leave(leave) if leave.action == RESUME => self.link.resume(),
            Response::Leave(leave) if leave.action == DISCONNECT => return Ok(Some(RoomEnd::Closed)),
            Response::Leave(_) => return Err(Failure::Anew),
            _ => {}
        }
        Ok(None)
    }

    async fn offer(&mut self, sdp: String) {
        self.offers += 1;
        let offer = SessionDescription { r#type: "offer".into(), sdp, id: self.offers };
        self.link.send(Request::Offer(offer)).await;
    }

    /// Signalling is resumed: the server restarts ICE for what it sends, and the agent for the rest. Requests on the
    /// way may be lost.
    async fn resumed(&mut self, ice_servers: &[IceServer]) -> Result<(), Failure> {
        let relays = RelayServer::read(ice_servers);
        self.publisher.set_relays(relays.clone());
        self.subscriber.set_relays(relays);
        let sdp = self.publisher.restart().map_err(|_| Failure::Anew)?;
        self.offer(sdp).await;
        let track_sids: Vec<String> = self.callers.subscribed.iter().cloned().collect();
        if !track_sids.is_empty() {
            self.link.send(Request::Subscription(Subscription { track_sids, subscribe: true })).await;
        }
        Ok(())
    }

    async fn published(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::ChannelOpen(id, _) => {
                self.health.heard_by = None;
                self.data.channel = Some(id);
                self.is_there().await;
                for packet in std::mem::take(&mut self.data.waiting) {
                    self.send(&packet);
                }
            }
            Event::Closed => return Err(Failure::Anew),
            Event::IceConnectionStateChange(state) if state.is_disconnected() => {
                // The connection may recover, within limits.
                self.health.heard_by.get_or_insert(Instant::now() + JOIN_WAIT);
                self.look_for_a_way();
            }
            Event::IceConnectionStateChange(state) if state.is_connected() && self.data.channel.is_some() => {
                self.health.heard_by = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// The media has stopped: resuming restarts ICE.
    fn look_for_a_way(&mut self) {
        if self.link.is_settled() {
            self.link.resume();
        }
    }

    fn is_ready(&self) -> bool {
        self.data.channel.is_some() && self.health.hears
    }

    /// Announces the agent as soon as it is heard and hears.
    async fn is_there(&mut self) {
        if self.is_ready() {
            self.reception.ready();
            self.set_state("listening").await;
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
