//! Plans for the paths of a program: one for each path and bucket of sizes, which of them to begin with when several paths are
//! likely, and what to fetch for the others.
//!
//! A plan is the house's joint one (`tiercel_plan::joint`: keep, move, or run again), made for the largest sizes of a bucket, so
//! that it holds for all of them. Buckets are a quarter apart, as Sentinel's are. When the step begins and several paths
//! are likely, the plan is taken that is expected to take least: for each plan and each path it is known by simulation what
//! the step takes if the plan is begun with and the path comes ([`Costs`]). Beside it parameters are fetched that a likely
//! other path wants soon after it parts from the plan's, as far as there is free memory ([`hedge`]).

use std::sync::Arc;
use std::time::Duration;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_plan::{Request, joint};
use tiercel_profile::Model;
use tiercel_workload::{Lifetimes, TensorId, Trace};

use crate::ground::{Ground, Plan, Planned, Short, alike};

/// Sizes within this factor are in one bucket.
const WITHIN: f64 = 1.25;
/// How many kernels before paths part the other's parameters are fetched, and how many after it they are looked for.
const AHEAD: usize = 24;
const BEYOND: usize = 40;
/// What is likely enough to fetch for.
const LIKELY: f32 = 0.08;

/// The bucket of a size, where the largest that is expected is in bucket 0.
pub fn bucket(size: u64, largest: u64) -> u32 {
    let ratio = largest.max(1) as f64 / size.max(1) as f64;
    (ratio.max(1.0).ln() / WITHIN.ln() + 1e-9).floor() as u32
}

/// The largest size of a bucket.
pub fn largest(bucket: u32, largest: u64) -> u64 {
    (largest as f64 / WITHIN.powi(bucket as i32)).ceil() as u64
}

/// How much planning may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Care {
    /// Changes to a plan that are tried.
    pub rounds: u64,
    /// The longest that one plan may take; a plan that this cuts off depends on the machine's load.
    pub time: Duration,
}

impl Default for Care {
    fn default() -> Care {
        Care { rounds: 1500, time: Duration::from_secs(60) }
    }
}

/// What becomes of parameters that a path does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// They leave where room is wanted, and come when another path wants them.
    Leave,
    /// They stay on the card, and the plan does with what they leave.
    Stay,
}

/// Plans a trace for so much memory.
pub fn plan(
    trace: Arc<Trace>,
    machine: &Machine,
    model: &Model,
    limit: Bytes,
    (care, unused): (Care, Unused),
) -> Result<Plan, String> {
    let machine = machine.clone().with_capacity(TierId(0), limit);
    let Care { rounds, time } = care;
    let request = Request { rounds, time, places: false, seeded: false, ..Request::default() };
    let planned = if unused == Unused::Leave { used(&trace) } else { Trace::clone(&trace) };
    let found = joint(&planned, &machine, model, &request).map_err(|error| error.to_string())?;
    let lives = Arc::new(Lifetimes::new(&trace));
    let lasts = |at: &usize| {
        let used = !lives.uses(TensorId(*at as u32)).is_empty();
        trace.tensors[*at].persistent && used && !found.schedule.away.contains(&(*at as u32))
    };
    let kept = (0..trace.tensors.len()).filter(lasts).map(|at| trace.tensors[at].bytes.0).sum();
    Ok(Plan { schedule: found.schedule, lives, kept, trace, all_stay: unused == Unused::Stay })
}

/// The trace without parameters that its path does not use: they are on the host, and no plan has to make room for them.
fn used(trace: &Trace) -> Trace {
    let lives = Lifetimes::new(trace);
    let mut trace = trace.clone();
    for (at, tensor) in trace.tensors.iter_mut().enumerate() {
        tensor.persistent &= !lives.uses(TensorId(at as u32)).is_empty();
    }
    trace
}

/// What each plan takes on each path, by simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs(Vec<Vec<f64>>);

