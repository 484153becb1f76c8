//! Trains: iteration after iteration on real memory, with evaluation, checkpoints and errors that say where.

use std::path::Path;

use tiercel_core::{Error, Machine, Manager, Policy, Step, TierId};
use tiercel_workload::{Program, Tensor};

use super::checkpoint::{self, Checkpoint, CheckpointError, Progress};
use super::data::{Data, Split};
use super::digest::Digest;
use super::error::TrainError;
use super::learner::{Fault, Guesses, Learner, Mode, Sink};
use super::rate::Schedule;
use super::task::Task;
use tiercel_run::executor::{Executor, Iteration};
use tiercel_run::host::Host;
use tiercel_run::profile::Profile;
use tiercel_run::stage::{Kernels, Stage, Turn};

/// What can be chosen of a training run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// What everything random follows from.
    pub seed: u64,
    /// The learning rate over time.
    pub schedule: Schedule,
    /// How many kernels ahead the policy hears what comes, so that copies run beside kernels.
    pub lookahead: usize,
}

/// What one iteration of training did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson {
    /// Iterations before it.
    pub iteration: u64,
    /// The sum of the network's losses.
    pub loss: f32,
    /// The factor on the learning rate.
    pub rate: f32,
    /// Time and traffic.
    pub figures: Iteration,
}

/// How well a network does on samples that it has not learnt from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The mean loss of a batch.
    pub loss: f64,
    /// Guesses that were right.
    pub right: u64,
    /// Guesses in all.
    pub guesses: u64,
}

impl Score {
    /// The share of guesses that were right.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.guesses.max(1) as f64
    }
}

/// Trains a network on the memory of this machine under a policy.
///
/// Losses and weights follow from the network, the data, the seed and the settings; which policy, which tiers and how
/// much fast memory changes time alone.
pub struct Trainer<'t, K: Kernels + 'static> {
    task: &'t Task,
    manager: Manager<Stage<Learner<K>>>,
    policy: Box<dyn Policy>,
    training: Executor<'t>,
    evaluation: Option<Executor<'t>>,
    settings: Settings,
    iteration: u64,
    position: u64,
}

