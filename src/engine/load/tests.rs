use std::time::{Duration, Instant};

use super::cost::Work;
use super::*;
use proptest::prelude::*;

pub(super) const TENANT: TenantId = TenantId(1);

fn load(max_held_seconds: f64) -> Arc<Load> {
    started(&Config { max_held_seconds, ..Config::default() })
}

/// The load of one device with three slots.
pub(super) fn started(config: &Config) -> Arc<Load> {
    let load = Load::new(config);
    load.started(1, 3);
    Arc::new(load)
}

fn told(result: Result<RequestPermit, Error>) -> Duration {
    match result {
        Err(Error::Overloaded { retry_after }) => retry_after,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("let in"),
    }
}

#[test]
fn an_idle_engine_takes_one_long_file_and_then_refuses_until_it_is_done() {
    let load = load(100.0);
    let long = load.admit(TENANT, 500.0.into()).expect("idle");
    assert!(matches!(load.admit(TENANT, 1.0.into()), Err(Error::Overloaded { .. })));
    assert!(load.enter(TENANT, 1, Instant::now()).is_err());
    long.done(500.0);
    assert!(
        load.admit(TENANT, 1.0.into()).is_err(),
        "the audio stays in memory until its transcript is done"
    );
    drop(long);
    let second = load.admit(TENANT, 10.0.into()).expect("idle");
    drop(second);
    assert_eq!(load.held_seconds(), 0.0);
}

#[test]
fn without_bounds_nothing_is_refused() {
    let load = started(&Config::unbounded());
    let first = load.admit(TENANT, 1e6.into()).expect("idle");
    load.busy(1e6);
    first.done(1.0);
    let second = load.admit(TENANT, 1e6.into()).expect("no bound");
    assert!(load.enter(TENANT, 1, Instant::now()).is_ok());
    first.done(f64::INFINITY);
    drop((first, second));
    assert_eq!(load.held_seconds(), 0.0);
}

#[test]
fn work_given_up_makes_room_at_once_and_is_not_taken_for_speed() {
    let load = load(100.0);
    let first = load.admit(TENANT, 90.0.into()).expect("idle");
    load.busy(10.0);
    assert!(load.admit(TENANT, 20.0.into()).is_err());
    drop(first);
    assert_eq!(load.snapshot().real_time_factor, None);
    assert!(load.admit(TENANT, 20.0.into()).is_ok());
}

#[test]
fn what_turns_out_to_be_silence_is_no_work_but_takes_up_memory() {
    let load = load(150.0);
    let first = load.admit(TENANT, 90.0.into()).expect("idle");
    first.cut([20.0, 10.0].into_iter());
    assert_eq!(load.held_seconds(), 30.0);
    assert!(load.admit(TENANT, 61.0.into()).is_err());
    let second = load.admit(TENANT, 60.0.into()).expect("room");
    first.done(20.0);
    first.done(f64::INFINITY);
    assert_eq!(load.held_seconds(), 60.0);
    second.cut(std::iter::empty());
    assert_eq!(load.held_seconds(), 0.0);
}

#[test]
fn requests_are_bounded_whatever_they_bring() {
    let load = started(&Config { max_requests: 3, ..Config::default() });
    let now = Instant::now();
    let permits: Vec<RequestPermit> =
        (0..3).map(|caller| load.enter(TENANT, caller, now).expect("room")).collect();
    assert!(told(load.enter(TENANT, 9, now)) >= Duration::from_secs(1));
    drop(permits);
    assert!(load.enter(TENANT, 10, now + Duration::from_secs(10)).is_ok());
}

#[test]
fn memory_is_held_wherever_the_audio_is() {
    let load = load(100.0);
    let admission = load.admit(TENANT, 90.0.into()).expect("idle");
    let memory = admission.memory();
    drop(admission);
    assert_eq!(load.held_seconds(), 0.0, "no work is left");
    assert!(matches!(load.admit(TENANT, 20.0.into()), Err(Error::Overloaded { .. })));
    drop(memory);
    assert!(load.admit(TENANT, 20.0.into()).is_ok());
}

#[tokio::test]
async fn a_job_waits_for_memory_and_is_no_work() {
    use futures_util::FutureExt as _;
    let load = load(100.0);
    let file = load.admit(TENANT, 90.0.into()).expect("idle");
    let mut job = Box::pin(load.admit_job(TENANT, 50.0));
    assert!((&mut job).now_or_never().is_none());
    drop(file);
    let job = job.now_or_never().expect("there is room");
    assert_eq!(load.held_seconds(), 0.0);
    assert!(job.grow(80.0).is_ok(), "it is alone");
    assert!(load.admit(TENANT, 21.0.into()).is_err());
    assert!(load.admit(TENANT, 20.0.into()).is_ok());
}

