//! `tiercel run`: plays a network or a trace under one system, simulated or on real memory.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use tiercel_core::{Bytes, Nanos, Stamped};
use tiercel_profile::machines;
use tiercel_report::Header;
use tiercel_session::{Choice, Fast, Options, Run, Session, Watch, cores, machine};
use tiercel_systems::{DEFAULT, Recording};

use crate::amounts;
use crate::answer::Answer;
use crate::effort::Effort;
use crate::figures::counted;
use crate::files::{self, end_when_interrupted};
use crate::outcome;
use crate::scene::{self, Ground, document, title};
use crate::sizes::Subject;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  tiercel run resnet200 --batch 512 --machine optane-autotm --fast 20% --system cachedarrays-lm
      ResNet-200 with a fifth of its peak in fast memory, simulated on AutoTM's machine
  tiercel run cnn --on host --machine dram-throttled --system cachedarrays-lmp --iterations 5 --json
      five iterations of a small network on this machine's memory, measured, for another program to read";

/// Play a network or a trace under one system, simulated or on this machine's memory.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    ground: Ground,
    /// Fast memory: a share of what is kept at the peak, an amount, or all that the machine has
    #[arg(long, value_name = "20%|8GiB", default_value = "all", allow_hyphen_values = true)]
    fast: Fast,
    /// Who decides where tensors live
    #[arg(long, value_name = "S", default_value = DEFAULT)]
    system: String,
    /// Where: in simulation, or on this machine's memory with real arithmetic
    #[arg(long, value_enum, default_value_t = On::Sim)]
    on: On,
    /// Iterations that count
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100_000), allow_hyphen_values = true)]
    iterations: u32,
    /// Play this plan, as `tiercel plan --out` writes it, on the machine and with the fast memory that it was made for
    #[arg(long, value_name = "FILE", conflicts_with_all = ["system", "fast", "gap", "time", "rounds"])]
    plan: Option<PathBuf>,
    /// Write what happens to this file, for `tiercel report`
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// How many kernels ahead the policy hears what comes; the system's own choice unless set
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    lookahead: Option<u32>,
    #[command(flatten)]
    search: Effort,
    /// Threads that compute on the host; results do not depend on them [default: one a core]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    #[command(flatten)]
    answer: Answer,
}

/// Where to run.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum On {
    Sim,
    Host,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    end_when_interrupted();
    if let Some(path) = &arguments.events {
        files::check(path)?;
    }
    let choice = match &arguments.plan {
        Some(path) => Choice::read(path)?,
        None => Choice::named(&arguments.system)?,
    };
    let (watch, threads) = (Terminal::new(), arguments.threads.unwrap_or_else(cores));
    let machine = machine_name(arguments, &choice)?;
    let session = scene::open(&arguments.subject, machine, arguments.ground.times, threads, &watch)?;
    let fast = choice.plan().map_or(arguments.fast, |plan| Fast::Amount(Bytes(plan.fast_bytes)));
    let options = Options {
        lookahead: arguments.lookahead.map(|kernels| kernels as usize),
        ..arguments.search.options(arguments.answer.seed)
    };
    let recording = if arguments.events.is_some() { Recording::On } else { Recording::Off };
    if arguments.on == On::Host {
        let outcome = session.run_recorded(&choice, fast, options, arguments.iterations, recording)?;
        if let (Some(path), Some((header, events))) = (&arguments.events, &outcome.events) {
            write_events(path, header, events)?;
        }
        let dtype = arguments.subject.sizes.dtype();
        return Ok(if arguments.answer.json {
            format!("{:#}\n", outcome::document(&outcome, dtype))
        } else {
            outcome::table(&outcome, dtype)
        });
    }
    let played = session.simulate(&choice, fast, options, arguments.iterations, recording)?;
    if let Some(text) = machine::assumed(session.machine()) {
        watch.remark(&text);
    }
    if let Some(path) = &arguments.events {
        write_events(path, &session.header(&played), &played.events)?;
    }
    if arguments.answer.json {
        let mut fields = document(&played, session.peak(), arguments.answer.seed);
        fields.insert("net".into(), json!(session.net()));
        fields.insert("batch".into(), json!(session.workload().batch()));
        return Ok(format!("{:#}\n", serde_json::Value::Object(fields)));
    }
    Ok(table(&session, &played))
}

/// The machine that was named, or else the one that the plan is for.
fn machine_name<'a>(arguments: &'a Arguments, choice: &'a Choice) -> anyhow::Result<&'a str> {
    let planned_for = choice.plan().map(|plan| plan.machine.as_str());
    match (&arguments.ground.machine, planned_for) {
        (None, Some(name)) if name != "here" && machines::named(name).is_err() => {
            bail!("the plan is for the machine `{name}`, which does not ship; give its file as --machine")
        }
        (None, Some(name)) => Ok(name),
        _ => Ok(arguments.ground.machine_for(&arguments.subject)),
    }
}

/// Writes down what happened.
fn write_events(path: &Path, header: &Header, events: &[Stamped]) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    tiercel_report::write_events(&mut lines, header, events)
        .with_context(|| format!("cannot write `{}`", path.display()))?;
    files::replace(path, &lines)
}

fn table(session: &Session, run: &Run) -> String {
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = write_table(&mut page, session, run);
    page
}

fn write_table(out: &mut String, session: &Session, run: &Run) -> std::fmt::Result {
    let n = run.iterations.len() as u64;
    let many = counted(n, "simulated iteration");
    writeln!(out, "{}: {many} under {}\n", title(session), run.system)?;
    let mut row = |name: &str, text: String| writeln!(out, "  {name:<12} {text}");
    let fast = run.machine.tiers[0].capacity;
    let share = fast.0 as f64 * 100.0 / session.peak().0.max(1) as f64;
    row(
        "fast memory",
        format!("{fast}, {share:.0} % of the peak of {}; {} used", session.peak(), run.peak_fast()),
    )?;
    row("iteration", format!("{} (median)", run.time()))?;
    if let Some(planned) = &run.planned {
        let expected = Nanos(planned.plan.iteration_ns.round() as u64);
        row("planned", format!("{expected}, no less than {}", Nanos(planned.plan.bound_ns.round() as u64)))?;
    }
    let (fetched, evicted) = (Bytes(run.fetched().0 / n), Bytes(run.evicted().0 / n));
    row("moved", format!("{fetched} fetched and {evicted} evicted an iteration"))?;
    row("kernels", run.split.to_string())?;
    let time: Nanos = run.iterations.iter().map(|i| i.time).sum();
    row("stall", format!("{:.1} % of the time", 100.0 * run.stall().seconds() / time.seconds().max(1e-9)))
}
