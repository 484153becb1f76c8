//! From a planner to a policy: the one place that knows the planners.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tiercel_core::{Bytes, Machine};
use tiercel_plan::{
    Effort, Formulation, Plan, PlanError, Problem, WarmStart, arranged_anew, implemented, solve,
};
use tiercel_policies::Follow;
use tiercel_workload::Trace;

use crate::{Prepared, Setting, SystemError};

/// Who decides ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planner {
    /// AutoTM's static problem.
    Static,
    /// AutoTM's synchronous problem.
    Synchronous,
    /// AutoTM's asynchronous problem.
    Asynchronous,
}

impl Planner {
    /// The system that uses it, for messages.
    fn name(self) -> &'static str {
        match self {
            Planner::Static => "autotm-static",
            Planner::Synchronous => "autotm-sync",
            Planner::Asynchronous => "autotm-async",
        }
    }

    fn formulation(self) -> Formulation {
        match self {
            Planner::Static => Formulation::Static,
            Planner::Synchronous => Formulation::Synchronous,
            Planner::Asynchronous => Formulation::Asynchronous,
        }
    }

    /// What an iteration takes with a plan that was made in a hurry, in nanoseconds; `None` where there is none.
    pub(crate) fn estimate(self, setting: &Setting<'_>) -> Option<f64> {
        let Setting { trace, machine, times, options, .. } = *setting;
        let problem = Problem::new(trace, machine, times, self.formulation()).ok()?;
        let effort = Effort { gap: options.gap, time: options.time, rounds: 0, seed: options.seed };
        Some(solve(&problem, &effort)?.cost)
    }

    /// Makes a plan.
    pub fn plan(self, setting: &Setting<'_>) -> Result<Planned, SystemError> {
        let Setting { trace, machine, times, options, warm_starts, .. } = *setting;
        let effort =
            Effort { gap: options.gap, time: options.time, rounds: options.rounds, seed: options.seed };
        let formulation = self.formulation();
        let plan = |known: &mut WarmStart| arranged_anew(trace, machine, times, formulation, &effort, known);
        let arranged = match warm_starts {
            Some(warm_starts) => warm_starts.with(trace, formulation, plan),
            None => plan(&mut WarmStart::default()),
        };
        let fastest = &machine.tiers[0];
        let arranged = arranged.map_err(|error| match error {
            PlanError::NoPlan => SystemError::NoPlan {
                system: self.name(),
                tier: fastest.name.clone(),
                limit: fastest.capacity,
            },
            error => SystemError::Problem { system: self.name(), error },
        })?;
        Ok(Planned { plan: arranged.plan, solve: Some(arranged.time), met: arranged.met, adaptive: false })
    }
}

/// A plan, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// How long the search took; `None` where the plan was read from a file.
    pub solve: Option<Duration>,
    /// Whether the search stopped because the plan was good enough.
    pub met: bool,
    /// Whether moves that come late begin earlier in later iterations.
    pub adaptive: bool,
}

impl Planned {
    /// How far up the fastest tier the plan's tensors reach, where it gives them places.
    pub fn layout(&self, trace: &Trace, machine: &Machine) -> Option<Bytes> {
        let fastest = &machine.tiers[0].name;
        let sizes: HashMap<&str, Bytes> = trace.tensors.iter().map(|t| (t.name.as_str(), t.bytes)).collect();
        let births = self.plan.births.iter().map(|b| (&b.tensor, &b.tier, b.offset));
        let moves = self.plan.moves.iter().map(|m| (&m.tensor, &m.to, m.offset));
        let here = births.chain(moves).filter(|(_, tier, _)| *tier == fastest);
        let ends = here.filter_map(|(tensor, _, offset)| {
            let size = Bytes(sizes.get(tensor.as_str())?.0.max(1)).round_up(machine.grain())?;
            Some(Bytes(offset?.checked_add(size.0)?))
        });
        ends.max()
    }
}

/// Plans, and hands over the policy that plays the plan.
pub(crate) fn follow(planner: Planner, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
    play(planner.plan(setting)?, setting.trace, setting.machine)
}

/// The policy that plays a plan, with the program rewritten as the plan is for it.
pub fn replay(planned: Planned, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
    if let Some(repeated) = planned.plan.repeated(setting.trace)? {
        return play_repeated(planned, Arc::new(repeated), setting.machine);
    }
    let rewritten = planned.plan.rewrite(setting.trace, setting.program)?.map(Arc::new);
    let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
    let prepared = play(planned, trace, setting.machine)?;
    Ok(Prepared { rewritten, ..prepared })
}

/// The policy that plays a plan for a trace in which kernels run once more.
pub(crate) fn play_repeated(
    planned: Planned,
    trace: Arc<Trace>,
    machine: &Machine,
) -> Result<Prepared, SystemError> {
    let prepared = play(planned, &trace, machine)?;
    Ok(Prepared { implemented: Some(trace), ..prepared })
}

/// The policy that plays a plan for just this trace, if the plan can be played.
pub fn play(planned: Planned, trace: &Trace, machine: &Machine) -> Result<Prepared, SystemError> {
    let implemented = match planned.plan.implementations.as_slice() {
        [] => None,
        chosen => Some(Arc::new(implemented(trace, chosen).map_err(SystemError::Implementation)?)),
    };
    let trace = implemented.as_deref().unwrap_or(trace);
    let mut policy = Follow::new(&planned.plan, trace, machine)?;
    if planned.adaptive {
        policy = policy.adapting(&planned.plan, trace, machine)?;
    }
    let copy_threads = planned.plan.copy_threads.clone();
    Ok(Prepared { copy_threads, planned: Some(planned), implemented, ..Prepared::policy(policy) })
}
