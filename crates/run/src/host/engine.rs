//! The threads that move bytes, and the thread that waits for them.
//!
//! Every lane has threads of its own, started with its first copy. Whoever waits for a copy does not merely
//! sleep: while its lane has room for one more thread, the waiting thread takes chunks too, so that a lone copy
//! that is waited for at once never pays for waking another thread. When there is nothing to take it sleeps;
//! cores are for kernels.
//!
//! Waking a thread costs the one who wakes it: 12 µs were measured, on a virtual machine with two cores, in which
//! 300 KB could have been copied. So a small copy wakes nobody at once. Most often it is
//! waited for by the next call, which moves it; any other call wakes the threads first ([`Engine::nudge`]).

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use tiercel_core::{Bytes, CopyError, CopyOrder, Nanos, Span, Ticket};

use super::file::Buffer;
use super::queue::{Chunk, Queue};
use crate::cores;

/// What actually moves bytes.
pub(crate) trait Mover: Send + Sync + 'static {
    /// Moves one chunk; `spare` is memory of the thread's own.
    fn carry(&self, chunk: &Chunk, spare: &mut Buffer) -> Result<(), CopyError>;

    /// The time since the start of the run.
    fn now(&self) -> Nanos;
}

struct State {
    queue: Queue,
    /// Set once, when the engine is dropped.
    closing: bool,
    /// Set when a thread died of a bug in the bookkeeping: nothing can be relied upon any more.
    broken: bool,
}

struct Shared<M> {
    mover: M,
    state: Mutex<State>,
    /// Where the threads of each lane sleep.
    work: Vec<Condvar>,
    /// Where the waiting thread sleeps.
    ended: Condvar,
}

/// Runs copies in the background.
pub(crate) struct Engine<M: Mover> {
    shared: Arc<Shared<M>>,
    workers: Vec<JoinHandle<()>>,
    /// Whether some lane has no thread of its own.
    short: bool,
    /// Whether threads may have to be woken that a small copy has left asleep.
    owed: AtomicBool,
    spare: Buffer,
}

/// How often a thread tries for the lock before it sleeps.
const SPINS: u32 = 300;

/// How often, and for how many turns each, a thread looks again before it sleeps while others move the last chunks
/// of what it waits for: some 20 µs in all, about what being woken would cost the one who wakes it.
const LINGER: (u32, u32) = (20, 50);

/// How long a copy that keeps cores busy may have been ready before a second thread is woken for its lane.
///
/// Whoever starts copies often waits for them next, and then is the second thread. Woken too early, a thread of the
/// lane takes that place but shares a core with the first, while the core of the waiting thread falls idle.
const PATIENCE: Nanos = Nanos(100_000);

/// From this size on, a copy wakes a thread at once: the waking is a few percent of the time that it takes.
const PROMPT: Bytes = Bytes::mib(8);

impl<M: Mover> Engine<M> {
    /// An engine with lanes of so many threads each, which need a core each or mostly sleep; none runs yet.
    pub(crate) fn new(mover: M, lanes: &[(u32, bool)]) -> Engine<M> {
        let work = lanes.iter().map(|_| Condvar::new()).collect();
        let queue = Queue::new(lanes);
        let state = Mutex::new(State { queue, closing: false, broken: false });
        let shared = Arc::new(Shared { mover, state, work, ended: Condvar::new() });
        Engine {
            shared,
            workers: Vec::new(),
            short: false,
            owed: AtomicBool::new(false),
            spare: Buffer::default(),
        }
    }

    /// No more than so many bytes of this lane are in flight from now on ([`Queue::limit`]).
    pub(crate) fn limit(&mut self, lane: usize, window: u64) {
        self.shared.lock().queue.limit(lane, window);
    }

    /// So many threads of this lane work at once from now on ([`Queue::allow`]).
    pub(crate) fn allow(&self, lane: usize, threads: u32) {
        self.shared.lock().queue.allow(lane, threads);
    }

    /// What moves the bytes.
    pub(crate) fn mover(&self) -> &M {
        &self.shared.mover
    }

    /// Starts a copy in chunks of `chunk` bytes on a lane.
    pub(crate) fn start(&mut self, order: &CopyOrder<'_>, lane: usize, chunk: u64) -> Ticket {
        self.start_cut(order, lane, (chunk, false))
    }

