//! The callers of a room: who is there, who has a seat, and what they say.

use str0m::Event;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaData};
use tokio::time::Instant;

use super::super::peer::RELIABLE;
use super::super::protocol::{
    ACTIVE, AUDIO, DISCONNECTED, Participant, Request, SIP, STANDARD, Subscription,
};
use super::super::sound::{Coding, Hearing};
use super::{Connection, Failure, JOIN_WAIT, SUBSCRIBE_WAIT};
use crate::sts::Error;
use crate::sts::room::wire::Said;
use crate::sts::room::{Inbound, Seat};
use crate::sts::token::Kind;

pub(super) struct Caller {
    pub(super) sid: String,
    pub(super) identity: String,
    pub(super) track: String,
    pub(super) seat: Seat,
    pub(super) hearing: Hearing,
}

impl Connection<'_> {
    /// People come, go, and begin to send.
    pub(super) async fn update(&mut self, participants: Vec<Participant>) -> Result<(), Failure> {
        let mut wanted = Vec::new();
        for person in participants {
            if ![STANDARD, SIP].contains(&person.kind) {
                continue;
            }
            if person.state == DISCONNECTED {
                self.callers.retain(|caller| caller.sid != person.sid);
                self.known.remove(&person.sid);
                continue;
            }
            let tracks = person.tracks.iter().filter(|track| track.r#type == AUDIO);
            for sid in tracks.map(|track| &track.sid).filter(|sid| !sid.is_empty()) {
                if self.subscribed.insert(sid.clone()) {
                    wanted.push(sid.clone());
                }
                if let Some(caller) = self.callers.iter_mut().find(|caller| caller.sid == person.sid) {
                    caller.track.clone_from(sid);
                }
            }
            let is_seated = self.callers.iter().any(|caller| caller.sid == person.sid);
            if person.state == ACTIVE && !is_seated {
                let since = self.known.get(&person.sid).map_or_else(Instant::now, |(_, since)| *since);
                self.known.insert(person.sid.clone(), (person, since));
            }
        }
        if !wanted.is_empty() {
            let wish = Subscription { track_sids: wanted, subscribe: true };
            self.signal.send(Request::Subscription(wish)).await?;
        }
        Ok(())
    }

    /// Seats those who can hear the agent.
    pub(super) async fn seat(&mut self, now: Instant) -> Result<(), Failure> {
        // A session that is over takes nobody.
        if self.known.is_empty() || !self.is_ready() || self.ending.is_some() {
            return Ok(());
        }
        let may_sit = |since: Instant| self.is_subscribed || now >= since + SUBSCRIBE_WAIT;
        let ready: Vec<String> =
            self.known.iter().filter(|(_, (_, since))| may_sit(*since)).map(|(sid, _)| sid.clone()).collect();
        for sid in ready {
            let Some((person, _)) = self.known.remove(&sid) else { continue };
            let kind = if person.kind == SIP { Kind::Phone } else { Kind::Web };
            let seat = match self.service.join(self.live, kind, &person.identity).await {
                Ok(seat) => seat,
                Err(Error::Ended) => continue,
                // One more than there are seats watches.
                Err(Error::TooMany { .. }) => continue,
                Err(error) => return Err(Failure::Seat(error)),
            };
            let track = person.tracks.into_iter().find(|track| track.r#type == AUDIO).unwrap_or_default().sid;
            let hearing = Hearing::new(now.into())?;
            self.callers.push(Caller { sid, identity: person.identity, track, seat, hearing });
        }
        Ok(())
    }

    pub(super) async fn heard(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::MediaData(media) => self.audio(media).await,
            Event::ChannelData(channel) => {
                if let Some((identity, said)) = self.inbox.take(channel.data) {
                    self.said(&identity, said).await;
                }
            }
            // An agent that hears nothing is none. It may come back, but not for ever.
            Event::IceConnectionStateChange(state) if state.is_disconnected() => {
                self.hears_by.get_or_insert(Instant::now() + JOIN_WAIT);
            }
            Event::IceConnectionStateChange(state) if state.is_connected() && self.hears => {
                self.hears_by = None
            }
            Event::ChannelOpen(_, name) if name == RELIABLE => {
                (self.hears, self.hears_by) = (true, None);
                self.is_there().await?;
            }
            Event::Closed => return Err(Failure::Anew),
            _ => {}
        }
        Ok(())
    }

    async fn audio(&mut self, media: MediaData) {
        let Some(stream) = self.streams.get(&*media.mid) else { return };
        // The server packs whose it is and which.
        let sid = stream.split('|').next().unwrap_or_default();
        let Some(caller) = self.callers.iter_mut().find(|caller| caller.sid == sid) else { return };
        let coding = match media.params.spec().codec {
            Codec::Opus => Coding::Opus,
            Codec::PCMU => Coding::Mulaw,
            _ => return,
        };
        let tick = media.time.rebase(Frequency::FORTY_EIGHT_KHZ).numer();
        let samples = caller.hearing.packet(coding, tick, &media.data);
        // Where the agent is gone, its last word says so.
        caller.seat.audio(samples).await;
    }

    async fn said(&mut self, identity: &str, said: Said) {
        let at = self.callers.iter().position(|caller| caller.identity == identity).unwrap_or_default();
        let Some(caller) = self.callers.get_mut(at) else { return };
        match said {
            Said::UserMessage(text) => drop(caller.seat.send(Inbound::Text(text)).await),
            Said::Digit(digit) => drop(caller.seat.send(Inbound::Digit(digit)).await),
            Said::PageContext(context) => {
                let shown = self.live.change(|session, now, events| {
                    session.check_open()?;
                    Ok(session.show_page(&context, now, events))
                });
                if let Err(error) = shown.await {
                    tracing::debug!(session = self.live.id, %error, "a page was not noted");
                }
            }
            Said::Settings(_) | Said::KeepAlive | Said::Played(_) | Said::Close | Said::NotHere(_) => {}
        }
    }
}
