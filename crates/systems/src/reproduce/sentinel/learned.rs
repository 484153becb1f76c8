//! What Sentinel learns of a network before it settles: steps, the length of its intervals, its lower bound.
//!
//! A simulation hands over figures of time and memory alone, so the policy is played here by itself.

use tiercel_core::{Bytes, Manager};
use tiercel_policies::Sentinel;
use tiercel_policies::sentinel::Steps;
use tiercel_run::{Executor, Sim};
use tiercel_workload::Trace;

use super::Bench;
use crate::Fast;

/// Iterations after which it is taken as it is.
const PATIENCE: u32 = 64;

/// What it learned.
pub(super) struct Learned {
    /// The seconds of an iteration from then on.
    pub(super) seconds: f64,
    /// The iterations that it took.
    pub(super) steps: Steps,
    /// Layers in an interval.
    pub(super) length: u32,
    /// The least fast memory that the paper would have it run with.
    pub(super) lower_bound: Bytes,
}

/// Lets Sentinel learn a network, with intervals of its own choice or of so many layers.
pub(super) fn learn(
    bench: &Bench<'_>,
    trace: &Trace,
    fast: Option<Fast>,
    length: Option<u32>,
) -> Result<Learned, String> {
    let machine = bench.machine(trace, fast);
    let mut policy = length.map_or(Sentinel::new(), |length| Sentinel::new().interval(length));
    let mut manager = Manager::new(machine.clone(), Sim::with_times(machine, bench.times().clone()));
    let mut executor = Executor::new(trace);
    for _ in 0..PATIENCE {
        executor.iterate(&mut manager, &mut policy).map_err(|error| error.to_string())?;
        if policy.settled() {
            break;
        }
    }
    let last = executor.iterate(&mut manager, &mut policy).map_err(|error| error.to_string())?;
    let terms = policy.terms().ok_or("it learned nothing")?;
    Ok(Learned {
        seconds: last.time.seconds(),
        steps: policy.steps(),
        length: terms.length,
        lower_bound: policy.lower_bound().unwrap_or_default(),
    })
}