impl Costs {
    /// Plays every plan on every path: the plan is begun with, and where the path parts from it the path's own plan goes on.
    pub fn of(plans: &[Arc<Plan>], machine: &Machine, model: &Model, limit: Bytes) -> Result<Costs, Short> {
        let cost = |begun: &Arc<Plan>, path: &Arc<Plan>| {
            let mut ground = Ground::new(machine, model, limit);
            let own = |plan: &Arc<Plan>| {
                let next = Arc::clone(path);
                Planned::new(Some(Arc::clone(plan)), move |_, _| Some(Arc::clone(&next)))
            };
            // The step before leaves the parameters where the plan that was begun with wants them.
            ground.step(&begun.trace, &mut Planned::new(Some(Arc::clone(begun)), |_, _| None))?;
            Ok(ground.step(&path.trace, &mut own(begun))?.time.0 as f64)
        };
        plans
            .iter()
            .map(|begun| plans.iter().map(|path| cost(begun, path)).collect())
            .collect::<Result<_, _>>()
            .map(Costs)
    }

    /// The time that a path takes when a plan was begun with.
    pub fn get(&self, begun: usize, path: usize) -> Nanos {
        Nanos(self.0[begun][path] as u64)
    }

    /// What a wrong guess costs on average: over the path's own plan, in shares of it.
    pub fn wrong(&self) -> f64 {
        let n = self.0.len();
        let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let shares: Vec<f64> = pairs.map(|(a, b)| self.0[a][b] / self.0[b][b] - 1.0).collect();
        if shares.is_empty() { 0.0 } else { shares.iter().sum::<f64>() / shares.len() as f64 }
    }

    /// The plan to begin with when paths have these probabilities.
    pub fn choose(&self, likely: &[(usize, f32)]) -> Option<usize> {
        let expected =
            |begun: usize| likely.iter().map(|(path, p)| f64::from(*p) * self.0[begun][*path]).sum::<f64>();
        let candidates = likely.iter().map(|(path, _)| *path);
        candidates.min_by(|a, b| expected(*a).total_cmp(&expected(*b)))
    }
}

/// For the plan that is begun with and the likely paths: which parameters to fetch before which kernel, if memory is free.
pub fn hedge(begun: &Plan, likely: &[(&Plan, f32)]) -> Vec<(usize, usize)> {
    let mut fetches = Vec::new();
    for (other, probability) in likely {
        if *probability < LIKELY {
            continue;
        }
        let (a, b) = (&begun.trace.kernels, &other.trace.kernels);
        let Some(parts) = a.iter().zip(b).position(|(a, b)| !alike(a, b)) else { continue };
        for kernel in &b[parts..(parts + BEYOND).min(b.len())] {
            for used in &kernel.reads {
                let id = used.tensor;
                let lasts = (id.0 as usize) < begun.trace.tensors.len()
                    && begun.trace.tensors[id.0 as usize].persistent;
                let soon = lasts
                    && begun.lives.uses(TensorId(id.0)).iter().any(|step| (step.0 as usize) < parts + BEYOND);
                if lasts && !soon {
                    fetches.push((parts.saturating_sub(AHEAD), id.0 as usize));
                }
            }
        }
    }
    fetches.sort_unstable();
    fetches.dedup_by_key(|(_, tensor)| *tensor);
    fetches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_quarter_apart() {
        assert_eq!([1000, 801, 799, 641, 500].map(|size| bucket(size, 1000)), [0, 0, 1, 1, 3]);
        for size in 1..=1000 {
            let own = bucket(size, 1000);
            assert!(
                size <= largest(own, 1000) && largest(own, 1000) as f64 <= size as f64 * WITHIN + 1.0,
                "{size}"
            );
        }
    }

    #[test]
    fn the_cost_of_a_wrong_guess_decides() {
        // The second plan is never best, and never bad.
        let costs = Costs(vec![vec![10.0, 11.0, 40.0], vec![12.0, 10.5, 14.0], vec![50.0, 12.0, 10.0]]);
        assert_eq!(costs.choose(&[(0, 0.97), (1, 0.01), (2, 0.02)]), Some(0));
        assert_eq!(costs.choose(&[(0, 0.55), (1, 0.05), (2, 0.40)]), Some(1));
        assert_eq!(costs.choose(&[]), None);
        assert!(costs.wrong() > 0.0);
    }
}
