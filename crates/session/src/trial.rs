//! Systems beside each other on real memory: a network trained on little fast memory under each, from the same weights on the
//! same data, so the losses must be the same bits.
//!
//! Everything in fast memory comes first: it is the goal, and its kernel times are what plans and predictions go by. Then
//! the same iterations run under each system. The systems take turns, an iteration each, so that a machine that others make
//! slower for a while is slower for all of them (`turns.rs`).
//!
//! Then the network is trained to the end under Tiercel and, beside it, with everything in fast memory: what it has learnt must
//! be the same bits, and shows on data that it has not seen.

use std::borrow::Cow;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_profile::Measured;
use tiercel_profile::measured::beside_measured_times;
use tiercel_report::{Row, Run};
use tiercel_systems::{Options, Prepared, Setting, Times, named, predict, with_best_lookahead};
use tiercel_train::{Data, Schedule, Score, Settings, Task, Trainer};
use tiercel_workload::{Lifetimes, Program};

use crate::turns::{self, Entrant};
use crate::{Ready, SessionError, Watch, ready};

/// The systems beside having all memory fast, the default first.
pub const SYSTEMS: [&str; 9] = [
    "tiercel",
    "autotm-async",
    "autotm-sync",
    "cachedarrays-lm",
    "cachedarrays-lmp",
    "sentinel",
    "capuchin",
    "first-touch",
    "slow-only",
];

/// What the program that Tiercel makes of the one it is given takes with all memory fast.
const REWRITTEN: &str = "tiercel, all fast";

/// What is tried.
pub struct Trial<'a> {
    /// The network's name.
    pub net: &'a str,
    /// The network.
    pub program: Program,
    /// Samples in a batch.
    pub batch: u64,
    /// A fast tier of the size that was asked for, and a slow one.
    pub machine: &'a dyn Fn(&Task) -> Result<Machine, SessionError>,
    /// A fresh copy of the data.
    pub data: &'a dyn Fn() -> Result<Box<dyn Data>, SessionError>,
    /// Iterations that are compared.
    pub iterations: u32,
    /// Those after which the network has learnt enough, with how the learning rate goes; `None` where it need not learn.
    pub learning: Option<(u64, Schedule)>,
    /// Threads that compute.
    pub threads: usize,
    /// Where chance starts.
    pub seed: u64,
}

/// One system's run.
pub struct Played {
    /// Its row in a table.
    pub row: Row,
    /// What happened in its last iteration that was compared; Tiercel's alone.
    pub run: Option<Run>,
    /// What the network has come to, where it was trained to the end.
    pub learnt: Option<Learnt>,
}

/// What a network has come to.
pub struct Learnt {
    /// The losses of the iterations beyond those that are compared.
    pub losses: Vec<f32>,
    /// Iterations in all.
    pub iterations: u64,
    /// Of all weights at the end.
    pub hash: u64,
    /// What these iterations took.
    pub time: Nanos,
    /// What it knows of data that it has not seen.
    pub score: Option<Score>,
}

