//! `tiercel pic compare`: systems on one deck for real, in turns, with what is possible.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use tiercel_core::{Backing, Bandwidth};
use tiercel_pic::compare::{Comparison, Contest, Entry, compare};
use tiercel_pic::run::Options;
use tiercel_pic::simulation::PHASES;
use tiercel_pic::system::System;
use tiercel_session::{Fast, cores};

use super::{RUNNING, STOP, amount, bandwidths, house, read, watch_for_interrupts};
use crate::amounts;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  tiercel pic compare examples/decks/uniform.toml --fast 20%
      all systems with a fifth of the fast memory, before memory that is to this machine's as Optane is to DRAM
  tiercel pic compare examples/decks/uniform.toml --slow file:/tmp --systems warpx-pm,tiercel --json
      two of them before a file; for another program to read";

/// Compare systems on a deck: they run for real, in turns, beside the least time that is possible.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Compare {
    /// What to simulate: a TOML file (docs/pic.md)
    #[arg(value_name = "DECK.toml")]
    deck: PathBuf,
    /// Fast memory: a share of what the run needs, or an amount
    #[arg(long, value_name = "20%|8MiB", default_value = "20%", allow_hyphen_values = true)]
    fast: Fast,
    /// What is behind the slow tier: throttled (an emulation), dram, numa:N, dax:PATH or file:PATH
    #[arg(long, value_name = "BACKING", default_value = "throttled")]
    slow: Backing,
    /// What throttled memory reads and writes at; `optane` for 39/104 and 13/80 of what this machine's memory does
    #[arg(long, value_name = "READ,WRITE|optane", default_value = "optane", value_parser = throttle)]
    throttle: Throttle,
    /// The systems that take part beside all-fast, or `all`
    #[arg(long, value_name = "S,S", value_delimiter = ',', default_value = "all")]
    systems: Vec<String>,
    /// How often each has its turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), allow_hyphen_values = true)]
    rounds: u32,
    /// Iterations of a turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), allow_hyphen_values = true)]
    steps: u32,
    /// Threads that compute [default: one fewer than there are cores, which is left to copies]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    /// Threads that copy, in each direction [default: what the model of WarpX-PM finds best after the second iteration]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    copiers: Option<usize>,
    /// Write a page with the times as bars to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// How slow memory is that stands in for another.
#[derive(Clone, Copy)]
enum Throttle {
    Optane,
    To(Bandwidth, Bandwidth),
}

fn throttle(text: &str) -> Result<Throttle, String> {
    if text == "optane" {
        return Ok(Throttle::Optane);
    }
    bandwidths(text).map(|(read, write)| Throttle::To(read, write))
}

fn systems(names: &[String]) -> Result<Vec<System>, Failure> {
    if names.iter().any(|name| name == "all") {
        return Ok(System::ALL.iter().map(|(_, system)| *system).collect());
    }
    let mut all: Vec<System> = Vec::new();
    for name in names {
        let system = name.parse::<System>().map_err(Failure::usage)?;
        if !all.contains(&system) {
            all.push(system);
        }
    }
    Ok(all)
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Compare) -> anyhow::Result<String> {
    let deck = read(&arguments.deck, arguments.answer.seed)?;
    let threads = arguments.threads.unwrap_or_else(|| cores().saturating_sub(1).max(1));
    let mut options = Options {
        fast: Some(amount(arguments.fast)),
        slow: arguments.slow.clone(),
        house,
        threads,
        copiers: arguments.copiers.map(|copiers| copiers as u32),
        ..Options::default()
    };
    if let Throttle::To(read, write) = arguments.throttle {
        options.throttled = (read, write);
    }
    let contest = Contest {
        options,
        optane: matches!(arguments.throttle, Throttle::Optane),
        systems: systems(&arguments.systems)?,
        rounds: arguments.rounds,
        steps: arguments.steps,
    };
    watch_for_interrupts()?;
    let turns = contest.rounds as usize * (contest.systems.len() + 1);
    let progress = Progress::new(turns, "running");
    RUNNING.store(true, Ordering::SeqCst);
    let found = compare(&deck, &contest, &mut |_| {
        progress.tick();
        !STOP.load(Ordering::SeqCst)
    });
    drop(progress);
    let found = found?;
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = table(&mut page, arguments, threads, &found);
    if let Some(path) = &arguments.html {
        let html = tiercel_pic::page::contest(&arguments.deck.display().to_string(), &page, &found);
        tiercel_run::files::replace(path, html).with_context(|| path.display().to_string())?;
    }
    if arguments.answer.json {
        return Ok(format!("{:#}\n", document(arguments, threads, &found)));
    }
    Ok(page)
}

