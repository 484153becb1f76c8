//! The figures of many runs side by side, under the names that `tiercel run --json` and its kin use.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tiercel_core::{Bytes, Nanos};

use crate::curve::Point;
use crate::header::kind;
use crate::run::add_up;

/// A prediction that is off by more than this share is not to be trusted: the worst that AutoTM's authors saw is 19 %.
const FAR: f64 = 0.2;

/// One run in figures. Sums are over all its iterations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// The network.
    pub net: String,
    /// Samples in a batch, where that is known.
    pub batch: Option<u64>,
    /// The machine.
    pub machine: String,
    /// Who decided where objects live.
    pub system: String,
    /// The world that it ran in: `sim` or `host`.
    pub on: String,
    /// Whether times were read off a clock on the wall.
    pub measured: bool,
    /// Tiers that were other memory slowed down.
    pub emulated: Vec<String>,
    /// Fast memory as a share of the peak.
    pub fast_fraction: Option<f64>,
    /// How much fast memory there was.
    pub fast_bytes: Bytes,
    /// The time of every iteration.
    #[serde(deserialize_with = "one_or_many")]
    pub iteration_ns: Vec<u64>,
    /// Samples in a second.
    #[serde(alias = "throughput", skip_serializing_if = "Option::is_none")]
    pub samples_per_second: Option<f64>,
    /// The loss of every iteration, where something was trained.
    #[serde(deserialize_with = "losses", skip_serializing_if = "Vec::is_empty")]
    pub loss: Vec<f64>,
    /// Bytes moved towards faster tiers.
    pub fetched_bytes: Bytes,
    /// Bytes moved towards slower tiers.
    pub evicted_bytes: Bytes,
    /// Time that kernels waited for copies.
    pub stall_ns: u64,
    /// The most bytes that the fastest tier has held.
    pub peak_fast_bytes: Bytes,
    /// The time of an iteration against that with everything in fast memory.
    pub slowdown: Option<f64>,
    /// The time of an iteration that was predicted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<u64>,
    /// What the memory costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_price: Option<f64>,
    /// The time of an iteration with everything in fast memory, where whoever wrote the row knew it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_only_ns: Option<u64>,
    /// Why it could not be run; then there are no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Equal for equal results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_hash: Option<String>,
}

/// Accepts a number where a list of one is meant.
fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(u64),
        Many(Vec<u64>),
        None(()),
    }
    Ok(
        match Either::deserialize(from)
            .map_err(|_| serde::de::Error::custom("iteration_ns is a list of times"))?
        {
            Either::One(time) => vec![time],
            Either::Many(times) => times,
            Either::None(()) => Vec::new(),
        },
    )
}

/// Accepts numbers, and nothing where a loss was not a number.
fn losses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(f64),
        Many(Vec<Option<f64>>),
        None(()),
    }
    Ok(
        match Either::deserialize(from).map_err(|_| serde::de::Error::custom("loss is a list of numbers"))? {
            Either::One(loss) => vec![loss],
            Either::Many(losses) => losses.into_iter().map(|loss| loss.unwrap_or(f64::NAN)).collect(),
            Either::None(()) => Vec::new(),
        },
    )
}

impl Row {
    /// The time of the middle iteration by time.
    pub fn time(&self) -> Option<Nanos> {
        let mut times = self.iteration_ns.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().map(Nanos)
    }

    /// Samples in a second.
    pub fn throughput(&self) -> Option<f64> {
        let own = || Some(self.batch? as f64 / self.time().filter(|time| time.0 > 0)?.seconds());
        self.samples_per_second.or_else(own)
    }

    /// A sum over all iterations as the part of one.
    fn each(&self, sum: u64) -> u64 {
        sum / (self.iteration_ns.len() as u64).max(1)
    }

    /// Time that kernels of one iteration waited.
    pub fn stall(&self) -> Nanos {
        Nanos(self.each(self.stall_ns))
    }

    /// The share of the time that kernels waited.
    pub fn stall_share(&self) -> Option<f64> {
        let all = add_up(self.iteration_ns.iter().copied());
        (all > 0).then(|| self.stall_ns as f64 / all as f64)
    }

    /// The share of the time by which kernels took longer than with everything in fast memory: what is longer, and is not
    /// waiting.
    pub fn slower_share(&self) -> Option<f64> {
        let (time, fast) = (self.time()?, self.fast_only_ns?);
        let longer = time.0.saturating_sub(self.stall().0).saturating_sub(fast);
        (time.0 > 0).then(|| longer as f64 / time.0 as f64)
    }

    /// Bytes that one iteration moved towards faster tiers.
    pub fn fetched(&self) -> Bytes {
        Bytes(self.each(self.fetched_bytes.0))
    }