    /// The same, with one chunk after the other if so said.
    pub(crate) fn start_cut(&mut self, order: &CopyOrder<'_>, lane: usize, cut: (u64, bool)) -> Ticket {
        self.nudge();
        let now = self.shared.mover.now();
        let mut state = self.shared.lock();
        let ticket = state.queue.add(order, lane, cut, now);
        if state.queue.lane(lane).staff.is_none() {
            let threads = state.queue.lane(lane).threads;
            drop(state);
            let staff = self.staff(lane, threads);
            state = self.shared.lock();
            state.queue.staff(lane, staff);
        }
        if order.bytes < PROMPT {
            *self.owed.get_mut() = true;
        } else {
            self.shared.spread(state);
        }
        ticket
    }

    /// Wakes the threads for whatever small copy has left them asleep.
    pub(crate) fn nudge(&self) {
        if self.owed.load(Ordering::Relaxed) && self.owed.swap(false, Ordering::Relaxed) {
            self.shared.spread(self.shared.lock());
        }
    }

    /// Starts the threads of a lane and tells how many there are. Fewer than asked for will do; where the system
    /// gives none, the thread that asks about a copy moves it.
    fn staff(&mut self, lane: usize, threads: u32) -> u32 {
        for started in 0..threads {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(format!("copy lane {lane}"));
            let work = move || {
                cores::serve_promptly();
                shared.work(lane);
            };
            match thread.spawn(work) {
                Ok(worker) => self.workers.push(worker),
                Err(_) => {
                    self.short |= started == 0;
                    return started;
                }
            }
        }
        threads
    }

    /// Whether a copy has ended.
    pub(crate) fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        if self.short {
            return self.wait(ticket).map(|()| true);
        }
        self.nudge();
        let state = self.shared.lock();
        if state.broken {
            return Err(broken());
        }
        state.queue.outcome(ticket).map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Returns when a copy has ended, and takes part in it meanwhile.
    pub(crate) fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        *self.owed.get_mut() = false;
        let shared = &*self.shared;
        let mut lingering = LINGER.0;
        let mut state = shared.lock();
        loop {
            if state.broken {
                return Err(broken());
            }
            if let Some(outcome) = state.queue.outcome(ticket) {
                shared.spread(state);
                return outcome;
            }
            let lane = state.queue.bottleneck(ticket);
            let chunk = lane.and_then(|lane| state.queue.take(lane));
            let mut calls = Calls::of(&mut state);
            let Some(chunk) = chunk else {
                let last = state.queue.last_chunks(ticket).is_some_and(|lane| state.queue.lane(lane).patient);
                if calls.none() && last && lingering > 0 {
                    lingering -= 1;
                    drop(state);
                    (0..LINGER.1).for_each(|_| std::hint::spin_loop());
                    state = shared.lock();
                } else if calls.none() {
                    state.queue.await_end(ticket);
                    state = shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                } else {
                    drop(state);
                    shared.make(&calls);
                    state = shared.lock();
                }
                continue;
            };
            calls.add(&mut state, chunk.lane, true);
            drop(state);
            shared.make(&calls);
            let result = shared.carry(&chunk, &mut self.spare);
            let now = shared.mover.now();
            state = shared.lock();
            state.queue.finish(&chunk, result, now);
            if state.queue.bottleneck(ticket) != Some(chunk.lane) {
                // This thread leaves a place at the lane's work; one of the lane's own may take it.
                state.queue.stir(chunk.lane);
            }
        }
    }

    /// Returns when every copy that was started has ended, well or not.
    pub(crate) fn settle(&mut self) {
        let known = self.shared.lock().queue.known();
        for ticket in known {
            // Whoever started it hears how it ended when they ask.
            let _ = self.wait(ticket);
        }
    }

    /// Gives up what a copy has not moved yet.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        let now = self.shared.mover.now();
        let mut state = self.shared.lock();
        state.queue.cancel(ticket, now);
        self.shared.spread(state);
    }

    /// When the bytes of a copy that has ended moved.
    pub(crate) fn span(&self, ticket: Ticket) -> Option<Span> {
        self.shared.lock().queue.span(ticket)
    }

    /// Drops what is known of a copy.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.nudge();
        self.shared.lock().queue.forget(ticket);
    }
}

impl<M: Mover> Drop for Engine<M> {
    /// Abandons what has not begun, and leaves no thread behind.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.iter().for_each(Condvar::notify_all);
        for worker in self.workers.drain(..) {
            // A worker that panicked has told its waiters; there is nobody left to tell here.
            let _ = worker.join();
        }
    }
}

