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

/// One direction of a tier, or both where they are in each other's way: when it is free again.
#[derive(Debug, Default)]
struct Timeline(AtomicU64);

impl Timeline {
    /// Takes the next free slot of this length, no earlier than `since`, and tells its end.
    fn reserve(&self, time: Nanos, since: Nanos) -> Nanos {
        if time == Nanos::ZERO {
            return Nanos::ZERO;
        }
        let end = |free: u64| free.max(since.0).saturating_add(time.0);
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(end(free)));
        Nanos(before.map_or(0, end))
    }
}

/// The timelines of one tier.
#[derive(Debug)]
pub(crate) struct Throttle {
    speeds: [Bandwidth; 2],
    /// Reading, and writing.
    each: [Timeline; 2],
    /// A limit on the bytes of both directions, and when it is free again.
    combined: Option<(Bandwidth, Timeline)>,
    /// How much of both directions there is at once, and when there is again.
    duplex: Option<(f64, Timeline)>,
}

impl Throttle {
    /// Timelines at the tier's bandwidths.
    pub(crate) fn new(tier: &Tier) -> Throttle {
        Throttle {
            speeds: [tier.read, tier.write],
            each: Default::default(),
            combined: tier.combined.map(|both| (both, Timeline::default())),
            duplex: tier.duplex.map(|share| (share, Timeline::default())),
        }
    }

    /// Takes the next free slots for work that was there to do at `since`, and tells when it may end.
    pub(crate) fn reserve(&self, read: Bytes, write: Bytes, since: Nanos) -> Nanos {
        let [reading, writing] = [self.speeds[0].time(read), self.speeds[1].time(write)];
        let mut end = self.each[0].reserve(reading, since).max(self.each[1].reserve(writing, since));
        if let Some((speed, line)) = &self.combined {
            end = end.max(line.reserve(speed.time(read + write), since));
        }
        if let Some((share, line)) = &self.duplex {
            let turns = Nanos(((reading + writing).0 as f64 / share) as u64);
            end = end.max(line.reserve(turns, since));
        }
        end
    }

    /// How much goes through the slower direction in so much time.
    pub(crate) fn in_time(&self, time: Nanos) -> Bytes {
        let speed = self.speeds[0].0.min(self.speeds[1].0);
        Bytes((speed * time.seconds()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(combined: Option<Bandwidth>, duplex: Option<f64>) -> Tier {
        Tier {
            name: "slow".to_string(),
            capacity: Bytes::mib(1),
            read: Bandwidth::gb(1.0),
            write: Bandwidth::gb(0.5),
            combined,
            duplex,
            latency: Nanos::ZERO,
            computable: true,
            caches: false,
            rows: false,
            backing: tiercel_core::Backing::Throttled,
            price_per_gb: None,
        }
    }

    #[test]
    fn slots_follow_one_another_and_directions_do_not_meet() {
        let throttle = Throttle::new(&tier(None, None));
        let (none, some) = (Bytes::ZERO, Bytes(1000));
        assert_eq!(throttle.reserve(some, none, Nanos(10)), Nanos(1010));
        assert_eq!(throttle.reserve(some, none, Nanos(10)), Nanos(2010));
        assert_eq!(throttle.reserve(none, some, Nanos(10)), Nanos(2010));
        assert_eq!(throttle.reserve(some, some, Nanos(5000)), Nanos(7000));
        assert_eq!(throttle.reserve(none, none, Nanos(5000)), Nanos::ZERO);
    }

    #[test]
    fn a_combined_limit_binds_both_directions() {
        let throttle = Throttle::new(&tier(Some(Bandwidth::gb(0.5)), None));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(500), Nanos(0)), Nanos(3000));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(0), Nanos(0)), Nanos(5000));
    }

    #[test]
    fn directions_that_take_turns_wait_for_each_other() {
        let throttle = Throttle::new(&tier(None, Some(1.0)));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(500), Nanos(0)), Nanos(2000));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(0), Nanos(0)), Nanos(3000));
        let throttle = Throttle::new(&tier(None, Some(2.0)));
        assert_eq!(throttle.reserve(Bytes(1000), Bytes(500), Nanos(0)), Nanos(1000));
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
