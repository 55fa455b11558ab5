use super::cost::Work;
use super::*;
use proptest::prelude::*;
use std::collections::{BinaryHeap, HashMap, VecDeque};

const TENANT: TenantId = TenantId(1);

fn load(max_held_seconds: f64) -> Arc<Load> {
    started(&Config { max_held_seconds, ..Config::default() })
}

/// The load of one device with three slots.
fn started(config: &Config) -> Arc<Load> {
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
    long.done(450.0);
    let second = load.admit(TENANT, 10.0.into()).expect("50 s are held, 100 s allowed");
    drop(long);
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
fn what_turns_out_to_be_silence_is_not_held() {
    let load = load(100.0);
    let first = load.admit(TENANT, 90.0.into()).expect("idle");
    first.cut([20.0, 10.0].into_iter());
    assert_eq!(load.held_seconds(), 30.0);
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

/// A machine that does one window after another, in `fixed + slope · seconds`, and callers whose clocks are
/// this machine's. What it does is known here to the microsecond, which is what the load has to guess.
struct Simulation {
    load: Arc<Load>,
    start: Instant,
    now: f64,
    fixed: f64,
    slope: f64,
    queue: VecDeque<(AudioPermit, RequestPermit, f64)>,
    free_at: f64,
    busy: f64,
    random: u64,
}

/// The history of one caller.
#[derive(Clone, Copy, Default)]
struct Caller {
    asked_at: f64,
    seconds: f64,
    told: f64,
    /// How long those before it, and it, needed in truth.
    truth: f64,
    attempts: u32,
    let_in_at: Option<f64>,
}

impl Simulation {
    fn new(config: &Config, fixed: f64, slope: f64, seed: u64) -> Self {
        let (load, start) = (started(config), Instant::now());
        let random = seed.wrapping_mul(2) + 1;
        Self { load, start, now: 0.0, fixed, slope, queue: VecDeque::new(), free_at: 0.0, busy: 0.0, random }
    }

    /// Even between 0 and 1.
    fn random(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as f64 / (1u64 << 31) as f64
    }

    fn cost(&self, seconds: f64) -> f64 {
        self.fixed + self.slope * seconds
    }

    /// Work in hand at this moment, in seconds of the machine's.
    fn backlog(&self) -> f64 {
        let waiting: f64 = self.queue.iter().skip(1).map(|(.., seconds)| self.cost(*seconds)).sum();
        waiting + if self.queue.is_empty() { 0.0 } else { self.free_at - self.now }
    }

    /// Works until `time`.
    fn run(&mut self, time: f64) {
        while let Some((.., seconds)) = self.queue.front()
            && self.free_at <= time
        {
            let (seconds, busy) = (*seconds, self.cost(*seconds));
            self.busy += busy;
            self.load.busy(busy);
            self.load.learn(seconds, busy);
            if let Some((admission, ..)) = self.queue.pop_front() {
                admission.done(f64::INFINITY);
            }
            if let Some((.., next)) = self.queue.front() {
                self.free_at += self.cost(*next);
            }
        }
        self.now = time;
    }

    fn ask(&mut self, caller: u64, seconds: f64) -> Result<(), Duration> {
        let now = self.start + Duration::from_secs_f64(self.now);
        let overloaded = |error| match error {
            Error::Overloaded { retry_after } => retry_after,
            other => panic!("{other}"),
        };
        let mut permit = self.load.enter(TENANT, caller, now).map_err(overloaded)?;
        drop(permit.take_reservation());
        let admission = self.load.admit(TENANT, seconds.into()).map_err(overloaded)?;
        if self.queue.is_empty() {
            self.free_at = self.now + self.cost(seconds);
        }
        self.queue.push_back((admission, permit, seconds));
        Ok(())
    }
}

/// Offers `times` of what the machine can do for `duration` seconds; of refused callers, `share` return at the
/// promised time, as often as it takes, the others never. Returns the callers, and how much of the time the
/// machine was at work while the load lasted.
fn overload(simulation: &mut Simulation, times: f64, duration: f64, share: f64) -> (Vec<Caller>, f64) {
    const MEAN_SECONDS: f64 = 10.0;
    let rate = times / simulation.cost(MEAN_SECONDS);
    let mut callers: Vec<Caller> = Vec::new();
    // Earliest first; nanoseconds order exactly.
    let mut events = BinaryHeap::new();
    let at = |time: f64| std::cmp::Reverse((time * 1e9) as u64);
    for number in 0..(rate * duration) as usize {
        let asked_at = number as f64 / rate;
        let seconds = 2.0 + 16.0 * simulation.random();
        callers.push(Caller { asked_at, seconds, ..Caller::default() });
        events.push((at(asked_at), number));
    }
    // The callers that will return, and the work of each: the true line before a refused caller.
    let mut line: HashMap<usize, f64> = HashMap::new();
    let mut busy_until_end = None;
    while let Some((std::cmp::Reverse(time), number)) = events.pop() {
        let time = time as f64 / 1e9;
        if time > duration && busy_until_end.is_none() {
            simulation.run(duration);
            busy_until_end = Some(simulation.busy);
        }
        simulation.run(time);
        line.remove(&number);
        let seconds = callers[number].seconds;
        match simulation.ask(number as u64, seconds) {
            Ok(()) => callers[number].let_in_at = Some(time),
            Err(wait) => {
                let cost = simulation.cost(seconds);
                let truth = simulation.backlog() + line.values().sum::<f64>() + cost
                    - simulation.load.max_wait_seconds;
                let caller = &mut callers[number];
                if caller.attempts == 0 {
                    (caller.told, caller.truth) = (wait.as_secs_f64(), truth);
                }
                caller.attempts += 1;
                if simulation.random() < share {
                    line.insert(number, cost);
                    events.push((at(time + wait.as_secs_f64() + 0.05 * simulation.random()), number));
                }
            }
        }
    }
    (callers, busy_until_end.unwrap_or(simulation.busy) / duration)
}

fn part(count: usize, of: usize) -> f64 {
    count as f64 / of.max(1) as f64
}

/// The first seconds teach the load how fast the machine is.
const LEARNING: f64 = 10.0;

#[test]
fn at_four_times_the_capacity_it_works_all_the_time_and_what_it_tells_is_true() {
    let config = Config { max_wait_seconds: 10.0, ..Config::default() };
    for (fixed, slope, seed) in [(0.1, 0.002, 1), (0.01, 0.02, 2), (0.5, 0.05, 3)] {
        let mut simulation = Simulation::new(&config, fixed, slope, seed);
        let (callers, goodput) = overload(&mut simulation, 4.0, 45.0, 1.0);
        assert!(goodput >= 0.95, "goodput {goodput:.3} at {fixed} + {slope} s");
        assert!(callers.iter().all(|caller| caller.let_in_at.is_some()), "a caller was never let in");
        let refused: Vec<&Caller> = callers
            .iter()
            .filter(|caller| caller.attempts > 0 && caller.asked_at >= LEARNING && caller.told < 120.0)
            .collect();
        assert!(refused.len() > 50, "{} refused", refused.len());
        // A whole second is the finest that can be told.
        let true_to = |told: f64, truth: f64| (told - truth).abs() <= (0.3 * truth).max(1.5);
        let foreseen = refused.iter().filter(|caller| true_to(caller.told, caller.truth)).count();
        assert!(
            part(foreseen, refused.len()) >= 0.95,
            "{foreseen} of {} at {fixed} + {slope}",
            refused.len()
        );
        let waited = |caller: &Caller| caller.let_in_at.map_or(f64::INFINITY, |at| at - caller.asked_at);
        let kept = refused.iter().filter(|caller| true_to(caller.told, waited(caller))).count();
        assert!(part(kept, refused.len()) >= 0.95, "{kept} of {} let in when told", refused.len());
        // No more callers are promised a time than can be served by then.
        let times = refused.iter().map(|caller| caller.asked_at + caller.told);
        let (first, last) = times.fold((f64::MAX, 0.0f64), |(first, last), at| (first.min(at), last.max(at)));
        let in_a_second = refused.len() as f64 / (last - first);
        let served = 1.0 / simulation.cost(10.0);
        assert!(in_a_second <= 1.3 * served, "{in_a_second} told each second, {served} served");
    }
}

#[test]
fn those_who_do_not_come_back_leave_no_gap_and_those_who_do_are_let_in() {
    let config = Config { max_wait_seconds: 5.0, ..Config::default() };
    let mut simulation = Simulation::new(&config, 0.1, 0.005, 7);
    let (callers, goodput) = overload(&mut simulation, 4.0, 120.0, 0.05);
    assert!(goodput >= 0.95, "goodput {goodput:.3}");
    let returned: Vec<&Caller> =
        callers.iter().filter(|caller| caller.attempts > 0 && caller.let_in_at.is_some()).collect();
    assert!(returned.len() > 20, "{} came back", returned.len());
    let at_once = returned.iter().filter(|caller| caller.attempts == 1).count();
    assert!(part(at_once, returned.len()) >= 0.95, "{at_once} of {}", returned.len());
}

#[test]
fn a_short_wait_leaves_no_gap_either() {
    let config = Config { max_wait_seconds: 0.6, ..Config::default() };
    let mut simulation = Simulation::new(&config, 0.1, 0.005, 11);
    let (callers, goodput) = overload(&mut simulation, 4.0, 60.0, 0.05);
    assert!(goodput >= 0.95, "goodput {goodput:.3}");
    assert!(callers.iter().any(|caller| caller.let_in_at.is_none()));
}

#[test]
fn below_its_capacity_it_refuses_nobody() {
    let mut simulation = Simulation::new(&Config::default(), 0.2, 0.01, 11);
    let (callers, _) = overload(&mut simulation, 0.8, 120.0, 1.0);
    assert!(callers.iter().all(|caller| caller.attempts == 0));
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
