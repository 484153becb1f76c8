//! `tiercel report`: what happened in runs, from the events that they wrote, as tables, a page, a Perfetto trace or CSV.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tiercel_core::Bytes;
use tiercel_report::events::is_events;
use tiercel_report::kept::is_kept;
use tiercel_report::{Comparison, Kept, Log, Report, Run, csv, perfetto};

use crate::answer::Answer;
use crate::files::{self, end_when_interrupted};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  tiercel report events.jsonl --html report.html
      a page with a timeline, memory maps and where kernels waited, from what `tiercel run --events` wrote
  tiercel report lm.jsonl lmp.jsonl compare.json --html report.html --perfetto trace.json
      two runs and a list of results that `tiercel compare --json` printed, side by side; the trace opens in Perfetto
  tiercel report kept.jsonl --html kept.html
      the address space of a program over time, from what `tiercel keep --events` wrote";

/// Show what happened in runs: where time went, what lay where, which tensors kernels waited for.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Events that a run wrote (`--events`), or results that a verb printed (`--json`); `-` reads standard input
    #[arg(value_name = "EVENTS", required = true)]
    files: Vec<PathBuf>,
    /// Write one page with charts, which needs nothing but a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Write every kernel, copy, stall and region as a table; without events, the results
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// What the page is called
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    check_places(arguments)?;
    end_when_interrupted();
    let report = read(arguments)?;
    if arguments.perfetto.is_some() && report.runs.is_empty() {
        bail!("--perfetto: a trace is made of events, and no file has any");
    }
    if let Some(path) = &arguments.html {
        put(path, |out| out.write_all(report.html().as_bytes()))?;
    }
    if let Some(path) = &arguments.perfetto {
        put(path, |out| perfetto::write(out, &report.runs))?;
    }
    if let Some(path) = &arguments.csv {
        put(path, |out| match report.runs.is_empty() {
            true => csv::comparison(out, &report.comparison),
            false => csv::runs(out, &report.runs),
        })?;
    }
    if arguments.answer.json { Ok(format!("{:#}\n", report.document())) } else { Ok(report.text()) }
}

/// Nothing that is read or written is overwritten.
fn check_places(arguments: &Arguments) -> anyhow::Result<()> {
    let outputs =
        [("--html", &arguments.html), ("--perfetto", &arguments.perfetto), ("--csv", &arguments.csv)];
    let outputs: Vec<(&str, &Path)> =
        outputs.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?))).collect();
    for (option, path) in &outputs {
        if arguments.files.iter().any(|input| files::same(input, path)) {
            bail!("{option}: `{}` is what is to be read", path.display());
        }
    }
    files::check_all(&outputs)
}

/// Reads every file and puts together what they hold.
fn read(arguments: &Arguments) -> anyhow::Result<Report> {
    let (mut runs, mut results, mut kept) = (Vec::new(), Comparison::default(), Vec::new());
    for path in &arguments.files {
        let name = path.display();
        let mut from = open(path).with_context(|| format!("cannot read `{name}`"))?;
        let start = from.fill_buf().with_context(|| format!("cannot read `{name}`"))?;
        if start.is_empty() {
            bail!("{name}: the file is empty");
        }
        if is_events(start) {
            let log = Log::read(from).with_context(|| name.to_string())?;
            runs.push(Run::new(log));
        } else if is_kept(start) {
            kept.push(Kept::read(from).with_context(|| name.to_string())?);
        } else {
            let mut text = Vec::new();
            from.read_to_end(&mut text).with_context(|| format!("cannot read `{name}`"))?;
            let read = Comparison::parse(&text);
            let read =
                read.with_context(|| format!("{name}: these are neither events nor results of runs"))?;
            results.rows.extend(read.rows);
        }
    }
    let title = arguments.title.clone().unwrap_or_else(|| title(&runs));
    let mut report = Report::of_runs(title, runs);
    report.comparison.add(results.rows);
    report.kept = kept;
    Ok(report)
}

fn title(runs: &[Run]) -> String {
    match runs {
        [run] => format!("{}: {} on {}", run.header.net, run.header.system, run.header.machine),
        _ => "Tiercel report".to_string(),
    }
}

/// A file to read from, or standard input.
fn open(path: &Path) -> io::Result<BufReader<Box<dyn Read>>> {
    if path.as_os_str() == "-" {
        return Ok(BufReader::with_capacity(1 << 16, Box::new(io::stdin())));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    let progress = Progress::new((length >> 20) as usize, "reading, MiB");
    Ok(BufReader::with_capacity(1 << 16, Box::new(Watched { file, read: 0, progress })))
}

/// A file whose reading shows its progress.
struct Watched {
    file: File,
    read: u64,
    progress: Progress,
}

impl Read for Watched {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(to)?;
        let before = self.read >> 20;
        self.read += count as u64;
        (before..self.read >> 20).for_each(|_| self.progress.tick());
        Ok(count)
    }
}

/// Writes a file whole or not at all, and says so.
fn put(path: &Path, contents: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    contents(&mut bytes).with_context(|| format!("cannot write `{}`", path.display()))?;
    files::replace(path, &bytes)?;
    // Whoever closed standard error does not want to know.
    let _ = writeln!(io::stderr(), "tiercel: wrote {}, {}", path.display(), Bytes(bytes.len() as u64));
    Ok(())
}
