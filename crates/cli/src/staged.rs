//! A run on this machine's memory with real arithmetic, on data made up for it: what `tiercel run --on host` does.

use std::path::Path;

use tiercel_core::{Machine, TierId};
use tiercel_kernels::prepare;
use tiercel_report::Header;
use tiercel_systems::Setting;
use tiercel_train::{Settings, Synthetic, Task, room};
use tiercel_workload::{Lifetimes, Workload};

use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::run::{Choice, write_events};
use crate::scene::Scene;
use crate::wired::{self, Wired, emulated};

/// One thread for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs so many iterations, all of which count: what they compute must not depend on who decides.
pub fn run(
    scene: &Scene,
    machine: &Machine,
    choice: &Choice,
    iterations: u32,
    threads: usize,
    events: Option<&Path>,
) -> Result<Outcome, String> {
    let Workload::Program { program, batch } = &scene.workload else {
        return Err(format!(
            "{}: a trace says what is computed on, not how; `--on host` needs a network",
            scene.net
        ));
    };
    let task = Task::new(program.clone(), *batch, |program| prepare(program, threads));
    let trace = &task.training.trace;
    let machine = fitted(trace, choice, machine);
    let setting = Setting::of(&task.training, &machine, &scene.times).with(choice.options);
    let peak = Lifetimes::new(trace).peak().1;
    let Wired { task, machine, prepared, outlook } =
        Wired::new(&task, &machine, choice.prepare_for(setting)?);
    let trace = &task.training.trace;
    let settings = Settings { seed: choice.options.seed, ..Settings::default() };
    let mut trainer = wired::trainer(&task, &machine, prepared, Box::new(Synthetic), settings, threads)?;
    if events.is_some() {
        trainer.record_events();
    }
    let mut lessons = Vec::new();
    let progress = Progress::new(iterations as usize, "iterations");
    for _ in 0..iterations {
        lessons.push(trainer.iterate().map_err(|error| error.to_string())?);
        progress.tick();
    }
    drop(progress);
    if let Some(path) = events {
        let mut header = Header::measured(trace, &machine, choice.name(), |tier| trainer.emulated(tier));
        header.net = scene.net.clone();
        (header.batch, header.peak_bytes) = (Some(*batch), Some(peak));
        write_events(path, &header, &trainer.take_events())?;
    }
    let slowest = machine.tier(machine.slowest());
    Ok(Outcome {
        net: scene.net.clone(),
        batch: *batch,
        dtype: scene.dtype,
        data: trainer.about_data(),
        system: choice.name().to_string(),
        threads,
        seed: choice.options.seed,
        peak,
        fast: machine.tier(TierId(0)).capacity,
        slow: slowest.backing.to_string(),
        emulated: emulated(&trainer, &machine),
        outlook,
        lessons,
        totals: trainer.totals().clone(),
        score: None,
        hash: trainer.digest().map_err(|error| error.to_string())?,
        resumed: None,
        interrupted: false,
        checkpoint: None,
    })
}

/// The machine with no more of each slower tier than the trace could ever use: what a tier has is taken at once.
fn fitted(trace: &tiercel_workload::Trace, choice: &Choice, machine: &Machine) -> Machine {
    let mut machine = choice.system.map_or(machine.clone(), |system| system.machine(trace, machine));
    let ample = room::ample(trace, machine.grain());
    for tier in machine.tiers.iter_mut().skip(1) {
        tier.capacity = tier.capacity.min(ample);
    }
    machine
}
