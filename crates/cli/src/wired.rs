//! A system wired up to train on real memory: whoever plans ahead is told how long kernels take here, and what a system
//! makes of a program is what is trained.

use std::borrow::Cow;

use tiercel_core::{Machine, Nanos};
use tiercel_kernels::Library;
use tiercel_profile::Kept;
use tiercel_systems::{Options, Prepared, Setting, System, Times};
use tiercel_train::{Data, Settings, Task, Trainer};
use tiercel_workload::rewriting::{is_again, is_part};

use crate::machine;
use crate::progress::Progress;
use crate::timing;

/// A system that is ready to train a task on a machine.
pub struct Wired<'t> {
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

impl<'t> Wired<'t> {
    /// What has been prepared for a task, with what the system made of it.
    pub fn new(task: &'t Task, machine: &Machine, mut prepared: Prepared) -> Wired<'t> {
        let rewritten = prepared.rewritten.take();
        let task = rewritten.map_or(Cow::Borrowed(task), |program| Cow::Owned(task.played_as(program)));
        let planned = prepared.planned.as_ref().map(|p| Nanos(p.plan.iteration_ns.round() as u64));
        let count = |which: fn(&str) -> bool| {
            task.training.trace.kernels.iter().filter(|kernel| which(&kernel.name)).count()
        };
        let (again, parts) = (count(is_again), count(is_part));
        Wired {
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
    ) -> Result<Wired<'t>, String> {
        let program = &task.training;
        let times = Times::new(tiercel_sim::Roofline);
        let mut setting = Setting::of(program, &machine, &times).with(options);
        if !system.plans {
            let prepared = system.prepare(&setting).map_err(|error| error.to_string())?;
            return Ok(Wired::new(task, &machine, prepared));
        }
        let machine = machine::as_probed(machine.clone())?;
        let measured =
            timing::measure(program, &machine, threads, &mut Kept::open(threads), (false, false))?.told();
        let (model, times) =
            (tiercel_profile::measured::beside_measured_times(&machine), Times::new(measured));
        (setting.machine, setting.times) = (&model, &times);
        let progress = Progress::alone("planning");
        let prepared = system.prepare(&setting).map_err(|error| error.to_string())?;
        drop(progress);
        Ok(Wired::new(task, &machine, prepared))
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
) -> Result<Trainer<'t, Library>, String> {
    let settings = Settings { lookahead: prepared.lookahead, ..settings };
    let library = |program: &_| Library::new(program, threads);
    Trainer::new(task, machine, prepared.policy, data, settings, library).map_err(|error| error.to_string())
}

/// The tiers of a machine that are emulated, by their names.
pub fn emulated(trainer: &Trainer<'_, Library>, machine: &Machine) -> Vec<String> {
    let tiers = machine.tier_ids().filter(|tier| trainer.emulated(*tier));
    tiers.map(|tier| machine.tier(tier).name.clone()).collect()
}
