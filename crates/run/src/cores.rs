//! Which cores a thread may use, and how soon it gets one.
//!
//! The pool of kernels keeps its workers off the core of the thread that calls them ([`Cores::without`]), and probes
//! keep to the cores of one NUMA node. Threads that copy wait for a device most of the time and need a core for
//! moments, but at once ([`serve_promptly`]).

use std::mem;
use std::os::unix::thread::{JoinHandleExt, RawPthread};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time that all threads of this program have had a core for, since it began.
pub fn time_used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to write.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    if told == 0 { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

/// A set of cores.
#[derive(Clone, Copy)]
pub struct Cores(libc::cpu_set_t);

impl Cores {
    /// No core.
    pub fn none() -> Cores {
        // SAFETY: an empty set is all zeros.
        Cores(unsafe { mem::zeroed() })
    }

    /// The cores that this thread may use, where the system tells.
    pub fn allowed() -> Option<Cores> {
        let mut set = Cores::none();
        // SAFETY: the set is ours to write, and its size is what we say.
        let found = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set.0), &mut set.0) };
        (found == 0).then_some(set)
    }

    /// The core that this thread runs on, where the system tells.
    pub fn here() -> Option<u32> {
        // SAFETY: it takes nothing.
        u32::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// The set with this core too; a number that no set can hold changes nothing.
    pub fn with(mut self, core: u32) -> Cores {
        if core < libc::CPU_SETSIZE as u32 {
            // SAFETY: the core's number is below the size of the set.
            unsafe { libc::CPU_SET(core as usize, &mut self.0) };
        }
        self
    }

    /// The set without this core.
    pub fn without(mut self, core: u32) -> Cores {
        if core < libc::CPU_SETSIZE as u32 {
            // SAFETY: the core's number is below the size of the set.
            unsafe { libc::CPU_CLR(core as usize, &mut self.0) };
        }
        self
    }

    /// Whether the core is in the set.
    pub fn holds(&self, core: u32) -> bool {
        // SAFETY: the core's number is below the size of the set.
        core < libc::CPU_SETSIZE as u32 && unsafe { libc::CPU_ISSET(core as usize, &self.0) }
    }

    /// How many cores there are in the set.
    pub fn count(&self) -> usize {
        // SAFETY: it only reads the set.
        usize::try_from(unsafe { libc::CPU_COUNT(&self.0) }).unwrap_or(0)
    }

    /// Lets this thread, and those that it starts from now on, use these cores alone; says whether the system agreed.
    pub fn keep_here(&self) -> bool {
        // SAFETY: it takes nothing, and a thread knows itself.
        self.keep(unsafe { libc::pthread_self() })
    }

    /// Lets another thread use these cores alone; says whether the system agreed.
    pub fn keep_thread<T>(&self, thread: &JoinHandle<T>) -> bool {
        self.keep(thread.as_pthread_t())
    }

    fn keep(&self, thread: RawPthread) -> bool {
        // SAFETY: the thread is this one, or one that was not joined yet; the set is readable and of the size we say.
        unsafe { libc::pthread_setaffinity_np(thread, mem::size_of_val(&self.0), &self.0) == 0 }
    }
}

/// From now on this thread runs for shorter stretches at a time, and in return sooner: a core that computes is given to it
/// when it wakes, and not only when the clock next ticks. Takes nothing from others over time, and needs no privilege;
/// systems older than Linux 6.12 do not know of it.
pub fn serve_promptly() {
    // SAFETY: the attributes are plain numbers.
    let mut now: libc::sched_attr = unsafe { mem::zeroed() };
    let size = mem::size_of_val(&now);
    // SAFETY: the attributes are ours to write, and of the size we say.
    let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
    if told == 0 && now.sched_policy == libc::SCHED_OTHER as u32 {
        now.sched_runtime = STRETCH;
        // SAFETY: the attributes are readable, and say their size themselves. A refusal changes nothing.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const now, 0) };
    }
}

/// The shortest stretch that Linux knows, in nanoseconds.
const STRETCH: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let some = Cores::none().with(3).with(5).with(u32::MAX);
        assert_eq!(some.count(), 2);
        assert!(some.holds(3) && some.holds(5) && !some.holds(4) && !some.holds(u32::MAX));
        let one = some.without(3).without(4).without(u32::MAX);
        assert!(one.count() == 1 && one.holds(5));
    }

    #[test]
    fn this_thread_runs_on_a_core_that_it_may_use() {
        let (all, here) =
            (Cores::allowed().expect("the system tells"), Cores::here().expect("the system tells"));
        assert!(all.holds(here));
        let on_one = std::thread::spawn(move || {
            assert!(Cores::none().with(here).keep_here());
            Cores::allowed().map(|set| (set.count(), set.holds(here)))
        });
        assert_eq!(on_one.join().expect("no panic"), Some((1, true)));
    }
}
