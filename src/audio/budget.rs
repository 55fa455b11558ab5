//! How far a decoder has come, so that its caller can stop it.

use super::SAMPLE_RATE;
use super::decode::Error;
use super::gather::Gather;

/// Packets between two reports, whatever they yield: each takes some milliseconds at most.
const PACKETS_BETWEEN: u32 = 64;

/// How far a decoder has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Samples at [`SAMPLE_RATE`] that it holds, all output channels counted.
    pub output_samples: u64,
    /// Samples of the file that it has decoded, all channels counted: what its work goes by.
    pub source_samples: u64,
}

impl Progress {
    /// Memory for what it holds.
    pub fn held_bytes(&self) -> u64 {
        self.output_samples * size_of::<i16>() as u64
    }
}

/// Hears of progress: at least once for each second of output, all channels counted, and for every
/// [`PACKETS_BETWEEN`] packets, also where those yield nothing. An error stops the decoder and is what it
/// returns; [`Error::Stopped`] is there for that.
pub type Budget<'a> = &'a mut dyn FnMut(Progress) -> Result<(), Error>;

/// Reports when it is time to.
pub struct Meter<'a> {
    budget: Budget<'a>,
    packets: u32,
    /// The output with which the next report is due.
    due: u64,
}

impl<'a> Meter<'a> {
    pub fn new(budget: Budget<'a>) -> Self {
        Self { budget, packets: 0, due: u64::from(SAMPLE_RATE) }
    }

    /// To be called after each packet.
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
