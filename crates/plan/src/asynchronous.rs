//! The search for plans whose copies overlap kernels (AutoTM section 7, without its limit of one kernel).
//!
//! Construction and local search are those of the other formulations, on paths that know the links (`overlap.rs`). The
//! bound comes from a relaxation: an iteration takes no less than its kernels and no less than the copies on any one
//! link, hence no less than any mean of these. With kernel times and copy times weighted so that the weights add up to
//! one, the synchronous problem is the least such mean, and its bound holds here.

use std::time::Instant;

use crate::dual::Dual;
use crate::paths::States;
use crate::primal::{Calendar, Primal, construct, improve};
use crate::problem::Problem;
use crate::scope::Scope;
use crate::sequence::{play, sequence};
use crate::solve::{Effort, Solution, near};

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

/// Rounds that may bring next to nothing before the plan is taken as it is.
const PATIENCE: usize = 3;
/// The share of its cost that a plan should have lost in these rounds.
const WORTH: f64 = 5e-4;

/// Searches until the gap is met, the time is over, or the plan hardly improves any more.
pub(crate) fn solve(problem: &Problem, effort: &Effort) -> Option<Solution> {
    let started = Instant::now();
    let states = States::new(problem);
    let calendar = Calendar::new(problem);
    let mut random = fastrand::Rng::with_seed(effort.seed);
    let over = || started.elapsed() >= effort.time;
    let (duals, bound) = relax(problem, started, effort);
    let mut best: Option<Primal> = None;
    for dual in &duals {
        let plan = construct(problem, &states, dual);
        let better = |plan: &Primal| best.as_ref().is_none_or(|best| plan.cost < best.cost);
        if plan.as_ref().is_some_and(better) {
            best = plan;
        }
        if over() {
            break;
        }
    }
    let mut plan = best?;
    let mut paced = problem.clone();
    if !near(bound, plan.cost, effort)
        && !over()
        && let Some((slower, better)) = pace(problem, &states, &duals[0], &plan, &over)
    {
        (paced, plan) = (slower, better);
    }
    let problem = &paced;
    let mut costs = vec![plan.cost];
    while !near(bound, plan.cost, effort) && !over() && costs.len() as u32 <= effort.rounds {
        let mut tries = 0;
        improve(problem, &states, &calendar, &mut plan, &mut random, |plan| {
            tries += 1;
            tries < 2000 && !near(bound, plan.cost, effort) && (tries % 64 != 0 || !over())
        });
        costs.push(plan.cost);
        let rounds = costs.len();
        if rounds > PATIENCE && costs[rounds - 1 - PATIENCE] - plan.cost < WORTH * plan.cost {
            break;
        }
    }
    sequence(problem, &states, &mut plan);
    let cost = play(problem, &states, &plan).max(bound);
    let paths = plan.paths.into_iter().flatten().collect();
    Some(Solution { paths, cost, bound, time: started.elapsed(), met: near(bound, cost, effort) })
}

/// How much longer an iteration may take so that copies fit beside kernels.
const PACES: [f64; 7] = [1.04, 1.12, 1.3, 1.7, 2.3, 3.2, 4.5];

/// Where links are the bottleneck, kernels wait whatever the plan, and what is copied meanwhile costs nothing more. So
/// plans are made for slower iterations too; the best of them and its problem, if it is better than the plan at hand.
fn pace(
    problem: &Problem,
    states: &States,
    dual: &Dual,
    plan: &Primal,
    over: &dyn Fn() -> bool,
) -> Option<(Problem, Primal)> {
    let mut least = play(problem, states, plan);
    let mut best = None;
    let lanes = problem.lanes.as_ref()?;
    for times in PACES {
        let slower = Problem { lanes: Some(lanes.slowed(times)), ..problem.clone() };
        let Some(plan) = construct(&slower, states, dual) else { continue };
        let time = play(&slower, states, &plan);
        if time < least {
            (least, best) = (time, Some((slower, plan)));
        }
        if over() {
            break;
        }
    }
    best
}

/// Prices of problems without overlap, the best bound's first, and that bound.
fn relax(problem: &Problem, started: Instant, effort: &Effort) -> (Vec<Dual>, f64) {
    let mut duals: Vec<Dual> = Vec::new();
    let mut bound: f64 = problem.calls.iter().map(|call| call.times[call.fastest()]).sum();
    for (kernels, out, back) in WEIGHTS {
        let priced = problem.weighted(kernels, out, back);
        let states = States::new(&priced);
        let scope = Scope::root(&priced, &states);
        let mut dual = Dual::new(&priced);
        let upper = construct(&priced, &states, &dual).map_or(f64::INFINITY, |plan| plan.cost);
        let over = || started.elapsed() * 5 > effort.time;
        dual.ascend(&priced, &states, &scope, upper, 40, |_| over());
        bound = bound.max(dual.bound);
        duals.push(dual);
        if over() {
            break;
        }
    }
    duals.sort_by(|a, b| b.bound.total_cmp(&a.bound));
    duals.truncate(3);
    (duals, bound)
}
