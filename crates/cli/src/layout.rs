//! `tiercel layout`: offsets for the buffers of a file in the form of the MiniMalloc benchmark.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tiercel_core::{Bytes, Nanos};
use tiercel_plan::Effort;
use tiercel_plan::layout::table::{self, Table};
use tiercel_plan::layout::{LayoutError, Packing, Progress, Shortfall, pack_watched};

use crate::amounts::duration;
use crate::answer::Answer;
use crate::failure::{self, Failure};
use crate::figures::grouped;
use crate::files;

const EXAMPLES: &str = "\
Examples:
  tiercel layout buffers.csv --capacity 1MiB --out packed.csv
      offsets for all buffers within 1 MiB, in a copy of the file with the column `offset`
  tiercel layout buffers.csv --time 2s --json
      how low a peak two seconds of search reach, and what no packing can undercut

The file has a header with the columns id, lower, upper, size and, if wanted, alignment, in any order. A buffer lives
from `lower` up to but not at `upper`.

Exit status: 0 if the buffers are packed, 1 if no packing was found, 2 for a command line or a file that cannot be read.";

/// Pack buffers with lifetimes into memory: an offset for each, so that no two share a byte at the same moment.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The buffers: comma-separated, as in the MiniMalloc benchmark
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The bytes that there are, such as 1048576 or 1MiB; without it, the lowest peak is sought
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    capacity: Option<Bytes>,
    /// Write the buffers with their offsets to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// When to stop with the best packing found
    #[arg(long, value_name = "TIME", default_value = "9s", value_parser = duration, allow_hyphen_values = true)]
    time: Duration,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or why there is no packing.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let started = Instant::now();
    let wrong = |what: String| Failure::usage(format!("{}: {what}", arguments.file.display()));
    if let Some(out) = &arguments.out {
        files::check(out).map_err(unusable)?;
    }
    let bytes = std::fs::read(&arguments.file).map_err(|error| wrong(error.to_string()))?;
    let table = table::read(&bytes).map_err(|error| wrong(error.to_string()))?;
    drop(bytes);
    let time = arguments.time.saturating_sub(started.elapsed());
    let effort = Effort { gap: 0.0, time, seed: arguments.answer.seed, ..Effort::default() };
    let mut bar = Bar::new(started, Nanos(arguments.time.as_nanos() as u64));
    let packing =
        pack_watched(&table.buffers, arguments.capacity, &effort, &mut |progress| bar.show(progress));
    bar.clear();
    let result = |packing: &Packing| {
        let solved = started.elapsed();
        if arguments.answer.json {
            format!("{:#}\n", document(arguments, &table, packing, solved))
        } else {
            page(arguments, &table, packing, solved)
        }
    };
    match packing {
        Ok(packing) => {
            if let Some(out) = &arguments.out {
                files::replace(out, table.write(&packing.offsets)).map_err(unusable)?;
            }
            Ok(result(&packing))
        }
        Err(LayoutError::DoesNotFit(shortfall)) => {
            let message = format!("{}: {}", arguments.file.display(), complaint(&table, &shortfall));
            let out = arguments.answer.json.then(|| result(&shortfall.best));
            Err(Failure { message, status: 1, out }.into())
        }
        Err(error) => Err(wrong(error.to_string()).into()),
    }
}

/// A file that cannot be written, to a verb whose status 1 says that nothing fits.
fn unusable(error: anyhow::Error) -> Failure {
    Failure::usage(failure::told(&error))
}

/// What does not fit, and which buffers are to blame.
fn complaint(table: &Table, shortfall: &Shortfall) -> String {
    let mut text =
        format!("{shortfall}; largest of {} alive at moment {}:", shortfall.alive.len(), shortfall.moment);
    for (n, at) in shortfall.alive.iter().take(5).enumerate() {
        let comma = if n == 0 { "" } else { "," };
        // Writing to a string never fails.
        let _ = write!(text, "{comma} {} ({})", table.ids[*at], table.buffers[*at].size);
    }
    text
}

fn document(arguments: &Arguments, table: &Table, packing: &Packing, solved: Duration) -> Value {
    json!({
        "buffers": table.buffers.len(),
        "capacity_bytes": arguments.capacity.map(|capacity| capacity.0),
        "packed": arguments.capacity.is_none_or(|capacity| packing.peak <= capacity),
        "peak_bytes": packing.peak.0,
        "lower_bound_bytes": packing.lower_bound.0,
        "proven_bytes": packing.proven.0,
        "gap": packing.gap(),
        "solve_ms": solved.as_secs_f64() * 1e3,
        "seed": arguments.answer.seed,
    })
}

fn page(arguments: &Arguments, table: &Table, packing: &Packing, solved: Duration) -> String {
    let mut page = String::new();
    let count = grouped(table.buffers.len() as u64);
    let room = arguments.capacity.map_or(String::new(), |capacity| format!(" into {capacity}"));
    let mut row = |name: &str, text: String| {
        // Writing to a string never fails.
        let _ = writeln!(page, "  {name:<12} {text}");
    };
    let amount = |bytes: Bytes| format!("{bytes} ({} bytes)", grouped(bytes.0));
    row("buffers", format!("{count}, packed{room}"));
    row("peak", format!("{}, {}", amount(packing.peak), quality(packing)));
    row("lower bound", format!("{}: the most bytes alive at once", amount(packing.lower_bound)));
    row("time", Nanos(solved.as_nanos() as u64).to_string());
    if let Some(out) = &arguments.out {
        row("written", out.display().to_string());
    }
    page
}

/// How good a peak is.
fn quality(packing: &Packing) -> String {
    match packing.gap() {
        _ if packing.is_optimal() => "the lowest possible".to_string(),
        gap => format!("{:.2} % above the lower bound", 100.0 * gap),
    }
}

/// What is being reached, for somebody who may be waiting: a terminal is there, and two seconds have passed.
struct Bar {
    started: Instant,
    limit: Nanos,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(started: Instant, limit: Nanos) -> Bar {
        Bar { started, limit, bar: None }
    }

    fn show(&mut self, progress: Progress) {
        let passed = self.started.elapsed();
        if self.bar.is_none() {
            if !std::io::stderr().is_terminal() || passed < Duration::from_secs(2) {
                return;
            }
            let style = ProgressStyle::with_template("{wide_bar} {msg}");
            let bar = ProgressBar::new(self.limit.0);
            self.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &self.bar {
            bar.set_position((passed.as_nanos() as u64).min(self.limit.0));
            let Progress { peak, proven, .. } = progress;
            bar.set_message(format!(
                "peak {} bytes, at least {}, {:.0} s of {}",
                peak.0,
                proven.0,
                passed.as_secs_f64(),
                self.limit
            ));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
