//! `tiercel ann search`: the nearest vectors of queries.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tiercel_ann::data::{Ids, spell_ids};
use tiercel_ann::{Ask, FastMemory, Filter, Index, Matrix, Moved, Neighbours, Slow, Spec, TierAsk, Tiered};
use tiercel_core::Bytes;

use super::{fast, first, truth, vectors};
use crate::amounts::{recall, threads};
use crate::answer::Answer;
use crate::figures::grouped;
use crate::files;
use crate::progress::Progress;

/// Find the nearest vectors of queries.
#[derive(Args)]
pub struct Arguments {
    /// The index; with --exact, a file of vectors does as well
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// The queries: npy, fvecs, bvecs or ivecs
    #[arg(value_name = "QUERIES")]
    queries: PathBuf,
    /// How many neighbours of each
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// The width of the beam
    #[arg(long, value_name = "N", conflicts_with = "recall")]
    ef: Option<usize>,
    /// The recall to reach, by what was measured when the index was saved
    #[arg(long, value_name = "0.95", value_parser = recall, allow_hyphen_values = true)]
    recall: Option<f64>,
    /// How many vectors are read for each query, where they are not in fast memory
    #[arg(long, value_name = "N")]
    rerank: Option<usize>,
    /// Look at every vector: the true neighbours
    #[arg(long, conflicts_with_all = ["ef", "recall", "rerank"])]
    exact: bool,
    /// What near means, for --exact on a file of vectors: l2, ip or cosine
    #[arg(long, value_name = "METRIC", default_value = "l2")]
    metric: tiercel_ann::Metric,
    /// The true neighbours, to tell the recall: npy or ivecs
    #[arg(long, value_name = "IDS")]
    truth: Option<PathBuf>,
    /// Only neighbours whose labels are in this file: npy or ivecs
    #[arg(long, value_name = "IDS")]
    only: Option<PathBuf>,
    /// Fast memory: a share or an amount, or `all` [default: what the index was built for]
    #[arg(long, value_name = "20%|2GiB|all", allow_hyphen_values = true)]
    fast: Option<String>,
    /// Where the other vectors are [default: what the index was built for]
    #[arg(long, value_name = "TIER")]
    slow: Option<Slow>,
    /// Only so many queries
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, allow_hyphen_values = true)]
    threads: usize,
    /// Write the neighbours' labels here: npy or ivecs
    #[arg(long, value_name = "IDS")]
    out: Option<PathBuf>,
    #[command(flatten)]
    answer: Answer,
}

/// What a search came to.
struct Came {
    found: Neighbours,
    moved: Moved,
    seconds: f64,
    resident: Bytes,
    emulated: bool,
    tier: &'static str,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    if let Some(out) = &arguments.out {
        files::check(out)?;
    }
    let queries = first(vectors(&arguments.queries)?, arguments.limit);
    let k = arguments.k;
    let truth = arguments.truth.as_ref().map(|path| truth(path, queries.len(), k)).transpose()?;
    let wanted = arguments.only.as_ref().map(|path| bits(path)).transpose()?;
    let bar = Progress::alone("searching");
    let came = search(arguments, &queries, wanted.as_deref())?;
    drop(bar);
    let recall = truth.map(|truth| came.found.recall(&truth.labels, truth.width));
    if let Some(out) = &arguments.out {
        let ids = Ids { width: k, labels: came.found.labels.clone() };
        files::replace(out, spell_ids(out, &ids)?)?;
    }
    let count = queries.len().max(1) as f64;
    let qps = queries.len() as f64 / came.seconds.max(1e-9);
    let reads = came.moved.reads as f64 / count;
    if arguments.answer.json {
        return Ok(format!(
            "{:#}\n",
            json!({
                "queries": queries.len(), "k": k, "qps": qps, "recall": recall, "slow_reads_per_query": reads,
                "slow_bytes_per_query": came.moved.bytes as f64 / count, "kept_reads_per_query": came.moved.kept as f64 / count,
                "estimates_per_query": came.moved.estimates as f64 / count,
                "distances_per_query": came.moved.distances as f64 / count, "resident_bytes": came.resident.0,
                "process_bytes": process(), "threads": arguments.threads, "seconds": came.seconds,
                "measured": true, "emulated": came.emulated, "vectors_in": came.tier,
            })
        ));
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let mut row = |name: &str, text: String| {
        let _ = writeln!(page, "  {name:<10} {text}");
    };
    row("queries", format!("{}, {k} neighbours each", grouped(queries.len() as u64)));
    let emulated = if came.emulated { " (emulated: memory slowed down)" } else { "" };
    row("speed", format!("{qps:.0} queries a second, {} threads{emulated}", arguments.threads));
    if let Some(recall) = recall {
        row("recall", format!("{recall:.4}"));
    }
    row("slow", format!("{reads:.1} reads a query, {}", Bytes((came.moved.bytes as f64 / count) as u64)));
    row("memory", format!("{} held; vectors in {}", came.resident, came.tier));
    Ok(page)
}

