//! The default solver: prices for a lower bound, construction and local search for a plan, until the two meet.

use std::time::{Duration, Instant};

use crate::dual::Dual;
use crate::paths::{Path, States};
use crate::primal::{Primal, construct, improve};
use crate::problem::Problem;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The gap between plan and bound that is good enough.
    pub gap: f64,
    /// The time after which the best plan so far is taken.
    pub time: Duration,
    /// The rounds of search after which it is taken too: unlike a time, the same on every machine.
    pub rounds: u32,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { gap: 0.01, time: Duration::from_secs(10), rounds: 10_000, seed: 0 }
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

impl Solution {
    /// How much less the best of all plans could cost, as a share of this one.
    pub fn gap(&self) -> f64 {
        ((self.cost - self.bound) / self.cost).max(0.0)
    }
}

/// Solves a problem to the gap asked for, or as far as the time goes; `None` where no plan was found at all.
pub fn solve(problem: &Problem, effort: &Effort) -> Option<Solution> {
    let started = Instant::now();
    let states = States::new(problem);
    let mut random = fastrand::Rng::with_seed(effort.seed);
    let relaxed = problem.lanes.is_some().then(|| relax(problem, started, effort));
    let priced = relaxed.as_ref().map_or(problem, |(priced, _)| priced);
    let (priced_states, floor) = (States::new(priced), relaxed.as_ref().map_or(0.0, |(_, floor)| *floor));
    let mut dual = Dual::new(priced);
    dual.bound = dual.bound.max(floor);
    let mut best: Option<Primal> = construct(problem, &states, &dual);
    let over = || started.elapsed() >= effort.time;
    let mut round = 0;
    loop {
        let upper = best.as_ref().map_or(f64::INFINITY, |plan| plan.cost);
        let near = |bound: f64, cost: f64| (cost - bound) / cost <= effort.gap;
        dual.ascend(priced, &priced_states, upper, 40, |bound| over() || near(bound, upper));
        let plan = construct(problem, &states, &dual);
        if plan.as_ref().is_some_and(|plan| plan.cost < upper) {
            best = plan;
        }
        if let Some(plan) = &mut best {
            let mut tries = 0;
            let bound = dual.bound;
            improve(problem, &states, plan, &mut random, |plan| {
                tries += 1;
                tries < 2000 && !near(bound, plan.cost) && (tries % 64 != 0 || !over())
            });
        }
        round += 1;
        let met = best.as_ref().is_some_and(|plan| near(dual.bound, plan.cost));
        if met || over() || round >= effort.rounds {
            return best.map(|plan| Solution {
                paths: plan.paths.into_iter().flatten().collect(),
                cost: plan.cost,
                bound: dual.bound,
                time: started.elapsed(),
                met,
            });
        }
    }
}

/// Weights of the kernels' time, of copies towards slower tiers, and of copies towards faster ones.
const WEIGHTS: [(f64, f64, f64); 7] = [
    (0.96, 0.02, 0.02),
    (0.9, 0.1, 0.0),
    (0.75, 0.25, 0.0),
    (0.5, 0.5, 0.0),
    (0.9, 0.0, 0.1),
    (0.6, 0.25, 0.15),
    (0.5, 0.0, 0.5),
];

/// A problem without overlap whose bound holds for one with it, and the best bound known.
///
/// An iteration takes no less than its kernels and no less than the copies on any one link, hence no less than any mean
/// of these. With kernel times and copy times weighted so that the weights add up to one, the synchronous problem is the
/// least such mean.
fn relax(problem: &Problem, started: Instant, effort: &Effort) -> (Problem, f64) {
    let mut best: Option<(Problem, f64)> = None;
    let mut floor: f64 = problem.calls.iter().map(|call| call.times[call.fastest()]).sum();
    for (kernels, out, back) in WEIGHTS {
        let priced = problem.weighted(kernels, out, back);
        let states = States::new(&priced);
        let mut dual = Dual::new(&priced);
        let upper = construct(&priced, &states, &dual).map_or(f64::INFINITY, |plan| plan.cost);
        let over = || started.elapsed() * 5 > effort.time;
        dual.ascend(&priced, &states, upper, 40, |_| over());
        floor = floor.max(dual.bound);
        if best.as_ref().is_none_or(|(_, bound)| dual.bound > *bound) {
            best = Some((priced, dual.bound));
        }
        if over() {
            break;
        }
    }
    (best.expect("there are weights").0, floor)
}
