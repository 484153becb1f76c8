//! The main job: a network trained for real on a fifth of the fast memory that it wants, under Tiercel and beside others.
//!
//! Everything in fast memory comes first: it is the goal, and its kernel times are what plans and predictions go by. Then
//! the same iterations run under each system, from the same weights on the same data, so the losses must be the same bits.
//! The systems take turns, an iteration each, so that a machine that others make slower for a while is slower for all of
//! them; only where memory is too small for all at once do they run one after the other.
//!
//! Then the network is trained to the end under Tiercel and, beside it, with everything in fast memory: what it has learnt must
//! be the same bits, and shows on data that it has not seen.

use std::borrow::Cow;
use std::path::Path;

use serde_json::json;
use tiercel_core::{Bytes, Machine, Nanos, Stamped, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_profile::Measured;
use tiercel_report::{Comparison, Header, Log, Report, Row, Run};
use tiercel_run::host::supply;
use tiercel_systems::{Options, Prepared, Setting, Times, named, predict, with_best_lookahead};
use tiercel_train::{Data, Lesson, Schedule, Score, Settings, Task, Trainer};
use tiercel_workload::{Lifetimes, Program};

use crate::figures::counted;
use crate::files;
use crate::progress::Progress;
use crate::wired::{self, Wired};

/// The systems beside having all memory fast, the default first.
const SYSTEMS: [&str; 9] = [
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

/// Iterations after which a system that still learns is taken as it is.
const PATIENCE: u32 = 24;

/// What is tried.
pub struct Trial<'a> {
    /// The network's name.
    pub net: &'a str,
    /// The network.
    pub program: Program,
    /// Samples in a batch.
    pub batch: u64,
    /// A fast tier of the size that was asked for, and a slow one.
    pub machine: &'a dyn Fn(&Task) -> Result<Machine, String>,
    /// A fresh copy of the data.
    pub data: &'a dyn Fn() -> Result<Box<dyn Data>, String>,
    /// Iterations that are compared.
    pub iterations: u32,
    /// Those after which the network has learnt enough, with how the learning rate goes; `None` where it need not learn.
    pub learning: Option<(u64, Schedule)>,
    /// Threads that compute.
    pub threads: usize,
    /// Where chance starts.
    pub seed: u64,
    /// Where the page goes.
    pub html: &'a Path,
    /// One JSON document instead of the table.
    pub json: bool,
}

/// A system that will run.
struct Entrant<'t> {
    /// What its row is called.
    name: &'static str,
    /// What is trained: the task as it was given, or what the system made of it.
    task: Cow<'t, Task>,
    machine: Machine,
    predicted: Nanos,
}

/// Those that train to the end: what Tiercel makes of little memory must be what comes of enough.
const LEARNERS: [&str; 2] = ["fast-only", "tiercel"];

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

/// One system's run.
struct Played {
    row: Row,
    run: Option<Run>,
    learnt: Option<Learnt>,
}

/// What a network has come to.
struct Learnt {
    losses: Vec<f32>,
    iterations: u64,
    /// Of all weights at the end.
    hash: u64,
    time: Nanos,
    score: Option<Score>,
}

