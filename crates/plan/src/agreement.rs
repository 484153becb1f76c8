//! The two solvers against each other: on random problems each one's plan must respect the other one's bound.
//!
//! HiGHS must be there for that: `scripts/fetch-highs` fetches it. Where it is not, and `TIERCEL_HIGHS` does not say
//! that it should be, these tests say that they were skipped.

use std::time::Duration;

use tiercel_core::Machine;
use tiercel_sim::{KernelTime, Roofline};
use tiercel_testbed::{for_seeds, machine, random_trace};
use tiercel_workload::{Lifetimes, Trace};

use crate::exact::Exact;
use crate::model::problem::{Formulation, Problem};
use crate::oracle::{Tangled, brute_force, tiny};
use crate::plan::Plan;
use crate::plan::verify::verify;
use crate::search::solve::{Effort, Solution, Stop};
use crate::search::solver::{Fast, Solver};

fn exact() -> Option<Exact> {
    match Exact::load() {
        Ok(exact) => Some(exact),
        Err(error) if std::env::var_os("TIERCEL_HIGHS").is_some() => panic!("{error}"),
        Err(error) => {
            tiercel_testbed::skipped(&format!("the exact solver: {error}"));
            None
        }
    }
}

fn times(seed: u64) -> Box<dyn KernelTime> {
    if seed.is_multiple_of(3) { Box::new(Roofline) } else { Box::new(Tangled(seed)) }
}

/// Two or three tiers, of which the last holds everything.
fn small(seed: u64) -> (Trace, Machine, Formulation) {
    let mut random = fastrand::Rng::with_seed(seed);
    let layers = random.u32(2..=5);
    let trace = random_trace(&mut random, layers, 4000);
    let (_, peak) = Lifetimes::new(&trace).peak();
    let mut tiers = vec![(peak.0 as f64 * random.f64()).max(64.0) as u64];
    if random.bool() {
        tiers.push((peak.0 as f64 * random.f64()) as u64 + 64);
    }
    tiers.push(4 * peak.0 + 64 * 100);
    let machine = machine(&tiers, tiers.len());
    (trace, machine, if seed.is_multiple_of(2) { Formulation::Static } else { Formulation::Synchronous })
}

fn check(solution: &Solution, solver: &dyn Solver, trace: &Trace, machine: &Machine, problem: &Problem) {
    let name = solver.name();
    assert_eq!(solution.stop(), Stop::Gap, "{name} took all its time");
    assert!(solution.bound <= solution.cost, "{name}: bound {} above {}", solution.bound, solution.cost);
    let plan = Plan::new(trace, machine, problem, solution);
    verify(&plan, trace, machine).unwrap_or_else(|flaw| panic!("{name}: {flaw}"));
}

#[test]
fn fast_and_exact_agree_within_their_gaps() {
    let Some(exact) = exact() else { return };
    let effort = Effort { gap: 0.002, time: Duration::from_secs(60), seed: 1, ..Effort::default() };
    for_seeds(200, |seed| {
        let (trace, machine, formulation) = small(seed);
        let times = times(seed);
        let problem = Problem::new(&trace, &machine, times.as_ref(), formulation).expect("all tiers compute");
        let [a, b] = [&Fast as &dyn Solver, &exact].map(|solver| {
            let solution = solver.solve(&problem, &effort).unwrap_or_else(|error| panic!("{error}"));
            check(&solution, solver, &trace, &machine, &problem);
            solution
        });
        let slack = 1e-6 * a.cost;
        assert!(a.bound <= b.cost + slack, "fast proves {}, exact has a plan of {}", a.bound, b.cost);
        assert!(b.bound <= a.cost + slack, "exact proves {}, fast has a plan of {}", b.bound, a.cost);
    });
}

#[test]
fn exact_is_as_good_as_brute_force() {
    let Some(exact) = exact() else { return };
    let effort = Effort { gap: 0.0, time: Duration::from_secs(60), seed: 1, ..Effort::default() };
    for_seeds(100, |seed| {
        let (trace, machine, formulation) = tiny(seed);
        let times = times(seed);
        let problem = Problem::new(&trace, &machine, times.as_ref(), formulation).expect("all tiers compute");
        let least = brute_force(&problem);
        let solution = exact.solve(&problem, &effort).unwrap_or_else(|error| panic!("{error}"));
        assert!((solution.cost - least).abs() <= 1e-6 * least, "{} is not {least}", solution.cost);
        assert!((solution.bound - least).abs() <= 1e-6 * least, "{} is not {least}", solution.bound);
    });
}
