//! `tiercel ann bench`: recall against queries a second, with all vectors in memory and with vectors in the file.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tiercel_ann::{FastMemory, Index, Point, Slow, Tiered, Timed};
use tiercel_run::cores::time_used;

use super::{fast, first, page, truth, vectors};
use crate::amounts::threads;
use crate::answer::Answer;
use crate::files;
use crate::progress::Progress;

/// Measure recall against queries a second, with slow reads a query.
#[derive(Args)]
pub struct Arguments {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// The queries
    #[arg(value_name = "QUERIES")]
    queries: PathBuf,
    /// Their true neighbours
    #[arg(long, value_name = "IDS")]
    truth: PathBuf,
    /// How many neighbours of each
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// Fast memory where vectors stay in the file
    #[arg(long, value_name = "20%|2GiB", default_value = "20%", value_parser = fast, allow_hyphen_values = true)]
    fast: FastMemory,
    /// Where the other vectors are
    #[arg(long, value_name = "TIER", default_value = "index")]
    slow: Slow,
    /// Leave out the measurement with everything in memory
    #[arg(long)]
    no_memory: bool,
    /// Only so many queries
    #[arg(long, value_name = "N", default_value_t = 2000)]
    limit: usize,
    /// Threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, allow_hyphen_values = true)]
    threads: usize,
    /// Write a page with the curves here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    if let Some(html) = &arguments.html {
        files::check(html)?;
    }
    let queries = first(vectors(&arguments.queries)?, Some(arguments.limit));
    let truth = truth(&arguments.truth, queries.len(), arguments.k)?;
    let mut curves: Vec<(String, Vec<Point>)> = Vec::new();
    let (limit, held);
    let measure = |name: String, timed: Timed<'_>| -> anyhow::Result<(String, Vec<Point>)> {
        let widths = timed.widths(arguments.k);
        let bar = Progress::new(widths.len(), "searching");
        let mut points = Vec::new();
        for width in widths {
            let within = (arguments.k, arguments.threads);
            points.push(timed.point(&queries, &truth, within, width, time_used)?);
            bar.tick();
        }
        Ok((name, points))
    };
    {
        let tiered = Tiered::open_on(&arguments.index, arguments.fast, arguments.threads, &arguments.slow)?;
        let emulated = if arguments.slow.emulated() { ", emulated" } else { "" };
        let name =
            format!("tiercel, {} fast, vectors in {}{emulated}", tiered.limit(), arguments.slow.kind());
        curves.push(measure(name, Timed::File(&tiered))?);
        (limit, held) = (tiered.limit(), tiered.resident());
    }
    if !arguments.no_memory {
        let index = Index::load(&arguments.index)?;
        curves.push(measure("all in memory".to_string(), Timed::Memory(&index))?);
    }
    let count = queries.len().max(1) as f64;
    if let Some(html) = &arguments.html {
        let emulated = if arguments.slow.emulated() {
            "; the slow tier is memory slowed down, an emulation"
        } else {
            ""
        };
        let mut said = vec![
            format!(
                "Measured here with {} queries and {} threads{emulated}.",
                queries.len(),
                arguments.threads
            ),
            format!("With vectors in {}, {held} of {limit} fast memory are held.", arguments.slow.kind()),
        ];
        if arguments.slow == Slow::Index {
            said.push(
                "The file is read past the system's cache: queries are as slow again as the first time."
                    .to_string(),
            );
        }
        files::replace(html, page::page(&curves, arguments.k, count, &said))?;
    }
    if arguments.answer.json {
        let spell = |p: &Point| {
            json!({"ef": p.ef, "rerank": p.rerank, "recall": p.recall, "qps": p.qps, "busy_qps": p.busy_qps, "p50_us": p.p50 * 1e6, "p99_us": p.p99 * 1e6,
                "slow_reads_per_query": p.moved.reads as f64 / count, "slow_bytes_per_query": p.moved.bytes as f64 / count})
        };
        let curves: Vec<_> = curves
            .iter()
            .map(|(name, points)| json!({"name": name, "points": points.iter().map(spell).collect::<Vec<_>>()}))
            .collect();
        let document = json!({"queries": queries.len(), "k": arguments.k, "threads": arguments.threads, "measured": true,
            "emulated": arguments.slow.emulated(), "fast_bytes": limit.0, "resident_bytes": held.0, "curves": curves});
        return Ok(format!("{document:#}\n"));
    }
    let mut page = String::new();
    for (name, points) in &curves {
        // Writing to a string never fails.
        let _ = writeln!(page, "{name}\n");
        let _ = writeln!(
            page,
            "  {:>6} {:>7} {:>8} {:>10} {:>9} {:>9} {:>11}",
            "ef", "read", "recall", "queries/s", "p50", "p99", "slow reads"
        );
        for p in points {
            let rerank = p.rerank.map_or("-".to_string(), |rerank| rerank.to_string());
            let _ = writeln!(
                page,
                "  {:>6} {rerank:>7} {:>8.4} {:>10.0} {:>6.0} µs {:>6.0} µs {:>11.1}",
                p.ef,
                p.recall,
                p.qps,
                p.p50 * 1e6,
                p.p99 * 1e6,
                p.moved.reads as f64 / count
            );
        }
        page.push('\n');
    }
    Ok(page)
}