fn search(arguments: &Arguments, queries: &Matrix<'_>, wanted: Option<&[u64]>) -> anyhow::Result<Came> {
    let (k, threads) = (arguments.k, arguments.threads);
    let filter = wanted.map(Filter::Bitmap);
    let memory = |found: Neighbours, seconds: f64, index: &Index| Came {
        moved: Moved { distances: found.computed, ..Moved::default() },
        found,
        seconds,
        resident: index.resident(),
        emulated: false,
        tier: "memory",
    };
    if arguments.exact {
        let index = match vectors(&arguments.index) {
            Ok(data) => {
                // Links are of no use here, and none are made.
                Index::without_links(Spec::new(data.dim(), arguments.metric, data.dtype()), &data)?
            }
            Err(_) => Index::load(&arguments.index)?,
        };
        let begun = Instant::now();
        let found = index.exact(queries, k, threads)?;
        return Ok(memory(found, begun.elapsed().as_secs_f64(), &index));
    }
    let kept = tiercel_ann::memory_of(&arguments.index)?;
    let limit = match arguments.fast.as_deref() {
        Some("all") => None,
        Some(text) => Some(fast(text)?),
        None => kept.0.map(FastMemory::Bytes),
    };
    let Some(limit) = limit else {
        let index = Index::load(&arguments.index)?;
        let ef = arguments.ef.or(arguments.recall.map(|recall| index.ef_for(recall, k, threads)));
        let begun = Instant::now();
        let found = index.knn_query(queries, k, &Ask { ef, threads, filter })?;
        return Ok(memory(found, begun.elapsed().as_secs_f64(), &index));
    };
    let slow = arguments.slow.clone().unwrap_or(kept.1);
    let tiered = Tiered::open_on(&arguments.index, limit, threads, &slow)?;
    let ask =
        TierAsk { recall: arguments.recall, ef: arguments.ef, rerank: arguments.rerank, threads, filter };
    let begun = Instant::now();
    let (found, moved) = tiered.knn_query(queries, k, &ask)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Came {
        found,
        moved,
        seconds,
        resident: tiered.resident(),
        emulated: slow.emulated(),
        tier: slow.kind(),
    })
}

/// Labels of a file as bits.
fn bits(path: &std::path::Path) -> anyhow::Result<Vec<u64>> {
    let ids = tiercel_ann::data::read_ids(path)?;
    let most = ids.labels.iter().copied().filter(|label| *label < 1 << 32).max().unwrap_or(0);
    let mut bits = vec![0u64; most as usize / 64 + 1];
    for label in ids.labels.iter().filter(|label| **label <= most) {
        bits[*label as usize / 64] |= 1 << (label % 64);
    }
    Ok(bits)
}

/// The memory that the system says this process has in use.
fn process() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
