//! The agent's output: speech, messages, and its state.

use std::collections::HashMap;

use tokio::time::Instant;

use super::super::caller::Caller;
use super::super::data::{self, Meaning, meaning};
use super::super::protocol::{Request, UpdateMetadata};
use super::super::transcription::Speaker;
use super::{Connection, GOODBYE};
use crate::room::seat::{Inbound, Outbound};

/// Packets that can wait for the data channel to open.
const WAITING_MAX: usize = 256;

impl Connection<'_> {
    /// Passes on the agent's output to the caller at `at`; none if the agent is gone.
    pub(super) async fn give(&mut self, at: usize, outbound: Option<Outbound>) {
        let Some(outbound) = outbound.filter(|outbound| !matches!(outbound, Outbound::End)) else {
            self.ending.get_or_insert(Instant::now() + GOODBYE);
            self.callers.seated.retain({
                let mut index = 0;
                move |_| {
                    index += 1;
                    index != at + 1
                }
            });
            return;
        };
        if at != 0 {
            return;
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
                    Meaning::State(state) => self.set_state(&state).await,
                    Meaning::Sentence(text) => {
                        let track = self.track.sid.as_deref().unwrap_or_default();
                        let packets = self.data.lines.agent_says(&text, track);
                        self.send_all(packets);
                    }
                    Meaning::Said => {
                        let packet = self.data.lines.agent_ends();
                        self.send_all(packet);
                    }
                    Meaning::Cut(heard) => {
                        let packets = self.data.lines.agent_was_cut(&heard);
                        self.send_all(packets);
                    }
                    Meaning::Other => {}
                }
            }
            Outbound::Heard { seat, text, is_final } => {
                let caller = self.callers.seated.iter().find(|caller| caller.seat.number() == seat);
                let speaker = caller.map(|Caller { identity, track, .. }| Speaker { identity, track });
                let speaker = speaker.unwrap_or_default();
                let packets = self.data.lines.caller_says(seat, &text, is_final, speaker);
                self.send_all(packets);
            }
            Outbound::Caller { .. } | Outbound::End => {}
        }
    }

    pub(super) async fn played(&mut self, marks: Vec<u64>) {
        let Some(caller) = self.callers.seated.first_mut() else { return };
        for mark in marks {
            caller.seat.send(Inbound::Played(mark)).await;
        }
    }

    pub(super) async fn set_state(&mut self, state: &str) {
        let attributes = HashMap::from([("lk.agent.state".to_owned(), state.to_owned())]);
        self.link.send(Request::UpdateMetadata(UpdateMetadata { attributes })).await;
    }

    fn send_all(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) {
        packets.into_iter().for_each(|packet| self.send(&packet));
    }

    /// Sends a packet. It is lost if the peer reads nothing or the packet is too large.
    pub(super) fn send(&mut self, packet: &[u8]) {
        match self.data.channel.and_then(|id| self.publisher.rtc.channel(id)) {
            Some(mut channel) => drop(channel.write(true, packet)),
            None if self.data.waiting.len() < WAITING_MAX => self.data.waiting.push(packet.to_vec()),
            None => {}
        }
    }
}
