//! `tiercel profile`: how long every kernel of a network takes on this machine, by where its operands lie.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tiercel_core::{Backing, Machine, Nanos, TierId};
use tiercel_profile::Kept;
use tiercel_session::measure::{Care, Timed};
use tiercel_session::{cores, machine, measure, net_name};
use tiercel_sim::KernelTime;
use tiercel_workload::{Kernel, Program, text};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::sizes::Subject;
use crate::terminal::{Terminal, stop_when_interrupted, stopped};
use crate::{amounts, files, torch};

const EXAMPLES: &str = "\
Examples:
  tiercel profile cnn --batch 256
      every kernel of a small network on this machine, with its operands in memory and in memory slowed down
  tiercel profile resnet32 --batch 64 --slow file:/tmp --out resnet32.trace
      with a disk as the slow memory, on which kernels cannot work; `tiercel plan resnet32.trace` goes by what was measured";

/// Measure how long every kernel takes on this machine, by where its operands lie; what was measured is kept.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("what", |what| what.help("A network (`tiercel list` names them) or an ONNX file")))]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// This machine: `here`, or a machine or machine file that stands for it, such as dram-throttled
    #[arg(long, value_name = "M", default_value = "here")]
    machine: String,
    /// What is behind the slow tier of `here`: throttled (an emulation), dram, numa:N, dax:PATH or file:PATH [default: throttled]
    #[arg(long, value_name = "BACKING")]
    slow: Option<Backing>,
    /// Threads that compute [default: one a core]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    /// Measure once more what was measured while other programs were busy
    #[arg(long)]
    again: bool,
    /// Write the network's trace with the times that were measured to this file, for `plan` and `run`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    arguments.out.as_deref().map_or(Ok(()), files::check)?;
    let workload = arguments.subject.open(torch::MACHINE)?;
    let threads = arguments.threads.unwrap_or_else(cores);
    let (program, batch) = measure::program(arguments.subject.what(), workload, threads)?;
    let watch = Terminal::new();
    let machine = match (&arguments.slow, arguments.machine.as_str()) {
        (slow, "here") => machine::with_slow(slow.as_ref().unwrap_or(&Backing::Throttled), &*watch)?,
        (None, name) => machine::open(name, &*watch)?,
        (Some(_), name) => {
            let message = format!("--slow goes with `--machine here`; `{name}` has a slow tier");
            return Err(Failure::usage(message).into());
        }
    };
    stop_when_interrupted();
    let mut kept = Kept::open(threads);
    let started = Instant::now();
    let care = Care { again: arguments.again, thorough: true };
    let outcome = measure::measure(&program, &machine, threads, &mut kept, care, &*watch)?;
    if let Some(why) = &outcome.unkept {
        bail!(why.clone());
    }
    let profile = Profile {
        net: net_name(arguments.subject.what(), &program.trace),
        batch,
        threads,
        machine: &machine,
        seconds: started.elapsed().as_secs_f64(),
        kinds: kinds(&program, &machine, &outcome),
        outcome: &outcome,
        kept: &kept,
    };
    if stopped() {
        let known = outcome.known + outcome.measured;
        let message = format!(
            "interrupted: {known} of {} times are known and kept; the same command goes on",
            outcome.wanted
        );
        return Err(Failure::interrupted(message, None).into());
    }
    if let Some(path) = &arguments.out {
        files::replace(path, text::write(&outcome.annotated(&program.trace)))?;
    }
    Ok(if arguments.answer.json {
        format!("{:#}\n", profile.document(arguments.answer.seed))
    } else {
        profile.table()
    })
}

/// All kernels of one kind together.
#[derive(Default)]
struct Kind<'a> {
    count: usize,
    shapes: HashSet<&'a str>,
    fast: Nanos,
    /// With everything on the slowest tier that kernels can work on, where that is another.
    slow: Option<Nanos>,
}

fn kinds<'a>(program: &'a Program, machine: &Machine, outcome: &'a Timed) -> Vec<(&'a str, Kind<'a>)> {
    let slowest = machine.tier_ids().rev().find(|id| machine.tier(*id).computable).unwrap_or(TierId(0));
    let time = |kernel: &Kernel, tier: TierId| {
        let tiers = vec![tier; kernel.reads.len() + kernel.writes.len()];
        outcome.times.time(machine, kernel, &tiers)
    };
    let mut kinds: BTreeMap<&str, Kind<'_>> = BTreeMap::new();
    for (kernel, signature) in program.trace.kernels.iter().zip(&outcome.signatures) {
        let kind = kinds.entry(&kernel.op).or_default();
        kind.count += 1;
        kind.shapes.insert(signature);
        kind.fast += time(kernel, TierId(0));
        if slowest != TierId(0) {
            *kind.slow.get_or_insert_default() += time(kernel, slowest);
        }
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(name, kind)| (std::cmp::Reverse(kind.fast), *name));
    kinds
}

