//! What a run on real memory did, as a table for people and as a document for programs.

use std::fmt::Write;

use serde_json::{Value, json};
use tiercel_core::{Bytes, Nanos, Totals};
use tiercel_train::{Lesson, Score};

use crate::figures::{counted, grouped, scaled};
use crate::wired::Outlook;

/// What a training run did.
pub struct Outcome {
    pub net: String,
    pub batch: u64,
    pub dtype: &'static str,
    pub data: String,
    pub system: String,
    pub threads: usize,
    pub seed: u64,
    pub peak: Bytes,
    pub fast: Bytes,
    pub slow: String,
    pub emulated: Vec<String>,
    pub outlook: Outlook,
    pub lessons: Vec<Lesson>,
    pub totals: Totals,
    pub score: Option<Score>,
    pub hash: u64,
    pub resumed: Option<u64>,
    pub interrupted: bool,
    pub checkpoint: Option<String>,
}

impl Outcome {
    fn sum<T: std::iter::Sum>(&self, pick: impl Fn(&Lesson) -> T) -> T {
        self.lessons.iter().map(pick).sum()
    }

    /// The time of the middle iteration by time.
    fn median(&self) -> Nanos {
        let mut times: Vec<Nanos> = self.lessons.iter().map(|l| l.figures.time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// Samples a second in that iteration.
    fn throughput(&self) -> f64 {
        let time = self.median().seconds();
        if time > 0.0 { self.batch as f64 / time } else { 0.0 }
    }

    fn stall_share(&self) -> f64 {
        let time = self.sum(|l| l.figures.time).seconds();
        if time > 0.0 { self.sum(|l| l.figures.stall).seconds() / time } else { 0.0 }
    }

    fn peak_fast(&self) -> Bytes {
        self.totals.peak.first().copied().unwrap_or_default()
    }

    /// The document for programs.
    pub fn document(&self) -> Value {
        json!({
            "net": self.net,
            "batch": self.batch,
            "dtype": self.dtype,
            "data": self.data,
            "system": self.system,
            "on": "host",
            "measured": true,
            "threads": self.threads,
            "seed": self.seed,
            "iterations": self.lessons.len(),
            "resumed_from": self.resumed,
            "interrupted": self.interrupted,
            "iteration_ns": self.lessons.iter().map(|l| l.figures.time.0).collect::<Vec<_>>(),
            "planned_ns": self.outlook.planned.map(|time| time.0),
            "recomputed_kernels": self.outlook.again,
            "kernels_on_parts": self.outlook.parts,
            "samples_per_second": self.throughput(),
            "stall_ns": self.sum(|l| l.figures.stall).0,
            "stall_share": self.stall_share(),
            "fetched_bytes": self.sum(|l| l.figures.fetched).0,
            "evicted_bytes": self.sum(|l| l.figures.evicted).0,
            "peak_bytes": self.peak.0,
            "fast_bytes": self.fast.0,
            "peak_fast_bytes": self.peak_fast().0,
            "slow": self.slow,
            "emulated": self.emulated,
            "loss": self.lessons.iter().map(|l| l.loss).collect::<Vec<_>>(),
            "test_loss": self.score.map(|s| s.loss),
            "accuracy": self.score.map(|s| s.accuracy()),
            "output_hash": format!("{:016x}", self.hash),
            "checkpoint": self.checkpoint,
        })
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut page = String::new();
        // Writing to a string never fails.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let count = counted(self.lessons.len() as u64, "iteration");
        writeln!(out, "{}, batch {}, {}: {count} on {}\n", self.net, self.batch, self.dtype, self.data)?;
        let mut row = |name: &str, text: String| writeln!(out, "  {name:<12} {text}");
        let threads = counted(self.threads as u64, "thread");
        row("system", format!("{}, {threads}, seed {}", self.system, self.seed))?;
        if let Some(iteration) = self.resumed {
            row("resumed", format!("after iteration {}", grouped(iteration)))?;
        }
        let share = self.fast.0 as f64 * 100.0 / self.peak.0.max(1) as f64;
        row(
            "fast memory",
            format!("{}, {share:.0} % of the peak of {}; {} used", self.fast, self.peak, self.peak_fast()),
        )?;
        let emulated = if self.emulated.is_empty() {
            ""
        } else {
            ": emulated, memory slowed down to 2 GB/s read and 1 GB/s write"
        };
        row("slow memory", format!("{}{emulated}", self.slow))?;
        if self.lessons.is_empty() {
            return row("result", format!("{:016x}", self.hash));
        }
        row(
            "iteration",
            format!("{} (median), {} samples a second", self.median(), scaled(self.throughput())),
        )?;
        if let Some(expected) = self.outlook.planned {
            let count = |n: usize, what: &str| match n {
                0 => None,
                1 => Some(format!("one kernel {what}")),
                n => Some(format!("{} kernels {what}", grouped(n as u64))),
            };
            let Outlook { again, parts, .. } = self.outlook;
            let ways = [count(again, "run again"), count(parts, "on a part of a tensor")];
            let ways: Vec<String> = ways.into_iter().flatten().collect();
            let with = if ways.is_empty() { "" } else { ", with " };
            row("planned", format!("{expected}{with}{}", ways.join(" and ")))?;
        }
        let n = self.lessons.len() as u64;
        let (fetched, evicted) = (self.sum(|l| l.figures.fetched), self.sum(|l| l.figures.evicted));
        row(
            "moved",
            format!("{} fetched and {} evicted an iteration", Bytes(fetched.0 / n), Bytes(evicted.0 / n)),
        )?;
        row("stall", format!("{:.1} % of the time", self.stall_share() * 100.0))?;
        let (first, last) = (self.lessons[0].loss, self.lessons[self.lessons.len() - 1].loss);
        row("loss", format!("{first:.4} at first, {last:.4} at last"))?;
        if let Some(score) = self.score {
            let (right, all) = (grouped(score.right), grouped(score.guesses));
            let percent = score.accuracy() * 100.0;
            row(
                "accuracy",
                format!("{percent:.2} % ({right} of {all}) on data not learnt from, loss {:.4}", score.loss),
            )?;
        }
        if let Some(path) = &self.checkpoint {
            row("checkpoint", path.clone())?;
        }
        row("result", format!("{:016x}, the same for the same results", self.hash))
    }
}