impl Trial<'_> {
    /// Runs everything; the text to print.
    pub fn run(&self) -> Result<String, String> {
        files::check(self.html)?;
        let learning = self.learning.map_or(0, |(until, _)| until.saturating_sub(self.iterations.into()));
        let steps = SYSTEMS.len() + 2 + self.iterations as usize + learning as usize;
        let progress = Progress::new(steps, "comparing systems");
        let task = Task::new(self.program.clone(), self.batch, |program| prepare(program, self.threads));
        let machine = (self.machine)(&task)?;
        let peak = Lifetimes::new(&task.training.trace).peak().1;
        let goal = named("fast-only").map_err(|e| e.to_string())?;
        let ample = goal.machine(&task.training.trace, &machine);
        let measured = self.measure(&task, &ample)?;
        progress.tick();
        let failed = |name, machine, error| Played {
            row: Row { error: Some(error), ..self.row(name, machine, peak.0) },
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
                Err(error) => played.push((at, failed(name, machine, error))),
            }
            progress.tick();
        }
        let results = self.play(&entrants, ready, peak.0, || progress.tick());
        for (result, (at, entrant)) in results.into_iter().zip(&entrants) {
            let result = result.unwrap_or_else(|error| failed(entrant.name, &entrant.machine, error));
            played.push((*at, result));
        }
        played.sort_by_key(|(at, _)| *at);
        let mut played: Vec<Played> = played.into_iter().map(|(_, played)| played).collect();
        drop(progress);
        if let Some(error) = &played[0].row.error {
            return Err(error.clone());
        }
        let fast_ns = played[0].row.time().map(|time| time.0);
        for row in played.iter_mut().map(|played| &mut played.row).filter(|row| row.error.is_none()) {
            row.fast_only_ns = fast_ns;
            row.slowdown = row.time().zip(fast_ns).map(|(t, fast)| t.0 as f64 / fast.max(1) as f64);
        }
        self.tell(played)
    }

    /// Kernel times with everything in fast memory.
    fn measure(&self, task: &Task, machine: &Machine) -> Result<Times, String> {
        let policy = tiercel_policies::by_name("fast-only").expect("it is built in");
        let mut trainer = self.trainer(task, machine, Prepared::plain(policy))?;
        trainer.iterate().map_err(|error| error.to_string())?;
        trainer.record_times();
        for _ in 0..self.iterations.clamp(2, 10) {
            trainer.iterate().map_err(|error| error.to_string())?;
        }
        Ok(Times::new(Measured::of_run(&task.training.trace, &trainer.take_times())))
    }

    fn trainer<'t>(
        &self,
        task: &'t Task,
        machine: &Machine,
        prepared: Prepared,
    ) -> Result<Trainer<'t, Library>, String> {
        let schedule = self.learning.map_or(Schedule::Constant, |(_, schedule)| schedule);
        let settings = Settings { seed: self.seed, schedule, ..Settings::default() };
        wired::trainer(task, machine, prepared, (self.data)()?, settings, self.threads)
    }

    fn row(&self, system: &str, machine: &Machine, peak: u64) -> Row {
        let fast = machine.tier(TierId(0)).capacity;
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
    ) -> Result<(Entrant<'t>, Prepared), String> {
        let model = tiercel_profile::measured::beside_measured_times(machine);
        let system = named(system).map_err(|error| error.to_string())?;
        let program: &Program = &task.training;
        let options = Options { seed: self.seed, ..Options::default() };
        let setting = Setting::of(program, &model, times).with(options);
        let options = with_best_lookahead(system, &setting).map_err(|error| error.to_string())?;
        let (predicted, prepared) =
            predict(system, &setting.with(options)).map_err(|error| error.to_string())?;
        let Wired { task, machine, prepared, .. } = Wired::new(task, machine, prepared);
        Ok((Entrant { name: system.name, task, machine, predicted: predicted.time() }, prepared))
    }

    /// What Tiercel made of the task, with everything in fast memory: how much of what it costs or gains is in the program.
    fn all_fast<'t>(
        &self,
        task: Task,
        machine: &Machine,
        times: &Times,
    ) -> Result<(Entrant<'t>, Prepared), String> {
        let goal = named("fast-only").map_err(|error| error.to_string())?;
        let machine = goal.machine(&task.training.trace, machine);
        let model = tiercel_profile::measured::beside_measured_times(&machine);
        let setting = Setting::of(&task.training, &model, times);
        let (run, prepared) = predict(goal, &setting).map_err(|error| error.to_string())?;
        let (name, predicted) = (REWRITTEN, run.time());
        Ok((Entrant { name, task: Cow::Owned(task), machine, predicted }, prepared))
    }

    /// Runs all systems, side by side where memory is large enough for that.
    fn play(
        &self,
        entrants: &[(usize, Entrant<'_>)],
        ready: Vec<Prepared>,
        peak: u64,
        mut tick: impl FnMut(),
    ) -> Vec<Result<Played, String>> {
        let memory = entrants.iter().flat_map(|(_, entrant)| &entrant.machine.tiers);
        let memory: Bytes = memory.filter(|tier| tier.computable).map(|tier| tier.capacity).sum();
        let at_once = if memory.0 <= supply::memory().0 / 2 { entrants.len().max(1) } else { 1 };
        let mut ready = ready.into_iter();
        let mut all = Vec::new();
        for group in entrants.chunks(at_once) {
            let mut running: Vec<Result<Turns<'_>, String>> = Vec::new();
            for ((_, entrant), prepared) in group.iter().zip(ready.by_ref()) {
                running.push(self.start(entrant, prepared));
            }
            for round in 0..self.iterations {
                for turns in &mut running {
                    if let Ok(going) = turns
                        && let Err(error) = going.take(round + 1 == self.iterations)
                    {
                        *turns = Err(error);
                    }
                }
                if at_once > 1 {
                    tick();
                }
            }
            self.learn(&mut running, &mut tick);
            all.extend(running.into_iter().map(|turns| turns.and_then(|turns| self.finish(turns, peak))));
        }
        all
    }

    /// Goes on, in turns, with those that are to train to the end.
    fn learn(&self, running: &mut [Result<Turns<'_>, String>], tick: &mut impl FnMut()) {
        let Some((until, _)) = self.learning else { return };
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

    /// Begins a system's run with the iterations that do not count.
    fn start<'t>(&self, entrant: &'t Entrant<'t>, prepared: Prepared) -> Result<Turns<'t>, String> {
        let warmup = prepared.warmup;
        let trainer = self.trainer(&entrant.task, &entrant.machine, prepared)?;
        let (lessons, learnt, events) = (Vec::new(), Vec::new(), Vec::new());
        let mut turns = Turns { entrant, trainer, lessons, learnt, compared: None, events };
        let mut taken = 0;
        while taken < warmup || (taken < PATIENCE && !turns.trainer.settled()) {
            turns.take(false)?;
            taken += 1;
        }
        Ok(turns)
    }

    /// What a run that is over has to show.
    fn finish(&self, turns: Turns<'_>, peak: u64) -> Result<Played, String> {
        let Turns { entrant, mut trainer, lessons, learnt, compared, events } = turns;
        let (system, machine) = (entrant.name, &entrant.machine);
        let counted = &lessons[lessons.len() - self.iterations as usize..];
        let emulated = |tier: TierId| trainer.emulated(tier);
        let mut row = Row { emulated: wired::emulated(&trainer, machine), ..self.row(system, machine, peak) };
        row.iteration_ns = counted.iter().map(|l| l.figures.time.0).collect();
        row.loss = lessons.iter().map(|l| f64::from(l.loss)).collect();
        row.fetched_bytes = counted.iter().map(|l| l.figures.fetched).sum();
        row.evicted_bytes = counted.iter().map(|l| l.figures.evicted).sum();
        row.stall_ns = counted.iter().map(|l| l.figures.stall.0).sum();
        row.peak_fast_bytes = trainer.totals().peak.first().copied().unwrap_or_default();
        row.predicted_ns = Some(entrant.predicted.0);
        let mut header = Header::measured(&entrant.task.training.trace, machine, system, emulated);
        (header.batch, header.peak_bytes) = (Some(self.batch), Some(Bytes(peak)));
        let run = (system == "tiercel").then(|| Run::new(Log::new(header, &events)));
        let mut digest = || trainer.digest().map_err(|error| error.to_string());
        row.output_hash = Some(hexadecimal(compared.map_or_else(&mut digest, Ok)?));
        let hash = digest()?;
        let learnt = match LEARNERS.contains(&system) {
            false => None,
            true => Some(Learnt {
                losses: learnt.iter().map(|lesson| lesson.loss).collect(),
                iterations: trainer.iteration(),
                hash,
                time: learnt.iter().map(|lesson| lesson.figures.time).sum(),
                score: trainer.evaluate().map_err(|error| error.to_string())?,
            }),
        };
        Ok(Played { row, run, learnt })
    }

    /// Says what came of it, and writes the page.
    fn tell(&self, played: Vec<Played>) -> Result<String, String> {
        let losses = |p: &Played| p.row.loss.iter().map(|l| l.to_bits()).collect::<Vec<_>>();
        let common = |a: &Played, b: &Played| {
            let (a, b) = (losses(a), losses(b));
            let both = a.len().min(b.len());
            a[..both] == b[..both]
        };
        let ran: Vec<&Played> = played.iter().filter(|p| p.row.error.is_none()).collect();
        let same = ran.iter().all(|p| common(ran[0], p)) && same_learnt(&ran);
        if !same {
            return Err("losses differ between systems, which must not be".to_string());
        }
        let mut text = "\nlosses are the same bits under every system\n".to_string();
        let learnt = ran.iter().find(|p| p.row.system == "tiercel").and_then(|p| p.learnt.as_ref());
        let score = learnt.and_then(|learnt| learnt.score);
        text += &learnt.map_or(String::new(), |learnt| told(learnt, &ran));
        let hash = learnt.map(|learnt| hexadecimal(learnt.hash));
        let last = learnt.and_then(|learnt| learnt.losses.last().copied());
        let iterations = learnt.map(|learnt| learnt.iterations);
        let rows: Vec<Row> = played.iter().map(|p| p.row.clone()).collect();
        let title = format!("{} trained on a little fast memory", self.net);
        let comparison = Comparison::new(rows);
        let mut report = Report::of_rows(title, comparison);
        report.runs = played.into_iter().filter_map(|p| p.run).collect();
        files::replace(self.html, report.html())?;
        if self.json {
            let document = json!({
                "rows": report.comparison.rows,
                "same_losses": same,
                "learnt_iterations": iterations,
                "last_loss": last,
                "accuracy": score.map(|score| score.accuracy()),
                "test_loss": score.map(|score| score.loss),
                "output_hash": hash,
                "html": self.html.display().to_string(),
            });
            return Ok(format!("{document:#}\n"));
        }
        Ok(format!("{}{text}the page: {}\n", report.comparison.text(), self.html.display()))
    }
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

fn hexadecimal(hash: u64) -> String {
    format!("{hash:016x}")
}

/// What the network has come to, in a line or two.
fn told(learnt: &Learnt, ran: &[&Played]) -> String {
    let Learnt { losses, iterations, .. } = learnt;
    let mut text = String::new();
    if let Some(last) = losses.last() {
        let times = ran.iter().filter_map(|p| {
            let time = p.learnt.as_ref()?.time.seconds();
            Some(format!("{time:.1} s under {}", p.row.system))
        });
        let times = times.collect::<Vec<_>>().join(", ");
        text += &format!(
            "trained on for {}: loss {last:.4} after {iterations}, the same bits; {times}\n",
            counted(losses.len() as u64, "iteration"),
        );
    }
    text += &learnt.score.map_or(String::new(), |score| {
        format!(
            "accuracy {:.1} % ({} of {}) on data not learnt from\n",
            100.0 * score.accuracy(),
            score.right,
            score.guesses
        )
    });
    text
}

impl Turns<'_> {
    /// One iteration beyond those that are compared.
    fn learn(&mut self) -> Result<(), String> {
        if self.compared.is_none() {
            self.compared = Some(self.trainer.digest().map_err(|error| error.to_string())?);
        }
        self.learnt.push(self.trainer.iterate().map_err(|error| error.to_string())?);
        Ok(())
    }

    /// One iteration; what happens in the last one is kept.
    fn take(&mut self, last: bool) -> Result<(), String> {
        if last {
            self.trainer.record_events();
        }
        self.lessons.push(self.trainer.iterate().map_err(|error| error.to_string())?);
        if last {
            self.events = self.trainer.take_events();
        }
        Ok(())
    }
}