impl<M: Mover> Shared<M> {
    /// The state; a thread that panicked while it held the lock has set `broken`.
    ///
    /// Nobody holds the lock for more than a fraction of a microsecond, so it pays to try for a while before
    /// going to sleep, which somebody would have to be woken from.
    fn lock(&self) -> MutexGuard<'_, State> {
        for _ in 0..SPINS {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(state)) => return state.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread of a lane does all its life.
    fn work(&self, lane: usize) {
        let _watch = Watch(self);
        let mut spare = Buffer::default();
        let mut state = self.lock();
        while !state.closing {
            let chunk = state.queue.take(lane);
            let mut calls = Calls::of(&mut state);
            let Some(chunk) = chunk else {
                if calls.none() {
                    state.queue.lane(lane).idle += 1;
                    state = self.work[lane].wait(state).unwrap_or_else(PoisonError::into_inner);
                    let at = state.queue.lane(lane);
                    at.idle -= 1;
                    at.called = false;
                } else {
                    drop(state);
                    self.make(&calls);
                    state = self.lock();
                }
                continue;
            };
            let urgent = self.mover.now() >= chunk.since + PATIENCE;
            calls.add(&mut state, lane, urgent);
            drop(state);
            self.make(&calls);
            let result = self.carry(&chunk, &mut spare);
            let now = self.mover.now();
            state = self.lock();
            state.queue.finish(&chunk, result, now);
        }
        self.spread(state);
    }

    /// Moves a chunk; a panic on the way is a copy that failed.
    fn carry(&self, chunk: &Chunk, spare: &mut Buffer) -> Result<(), CopyError> {
        panic::catch_unwind(AssertUnwindSafe(|| self.mover.carry(chunk, spare))).unwrap_or_else(|cause| {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(CopyError(format!("a copy thread panicked: {text}")))
        })
    }

    /// Lets go of the state and tells everybody concerned what the last changes brought.
    fn spread(&self, mut state: MutexGuard<'_, State>) {
        let calls = Calls::of(&mut state);
        drop(state);
        self.make(&calls);
    }

    /// Wakes those who are called. To be done without the lock, because waking takes long.
    fn make(&self, calls: &Calls) {
        for lane in calls.lanes.iter().flatten() {
            self.work[*lane].notify_one();
        }
        if calls.waiter {
            self.ended.notify_all();
        }
        if calls.full() {
            self.spread(self.lock());
        }
    }
}

/// Who is to be woken once the lock is free.
struct Calls {
    lanes: [Option<usize>; 4],
    waiter: bool,
}

impl Calls {
    /// Those whom the last changes concern; lanes that find no place here come next, when these have been made.
    fn of(state: &mut State) -> Calls {
        let mut calls = Calls { lanes: [None; 4], waiter: state.queue.take_news() };
        while !calls.full() {
            let Some(lane) = state.queue.take_stirred() else { break };
            calls.add(state, lane, false);
            // Where a lane has no thread of its own, its work is the waiting thread's.
            calls.waiter |= state.queue.lane(lane).staff == Some(0);
        }
        calls
    }

    /// Adds a thread of a lane, if there is work for one more. It calls the next in turn.
    fn add(&mut self, state: &mut State, lane: usize, urgent: bool) {
        match self.lanes.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = state.queue.call(lane, urgent).then_some(lane),
            None => state.queue.stir(lane),
        }
    }

    fn full(&self) -> bool {
        self.lanes.iter().all(Option::is_some)
    }

    fn none(&self) -> bool {
        !self.waiter && self.lanes.iter().all(Option::is_none)
    }
}

/// Tells the waiting thread when a worker dies of a bug, so that it does not wait forever.
struct Watch<'a, M>(&'a Shared<M>);

impl<M> Drop for Watch<'_, M> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
            self.0.ended.notify_all();
        }
    }
}

