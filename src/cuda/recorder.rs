//! Measures stages by events in the streams where they run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};

use super::{Error, Stage, StageTimes};

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
