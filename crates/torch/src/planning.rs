//! From a recorded iteration to books that follow a system's decisions on it.
//!
//! Any system of the house will do: one that plans hands over its plan's policy, one that decides while it runs its own. What
//! is predicted is a simulation of the same decisions.

use std::sync::Arc;
use std::time::Duration;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_plan::{PlanError, Request, joint};
use tiercel_policies::UnifiedMemory;
use tiercel_sim::Roofline;
use tiercel_systems::{
    Options, Planned, Recording, Setting, System, SystemError, Times, named, planning, simulate_prepared,
};
use tiercel_workload::repeated::Repeated;
use tiercel_workload::{Lifetimes, Trace};

use crate::books::{Books, BooksError};

/// What a system has decided of a trace, and what is expected of it. It is data alone: it may be made on another thread.
pub struct Decided {
    trace: Arc<Trace>,
    machine: Machine,
    system: &'static System,
    options: Options,
    planned: Option<Planned>,
    /// Where the kernels of what is played come from, where some run again.
    pub repeated: Option<Repeated>,
    /// The simulated time of an iteration.
    pub predicted: Nanos,
    /// The same with everything in fast memory.
    pub all_fast: Nanos,
    /// The most bytes alive at once.
    pub peak: Bytes,
    /// Bytes moved to fast memory in an iteration, by simulation.
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

/// Has a system decide on a trace. With `again`, Tiercel's own may have kernels run again; storages have addresses of their own,
/// so it counts bytes and gives no places.
pub fn decide(
    recorded: Arc<Trace>,
    machine: &Machine,
    system: &str,
    again: bool,
    seconds: f64,
    seed: u64,
) -> Result<Decided, FollowError> {
    let system = named(system)?;
    let time = Duration::from_secs_f64(seconds.clamp(0.1, 3600.0));
    let options = Options { time, seed, gap: 0.003, ..Options::default() };
    // Every kernel's time was measured; rooflines serve what was not.
    let times = Times::new(Roofline);
    let (trace, repeated, prepared) = if system.name == tiercel_systems::DEFAULT {
        let request = Request { again, seeded: false, places: false, time, seed, ..Request::default() };
        let found = joint(&recorded, machine, &times, &request)?;
        let trace = Arc::new(found.repeated.trace.clone());
        let planned = Planned { plan: found.plan, solve: Some(found.time), met: false, adaptive: false };
        let prepared = planning::play(planned, &trace, &addresses(machine))?;
        (trace, Some(found.repeated), prepared)
    } else {
        let setting = Setting::new(&recorded, machine, &times).with(options);
        let prepared = system.prepare(&setting)?;
        (Arc::clone(&recorded), None, prepared)
    };
    let machine = if repeated.is_some() { &addresses(machine) } else { machine };
    let setting = Setting::new(&trace, machine, &times).with(options);
    if prepared.rewritten.is_some() || prepared.implemented.is_some() {
        return Err(FollowError::Rewritten(system.name));
    }
    let planned = prepared.planned.clone();
    let run = simulate_prepared(system.name, prepared, &setting, 1, Recording::Off)?;
    let (fetched, evicted) =
        run.iterations.last().map_or((Bytes::ZERO, Bytes::ZERO), |i| (i.fetched, i.evicted));
    Ok(Decided {
        predicted: run.time(),
        all_fast: recorded.kernels.iter().filter_map(|k| k.timings.first()).map(|t| t.time).sum(),
        peak: Lifetimes::new(&recorded).peak().1,
        fetched,
        evicted,
        bound: planned.as_ref().map(|planned| Nanos(planned.plan.bound_ns as u64)),
        machine: machine.clone(),
        repeated,
        trace,
        system,
        options,
        planned,
    })
}

/// The same machine with more addresses than bytes in its fastest tier. Storages are wherever their own allocator puts them, so
/// what a plan keeps to is bytes: the books must not refuse a place because other places are in pieces.
fn addresses(machine: &Machine) -> Machine {
    let bytes = machine.tiers[0].capacity.0;
    with_capacities(machine, &[Bytes(bytes.saturating_mul(2))])
}

impl Decided {
    /// Books that follow the decisions, before their first iteration.
    pub fn open(self) -> Result<Books, BooksError> {
        let times = Times::new(Roofline);
        let setting = Setting::new(&self.trace, &self.machine, &times).with(self.options);
        let prepared = match self.planned {
            Some(planned) if self.repeated.is_some() => planning::play(planned, &self.trace, &self.machine)?,
            Some(planned) => planning::replay(planned, &setting)?,
            None => self.system.prepare(&setting)?,
        };
        Books::following(&self.machine, prepared.policy, Arc::clone(&self.trace), prepared.lookahead)
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
