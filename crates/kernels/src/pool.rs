//! Threads that share one kernel's work, with a split that is fixed by the number of threads alone.
//!
//! Workers live as long as the pool and sleep between kernels; a call wakes them, takes part in the work and returns
//! when all of it is done. Nothing is allocated by a call. Which thread does which part never depends on time, and the
//! kernels are written so that a result does not depend on the split at all.
//!
//! A scheduler that wakes a thread likes to put it beside the one that woke it: after a sleep both would share a core
//! for a whole kernel, at half the speed. So workers are kept off the core of their caller, wherever that is.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};

use super::shares::{Rows, Split};
use tiercel_run::cores::Cores;

const SPINS: u32 = 4000;

/// Elements below which waking another thread costs more than it gains.
const SMALL: usize = 8 << 10;

type Task<'a> = &'a (dyn Fn(usize) + Sync);

struct Shared {
    /// The task of the current call: the address of a `Task` on the caller's stack.
    task: AtomicPtr<()>,
    /// Counts calls; a change wakes the workers.
    epoch: AtomicU32,
    /// Workers that have not finished the current call.
    pending: AtomicUsize,
    failed: AtomicBool,
    stop: AtomicBool,
}

/// A fixed number of threads for kernels; the calling thread is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// The cores for all threads, where there are enough for one each.
    cores: Option<Cores>,
    /// The core that workers are kept off.
    callers: Option<u32>,
}

impl Pool {
    /// A pool of `threads` threads, at least one, of which all but the calling one are started. Where the system starts no more,
    /// there are fewer.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            task: AtomicPtr::new(std::ptr::null_mut()),
            epoch: AtomicU32::new(0),
            pending: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let start = |index: usize| {
            let (shared, caller) = (Arc::clone(&shared), std::thread::current());
            let name = format!("kernels-{index}");
            let worker = std::thread::Builder::new().name(name).spawn(move || serve(&shared, index, caller));
            worker.ok()
        };
        let workers: Vec<JoinHandle<()>> = (1..threads.max(1)).map_while(start).collect();
        let threads = workers.len() + 1;
        let cores = Cores::allowed().filter(|cores| threads > 1 && cores.count() >= threads);
        Pool { shared, workers, cores, callers: None }
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` once for every number below [`Pool::threads`], each on a thread of its own, and returns when all
    /// calls have. A pool is used by the thread that made it, or by one after the other.
    ///
    /// # Panics
    /// If a call panics.
    pub fn run(&mut self, task: Task<'_>) {
        if self.workers.is_empty() {
            return task(0);
        }
        self.make_room();
        let shared = &*self.shared;
        let mut task: Task<'_> = task;
        shared.pending.store(self.workers.len(), Ordering::Relaxed);
        shared.task.store((&raw mut task).cast(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::Release);
        self.workers.iter().for_each(|worker| worker.thread().unpark());
        let mine = catch_unwind(AssertUnwindSafe(|| task(0)));
        let mut spins = 0;
        while shared.pending.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                // Workers unpark the thread that made the pool; another one looks again every so often.
                std::thread::park_timeout(std::time::Duration::from_micros(200));
            }
        }
        let failed = shared.failed.swap(false, Ordering::Relaxed);
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        assert!(!failed, "a kernel panicked on another thread");
    }

    /// Keeps the workers off the core of this thread, where that is another than at the last call.
    fn make_room(&mut self) {
        let Some(cores) = self.cores else { return };
        let here = Cores::here().filter(|core| cores.holds(*core));
        if here != self.callers {
            let theirs = here.map_or(cores, |core| cores.without(core));
            if !self.workers.iter().all(|worker| theirs.keep_thread(worker)) {
                self.cores = None; // a system that refuses is not asked again
            }
            self.callers = here;
        }
    }

    /// Calls `task` on every thread with its number and its part of what is shared.
    pub fn each<S: Split>(&mut self, shares: S, task: impl Fn(usize, S::Part) + Sync) {
        let threads = self.threads();
        // SAFETY: every thread is called once, with its own number.
        self.run(&|index| task(index, unsafe { shares.part(threads, index) }));
    }

    /// The same, unless so few elements are touched that one thread does it all.
    pub fn each_of<S: Split>(&mut self, elements: usize, shares: S, task: impl Fn(usize, S::Part) + Sync) {
        if self.threads() > 1 && elements >= SMALL {
            return self.each(shares, task);
        }
        // SAFETY: the only part.
        task(0, unsafe { shares.part(1, 0) });
    }

    /// Shares out the rows of `out`, each `row` elements long: `task` gets the number of its first row and the rows.
    pub fn rows<T: Send>(&mut self, out: &mut [T], row: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        self.sums(row, out, row, task);
    }

    /// The same where a row costs other than its length: sums over much else.
    pub fn sums<T: Send>(
        &mut self,
        cost: usize,
        out: &mut [T],
        row: usize,
        task: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let units = out.len() / row.max(1);
        let out = Rows::new(&mut out[..units * row], row, units);
        self.each_of(units.saturating_mul(cost), out, |_, (start, out)| {
            if !out.is_empty() {
                task(start, out);
            }
        });
    }

    /// Shares out rows of two slices at once, in step.
    pub fn rows2<T: Send, U: Send>(
        &mut self,
        (a, row_a): (&mut [T], usize),
        (b, row_b): (&mut [U], usize),
        task: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let cost = row_a.max(row_b);
        self.rows3(cost, (a, row_a), (b, row_b), (&mut [0u8; 0], 0), |start, a, b, _| task(start, a, b));
    }

    /// Shares out rows of three slices at once, in step; a unit of work touches about `cost` elements.
    pub fn rows3<T: Send, U: Send, V: Send>(
        &mut self,
        cost: usize,
        (a, row_a): (&mut [T], usize),
        (b, row_b): (&mut [U], usize),
        (c, row_c): (&mut [V], usize),
        task: impl Fn(usize, &mut [T], &mut [U], &mut [V]) + Sync,
    ) {
        let units = a.len() / row_a.max(1);
        let all = (Rows::new(a, row_a, units), Rows::new(b, row_b, units), Rows::new(c, row_c, units));
        self.each_of(units.saturating_mul(cost), all, |_, ((start, a), (_, b), (_, c))| {
            if !a.is_empty() {
                task(start, a, b, c);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches what its tasks panic with.
            let _ = worker.join();
        }
    }
}

/// What a worker does until the pool is dropped.
fn serve(shared: &Shared, index: usize, caller: Thread) {
    let mut seen = 0;
    loop {
        let mut spins = 0;
        let epoch = loop {
            let epoch = shared.epoch.load(Ordering::Acquire);
            if epoch != seen {
                break epoch;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
        };
        seen = epoch;
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let task = shared.task.load(Ordering::Relaxed).cast::<Task<'_>>();
        // SAFETY: the caller keeps the task alive until `pending` is zero, which needs this thread.
        let task: Task<'_> = unsafe { *task };
        if catch_unwind(AssertUnwindSafe(|| task(index))).is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        if shared.pending.fetch_sub(1, Ordering::Release) == 1 {
            caller.unpark();
        }
    }
}

/// The part of `units` that falls to thread `index` of `threads`.
pub fn part(units: usize, threads: usize, index: usize) -> Range<usize> {
    units * index / threads..units * (index + 1) / threads
}
