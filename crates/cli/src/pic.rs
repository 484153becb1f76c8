//! `tiercel pic`: particle-in-cell plasma simulation, on as much fast memory as there is.

mod bench;
mod compare;

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tiercel_core::{Backing, Bandwidth, Bytes, Nanos, Policy};
use tiercel_pic::deck::{Deck, Precision};
use tiercel_pic::run::{Options, Progress, Summary, run_with as simulate};
use tiercel_pic::scene::Amount;
use tiercel_pic::simulation::PHASES;
use tiercel_pic::system::System;
use tiercel_pic::team::{Team, mpi::Mpi};
use tiercel_policies::Ial;
use tiercel_session::{Fast, cores};

use crate::amounts::{self, count};
use crate::answer::Answer;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  tiercel pic run examples/decks/uniform.toml
      a thermal plasma, with everything in fast memory
  tiercel pic run examples/decks/uniform.toml --fast 20% --system tiercel
      the same with a fifth of the fast memory, the rest behind memory that is slowed down
  tiercel pic run examples/decks/langmuir.toml --checkpoint run.ckpt --resume --json
      goes on from where it was stopped, if it was; for another program to read";

/// Simulate a plasma, particle by particle.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Run(Box<Run>),
    Compare(Box<compare::Compare>),
    Bench(bench::Bench),
}

/// Run a deck.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct Run {
    /// What to simulate: a TOML file (docs/pic.md)
    #[arg(value_name = "DECK.toml")]
    deck: PathBuf,
    /// Fast memory: a share of what the run needs, or an amount [default: enough for everything]
    #[arg(long, value_name = "20%|8MiB", allow_hyphen_values = true)]
    fast: Option<Fast>,
    /// What is behind the slow tier: throttled (an emulation), dram, numa:N, dax:PATH or file:PATH
    #[arg(long, value_name = "BACKING", default_value = "throttled")]
    slow: Backing,
    /// What throttled memory reads and writes at
    #[arg(long, value_name = "READ,WRITE", default_value = "2GB/s,1GB/s", value_parser = bandwidths)]
    throttle: (Bandwidth, Bandwidth),
    /// Who decides where particles and fields live [default: tiercel, or all-fast without --fast]
    #[arg(long, value_name = "all-fast|slow-only|first-touch|memory-mode|ial|static|warpx-pm|tiercel")]
    system: Option<System>,
    /// Iterations, other than the deck says
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    steps: Option<u64>,
    /// Write a checkpoint to this file at the end, and when the run is interrupted
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Write the checkpoint after every so many iterations too
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = clap::value_parser!(u64).range(1..), allow_hyphen_values = true)]
    every: Option<u64>,
    /// Go on from the checkpoint if it is there
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Where openPMD files go, if the deck asks for any
    #[arg(long, value_name = "FOLDER", default_value = "diagnostics")]
    output: PathBuf,
    /// Write a page with fields and phase space as pictures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Threads that compute; results do not depend on them [default: one a core]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    /// Threads that copy, in each direction [default: what the model of WarpX-PM finds best after the second iteration]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    copiers: Option<usize>,
    /// Share the run with the other ranks that mpirun has started, each with a part of the layers of tiles along z
    #[arg(long)]
    mpi: bool,
    #[command(flatten)]
    answer: Answer,
}

/// `39GB/s,13GB/s`: reading and writing.
fn bandwidths(text: &str) -> Result<(Bandwidth, Bandwidth), String> {
    let bad = || format!("`{text}` is no pair of bandwidths such as 39GB/s,13GB/s");
    let (read, write) = text.split_once(',').ok_or_else(bad)?;
    let one = |text: &str| {
        text.trim().parse::<Bandwidth>().ok().filter(|bandwidth| bandwidth.0 > 0.0).ok_or_else(bad)
    };
    Ok((one(read)?, one(write)?))
}

