//! Slows plain memory down to a tier's bandwidths, to stand in for a memory that this machine does not have.
//!
//! Each direction of a tier has one timeline. Whoever moves bytes reserves the next free slot on it, as long as
//! the bytes take at the tier's bandwidth, and does not finish before the slot's end. Slots follow one another
//! from the moment the work was there to do, not from the moment a thread got round to it, so that late wake-ups
//! do not add up; copies and kernels reserve on the same timelines, so they slow each other down as they would on
//! the real thing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tiercel_core::{Bandwidth, Bytes, Nanos, Tier};

/// A sleep may last this much longer than asked; the rest of the time is spun away.
const SLACK: Duration = Duration::from_micros(60);

/// The time since the start of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }

    /// Returns when it is `until`: sleeps for most of the time, and spins at the end to be on time.
    pub(crate) fn sleep(&self, until: Nanos) {
        loop {
            let left = Duration::from_nanos(until.saturating_sub(self.now()).0);
            if left.is_zero() {
                return;
            }
            match left.checked_sub(SLACK) {
                Some(most) if !most.is_zero() => thread::sleep(most),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

/// One direction of a tier: when it is free again.
#[derive(Debug)]
struct Timeline {
    speed: Bandwidth,
    free: AtomicU64,
}

impl Timeline {
    fn new(speed: Bandwidth) -> Timeline {
        Timeline { speed, free: AtomicU64::new(0) }
    }

    /// Takes the next free slot for so many bytes, no earlier than `since`, and tells its end.
    fn reserve(&self, bytes: Bytes, since: Nanos) -> Nanos {
        if bytes == Bytes::ZERO {
            return Nanos::ZERO;
        }
        let end = |free: u64| free.max(since.0).saturating_add(self.speed.time(bytes).0);
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free)));
        Nanos(before.map_or(0, end))
    }
}

/// The timelines of one tier.
#[derive(Debug)]
pub(crate) struct Throttle {
    read: Timeline,
    write: Timeline,
    combined: Option<Timeline>,
}

impl Throttle {
    /// Timelines at the tier's bandwidths.
    pub(crate) fn new(tier: &Tier) -> Throttle {
        Throttle {
            read: Timeline::new(tier.read),
            write: Timeline::new(tier.write),
            combined: tier.combined.map(Timeline::new),
        }
    }

    /// Takes the next free slots for work that was there to do at `since`, and tells when it may end.
    pub(crate) fn reserve(&self, read: Bytes, write: Bytes, since: Nanos) -> Nanos {
        let end = self.read.reserve(read, since).max(self.write.reserve(write, since));
        let both = self.combined.as_ref().map(|line| line.reserve(read + write, since));
        end.max(both.unwrap_or_default())
    }

    /// How much goes through the slower direction in so much time.
    pub(crate) fn in_time(&self, time: Nanos) -> Bytes {
        let speed = self.read.speed.0.min(self.write.speed.0);
        Bytes((speed * time.seconds()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(combined: Option<Bandwidth>) -> Tier {
        Tier {
            name: "slow".to_string(),
            capacity: Bytes::mib(1),
            read: Bandwidth::gb(1.0),
            write: Bandwidth::gb(0.5),
            combined,
            latency: Nanos::ZERO,
            computable: true,
            caches: false,
            backing: tiercel_core::Backing::Throttled,
            price_per_gb: None,
        }
    }

    #[test]
    fn slots_follow_one_another_and_directions_do_not_meet() {
        let throttle = Throttle::new(&tier(None));
        let (none, some) = (Bytes::ZERO, Bytes(1000));
        assert_eq!(throttle.reserve(some, none, Nanos(10)), Nanos(1010));
        assert_eq!(throttle.reserve(some, none, Nanos(10)), Nanos(2010));
        assert_eq!(throttle.reserve(none, some, Nanos(10)), Nanos(2010));
        assert_eq!(throttle.reserve(some, some, Nanos(5000)), Nanos(7000));
        assert_eq!(throttle.reserve(none, none, Nanos(5000)), Nanos::ZERO);
    }

    #[test]
    fn a_combined_limit_binds_both_directions() {
        let throttle = Throttle::new(&tier(Some(Bandwidth::gb(0.5))));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(500), Nanos(0)), Nanos(3000));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(0), Nanos(0)), Nanos(5000));
    }

    #[test]
    fn sleeping_never_ends_early() {
        let clock = Clock::start();
        for micros in [0, 1, 30, 100, 900] {
            let until = clock.now() + Nanos(micros * 1000);
            clock.sleep(until);
            assert!(clock.now() >= until);
        }
    }
}
