//! Threads that share one kernel's work, with a split that is fixed by the number of threads alone.
//!
//! Workers live as long as the pool and sleep between kernels; a call wakes them, takes part in the work and returns
//! when all of it is done. Nothing is allocated by a call. Which thread does which part never depends on time, and the
//! kernels are written so that a result does not depend on the split at all.

use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};

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
}

impl Pool {
    /// A pool of `threads` threads, at least one, of which all but the calling one are started.
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
            worker.expect("the system starts a thread")
        };
        let workers = (1..threads.max(1)).map(start).collect();
        Pool { shared, workers }
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

    /// Shares out `units` pieces of work, each touching about `cost` elements: `task` gets the range of one thread.
    pub fn share(&mut self, units: usize, cost: usize, task: impl Fn(Range<usize>) + Sync) {
        let threads = self.threads();
        if threads == 1 || units < 2 || units.saturating_mul(cost) < SMALL {
            return task(0..units);
        }
        self.run(&|index| {
            let part = part(units, threads, index);
            if !part.is_empty() {
                task(part);
            }
        });
    }

    /// Shares out the rows of `out`, each `row` elements long: `task` gets the number of its first row and the rows.
    pub fn rows<T: Send>(&mut self, out: &mut [T], row: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let units = out.len() / row.max(1);
        let out = Disjoint::new(out);
        self.share(units, row, |part| {
            // SAFETY: parts of different threads do not overlap.
            task(part.start, unsafe { out.range(part.start * row..part.end * row) });
        });
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
        let out = Disjoint::new(out);
        self.share(units, cost, |part| {
            // SAFETY: parts of different threads do not overlap.
            task(part.start, unsafe { out.range(part.start * row..part.end * row) });
        });
    }

    /// Shares out rows of two slices at once, in step.
    pub fn rows2<T: Send, U: Send>(
        &mut self,
        (a, row_a): (&mut [T], usize),
        (b, row_b): (&mut [U], usize),
        task: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let units = a.len() / row_a.max(1);
        assert_eq!(b.len(), units * row_b, "rows in step");
        let (a, b) = (Disjoint::new(a), Disjoint::new(b));
        self.share(units, row_a.max(row_b), |part| {
            // SAFETY: parts of different threads do not overlap.
            let (a, b) = unsafe {
                (a.range(part.start * row_a..part.end * row_a), b.range(part.start * row_b..part.end * row_b))
            };
            task(part.start, a, b);
        });
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
        assert_eq!((b.len(), c.len()), (units * row_b, units * row_c), "rows in step");
        let (a, b, c) = (Disjoint::new(a), Disjoint::new(b), Disjoint::new(c));
        self.share(units, cost, |part| {
            let of = |row: usize| part.start * row..part.end * row;
            // SAFETY: parts of different threads do not overlap.
            let (a, b, c) = unsafe { (a.range(of(row_a)), b.range(of(row_b)), c.range(of(row_c))) };
            task(part.start, a, b, c);
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

/// A slice of which several threads write different parts.
#[derive(Clone, Copy)]
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    lives: PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out ranges only, and whoever takes one promises that no other thread has it.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// A slice to be taken apart.
    pub fn new(slice: &'a mut [T]) -> Disjoint<'a, T> {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), lives: PhantomData }
    }

    /// Asks for the memory of a range, or of what there is of it, that will be written soon.
    #[inline]
    pub fn expect(&self, range: Range<usize>) {
        super::simd::expect(
            self.start.wrapping_add(range.start),
            range.end.min(self.len).saturating_sub(range.start),
        );
    }

    /// A range of it.
    ///
    /// # Safety
    /// No other range that overlaps this one is in use at the same time.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn range(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a range within the slice");
        // SAFETY: the range is within the slice, and the caller promises that it is taken once.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
