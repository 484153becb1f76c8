//! `tiercel reproduce hm-ann`: chapter 3's figures beside ours.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;
use tiercel_ann::hm::Variant;
use tiercel_ann::hm::reproduce::{At, Found, measure, vectors};
use tiercel_ann::{Matrix, Metric};
use tiercel_systems::reproduce::Row;
use tiercel_systems::reproduce::hm_ann::{self, REMARKS, TITLE};

use crate::progress::Progress;
use crate::reproduce::{figures, spelled};

/// How many vectors, and how many queries.
const SIZES: (usize, usize) = (60_000, 1000);

/// Real vectors instead of those that are made.
pub struct Given<'a> {
    pub vectors: &'a Path,
    pub queries: &'a Path,
    pub metric: Metric,
}

/// The table or document.
pub fn run(json: bool, seed: u64, threads: usize, given: Option<Given<'_>>) -> anyhow::Result<String> {
    let (base, queries, metric) = match &given {
        Some(given) => {
            let queries = super::first(super::vectors(given.queries)?, Some(SIZES.1));
            (super::vectors(given.vectors)?, queries, given.metric)
        }
        None => {
            let (numbers, dim) = vectors(SIZES.0 + SIZES.1, seed);
            let bytes: Vec<u8> = numbers.iter().map(|n| *n as u8).collect();
            let all = Matrix::new(tiercel_ann::Dtype::U8, dim, bytes)?;
            (all.pick(0..SIZES.0), all.pick(SIZES.0..SIZES.0 + SIZES.1), Metric::L2)
        }
    };
    let bar = Progress::new(Variant::ALL.len() + 2, "building and searching");
    let found = measure(&base, &queries, metric, threads, &mut || bar.tick())?;
    drop(bar);
    let rows = hm_ann::rows(&found);
    let set = given.map_or("vectors made here".to_string(), |given| given.vectors.display().to_string());
    let set = format!("{} of {}, {metric}, {set}", base.len(), base.dim());
    if json { Ok(format!("{:#}\n", document(&rows, &found, &set))) } else { Ok(table(&rows, &found, &set)) }
}

fn document(rows: &[Row], found: &Found, set: &str) -> serde_json::Value {
    let point = |at: &At| {
        let each = at.queries.max(1) as f64;
        json!({"recall": at.recall, "us": at.seconds * 1e6, "calculated_us": at.calculated * 1e6, "fast": at.touched.fast as f64 / each,
            "slow": at.touched.slow as f64 / each, "lists": at.touched.lists as f64 / each,
            "fetched": at.touched.fetched as f64 / each, "vain": at.touched.vain as f64 / each})
    };
    let curves: Vec<_> = found
        .curves
        .iter()
        .map(|(variant, points)| json!({"variant": variant.name(), "points": points.iter().map(point).collect::<Vec<_>>()}))
        .collect();
    json!({"paper": "hm-ann", "title": TITLE, "machine": "here, slow memory emulated", "set": set, "measured": true, "emulated": true,
        "remarks": REMARKS, "rows": rows.iter().map(spelled).collect::<Vec<_>>(), "curves": curves})
}

fn table(rows: &[Row], found: &Found, set: &str) -> String {
    let mut page = format!("{TITLE}\n{set}\n\n");
    // Writing to a string never fails.
    let _ = figures(&mut page, rows);
    let _ = writeln!(
        page,
        "time a query, in µs, by recall\n  {:<28} {:>26} {:>26}\n  {:<28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "calculated", "measured here, emulated", "", "0.9", "0.95", "0.99", "0.9", "0.95", "0.99"
    );
    for (variant, _) in &found.curves {
        let _ = write!(page, "  {:<28}", variant.name());
        for figure in [|at: &At| at.calculated, |at: &At| at.seconds] {
            for recall in [0.9, 0.95, 0.99] {
                let at = found.between(*variant, recall, figure);
                let _ = write!(page, " {:>8}", at.map_or("-".to_string(), |s| format!("{:.0}", s * 1e6)));
            }
        }
        page.push('\n');
    }
    page.push('\n');
    REMARKS.iter().for_each(|remark| {
        let _ = writeln!(page, "- {remark}");
    });
    page
}
