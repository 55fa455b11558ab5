//! Those who listen in on a talk. They take no part in it: the agent waits for none of them.

use tokio::sync::mpsc;

use crate::room::Outbound;

/// More get no talk to hear.
const OBSERVERS_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Observers(Vec<mpsc::Sender<Outbound>>);

impl Observers {
    pub(super) fn add(&mut self, output: mpsc::Sender<Outbound>) {
        self.0.retain(|output| !output.is_closed());
        if self.0.len() < OBSERVERS_MAX {
            self.0.push(output);
        }
    }

    /// Passes on what the agent says to all. Observers who cannot keep up are dropped.
    pub(super) fn tell(&mut self, outbound: &Outbound) {
        self.0.retain(|output| output.try_send(outbound.clone()).is_ok());
    }

    /// Passes on what a caller says.
    pub(super) fn hear(&mut self, seat: u64, samples: &[f32]) {
        if !self.0.is_empty() {
            self.tell(&Outbound::Caller { seat, samples: samples.into() });
        }
    }
}
