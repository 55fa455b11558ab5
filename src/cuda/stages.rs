//! Times of the stages of the work, measured where they run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};

use super::Error;

/// A part of the work on a window. Numbers are rows of the launch, those that fill it up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Log-mel features, without the audio's copy to the device.
    Mel,
    Encoder,
    /// Keys and values of the audio.
    CacheFill,
    Prefill(usize),
    Step(usize),
    Alignment,
}

impl Stage {
    /// Whether it runs in the side queue.
    pub fn is_beside(self) -> bool {
        matches!(self, Self::Mel | Self::Encoder | Self::CacheFill)
    }
}

/// Counts and total times of stages, shared by all that measure and read them.
#[derive(Debug, Clone, Default)]
pub struct StageTimes(Arc<Mutex<HashMap<Stage, (u64, Duration)>>>);

impl StageTimes {
    /// For each stage that has run: how many times, and the device's time for all of them. The last few may be missing:
    /// they are added once they are known to be done, as later ones begin.
    pub fn totals(&self) -> Vec<(Stage, u64, Duration)> {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals: Vec<_> = totals.iter().map(|(&stage, &(count, time))| (stage, count, time)).collect();
        totals.sort_unstable();
        totals
    }

    /// Adds one run of `stage`, which took `time`.
    pub fn add(&self, stage: Stage, time: Duration) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, total) = totals.entry(stage).or_default();
        *count += 1;
        *total += time;
    }
}

/// Equal if they are the same.
impl PartialEq for StageTimes {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Measures stages by events in the streams.
pub struct Recorder {
    times: StageTimes,
    /// The stage that has begun, and where.
    begun: Option<(Stage, CudaEvent)>,
    /// Enqueued, and perhaps still to run.
    ended: VecDeque<(Stage, CudaEvent, CudaEvent)>,
    /// To be used again.
    free: Vec<CudaEvent>,
}

impl Recorder {
    pub fn new(times: StageTimes) -> Self {
        Self { times, begun: None, ended: VecDeque::new(), free: Vec::new() }
    }

    pub fn begins(&mut self, stage: Stage, stream: &CudaStream) -> Result<(), Error> {
        let event = self.event(stream.context())?;
        event.record(stream)?;
        self.begun = Some((stage, event));
        Ok(())
    }

    /// `of`: the stream of a stage.
    pub fn ends<'a>(&mut self, of: impl FnOnce(Stage) -> &'a CudaStream) -> Result<(), Error> {
        if let Some((stage, start)) = self.begun.take() {
            let stream = of(stage);
            let end = self.event(stream.context())?;
            end.record(stream)?;
            self.ended.push_back((stage, start, end));
        }
        self.read()
    }

    /// Adds the stages that are done.
    fn read(&mut self) -> Result<(), Error> {
        while let Some((stage, start, end)) = self.ended.front() {
            if !end.try_is_complete()? {
                return Ok(());
            }
            let milliseconds = start.elapsed_ms(end)?;
            self.times.add(*stage, Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1000.0));
            if let Some((_, start, end)) = self.ended.pop_front() {
                self.free.extend([start, end]);
            }
        }
        Ok(())
    }

    fn event(&mut self, context: &Arc<CudaContext>) -> Result<CudaEvent, Error> {
        match self.free.pop() {
            Some(event) => Ok(event),
            None => Ok(context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_by_stage_and_shared() {
        let times = StageTimes::default();
        let (shared, other) = (times.clone(), StageTimes::default());
        for (stage, microseconds) in
            [(Stage::Step(4), 5), (Stage::Mel, 7), (Stage::Step(4), 6), (Stage::Step(8), 1)]
        {
            shared.add(stage, Duration::from_micros(microseconds));
        }
        let of = |stage, count, microseconds| (stage, count, Duration::from_micros(microseconds));
        assert_eq!(
            times.totals(),
            [of(Stage::Mel, 1, 7), of(Stage::Step(4), 2, 11), of(Stage::Step(8), 1, 1)]
        );
        assert!(times == shared && times != other);
    }
}