fn broken() -> CopyError {
    CopyError("the copy engine is broken: one of its threads died".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use tiercel_core::{Place, TierId};

    /// Does what the first byte's offset says.
    struct Actor(Mutex<mpsc::Receiver<()>>);

    const PANIC: u64 = 1 << 20;
    const FAIL: u64 = 2 << 20;
    const HOLD: u64 = 3 << 20;

    /// The thread that is told by this name dies where no panic is expected.
    const DOOMED: &str = "copy lane 7";

    impl Mover for Actor {
        fn carry(&self, chunk: &Chunk, _: &mut Buffer) -> Result<(), CopyError> {
            match chunk.from.offset.0 >> 20 << 20 {
                PANIC => panic!("as told"),
                FAIL => Err(CopyError("as told".to_string())),
                HOLD => self.0.lock().unwrap().recv().map_err(|e| CopyError(e.to_string())),
                _ => Ok(()),
            }
        }

        fn now(&self) -> Nanos {
            assert_ne!(thread::current().name(), Some(DOOMED));
            Nanos::ZERO
        }
    }

    fn order(what: u64, after: &[Ticket]) -> CopyOrder<'_> {
        let place = |offset| Place { tier: TierId(0), offset: Bytes(offset) };
        CopyOrder { from: place(what), to: place(0), bytes: Bytes(100), after }
    }

    fn engine(lanes: Vec<u32>) -> (Engine<Actor>, mpsc::Sender<()>) {
        let (sender, receiver) = mpsc::channel();
        let lanes: Vec<(u32, bool)> = lanes.into_iter().map(|threads| (threads, false)).collect();
        (Engine::new(Actor(Mutex::new(receiver)), &lanes), sender)
    }

    #[test]
    fn a_panic_is_a_failed_copy_whoever_meets_it() {
        let (mut engine, _sender) = engine(vec![1, 1]);
        let waited = engine.start(&order(PANIC, &[]), 0, 1000);
        let error = engine.wait(waited).unwrap_err();
        assert_eq!(error.0, "a copy thread panicked: as told");
        let polled = engine.start(&order(PANIC, &[]), 1, 1000);
        while engine.done(polled) == Ok(false) {
            thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(engine.done(polled), Err(error));
        let next = engine.start(&order(0, &[]), 0, 10);
        assert_eq!(engine.wait(next), Ok(()));
    }

    #[test]
    fn the_waiting_thread_moves_bytes_where_no_thread_could_be_had() {
        let (mut engine, sender) = engine(vec![1, 1]);
        engine.shared.lock().queue.lane(0).staff = Some(0);
        engine.short = true;
        let held = engine.start(&order(HOLD, &[]), 1, 1000);
        let late = engine.start(&order(0, &[held]), 0, 10);
        let later = engine.start(&order(0, &[late]), 0, 10);
        let release = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            sender.send(()).unwrap();
        });
        assert_eq!(engine.done(later), Ok(true));
        release.join().unwrap();
    }

    #[test]
    fn a_cancelled_copy_does_not_end_before_its_chunk_in_progress() {
        let (mut engine, sender) = engine(vec![1]);
        let held = engine.start(&order(HOLD, &[]), 0, 10);
        let next = engine.start(&order(0, &[held]), 0, 10);
        while engine.shared.lock().queue.lane(0).active == 0 {
            thread::yield_now();
        }
        engine.cancel(held);
        assert_eq!((engine.done(held), engine.done(next)), (Ok(false), Ok(false)));
        sender.send(()).unwrap();
        assert_eq!(engine.wait(next), Ok(()));
        assert_eq!(engine.done(held), Ok(true));
        drop(sender);
    }

    #[test]
    fn failure_reaches_those_who_wait_behind_it() {
        let (mut engine, _sender) = engine(vec![1, 2]);
        let failed = engine.start(&order(FAIL, &[]), 0, 10);
        let next = engine.start(&order(0, &[failed]), 1, 10);
        let error = engine.wait(next).unwrap_err().0;
        assert!(error.contains("(copy 1) failed: as told"), "{error}");
        assert_eq!(engine.wait(failed), Err(CopyError("as told".to_string())));
        engine.forget(failed);
        assert_eq!(engine.wait(failed), Ok(()));
    }

    #[test]
    fn a_thread_that_dies_leaves_nobody_waiting() {
        let (mut engine, _sender) = engine(vec![1; 8]);
        let doomed = engine.start(&order(0, &[]), 7, 1000);
        while engine.done(doomed) == Ok(false) {
            thread::yield_now();
        }
        assert_eq!(engine.done(doomed), Err(broken()));
        assert_eq!(engine.wait(doomed), Err(broken()));
    }

    #[test]
    fn dropping_abandons_what_has_not_begun_and_ends_every_thread() {
        let (mut engine, sender) = engine(vec![2]);
        let tickets: Vec<Ticket> = (0..100).map(|_| engine.start(&order(HOLD, &[]), 0, 10)).collect();
        assert_eq!(tickets.last(), Some(&Ticket(100)));
        let shared = Arc::downgrade(&engine.shared);
        drop(sender);
        drop(engine);
        assert!(shared.upgrade().is_none(), "a thread still holds the engine");
    }
}
