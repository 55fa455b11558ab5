//! Callers in the room: seats them, and passes on their audio and messages.

use str0m::Event;
use str0m::format::Codec;
use str0m::media::{Frequency, MediaData};
use tokio::time::Instant;

use super::super::caller::Caller;
use super::super::peer::RELIABLE;
use super::super::protocol::{
    ACTIVE, AUDIO, DISCONNECTED, Participant, Request, SIP, STANDARD, Subscription,
};
use super::super::sound::{Coding, Hearing};
use super::{Connection, Failure, JOIN_WAIT, SUBSCRIBE_WAIT};
use crate::room::message::Said;
use crate::room::reception::NoSeat;
use crate::room::seat::{Inbound, Kind};

/// A telephone's identity in the session, as of other telephones.
const CALLER: &str = "caller";
/// The attribute of a telephone that has its number.
const PHONE_NUMBER: &str = "sip.phoneNumber";

impl Connection<'_> {
    /// Handles callers who come, go, or begin to send audio.
    pub(super) async fn update(&mut self, participants: Vec<Participant>) -> Result<(), Failure> {
        let mut wanted = Vec::new();
        for person in participants {
            if ![STANDARD, SIP].contains(&person.kind) {
                continue;
            }
            if person.state == DISCONNECTED {
                self.callers.seated.retain(|caller| caller.sid != person.sid);
                self.callers.waiting.remove(&person.sid);
                continue;
            }
            let tracks = person.tracks.iter().filter(|track| track.r#type == AUDIO);
            for sid in tracks.map(|track| &track.sid).filter(|sid| !sid.is_empty()) {
                if self.callers.subscribed.insert(sid.clone()) {
                    wanted.push(sid.clone());
                }
                if let Some(caller) = self.callers.seated.iter_mut().find(|caller| caller.sid == person.sid) {
                    caller.track.clone_from(sid);
                }
            }
            let is_seated = self.callers.seated.iter().any(|caller| caller.sid == person.sid);
            if person.state == ACTIVE && !is_seated {
                let since =
                    self.callers.waiting.get(&person.sid).map_or_else(Instant::now, |(_, since)| *since);
                self.callers.waiting.insert(person.sid.clone(), (person, since));
            }
        }
        if !wanted.is_empty() {
            let wish = Subscription { track_sids: wanted, subscribe: true };
            self.link.send(Request::Subscription(wish)).await;
        }
        Ok(())
    }

    /// Seats waiting callers who can hear the agent.
    pub(super) async fn seat(&mut self, now: Instant) -> Result<(), Failure> {
        // An ended session takes no new callers.
        if self.callers.waiting.is_empty() || !self.is_ready() || self.ending.is_some() {
            return Ok(());
        }
        let may_sit = |since: Instant| self.track.is_subscribed || now >= since + SUBSCRIBE_WAIT;
        let ready: Vec<String> = self
            .callers
            .waiting
            .iter()
            .filter(|(_, (_, since))| may_sit(*since))
            .map(|(sid, _)| sid.clone())
            .collect();
        for sid in ready {
            let Some((person, _)) = self.callers.waiting.remove(&sid) else { continue };
            // The identity of a telephone has its number.
            let (kind, identity) = match person.kind {
                SIP => (Kind::Phone, CALLER),
                _ => (Kind::Web, person.identity.as_str()),
            };
            if let Some(number) = person.attributes.get(PHONE_NUMBER).filter(|_| person.kind == SIP) {
                self.reception.bind(number).await;
            }
            let seat = match self.reception.seat(kind, identity).await {
                Ok(seat) => seat,
                Err(NoSeat::Refused) => continue,
                Err(error) => return Err(error.into()),
            };
            let track = person.tracks.into_iter().find(|track| track.r#type == AUDIO).unwrap_or_default().sid;
            let hearing = Hearing::new(now.into())?;
            self.callers.seated.push(Caller { sid, identity: person.identity, track, seat, hearing });
        }
        Ok(())
    }

    pub(super) async fn heard(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::MediaData(media) => self.audio(media).await,
            Event::ChannelData(channel) => {
                if let Some((identity, said)) = self.data.inbox.take(channel.data) {
                    self.said(&identity, said).await;
                }
            }
            // The agent is useless while it hears nothing. The connection may recover, within limits.
            Event::IceConnectionStateChange(state) if state.is_disconnected() => {
                self.health.hears_by.get_or_insert(Instant::now() + JOIN_WAIT);
                self.look_for_a_way();
            }
            Event::IceConnectionStateChange(state) if state.is_connected() && self.health.hears => {
                self.health.hears_by = None
            }
            Event::ChannelOpen(_, name) if name == RELIABLE => {
                (self.health.hears, self.health.hears_by) = (true, None);
                self.is_there().await;
            }
            Event::Closed => return Err(Failure::Anew),
            _ => {}
        }
        Ok(())
    }

    async fn audio(&mut self, media: MediaData) {
        let Some(stream) = self.callers.streams.get(&*media.mid) else { return };
        // `PARTICIPANT|TRACK`.
        let sid = stream.split('|').next().unwrap_or_default();
        let Some(caller) = self.callers.seated.iter_mut().find(|caller| caller.sid == sid) else { return };
        let coding = match media.params.spec().codec {
            Codec::Opus => Coding::Opus,
            Codec::PCMU => Coding::Mulaw,
            _ => return,
        };
        let tick = media.time.rebase(Frequency::FORTY_EIGHT_KHZ).numer();
        let samples = caller.hearing.packet(coding, tick, &media.data);
        // If the agent is gone, `Outbound::End` tells.
        caller.seat.audio(samples).await;
    }

    async fn said(&mut self, identity: &str, said: Said) {
        let at =
            self.callers.seated.iter().position(|caller| caller.identity == identity).unwrap_or_default();
        let Some(caller) = self.callers.seated.get_mut(at) else { return };
        match said {
            Said::UserMessage(text) => drop(caller.seat.send(Inbound::Text(text)).await),
            Said::Digit(digit) => drop(caller.seat.send(Inbound::Digit(digit)).await),
            Said::PageContext(context) => drop(caller.seat.send(Inbound::PageContext(context)).await),
            Said::Settings(_) | Said::KeepAlive | Said::Played(_) | Said::Close | Said::Order(_) => {}
        }
    }
}