/// Whether somebody wants the run to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether there is something to end well.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt ends the run after its iteration, with its checkpoint; a second one does not wait for that.
fn watch_for_interrupts() -> anyhow::Result<()> {
    let handler = || {
        if !RUNNING.load(Ordering::SeqCst) || STOP.swap(true, Ordering::SeqCst) {
            tiercel_run::files::discard();
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).context("cannot watch for interrupts")
}

/// Reads a deck; a seed other than zero counts instead of its own.
fn read(path: &Path, seed: u64) -> Result<Deck, Failure> {
    let wrong = |error: String| Failure::usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let mut deck = Deck::parse(&text).map_err(|error| wrong(error.to_string()))?;
    if seed != 0 {
        deck.setup.seed = seed;
    }
    Ok(deck)
}

/// How often IAL looks at pages, in nanoseconds: the paper's five seconds, for runs a thousand times as small as the paper's.
const LOOKS: u64 = 5_000_000;

/// Policies that particles share with networks.
fn house(name: &str) -> Option<Box<dyn Policy>> {
    (name == "ial").then(|| -> Box<dyn Policy> { Box::new(Ial::new(Nanos(LOOKS))) })
}

fn amount(fast: Fast) -> Amount {
    match fast {
        Fast::Share(share) => Amount::Share(share),
        Fast::Amount(bytes) => Amount::Bytes(bytes),
        Fast::All => Amount::Share(1.0),
    }
}

/// Where an interrupted run leaves its checkpoint if nobody said: in the folder that we are in, in the place of nothing.
fn refuge(deck: &Path) -> PathBuf {
    let name = deck.file_stem().map_or("deck".into(), |stem| stem.to_string_lossy());
    let names = (2..).map(|number| format!("{name}.{number}.checkpoint"));
    let mut free = std::iter::once(format!("{name}.checkpoint")).chain(names).map(PathBuf::from);
    free.find(|path| !path.exists()).unwrap_or_default()
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let arguments = match &arguments.what {
        What::Run(arguments) => arguments,
        What::Compare(arguments) => return compare::run(arguments),
        What::Bench(arguments) => return Ok(bench::run(arguments)?),
    };
    let deck = read(&arguments.deck, arguments.answer.seed)?;
    watch_for_interrupts()?;
    let system =
        arguments.system.unwrap_or(if arguments.fast.is_some() { System::Tiercel } else { System::AllFast });
    let options = Options {
        fast: arguments.fast.map(amount),
        slow: arguments.slow.clone(),
        throttled: arguments.throttle,
        system,
        house,
        threads: arguments.threads.unwrap_or_else(cores),
        copiers: arguments.copiers.map(|copiers| copiers as u32),
        steps: arguments.steps,
        checkpoint: arguments.checkpoint.clone(),
        refuge: Some(refuge(&arguments.deck)),
        every: arguments.every,
        resume: arguments.resume,
        folder: Some(arguments.output.clone()),
        pictures: arguments.html.is_some(),
    };
    let (team, ends) = if arguments.mpi {
        let link = Mpi::begin().map_err(Failure::from)?;
        let ends = link.ends();
        (Team::of(Box::new(link)), Some(ends))
    } else {
        (Team::alone(), None)
    };
    let (leads, ranks) = (team.leads(), team.size());
    let mut bar = Bar::new();
    RUNNING.store(true, Ordering::SeqCst);
    let done = simulate(&deck, &options, team, &mut |progress| {
        if leads {
            bar.show(progress);
        }
        !STOP.load(Ordering::SeqCst)
    });
    bar.clear();
    let mut summary = match (done, ends) {
        (Ok(summary), Some(ends)) => {
            ends.finish();
            summary
        }
        (Ok(summary), None) => summary,
        (Err(error), Some(ends)) => {
            // The others would wait for this rank for ever.
            eprintln!("error: {error}");
            ends.abort(1);
            return Err(error.into());
        }
        (Err(error), None) => return Err(error.into()),
    };
    if !leads {
        return Ok(String::new());
    }
    if let Some(path) = &arguments.html {
        let lines = page(arguments, &deck, system, (&options, ranks), &summary);
        let title = arguments.deck.display().to_string();
        let html = tiercel_pic::page::page(&title, &lines, &summary.pictures, &summary.history);
        if let Err(error) = tiercel_run::files::replace(path, html) {
            summary.lost.push(format!("{}: {error}", path.display()));
        }
    }
    bar.complain(&summary.lost);
    let text = if arguments.answer.json {
        format!("{:#}\n", document(&deck, system, (&options, ranks), &summary))
    } else {
        page(arguments, &deck, system, (&options, ranks), &summary)
    };
    if !summary.lost.is_empty() {
        let message = format!("{} of the files could not be written: see above", summary.lost.len());
        return Err(Failure { message, status: 1, out: Some(text) }.into());
    }
    if summary.interrupted {
        let [done, all] = [summary.steps, options.steps.unwrap_or(deck.steps)];
        let resume = summary
            .checkpoint
            .as_ref()
            .map(|path| format!("; `--checkpoint {} --resume` goes on from there", path.display()));
        let message = format!("interrupted after {done} of {all} iterations{}", resume.unwrap_or_default());
        return Err(Failure::interrupted(message, Some(text)).into());
    }
    Ok(text)
}

fn document(
    deck: &Deck,
    system: System,
    (options, ranks): (&Options, usize),
    summary: &Summary,
) -> serde_json::Value {
    let state = |measured: &tiercel_pic::Measured| {
        json!({
            "electric": measured.fields[0],
            "magnetic": measured.fields[1],
            "kinetic": measured.kinetic,
            "energy": measured.energy(),
            "momentum": measured.momentum,
            "charge": measured.charge,
        })
    };
    json!({
        "system": system.to_string(),
        "slow": options.slow.to_string(),
        "emulated": summary.emulated,
        "measured": true,
        "precision": match deck.precision { Precision::F32 => "f32", Precision::F64 => "f64" },
        "order": deck.setup.order,
        "threads": options.threads,
        "ranks": ranks,
        "steps": summary.steps,
        "done": summary.done,
        "resumed": summary.resumed,
        "interrupted": summary.interrupted,
        "checkpoint": summary.checkpoint,
        "lost": summary.lost,
        "particles": summary.particles,
        "updates_per_second": summary.updates_per_second,
        "energy_drift": summary.energy_drift,
        "output_hash": format!("{:016x}", summary.output_hash),
        "species": summary.species,
        "first": state(&summary.first),
        "last": state(&summary.last),
        "seconds": {
            "all": summary.wall.as_secs_f64(),
            "push": summary.times.push,
            "deposit": summary.times.deposit,
            "fields": summary.times.fields,
            "exchange": summary.times.exchange,
        },
        "fast_bytes": summary.fast.0,
        "needed_bytes": summary.needs.all().0,
        "particle_bytes": summary.needs.particles.0,
        "copiers": summary.copiers.0,
        "copiers_chosen": summary.copiers.1,
        "fetched_bytes": summary.moved.0.0,
        "evicted_bytes": summary.moved.1.0,
        "stall_ns": summary.stalled.as_nanos() as u64,
    })
}

fn page(
    arguments: &Run,
    deck: &Deck,
    system: System,
    options: (&Options, usize),
    summary: &Summary,
) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = lines(&mut out, arguments, deck, system, options, summary);
    out
}

