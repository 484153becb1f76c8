//! What a run on real memory did.

use tiercel_core::{Bytes, Nanos, Stamped, Totals};
use tiercel_report::Header;
use tiercel_train::{Lesson, Score};

use crate::Outlook;

/// What a training run did.
pub struct Outcome {
    /// The network.
    pub net: String,
    /// Samples in a batch.
    pub batch: u64,
    /// What it learnt from.
    pub data: String,
    /// Who decided.
    pub system: String,
    /// Threads that computed.
    pub threads: usize,
    /// Where chance began.
    pub seed: u64,
    /// The most bytes that it keeps at once.
    pub peak: Bytes,
    /// The fast memory that there was.
    pub fast: Bytes,
    /// What was behind the slow tier.
    pub slow: String,
    /// The tiers that were other memory slowed down.
    pub emulated: Vec<String>,
    /// What the system expected.
    pub outlook: Outlook,
    /// The iterations.
    pub lessons: Vec<Lesson>,
    /// Sums over them, and the peak of every tier.
    pub totals: Totals,
    /// What it knows of data that it has not seen, where that was asked.
    pub score: Option<Score>,
    /// A fingerprint of all weights at the end.
    pub hash: u64,
    /// The iteration that a checkpoint had come to.
    pub resumed: Option<u64>,
    /// Whether somebody ended it early.
    pub interrupted: bool,
    /// Iterations done in all, those before a checkpoint included.
    pub iterations: u64,
    /// The checkpoint that was written.
    pub checkpoint: Option<String>,
    /// What happened, where that was recorded, with what the run was.
    pub events: Option<(Header, Vec<Stamped>)>,
}

impl Outcome {
    /// A sum over all iterations.
    pub fn sum<T: std::iter::Sum>(&self, pick: impl Fn(&Lesson) -> T) -> T {
        self.lessons.iter().map(pick).sum()
    }

    /// The time of the middle iteration by time.
    pub fn median(&self) -> Nanos {
        let mut times: Vec<Nanos> = self.lessons.iter().map(|l| l.figures.time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// Samples a second in that iteration.
    pub fn throughput(&self) -> f64 {
        let time = self.median().seconds();
        if time > 0.0 { self.batch as f64 / time } else { 0.0 }
    }

    /// The share of the time in which kernels waited for copies.
    pub fn stall_share(&self) -> f64 {
        let time = self.sum(|l| l.figures.time).seconds();
        if time > 0.0 { self.sum(|l| l.figures.stall).seconds() / time } else { 0.0 }
    }

    /// The most bytes that the fastest tier held at once.
    pub fn peak_fast(&self) -> Bytes {
        self.totals.peak.first().copied().unwrap_or_default()
    }
}
