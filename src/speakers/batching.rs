//! A thread that computes the networks in batches for all requests, in turns that are fair between them.
//!
//! The calls that wait for a network get turns one input at a time, so a call with one window passes one with
//! hundreds. A call whose future was dropped is forgotten with what is left of it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::error::Error;
use super::network::{LogProbabilities, Networks};
use crate::telemetry::metrics::SPEAKERS_BATCH;

/// Calls that may wait.
const CALLS_MAX: usize = 256;
/// Inputs of one batch: enough to share weights and threads, few enough that no turn lasts long.
const WINDOWS_MAX: usize = 16;
const PIECES_MAX: usize = 8;
const STATISTICS_MAX: usize = 64;
/// Niceness of the thread and of those that the networks start: beside a busy thread of the engine, one of these gets
/// a quarter of the processor (weights 335 and 1024, `sched(7)`).
const NICENESS: i32 = 5;

/// A handle on the thread, which ends with the last of them. Dropping the future of a call withdraws it.
#[derive(Clone)]
pub struct Batcher {
    calls: Sender<Call>,
    /// One for each call that waits.
    places: Arc<Semaphore>,
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
    place: OwnedSemaphorePermit,
}

impl<O> Waiting<O> {
    fn answer(self) {
        let Self { outputs, failed, reply, place, .. } = self;
        // Before the answer, so that the caller's next call finds a place.
        drop(place);
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
            step_back();
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
        Ok(Self { calls, places: Arc::new(Semaphore::new(CALLS_MAX)) })
    }

    /// As [`Networks::segment`].
    ///
    /// # Errors
    /// [`Error::Busy`] if too many calls wait, [`Error::Failed`].
    pub async fn segment(&self, windows: Vec<Vec<f32>>) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        self.ask(windows, Call::Segment).await
    }

    /// As [`Networks::trunk`].
    ///
    /// # Errors
    /// [`Error::Busy`] if too many calls wait, [`Error::Failed`].
    pub async fn trunk(&self, pieces: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, Error> {
        self.ask(pieces, Call::Trunk).await
    }

    /// As [`Networks::embed`].
    ///
    /// # Errors
    /// [`Error::Busy`] if too many calls wait, [`Error::Failed`].
    pub async fn embed(&self, statistics: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, Error> {
        self.ask(statistics, Call::Embed).await
    }

    async fn ask<O>(&self, inputs: Vec<Vec<f32>>, call: fn(Waiting<O>) -> Call) -> Result<Vec<O>, Error> {
        if inputs.is_empty() {
            return Ok(Vec::new());
        }
        let place = self.places.clone().try_acquire_owned().map_err(|_| Error::Busy)?;
        let (reply, answer) = oneshot::channel();
        let outputs = Vec::with_capacity(inputs.len());
        let waiting = Waiting { inputs: inputs.into_iter(), outputs, failed: false, reply, place };
        self.calls.send(call(waiting)).map_err(|_| Error::Failed)?;
        answer.await.map_err(|_| Error::Failed)?
    }
}

/// Lowers the priority of this thread and of threads that it starts.
fn step_back() {
    // SAFETY: changes only the scheduling of the calling thread, on Linux; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

/// The calls that wait for each network.
#[derive(Default)]
struct Server {
    segment: Turns<Vec<LogProbabilities>>,
    trunk: Turns<Vec<f32>>,
    embed: Turns<Vec<f32>>,
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
            Call::Segment(waiting) => self.segment.0.push_back(waiting),
            Call::Trunk(waiting) => self.trunk.0.push_back(waiting),
            Call::Embed(waiting) => self.embed.0.push_back(waiting),
        }
    }
}

/// Calls in the order of their turns.
struct Turns<O>(VecDeque<Waiting<O>>);