fn document(arguments: &Compare, threads: usize, found: &Comparison) -> Value {
    let row = |(system, entry): &(System, Result<Entry, String>)| match entry {
        Err(error) => json!({ "system": system.to_string(), "error": error }),
        Ok(entry) => json!({
            "system": system.to_string(),
            "seconds": entry.best(),
            "median_seconds": entry.median(),
            "rounds": entry.seconds,
            "updates_per_second": found.particles as f64 / entry.best(),
            "fetched_bytes": entry.fetched.0,
            "evicted_bytes": entry.evicted.0,
            "slow_bytes_by_kernels": entry.behind.0,
            "stalled": entry.stalled,
            "copiers": entry.copiers,
            "output_hash": format!("{:016x}", entry.hash),
        }),
    };
    let roofline = &found.roofline;
    json!({
        "measured": true,
        "emulated": found.emulated,
        "slow": arguments.slow.to_string(),
        "slow_read": found.throttled.0.0,
        "slow_write": found.throttled.1.0,
        "threads": threads,
        "cores": found.cores,
        "particles": found.particles,
        "particle_bytes": found.particle_bytes.0,
        "needed_bytes": found.needed.0,
        "fast_bytes": found.fast.0,
        "same_results": found.agree(),
        "roofline": {
            "crossing_bytes": roofline.crossing.0,
            "compute": roofline.compute,
            "read": roofline.read,
            "write": roofline.write,
            "both": roofline.both,
            "processors": roofline.processors,
            "seconds": roofline.floor(),
            "bound": roofline.bound(),
        },
        "systems": found.entries.iter().map(row).collect::<Vec<_>>(),
    })
}

fn table(out: &mut String, arguments: &Compare, threads: usize, found: &Comparison) -> std::fmt::Result {
    let share = 100.0 * found.fast.0 as f64 / found.needed.0.max(1) as f64;
    writeln!(
        out,
        "{}: {} particles, measured with {threads} of {} cores computing\n",
        arguments.deck.display(),
        found.particles,
        found.cores
    )?;
    writeln!(
        out,
        "  fast memory  {}, {share:.0} % of the {} that the run needs; all particles have {}",
        found.fast, found.needed, found.particle_bytes
    )?;
    let (read, write) = found.throttled;
    let emulated = format!(": emulated, memory slowed down to {read} read and {write} write");
    writeln!(
        out,
        "  slow memory  {}{}\n",
        arguments.slow,
        if found.emulated { emulated } else { String::new() }
    )?;
    writeln!(
        out,
        "  {:<12} {:>8} {:>8} {:>8} {:>9} {:>10} {:>10} {:>11} {:>8}  copiers",
        "", "ms", "median", "M/s", "all-fast", "fetched", "evicted", "by kernels", "stalled"
    )?;
    let fast = found.of(System::AllFast).map_or(f64::NAN, Entry::best);
    for (system, entry) in &found.entries {
        let name = system.to_string();
        match entry {
            Err(error) => writeln!(out, "  {name:<12} {error}")?,
            Ok(entry) => writeln!(
                out,
                "  {name:<12} {:>8.1} {:>8.1} {:>8.1} {:>8.0}% {:>10} {:>10} {:>11} {:>7.1}%  {}",
                entry.best() * 1e3,
                entry.median() * 1e3,
                found.particles as f64 / entry.best() / 1e6,
                100.0 * fast / entry.best(),
                entry.fetched.to_string(),
                entry.evicted.to_string(),
                entry.behind.to_string(),
                100.0 * entry.stalled,
                copiers(*system, entry)
            )?,
        }
    }
    let roofline = &found.roofline;
    writeln!(
        out,
        "\n  possible     {:.1} ms, {:.0} % of all-fast, bound by {}: {} must cross each way;",
        roofline.floor() * 1e3,
        100.0 * fast / roofline.floor(),
        roofline.bound(),
        roofline.crossing
    )?;
    let both =
        |seconds: f64| if seconds > 0.0 { format!(", both {:.1}", seconds * 1e3) } else { String::new() };
    writeln!(
        out,
        "               computing {:.1}, reading {:.1}, writing {:.1}{}, processors {:.1} ms",
        roofline.compute * 1e3,
        roofline.read * 1e3,
        roofline.write * 1e3,
        both(roofline.both),
        roofline.processors * 1e3
    )?;
    let same = if found.agree() { "the same for all" } else { "NOT the same" };
    writeln!(out, "  results      {same}")?;
    writeln!(
        out,
        "\nthe best of {} rounds of {} iterations, in turns; bytes of an iteration; all-fast has memory enough for everything",
        arguments.rounds, arguments.steps
    )
}

fn copiers(system: System, entry: &Entry) -> String {
    if !matches!(system, System::WarpxPm | System::Tiercel) {
        return String::new();
    }
    let all = PHASES.iter().zip(entry.copiers);
    all.map(|(phase, count)| format!("{phase} {count}")).collect::<Vec<_>>().join(", ")
}
