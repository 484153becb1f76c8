//! `tiercel compare`: networks under systems with several amounts of fast memory, simulated like for like.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tiercel_core::Machine;
use tiercel_profile::{Measured, Model};
use tiercel_report::{Comparison, Report};
use tiercel_session::{Fast, Options, Watch, cores, machine, measure, net_name, playable};
use tiercel_systems::compare::{Cell, Grid, geometric_mean};
use tiercel_systems::{ALL, System, Times, named};
use tiercel_workload::{Lifetimes, Workload, nets};

use crate::amounts::{self, share};
use crate::answer::Answer;
use crate::files::{self, end_when_interrupted};
use crate::progress::Progress;
use crate::scene::{Ground, Source, document, fraction};
use crate::sizes::Sizes;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  tiercel compare resnet200,vgg19 --batch 512 --machine optane-autotm --fast 10%,20%,40% --systems all
      how much slower each system is than having all memory fast
  tiercel compare all --machine cxl --systems first-touch,cachedarrays-lm,autotm-sync --json
      every network with a fifth of its peak in fast memory, for another program to read";

/// Compare systems over networks and amounts of fast memory, in simulation.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Networks (`tiercel list` names them), ONNX files or traces; `all` for every network
    #[arg(value_name = "NET,NET", value_delimiter = ',', required = true)]
    what: Vec<String>,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    ground: Ground,
    /// Fast memory: shares of what is kept at the peak, amounts, or all that the machine has
    #[arg(
        long,
        value_name = "10%,20%",
        value_delimiter = ',',
        default_value = "20%",
        allow_hyphen_values = true
    )]
    fast: Vec<Fast>,
    /// The systems, or `all`
    #[arg(long, value_name = "S,S", value_delimiter = ',', default_value = "all")]
    systems: Vec<String>,
    /// Iterations that count, of each
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), allow_hyphen_values = true)]
    iterations: u32,
    /// For planners: the gap between plan and bound that is good enough
    #[arg(long, value_name = "1%", default_value = "1%", value_parser = share, allow_hyphen_values = true)]
    gap: f64,
    /// For planners: the rounds of search after which the best plan so far is taken
    #[arg(long, value_name = "N", default_value_t = 2, allow_hyphen_values = true)]
    rounds: u32,
    /// Simulations at a time; results do not depend on it [default: one a core]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    /// Write one page with tables and curves, which needs nothing but a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write that document to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    end_when_interrupted();
    let outputs = [("--html", arguments.html.as_deref()), ("--out", arguments.out.as_deref())];
    let outputs = outputs.into_iter().filter_map(|(option, path)| Some((option, path?)));
    files::check_all(&outputs.collect::<Vec<_>>())?;
    let systems = systems(&arguments.systems)?;
    let fast = once(&arguments.fast);
    let watch = Terminal::new();
    let machine = machine::open(arguments.ground.machine(), &*watch)?;
    let (works, times) = workloads(arguments, &machine, &*watch)?;
    let grid = Grid {
        works: &works,
        machine: &machine,
        times: &times,
        systems: &systems,
        fast: &fast,
        options: Options {
            gap: arguments.gap,
            // A time would make results depend on how busy this machine is; rounds do not.
            time: Duration::MAX,
            rounds: arguments.rounds,
            seed: arguments.answer.seed,
            ..Options::default()
        },
        iterations: arguments.iterations,
        threads: arguments.threads.unwrap_or_else(cores),
    };
    let progress = Progress::new(grid.len(), "simulating");
    let cells = grid.run(|| progress.tick());
    drop(progress);
    if let Some(Err(error)) = cells.iter().map(|cell| &cell.run).find(|run| run.is_err())
        && cells.iter().all(|cell| cell.run.is_err())
    {
        bail!("nothing could be run: {error}");
    }
    if let Some(text) = machine::assumed(&machine) {
        watch.remark(&text);
    }
    let rows: Vec<Value> =
        cells.iter().map(|cell| row(cell, &works, &machine.name, arguments.answer.seed)).collect();
    let all = format!("{:#}\n", Value::Array(rows));
    if let Some(path) = &arguments.out {
        files::replace(path, &all)?;
    }
    if let Some(path) = &arguments.html {
        let title = format!("Systems compared on {}", machine.name);
        let report = Report::of_rows(title, Comparison::parse(all.as_bytes())?);
        files::replace(path, report.html())?;
    }
    if arguments.answer.json {
        return Ok(all);
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = tables(&mut page, &grid, &cells);
    Ok(page)
}

/// Each of them once, in the same order.
fn once<T: Clone + PartialEq>(all: &[T]) -> Vec<T> {
    let mut different: Vec<T> = Vec::new();
    for one in all {
        if !different.contains(one) {
            different.push(one.clone());
        }
    }
    different
}

fn systems(names: &[String]) -> anyhow::Result<Vec<&'static System>> {
    if names.iter().any(|name| name == "all") {
        return Ok(ALL.iter().collect());
    }
    Ok(once(names).iter().map(|name| named(name)).collect::<Result<_, _>>()?)
}

/// A workload and its name.
type Named = (String, Workload);

