//! What copies can do while kernels run: the time that each link has beside each kernel, and what using it costs.
//!
//! AutoTM lets a copy overlap one kernel (section 7). Here a link is busy with one copy after another, a copy may span
//! any number of kernels, and all links flow at once; where a copy and a kernel want the same tier, both slow down as
//! the simulator says ([`tiercel_sim::shares`]), and the kernel's delay is charged to the copy.

use tiercel_core::{Machine, Nanos, TierId};
use tiercel_sim as sim;
use tiercel_workload::Trace;

use crate::bound::paths::Flight;
use crate::model::problem::Problem;
use crate::search::headroom::Headroom;

/// The links over the iteration.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    tiers: usize,
    /// For each link and kernel, nanoseconds of undisturbed copying that still fit beside the kernel.
    free: Vec<Vec<f64>>,
    /// For each link and kernel, what a nanosecond of copying delays the kernel.
    drag: Vec<Vec<f64>>,
    /// For each link, the share of all cores that its copies keep busy.
    taken: Vec<f64>,
    /// What a nanosecond of copying costs beside that.
    toll: f64,
}

/// A copy that is looked for: what it moves, and what it needs.
pub(crate) struct Freight<'a> {
    pub(crate) lane: (u8, u8),
    /// Undisturbed, in nanoseconds.
    pub(crate) time: f64,
    pub(crate) bytes: f64,
    /// The bytes left at each step on the tier that is held only for the copy's sake; `None` where there is no limit.
    pub(crate) left: Option<&'a Headroom>,
}

impl Lanes {
    /// All links unused; kernels run with their operands where they are fastest.
    pub(crate) fn new(problem: &Problem, trace: &Trace, machine: &Machine) -> Lanes {
        let tiers = problem.tiers;
        let ids: Vec<TierId> = machine.tier_ids().collect();
        let pairs: Vec<(TierId, TierId)> =
            ids.iter().flat_map(|a| ids.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b).collect();
        let steps = problem.calls.len();
        let mut lanes = Lanes {
            tiers,
            free: vec![vec![0.0; steps]; tiers * tiers],
            drag: vec![vec![0.0; steps]; tiers * tiers],
            taken: vec![0.0; tiers * tiers],
            toll: 0.0,
        };
        for &(from, to) in &pairs {
            lanes.taken[from.index() * tiers + to.index()] = sim::cores_taken(machine, (from, to));
        }
        // While a kernel waits, copies over all links together take no more than that time.
        let all: f64 = lanes.taken.iter().sum();
        lanes.taken.iter_mut().for_each(|taken| *taken /= all.max(1.0));
        for (step, (kernel, call)) in trace.kernels.iter().zip(&problem.calls).enumerate() {
            let alone = call.times[call.fastest()];
            let places = vec![TierId(0); kernel.reads.len() + kernel.writes.len()];
            for &(from, to) in &pairs {
                let lane = from.index() * tiers + to.index();
                let shares = |copies: &[(TierId, TierId)]| {
                    sim::shares(machine, kernel, &places, Nanos(alone as u64), copies)
                };
                // Both directions at once leave the least; one alone tells what it costs.
                let crowd = shares(&[(from, to), (to, from)]);
                let single = shares(&[(from, to)]);
                lanes.free[lane][step] = alone * crowd[1] / crowd[0];
                lanes.drag[lane][step] = (1.0 - single[0]) / single[1];
            }
        }
        lanes
    }

    /// The links of an iteration that takes longer, evenly, so that more is copied beside each kernel.
    pub(crate) fn slowed(&self, times: f64) -> Lanes {
        let slow = |row: &Vec<f64>| row.iter().map(|free| free * times).collect();
        Lanes { free: self.free.iter().map(slow).collect(), ..self.clone() }
    }

    /// The links of an iteration in which each kernel waits for so long, and copies go on meanwhile.
    pub(crate) fn waiting(&self, waits: &[f64]) -> Lanes {
        let mut lanes = self.clone();
        for free in &mut lanes.free {
            // What comes for a kernel must have come by the end of the one before it.
            for (free, wait) in free.iter_mut().zip(&waits[1..]) {
                *free += wait;
            }
        }
        lanes
    }

