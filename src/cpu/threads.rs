//! Fork-join for kernels that take only microseconds.
//!
//! Threads take pieces of the work as they become free, and the caller waits only for pieces that were
//! taken: a thread that the system has suspended for another program delays nothing. A barrier of all
//! threads, as in OpenMP, was tried first: on two cores shared with a compiler a decode step took
//! up to twenty times as long.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::{JoinHandle, Thread};

/// Pieces for each thread: enough to even out their speeds.
const PIECES: usize = 4;
/// Looks for the next job before a thread goes to sleep: some 50 µs, the time between jobs.
const SPINS: u32 = 2_000;

/// Threads of one owner; clones share them. They work for one caller of [`Threads::split`] at a time: others that
/// call it meanwhile work alone.
#[derive(Clone)]
pub struct Threads {
    count: usize,
    pool: Option<Arc<Pool>>,
    reports: Option<Report>,
}

/// Called after each piece of work, by the thread that did it.
type Report = Arc<dyn Fn() + Send + Sync>;

struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the caller whose job is running.
    owner: Mutex<()>,
}

#[derive(Default)]
struct Shared {
    /// Odd while a job is open; moves on with every opening and closing.
    epoch: AtomicUsize,
    /// Threads that may be reading `job`.
    inside: AtomicUsize,
    asleep: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    next: AtomicUsize,
    job: std::cell::UnsafeCell<Option<Job>>,
}

/// Borrowed from the caller of `split`, which does not return before the last look at it.
#[derive(Clone, Copy)]
struct Job {
    body: *const (dyn Fn(Range<usize>) + Sync),
    tasks: usize,
    piece: usize,
}

// SAFETY: `job` is written only while the epoch is even and `inside` is zero, by the one owner; it is
// read only by threads that have raised `inside` and then seen the epoch odd.
unsafe impl Sync for Shared {}
// SAFETY: the job's body is `Sync`, so other threads may call it.
unsafe impl Send for Shared {}

impl Threads {
    /// `count` threads in all, the caller's included.
    pub fn new(count: usize) -> Self {
        let count = count.max(1);
        if count == 1 {
            return Self { count, pool: None, reports: None };
        }
        let shared = Arc::new(Shared::default());
        let workers = (1..count)
            .filter_map(|index| {
                let shared = shared.clone();
                std::thread::Builder::new().name(format!("kernel-{index}")).spawn(move || shared.work()).ok()
            })
            .collect();
        let pool = Arc::new(Pool { shared, workers, owner: Mutex::new(()) });
        Self { count, pool: Some(pool), reports: None }
    }

    /// `report` is called after each piece of the work of these and their clones, by the thread that did it.
    #[must_use]
    pub fn reporting(self, report: impl Fn() + Send + Sync + 'static) -> Self {
        Self { reports: Some(Arc::new(report)), ..self }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs `body` on pieces that make up `0..tasks`; returns when all are done.
    pub fn split(&self, tasks: usize, body: impl Fn(Range<usize>) + Sync) {
        let body = |range: Range<usize>| {
            body(range);
            if let Some(report) = &self.reports {
                report();
            }
        };
        let pool = self.pool.as_ref().filter(|_| tasks > 1);
        let owned = pool.and_then(|pool| match pool.owner.try_lock() {
            Ok(owner) => Some((pool, owner)),
            // A job that panicked was closed all the same.
            Err(TryLockError::Poisoned(owner)) => Some((pool, owner.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        });
        let Some((pool, _owner)) = owned else { return body(0..tasks) };
        let piece = tasks.div_ceil(self.count * PIECES);
        pool.shared.run(&body, tasks, piece, pool.workers.iter().map(JoinHandle::thread));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Panics in a job are caught, and reported by `run`.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn run<'a>(
        &self,
        body: &(dyn Fn(Range<usize>) + Sync),
        tasks: usize,
        piece: usize,
        workers: impl Iterator<Item = &'a Thread>,
    ) {
        // SAFETY: only the lifetime changes; this function does not return before the last look.
        let body = unsafe {
            std::mem::transmute::<&(dyn Fn(Range<usize>) + Sync), &'static (dyn Fn(Range<usize>) + Sync)>(
                body,
            )
        };
        let job = Job { body, tasks, piece };
        // SAFETY: the epoch is even and no thread is inside: the last `run` waited for that.
        unsafe { *self.job.get() = Some(job) };
        self.next.store(0, SeqCst);
        // The flag may still be set by the job before.
        self.panicked.store(false, SeqCst);
        self.epoch.fetch_add(1, SeqCst);
        if self.asleep.load(SeqCst) > 0 {
            workers.for_each(Thread::unpark);
        }
        let closing = Closing(self);
        self.take_pieces(job);
        drop(closing);
        assert!(!self.panicked.load(SeqCst), "a kernel panicked; this is a bug");
    }

    fn take_pieces(&self, job: Job) {
        loop {
            let start = self.next.fetch_add(job.piece, SeqCst);
            if start >= job.tasks {
                return;
            }
            // SAFETY: `run` keeps the body alive while a thread is inside.
            let body = unsafe { &*job.body };
            body(start..(start + job.piece).min(job.tasks));
        }
    }

    /// The body of a worker's thread.
    fn work(&self) {
        let mut seen = 0;
        let mut spins = 0;
        while !self.stop.load(SeqCst) {
            let epoch = self.epoch.load(SeqCst);
            if epoch.is_multiple_of(2) || epoch == seen {
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                } else {
                    self.sleep(epoch);
                    spins = 0;
                }
                continue;
            }
            seen = epoch;
            spins = 0;
            let _inside = Inside::enter(self);
            if self.epoch.load(SeqCst) == epoch {
                // SAFETY: inside, with the epoch odd: the owner does not write before we leave.
                if let Some(job) = unsafe { *self.job.get() }
                    && catch_unwind(AssertUnwindSafe(|| self.take_pieces(job))).is_err()
                {
                    self.panicked.store(true, SeqCst);
                }
            }
        }
    }

    fn sleep(&self, epoch: usize) {
        self.asleep.fetch_add(1, SeqCst);
        // A job that is opened after this sees the sleeper and wakes it, so none is missed.
        if self.epoch.load(SeqCst) == epoch && !self.stop.load(SeqCst) {
            std::thread::park();
        }
        self.asleep.fetch_sub(1, SeqCst);
    }
}

/// Closes the open job, even if the caller's own piece panics: no thread may look at it afterwards.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.epoch.fetch_add(1, SeqCst);
        // A thread that raises `inside` after this sees the epoch even and leaves at once.
        let mut spins = 0;
        while self.0.inside.load(SeqCst) > 0 {
            pause(&mut spins);
        }
    }
}

