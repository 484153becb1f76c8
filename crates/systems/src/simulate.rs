//! Plays a system on a simulated machine: the one way in which verbs get their simulated figures.
//!
//! Warm-up iterations are played and discarded. Beside what the manager counts, the bytes that kernels and copies move
//! on each tier are summed, as the papers measure them with counters of the memory controllers.

use std::sync::Arc;

use tiercel_core::{
    Backend, Bytes, CopyError, CopyOrder, Error, Locked, Machine, Manager, Nanos, Place, Policy, Span,
    Stamped, Step, Ticket, Totals,
};
use tiercel_run::{Executor, Iteration};
use tiercel_sim::{Sim, Work, World};
use tiercel_workload::{Program, Tensor, Trace};

use crate::{Planned, Prepared, Setting, Split, System, SystemError, Times};

/// What a simulated run did.
#[derive(Clone, Debug)]
pub struct Run {
    /// The system's name.
    pub system: String,
    /// The machine that it was given.
    pub machine: Machine,
    /// The iterations that count.
    pub iterations: Vec<Iteration>,
    /// Iterations before these.
    pub warmup: u32,
    /// Sums over all iterations, warm-ups included, and the peak of every tier.
    pub totals: Totals,
    /// For each tier, the bytes read from and written to it in an iteration, kernels and copies together.
    pub traffic: Vec<(Bytes, Bytes)>,
    /// What kernels took in an iteration, and why.
    pub split: Split,
    /// What was decided ahead of time.
    pub planned: Option<Planned>,
    /// The program that was played instead of the one that was given, where the system computes some of it again.
    pub rewritten: Option<Arc<Program>>,
    /// The trace that was played instead of the one that was given, where implementations were chosen.
    pub implemented: Option<Arc<Trace>>,
    /// What happened, from the start of the first warm-up, where that was asked for.
    pub events: Vec<Stamped>,
}

