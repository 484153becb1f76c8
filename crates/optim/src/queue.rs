//! Updates in the background: work that is handed over, done in an order that may change as more comes.
//!
//! One thread takes what is first in order of what has come, and does it with its pool. Whoever hands work over goes on; what
//! has ended is told in the order in which it did. So a pass over memory follows on the last one without a program in between
//! that has other things to do, such as launching kernels.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiercel_kernels::pool::Pool;

/// What is to be done with the pool.
pub type Work = Box<dyn FnOnce(&mut Pool) + Send>;

/// Work that has ended: its name, and whether it did without a panic.
pub type Ended = (u64, bool);

#[derive(Default)]
struct State {
    /// By place in the order, and then by when it came; what is not told when it ends has no name.
    waiting: BTreeMap<(u64, u64), (Option<u64>, Work)>,
    came: u64,
    busy: bool,
    /// How long work with a name took.
    taken: Duration,
    ended: VecDeque<Ended>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, name: Option<u64>, order: u64, work: Work) {
        let mut state = self.state();
        let came = state.came;
        state.came += 1;
        state.waiting.insert((order, came), (name, work));
        drop(state);
        self.changed.notify_all();
    }
}

/// A thread with a pool.
pub struct Queue {
    shared: Arc<Shared>,
    threads: usize,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    /// A queue whose work is done by so many threads.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn new(threads: usize) -> io::Result<Queue> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        // A pool wakes the thread that made it first.
        let run = move || serve(&theirs, &mut Pool::new(threads));
        let thread = Some(std::thread::Builder::new().name("updates".into()).spawn(run)?);
        Ok(Queue { shared, threads: threads.max(1), thread })
    }

    /// How many threads work.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Hands work over, under a name by which its end is told. Lesser orders come first among what waits.
    pub fn begin(&self, name: u64, order: u64, work: Work) {
        self.shared.begin(Some(name), order, work);
    }

    /// How long work in the background took since this was last asked.
    pub fn taken(&self) -> Duration {
        std::mem::take(&mut self.shared.state().taken)
    }

    /// Has work done before all that waits, and returns what comes of it; nothing where it panicked.
    pub fn now<T: Send + 'static>(&self, work: impl FnOnce(&mut Pool) -> T + Send + 'static) -> Option<T> {
        let (say, hear) = mpsc::channel();
        let work = move |pool: &mut Pool| {
            // Nobody listens any more only where this call was given up.
            let _ = say.send(work(pool));
        };
        self.shared.begin(None, 0, Box::new(work));
        hear.recv().ok()
    }

    /// Waits for the next work to end; nothing where none is left.
    pub fn ended(&self) -> Option<Ended> {
        let mut state = self.shared.state();
        loop {
            if let Some(ended) = state.ended.pop_front() {
                return Some(ended);
            }
            if !state.busy && state.waiting.values().all(|(name, _)| name.is_none()) {
                return None;
            }
            state = self.shared.wait(state);
        }
    }
}

impl Drop for Queue {
    /// What has not begun is not done.
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread catches what its work panics with.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared, pool: &mut Pool) {
    let mut state = shared.state();
    while !state.stop {
        let Some((_, (name, work))) = state.waiting.pop_first() else {
            state = shared.wait(state);
            continue;
        };
        state.busy = name.is_some();
        drop(state);
        let began = Instant::now();
        let fine = catch_unwind(AssertUnwindSafe(|| work(pool))).is_ok();
        state = shared.state();
        if state.busy {
            state.taken += began.elapsed();
        }
        state.busy = false;
        state.ended.extend(name.map(|name| (name, fine)));
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_done_in_order_and_told_as_it_ends() {
        let queue = Queue::new(2).expect("threads");
        let (begin, may) = mpsc::channel::<()>();
        queue.begin(7, 0, Box::new(move |_| may.recv().expect("told to go on")));
        for (name, order) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            queue.begin(name, order, Box::new(|_| ()));
        }
        begin.send(()).expect("it waits");
        let ended: Vec<Ended> = std::iter::from_fn(|| queue.ended()).collect();
        assert_eq!(ended, [(7, true), (2, true), (4, true), (3, true), (1, true)]);
    }

    #[test]
    fn a_panic_is_told_and_the_next_work_is_done() {
        let queue = Queue::new(1).expect("threads");
        queue.begin(1, 0, Box::new(|_| panic!("on purpose")));
        queue.begin(2, 1, Box::new(|pool| assert_eq!(pool.threads(), 1)));
        assert_eq!((queue.ended(), queue.ended(), queue.ended()), (Some((1, false)), Some((2, true)), None));
        assert_eq!(queue.now(|pool| pool.threads()), Some(1));
        assert_eq!(queue.now(|_| -> u8 { panic!("on purpose") }), None);
    }

    #[test]
    fn a_queue_that_goes_leaves_the_rest_undone() {
        let queue = Queue::new(1).expect("threads");
        let (said, heard) = mpsc::channel();
        for name in 0..3 {
            let said = said.clone();
            queue.begin(name, name, Box::new(move |_| said.send(name).expect("somebody listens")));
        }
        drop(queue);
        drop(said);
        let done: Vec<u64> = heard.iter().collect();
        assert!(done.iter().copied().eq(0..done.len() as u64));
    }
}