    /// Bytes that one iteration moved towards slower tiers.
    pub fn evicted(&self) -> Bytes {
        Bytes(self.each(self.evicted_bytes.0))
    }

    /// By how much the time that was predicted is off, as a share of the time that was measured.
    pub fn prediction_error(&self) -> Option<f64> {
        let time = self.time().filter(|time| time.0 > 0)?.0 as f64;
        self.predicted_ns.map(|predicted| predicted as f64 / time - 1.0)
    }

    /// How the time was had, in a word or two.
    pub fn kind(&self) -> &'static str {
        kind(self.measured, !self.emulated.is_empty())
    }

    /// Its point on the curve of time against fast memory.
    pub fn point(&self) -> Option<Point> {
        let (fast_bytes, fast_fraction) = (self.fast_bytes, self.fast_fraction);
        self.time().map(|time| Point { fast_bytes, fast_fraction, iteration_ns: time.0, bound_ns: None })
    }

    /// What it is compared within: the same work on the same machine.
    fn work(&self) -> (&str, Option<u64>, &str, bool) {
        (&self.net, self.batch, &self.machine, self.measured)
    }
}

/// Runs side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Comparison {
    /// One row a run.
    pub rows: Vec<Row>,
}

/// Why a document holds no results of runs.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// It is no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("it holds neither a run nor a list of runs")]
    Foreign,
    /// A run says too little.
    #[error("run {run} has no `system` or no `iteration_ns`")]
    Bare {
        /// Which, counted from 1.
        run: usize,
    },
    /// A figure of a run makes no sense.
    #[error("run {run}: {error}")]
    Row {
        /// Which, counted from 1.
        run: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

impl Comparison {
    /// Rows with what can be worked out from all of them together: slowdowns against fast-only.
    pub fn new(rows: Vec<Row>) -> Comparison {
        let mut comparison = Comparison { rows };
        comparison.compare();
        comparison
    }

    /// Reads what `tiercel compare --json`, `run --json` or `train --json` printed: a list of rows, or one, or a
    /// document that has them under `comparison`, `rows` or `runs`.
    pub fn parse(json: &[u8]) -> Result<Comparison, ComparisonError> {
        let value: Value = serde_json::from_slice(json)?;
        let inner = ["comparison", "rows", "runs"].iter().find_map(|key| value.get(key)).cloned();
        let list = match inner.unwrap_or(value) {
            Value::Array(list) => list,
            one @ Value::Object(_) => vec![one],
            _ => return Err(ComparisonError::Foreign),
        };
        let mut rows = Vec::with_capacity(list.len());
        for (at, value) in list.into_iter().enumerate() {
            let told = value.get("iteration_ns").is_some() || value.get("error").is_some();
            if value.get("system").is_none() || !told {
                return Err(ComparisonError::Bare { run: at + 1 });
            }
            let row =
                serde_json::from_value(value).map_err(|error| ComparisonError::Row { run: at + 1, error })?;
            rows.push(row);
        }
        Ok(Comparison::new(rows))
    }

    /// Adds rows and works out what they tell together.
    pub fn add(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
        self.compare();
    }

    /// Fills in slowdowns where fast-only is among the rows.
    fn compare(&mut self) {
        let fast: Vec<(usize, Nanos)> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.system == "fast-only")
            .filter_map(|(at, row)| Some((at, row.time().filter(|time| time.0 > 0)?)))
            .collect();
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            let base = fast.iter().find(|(other, _)| self.rows[*other].work() == row.work());
            let base = row.fast_only_ns.filter(|ns| *ns > 0).or(base.map(|(_, time)| time.0));
            let slowdown = row.time().zip(base).map(|(time, base)| time.0 as f64 / base as f64);
            let row = &mut self.rows[at];
            (row.slowdown, row.fast_only_ns) = (row.slowdown.or(slowdown), base);
        }
    }

    /// A sentence that names the systems whose predictions are not to be trusted; nothing where all are near enough.
    pub fn doubts(&self) -> Option<String> {
        let far = |row: &&Row| row.prediction_error().is_some_and(|error| error.abs() > FAR);
        let doubted = Comparison { rows: self.rows.iter().filter(far).cloned().collect() };
        let all = self.rows.iter().filter(|row| row.prediction_error().is_some()).count();
        let (count, systems) = (doubted.rows.len(), doubted.distinct(|row| row.system.clone()).join(", "));
        let percent = FAR * 100.0;
        let told = format!(
            "{count} of {all} predictions are more than {percent} % off, too far to go by: {systems}"
        );
        (count > 0).then_some(told)
    }

    /// The different values of something among the rows, in the order in which they come.
    pub fn distinct<T: PartialEq>(&self, pick: impl Fn(&Row) -> T) -> Vec<T> {
        let mut all = Vec::new();
        for row in &self.rows {
            let value = pick(row);
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all
    }
}
