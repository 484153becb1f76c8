//! A joint plan as acts around the steps of the recorded program, for a compiler that writes them into the program.
//!
//! A program that is compiled ahead does not ask while it runs: what it is to move or to make again is decided once and becomes
//! part of it. So what is wanted is the plan in the words of the recorded program, by the positions of its storages and
//! operations.

use std::time::Duration;

use tiercel_core::{Bytes, Machine};
use tiercel_plan::joint::{Act, Schedule};
use tiercel_plan::{PlanError, Request, joint};
use tiercel_sim::Roofline;
use tiercel_systems::Times;
use tiercel_workload::Trace;

/// What may be done, and for how long it is searched for.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Storages may move.
    pub moves: bool,
    /// Operations may run again.
    pub again: bool,
    /// The changes after which the search ends: with time enough the same program gets the same plan.
    pub rounds: u64,
    /// The time after which the best plan so far is taken.
    pub time: Duration,
}

/// A plan for a recorded program.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// What surrounds each step.
    pub schedule: Schedule,
    /// The nanoseconds with everything in fast memory.
    pub all_fast: f64,
    /// The most bytes that are alive at once.
    pub peak: Bytes,
}

/// What a joint plan does around every step of a recorded program.
///
/// # Errors
/// Where the program cannot be planned with so much memory.
pub fn schedule(recorded: &Trace, machine: &Machine, allowed: Allowed) -> Result<Scheduled, PlanError> {
    let request = Request {
        moves: allowed.moves,
        again: allowed.again,
        seeded: false,
        places: false,
        rounds: allowed.rounds,
        time: allowed.time,
        seed: 0,
    };
    let found = joint(recorded, machine, &Times::new(Roofline), &request)?;
    Ok(Scheduled {
        schedule: found.schedule,
        all_fast: recorded.kernels.iter().filter_map(|k| k.timings.first()).map(|t| t.time.0 as f64).sum(),
        peak: tiercel_workload::Lifetimes::new(recorded).peak().1,
    })
}

impl Scheduled {
    /// The acts in order: the step, whether behind its operation, what, and of which storage or operation.
    pub fn acts(&self) -> Vec<(u32, bool, &'static str, u32)> {
        let word = |act: &Act| match *act {
            Act::Evict(at) => ("evict", at),
            Act::Fetch(at) => ("fetch", at),
            Act::Wait(at) => ("wait", at),
            Act::Recompute(at) => ("recompute", at),
            Act::Drop(at) => ("drop", at),
        };
        let mut acts = Vec::new();
        for (step, around) in (0u32..).zip(&self.schedule.steps) {
            for (behind, list) in [(false, &around.before), (true, &around.after)] {
                acts.extend(list.iter().map(word).map(|(what, at)| (step, behind, what, at)));
            }
        }
        acts
    }
}
