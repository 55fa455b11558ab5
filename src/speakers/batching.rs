//! A thread that computes the networks in batches for all requests, in turns that are fair between them.
//!
//! The tenants whose calls wait for a network get turns one input at a time, and so do the calls of one tenant: a call
//! with one window passes one with hundreds, and a tenant with one call passes one with dozens. A call whose future was
//! dropped is forgotten with what is left of it.
//!
//! A call needs a [`Place`]. One that finds none waits, in turn by tenant, and no tenant holds more than its share.
//! Files and streams have places of their own, so that words that become final don't wait for recordings.

use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use tokio::sync::oneshot;

use super::error::Error;
use super::network::{LogProbabilities, Networks};
use crate::share::{Tenants, Turn, Turns};
use crate::telemetry::metrics::SPEAKERS_BATCH;

/// Calls of files that have places at once: enough to fill batches, with some 10 MB of audio each.
const FILE_PLACES: usize = 32;
/// Calls of streams that have places at once: most have one or two windows.
const STREAM_PLACES: usize = 64;
/// Inputs of one batch: enough to share weights and threads, few enough that no turn lasts long.
const WINDOWS_MAX: usize = 16;
const PIECES_MAX: usize = 8;
const STATISTICS_MAX: usize = 64;
/// Niceness of the thread and of those that the networks start: beside a busy thread of the engine, one of these gets
/// a quarter of the processor (weights 335 and 1024, `sched(7)`).
const NICENESS: i32 = 5;

/// One tenant's handle on the thread, which ends with the last of them. Dropping the future of a call withdraws it.
#[derive(Clone)]
pub struct Batcher {
    calls: Sender<Call>,
    tenant: u64,
    /// Those of files, unless [`Self::for_streams`] made the handle.
    places: Turns,
    stream_places: Turns,
    clusterings: Turns,
    stream_clusterings: Turns,
}

/// A place for one call. The caller makes the inputs once it has it, so a call that waits holds none.
pub struct Place {
    calls: Sender<Call>,
    tenant: u64,
    turn: Turn,
}

enum Call {
    Segment(Waiting<Vec<LogProbabilities>>),
    Trunk(Waiting<Vec<f32>>),
    Embed(Waiting<Vec<f32>>),
}

/// A call whose inputs have not all been computed.
struct Waiting<O> {
    inputs: std::vec::IntoIter<Vec<f32>>,
    outputs: Vec<O>,
    failed: bool,
    reply: oneshot::Sender<Result<Vec<O>, Error>>,
    tenant: u64,
    turn: Turn,
}

impl<O> Waiting<O> {
    fn answer(self) {
        let Self { outputs, failed, reply, turn, .. } = self;
        // Before the answer, so that the caller's next call finds a place.
        drop(turn);
        // A caller that has gone by now needs no answer.
        drop(reply.send(if failed { Err(Error::Failed) } else { Ok(outputs) }));
    }
}

impl Batcher {
    /// Starts the thread, loads the networks on it and waits for them. Threads that `load` starts have its priority, which is
    /// below the engine's.
    ///
    /// # Errors
    /// The error of `load`, [`Error::Thread`], [`Error::Failed`] if it panics.
    pub fn start<N: Networks>(
        load: impl FnOnce() -> Result<N, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (calls, queue) = unbounded();
        let (report, reported) = bounded(1);
        let serve = move || {
            lower_priority();
            match load() {
                Ok(networks) => {
                    drop(report.send(Ok(())));
                    Server::default().run(&networks, &queue);
                }
                Err(error) => drop(report.send(Err(error))),
            }
        };
        std::thread::Builder::new().name("speakers".into()).spawn(serve).map_err(Error::Thread)?;
        reported.recv().map_err(|_| Error::Failed)??;
        let alone = Tenants::default();
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(Self {
            calls,
            tenant: 0,
            places: Turns::new(FILE_PLACES, alone.clone()),
            stream_places: Turns::new(STREAM_PLACES, alone),
            clusterings: Turns::brief(processors),
            stream_clusterings: Turns::brief(processors),
        })
    }

    /// With places that are shared between `tenants`. Handles that were made before have others.
    pub fn shared_between(self, tenants: &Tenants) -> Self {
        Self {
            places: Turns::new(FILE_PLACES, tenants.clone()),
            stream_places: Turns::new(STREAM_PLACES, tenants.clone()),
            ..self
        }
    }

    /// For calls of `tenant`; a new thread's first handle is for 0.
    pub fn for_tenant(&self, tenant: u64) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// For calls of streams.
    pub fn for_streams(&self) -> Self {
        Self {
            places: self.stream_places.clone(),
            clusterings: self.stream_clusterings.clone(),
            ..self.clone()
        }
    }

    /// Waits for a place. Cancel-safe.
    pub async fn place(&self) -> Place {
        let turn = self.places.take(self.tenant).await;
        Place { calls: self.calls.clone(), tenant: self.tenant, turn }
    }

    /// Waits for a turn at clustering, which keeps a processor busy: there are as many turns as processors for files, and as
    /// many for streams.
    /// Cancel-safe.
    pub async fn clustering(&self) -> Turn {
        self.clusterings.take(self.tenant).await
    }
}