/// Teaches `load` that a full window takes a second.
fn teach(load: &Load) {
    for _ in 0..50 {
        load.learn(30.0, 1.0);
    }
}

/// Seconds that a refused tenant has to wait, and whether it holds its share.
fn refused(result: Result<AudioPermit, Error>) -> (u64, bool) {
    match result {
        Err(Error::Overloaded { retry_after }) => (retry_after.as_secs(), false),
        Err(Error::OverShare { retry_after }) => (retry_after.as_secs(), true),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("let in"),
    }
}

#[test]
fn a_tenant_with_little_is_let_in_however_much_another_one_has_waiting() {
    let load = load(1e6);
    teach(&load);
    let (busy, other, third) = (TenantId(1), TenantId(2), TenantId(3));
    let file = Audio::from(60.0);
    let mut held: Vec<AudioPermit> = std::iter::from_fn(|| load.admit(busy, file).ok()).collect();
    // 30 seconds of work, and a quarter more for audio in hand.
    assert_eq!(held.len(), 18);
    assert_eq!(refused(load.admit(busy, file)), (1, false));
    let mut theirs = vec![load.admit(other, file).expect("its own line is empty")];
    // Both share the engine from here on: the busy one has to wait for the other's work, too.
    assert_eq!(refused(load.admit(busy, file)), (3, true));
    theirs.extend(std::iter::from_fn(|| load.admit(other, file).ok()));
    assert_eq!(theirs.len(), 9);
    assert!(refused(load.admit(other, file)).1);
    // A file may be as long as it likes where its tenant has nothing else waiting.
    let long = load.admit(third, Audio::from(3000.0));
    // The others' work takes 54 seconds, of which 37.5 may be waited for: a matter of the server, not of its share.
    assert_eq!(refused(long), (17, false));
    held.truncate(6);
    theirs.truncate(6);
    assert!(load.admit(third, Audio::from(3000.0)).is_ok());
    drop((held, theirs));
    assert_eq!(load.held_seconds(), 0.0);
    assert!(load.state().accounts.is_empty());
}

#[test]
fn each_tenant_has_a_line_of_its_own() {
    let load = load(1e6);
    teach(&load);
    let (busy, other, now) = (TenantId(1), TenantId(2), Instant::now());
    let _held: Vec<AudioPermit> = std::iter::from_fn(|| load.admit(busy, Audio::from(30.0)).ok()).collect();
    for caller in 0..500 {
        assert!(load.enter(busy, caller, now).is_err());
    }
    assert!(load.enter(other, 1, now).is_ok());
}

#[test]
fn to_ask_again_before_the_time_changes_nothing() {
    let load = load(1e6);
    teach(&load);
    let now = Instant::now();
    let _held: Vec<AudioPermit> = std::iter::from_fn(|| load.admit(TENANT, Audio::from(30.0)).ok()).collect();
    let ask =
        |caller, seconds| told(load.enter(TENANT, caller, now + Duration::from_secs(seconds))).as_secs();
    let first = ask(1, 0);
    let second = ask(2, 0);
    assert!(second > first, "a place behind the first");
    for _ in 0..100 {
        assert_eq!(ask(1, 0), first);
    }
    assert_eq!(ask(1, 2), first - 2);
    assert_eq!(ask(2, 0), second);
}

#[test]
fn a_client_that_returns_in_time_brings_its_audio_in_even_if_the_engine_is_behind_the_forecast() {
    let load = started(&Config { max_wait_seconds: 2.0, ..Config::unbounded() });
    teach(&load);
    let (now, file) = (Instant::now(), Audio::from(30.0));
    let _held: Vec<AudioPermit> = std::iter::from_fn(|| load.admit(TENANT, file).ok()).collect();
    let wait = told(load.enter(TENANT, 1, now));
    // By then the engine has done nothing.
    let mut permit = load.enter(TENANT, 1, now + wait).expect("it was told to come now");
    drop(permit.take_reservation());
    assert!(load.admit(TENANT, file).is_err());
    assert!(load.admit_request(&permit, file).is_ok());
}

#[test]
fn a_tenant_that_comes_again_and_again_is_counted_on() {
    let load = load(1e6);
    teach(&load);
    let (busy, other) = (TenantId(1), TenantId(2));
    let fill = || std::iter::from_fn(|| load.admit(busy, Audio::from(30.0)).ok()).collect::<Vec<_>>();
    assert_eq!(fill().len(), 37);
    // The other one's work is done in turn with this one's, and never waits long.
    for _ in 0..60 {
        for tenant in [busy, other] {
            let work = load.admit(tenant, Audio::from(30.0)).expect("room");
            load.busy(1.0);
            work.done(f64::INFINITY);
        }
    }
    let half = fill().len();
    assert!((17..=20).contains(&half), "{half}");
}

