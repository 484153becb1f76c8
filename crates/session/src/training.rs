//! Training on this machine's memory under one system: from a checkpoint or anew, to the end or until somebody has enough.

use std::path::PathBuf;

use tiercel_core::{Backing, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_systems::{Fast, Options, System};
use tiercel_train::{Data, Lesson, Schedule, Settings, Task, Trainer, checkpoint};
use tiercel_workload::{Lifetimes, Program};

use crate::ready::{Ready, emulated, trainer};
use crate::{Outcome, SessionError, Watch, machine};

/// What is to be trained, on what, and how long.
pub struct Training {
    /// What the network is called.
    pub net: String,
    /// The network.
    pub program: Program,
    /// Samples in a batch.
    pub batch: u64,
    /// How much fast memory there is.
    pub fast: Fast,
    /// What is behind the slow tier.
    pub slow: Backing,
    /// Who decides.
    pub system: &'static System,
    /// What can be chosen of the system.
    pub options: Options,
    /// Threads that compute; results do not depend on them.
    pub threads: usize,
    /// What is kept for a run that goes on from here.
    pub checkpoint: Option<Checkpointing>,
}

/// Where a checkpoint is, and when it is written.
pub struct Checkpointing {
    /// The file.
    pub path: PathBuf,
    /// After how many iterations it is written too, and not at the end alone.
    pub every: Option<u64>,
    /// Whether to go on from it where it is there.
    pub resume: bool,
}

impl Training {
    /// Trains on this data until so many iterations are done, those before a checkpoint included.
    pub fn run(
        self,
        data: Box<dyn Data>,
        until: u64,
        schedule: Schedule,
        watch: &dyn Watch,
    ) -> Result<Outcome, SessionError> {
        let threads = self.threads;
        let task = Task::new(self.program.clone(), self.batch, |program| prepare(program, threads));
        let peak = Lifetimes::new(&task.training.trace).peak().1;
        let machine = machine::for_task(&task, peak, self.fast, self.slow.clone())?;
        task.check(data.as_ref())?;
        let ready = Ready::plan(self.system, &task, machine, threads, self.options, watch)?;
        let Ready { task, machine, prepared, outlook } = ready;
        let settings = Settings { seed: self.options.seed, schedule, lookahead: 0 };
        let mut trainer = trainer(&task, &machine, prepared, data, settings, threads)?;
        let resumed = self.resume(&mut trainer, schedule, watch)?;
        let lessons = self.learn(&mut trainer, until, watch)?;
        let interrupted = trainer.iteration() < until;
        let checkpoint = match &self.checkpoint {
            Some(Checkpointing { path, .. }) => {
                trainer.save(path)?;
                Some(path.display().to_string())
            }
            None => None,
        };
        Ok(Outcome {
            net: self.net,
            batch: self.batch,
            data: trainer.about_data(),
            system: self.system.name.to_string(),
            threads,
            seed: trainer.seed(),
            peak,
            fast: machine.tier(TierId(0)).capacity,
            slow: machine.tier(machine.slowest()).backing.to_string(),
            emulated: emulated(&trainer, &machine),
            outlook,
            lessons,
            totals: trainer.totals().clone(),
            score: if interrupted { None } else { trainer.evaluate()? },
            hash: trainer.digest()?,
            resumed,
            interrupted,
            iterations: trainer.iteration(),
            checkpoint,
            events: None,
        })
    }

    /// Goes on from the checkpoint, where that was asked for and there is one.
    fn resume(
        &self,
        trainer: &mut Trainer<'_, Library>,
        schedule: Schedule,
        watch: &dyn Watch,
    ) -> Result<Option<u64>, SessionError> {
        let Some(Checkpointing { path, resume, .. }) = &self.checkpoint else { return Ok(None) };
        checkpoint::tidy(path)?;
        if !resume || !path.exists() {
            return Ok(None);
        }
        let progress = trainer.resume(path)?;
        if progress.schedule != schedule.to_string() {
            watch.remark(&format!(
                "the checkpoint was written under schedule {}; going on with {schedule}",
                progress.schedule
            ));
        }
        // The seed is 0 where nobody asked for one.
        let asked = self.options.seed;
        if asked != 0 && asked != progress.seed {
            watch.remark(&format!(
                "the checkpoint was written under seed {}; going on with that, not {asked}",
                progress.seed
            ));
        }
        Ok(Some(progress.iteration))
    }

    /// Trains until enough iterations are done, or somebody wants it to end.
    fn learn(
        &self,
        trainer: &mut Trainer<'_, Library>,
        until: u64,
        watch: &dyn Watch,
    ) -> Result<Vec<Lesson>, SessionError> {
        watch.learning();
        let mut lessons = Vec::new();
        while trainer.iteration() < until && !watch.stop() {
            let lesson = trainer.iterate()?;
            watch.learnt(trainer.iteration(), until, lesson.loss);
            lessons.push(lesson);
            if let Some(Checkpointing { path, every: Some(every), .. }) = &self.checkpoint
                && trainer.iteration().is_multiple_of(*every)
                && trainer.iteration() < until
            {
                trainer.save(path)?;
            }
        }
        Ok(lessons)
    }
}
