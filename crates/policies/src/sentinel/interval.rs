//! How long an interval is: Equations 1 and 2 of Sentinel, section IV-D.
//!
//! ```text
//! (1)  Tensor(n) < S − RS(n)                          for every interval
//! (2)  least (S − RS(n)) / BW − T(n)                  on average
//! ```
//!
//! n is the number of layers in an interval, S the fast memory, RS what is reserved for short-lived objects, Tensor the
//! long-lived objects that an interval uses, T the time of its kernels in the profiled iteration,
//! BW the bandwidth into fast memory. Layers differ, so (1) is asked of each interval and (2) of their mean. Where no
//! length satisfies (1), because one layer alone needs more than there is, the one that exceeds it least is taken.

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_workload::intervals::{Interval, cut};

use crate::recording::Recording;

/// What the equations say of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Visits of layers in an interval.
    pub length: u32,
    /// The most that an interval has to find in fast memory: Tensor.
    pub tensor: Bytes,
    /// The most that an interval reserves for short-lived objects: RS.
    pub reserved: Bytes,
    /// By how much intervals exceed the space constraint, all together; zero where it holds.
    pub excess: Bytes,
    /// What is to be as little as possible, in seconds.
    pub goal: f64,
}

/// The bandwidth at which objects come into fast memory.
pub fn bandwidth(machine: &Machine) -> f64 {
    let (fast, slow) = (TierId(0), TierId(1.min(machine.slowest().0)));
    let own = machine.tier(slow).read.0.min(machine.tier(fast).write.0);
    machine.link(slow, fast).map_or(own, |link| link.speed().0)
}

/// Cuts an iteration into intervals of so many visits of layers.
pub fn intervals(recording: &Recording, length: u32) -> Vec<Interval> {
    let visit = |step: u32| recording.moments[step as usize].visit;
    cut(recording.moments.len() as u32, |step| visit(step) / length.max(1))
}

/// The terms of the equations for one length; `reach` is what short-lived objects need, kernel by kernel.
pub fn terms(recording: &Recording, reach: &[Bytes], length: u32, fast: Bytes, bandwidth: f64) -> Terms {
    let intervals = intervals(recording, length);
    let of = |step: u32| (recording.moments[step as usize].visit / length.max(1)) as usize;
    let mut tensor = vec![Bytes::ZERO; intervals.len()];
    for item in recording.items.iter().filter(|item| !item.is_short()) {
        let mut last = None;
        for interval in item.uses.iter().map(|step| of(*step)) {
            if last != Some(interval) {
                tensor[interval] += item.size;
                last = Some(interval);
            }
        }
    }
    let reserved = |interval: &Interval| {
        let steps = &reach[interval.start.0 as usize..interval.end.0 as usize];
        steps.iter().copied().max().unwrap_or_default()
    };
    let time = |interval: &Interval| {
        let moments = &recording.moments[interval.start.0 as usize..interval.end.0 as usize];
        moments.iter().map(|moment| moment.time.seconds()).sum::<f64>()
    };
    let mut terms =
        Terms { length, tensor: Bytes::ZERO, reserved: Bytes::ZERO, excess: Bytes::ZERO, goal: 0.0 };
    for (interval, tensor) in intervals.iter().zip(&tensor) {
        let reserved = reserved(interval);
        let space = fast.saturating_sub(reserved);
        // Strictly less; what needs no room has it.
        if *tensor > Bytes::ZERO && *tensor >= space {
            terms.excess += *tensor - space + Bytes(1);
        }
        terms.tensor = terms.tensor.max(*tensor);
        terms.reserved = terms.reserved.max(reserved);
        terms.goal += (space.0 as f64 / bandwidth - time(interval)) / intervals.len() as f64;
    }
    terms
}

/// The most that is alive at once, short-lived objects as they are reserved for.
fn peak(recording: &Recording, reach: &[Bytes]) -> Bytes {
    let steps = recording.moments.len();
    let (mut births, mut deaths) = (vec![0; steps], vec![0; steps + 1]);
    for item in recording.items.iter().filter(|item| !item.is_short()) {
        births[item.birth.unwrap_or(0) as usize] += item.size.0;
        deaths[item.retired.map_or(steps, |last| last as usize)] += item.size.0;
    }
    let mut live = 0;
    let alive = |step: usize| {
        live += births[step];
        let now = Bytes(live) + reach[step];
        live -= deaths[step];
        now
    };
    (0..steps).map(alive).max().unwrap_or_default()
}

/// The length that the equations choose; all in one where everything fits.
pub fn choose(recording: &Recording, reach: &[Bytes], fast: Bytes, bandwidth: f64) -> Terms {
    if peak(recording, reach) <= fast {
        return terms(recording, reach, recording.visits(), fast, bandwidth);
    }
    let mut best: Option<Terms> = None;
    for length in 1..=recording.visits().max(1) {
        let found = terms(recording, reach, length, fast, bandwidth);
        let better = |best: &Terms| (found.excess, found.goal) < (best.excess, best.goal);
        if best.as_ref().is_none_or(better) {
            best = Some(found);
        }
        // Longer intervals need ever more.
        if found.tensor.0 / 2 > fast.0 {
            break;
        }
    }
    best.expect("there is a first length")
}