#[test]
fn a_tenants_requests_leave_room_for_others() {
    let load = started(&Config { max_requests: 10, ..Config::default() });
    let tenants = Tenants::default();
    tenants.set(2);
    load.share_between(tenants);
    let now = Instant::now();
    let enter = |tenant: u64, caller: u64| load.enter(TenantId(tenant), caller, now);
    let permits: Vec<RequestPermit> = (0..10).map_while(|caller| enter(1, caller).ok()).collect();
    assert_eq!(permits.len(), 8);
    assert!(matches!(enter(1, 99), Err(Error::OverShare { .. })));
    assert!(enter(2, 1).is_ok());
}

#[test]
fn decoding_is_work_that_is_waited_for() {
    let load = load(1e6);
    teach(&load);
    let processors = load.state().readers;
    let bomb = Audio { seconds: 1.0, source_samples: 2e9 * processors };
    let first = load.admit(TENANT, bomb).expect("idle");
    assert!(load.snapshot().wait_seconds.is_some_and(|wait| wait > 38.0));
    assert!(load.admit(TENANT, Audio::from(1.0)).is_err());
    // It went faster than was expected of it.
    first.decoded(1.0, 2e9, Duration::from_secs(2));
    assert!(load.admit(TENANT, Audio::from(1.0)).is_ok());
    let second = load.admit(TENANT, bomb).expect("4 s of one processor");
    drop((first, second));
    assert_eq!(load.state().held, Work::default());
}

#[test]
fn audio_that_turns_out_longer_than_it_said_has_to_find_room() {
    let load = load(100.0);
    let liar = load.admit(TENANT, Audio::from(1.0)).expect("idle");
    assert!(liar.grow(500.0).is_ok(), "it is alone");
    assert_eq!(load.held_seconds(), 500.0);
    liar.decoded(50.0, 1e6, Duration::from_millis(20));
    let second = load.admit(TENANT, Audio::from(10.0)).expect("room");
    assert!(second.grow(40.0).is_ok());
    assert!(second.grow(60.0).is_err());
    assert_eq!(load.held_seconds(), 90.0);
}

#[test]
fn a_first_piece_may_turn_out_as_long_as_it_might_have_said() {
    let load = load(1e6);
    teach(&load);
    let _other = load.admit(TenantId(2), Audio::from(30.0)).expect("idle");
    let liar = load.admit(TENANT, Audio::from(30.0)).expect("the first of its tenant");
    // A minute and a half of work, of which a second piece would have 37.5 s.
    assert!(liar.grow(3000.0).is_ok());
    assert!(load.admit(TENANT, Audio::from(30.0)).is_err());
}

#[test]
fn streams_without_audio_do_not_tell_what_requests_bring() {
    let load = load(1e6);
    for _ in 0..100 {
        drop(load.admit(TENANT, Audio::from(20.0)).expect("idle"));
    }
    let usual = load.state().usual;
    for _ in 0..100 {
        drop(load.admit(TENANT, Audio::from(0.0)).expect("nothing"));
    }
    assert_eq!(load.state().usual, usual);
}

proptest! {
    #[test]
    fn what_is_let_in_and_out_adds_up(
        steps in prop::collection::vec((0u8..6, 0.0f64..60.0), 1..200)
    ) {
        let load = load(600.0);
        let now = Instant::now();
        let (mut permits, mut admissions) = (Vec::new(), Vec::new());
        for (number, &(what, amount)) in steps.iter().enumerate() {
            let time = now + Duration::from_secs_f64(number as f64);
            match what {
                0 => permits.extend(load.enter(TENANT, number as u64, time)),
                1 => admissions.extend(load.admit(TENANT, amount.into())),
                2 => if let Some(permit) = permits.last_mut() { drop(permit.take_reservation()) },
                3 => if let Some(admission) = admissions.last() { AudioPermit::done(admission, amount) },
                4 => if let Some(admission) = admissions.first() { admission.cut([amount].into_iter()) },
                _ => { load.busy(amount); permits.pop(); admissions.pop(); }
            }
            let held = load.snapshot();
            prop_assert_eq!(held.requests, permits.len());
            prop_assert!(held.audio_seconds >= 0.0 && held.audio_seconds <= 600.0 + 60.0 * steps.len() as f64);
        }
        permits.clear();
        admissions.clear();
        let held = load.snapshot();
        prop_assert_eq!((held.requests, held.audio_seconds), (0, 0.0));
        prop_assert_eq!(load.state().held, Work::default());
    }
}
