//! The main job: a network trained for real on a fifth of the fast memory that it wants, under Tiercel and beside others.
//!
//! Everything in fast memory comes first: it is the goal, and its kernel times are what plans and predictions go by. Then
//! the same iterations run under each system, from the same weights on the same data, so the losses must be the same bits.

use std::path::Path;

use serde_json::json;
use tiercel_core::{Machine, TierId};
use tiercel_profile::Measured;
use tiercel_report::{Comparison, Header, Log, Report, Row, Run};
use tiercel_run::kernels::{Library, prepare};
use tiercel_run::train::{Data, Settings, Task, Trainer};
use tiercel_systems::{Options, Prepared, Setting, Times, named, predict};
use tiercel_workload::{Lifetimes, Program};

use crate::files;
use crate::machine;
use crate::progress::Progress;
use crate::wired::{self, Wired};

/// The systems beside having all memory fast, the default first.
const SYSTEMS: [&str; 6] =
    ["tiercel", "cachedarrays-lm", "cachedarrays-lmp", "autotm-sync", "first-touch", "slow-only"];

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
    /// Iterations that count.
    pub iterations: u32,
    /// Threads that compute.
    pub threads: usize,
    /// Where chance starts.
    pub seed: u64,
    /// Where the page goes.
    pub html: &'a Path,
    /// One JSON document instead of the table.
    pub json: bool,
}

/// One system's run.
struct Played {
    row: Row,
    run: Option<Run>,
    score: Option<f64>,
}

impl Trial<'_> {
    /// Runs everything; the text to print.
    pub fn run(&self) -> Result<String, String> {
        files::check(self.html)?;
        let progress = Progress::new(SYSTEMS.len() + 2, "systems");
        let task = Task::new(self.program.clone(), self.batch, |program| prepare(program, self.threads));
        let machine = (self.machine)(&task)?;
        let peak = Lifetimes::new(&task.training.trace).peak().1;
        let ample = named("fast-only").map_err(|e| e.to_string())?.machine(&task.training.trace, &machine);
        let measured = self.measure(&task, &ample)?;
        progress.tick();
        let goal = self.play("fast-only", &task, &ample, &measured, None, peak.0)?;
        progress.tick();
        let fast_ns = goal.row.time().map(|time| time.0);
        let mut played = vec![goal];
        for system in SYSTEMS {
            match self.play(system, &task, &machine, &measured, fast_ns, peak.0) {
                Ok(result) => played.push(result),
                Err(error) => played.push(Played {
                    row: Row { error: Some(error), ..self.row(system, &machine, peak.0) },
                    run: None,
                    score: None,
                }),
            }
            progress.tick();
        }
        drop(progress);
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
        let settings = Settings { seed: self.seed, ..Settings::default() };
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

    /// Predicts and then runs one system.
    fn play(
        &self,
        system: &str,
        task: &Task,
        machine: &Machine,
        times: &Times,
        fast_ns: Option<u64>,
        peak: u64,
    ) -> Result<Played, String> {
        let model = machine::beside_measured_times(machine);
        let system = named(system).map_err(|error| error.to_string())?;
        let program: &Program = &task.training;
        let options = Options { seed: self.seed, ..Options::default() };
        let setting = Setting::of(program, &model, times).with(options);
        let (predicted, prepared) = predict(system, &setting).map_err(|error| error.to_string())?;
        let Wired { task, machine, prepared, .. } = Wired::new(task, machine, prepared);
        let machine = &machine;
        let warmup = prepared.warmup;
        let mut trainer = self.trainer(&task, machine, prepared)?;
        let (mut lessons, mut events) = (Vec::new(), Vec::new());
        for iteration in 0..warmup + self.iterations {
            let last = iteration + 1 == warmup + self.iterations;
            if last {
                trainer.record_events();
            }
            lessons.push(trainer.iterate().map_err(|error| error.to_string())?);
            if last {
                events = trainer.take_events();
            }
        }
        let counted = &lessons[warmup as usize..];
        let emulated = |tier: TierId| trainer.emulated(tier);
        let mut row =
            Row { emulated: wired::emulated(&trainer, machine), ..self.row(system.name, machine, peak) };
        row.iteration_ns = counted.iter().map(|l| l.figures.time.0).collect();
        row.loss = lessons.iter().map(|l| f64::from(l.loss)).collect();
        row.fetched_bytes = counted.iter().map(|l| l.figures.fetched).sum();
        row.evicted_bytes = counted.iter().map(|l| l.figures.evicted).sum();
        row.stall_ns = counted.iter().map(|l| l.figures.stall.0).sum();
        row.peak_fast_bytes = trainer.totals().peak.first().copied().unwrap_or_default();
        row.predicted_ns = Some(predicted.time().0);
        row.fast_only_ns = fast_ns.or(row.time().map(|time| time.0));
        row.slowdown = row.time().zip(row.fast_only_ns).map(|(t, fast)| t.0 as f64 / fast.max(1) as f64);
        let header = Header::measured(&task.training.trace, machine, system.name, emulated);
        let run = (system.name == "tiercel").then(|| Run::new(Log::new(header, &events)));
        let score = trainer.evaluate().map_err(|error| error.to_string())?.map(|score| score.accuracy());
        row.output_hash = Some(format!("{:016x}", trainer.digest().map_err(|error| error.to_string())?));
        Ok(Played { row, run, score })
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
        let same = ran.iter().all(|p| common(ran[0], p));
        let score = ran.iter().find(|p| p.row.system == "tiercel").and_then(|p| p.score);
        let rows: Vec<Row> = played.iter().map(|p| p.row.clone()).collect();
        let title = format!("{} trained on a little fast memory", self.net);
        let comparison = Comparison::new(rows);
        let mut report = Report::of_rows(title, comparison);
        report.runs = played.into_iter().filter_map(|p| p.run).collect();
        files::replace(self.html, report.html())?;
        if self.json {
            let mut document = json!({ "rows": report.comparison.rows, "same_losses": same });
            document["accuracy"] = json!(score);
            document["html"] = json!(self.html.display().to_string());
            return Ok(format!("{document:#}\n"));
        }
        let mut text = report.comparison.text();
        text += &match (same, score) {
            (true, Some(score)) => {
                format!("\nlosses are the same bits under every system; accuracy {:.1} %\n", 100.0 * score)
            }
            (true, None) => "\nlosses are the same bits under every system\n".to_string(),
            (false, _) => return Err("losses differ between systems, which must not be".to_string()),
        };
        text += &format!("the page: {}\n", self.html.display());
        Ok(text)
    }
}
