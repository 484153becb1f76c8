//! From a recorded iteration to books that follow a system's decisions on it.
//!
//! Any system of the house will do: one that plans hands over its plan's policy, one that decides while it runs its own. What
//! is predicted is a simulation of the same decisions.

use std::sync::Arc;
use std::time::Duration;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_plan::{Act, Joint, Plan, PlanError, Request, Schedule, joint};
use tiercel_policies::UnifiedMemory;
use tiercel_sim::Roofline;
use tiercel_systems::{
    Options, Planned, Recording, Run, Setting, System, SystemError, Times, named, planning, simulate_prepared,
};
use tiercel_workload::{Lifetimes, Trace};

use crate::books::{Books, BooksError};

/// What a system has decided of a trace, and what is expected of it. It is data alone: it may be made on another thread.
#[derive(Clone)]
pub struct Decided {
    trace: Arc<Trace>,
    machine: Machine,
    system: &'static System,
    options: Options,
    /// What is to be done step by step, where the system says so: Tiercel's own does.
    pub schedule: Option<Schedule>,
    /// The same as a plan for a trace in which kernels run again, to be simulated.
    plan: Option<(Plan, Arc<Trace>)>,
    /// The fast memory that the decisions keep to.
    pub limit: Bytes,
    /// The time that an iteration should take.
    pub predicted: Nanos,
    /// The same with everything in fast memory.
    pub all_fast: Nanos,
    /// The most bytes alive at once.
    pub peak: Bytes,
    /// Bytes moved to fast memory in an iteration.
    pub fetched: Bytes,
    /// Bytes moved away from it.
    pub evicted: Bytes,
    /// A bound that no plan of moves can beat, where the system states one.
    pub bound: Option<Nanos>,
}

/// Why a system cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The system cannot do it.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No joint plan was found.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system runs another program than the one that was recorded.
    #[error("{0} rewrites the program, which cannot be followed operation by operation")]
    Rewritten(&'static str),
}

/// What a plan may do, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Whether Tiercel's own may have kernels run again.
    pub again: bool,
    /// Whether it gives every storage its place; otherwise storages have addresses of their own, and it counts bytes.
    pub places: bool,
    /// How long it may take.
    pub seconds: f64,
    /// Where randomness starts.
    pub seed: u64,
}

/// Has a system decide on a trace.
pub fn decide(
    recorded: Arc<Trace>,
    machine: &Machine,
    system: &str,
    asked: Asked,
) -> Result<Decided, FollowError> {
    let Asked { again, places, seconds, seed } = asked;
    let system = named(system)?;
    let time = Duration::from_secs_f64(seconds.clamp(0.1, 3600.0));
    let options = Options { time, seed, gap: 0.003, ..Options::default() };
    // Every kernel's time was measured; rooflines serve what was not.
    let times = Times::new(Roofline);
    let all_fast = recorded.kernels.iter().filter_map(|k| k.timings.first()).map(|t| t.time).sum();
    let peak = Lifetimes::new(&recorded).peak().1;
    if system.name == tiercel_systems::DEFAULT {
        let request = Request { again, seeded: true, places, time, seed, ..Request::default() };
        let Joint { schedule, plan, repeated, .. } = joint(&recorded, machine, &times, &request)?;
        let (fetched, evicted) = crossing(&schedule, &recorded);
        return Ok(Decided {
            predicted: Nanos(schedule.iteration_ns as u64),
            bound: Some(Nanos(schedule.bound_ns as u64)),
            schedule: Some(schedule),
            plan: Some((plan, Arc::new(repeated.trace))),
            limit: machine.tiers[0].capacity,
            machine: machine.clone(),
            trace: recorded,
            system,
            options,
            all_fast,
            peak,
            fetched,
            evicted,
        });
    }
    let setting = Setting::new(&recorded, machine, &times).with(options);
    let prepared = system.prepare(&setting)?;
    if prepared.rewritten.is_some() || prepared.implemented.is_some() {
        return Err(FollowError::Rewritten(system.name));
    }
    let bound = prepared.planned.as_ref().map(|planned| Nanos(planned.plan.bound_ns as u64));
    let run = simulate_prepared(system.name, prepared, &setting, 1, Recording::Off)?;
    let moved = run.iterations.last();
    Ok(Decided {
        schedule: None,
        plan: None,
        limit: machine.tiers[0].capacity,
        predicted: run.time(),
        fetched: moved.map_or(Bytes::ZERO, |i| i.fetched),
        evicted: moved.map_or(Bytes::ZERO, |i| i.evicted),
        machine: machine.clone(),
        trace: recorded,
        system,
        options,
        all_fast,
        peak,
        bound,
    })
}

