//! The default solver: prices for a lower bound, construction and local search for a plan, until the two meet.

use std::time::{Duration, Instant};

use crate::asynchronous;
use crate::branch::Search;
use crate::dual::Dual;
use crate::paths::{Path, States, straighten};
use crate::primal::{Calendar, Primal, construct, improve};
use crate::problem::Problem;
use crate::scope::Scope;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The gap between plan and bound that is good enough.
    pub gap: f64,
    /// The time after which the best plan so far is taken.
    pub time: Duration,
    /// The rounds of search after which it is taken too, unless all 32 bits are set: unlike a time, the same on every
    /// machine.
    pub rounds: u32,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { gap: 0.01, time: Duration::from_secs(10), rounds: u32::MAX, seed: 0 }
    }
}

impl Effort {
    /// Whether rounds end the search, so that with time enough its result is the same on every machine.
    pub(crate) fn counts(&self) -> bool {
        self.rounds != u32::MAX
    }
}

/// A plan's cost, and a proof of how good it is.
#[derive(Clone, Debug)]
pub struct Solution {
    pub(crate) paths: Vec<Path>,
    /// What kernels and moves take together, in nanoseconds.
    pub cost: f64,
    /// No plan costs less than this.
    pub bound: f64,
    /// How long the search took.
    pub time: Duration,
    /// Whether it stopped because the gap was small enough.
    pub met: bool,
}

/// Why a solver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The plan is as near to the bound as was asked for.
    Gap,
    /// The time was over.
    Time,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stop::Gap => "gap",
            Stop::Time => "time",
        })
    }
}

impl Solution {
    /// A plan, and the bound that was proven for it.
    pub(crate) fn new(
        problem: &Problem,
        states: &States,
        plan: Primal,
        bound: f64,
        effort: &Effort,
        started: Instant,
    ) -> Solution {
        let (cost, bound) = (plan.cost, bound.min(plan.cost));
        let mut paths: Vec<Path> = plan.paths.into_iter().flatten().collect();
        for (item, path) in problem.items.iter().zip(&mut paths) {
            straighten(states, item, path);
        }
        Solution { paths, cost, bound, time: started.elapsed(), met: near(bound, cost, effort) }
    }

    /// Why the solver stopped.
    pub fn stop(&self) -> Stop {
        if self.met { Stop::Gap } else { Stop::Time }
    }

    /// How much less the best of all plans could cost, as a share of this one.
    pub fn gap(&self) -> f64 {
        ((self.cost - self.bound) / self.cost).max(0.0)
    }
}

/// Solves a problem to the gap asked for, or as far as the time goes; `None` where no plan was found at all.
pub fn solve(problem: &Problem, effort: &Effort) -> Option<Solution> {
    if problem.lanes.is_some() {
        return asynchronous::solve(problem, effort);
    }
    let started = Instant::now();
    let states = States::new(problem);
    let scope = Scope::root(problem, &states);
    let calendar = Calendar::new(problem);
    let mut random = fastrand::Rng::with_seed(effort.seed);
    let mut dual = Dual::new(problem);
    let mut best: Option<Primal> = construct(problem, &states, &dual);
    let over = || started.elapsed() >= effort.time;
    let near = |bound: f64, cost: f64| near(bound, cost, effort);
    let mut progress = Progress::default();
    loop {
        let upper = best.as_ref().map_or(f64::INFINITY, |plan| plan.cost);
        dual.ascend(problem, &states, &scope, upper, 40, |bound| over() || near(bound, upper));
        let plan = construct(problem, &states, &dual);
        if plan.as_ref().is_some_and(|plan| plan.cost < upper) {
            best = plan;
        }
        if let Some(plan) = &mut best {
            let mut tries = 0;
            let bound = dual.bound;
            improve(problem, &states, &calendar, plan, &mut random, |plan| {
                tries += 1;
                tries < 2000 && !near(bound, plan.cost) && (tries % 64 != 0 || !over())
            });
        }
        let met = best.as_ref().is_some_and(|plan| near(dual.bound, plan.cost));
        if met
            || over()
            || progress.rounds() >= effort.rounds
            || progress.stalls(dual.bound, best.as_ref().map(|plan| plan.cost))
        {
            break;
        }
    }
    let mut bound = dual.bound;
    let mut search = Search::new(problem, &states, &dual);
    while let Some(plan) = &mut best {
        // Splitting goes by the clock, which rounds are there to avoid.
        if near(bound, plan.cost) || over() || effort.counts() {
            break;
        }
        let cutoff = plan.cost * (1.0 - effort.gap);
        let asked = Instant::now();
        let found = search.advance(problem, &states, &mut dual, cutoff, &over);
        bound = bound.max(search.bound(cutoff));
        // As much time for the plan as for the bound.
        let spent = asked.elapsed();
        let asked = Instant::now();
        let mut polish = |plan: &mut Primal| {
            improve(problem, &states, &calendar, plan, &mut random, |plan| {
                !near(bound, plan.cost) && asked.elapsed() < spent && !over()
            });
        };
        match found {
            Some(mut found) => {
                polish(&mut found);
                if found.cost < plan.cost {
                    *plan = found;
                }
            }
            None => polish(plan),
        }
    }
    best.map(|plan| Solution::new(problem, &states, plan, bound, effort, started))
}

/// Whether a plan is as near to a bound as was asked for.
pub(crate) fn near(bound: f64, cost: f64, effort: &Effort) -> bool {
    // A bound of just what was sought must not fail by a rounding.
    cost - bound <= cost * (effort.gap + ROUNDING)
}

const ROUNDING: f64 = 1e-9;

/// Whether bound and plan still approach each other.
#[derive(Default)]
struct Progress {
    gaps: Vec<f64>,
}

impl Progress {
    /// Rounds that have been noted.
    fn rounds(&self) -> u32 {
        self.gaps.len() as u32
    }

    /// Notes where they are; says whether the last rounds brought next to nothing.
    fn stalls(&mut self, bound: f64, cost: Option<f64>) -> bool {
        let Some(cost) = cost else { return false };
        self.gaps.push((cost - bound) / cost);
        let rounds = self.gaps.len();
        rounds > PATIENCE && self.gaps[rounds - 1] > (1.0 - WORTH) * self.gaps[rounds - 1 - PATIENCE]
    }
}

/// Rounds that may bring next to nothing before all plans are split.
const PATIENCE: usize = 3;
/// The share of the gap that these rounds should have closed.
const WORTH: f64 = 0.1;