struct Inside<'a>(&'a Shared);

impl<'a> Inside<'a> {
    fn enter(shared: &'a Shared) -> Self {
        shared.inside.fetch_add(1, SeqCst);
        Self(shared)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

/// A slice whose elements are divided between several threads.
pub struct Places<'a, T> {
    start: *mut T,
    length: usize,
    slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is through `range`, whose callers keep their ranges apart.
unsafe impl<T: Send> Sync for Places<'_, T> {}

impl<'a, T> Places<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), slice: std::marker::PhantomData }
    }

    /// # Safety
    /// No two ranges that are in use at once may overlap.
    ///
    /// # Panics
    /// If the range lies outside the slice.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: inside the slice, by the check; exclusive, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_run_once_whatever_the_number_of_threads() {
        for threads in 1..5 {
            for tasks in [0, 1, 2, 3, 7, 100] {
                let mut counts = vec![0; tasks];
                let shared = Places::new(&mut counts);
                Threads::new(threads).split(tasks, |range| {
                    // SAFETY: `split` hands out ranges that do not overlap.
                    unsafe { shared.range(range) }.iter_mut().for_each(|count| *count += 1);
                });
                assert_eq!(counts, vec![1; tasks], "{threads} threads, {tasks} tasks");
            }
        }
    }

    #[test]
    fn each_piece_is_reported() {
        for threads in 1..4 {
            let reports = Arc::new(AtomicUsize::new(0));
            let counter = reports.clone();
            let threads = Threads::new(threads).reporting(move || {
                counter.fetch_add(1, SeqCst);
            });
            threads.split(100, |_| {});
            let pieces = if threads.count() == 1 {
                1
            } else {
                100usize.div_ceil(100usize.div_ceil(threads.count() * PIECES))
            };
            assert_eq!(reports.load(SeqCst), pieces);
        }
    }

    #[test]
    fn a_panic_fails_its_job_and_not_the_next() {
        let threads = Threads::new(3);
        for _ in 0..5 {
            let job = || threads.split(100, |range| assert!(!range.contains(&50), "as the test says"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err());
            let total = AtomicUsize::new(0);
            threads.split(100, |range| {
                total.fetch_add(range.len(), SeqCst);
            });
            assert_eq!(total.load(SeqCst), 100);
        }
    }

    #[test]
    fn jobs_follow_each_other_without_loss() {
        let threads = Threads::new(3);
        let total = AtomicUsize::new(0);
        for round in 0..20_000 {
            threads.split(round % 17, |range| {
                total.fetch_add(range.len(), SeqCst);
            });
        }
        assert_eq!(total.load(SeqCst), (0..20_000).map(|round| round % 17).sum::<usize>());
    }
}
