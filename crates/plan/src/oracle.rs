//! The solver against brute force: on tiny problems every joint state of all tensors is followed through all kernels.

use std::collections::HashMap;
use std::time::Duration;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_sim::{KernelTime, Roofline};
use tiercel_testbed::{for_seeds, machine, random_trace};
use tiercel_workload::{Lifetimes, Trace};

use crate::bound::paths::States;
use crate::model::problem::{Formulation, Problem};
use crate::plan::Plan;
use crate::plan::verify::verify;
use crate::search::solve::{Effort, solve};

/// A random time for every placement, the slower the more is slow, and not the sum of its parts.
pub(crate) struct Tangled(pub(crate) u64);

impl KernelTime for Tangled {
    fn time(&self, _: &Machine, kernel: &tiercel_workload::Kernel, tiers: &[TierId]) -> tiercel_core::Nanos {
        let mut random = fastrand::Rng::with_seed(self.0 ^ kernel.name.bytes().map(u64::from).sum::<u64>());
        let base = random.u64(100..1000);
        let each: Vec<u64> = tiers.iter().map(|t| random.u64(0..2000) * u64::from(t.0)).collect();
        // Two slow operands share what one of them costs, or make each other worse.
        let most = each.iter().copied().max().unwrap_or(0);
        let sum: u64 = each.iter().sum();
        tiercel_core::Nanos(base + if random.bool() { most } else { sum + most / 2 })
    }
}

/// The least cost of any plan, by following every joint state.
pub(crate) fn brute_force(problem: &Problem) -> f64 {
    let states = States::new(problem);
    let steps = problem.calls.len();
    let items = &problem.items;
    let fits = |joint: &[u8], step: usize| {
        (0..problem.tiers).all(|tier| {
            let Some(room) = &problem.room[tier] else { return true };
            let bytes = |(item, s): (usize, &u8)| {
                let alive = *s != u8::MAX;
                let state = alive.then(|| states.all[usize::from(*s)]);
                let here = |state: crate::bound::paths::State| {
                    usize::from(state.tier) == tier || state.copy.map(usize::from) == Some(tier)
                };
                if state.is_some_and(here) { items[item].bytes as f64 } else { 0.0 }
            };
            joint.iter().enumerate().map(bytes).sum::<f64>() <= room[step]
        })
    };
    let plain = problem.tiers as u8;
    let mut best = f64::INFINITY;
    // Every way for persistent and fed tensors to begin.
    let mut beginnings: Vec<Vec<u8>> = vec![Vec::new()];
    for item in items {
        let choices: Vec<u8> = match item {
            i if i.persistent => (0..plain).collect(),
            i if i.fed => (0..plain).collect(),
            _ => vec![u8::MAX],
        };
        let extend = |b: &Vec<u8>| choices.iter().map(|c| [b.as_slice(), &[*c]].concat()).collect::<Vec<_>>();
        beginnings = beginnings.iter().flat_map(extend).collect();
    }
    for beginning in beginnings {
        let mut reached: HashMap<Vec<u8>, f64> = HashMap::from([(beginning.clone(), 0.0)]);
        for step in 0..steps {
            let call = &problem.calls[step];
            // Before the kernel, and after it, just the tensors that it uses may change their state.
            let mut using: HashMap<Vec<u8>, f64> = HashMap::new();
            for (joint, cost) in &reached {
                change(problem, &states, joint, *cost, step, true, &mut |next, cost| {
                    let placement: usize = call
                        .items
                        .iter()
                        .enumerate()
                        .map(|(o, item)| states.tier(next[*item as usize]) * problem.tiers.pow(o as u32))
                        .sum();
                    if fits(next, step) && call.times[placement].is_finite() {
                        let total = cost + call.times[placement];
                        let known = using.entry(next.to_vec()).or_insert(f64::INFINITY);
                        *known = known.min(total);
                    }
                });
            }
            reached = HashMap::new();
            for (joint, cost) in &using {
                change(problem, &states, joint, *cost, step, false, &mut |next, cost| {
                    let known = reached.entry(next.to_vec()).or_insert(f64::INFINITY);
                    *known = known.min(cost);
                });
            }
        }
        for (joint, cost) in reached {
            let returns =
                items.iter().zip(&joint).zip(&beginning).all(|((i, end), b)| !i.persistent || end == b);
            if returns {
                best = best.min(cost);
            }
        }
    }
    best
}

