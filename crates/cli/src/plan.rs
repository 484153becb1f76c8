//! `tiercel plan`: where every tensor should live, how good that is, and what it costs.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tiercel_core::{Bytes, CopyThreads, Nanos};
use tiercel_session::{Ends, Fast, Run, Session, Watch, cores, machine, percent};
use tiercel_systems::curve::Price;
use tiercel_systems::{DEFAULT, named};

use crate::amounts::share;
use crate::answer::Answer;
use crate::effort::Effort;
use crate::figures::grouped;
use crate::files::{self, end_when_interrupted};
use crate::scene::{self, Ground, fraction, title};
use crate::sizes::Subject;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  tiercel plan vgg19 --batch 2048 --machine optane-autotm --fast 20% --system autotm-sync --out plan.json
      a plan for a fifth of the peak in fast memory; `tiercel run vgg19 --batch 2048 --plan plan.json` plays it
  tiercel plan resnet200 --batch 512 --machine optane-autotm --fast 10%,20%,40%,80%
      the iteration against fast memory, with what the memory costs
  tiercel plan resnet200 --batch 512 --machine optane-autotm --within 5%
      the least fast memory that costs at most 5 % of the speed
  tiercel plan --torch train:make --machine rtx4090 --fast 50%
      the training step that the function `make` of train.py makes, without running it (docs/pytorch.md)";

/// Decide ahead of time where every tensor lives, and say how good that is.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    ground: Ground,
    /// Fast memory: a share of what is kept at the peak, an amount, or all that the machine has; several for a curve
    #[arg(
        long,
        value_name = "20%|8GiB",
        value_delimiter = ',',
        default_value = "all",
        allow_hyphen_values = true
    )]
    fast: Vec<Fast>,
    /// Find the least fast memory with which an iteration takes no longer than this beyond fast-only
    #[arg(long, value_name = "5%", value_parser = share, conflicts_with = "fast", allow_hyphen_values = true)]
    within: Option<f64>,
    /// Who plans, or decides while running
    #[arg(long, value_name = "S", default_value = DEFAULT)]
    system: String,
    #[command(flatten)]
    search: Effort,
    /// Write the plan to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    end_when_interrupted();
    let system = named(&arguments.system)?;
    if arguments.out.is_some() && arguments.fast.len() > 1 {
        bail!("--out takes one plan; give one --fast");
    }
    arguments.out.as_deref().map_or(Ok(()), files::check)?;
    let (ground, watch) = (&arguments.ground, Terminal::new());
    let subject = &arguments.subject;
    let session = scene::open(subject, ground.machine_for(subject), ground.times, cores(), &watch)?;
    let options = arguments.search.options(arguments.answer.seed);
    let ends = session.ends(options)?;
    let runs = match arguments.within {
        Some(within) => vec![session.least_fast(system, options, &ends, within)?],
        None => session.sweep(system, options, &arguments.fast)?,
    };
    if let Some(text) = machine::assumed(session.machine()) {
        watch.remark(&text);
    }
    if let Some(path) = &arguments.out {
        files::replace(path, serde_json::to_string(&session.plan_of(system, &runs[0])?)?)?;
    }
    if arguments.answer.json {
        let documents: Vec<Value> =
            runs.iter().map(|run| document(&session, run, &ends, arguments)).collect();
        return Ok(match &documents[..] {
            [one] => format!("{one:#}\n"),
            _ => format!("{:#}\n", Value::Array(documents)),
        });
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = match &runs[..] {
        [one] => single(&mut page, &session, one, &ends, arguments),
        _ => curve(&mut page, &session, &runs, &ends),
    };
    Ok(page)
}

fn document(session: &Session, run: &Run, ends: &Ends, arguments: &Arguments) -> Value {
    let plan = run.planned.as_ref().map(|planned| &planned.plan);
    let fast = run.machine.tiers[0].capacity;
    let price = Price::of(run, session.peak());
    let layout =
        run.planned.as_ref().and_then(|planned| planned.layout(run.trace(session.trace()), &run.machine));
    json!({
        "net": session.net(),
        "batch": session.workload().batch(),
        "machine": run.machine.name,
        "compute_assumed": run.machine.compute.assumed,
        "system": run.system,
        "on": "sim",
        "measured": false,
        "seed": arguments.answer.seed,
        "peak_bytes": session.peak().0,
        "fast_bytes": fast.0,
        "fast_fraction": fraction(fast, session.peak()),
        // What programs rely on: the plan's own time, to which its gap belongs.
        "iteration_ns": plan.map_or(run.time().0, |plan| plan.iteration_ns.round() as u64),
        "simulated_ns": run.time().0,
        "planned_ns": plan.map(|plan| plan.iteration_ns.round() as u64),
        "fast_only_ns": ends.fast_only.0,
        "slow_only_ns": ends.slow_only.map(|time| time.0),
        "slowdown": ends.slowdown(run),
        "within": arguments.within,
        "bound_ns": plan.map(|plan| plan.bound_ns.round() as u64),
        "gap": plan.map(|plan| plan.gap()),
        "repeats": arguments.search.repeats(),
        "solve_ms": run.planned.as_ref().and_then(|p| p.solve).map(|time| time.as_secs_f64() * 1e3),
        "moves": plan.map(|plan| plan.moves.len()),
        "fetched_bytes": run.fetched().0,
        "evicted_bytes": run.evicted().0,
        "recomputed_ns": session.recomputed(run).0,
        "recomputed": plan.map(|plan| &plan.recomputed),
        "early_updates": plan.map(|plan| plan.early_updates),
        "parts_bytes": plan.and_then(|plan| plan.parts_bytes),
        "stall_ns": run.stall().0,
        "kernels_fast_ns": run.split.fast.0,
        "slow_memory_ns": run.split.slow.0,
        "contention_ns": run.split.contention.0,
        "copy_threads": run.machine.copy_threads(),
        "peak_fast_bytes": run.peak_fast().0,
        "layout_bytes": layout.map(|bytes| bytes.0),
        "used_memory_price": price.map(|price| price.used),
        "all_fast_memory_price": price.map(|price| price.all_fast),
        "used_memory_price_share": price.map(|price| price.share()),
    })
}

