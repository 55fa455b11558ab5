//! Reports of a decoder's progress, by which its caller can stop it.

use super::error::Error;
use super::gather::{Gather, Progress};
use super::pcm::SAMPLE_RATE;

/// Packets between two reports, whatever they yield: each takes some milliseconds at most.
const PACKETS_BETWEEN: u32 = 64;

/// Receives progress at least once for each second of output, all channels counted, and for every
/// [`PACKETS_BETWEEN`] packets, even if they yield nothing. An error stops the decoder, which returns it;
/// [`Error::Stopped`] exists for that.
pub type Budget<'a> = &'a mut dyn FnMut(Progress) -> Result<(), Error>;

/// Calls the budget when a report is due.
pub struct Meter<'a> {
    budget: Budget<'a>,
    packets: u32,
    /// The output at which the next report is due.
    due: u64,
}

impl<'a> Meter<'a> {
    pub fn new(budget: Budget<'a>) -> Self {
        Self { budget, packets: 0, due: u64::from(SAMPLE_RATE) }
    }

    /// Call this after each packet.
    ///
    /// # Errors
    /// Those of the budget.
    pub fn packet(&mut self, gather: &Gather) -> Result<(), Error> {
        self.packets += 1;
        if self.packets < PACKETS_BETWEEN && gather.progress().output_samples < self.due {
            return Ok(());
        }
        self.report(gather)
    }

    /// # Errors
    /// Those of the budget.
    pub fn report(&mut self, gather: &Gather) -> Result<(), Error> {
        let progress = gather.progress();
        self.packets = 0;
        self.due = progress.output_samples + u64::from(SAMPLE_RATE);
        (self.budget)(progress)
    }
}