    /// Sets what a nanosecond of copying costs, wherever it is.
    pub(crate) fn toll(&mut self, toll: f64) {
        self.toll = toll;
    }

    /// The share of all cores that a copy over this link keeps busy, undisturbed. Kernels want all cores, so over an iteration
    /// copies take at least so much of their own time from kernels, whenever they fly.
    pub(crate) fn taken(&self, from: usize, to: usize) -> f64 {
        self.taken[from * self.tiers + to]
    }

    /// For each link, what a nanosecond of copying takes from a kernel.
    pub(crate) fn drag(&self, step: usize) -> impl Iterator<Item = f64> + '_ {
        self.drag.iter().map(move |lane| lane[step])
    }

    fn price(&self, lane: usize, step: u32) -> f64 {
        self.drag[lane][step as usize] + self.toll
    }

    fn index(&self, lane: (u8, u8)) -> usize {
        usize::from(lane.0) * self.tiers + usize::from(lane.1)
    }

    /// A copy that starts at a boundary and must have ended by another: what it costs, and the boundary at which it
    /// has ended. What does not fit beside kernels is waited for.
    pub(crate) fn after(&self, freight: &Freight<'_>, from: u32, until: u32) -> (f64, u32) {
        self.run(freight, from, until, |_, _| {})
    }

    /// A copy that has ended at a boundary and starts as late as it can, but not before another: what it costs, and
    /// the boundary at which it starts.
    pub(crate) fn before(&self, freight: &Freight<'_>, until: u32, from: u32) -> (f64, u32) {
        self.run_back(freight, until, from, |_, _| {})
    }

    fn run(&self, f: &Freight<'_>, from: u32, until: u32, mut each: impl FnMut(u32, f64)) -> (f64, u32) {
        let lane = self.index(f.lane);
        let (mut need, mut cost, mut at) = (f.time, 0.0, from);
        while need > 0.0 && at < until && f.left.is_none_or(|left| left.at(at as usize) >= f.bytes) {
            let taken = need.min(self.free[lane][at as usize].max(0.0));
            if taken > 0.0 {
                each(at, taken);
            }
            cost += taken * self.price(lane, at);
            need -= taken;
            at += 1;
        }
        (cost + need, at)
    }

    fn run_back(&self, f: &Freight<'_>, until: u32, from: u32, mut each: impl FnMut(u32, f64)) -> (f64, u32) {
        let lane = self.index(f.lane);
        let (mut need, mut cost, mut at) = (f.time, 0.0, until);
        while need > 0.0 && at > from && f.left.is_none_or(|left| left.at(at as usize - 1) >= f.bytes) {
            at -= 1;
            let taken = need.min(self.free[lane][at as usize].max(0.0));
            if taken > 0.0 {
                each(at, taken);
            }
            cost += taken * self.price(lane, at);
            need -= taken;
        }
        (cost + need, at)
    }

    /// The copy of [`Lanes::after`], written down.
    pub(crate) fn flight_after(&self, freight: &Freight<'_>, from: u32, until: u32) -> Flight {
        let mut beside = Vec::new();
        let (_, done) = self.run(freight, from, until, |step, time| beside.push((step, time)));
        Flight { start: from, done, beside }
    }

    /// The copy of [`Lanes::before`], written down.
    pub(crate) fn flight_before(&self, freight: &Freight<'_>, until: u32, from: u32) -> Flight {
        let mut beside = Vec::new();
        let (_, start) = self.run_back(freight, until, from, |step, time| beside.push((step, time)));
        Flight { start, done: until, beside }
    }

    /// Takes the time of a copy off its link, or with a sign of one gives it back.
    pub(crate) fn book(&mut self, lane: (u8, u8), flight: &Flight, sign: f64) {
        let lane = self.index(lane);
        for (step, time) in &flight.beside {
            self.free[lane][*step as usize] += sign * time;
        }
    }
}