/// Calls `each` with every joint state that follows from one before or after the kernel at a step.
fn change(
    problem: &Problem,
    states: &States,
    joint: &[u8],
    cost: f64,
    step: usize,
    before: bool,
    each: &mut dyn FnMut(&[u8], f64),
) {
    let users = &problem.calls[step].items;
    let mut stack = vec![(joint.to_vec(), cost, 0_usize)];
    while let Some((joint, cost, at)) = stack.pop() {
        let Some(item) = users.get(at).map(|i| *i as usize) else {
            each(&joint, cost);
            continue;
        };
        let info = &problem.items[item];
        let visit = info.visits.iter().position(|v| v.step as usize == step).expect("it is used here");
        let (born, dies) = (joint[item] == u8::MAX, visit + 1 == info.visits.len() && !info.persistent);
        if !before && dies {
            let mut next = joint.clone();
            next[item] = u8::MAX;
            stack.push((next, cost, at + 1));
            continue;
        }
        for to in 0..states.all.len() as u8 {
            if before && info.visits[visit].writes && states.all[usize::from(to)].copy.is_some() {
                continue;
            }
            let way = match born {
                true => 0.0,
                false => states.cost(usize::from(joint[item]), usize::from(to), info.bytes as f64),
            };
            if way.is_finite() {
                let mut next = joint.clone();
                next[item] = to;
                stack.push((next, cost + way, at + 1));
            }
        }
    }
}

pub(crate) fn tiny(seed: u64) -> (Trace, Machine, Formulation) {
    let mut random = fastrand::Rng::with_seed(seed);
    let three = seed.is_multiple_of(10);
    let formulation = if seed % 4 < 2 { Formulation::Static } else { Formulation::Synchronous };
    // Every joint state of all tensors is followed: there must be few of those.
    let layers = if formulation == Formulation::Static && !three { 2 } else { 1 };
    let trace = random_trace(&mut random, layers, 2000);
    let (_, peak) = Lifetimes::new(&trace).peak();
    let fast = (peak.0 as f64 * random.f64()).max(64.0) as u64;
    let tiers =
        if three { vec![fast, peak.0 / 2 + 64, 4 * peak.0 + 640] } else { vec![fast, 4 * peak.0 + 640] };
    let machine = machine(&tiers, tiers.len());
    (trace, machine, formulation)
}

#[test]
fn bounds_hold_and_plans_are_as_good_as_they_say() {
    let effort = Effort { gap: 0.0, time: Duration::from_millis(8), seed: 1, ..Effort::default() };
    for_seeds(1000, |seed| {
        let (trace, machine, formulation) = tiny(seed);
        let times: Box<dyn KernelTime> =
            if seed % 2 == 0 { Box::new(Roofline) } else { Box::new(Tangled(seed)) };
        let problem = Problem::new(&trace, &machine, times.as_ref(), formulation).expect("all tiers compute");
        let least = brute_force(&problem);
        let solution = solve(&problem, &effort).expect("everything fits somewhere");
        let slack = 1e-6 * least;
        assert!(solution.bound <= least + slack, "bound {} above {least}", solution.bound);
        assert!(solution.cost >= least - slack, "plan {} below {least}", solution.cost);
        let allowed = least / (1.0 - solution.gap());
        assert!(solution.cost <= allowed + slack, "{} {} {least}", solution.cost, solution.bound);
        let plan = Plan::new(&trace, &machine, &problem, &solution);
        verify(&plan, &trace, &machine).unwrap_or_else(|flaw| panic!("{flaw}"));
        assert!(Bytes(plan.fast_bytes) == machine.tiers[0].capacity);
    });
}
