use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use futures_util::FutureExt as _;

use super::super::network::WINDOW_FRAMES;
use super::super::{Diarizer, Options};
use super::*;
use crate::audio::Sound;

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

async fn trunk(batcher: &Batcher, pieces: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, Error> {
    batcher.place().await.trunk(pieces).await
}

/// With places that two tenants share.
fn shared(batcher: &Batcher) -> Batcher {
    let tenants = Tenants::default();
    tenants.set(2);
    batcher.clone().shared_between(&tenants)
}

/// The places that are free for `batcher`'s tenant.
fn free(batcher: &Batcher) -> Vec<Place> {
    std::iter::from_fn(|| batcher.place().now_or_never()).collect()
}

/// Makes a call enter the queue, or wait for a place.
fn enter<O>(future: Pin<&mut impl Future<Output = O>>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test]
async fn a_short_call_passes_a_long_one_and_both_get_their_own() {
    let test = start();
    let long: Vec<f32> = (0..20).map(|n| n as f32).collect();
    let mut first = pin!(trunk(&test.batcher, pieces(long.clone())));
    let mut second = pin!(trunk(&test.batcher, pieces([100.0, 101.0])));
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
    let mut blocker = pin!(trunk(&test.batcher, pieces([0.0])));
    enter(blocker.as_mut());
    assert_eq!(test.batch(), [0.0]);
    let mut calls: Vec<_> =
        (1..=10).map(|n| Box::pin(trunk(&test.batcher, pieces([n as f32, n as f32 + 0.5])))).collect();
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
    let mut first = pin!(trunk(&test.batcher, pieces([1.0])));
    enter(first.as_mut());
    assert_eq!(test.batch(), [1.0]);
    let mut dropped = Box::pin(trunk(&test.batcher, pieces([2.0; 30])));
    enter(dropped.as_mut());
    let mut third = pin!(trunk(&test.batcher, pieces([3.0])));
    enter(third.as_mut());
    drop(dropped);
    test.go_on();
    assert_eq!(test.batch(), [3.0]);
    test.go_on();
    assert_eq!(third.await.expect("answered"), pieces([3.0]));
    assert_eq!(free(&test.batcher).len(), FILE_PLACES);
}

#[tokio::test]
async fn a_batch_that_fails_fails_its_callers_and_the_thread_lives_on() {
    let test = start();
    for poison in [PANIC, FAIL, TOO_FEW] {
        test.go_on();
        let failed = trunk(&test.batcher, pieces([1.0, poison])).await;
        assert!(matches!(failed, Err(Error::Failed)), "{poison}: {failed:?}");
        test.go_on();
        assert_eq!(trunk(&test.batcher, pieces([2.0])).await.expect("answered"), pieces([2.0]));
    }
    assert_eq!(test.batcher.place().await.embed(pieces([4.0])).await.expect("answered"), pieces([4.0]));
    assert!(matches!(test.batcher.place().await.segment(pieces([5.0])).await, Err(Error::Failed)));
}

#[tokio::test]
async fn tenants_get_turns_however_many_calls_one_has() {
    let test = start();
    let (busy, other) = (test.batcher.for_tenant(1), test.batcher.for_tenant(2));
    let mut blocker = pin!(trunk(&busy, pieces([0.0])));
    enter(blocker.as_mut());
    assert_eq!(test.batch(), [0.0]);
    let mut calls: Vec<_> =
        (1..=10).map(|n| Box::pin(trunk(&busy, pieces([n as f32, n as f32 + 0.5])))).collect();
    calls.iter_mut().for_each(|call| enter(call.as_mut()));
    let mut others = pin!(trunk(&other, pieces((100..105).map(|n| n as f32))));
    enter(others.as_mut());
    test.go_on();
    assert_eq!(test.batch(), [1.0, 100.0, 2.0, 101.0, 3.0, 102.0, 4.0, 103.0]);
    test.go_on();
    assert_eq!(test.batch(), [5.0, 104.0, 6.0, 7.0, 8.0, 9.0, 10.0, 1.5]);
    test.go_on();
    assert_eq!(others.await.expect("answered"), pieces((100..105).map(|n| n as f32)));
    assert_eq!(test.batch().len(), 8);
    test.go_on();
    assert_eq!(test.batch(), [10.5]);
    test.go_on();
    for (n, call) in (1..=10).zip(calls) {
        assert_eq!(call.await.expect("answered"), pieces([n as f32, n as f32 + 0.5]));
    }
}

#[tokio::test]
async fn a_call_that_finds_no_place_waits_for_one() {
    let test = start();
    let held = free(&test.batcher);
    assert_eq!(held.len(), FILE_PLACES);
    let mut waiting = pin!(trunk(&test.batcher, pieces([1.0])));
    enter(waiting.as_mut());
    drop(held);
    enter(waiting.as_mut());
    assert_eq!(test.batch(), [1.0]);
    test.go_on();
    assert_eq!(waiting.await.expect("answered"), pieces([1.0]));
    assert_eq!(free(&test.batcher).len(), FILE_PLACES);
}

#[tokio::test]
async fn an_answer_gives_its_place_to_the_call_that_waits() {
    let test = start();
    let mut running = pin!(trunk(&test.batcher, pieces([0.0])));
    enter(running.as_mut());
    assert_eq!(test.batch(), [0.0]);
    let held = free(&test.batcher);
    assert_eq!(held.len(), FILE_PLACES - 1);
    let mut waiting = pin!(trunk(&test.batcher, pieces([1.0])));
    enter(waiting.as_mut());
    test.go_on();
    running.await.expect("answered");
    enter(waiting.as_mut());
    assert_eq!(test.batch(), [1.0]);
    test.go_on();
    waiting.await.expect("answered");
}

#[tokio::test]
async fn no_tenant_takes_all_places() {
    let test = start();
    let batcher = shared(&test.batcher);
    let held = free(&batcher.for_tenant(1));
    assert!(held.len() > FILE_PLACES / 2 && held.len() < FILE_PLACES, "{}", held.len());
    assert!(!free(&batcher.for_tenant(2)).is_empty());
}

#[tokio::test]
async fn streams_have_places_while_files_hold_all_of_theirs() {
    let test = start();
    let _held = free(&test.batcher);
    assert!(test.batcher.place().now_or_never().is_none());
    test.go_on();
    let labels = trunk(&test.batcher.for_streams().for_tenant(7), pieces([1.0])).await;
    assert_eq!(labels.expect("answered"), pieces([1.0]));
}

/// Hears silence.
struct Silence;

impl Networks for Silence {
    fn segment(&self, windows: &[Vec<f32>]) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        let silence = [0.0, -10.0, -10.0, -10.0, -10.0, -10.0, -10.0];
        Ok(vec![vec![silence; WINDOW_FRAMES]; windows.len()])
    }

    fn trunk(&self, _: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        Err(Error::Failed)
    }

    fn embed(&self, _: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        Err(Error::Failed)
    }
}

#[tokio::test]
async fn a_recording_waits_for_its_turn_at_clustering() {
    let batcher = Batcher::start(|| Ok(Silence)).expect("started");
    let mut held: Vec<_> = std::iter::from_fn(|| batcher.clustering().now_or_never()).collect();
    let diarizer = Diarizer::new(batcher.clone()).for_tenant(1);
    let diarized =
        tokio::spawn(
            async move { diarizer.diarize(&Sound::from(&[0.0; 800][..]), &Options::default()).await },
        );
    while batcher.clusterings.waiting() == 0 && !diarized.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(!diarized.is_finished(), "it clusters beside as many as there are processors");
    held.pop();
    assert!(diarized.await.expect("no panic").is_ok());
    assert!(batcher.clustering().now_or_never().is_some(), "it gave its turn back");
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
