//! What a run on real memory did, as a table for people and as a document for programs.

use std::fmt::Write;

use serde_json::{Value, json};
use tiercel_core::Bytes;
use tiercel_session::{Outcome, Outlook};

use crate::figures::{counted, grouped, scaled};

/// The document for programs.
pub fn document(outcome: &Outcome, dtype: &str) -> Value {
    json!({
        "net": outcome.net,
        "batch": outcome.batch,
        "dtype": dtype,
        "data": outcome.data,
        "system": outcome.system,
        "on": "host",
        "measured": true,
        "threads": outcome.threads,
        "seed": outcome.seed,
        "iterations": outcome.lessons.len(),
        "resumed_from": outcome.resumed,
        "interrupted": outcome.interrupted,
        "iteration_ns": outcome.lessons.iter().map(|l| l.figures.time.0).collect::<Vec<_>>(),
        "planned_ns": outcome.outlook.planned.map(|time| time.0),
        "recomputed_kernels": outcome.outlook.again,
        "kernels_on_parts": outcome.outlook.parts,
        "samples_per_second": outcome.throughput(),
        "stall_ns": outcome.sum(|l| l.figures.stall).0,
        "stall_share": outcome.stall_share(),
        "fetched_bytes": outcome.sum(|l| l.figures.fetched).0,
        "evicted_bytes": outcome.sum(|l| l.figures.evicted).0,
        "peak_bytes": outcome.peak.0,
        "fast_bytes": outcome.fast.0,
        "peak_fast_bytes": outcome.peak_fast().0,
        "slow": outcome.slow,
        "emulated": outcome.emulated,
        "loss": outcome.lessons.iter().map(|l| l.loss).collect::<Vec<_>>(),
        "test_loss": outcome.score.map(|s| s.loss),
        "accuracy": outcome.score.map(|s| s.accuracy()),
        "output_hash": format!("{:016x}", outcome.hash),
        "checkpoint": outcome.checkpoint,
    })
}

/// The table for people.
pub fn table(outcome: &Outcome, dtype: &str) -> String {
    let mut page = String::new();
    // Writing to a string never fails.
    let _ = write(&mut page, outcome, dtype);
    page
}

fn write(out: &mut String, outcome: &Outcome, dtype: &str) -> std::fmt::Result {
    let Outcome { net, batch, data, lessons, .. } = outcome;
    let count = counted(lessons.len() as u64, "iteration");
    writeln!(out, "{net}, batch {batch}, {dtype}: {count} on {data}\n")?;
    let mut row = |name: &str, text: String| writeln!(out, "  {name:<12} {text}");
    let threads = counted(outcome.threads as u64, "thread");
    row("system", format!("{}, {threads}, seed {}", outcome.system, outcome.seed))?;
    if let Some(iteration) = outcome.resumed {
        row("resumed", format!("after iteration {}", grouped(iteration)))?;
    }
    let (fast, peak) = (outcome.fast, outcome.peak);
    let share = fast.0 as f64 * 100.0 / peak.0.max(1) as f64;
    row("fast memory", format!("{fast}, {share:.0} % of the peak of {peak}; {} used", outcome.peak_fast()))?;
    let emulated = if outcome.emulated.is_empty() {
        ""
    } else {
        ": emulated, memory slowed down to 2 GB/s read and 1 GB/s write"
    };
    row("slow memory", format!("{}{emulated}", outcome.slow))?;
    let (Some(first), Some(last)) = (lessons.first(), lessons.last()) else {
        return row("result", format!("{:016x}", outcome.hash));
    };
    row(
        "iteration",
        format!("{} (median), {} samples a second", outcome.median(), scaled(outcome.throughput())),
    )?;
    if let Some(expected) = outcome.outlook.planned {
        row("planned", format!("{expected}{}", ways(outcome.outlook)))?;
    }
    let n = lessons.len() as u64;
    let (fetched, evicted) = (outcome.sum(|l| l.figures.fetched), outcome.sum(|l| l.figures.evicted));
    row(
        "moved",
        format!("{} fetched and {} evicted an iteration", Bytes(fetched.0 / n), Bytes(evicted.0 / n)),
    )?;
    row("stall", format!("{:.1} % of the time", outcome.stall_share() * 100.0))?;
    row("loss", format!("{:.4} at first, {:.4} at last", first.loss, last.loss))?;
    if let Some(score) = outcome.score {
        let (right, all) = (grouped(score.right), grouped(score.guesses));
        let percent = score.accuracy() * 100.0;
        row(
            "accuracy",
            format!("{percent:.2} % ({right} of {all}) on data not learnt from, loss {:.4}", score.loss),
        )?;
    }
    if let Some(path) = &outcome.checkpoint {
        row("checkpoint", path.clone())?;
    }
    row("result", format!("{:016x}, the same for the same results", outcome.hash))
}

/// How the program was rewritten, after the time that was planned for it.
fn ways(outlook: Outlook) -> String {
    let count = |n: usize, what: &str| match n {
        0 => None,
        1 => Some(format!("one kernel {what}")),
        n => Some(format!("{} kernels {what}", grouped(n as u64))),
    };
    let Outlook { again, parts, .. } = outlook;
    let ways = [count(again, "run again"), count(parts, "on a part of a tensor")];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    if ways.is_empty() { String::new() } else { format!(", with {}", ways.join(" and ")) }
}