impl Trial<'_> {
    /// Runs everything. The first to come is all memory fast, the goal; losses are the same bits under all.
    pub fn run(&self, watch: &dyn Watch) -> Result<Vec<Played>, SessionError> {
        let learning = self.learning.map_or(0, |(until, _)| until.saturating_sub(self.iterations.into()));
        let steps = SYSTEMS.len() + 2 + self.iterations as usize + learning as usize;
        let progress = watch.begin("comparing systems", Some(steps));
        let task = Task::new(self.program.clone(), self.batch, |program| prepare(program, self.threads));
        let machine = (self.machine)(&task)?;
        let peak = Lifetimes::new(&task.training.trace).peak().1;
        let goal = named("fast-only")?;
        let ample = goal.machine(&task.training.trace, &machine);
        let measured = self.measure(&task, &ample)?;
        progress.tick();
        let failed = |name, machine, error: &SessionError| Played {
            row: Row { error: Some(error.to_string()), ..self.row(name, machine, peak.0) },
            run: None,
            learnt: None,
        };
        let (mut entrants, mut ready, mut played) = (Vec::new(), Vec::new(), Vec::new());
        for (at, name) in ["fast-only"].into_iter().chain(SYSTEMS).enumerate() {
            let machine = if at == 0 { &ample } else { &machine };
            match self.enter(name, &task, machine, &measured) {
                Ok((entrant, prepared)) => {
                    let rewritten =
                        matches!(entrant.task, Cow::Owned(_)).then(|| entrant.task.clone().into_owned());
                    entrants.push((at, entrant));
                    ready.push(prepared);
                    if let Some(task) = rewritten {
                        let (entrant, prepared) = self.all_fast(task, machine, &measured)?;
                        entrants.push((at, entrant));
                        ready.push(prepared);
                    }
                }
                Err(error) if at == 0 => return Err(error),
                Err(error) => played.push((at, failed(name, machine, &error))),
            }
            progress.tick();
        }
        let results = turns::play(self, &entrants, ready, peak.0, || progress.tick());
        for (result, (at, entrant)) in results.into_iter().zip(&entrants) {
            let result = match result {
                Err(error) if *at == 0 => return Err(error),
                result => result.unwrap_or_else(|error| failed(entrant.name, &entrant.machine, &error)),
            };
            played.push((*at, result));
        }
        drop(progress);
        played.sort_by_key(|(at, _)| *at);
        let mut played: Vec<Played> = played.into_iter().map(|(_, played)| played).collect();
        let fast_ns = played[0].row.time().map(|time| time.0);
        for row in played.iter_mut().map(|played| &mut played.row).filter(|row| row.error.is_none()) {
            row.fast_only_ns = fast_ns;
            row.slowdown = row.time().zip(fast_ns).map(|(t, fast)| t.0 as f64 / fast.max(1) as f64);
        }
        if same_bits(&played) { Ok(played) } else { Err(SessionError::Differ) }
    }

    /// Kernel times with everything in fast memory.
    fn measure(&self, task: &Task, machine: &Machine) -> Result<Times, SessionError> {
        let policy = tiercel_policies::by_name("fast-only").expect("it is built in");
        let mut trainer = self.trainer(task, machine, Prepared::plain(policy))?;
        trainer.iterate()?;
        trainer.record_times();
        for _ in 0..self.iterations.clamp(2, 10) {
            trainer.iterate()?;
        }
        Ok(Times::new(Measured::of_run(&task.training.trace, &trainer.take_times())))
    }

    pub(crate) fn trainer<'t>(
        &self,
        task: &'t Task,
        machine: &Machine,
        prepared: Prepared,
    ) -> Result<Trainer<'t, Library>, SessionError> {
        let schedule = self.learning.map_or(Schedule::Constant, |(_, schedule)| schedule);
        let settings = Settings { seed: self.seed, schedule, ..Settings::default() };
        ready::trainer(task, machine, prepared, (self.data)()?, settings, self.threads)
    }

    pub(crate) fn row(&self, system: &str, machine: &Machine, peak: u64) -> Row {
        let fast: Bytes = machine.tier(TierId(0)).capacity;
        Row {
            net: self.net.to_string(),
            batch: Some(self.batch),
            machine: "here".to_string(),
            system: system.to_string(),
            on: "host".to_string(),
            measured: true,
            fast_fraction: Some(fast.0 as f64 / peak.max(1) as f64),
            fast_bytes: fast,
            ..Row::default()
        }
    }

    /// Predicts a system, and makes it ready to run.
    fn enter<'t>(
        &self,
        system: &str,
        task: &'t Task,
        machine: &Machine,
        times: &Times,
    ) -> Result<(Entrant<'t>, Prepared), SessionError> {
        let model = beside_measured_times(machine);
        let system = named(system)?;
        let options = Options { seed: self.seed, ..Options::default() };
        let setting = Setting::of(&task.training, &model, times).with(options);
        let options = with_best_lookahead(system, &setting)?;
        let (predicted, prepared) = predict(system, &setting.with(options))?;
        let Ready { task, machine, prepared, .. } = Ready::new(task, machine, prepared);
        Ok((Entrant { name: system.name, task, machine, predicted: predicted.time() }, prepared))
    }

    /// What Tiercel made of the task, with everything in fast memory: how much of what it costs or gains is in the program.
    fn all_fast<'t>(
        &self,
        task: Task,
        machine: &Machine,
        times: &Times,
    ) -> Result<(Entrant<'t>, Prepared), SessionError> {
        let goal = named("fast-only")?;
        let machine = goal.machine(&task.training.trace, machine);
        let model = beside_measured_times(&machine);
        let setting = Setting::of(&task.training, &model, times);
        let (run, prepared) = predict(goal, &setting)?;
        let (name, predicted) = (REWRITTEN, run.time());
        Ok((Entrant { name, task: Cow::Owned(task), machine, predicted }, prepared))
    }
}

/// Whether all that ran came to the same bits, as far as each went.
fn same_bits(played: &[Played]) -> bool {
    let losses = |p: &Played| p.row.loss.iter().map(|l| l.to_bits()).collect::<Vec<_>>();
    let ran: Vec<&Played> = played.iter().filter(|p| p.row.error.is_none()).collect();
    let Some(first) = ran.first() else { return true };
    let goal = losses(first);
    let common = |p: &&Played| {
        let own = losses(p);
        let both = own.len().min(goal.len());
        own[..both] == goal[..both]
    };
    ran.iter().all(common) && same_learnt(&ran)
}

/// Whether those that trained to the end came to the same bits.
fn same_learnt(ran: &[&Played]) -> bool {
    let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    // A system that needs iterations to learn how to move has had more of them before.
    let mut ends = ran.iter().filter_map(|p| p.learnt.as_ref());
    let Some(first) = ends.next() else { return true };
    ends.all(|learnt| {
        let both = learnt.losses.len().min(first.losses.len());
        let last = |losses: &[f32]| bits(&losses[losses.len() - both..]);
        // Where each was warmed up for as long, or trained to the end, weights are the same, too.
        let same = learnt.iterations != first.iterations || learnt.hash == first.hash;
        same && last(&learnt.losses) == last(&first.losses)
    })
}
