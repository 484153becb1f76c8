//! A system wired up to train on real memory: whoever plans ahead is told how long kernels take here, and what a system
//! makes of a program is what is trained.

use std::borrow::Cow;

use tiercel_core::{Machine, Nanos};
use tiercel_kernels::Library;
use tiercel_profile::{Kept, measured::beside_measured_times};
use tiercel_systems::{Options, Prepared, Setting, System, Times};
use tiercel_train::{Data, Settings, Task, Trainer};
use tiercel_workload::trace::Derived;

use crate::measure::{Care, measure};
use crate::{SessionError, Watch, machine};

/// A system that is ready to train a task on a machine.
pub struct Ready<'t> {
    /// What is trained: the task as it was given, or what the system made of it.
    pub task: Cow<'t, Task>,
    /// On what.
    pub machine: Machine,
    /// Who decides.
    pub prepared: Prepared,
    /// What the system expects of itself.
    pub outlook: Outlook,
}

/// What a system that plans ahead expects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// The time of an iteration, where the system planned one.
    pub planned: Option<Nanos>,
    /// Kernels that run again because what they made was dropped.
    pub again: usize,
    /// Kernels that work on a part of a batch.
    pub parts: usize,
}

impl<'t> Ready<'t> {
    /// What has been prepared for a task, with what the system made of it.
    pub fn new(task: &'t Task, machine: &Machine, mut prepared: Prepared) -> Ready<'t> {
        let rewritten = prepared.rewritten.take();
        let task = rewritten.map_or(Cow::Borrowed(task), |program| Cow::Owned(task.played_as(program)));
        let planned = prepared.planned.as_ref().map(|p| Nanos(p.plan.iteration_ns.round() as u64));
        let count = |which: fn(&Derived) -> bool| {
            task.training.trace.kernels.iter().filter(|kernel| which(&kernel.derived)).count()
        };
        let (again, parts) = (count(|derived| derived.again), count(|derived| derived.part));
        Ready {
            task,
            machine: prepared.staffed(machine),
            prepared,
            outlook: Outlook { planned, again, parts },
        }
    }

    /// Wires a system up for a task that was prepared for so many threads. For one that plans ahead, the speeds of the
    /// memories and the times of the kernels are measured here, where they are not known yet.
    pub fn plan(
        system: &System,
        task: &'t Task,
        machine: Machine,
        threads: usize,
        options: Options,
        watch: &dyn Watch,
    ) -> Result<Ready<'t>, SessionError> {
        let program = &task.training;
        let times = Times::new(tiercel_sim::Roofline);
        let mut setting = Setting::of(program, &machine, &times).with(options);
        if !system.plans {
            return Ok(Ready::new(task, &machine, system.prepare(&setting)?));
        }
        let machine = machine::as_probed(machine.clone(), watch)?;
        let timed = measure(program, &machine, threads, &mut Kept::open(threads), Care::default(), watch)?;
        let (model, times) = (beside_measured_times(&machine), Times::new(timed.told(watch)));
        (setting.machine, setting.times) = (&model, &times);
        let planning = watch.begin("planning", None);
        let prepared = system.prepare(&setting)?;
        drop(planning);
        Ok(Ready::new(task, &machine, prepared))
    }
}

/// Starts to train.
pub fn trainer<'t>(
    task: &'t Task,
    machine: &Machine,
    prepared: Prepared,
    data: Box<dyn Data>,
    settings: Settings,
    threads: usize,
) -> Result<Trainer<'t, Library>, SessionError> {
    let settings = Settings { lookahead: prepared.lookahead, ..settings };
    let library = |program: &_| Library::new(program, threads);
    Ok(Trainer::new(task, machine, prepared.policy, data, settings, library)?)
}

/// The tiers of a machine that are emulated, by their names.
pub fn emulated(trainer: &Trainer<'_, Library>, machine: &Machine) -> Vec<String> {
    let tiers = machine.tier_ids().filter(|tier| trainer.emulated(*tier));
    tiers.map(|tier| machine.tier(tier).name.clone()).collect()
}
