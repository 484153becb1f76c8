//! `tiercel run`: plays a network or a trace under one system, simulated or on real memory.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tiercel_core::{Bytes, Machine, Nanos, Stamped};
use tiercel_plan::{Flaw, Mismatch, Plan};
use tiercel_profile::machines;
use tiercel_report::Header;
use tiercel_systems::planning::replay;
use tiercel_systems::{
    DEFAULT, Fast, Options, Planned, Prepared, Recording, Run, System, SystemError, named, simulate_prepared,
};

use crate::amounts;
use crate::answer::Answer;
use crate::figures::counted;
use crate::files::{self, end_when_interrupted};
use crate::progress::Progress;
use crate::scene::{Ground, Scene, document};
use crate::search::Search;
use crate::sizes::Subject;
use crate::staged;

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
    search: Search,
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
pub fn run(arguments: &Arguments) -> Result<String, String> {
    end_when_interrupted();
    if let Some(path) = &arguments.events {
        files::check(path)?;
    }
    let plan = arguments.plan.as_deref().map(read_plan).transpose()?;
    let system = match &plan {
        None => Some(named(&arguments.system).map_err(|error| error.to_string())?),
        Some(_) => None,
    };
    let machine = arguments.ground.machine.as_deref().or(plan.as_ref().map(|plan| plan.machine.as_str()));
    let threads = arguments.threads.unwrap_or_else(staged::cores);
    let machine = machine.unwrap_or(arguments.ground.machine_for(&arguments.subject));
    if arguments.ground.machine.is_none() && machine != "here" && machines::named(machine).is_err() {
        return Err(format!(
            "the plan is for the machine `{machine}`, which does not ship; give its file as --machine"
        ));
    }
    let scene = Scene::open(&arguments.subject, machine, arguments.ground.times, threads)?;
    if let Some(plan) = &plan {
        let meant = plan.meant_for(&scene.trace().name, scene.workload.batch());
        meant.map_err(|flaw| SystemError::from(flaw).to_string())?;
    }
    let fast = plan.as_ref().map_or(arguments.fast, |plan| Fast::Amount(Bytes(plan.fast_bytes)));
    let machine = scene.with_fast(fast)?;
    let options = Options {
        lookahead: arguments.lookahead.map(|kernels| kernels as usize),
        ..arguments.search.options(arguments.answer.seed)
    };
    let choice = Choice { system, plan, options };
    if arguments.on == On::Host {
        if !crate::machine::is_here(&machine) {
            return Err(format!(
                "`{}` is another machine; on the host runs `--machine here`, or one that stands for it, such as dram-throttled",
                machine.name
            ));
        }
        let outcome = staged::run(
            &scene,
            &machine,
            &choice,
            arguments.iterations,
            threads,
            arguments.events.as_deref(),
        )?;
        return Ok(if arguments.answer.json {
            format!("{:#}\n", outcome.document())
        } else {
            outcome.table()
        });
    }
    let machine = system.map_or(machine.clone(), |system| system.machine(scene.trace(), &machine));
    let setting = scene.setting(&machine, options);
    let prepared = choice.prepare(&scene, &machine)?;
    let recording = if arguments.events.is_some() { Recording::On } else { Recording::Off };
    let progress = Progress::alone("simulating");
    let played = simulate_prepared(choice.name(), prepared, &setting, arguments.iterations, recording);
    let played = played.map_err(|error| error.to_string())?;
    drop(progress);
    crate::machine::tell_assumed(&machine);
    if let Some(path) = &arguments.events {
        let trace = played.trace(scene.trace());
        let mut header = Header::simulated(trace, &played.machine, &played.system);
        header.net = scene.net.clone();
        (header.batch, header.peak_bytes) = (scene.workload.batch(), Some(scene.peak));
        header.warmup_iterations = played.warmup;
        write_events(path, &header, &played.events)?;
    }
    if arguments.answer.json {
        let mut fields = document(&played, scene.peak, arguments.answer.seed);
        fields.insert("net".into(), json!(scene.net));
        fields.insert("batch".into(), json!(scene.workload.batch()));
        return Ok(format!("{:#}\n", serde_json::Value::Object(fields)));
    }
    Ok(table(&scene, &played))
}

/// A system, or a plan that stands in for one.
pub struct Choice {
    pub system: Option<&'static System>,
    pub plan: Option<Plan>,
    pub options: Options,
}

impl Choice {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.system.map_or("plan", |system| system.name)
    }

    /// Wires it up for a machine.
    pub fn prepare(&self, scene: &Scene, machine: &Machine) -> Result<Prepared, String> {
        self.prepare_for(scene.setting(machine, self.options))
    }

    /// Wires it up for any setting.
    pub fn prepare_for(&self, setting: tiercel_systems::Setting<'_>) -> Result<Prepared, String> {
        let progress = Progress::alone("planning");
        let prepared = match (&self.plan, self.system) {
            (Some(plan), _) => {
                let planned = Planned { plan: plan.clone(), solve: None, met: true, heeded: false };
                replay(planned, &setting)
            }
            (None, Some(system)) => system.prepare(&setting),
            (None, None) => unreachable!("there is one or the other"),
        };
        drop(progress);
        prepared.map_err(|error| match &self.plan {
            Some(plan) => format!("{error}{}", remedy(&error, plan, setting.machine)),
            None => error.to_string(),
        })
    }
}

/// What may be behind a plan that does not fit.
fn remedy(error: &SystemError, plan: &Plan, machine: &Machine) -> String {
    if plan.machine != machine.name {
        return format!("; the plan is for the machine `{}`, this is `{}`", plan.machine, machine.name);
    }
    let SystemError::Flaw(flaw) = error else { return String::new() };
    match flaw.as_ref() {
        Flaw::Other(Mismatch::Size { tensor, .. } | Mismatch::Missing { tensor, .. })
            if tensor.ends_with(".workspace") =>
        {
            "; kernels have this scratch memory with `--times measured` and on the host, for so many `--threads`"
                .to_string()
        }
        _ => String::new(),
    }
}

/// Writes down what happened.
pub fn write_events(path: &Path, header: &Header, events: &[Stamped]) -> Result<(), String> {
    let mut lines = Vec::new();
    tiercel_report::write_events(&mut lines, header, events)
        .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    files::replace(path, &lines)
}

fn read_plan(path: &Path) -> Result<Plan, String> {
    let shown = path.display();
    let text = files::read(path)?;
    serde_json::from_slice(&text).map_err(|error| format!("{shown}: not a plan: {error}"))
}

fn table(scene: &Scene, run: &Run) -> String {
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = write_table(&mut page, scene, run);
    page
}

fn write_table(out: &mut String, scene: &Scene, run: &Run) -> std::fmt::Result {
    let n = run.iterations.len() as u64;
    let many = counted(n, "simulated iteration");
    writeln!(out, "{}: {many} under {}\n", scene.title(), run.system)?;
    let mut row = |name: &str, text: String| writeln!(out, "  {name:<12} {text}");
    let fast = run.machine.tiers[0].capacity;
    let share = fast.0 as f64 * 100.0 / scene.peak.0.max(1) as f64;
    row(
        "fast memory",
        format!("{fast}, {share:.0} % of the peak of {}; {} used", scene.peak, run.peak_fast()),
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