/// The workloads, and how long their kernels take.
fn workloads(
    arguments: &Arguments,
    machine: &Machine,
    watch: &dyn Watch,
) -> anyhow::Result<(Vec<Named>, Times)> {
    let mut names: Vec<&str> = Vec::new();
    for what in &arguments.what {
        if what == "all" {
            names.extend(nets::all().iter().map(|net| net.name));
        } else {
            names.push(what);
        }
    }
    arguments.sizes.check(&names)?;
    let mut known = Measured::default();
    let mut open = |name: &str| {
        let mut workload = arguments.sizes.open_unchecked(name)?;
        if arguments.ground.times == Source::Measured {
            let (prepared, times) = measure::measured(name, workload, machine, cores(), watch)?;
            workload = prepared;
            known.join(times);
        }
        playable(name, workload.trace(), machine)?;
        Ok((net_name(name, workload.trace()), workload))
    };
    let all = once(&names).into_iter().map(&mut open).collect::<anyhow::Result<Vec<Named>>>()?;
    let times = match arguments.ground.times {
        Source::Modelled => Times::new(Model::new(machine)?),
        Source::Measured => Times::new(known),
    };
    Ok((all, times))
}

fn row(cell: &Cell, works: &[(String, Workload)], machine: &str, seed: u64) -> Value {
    let (name, work) = &works[cell.work];
    let peak = Lifetimes::new(work.trace()).peak().1;
    let mut fields = match &cell.run {
        Ok(run) => document(run, peak, seed),
        Err(error) => {
            let mut fields = serde_json::Map::new();
            fields.insert("system".into(), json!(cell.system));
            fields.insert("machine".into(), json!(machine));
            fields.insert("error".into(), json!(error.to_string()));
            fields
        }
    };
    fields.insert("net".into(), json!(name));
    fields.insert("batch".into(), json!(work.batch()));
    // What was asked for, also where a system was given all.
    fields.insert("fast_bytes".into(), json!(cell.fast.0));
    fields.insert("fast_fraction".into(), json!(fraction(cell.fast, peak)));
    fields.insert("fast_only_ns".into(), json!(cell.fast_only.map(|time| time.0)));
    fields.insert("slowdown".into(), json!(cell.slowdown()));
    fields.insert("rewritten_fast_only_ns".into(), json!(cell.rewritten.map(|time| time.0)));
    Value::Object(fields)
}

/// A table for each network, and one of the means.
fn tables(out: &mut String, grid: &Grid<'_>, cells: &[Cell]) -> std::fmt::Result {
    let rewritten = cells.iter().any(|cell| cell.rewritten.is_some());
    let least = if rewritten { 24 } else { 14 };
    let width = grid.systems.iter().map(|system| system.name.len()).max().unwrap_or(0).max(least);
    let heads: String = grid.fast.iter().map(|fast| format!("{:>10}", fast.to_string())).collect();
    writeln!(out, "times as long as fast-only, simulated on {}\n", grid.machine.name)?;
    let cell = |work: usize, fast: usize, system: usize| {
        &cells[(work * grid.fast.len() + fast) * grid.systems.len() + system]
    };
    for (at, (name, work)) in grid.works.iter().enumerate() {
        let goal = cells.iter().find(|cell| cell.work == at).and_then(|cell| cell.fast_only);
        let batch = work.batch().map_or(String::new(), |batch| format!(", batch {batch}"));
        let goal = goal.map_or("cannot be run".to_string(), |time| time.to_string());
        writeln!(out, "{name}{batch}: fast-only {goal}")?;
        writeln!(out, "  {:<width$}{heads}", "fast memory")?;
        for (column, system) in grid.systems.iter().enumerate() {
            let figures = (0..grid.fast.len()).map(|fast| shown(cell(at, fast, column).slowdown()));
            writeln!(out, "  {:<width$}{}", system.name, figures.collect::<String>())?;
            let all_fast = |fast: usize| cell(at, fast, column).slowdown_of_rewritten();
            if (0..grid.fast.len()).any(|fast| all_fast(fast).is_some()) {
                let figures: String = (0..grid.fast.len()).map(|fast| shown(all_fast(fast))).collect();
                writeln!(out, "  {:<width$}{figures}", "  its program, all fast")?;
            }
        }
        writeln!(out)?;
    }
    if grid.works.len() > 1 {
        writeln!(out, "geometric mean over {} networks", grid.works.len())?;
        writeln!(out, "  {:<width$}{heads}", "fast memory")?;
        for (at, system) in grid.systems.iter().enumerate() {
            let mean = |fast| {
                let all: Option<Vec<f64>> =
                    (0..grid.works.len()).map(|work| cell(work, fast, at).slowdown()).collect();
                all.and_then(|all| geometric_mean(all.into_iter()))
            };
            let figures = (0..grid.fast.len()).map(|fast| shown(mean(fast)));
            writeln!(out, "  {:<width$}{}", system.name, figures.collect::<String>())?;
        }
        writeln!(out)?;
    }
    let mut reasons: Vec<String> = Vec::new();
    for cell in cells {
        if let Err(error) = &cell.run {
            reasons.push(format!("{} with {}: {error}", grid.works[cell.work].0, cell.fast));
        }
    }
    reasons.iter().take(10).try_for_each(|reason| writeln!(out, "- {reason}"))?;
    if reasons.len() > 10 {
        writeln!(out, "- and {} more that could not be run; --json has them all", reasons.len() - 10)?;
    }
    Ok(())
}

fn shown(slowdown: Option<f64>) -> String {
    slowdown.map_or(format!("{:>10}", "-"), |slowdown| format!("{slowdown:>10.3}"))
}