fn single(
    out: &mut String,
    session: &Session,
    run: &Run,
    ends: &Ends,
    arguments: &Arguments,
) -> std::fmt::Result {
    let fast = run.machine.tiers[0].capacity;
    let share = fast.0 as f64 * 100.0 / session.peak().0.max(1) as f64;
    match arguments.within {
        None => writeln!(out, "{}: {}\n", title(session), run.system)?,
        Some(within) => {
            writeln!(out, "{}: {} within {} of fast-only\n", title(session), run.system, percent(within))?;
        }
    }
    let mut row = |name: &str, text: String| writeln!(out, "  {name:<12} {text}");
    row(
        "fast memory",
        format!("{fast}, {share:.0} % of the peak of {}; {} used", session.peak(), run.peak_fast()),
    )?;
    let slower = (ends.slowdown(run) - 1.0) * 100.0;
    let than = if slower < 0.0 { "shorter" } else { "longer" };
    row("iteration", format!("{} simulated, {:.1} % {than} than fast-only", run.time(), slower.abs()))?;
    if let Some(planned) = &run.planned {
        let plan = &planned.plan;
        let [cost, bound] = [plan.iteration_ns, plan.bound_ns].map(|ns| Nanos(ns.round() as u64));
        let gap = plan.gap() * 100.0;
        row("planned", format!("{cost}; no plan of this kind takes less than {bound} (gap {gap:.2} %)"))?;
        if let Some(time) = planned.solve {
            let moves = plan.moves.len();
            let clock = match arguments.search.repeats() {
                true => "",
                false => ", by the clock: the same seed may give another plan",
            };
            row("search", format!("{moves} moves, found in {:.2} s{clock}", time.as_secs_f64()))?;
        }
        let early = plan.early_updates.then(|| "weights updated early".to_string());
        let again = match plan.recomputed.len() {
            0 => None,
            1 => Some("one tensor computed again".to_string()),
            n => Some(format!("{} tensors computed again", grouped(n as u64))),
        };
        let parts = plan.parts_bytes.map(|limit| format!("tensors above {} in parts", Bytes(limit)));
        let changes: Vec<String> = [early, again, parts].into_iter().flatten().collect();
        if !changes.is_empty() {
            row("program", changes.join(", "))?;
        }
    }
    let slow_only = ends.slow_only.map_or("not possible".to_string(), |time| time.to_string());
    row("between", format!("fast-only {} and slow-only {slow_only}", ends.fast_only))?;
    row("moved", format!("{} fetched and {} evicted an iteration", run.fetched(), run.evicted()))?;
    let threads = run.machine.copy_threads();
    if !threads.is_empty() && run.fetched() + run.evicted() > Bytes::ZERO {
        let each = |c: &CopyThreads| format!("{} from {} to {}", c.threads, c.from, c.to);
        row("copy threads", threads.iter().map(each).collect::<Vec<_>>().join(", "))?;
    }
    row("kernels", run.split.to_string())?;
    if let Some(price) = Price::of(run, session.peak()) {
        let percent = price.share() * 100.0;
        row(
            "memory costs",
            format!("${:.2}, {percent:.0} % of ${:.2} for fast memory alone", price.used, price.all_fast),
        )?;
    }
    Ok(())
}

/// The iteration against fast memory, and the speed that a price buys (AutoTM, Figure 9).
fn curve(out: &mut String, session: &Session, runs: &[Run], ends: &Ends) -> std::fmt::Result {
    let slow_only = ends.slow_only.map_or("not possible".to_string(), |time| time.to_string());
    writeln!(out, "{}: {}, peak {}", title(session), runs[0].system, session.peak())?;
    writeln!(out, "simulated; fast-only {}, slow-only {slow_only}\n", ends.fast_only)?;
    let priced = runs.iter().all(|run| Price::of(run, session.peak()).is_some());
    let heads = if priced { "      price  speed for it" } else { "" };
    writeln!(
        out,
        "  {:>12} {:>7} {:>12} {:>12} {:>9} {:>12}{heads}",
        "fast", "share", "used", "iteration", "slowdown", "moved"
    )?;
    for run in runs {
        let fast: Bytes = run.machine.tiers[0].capacity;
        let share = fast.0 as f64 * 100.0 / session.peak().0.max(1) as f64;
        let slowdown = ends.slowdown(run);
        let moved = run.fetched() + run.evicted();
        write!(
            out,
            "  {:>12} {share:>5.1} % {:>12} {:>12} {slowdown:>9.3} {:>12}",
            fast.to_string(),
            run.peak_fast().to_string(),
            run.time().to_string(),
            moved.to_string()
        )?;
        match Price::of(run, session.peak()).filter(|_| priced) {
            Some(price) => {
                writeln!(out, " {:>8.0} % {:>13.2}", price.share() * 100.0, 1.0 / slowdown / price.share())?;
            }
            None => writeln!(out)?,
        }
    }
    if priced {
        writeln!(
            out,
            "\n  The price is that of the memory used against fast memory alone; above 1.00, slow memory pays."
        )?;
    }
    Ok(())
}