impl<'t, K: Kernels + 'static> Trainer<'t, K> {
    /// A run before its first iteration. `kernels` is asked for the arithmetic of each program that will run.
    pub fn new<E: Into<String>>(
        task: &'t Task,
        machine: &Machine,
        policy: Box<dyn Policy>,
        data: Box<dyn Data>,
        settings: Settings,
        kernels: impl FnMut(&Program) -> Result<K, E>,
    ) -> Result<Trainer<'t, K>, TrainError> {
        task.check(data.as_ref())?;
        let learner = Learner::new(task, data, kernels).map_err(TrainError::Kernels)?;
        let host = Host::open(machine)?;
        let executor = |program: &'t Program| Executor::new(&program.trace).lookahead(settings.lookahead);
        Ok(Trainer {
            task,
            manager: Manager::new(machine.clone(), Stage::new(host, learner)),
            policy,
            training: executor(&task.training),
            evaluation: task.evaluation.as_deref().map(executor),
            settings,
            iteration: 0,
            position: 0,
        })
    }

    /// Goes on from a checkpoint instead of starting anew, with its seed and its place in the data; before the first
    /// iteration. Returns what the checkpoint says of the run.
    ///
    /// # Panics
    /// After the first iteration.
    pub fn resume(&mut self, path: &Path) -> Result<Progress, TrainError> {
        assert_eq!(self.iteration, 0, "a run goes on from a checkpoint before its first iteration");
        let saved = Checkpoint::open(path, &self.task.training)?;
        let progress = saved.progress.clone();
        self.iteration = progress.iteration;
        self.position = progress.position;
        self.settings.seed = progress.seed;
        self.learner().checkpoint = Some(saved);
        self.prepare()?;
        self.learner().checkpoint = None;
        Ok(progress)
    }

    /// Whether the policy has learnt what it wanted to learn.
    pub fn settled(&self) -> bool {
        self.policy.settled()
    }

    /// Iterations done, those before a checkpoint included.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// The seed of the run: that of the checkpoint, where it was resumed from one.
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Samples in an epoch; `None` where the data never ends.
    pub fn epoch(&self) -> Option<u64> {
        self.manager.backend().kernels().samples(Split::Train)
    }

    /// What is learnt from, in a few words.
    pub fn about_data(&self) -> String {
        self.manager.backend().kernels().about_data()
    }

    /// What has moved and waited so far.
    pub fn totals(&self) -> &tiercel_core::Totals {
        self.manager.totals()
    }

    /// Whether a tier is plain memory slowed down to stand in for another; reports must say so.
    pub fn emulated(&self, tier: TierId) -> bool {
        self.manager.backend().host().emulated(tier)
    }

    /// Whether a tier is a file with the system's cache in its way.
    pub fn buffered(&self, tier: TierId) -> bool {
        self.manager.backend().host().buffered(tier)
    }

    /// Starts to keep what happens.
    pub fn record_events(&mut self) {
        self.manager.record();
    }

    /// What has happened since, so far.
    pub fn take_events(&mut self) -> Vec<tiercel_core::Stamped> {
        self.manager.take_events()
    }

    /// Starts to record how long each kernel of the training iteration takes with its operands where they are.
    pub fn record_times(&mut self) {
        Stage::times(&mut self.manager).get_or_insert_default();
    }

    /// The times recorded so far, and stops recording.
    pub fn take_times(&mut self) -> Profile {
        Stage::times(&mut self.manager).take().unwrap_or_default()
    }

    /// Trains on the next batch. After an error nothing more can be trained.
    pub fn iterate(&mut self) -> Result<Lesson, TrainError> {
        let turn = self.turn();
        let position = self.position;
        self.learner().begin(Mode::Training, position, turn);
        let figures = match self.training.iterate(&mut self.manager, self.policy.as_mut()) {
            Ok(figures) => figures,
            Err(error) => return Err(self.explain(error, turn)),
        };
        let loss = self.learner().losses.iter().sum();
        let lesson = Lesson { iteration: self.iteration, loss, rate: turn.rate, figures };
        self.iteration += 1;
        self.position += self.task.batch;
        Ok(lesson)
    }

    /// How well the network does on the samples to be judged by; `None` where there are none, or no labels.
    pub fn evaluate(&mut self) -> Result<Option<Score>, TrainError> {
        let batch = self.task.batch.max(1);
        let samples = self.learner().samples(Split::Test).unwrap_or(0);
        if samples == 0 || self.evaluation.is_none() {
            return Ok(None);
        }
        self.prepare()?;
        let Some(mut executor) = self.evaluation.take() else { return Ok(None) };
        executor.adopt(&self.training);
        let times = Stage::times(&mut self.manager).take();
        let score = self.judge(&mut executor, samples, batch);
        *Stage::times(&mut self.manager) = times;
        self.evaluation = Some(executor);
        score.map(Some)
    }

    fn judge(&mut self, executor: &mut Executor<'t>, samples: u64, batch: u64) -> Result<Score, TrainError> {
        let turn = self.turn();
        // Where time is outermost the samples of a batch are not apart, so only whole batches are counted.
        let samples = if self.task.time_first() { samples.next_multiple_of(batch) } else { samples };
        self.learner().guesses = Guesses::default();
        let mut losses = 0.0;
        let passes = samples.div_ceil(batch);
        for pass in 0..passes {
            let counted = batch.min(samples - pass * batch);
            self.learner().begin(Mode::Evaluation { counted }, pass * batch, turn);
            let played = executor.iterate(&mut self.manager, self.policy.as_mut());
            played.map_err(|error| self.located(error, self.task.evaluation.as_deref()))?;
            losses += self.learner().losses.iter().map(|loss| f64::from(*loss)).sum::<f64>();
        }
        let Guesses { right, all } = self.learner().guesses;
        Ok(Score { loss: losses / passes as f64, right, guesses: all })
    }

    /// Writes a checkpoint: weights, optimizer state and where the run is. The file is replaced as a whole or not at
    /// all.
    pub fn save(&mut self, path: &Path) -> Result<(), TrainError> {
        self.prepare()?;
        let factor = self.settings.schedule.factor(self.iteration.saturating_sub(1));
        let progress = Progress {
            iteration: self.iteration,
            position: self.position,
            seed: self.settings.seed,
            schedule: self.settings.schedule.to_string(),
            rate: self.task.rate().map_or("none".to_string(), |rate| (rate * factor).to_string()),
        };
        let failed = |error| CheckpointError::File { path: path.to_path_buf(), error };
        let writer = checkpoint::create(path, &self.task.training, &progress).map_err(failed)?;
        if let Sink::File(writer) = self.pour(Sink::File(writer))? {
            writer.finish().map_err(failed)?;
        }
        Ok(())
    }

    /// A checksum of weights and optimizer state: equal for equal results.
    pub fn digest(&mut self) -> Result<u64, TrainError> {
        self.prepare()?;
        match self.pour(Sink::Digest(Digest::default()))? {
            Sink::Digest(digest) => Ok(digest.value()),
            _ => unreachable!("the sink that went in comes out"),
        }
    }

    fn learner(&mut self) -> &mut Learner<K> {
        Stage::kernels_of(&mut self.manager)
    }

    /// What the coming iteration is.
    fn turn(&self) -> Turn {
        let Settings { seed, schedule, .. } = self.settings;
        Turn { seed, iteration: self.iteration, rate: schedule.factor(self.iteration) }
    }

    /// Sees to it that weights and state exist.
    fn prepare(&mut self) -> Result<(), TrainError> {
        let (position, turn) = (self.position, self.turn());
        self.learner().begin(Mode::Training, position, turn);
        let prepared = self.training.prepare(&mut self.manager, self.policy.as_mut());
        prepared.map_err(|error| self.located(error, None))
    }

    /// Lets everything that is kept flow into a sink.
    fn pour(&mut self, sink: Sink) -> Result<Sink, TrainError> {
        self.learner().sink = sink;
        let (program, ids) = (&self.task.training, checkpoint::kept(&self.task.training));
        // Parts of a tensor come one after the other where the whole would.
        let rank = |tensor: &Tensor| {
            let (whole, start) = program.graph.whole(*ids.get(&tensor.name)?);
            Some((&program.graph.value(whole).name, start))
        };
        let poured = self.training.save(&mut self.manager, self.policy.as_mut(), rank);
        let sink = std::mem::replace(&mut self.learner().sink, Sink::None);
        poured.map_err(|error| self.located(error, None))?;
        Ok(sink)
    }

    /// An error with the iteration and the kernel that it came from.
    fn located(&self, error: Error, program: Option<&Program>) -> TrainError {
        let step = match error {
            Error::Kernel { step, .. }
            | Error::WorkingSet { step, .. }
            | Error::NotComputable { step, .. } => Some(step),
            _ => None,
        };
        let node = step.filter(|step| *step != Step::LOAD).and_then(|step| {
            program.and_then(|program| program.graph.nodes.get(step.0 as usize)).map(|node| node.name.clone())
        });
        TrainError::Run { iteration: self.iteration, kernel: node, error: Box::new(error) }
    }

    /// What an iteration failed with. Where a loss or a gradient is no number, the iteration is played again from
    /// the same weights with every tensor looked at, to tell where that came from.
    fn explain(&mut self, error: Error, turn: Turn) -> TrainError {
        let Some(seen) = self.learner().fault.take() else {
            return self.located(error, Some(&self.task.training));
        };
        let updating = self.task.training.node(seen.step).op.optimizer().is_some();
        let first = if updating { None } else { self.search(turn) };
        self.not_finite(first.unwrap_or(seen))
    }

    fn search(&mut self, turn: Turn) -> Option<Fault> {
        self.training.abandon(&mut self.manager, self.policy.as_mut()).ok()?;
        let position = self.position;
        self.learner().begin(Mode::Searching, position, turn);
        let _ = self.training.iterate(&mut self.manager, self.policy.as_mut());
        self.learner().fault.take()
    }

    fn not_finite(&self, fault: Fault) -> TrainError {
        let Fault { step, tensor, element, value, given } = fault;
        let kernel = self.task.training.node(step).name.clone();
        TrainError::NotFinite { iteration: self.iteration, step, kernel, tensor, element, value, given }
    }
}