impl<O> Default for Turns<O> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<O> Turns<O> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Computes one batch of at most `most` inputs, and answers the calls that it completes.
    fn serve(
        &mut self,
        network: &'static str,
        most: usize,
        compute: impl FnOnce(&[Vec<f32>]) -> Result<Vec<O>, Error>,
    ) {
        self.0.retain(|call| !call.reply.is_closed());
        let (inputs, owners) = self.batch(most);
        let Some(last) = owners.last().copied() else { return };
        let start = Instant::now();
        let outputs = match catch_unwind(AssertUnwindSafe(|| compute(&inputs))) {
            Ok(Ok(outputs)) if outputs.len() == inputs.len() => Some(outputs),
            Ok(Ok(_)) => fail(network, "it answered another number of inputs"),
            Ok(Err(error)) => fail(network, &error.to_string()),
            Err(_) => fail(network, "it panicked"),
        };
        SPEAKERS_BATCH.with(&[("network", network)]).record(start.elapsed());
        match outputs {
            // A call's inputs are taken in their order.
            Some(outputs) => {
                owners.iter().zip(outputs).for_each(|(owner, output)| self.0[*owner].outputs.push(output));
            }
            None => owners.iter().for_each(|owner| self.0[*owner].failed = true),
        }
        // The next batch begins with the call after the last one served.
        self.0.rotate_left(last + 1);
        for _ in 0..self.0.len() {
            let Some(call) = self.0.pop_front() else { break };
            if call.failed || call.inputs.len() == 0 {
                call.answer();
            } else {
                self.0.push_back(call);
            }
        }
    }

    /// Inputs of all calls, one of each in turn, and the position of each one's call.
    fn batch(&mut self, most: usize) -> (Vec<Vec<f32>>, Vec<usize>) {
        let (mut inputs, mut owners) = (Vec::new(), Vec::new());
        while inputs.len() < most {
            let before = inputs.len();
            for (owner, call) in self.0.iter_mut().enumerate() {
                if inputs.len() < most
                    && let Some(input) = call.inputs.next()
                {
                    inputs.push(input);
                    owners.push(owner);
                }
            }
            if inputs.len() == before {
                break;
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
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    /// The first value of each piece of a batch.
    type Seen = Vec<f32>;

    /// Echoes pieces once the test lets it, and panics or fails at some.
    struct Echo {
        seen: Sender<Seen>,
        go_on: Receiver<()>,
    }

    const PANIC: f32 = -1.0;
    const FAIL: f32 = -2.0;
    const TOO_FEW: f32 = -3.0;

    impl Networks for Echo {
        fn segment(&self, _: &[Vec<f32>]) -> Result<Vec<Vec<LogProbabilities>>, Error> {
            Ok(Vec::new())
        }

        fn trunk(&self, pieces: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
            let seen: Seen = pieces.iter().map(|piece| piece[0]).collect();
            self.seen.send(seen.clone()).expect("the test listens");
            self.go_on.recv().expect("the test lets it go on");
            assert!(!seen.contains(&PANIC), "by the test");
            match seen {
                seen if seen.contains(&FAIL) => Err(Error::Failed),
                seen if seen.contains(&TOO_FEW) => Ok(Vec::new()),
                _ => Ok(pieces.to_vec()),
            }
        }

        fn embed(&self, statistics: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
            Ok(statistics.to_vec())
        }
    }

    struct Test {
        batcher: Batcher,
        seen: Receiver<Seen>,
        go_on: Sender<()>,
    }

    fn start() -> Test {
        let (seen, listen) = unbounded();
        let (go_on, wait) = unbounded();
        let batcher = Batcher::start(move || Ok(Echo { seen, go_on: wait })).expect("started");
        Test { batcher, seen: listen, go_on }
    }

    impl Test {
        /// Waits for the next batch.
        fn batch(&self) -> Seen {
            self.seen.recv().expect("a batch")
        }

        fn go_on(&self) {
            self.go_on.send(()).expect("the thread lives");
        }
    }

    fn pieces(values: impl IntoIterator<Item = f32>) -> Vec<Vec<f32>> {
        values.into_iter().map(|value| vec![value]).collect()
    }

    /// Makes a call enter the queue.
    fn enter<O>(future: Pin<&mut impl Future<Output = O>>) {
        assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[tokio::test]
    async fn a_short_call_passes_a_long_one_and_both_get_their_own() {
        let test = start();
        let long: Vec<f32> = (0..20).map(|n| n as f32).collect();
        let mut first = pin!(test.batcher.trunk(pieces(long.clone())));
        let mut second = pin!(test.batcher.trunk(pieces([100.0, 101.0])));
        enter(first.as_mut());
        assert_eq!(test.batch(), long[..8]);
        enter(second.as_mut());
        test.go_on();
        assert_eq!(test.batch(), [8.0, 100.0, 9.0, 101.0, 10.0, 11.0, 12.0, 13.0]);
        test.go_on();
        assert_eq!(second.await.expect("answered"), pieces([100.0, 101.0]));
        assert_eq!(test.batch(), long[14..]);
        test.go_on();
        assert_eq!(first.await.expect("answered"), pieces(long));
    }

    #[tokio::test]
    async fn with_more_calls_than_a_batch_holds_all_get_their_turns() {
        let test = start();
        let mut blocker = pin!(test.batcher.trunk(pieces([0.0])));
        enter(blocker.as_mut());
        assert_eq!(test.batch(), [0.0]);
        let mut calls: Vec<_> =
            (1..=10).map(|n| Box::pin(test.batcher.trunk(pieces([n as f32, n as f32 + 0.5])))).collect();
        calls.iter_mut().for_each(|call| enter(call.as_mut()));
        test.go_on();
        assert_eq!(test.batch(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        test.go_on();
        assert_eq!(test.batch(), [9.0, 10.0, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]);
        test.go_on();
        assert_eq!(test.batch(), [7.5, 8.5, 9.5, 10.5]);
        test.go_on();
        for (n, call) in (1..=10).zip(calls) {
            assert_eq!(call.await.expect("answered"), pieces([n as f32, n as f32 + 0.5]));
        }
    }

    #[tokio::test]
    async fn a_dropped_call_is_not_computed() {
        let test = start();
        let mut first = pin!(test.batcher.trunk(pieces([1.0])));
        enter(first.as_mut());
        assert_eq!(test.batch(), [1.0]);
        let mut dropped = Box::pin(test.batcher.trunk(pieces([2.0; 30])));
        enter(dropped.as_mut());
        let mut third = pin!(test.batcher.trunk(pieces([3.0])));
        enter(third.as_mut());
        drop(dropped);
        test.go_on();
        assert_eq!(test.batch(), [3.0]);
        test.go_on();
        assert_eq!(third.await.expect("answered"), pieces([3.0]));
        assert_eq!(test.batcher.places.available_permits(), CALLS_MAX);
    }

    #[tokio::test]
    async fn a_batch_that_fails_fails_its_callers_and_the_thread_lives_on() {
        let test = start();
        for poison in [PANIC, FAIL, TOO_FEW] {
            test.go_on();
            let failed = test.batcher.trunk(pieces([1.0, poison])).await;
            assert!(matches!(failed, Err(Error::Failed)), "{poison}: {failed:?}");
            test.go_on();
            assert_eq!(test.batcher.trunk(pieces([2.0])).await.expect("answered"), pieces([2.0]));
        }
        assert_eq!(test.batcher.embed(pieces([4.0])).await.expect("answered"), pieces([4.0]));
        assert!(matches!(test.batcher.segment(pieces([5.0])).await, Err(Error::Failed)));
    }

    #[tokio::test]
    async fn a_call_beyond_the_bound_is_refused() {
        let test = start();
        let mut running = pin!(test.batcher.trunk(pieces([0.0])));
        enter(running.as_mut());
        assert_eq!(test.batch(), [0.0]);
        let mut calls: Vec<_> = (1..CALLS_MAX).map(|_| Box::pin(test.batcher.trunk(pieces([1.0])))).collect();
        calls.iter_mut().for_each(|call| enter(call.as_mut()));
        assert!(matches!(test.batcher.embed(pieces([1.0])).await, Err(Error::Busy)));
        assert!(matches!(test.batcher.trunk(Vec::new()).await, Ok(none) if none.is_empty()));
        drop(calls);
        test.go_on();
        running.await.expect("answered");
        assert_eq!(test.batcher.embed(pieces([4.0])).await.expect("answered"), pieces([4.0]));
    }

    #[test]
    fn an_error_of_loading_is_passed_on() {
        let missing = || Err::<Echo, _>(Error::Unexpected { tensor: "x".to_owned() });
        assert!(matches!(Batcher::start(missing), Err(Error::Unexpected { .. })));
        assert!(matches!(
            Batcher::start(|| -> Result<Echo, Error> { panic!("by the test") }),
            Err(Error::Failed)
        ));
    }
}
