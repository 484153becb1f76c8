//! `tiercel ann build`: an index of the vectors in a file.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tiercel_ann::{Dtype, FastMemory, Index, Metric, SaveOptions, Slow, Spec, Tiered};
use tiercel_run::cores::time_used;
use tiercel_session::cores;

use super::{fast, vectors};
use crate::amounts::threads;
use crate::answer::Answer;
use crate::figures::grouped;
use crate::files;
use crate::progress::Progress;

/// Build an index of the vectors in a file.
#[derive(Args)]
pub struct Arguments {
    /// The vectors: npy, fvecs, bvecs or ivecs; they get their row numbers as labels
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Where the index goes
    #[arg(long, value_name = "INDEX")]
    out: PathBuf,
    /// What near means: l2, ip or cosine
    #[arg(long, value_name = "METRIC", default_value = "l2")]
    metric: Metric,
    /// What numbers are kept as: f32, f16, bf16, u8 or i8 [default: as they come]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Dtype>,
    /// Links a node, twice as many on the lowest level
    #[arg(long, value_name = "N", default_value_t = 16)]
    m: usize,
    /// The width of the beam that finds a new vector's links
    #[arg(long, value_name = "N", default_value_t = 200)]
    ef_construction: usize,
    /// Fast memory that searches will have: a share of all that the index would take in memory, or an amount [default: all]
    #[arg(long, value_name = "20%|2GiB", value_parser = fast, allow_hyphen_values = true)]
    fast: Option<FastMemory>,
    /// Where vectors are that are not in fast memory: file:FOLDER, throttled, dram, numa:N or dax:PATH [default: the index itself]
    #[arg(long, value_name = "TIER")]
    slow: Option<Slow>,
    /// Bits a number of the codes that stay in fast memory: 1, 2, 4 or 8 [default: the most that fit]
    #[arg(long, value_name = "N")]
    code_bits: Option<u32>,
    /// Threads; they do not change the index [default: one a core]
    #[arg(long, value_name = "N", value_parser = threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    #[command(flatten)]
    answer: Answer,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    files::check(&arguments.out)?;
    let data = vectors(&arguments.data)?;
    let dtype = arguments.dtype.unwrap_or(data.dtype());
    let threads = arguments.threads.unwrap_or_else(cores);
    let spec = Spec {
        m: arguments.m,
        ef_construction: arguments.ef_construction,
        seed: arguments.answer.seed,
        ..Spec::new(data.dim(), arguments.metric, dtype)
    };
    let (begun, before) = (Instant::now(), time_used());
    let mut index = Index::new(spec)?;
    {
        let bar = Progress::new(data.len(), "inserting");
        let mut before = 0;
        let mut tick = |done: usize| {
            (before..done).for_each(|_| bar.tick());
            before = done;
        };
        index.add_watched(&data, None, threads, &mut tick)?;
    }
    drop(data);
    let (built, busy) = (begun.elapsed().as_secs_f64(), time_used().saturating_sub(before).as_secs_f64());
    let resident = index.resident();
    let code_bits = match (arguments.code_bits, arguments.fast) {
        (Some(bits), _) => bits,
        (None, fast) => index.code_bits_for(fast.unwrap_or(FastMemory::Share(0.2)), threads),
    };
    let options = SaveOptions {
        code_bits,
        threads,
        fast: arguments.fast,
        slow: arguments.slow.clone().unwrap_or_default(),
    };
    let saving = Instant::now();
    {
        let _bar = Progress::alone("making codes and saving");
        index.save(&arguments.out, &options)?;
    }
    let saved = saving.elapsed().as_secs_f64();
    let vectors = index.len();
    drop(index);
    // What does not fit is told now, and not by the first search.
    let fast_resident = match arguments.fast {
        Some(fast) => Some(Tiered::open(&arguments.out, fast, 1)?.resident()),
        None => None,
    };
    let file = std::fs::metadata(&arguments.out).map_or(0, |found| found.len());
    if arguments.answer.json {
        return Ok(format!(
            "{:#}\n",
            json!({
                "vectors": vectors, "dim": spec.dim, "metric": spec.metric.to_string(), "dtype": spec.dtype.to_string(),
                "m": spec.m, "ef_construction": spec.ef_construction, "seed": spec.seed, "threads": threads,
                "build_seconds": built, "build_busy_seconds": busy, "save_seconds": saved, "memory_bytes": resident.0, "file_bytes": file,
                "code_bits": code_bits, "fast_resident_bytes": fast_resident.map(|bytes| bytes.0), "measured": true,
            })
        ));
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let mut row = |name: &str, text: String| {
        let _ = writeln!(page, "  {name:<10} {text}");
    };
    row("vectors", format!("{} of {} {}, {}", grouped(vectors as u64), spec.dim, spec.dtype, spec.metric));
    row(
        "built",
        format!("in {built:.1} s with {threads} threads, m {}, ef {}", spec.m, spec.ef_construction),
    );
    row("saved", format!("in {saved:.1} s, {} to {}", tiercel_core::Bytes(file), arguments.out.display()));
    row("memory", format!("{resident} with everything in it"));
    if let Some(bytes) = fast_resident {
        row("fast", format!("{bytes}: codes of {code_bits} bits a number, and links"));
    }
    Ok(page)
}
