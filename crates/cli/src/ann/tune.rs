//! `tiercel ann tune`: the setting that reaches a recall in the least time.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use tiercel_ann::{FastMemory, Index, Point, Slow, Tiered, Timed};
use tiercel_run::cores::time_used;

use super::{fast, first, truth, vectors};
use crate::amounts::{duration, recall, threads};
use crate::answer::Answer;
use crate::progress::Progress;

/// Find the setting that reaches a recall in the least time, on queries whose neighbours are known.
#[derive(Args)]
pub struct Arguments {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// Queries to learn from
    #[arg(value_name = "QUERIES")]
    queries: PathBuf,
    /// Their true neighbours
    #[arg(long, value_name = "IDS")]
    truth: PathBuf,
    /// How many neighbours of each
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// The recall to reach
    #[arg(long, value_name = "0.95", default_value = "0.95", value_parser = recall, allow_hyphen_values = true)]
    recall: f64,
    /// The time that a query may take on average
    #[arg(long, value_name = "1ms", value_parser = duration, allow_hyphen_values = true)]
    within: Option<Duration>,
    /// Fast memory: a share or an amount, or `all` [default: what the index was built for]
    #[arg(long, value_name = "20%|2GiB|all", allow_hyphen_values = true)]
    fast: Option<String>,
    /// Where the other vectors are [default: what the index was built for]
    #[arg(long, value_name = "TIER")]
    slow: Option<Slow>,
    /// Only so many queries
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
    /// Threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, allow_hyphen_values = true)]
    threads: usize,
    #[command(flatten)]
    answer: Answer,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let queries = first(vectors(&arguments.queries)?, Some(arguments.limit));
    let truth = truth(&arguments.truth, queries.len(), arguments.k)?;
    let kept = tiercel_ann::memory_of(&arguments.index)?;
    let limit = match arguments.fast.as_deref() {
        Some("all") => None,
        Some(text) => Some(fast(text)?),
        None => kept.0.map(FastMemory::Bytes),
    };
    let (memory, tiered);
    let timed = match limit {
        None => {
            memory = Index::load(&arguments.index)?;
            Timed::Memory(&memory)
        }
        Some(limit) => {
            let slow = arguments.slow.clone().unwrap_or(kept.1);
            tiered = Tiered::open_on(&arguments.index, limit, arguments.threads, &slow)?;
            Timed::File(&tiered)
        }
    };
    let mut widths = timed.widths(arguments.k);
    if let Timed::File(tiered) = timed {
        widths = tiered.settings().iter().map(|s| (s.ef as usize, Some(s.rerank as usize))).collect();
        widths.retain(|(ef, rerank)| rerank.is_some_and(|r| r >= arguments.k && *ef <= 8 * r));
    }
    let bar = Progress::new(widths.len(), "searching");
    let mut points = Vec::new();
    for width in widths {
        let within = (arguments.k, arguments.threads);
        points.push(timed.point(&queries, &truth, within, width, time_used)?);
        bar.tick();
    }
    drop(bar);
    let time = |point: &Point| arguments.threads as f64 / point.qps;
    let enough = |point: &&Point| {
        point.recall >= arguments.recall && arguments.within.is_none_or(|w| time(point) <= w.as_secs_f64())
    };
    let chosen = points.iter().filter(enough).min_by(|a, b| time(a).total_cmp(&time(b)));
    let Some(chosen) = chosen else {
        let best = points.iter().map(|point| point.recall).fold(0.0, f64::max);
        let within = arguments.within.map_or(String::new(), |w| format!(" within {} µs", w.as_micros()));
        bail!(
            "no setting reaches a recall of {}{within}; the best tried reaches {best:.4} in any time",
            arguments.recall
        );
    };
    if arguments.answer.json {
        let spell = |p: &Point| {
            json!({"ef": p.ef, "rerank": p.rerank, "recall": p.recall, "qps": p.qps, "p50_us": p.p50 * 1e6, "p99_us": p.p99 * 1e6,
                "slow_reads_per_query": p.moved.reads as f64 / queries.len().max(1) as f64})
        };
        let points: Vec<_> = points.iter().map(spell).collect();
        return Ok(format!("{:#}\n", json!({"chosen": spell(chosen), "points": points, "measured": true})));
    }
    let mut page = String::new();
    let rerank = chosen.rerank.map_or(String::new(), |rerank| format!(" --rerank {rerank}"));
    // Writing to a string never fails.
    let _ = writeln!(
        page,
        "  --ef {}{rerank}: recall {:.4}, {:.0} queries a second, half of them within {:.0} µs",
        chosen.ef,
        chosen.recall,
        chosen.qps,
        chosen.p50 * 1e6
    );
    Ok(page)
}
