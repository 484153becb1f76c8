//! `tiercel reproduce`: a paper's figures beside ours.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tiercel_session::{Options, cores};
use tiercel_systems::reproduce::{Claim, Difference, Paper, Row, Verdict, named};

use crate::amounts::{duration, threads};
use crate::ann::reproduce::Given;
use crate::answer::Answer;
use crate::files::end_when_interrupted;
use crate::progress::Notes;

const EXAMPLES: &str = "\
Examples:
  tiercel reproduce cachedarrays
      what the paper found on its machine, and what the simulation of that machine finds
  tiercel reproduce sentinel --threads 2
      the same for Sentinel, on its server and on its GPU
  tiercel reproduce autotm --json
      the same for another program to read";

/// Hold a paper's figures against a simulation of its machine.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The paper: autotm, cachedarrays, dynn-offload, hm-ann, hm-keeper, redl, sentinel, warpx-pm or zero-offload
    #[arg(value_name = "PAPER")]
    paper: String,
    /// The time after which a planner's best plan so far is taken
    #[arg(long, value_name = "10s", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    time: Duration,
    /// Simulations at a time [default: one a core]
    #[arg(long, value_name = "N", value_parser = threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    /// For hm-ann: a set of vectors instead of those that are made: npy, fvecs, bvecs or ivecs
    #[arg(long, value_name = "DATA", requires = "queries")]
    vectors: Option<PathBuf>,
    /// For hm-ann: queries for these vectors
    #[arg(long, value_name = "QUERIES", requires = "vectors")]
    queries: Option<PathBuf>,
    /// For hm-ann: what near means among these vectors: l2, ip or cosine
    #[arg(long, value_name = "METRIC", default_value = "l2", requires = "vectors")]
    metric: tiercel_ann::Metric,
    #[command(flatten)]
    answer: Answer,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    end_when_interrupted();
    if arguments.paper == "hm-ann" {
        let threads = arguments.threads.unwrap_or_else(cores);
        let given = arguments.vectors.as_ref().zip(arguments.queries.as_ref());
        let given = given.map(|(vectors, queries)| Given { vectors, queries, metric: arguments.metric });
        return crate::ann::reproduce::run(arguments.answer.json, arguments.answer.seed, threads, given);
    }
    let paper = named(&arguments.paper)?;
    let options = Options { time: arguments.time, seed: arguments.answer.seed, ..Options::default() };
    let notes = Notes::new();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let tick = || {
        let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        notes.say(&format!("{done} simulations done"));
    };
    let rows = paper.reproduce(options, arguments.threads.unwrap_or_else(cores), &tick);
    drop(notes);
    if arguments.answer.json {
        return Ok(format!("{:#}\n", document(paper, &rows)));
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = table(&mut page, paper, &rows);
    Ok(page)
}

/// A row for programs.
pub(crate) fn spelled(row: &Row) -> Value {
    let (low, high) = match row.paper {
        Claim::About(figure) => (Some(figure), Some(figure)),
        Claim::Between(low, high) => (Some(low), Some(high)),
        Claim::AtLeast(low) => (Some(low), None),
        Claim::AtMost(high) => (None, Some(high)),
        Claim::Silent => (None, None),
    };
    json!({
        "what": row.what,
        "place": row.place,
        "paper": row.paper.to_string(),
        "paper_low": low,
        "paper_high": high,
        "ours": row.ours.as_ref().ok(),
        "error": row.ours.as_ref().err(),
        "unit": row.unit,
        "verdict": row.verdict().name(),
        "holds": match row.verdict() {
            Verdict::Holds => Some(true),
            Verdict::Differs(_) => Some(false),
            Verdict::Fitted | Verdict::Alone | Verdict::Missing => None,
        },
        "difference": row.difference().map(|difference| match difference {
            Difference::Share(share) => json!({ "share": share }),
            Difference::Points(points) => json!({ "points": points }),
        }),
        "fitted": row.fitted,
        "note": row.note,
    })
}

fn document(paper: &Paper, rows: &[Row]) -> Value {
    json!({
        "paper": paper.name,
        "title": paper.title,
        "machine": paper.machine,
        "measured": false,
        "remarks": paper.remarks,
        "rows": rows.iter().map(spelled).collect::<Vec<_>>(),
    })
}

fn table(out: &mut String, paper: &Paper, rows: &[Row]) -> std::fmt::Result {
    writeln!(out, "{}\nsimulated on {}\n", paper.title, paper.machine)?;
    figures(out, rows)?;
    paper.remarks.iter().try_for_each(|remark| writeln!(out, "- {remark}"))
}

/// All rows, by their places in the paper, and how many of them stand how.
pub(crate) fn figures(out: &mut String, rows: &[Row]) -> std::fmt::Result {
    let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    let mut places: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !places.contains(&row.place) {
            places.push(row.place);
        }
    });
    for place in places {
        writeln!(out, "{place}")?;
        writeln!(out, "  {:<width$} {:>12} {:>10}", "", "the paper", "ours")?;
        rows.iter().filter(|row| row.place == place).try_for_each(|row| line(out, row, width))?;
        writeln!(out)?;
    }
    writeln!(out, "{}\n", counts(rows))
}

/// How many rows stand how.
fn counts(rows: &[Row]) -> String {
    let count = |name: &str| rows.iter().filter(|row| row.verdict().name() == name).count();
    let [holds, differs, fitted, alone, missing] =
        ["holds", "differs", "fitted", "alone", "missing"].map(count);
    format!(
        "of {} figures {holds} hold (within a tenth, or two points of percent), {differs} differ, {fitted} were fitted and \
         {missing} are missing here; {alone} more are ours alone",
        rows.len() - alone
    )
}

fn line(out: &mut String, row: &Row, width: usize) -> std::fmt::Result {
    let ours = row.ours.as_ref().map_or("-".to_string(), |ours| digits(*ours));
    let by = row.difference().map_or(String::new(), |difference| format!(" by {difference}"));
    let (mark, why) = match row.verdict() {
        Verdict::Holds => ("holds".to_string(), None),
        Verdict::Differs(_) => (format!("differs{by}"), Some("why is not known")),
        Verdict::Fitted if by.is_empty() => ("fitted".to_string(), None),
        Verdict::Fitted => (format!("fitted, and differs{by}"), Some("why is not known")),
        Verdict::Alone => ("ours alone".to_string(), None),
        Verdict::Missing => ("missing".to_string(), None),
    };
    let text =
        format!("  {:<width$} {:>12} {ours:>10} {}  {mark}", row.what, row.paper.to_string(), row.unit);
    writeln!(out, "{}", text.trim_end())?;
    if let Err(error) = &row.ours {
        writeln!(out, "    {error}")?;
    }
    row.note.or(why).map_or(Ok(()), |note| writeln!(out, "    {note}"))
}

/// Three digits that matter.
fn digits(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".to_string(),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 0.01 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}
