//! Test and trial: what to do about objects that come too late (Sentinel, section IV-D, Case 3).
//!
//! When an interval begins and some of what was fetched for it is still under way, its kernels can wait for it or work on
//! slow memory. Neither is always better, so one iteration waits, the next leaves those objects in slow memory, and the
//! faster way is kept. One interval is tried at a time, the one with the most bytes under way first. Which
//! objects an interval leaves is settled when its trial begins, so an iteration decides nothing by the clock.

use std::collections::{BTreeMap, BTreeSet};

use tiercel_core::{Bytes, Nanos};

/// Intervals that are tried at most; the paper met fewer than ten in any network.
pub const MOST: usize = 10;

/// Objects that were still under way when an interval began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Their units in the schedule.
    pub units: BTreeSet<usize>,
    /// Their size.
    pub bytes: Bytes,
}

/// One interval under trial, in the iteration that leaves its late objects in slow memory.
#[derive(Clone, Copy, Debug)]
struct Open {
    interval: usize,
    /// The time of the iteration that waited.
    waited: Nanos,
}

/// The trials of one program.
#[derive(Clone, Debug)]
pub struct Trials {
    open: Option<Open>,
    tried: BTreeSet<usize>,
    left: BTreeMap<usize, BTreeSet<usize>>,
    /// Iterations to let pass: one that comes after another way of doing things begins with what that one left behind.
    rest: u32,
    settled: bool,
    steps: u32,
}

impl Default for Trials {
    fn default() -> Trials {
        Trials {
            open: None,
            tried: BTreeSet::new(),
            left: BTreeMap::new(),
            rest: 1,
            settled: false,
            steps: 0,
        }
    }
}

impl Trials {
    /// Whether a unit stays in slow memory when this interval needs it.
    pub fn leaves(&self, interval: usize, unit: usize) -> bool {
        self.left.get(&interval).is_some_and(|units| units.contains(&unit))
    }

    /// An iteration has ended: how long it took, and what was late for which interval.
    pub fn ended(&mut self, time: Nanos, late: &BTreeMap<usize, Late>) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        if let Some(Open { interval, waited }) = self.open.take() {
            self.steps += 1;
            self.rest = 1;
            self.tried.insert(interval);
            if time >= waited {
                self.left.remove(&interval);
            }
            return;
        }
        let undecided = late.iter().filter(|(interval, _)| !self.tried.contains(interval));
        let worst = undecided.max_by_key(|(interval, late)| (late.bytes, std::cmp::Reverse(**interval)));
        let worst = worst.filter(|_| self.tried.len() < MOST);
        self.settled = worst.is_none();
        if let Some((interval, late)) = worst {
            // This iteration has waited; the next one leaves what was late where it is.
            self.steps += 1;
            self.left.insert(*interval, late.units.clone());
            self.open = Some(Open { interval: *interval, waited: time });
        }
    }

    /// Whether there is nothing left to try.
    pub fn settled(&self) -> bool {
        self.settled
    }

    /// How many iterations trials have taken.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// How many intervals leave objects in slow memory.
    pub fn leaving(&self) -> usize {
        self.left.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(intervals: &[(usize, u64)]) -> BTreeMap<usize, Late> {
        let entry = |(interval, bytes): &(usize, u64)| {
            (*interval, Late { units: [*interval + 100].into(), bytes: Bytes(*bytes) })
        };
        intervals.iter().map(entry).collect()
    }

    #[test]
    fn two_iterations_decide_on_an_interval() {
        for (left, kept) in [(90, true), (100, false), (110, false)] {
            let mut trials = Trials::default();
            trials.ended(Nanos(500), &late(&[(3, 10)]));
            assert!(!trials.settled() && !trials.leaves(3, 103), "the first iteration tells nothing");
            trials.ended(Nanos(100), &late(&[(3, 10), (5, 20)]));
            assert!(trials.leaves(5, 105) && !trials.leaves(5, 103) && !trials.leaves(3, 103));
            trials.ended(Nanos(left), &late(&[]));
            assert!(!trials.settled() && trials.leaves(5, 105) == kept);
            trials.ended(Nanos(700), &late(&[(8, 10)]));
            assert!(!trials.settled() && !trials.leaves(8, 108), "one iteration after a trial tells nothing");
            trials.ended(Nanos(100), &late(&[(5, 3)]));
            assert_eq!((trials.leaves(5, 105), trials.settled(), trials.steps()), (kept, true, 2));
        }
    }

    #[test]
    fn trials_end() {
        let mut trials = Trials::default();
        let all: Vec<(usize, u64)> = (0..40).map(|interval| (interval, 1 + interval as u64)).collect();
        let mut iterations = 0;
        while !trials.settled() {
            trials.ended(Nanos(100), &late(&all));
            iterations += 1;
            assert!(iterations < 100);
        }
        assert_eq!((trials.steps(), trials.leaving()), (2 * MOST as u32, 0));
    }
}
