//! Systems that take turns, an iteration each; only where memory is too small for all at once do they run one after the other.

use std::borrow::Cow;

use tiercel_core::{Bytes, Machine, Nanos, Stamped, TierId};
use tiercel_kernels::Library;
use tiercel_report::{Header, Log, Row, Run};
use tiercel_run::host::supply;
use tiercel_systems::Prepared;
use tiercel_train::{Lesson, Task, Trainer};

use crate::SessionError;
use crate::ready::emulated;
use crate::trial::{Learnt, Played, Trial};

/// Iterations after which a system that still learns is taken as it is.
const PATIENCE: u32 = 24;

/// Those that train to the end: what Tiercel makes of little memory must be what comes of enough.
const LEARNERS: [&str; 2] = ["fast-only", "tiercel"];

/// A system that will run.
pub(crate) struct Entrant<'t> {
    /// What its row is called.
    pub(crate) name: &'static str,
    /// What is trained: the task as it was given, or what the system made of it.
    pub(crate) task: Cow<'t, Task>,
    pub(crate) machine: Machine,
    pub(crate) predicted: Nanos,
}

/// A system that runs.
struct Turns<'t> {
    entrant: &'t Entrant<'t>,
    trainer: Trainer<'t, Library>,
    /// The iterations up to those that are compared.
    lessons: Vec<Lesson>,
    /// Those after them.
    learnt: Vec<Lesson>,
    /// The result of those that are compared.
    compared: Option<u64>,
    events: Vec<Stamped>,
}

/// Runs all systems, side by side where memory is large enough for that.
pub(crate) fn play(
    trial: &Trial<'_>,
    entrants: &[(usize, Entrant<'_>)],
    ready: Vec<Prepared>,
    peak: u64,
    mut tick: impl FnMut(),
) -> Vec<Result<Played, SessionError>> {
    let memory = entrants.iter().flat_map(|(_, entrant)| &entrant.machine.tiers);
    let memory: Bytes = memory.filter(|tier| tier.computable).map(|tier| tier.capacity).sum();
    let at_once = if memory.0 <= supply::memory().0 / 2 { entrants.len().max(1) } else { 1 };
    let mut ready = ready.into_iter();
    let mut all = Vec::new();
    for group in entrants.chunks(at_once) {
        let mut running: Vec<Result<Turns<'_>, SessionError>> = Vec::new();
        for ((_, entrant), prepared) in group.iter().zip(ready.by_ref()) {
            running.push(Turns::start(trial, entrant, prepared));
        }
        for round in 0..trial.iterations {
            for turns in &mut running {
                if let Ok(going) = turns
                    && let Err(error) = going.take(round + 1 == trial.iterations)
                {
                    *turns = Err(error);
                }
            }
            if at_once > 1 {
                tick();
            }
        }
        learn(trial, &mut running, &mut tick);
        all.extend(running.into_iter().map(|turns| turns.and_then(|turns| turns.finish(trial, peak))));
    }
    all
}

/// Goes on, in turns, with those that are to train to the end.
fn learn(trial: &Trial<'_>, running: &mut [Result<Turns<'_>, SessionError>], tick: &mut impl FnMut()) {
    let Some((until, _)) = trial.learning else { return };
    loop {
        let mut ended = true;
        for turns in running.iter_mut() {
            let Ok(going) = turns else { continue };
            if !LEARNERS.contains(&going.entrant.name) || going.trainer.iteration() >= until {
                continue;
            }
            if let Err(error) = going.learn() {
                *turns = Err(error);
            }
            ended = false;
        }
        if ended {
            return;
        }
        tick();
    }
}

impl<'t> Turns<'t> {
    /// Begins a system's run with the iterations that do not count.
    fn start(
        trial: &Trial<'_>,
        entrant: &'t Entrant<'t>,
        prepared: Prepared,
    ) -> Result<Turns<'t>, SessionError> {
        let warmup = prepared.warmup;
        let trainer = trial.trainer(&entrant.task, &entrant.machine, prepared)?;
        let (lessons, learnt, events) = (Vec::new(), Vec::new(), Vec::new());
        let mut turns = Turns { entrant, trainer, lessons, learnt, compared: None, events };
        let mut taken = 0;
        while taken < warmup || (taken < PATIENCE && !turns.trainer.settled()) {
            turns.take(false)?;
            taken += 1;
        }
        Ok(turns)
    }

    /// One iteration; what happens in the last one is kept.
    fn take(&mut self, last: bool) -> Result<(), SessionError> {
        if last {
            self.trainer.record_events();
        }
        self.lessons.push(self.trainer.iterate()?);
        if last {
            self.events = self.trainer.take_events();
        }
        Ok(())
    }

    /// One iteration beyond those that are compared.
    fn learn(&mut self) -> Result<(), SessionError> {
        if self.compared.is_none() {
            self.compared = Some(self.trainer.digest()?);
        }
        self.learnt.push(self.trainer.iterate()?);
        Ok(())
    }

    /// What a run that is over has to show.
    fn finish(self, trial: &Trial<'_>, peak: u64) -> Result<Played, SessionError> {
        let Turns { entrant, mut trainer, lessons, learnt, compared, events } = self;
        let (system, machine) = (entrant.name, &entrant.machine);
        let counted = &lessons[lessons.len() - trial.iterations as usize..];
        let mut row = Row { emulated: emulated(&trainer, machine), ..trial.row(system, machine, peak) };
        row.iteration_ns = counted.iter().map(|l| l.figures.time.0).collect();
        row.loss = lessons.iter().map(|l| f64::from(l.loss)).collect();
        row.fetched_bytes = counted.iter().map(|l| l.figures.fetched).sum();
        row.evicted_bytes = counted.iter().map(|l| l.figures.evicted).sum();
        row.stall_ns = counted.iter().map(|l| l.figures.stall.0).sum();
        row.peak_fast_bytes = trainer.totals().peak.first().copied().unwrap_or_default();
        row.predicted_ns = Some(entrant.predicted.0);
        let slowed_down = |tier: TierId| trainer.emulated(tier);
        let mut header = Header::measured(&entrant.task.training.trace, machine, system, slowed_down);
        (header.batch, header.peak_bytes) = (Some(trial.batch), Some(Bytes(peak)));
        let run = (system == "tiercel").then(|| Run::new(Log::new(header, &events)));
        let hash = trainer.digest()?;
        row.output_hash = Some(format!("{:016x}", compared.unwrap_or(hash)));
        let learnt = match LEARNERS.contains(&system) {
            false => None,
            true => Some(Learnt {
                losses: learnt.iter().map(|lesson| lesson.loss).collect(),
                iterations: trainer.iteration(),
                hash,
                time: learnt.iter().map(|lesson| lesson.figures.time).sum(),
                score: trainer.evaluate()?,
            }),
        };
        Ok(Played { row, run, learnt })
    }
}
