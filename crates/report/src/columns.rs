//! The columns of a comparison: the one list that the terminal, the page and CSV take them from.

use tiercel_core::Bytes;

use crate::comparison::{Comparison, Row};
use crate::table::number;

/// One column.
pub(crate) struct Column {
    /// Its name in CSV.
    pub(crate) key: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// What it says, in a sentence.
    pub(crate) meaning: &'static str,
    /// Whether it holds numbers.
    pub(crate) numeric: bool,
    /// What people read; `None` where a row has nothing to say.
    pub(crate) text: fn(&Row) -> Option<String>,
    /// What programs read and sorting goes by.
    pub(crate) value: fn(&Row) -> Option<f64>,
}

/// A share as people write it.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// A factor as people write it.
pub(crate) fn factor(x: f64) -> String {
    let decimals = if x < 10.0 { 2 } else { 1 };
    format!("{x:.decimals$}×")
}

fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

/// Whether there is anything to tell of a run but why there was none.
fn ran(row: &Row) -> bool {
    row.error.is_none()
}

const fn words(
    key: &'static str,
    title: &'static str,
    meaning: &'static str,
    text: fn(&Row) -> Option<String>,
) -> Column {
    Column { key, title, meaning, numeric: false, text, value: |_| None }
}

const fn figures(
    key: &'static str,
    title: &'static str,
    meaning: &'static str,
    text: fn(&Row) -> Option<String>,
    value: fn(&Row) -> Option<f64>,
) -> Column {
    Column { key, title, meaning, numeric: true, text, value }
}

/// Every column, in order.
pub(crate) const COLUMNS: [Column; 19] = [
    words("net", "network", "what ran", |r| named(&r.net)),
    figures(
        "batch",
        "batch",
        "samples in a batch",
        |r| r.batch.map(|b| b.to_string()),
        |r| r.batch.map(|b| b as f64),
    ),
    words("machine", "machine", "what it ran on", |r| named(&r.machine)),
    words("system", "system", "who decided where tensors live", |r| named(&r.system)),
    figures(
        "fast_bytes",
        "fast",
        "how much fast memory there was",
        // Fast-only is given all that it wants, whatever was asked for.
        |r| Some(if r.peak_fast_bytes > r.fast_bytes { "all".to_string() } else { r.fast_bytes.to_string() }),
        |r| Some(r.fast_bytes.0 as f64),
    ),
    figures(
        "fast_fraction",
        "of peak",
        "fast memory as a share of the most bytes alive at once",
        |r| r.fast_fraction.filter(|_| r.peak_fast_bytes <= r.fast_bytes).map(percent),
        |r| r.fast_fraction,
    ),
    figures(
        "iteration_ns",
        "iteration",
        "time of the middle iteration by time",
        |r| r.time().map(|t| t.to_string()),
        |r| r.time().map(|t| t.0 as f64),
    ),
    figures(
        "slowdown",
        "slowdown",
        "iteration time against having everything in fast memory",
        |r| r.slowdown.map(factor),
        |r| r.slowdown,
    ),
    figures(
        "samples_per_second",
        "samples/s",
        "samples that are processed in a second",
        |r| r.throughput().map(number),
        Row::throughput,
    ),
    figures(
        "stall_ns",
        "stall",
        "time that kernels of one iteration waited for copies",
        |r| ran(r).then(|| r.stall().to_string()),
        |r| ran(r).then(|| r.stall().0 as f64),
    ),
    figures(
        "stall_share",
        "stalled",
        "share of the time that kernels waited",
        |r| r.stall_share().map(percent),
        Row::stall_share,
    ),
    figures(
        "slower_share",
        "kernels slower",
        "share of the time by which kernels took longer than with everything in fast memory: because operands were in slower memory, \
         because copies had cores and bandwidth, or because they ran again",
        |r| r.slower_share().map(percent),
        Row::slower_share,
    ),
    figures(
        "fetched_bytes",
        "fetched",
        "bytes that one iteration moved to faster memory",
        |r| ran(r).then(|| r.fetched().to_string()),
        |r| ran(r).then(|| r.fetched().0 as f64),
    ),
    figures(
        "evicted_bytes",
        "evicted",
        "bytes that one iteration moved to slower memory",
        |r| ran(r).then(|| r.evicted().to_string()),
        |r| ran(r).then(|| r.evicted().0 as f64),
    ),
    figures(
        "peak_fast_bytes",
        "fast used",
        "the most fast memory that was in use at once",
        |r| ran(r).then(|| r.peak_fast_bytes.to_string()),
        |r| ran(r).then_some(r.peak_fast_bytes.0 as f64),
    ),
    figures(
        "predicted_ns",
        "predicted",
        "iteration time that a simulation predicted, and by how much it is off",
        |r| {
            let off = r
                .prediction_error()
                .map(|e| format!(" ({}{})", if e < 0.0 { "−" } else { "+" }, percent(e.abs())));
            r.predicted_ns.map(|p| format!("{}{}", tiercel_core::Nanos(p), off.unwrap_or_default()))
        },
        |r| r.predicted_ns.map(|p| p as f64),
    ),
    figures(
        "loss",
        "loss",
        "loss of the last iteration",
        |r| r.loss.last().map(|loss| format!("{loss:.4}")),
        |r| r.loss.last().copied(),
    ),
    words(
        "kind",
        "times",
        "whether times were simulated or measured, and on real or slowed-down memory",
        |r| Some(r.kind().to_string()),
    ),
    words("error", "could not be run", "why it could not be run", |r| r.error.clone()),
];

/// The columns that tell something of these rows: those in which some row has something to say, and where saying the
/// same of all rows goes into the caption, those in which rows differ.
pub(crate) fn of(comparison: &Comparison) -> Vec<&'static Column> {
    let speaks = |column: &&Column| {
        let quiet = |row: &Row| match column.key {
            "fast_bytes" => row.fast_bytes == Bytes::ZERO,
            "peak_fast_bytes" => row.peak_fast_bytes == Bytes::ZERO,
            _ => (column.text)(row).is_none(),
        };
        !comparison.rows.iter().all(quiet)
    };
    let differs = |column: &&Column| {
        !matches!(column.key, "net" | "batch" | "machine" | "kind")
            || comparison.rows.len() == 1
            || comparison.distinct(|row| (column.text)(row)).len() > 1
    };
    COLUMNS.iter().filter(speaks).filter(differs).collect()
}

/// What is the same of all rows and so stands above the table.
pub(crate) fn caption(comparison: &Comparison) -> String {
    let same = |key: &str| {
        let column = COLUMNS.iter().find(|column| column.key == key)?;
        let mut values = comparison.distinct(|row| (column.text)(row));
        if values.len() == 1 && comparison.rows.len() > 1 { values.pop()? } else { None }
    };
    let batch = same("batch").map(|batch| format!("batch {batch}"));
    let machine = same("machine").map(|machine| format!("on {machine}"));
    let parts = [same("net"), batch, machine, same("kind")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