/// The bytes that a schedule brings and takes away.
fn crossing(schedule: &Schedule, trace: &Trace) -> (Bytes, Bytes) {
    let bytes = |tensor: &u32| trace.tensors[*tensor as usize].bytes;
    let acts = schedule.steps.iter().flat_map(|step| step.before.iter().chain(&step.after));
    let (mut fetched, mut evicted) = (Bytes::ZERO, Bytes::ZERO);
    for act in acts {
        match act {
            Act::Fetch(tensor) => fetched += bytes(tensor),
            Act::Evict(tensor) => evicted += bytes(tensor),
            Act::Wait(_) | Act::Recompute(_) | Act::Drop(_) => {}
        }
    }
    (fetched, evicted)
}

impl Decided {
    /// Books that follow the decisions of a system that states no schedule, before their first iteration.
    pub fn open(self) -> Result<Books, BooksError> {
        let times = Times::new(Roofline);
        let setting = Setting::new(&self.trace, &self.machine, &times).with(self.options);
        let prepared = self.system.prepare(&setting)?;
        Books::following(&self.machine, prepared.policy, Arc::clone(&self.trace), prepared.lookahead)
    }

    /// What is expected to happen when the decisions are followed: a simulated run of one iteration, with its events.
    pub fn simulate(&self) -> Result<Run, SystemError> {
        let times = Times::new(Roofline);
        let (trace, machine) = (self.played(), self.addresses());
        let setting = Setting::new(trace, &machine, &times).with(self.options);
        let prepared = match &self.plan {
            Some((plan, trace)) => {
                let plan = plan.clone();
                planning::play(Planned { plan, solve: None, met: false, adaptive: false }, trace, &machine)?
            }
            None => self.system.prepare(&setting)?,
        };
        simulate_prepared(self.system.name, prepared, &setting, 1, Recording::On)
    }

    /// What is played: the recorded iteration, or the same with kernels that run again.
    pub fn played(&self) -> &Arc<Trace> {
        self.plan.as_ref().map_or(&self.trace, |(_, trace)| trace)
    }

    /// How many tensors move and how many kernels run again; nothing where the system decides while it runs.
    pub fn changes(&self) -> Option<(usize, usize)> {
        let (plan, trace) = self.plan.as_ref()?;
        Some((plan.moves.len(), trace.kernels.len() - self.trace.kernels.len()))
    }

    /// A plan counts bytes and gives no places, so it is simulated with more addresses than bytes: no place is refused because
    /// other places are in pieces.
    fn addresses(&self) -> Machine {
        match self.plan {
            Some(_) => with_capacities(&self.machine, &[Bytes(self.limit.0.saturating_mul(2))]),
            None => self.machine.clone(),
        }
    }
}

/// The policy for programs of which nothing is known yet: what an operation touches comes, what was used longest ago goes.
pub fn on_demand() -> UnifiedMemory {
    UnifiedMemory::new()
}

/// A machine with so much of its first two tiers.
pub fn with_capacities(machine: &Machine, capacities: &[Bytes]) -> Machine {
    capacities.iter().enumerate().take(machine.tiers.len()).fold(machine.clone(), |machine, (at, bytes)| {
        let grain = machine.grain();
        let whole = Bytes((bytes.0 / grain.0).max(1) * grain.0);
        machine.with_capacity(TierId(at as u8), whole)
    })
}