impl Run {
    /// The time of the middle iteration by time.
    pub fn time(&self) -> Nanos {
        let mut times: Vec<Nanos> = self.iterations.iter().map(|i| i.time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// What was played, where this was given.
    pub fn trace<'a>(&'a self, given: &'a Trace) -> &'a Trace {
        let rewritten = self.rewritten.as_ref().map_or(given, |program| &program.trace);
        self.implemented.as_deref().unwrap_or(rewritten)
    }

    /// Time that kernels waited, in all iterations that count.
    pub fn stall(&self) -> Nanos {
        self.iterations.iter().map(|i| i.stall).sum()
    }

    /// Bytes moved towards faster tiers, in all iterations that count.
    pub fn fetched(&self) -> Bytes {
        self.iterations.iter().map(|i| i.fetched).sum()
    }

    /// Bytes moved towards slower tiers, in all iterations that count.
    pub fn evicted(&self) -> Bytes {
        self.iterations.iter().map(|i| i.evicted).sum()
    }

    /// The most bytes that the fastest tier held at once.
    pub fn peak_fast(&self) -> Bytes {
        self.totals.peak.first().copied().unwrap_or_default()
    }
}

/// Iterations after which a policy that still learns is taken as it is.
const PATIENCE: u32 = 64;

/// Whether events are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Totals alone.
    Off,
    /// Everything that happens.
    On,
}

/// Plays a system for so many iterations that count.
pub fn simulate(system: &System, setting: &Setting<'_>, iterations: u32) -> Result<Run, SystemError> {
    simulate_recorded(system, setting, iterations, Recording::Off)
}

/// Plays a system, and keeps what happened where asked to.
pub fn simulate_recorded(
    system: &System,
    setting: &Setting<'_>,
    iterations: u32,
    recording: Recording,
) -> Result<Run, SystemError> {
    let machine = system.machine(setting.trace, setting.machine);
    let setting = Setting { machine: &machine, ..*setting };
    let prepared = system.prepare(&setting)?;
    simulate_prepared(system.name, prepared, &setting, iterations, recording)
}

/// Simulates a system for one iteration that counts, and hands the same over to be played for real.
///
/// A plan is made once: what is predicted is what will be played.
pub fn predict(system: &System, setting: &Setting<'_>) -> Result<(Run, Prepared), SystemError> {
    let prepared = system.prepare(setting)?;
    let planned = prepared.planned.clone();
    let predicted = simulate_prepared(system.name, prepared, setting, 1, Recording::Off)?;
    let again = match planned {
        Some(planned) => crate::planning::replay(planned, setting)?,
        None => system.prepare(setting)?,
    };
    Ok((predicted, again))
}

/// Plays whatever has been prepared for just this setting.
pub fn simulate_prepared(
    name: &str,
    prepared: Prepared,
    setting: &Setting<'_>,
    iterations: u32,
    recording: Recording,
) -> Result<Run, SystemError> {
    let machine = &prepared.staffed(setting.machine);
    let times = setting.times;
    let Prepared { mut policy, warmup, lookahead, planned, rewritten, implemented, .. } = prepared;
    let trace = rewritten.as_ref().map_or(setting.trace, |program| &program.trace);
    let trace = implemented.as_deref().unwrap_or(trace);
    let sim = Sim::with_times(machine.clone(), times.clone());
    let mut manager = Manager::new(machine.clone(), Counting::new(sim, machine, times));
    if recording == Recording::On {
        manager.record();
    }
    let mut executor = Executor::new(trace).lookahead(lookahead);
    let mut play = |manager: &mut Manager<Counting>, policy: &mut dyn Policy| {
        executor.iterate(manager, policy).map_err(|error| located(name, trace, error))
    };
    let mut warmed = 0;
    while warmed < warmup || (warmed < PATIENCE && !policy.settled()) {
        play(&mut manager, policy.as_mut())?;
        warmed += 1;
    }
    let counting = manager.backend_mut(());
    counting.traffic.fill((Bytes::ZERO, Bytes::ZERO));
    counting.split = Split::default();
    let mut played = Vec::new();
    for _ in 0..iterations {
        played.push(play(&mut manager, policy.as_mut())?);
    }
    let n = u64::from(iterations.max(1));
    let each = |(read, write): &(Bytes, Bytes)| (Bytes(read.0 / n), Bytes(write.0 / n));
    Ok(Run {
        system: name.to_string(),
        machine: machine.clone(),
        iterations: played,
        warmup: warmed,
        totals: manager.totals().clone(),
        traffic: manager.backend().traffic.iter().map(each).collect(),
        split: manager.backend().split.each(n),
        planned,
        events: manager.take_events(),
        rewritten: rewritten.clone(),
        implemented: implemented.clone(),
    })
}

/// An error with the kernel that it came from.
fn located(system: &str, trace: &Trace, error: Error) -> SystemError {
    let step = match error {
        Error::Kernel { step, .. }
        | Error::WorkingSet { step, .. }
        | Error::Unwritten { step, .. }
        | Error::NotComputable { step, .. } => Some(step),
        _ => None,
    };
    let kernel = step.filter(|step| *step != Step::LOAD).and_then(|step| trace.kernels.get(step.0 as usize));
    SystemError::Run {
        system: system.to_string(),
        kernel: kernel.map(|k| k.name.clone()),
        error: Box::new(error),
    }
}

/// A world that sums the bytes that pass through every tier, and says what kernels took and why.
struct Counting {
    world: Sim,
    machine: Machine,
    times: Times,
    traffic: Vec<(Bytes, Bytes)>,
    split: Split,
}

impl Counting {
    fn new(world: Sim, machine: &Machine, times: &Times) -> Counting {
        let traffic = vec![(Bytes::ZERO, Bytes::ZERO); machine.tiers.len()];
        Counting { world, machine: machine.clone(), times: times.clone(), traffic, split: Split::default() }
    }
}

impl Backend for Counting {
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket {
        self.copy_paged(order, 1)
    }

    fn copy_paged(&mut self, order: CopyOrder<'_>, pages: u64) -> Ticket {
        self.traffic[order.from.tier.index()].0 += order.bytes;
        self.traffic[order.to.tier.index()].1 += order.bytes;
        self.world.copy_paged(order, pages)
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        self.world.done(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        self.world.wait(ticket)
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.world.cancel(ticket);
    }

    fn span(&self, ticket: Ticket) -> Option<Span> {
        self.world.span(ticket)
    }

    fn forget(&mut self, ticket: Ticket) {
        self.world.forget(ticket);
    }

    fn now(&self) -> Nanos {
        self.world.now()
    }
}

impl Counting {
    fn count(&mut self, work: &Work<'_>) {
        for traffic in work.traffic {
            let (read, write) = &mut self.traffic[traffic.tier.index()];
            *read += traffic.read;
            *write += traffic.write;
        }
    }
}

impl Locked for Counting {
    type Key = ();
}

impl World for Counting {
    unsafe fn key() {}

    unsafe fn load(&mut self, _tensor: &Tensor, _place: Place) -> Result<(), String> {
        Ok(())
    }

    unsafe fn compute(&mut self, work: &Work<'_>) -> Result<(), String> {
        self.count(work);
        let began = self.world.now();
        self.world.compute(work);
        let took = self.world.now().saturating_sub(began);
        self.split.add(&self.machine, &self.times, work, took);
        Ok(())
    }

    unsafe fn launch(&mut self, work: &Work<'_>) -> Result<Option<Ticket>, String> {
        self.count(work);
        Ok(self.world.launch(work))
    }

    fn measured(&self) -> bool {
        self.world.measured()
    }
}
