//! A simulated machine with a known speed, and callers that return at the promised time.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::tests::{TENANT, started};
use super::*;

/// A machine that does one window after another, in `fixed + slope · seconds`, and callers whose clocks are
/// this machine's. The simulation knows its times to the microsecond; the load has to estimate them.
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
    /// The time that it and the callers before it really needed.
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

    /// Uniform between 0 and 1.
    fn random(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as f64 / (1u64 << 31) as f64
    }

    fn cost(&self, seconds: f64) -> f64 {
        self.fixed + self.slope * seconds
    }

    /// Work in hand now, in seconds of the machine's time.
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
        let admission = self.load.admit_request(&permit, seconds.into()).map_err(overloaded)?;
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
                    - simulation.load.holdings.max_wait_seconds;
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
        // `Retry-After` is in whole seconds.
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