impl Place {
    /// As [`Networks::segment`].
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn segment(self, windows: Vec<Vec<f32>>) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        self.ask(windows, Call::Segment).await
    }

    /// As [`Networks::trunk`].
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn trunk(self, pieces: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, Error> {
        self.ask(pieces, Call::Trunk).await
    }

    /// As [`Networks::embed`].
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn embed(self, statistics: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, Error> {
        self.ask(statistics, Call::Embed).await
    }

    async fn ask<O>(self, inputs: Vec<Vec<f32>>, call: fn(Waiting<O>) -> Call) -> Result<Vec<O>, Error> {
        if inputs.is_empty() {
            return Ok(Vec::new());
        }
        let Self { calls, tenant, turn } = self;
        let (reply, answer) = oneshot::channel();
        let outputs = Vec::with_capacity(inputs.len());
        let waiting = Waiting { inputs: inputs.into_iter(), outputs, failed: false, reply, tenant, turn };
        calls.send(call(waiting)).map_err(|_| Error::Failed)?;
        answer.await.map_err(|_| Error::Failed)?
    }
}

/// Lowers the priority of this thread and of threads that it starts.
fn lower_priority() {
    // SAFETY: changes only the scheduling of the calling thread, on Linux; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

/// The calls that wait for each network.
#[derive(Default)]
struct Server {
    segment: Calls<Vec<LogProbabilities>>,
    trunk: Calls<Vec<f32>>,
    embed: Calls<Vec<f32>>,
}

impl Server {
    /// Serves until the last handle is gone and no call waits.
    fn run(&mut self, networks: &impl Networks, queue: &Receiver<Call>) {
        loop {
            if self.segment.is_empty() && self.trunk.is_empty() && self.embed.is_empty() {
                let Ok(call) = queue.recv() else { return };
                self.enter(call);
            }
            self.enter_all(queue);
            self.segment.serve("segment", WINDOWS_MAX, |inputs| networks.segment(inputs));
            self.enter_all(queue);
            self.trunk.serve("trunk", PIECES_MAX, |inputs| networks.trunk(inputs));
            self.enter_all(queue);
            self.embed.serve("embed", STATISTICS_MAX, |inputs| networks.embed(inputs));
        }
    }

    fn enter_all(&mut self, queue: &Receiver<Call>) {
        queue.try_iter().for_each(|call| self.enter(call));
    }

    fn enter(&mut self, call: Call) {
        match call {
            Call::Segment(waiting) => self.segment.enter(waiting),
            Call::Trunk(waiting) => self.trunk.enter(waiting),
            Call::Embed(waiting) => self.embed.enter(waiting),
        }
    }
}

/// The calls that wait for one network.
struct Calls<O> {
    by_number: HashMap<u64, Waiting<O>>,
    /// The next one's.
    number: u64,
    /// Each tenant with calls that have inputs left, and these by number, all in the order of their turns.
    lines: VecDeque<(u64, VecDeque<u64>)>,
}

impl<O> Default for Calls<O> {
    fn default() -> Self {
        Self { by_number: HashMap::new(), number: 0, lines: VecDeque::new() }
    }
}

impl<O> Calls<O> {
    fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    fn enter(&mut self, call: Waiting<O>) {
        match self.lines.iter_mut().find(|(tenant, _)| *tenant == call.tenant) {
            Some((_, line)) => line.push_back(self.number),
            None => self.lines.push_back((call.tenant, VecDeque::from([self.number]))),
        }
        self.by_number.insert(self.number, call);
        self.number += 1;
    }

    /// Computes one batch of at most `most` inputs, and answers the calls that it completes.
    fn serve(
        &mut self,
        network: &'static str,
        most: usize,
        compute: impl FnOnce(&[Vec<f32>]) -> Result<Vec<O>, Error>,
    ) {
        self.forget_withdrawn();
        let (inputs, owners) = self.batch(most);
        if inputs.is_empty() {
            return;
        }
        let start = Instant::now();
        let outputs = match catch_unwind(AssertUnwindSafe(|| compute(&inputs))) {
            Ok(Ok(outputs)) if outputs.len() == inputs.len() => Some(outputs),
            Ok(Ok(_)) => fail(network, "it answered another number of inputs"),
            Ok(Err(error)) => fail(network, &error.to_string()),
            Err(_) => fail(network, "it panicked"),
        };
        SPEAKERS_BATCH.with(&[("network", network)]).record(start.elapsed());
        // A call's inputs are taken in their order. There are as many outputs as inputs, or none.
        let mut outputs = outputs.map(Vec::into_iter);
        for owner in &owners {
            let Some(call) = self.by_number.get_mut(owner) else { continue };
            match outputs.as_mut().and_then(Iterator::next) {
                Some(output) => call.outputs.push(output),
                None => call.failed = true,
            }
        }
        let is_done = |_: &u64, call: &mut Waiting<O>| call.failed || call.inputs.len() == 0;
        self.by_number.extract_if(is_done).for_each(|(_, call)| call.answer());
    }

    fn forget_withdrawn(&mut self) {
        self.by_number.retain(|_, call| !call.reply.is_closed());
        self.lines.iter_mut().for_each(|(_, line)| line.retain(|number| self.by_number.contains_key(number)));
        self.lines.retain(|(_, line)| !line.is_empty());
    }

    /// Inputs, one of each tenant's next call in turn, and the number of each one's call.
    fn batch(&mut self, most: usize) -> (Vec<Vec<f32>>, Vec<u64>) {
        let (mut inputs, mut owners) = (Vec::new(), Vec::new());
        while inputs.len() < most
            && let Some((tenant, mut line)) = self.lines.pop_front()
        {
            if let Some(number) = line.pop_front()
                && let Some(call) = self.by_number.get_mut(&number)
                && let Some(input) = call.inputs.next()
            {
                inputs.push(input);
                owners.push(number);
                if call.inputs.len() > 0 {
                    line.push_back(number);
                }
            }
            if !line.is_empty() {
                self.lines.push_back((tenant, line));
            }
        }
        (inputs, owners)
    }
}

fn fail<T>(network: &'static str, reason: &str) -> Option<T> {
    tracing::error!(network, reason, "a network of diarization failed, and goes on with the next batch");
    None
}

#[cfg(test)]
mod tests;