/// What there is to tell.
struct Profile<'a> {
    net: String,
    batch: u64,
    threads: usize,
    machine: &'a Machine,
    seconds: f64,
    kinds: Vec<(&'a str, Kind<'a>)>,
    outcome: &'a Timed,
    kept: &'a Kept,
}

impl Profile<'_> {
    fn fast(&self) -> Nanos {
        self.kinds.iter().map(|(_, kind)| kind.fast).sum()
    }

    fn slow(&self) -> Option<Nanos> {
        self.kinds.iter().map(|(_, kind)| kind.slow).sum::<Option<Nanos>>().filter(|_| !self.kinds.is_empty())
    }

    fn document(&self, seed: u64) -> Value {
        let kinds = self.kinds.iter().map(|(name, kind)| {
            json!({
                "kind": name,
                "kernels": kind.count,
                "distinct": kind.shapes.len(),
                "fast_ns": kind.fast.0,
                "slow_ns": kind.slow.map(|time| time.0),
                "share": share(kind.fast, self.fast()),
            })
        });
        let tier = |id: TierId| json!({ "name": self.machine.tier(id).name, "backing": self.machine.tier(id).backing });
        json!({
            "net": self.net,
            "batch": self.batch,
            "machine": self.machine.name,
            "tiers": self.machine.tier_ids().map(tier).collect::<Vec<_>>(),
            "threads": self.threads,
            "measured": true,
            "seed": seed,
            "times": self.outcome.wanted,
            "times_known_before": self.outcome.known,
            "times_measured": self.outcome.measured,
            "times_disturbed": self.outcome.disturbed,
            "seconds": self.seconds,
            "cache": self.kept.path(),
            "fast_ns": self.fast().0,
            "slow_ns": self.slow().map(|time| time.0),
            "kinds": kinds.collect::<Vec<_>>(),
        })
    }

    fn table(&self) -> String {
        let mut page = String::new();
        // Writing to a string never fails.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Profile { net, batch, threads, machine, .. } = self;
        let tiers: Vec<String> = machine.tiers.iter().map(|tier| tier.backing.to_string()).collect();
        writeln!(
            out,
            "{net}, batch {batch}: kernels on {} with {threads} threads, alone\n",
            tiers.join(" and ")
        )?;
        let width = self.kinds.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(6);
        writeln!(
            out,
            "  {:<width$} {:>7} {:>8} {:>10} {:>10} {:>7} {:>7}",
            "kernel", "count", "distinct", "all fast", "all slow", "ratio", "share"
        )?;
        let mut line = |name: &str, count: usize, shapes: usize, fast: Nanos, slow: Option<Nanos>| {
            let ratio =
                slow.map_or("-".to_string(), |slow| format!("{:.2}", slow.0 as f64 / fast.0.max(1) as f64));
            let slow = slow.map_or("-".to_string(), |slow| slow.to_string());
            let share = 100.0 * share(fast, self.fast());
            writeln!(
                out,
                "  {name:<width$} {count:>7} {shapes:>8} {:>10} {slow:>10} {ratio:>7} {share:>5.1} %",
                fast.to_string()
            )
        };
        for (name, kind) in &self.kinds {
            line(name, kind.count, kind.shapes.len(), kind.fast, kind.slow)?;
        }
        let distinct: HashSet<&String> = self.outcome.signatures.iter().collect();
        line("all", self.outcome.signatures.len(), distinct.len(), self.fast(), self.slow())?;
        if self.slow().is_none() {
            writeln!(
                out,
                "\n  kernels cannot work on {}: their operands are fetched",
                machine.tier(machine.slowest()).backing
            )?;
        }
        let Timed { wanted, known, measured, disturbed, .. } = self.outcome;
        writeln!(
            out,
            "\n  {wanted} times of distinct kernels by placement: {known} were known, {measured} measured in {:.1} s",
            self.seconds
        )?;
        if *disturbed > 0 {
            writeln!(
                out,
                "  {disturbed} of them while other programs were busy: `--again` measures those once more"
            )?;
        }
        writeln!(out, "  kept in {}", self.kept.path().display())
    }
}

fn share(part: Nanos, whole: Nanos) -> f64 {
    part.0 as f64 / whole.0.max(1) as f64
}