fn lines(
    out: &mut String,
    arguments: &Run,
    deck: &Deck,
    system: System,
    (options, ranks): (&Options, usize),
    summary: &Summary,
) -> std::fmt::Result {
    let [x, y, z] = deck.setup.grid.cells;
    let precision = match deck.precision {
        Precision::F32 => "f32",
        Precision::F64 => "f64",
    };
    writeln!(
        out,
        "{}: {x} × {y} × {z} cells, {precision}, order {}\n",
        arguments.deck.display(),
        deck.setup.order
    )?;
    let of = if ranks > 1 { format!(" of each of {ranks} ranks") } else { String::new() };
    writeln!(out, "  system       {system}, {} threads{of}", options.threads)?;
    let share = 100.0 * summary.fast.0 as f64 / summary.needs.all().0.max(1) as f64;
    writeln!(
        out,
        "  fast memory  {}, {share:.0} % of the {} that the run needs",
        summary.fast,
        summary.needs.all()
    )?;
    if system != System::AllFast {
        let (read, write) = options.throttled;
        let emulated = format!(": emulated, memory slowed down to {read} read and {write} write");
        writeln!(
            out,
            "  slow memory  {}{}",
            options.slow,
            if summary.emulated { emulated } else { String::new() }
        )?;
    }
    if let Some(from) = summary.resumed {
        writeln!(out, "  resumed      after iteration {from}")?;
    }
    writeln!(
        out,
        "  iterations   {}{}",
        summary.steps,
        if summary.interrupted { ", interrupted" } else { "" }
    )?;
    writeln!(out, "  particles    {}", summary.particles)?;
    writeln!(out, "  speed        {:.1} M particle updates a second", summary.updates_per_second / 1e6)?;
    let times = &summary.times;
    let all = summary.wall.as_secs_f64().max(1e-9);
    let part = |seconds: f64| format!("{:.0} %", 100.0 * seconds / all);
    writeln!(
        out,
        "  time         {:.2} s: push {}, deposit {}, fields {}, exchange {}",
        all,
        part(times.push),
        part(times.deposit),
        part(times.fields),
        part(times.exchange)
    )?;
    let (each, stalled) = (summary.done.max(1), 100.0 * summary.stalled.as_secs_f64() / all);
    if system != System::AllFast {
        let (fetched, evicted) = (Bytes(summary.moved.0.0 / each), Bytes(summary.moved.1.0 / each));
        writeln!(
            out,
            "  moved        {fetched} fetched and {evicted} evicted an iteration; {stalled:.1} % of the time stalled"
        )?;
    }
    if matches!(system, System::WarpxPm | System::Tiercel) {
        let (counts, chosen) = summary.copiers;
        let how = if chosen { ", as the model of copy threads has it" } else { "" };
        let each: Vec<String> =
            PHASES.iter().zip(counts).map(|(phase, count)| format!("{phase} {count}")).collect();
        writeln!(out, "  copiers      {} in each direction{how}", each.join(", "))?;
    }
    let (first, last) = (&summary.first, &summary.last);
    writeln!(
        out,
        "  energy       {:.6e} at first, {:.6e} at last: {:+.2e}",
        first.energy(),
        last.energy(),
        summary.energy_drift
    )?;
    for (at, name) in summary.species.iter().enumerate() {
        let [px, py, pz] = last.momentum.get(at).copied().unwrap_or_default();
        let kinetic = last.kinetic.get(at).copied().unwrap_or_default();
        let charge = last.charge.get(at).copied().unwrap_or_default();
        writeln!(
            out,
            "    {name}: kinetic {kinetic:.4e}, momentum {px:+.3e} {py:+.3e} {pz:+.3e}, charge {charge:+.6e}"
        )?;
    }
    writeln!(out, "  result       {:016x}, the same for the same results", summary.output_hash)
}

/// A line of progress for runs that somebody may be waiting for: a terminal is there, and two seconds have passed.
struct Bar {
    started: Instant,
    bar: Option<ProgressBar>,
    /// How many files it is known of that they could not be written.
    lost: usize,
}

impl Bar {
    fn new() -> Bar {
        Bar { started: Instant::now(), bar: None, lost: 0 }
    }

    fn show(&mut self, progress: Progress<'_>) {
        self.complain(progress.lost);
        if self.bar.is_none() {
            if !std::io::stderr().is_terminal() || self.started.elapsed() < Duration::from_secs(2) {
                return;
            }
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}  {eta} left");
            let bar = ProgressBar::new(progress.steps);
            self.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.done);
            bar.set_message(format!("{:.1} M updates/s", progress.updates_per_second / 1e6));
        }
    }

    /// Says at once what could not be written: somebody may make room.
    fn complain(&mut self, lost: &[String]) {
        for why in lost.iter().skip(self.lost) {
            match &self.bar {
                Some(bar) => bar.suspend(|| eprintln!("tiercel: {why}")),
                None => eprintln!("tiercel: {why}"),
            }
        }
        self.lost = lost.len();
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
