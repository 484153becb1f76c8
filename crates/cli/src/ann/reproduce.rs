//! `tiercel reproduce hm-ann`: chapter 3's figures beside ours.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;
use tiercel_ann::hm::reproduce::{At, Found, measure, vectors};
use tiercel_ann::hm::{Memory, Variant};
use tiercel_ann::{Dtype, Matrix, Metric, Spec};
use tiercel_core::Bytes;
use tiercel_systems::reproduce::{Claim, Row};

use crate::progress::Progress;
use crate::reproduce::{figures, spelled};

const TITLE: &str = "HM-ANN: Efficient Billion-Point Nearest Neighbor Search on Heterogeneous Memory";

const BILLION: u64 = 1_000_000_000;

/// How many vectors, and how many queries.
const SIZES: (usize, usize) = (60_000, 1000);

const REMARKS: [&str; 6] = [
    "Ratios are calculated: what each search touches is counted here, and a distance is taken to last 183 ns in fast memory and 421 ns in slow memory, as the paper measured; a list of links in slow memory 238 ns. They are the same on any machine. The times of the last table are measured here, with slow memory emulated by waits of 238 ns.",
    "60,000 vectors made here stand for the paper's billion, of which HNSW takes 900 distances for a recall of 0.99 as on the paper's sets of a million; --vectors takes a real set instead. One node in six is promoted, as in the paper.",
    "HNSW's variants have 20 % of their bytes in fast memory, as 96 of 475 GB are.",
    "The four searches of level 0 take turns on one core; what they wait for in one turn is waited for once.",
    "Fetching ahead is modelled: beside the search of level 1 a vector comes every 53 ns (421 ns, eight on their way); it takes no core away.",
    "Sizes are calculated by the formulas of section 3.3.4; the paper's GB are powers of two.",
];

/// Why figures differ, by a part of what they are.
const NOTES: [(&str, &str); 8] = [
    (
        "random against high-degree",
        "Which nodes are promoted changes how many touches are slow, not how many there are: the nearest vector is among nodes with many links twice as often as among nodes at random (1.1 times on images of MNIST), and that is worth 1.1 to 1.5 times on every set tried. With a set of visited nodes for each of the four searches, as Algorithm 3 has it, 1.4 to 1.6, and all are slower. Four times is not in reach of 421 against 183 ns.",
    ),
    (
        "HNSW in memory mode against",
        "The paper does not say whose slow memory this HNSW has; beside memory mode, its best one.",
    ),
    (
        "without against with fetching ahead",
        "Fewer touches are slow, but copies that nobody needs take room.",
    ),
    (
        "HNSW against HNSW with parallel level 0",
        "The four searches share a set of visited nodes here and reach more nodes in the same time; with one set each, as Algorithm 3 has it, they do the same work four times, and it is 0.8.",
    ),
    (
        "memory mode against HM-ANN",
        "How often a cache has what is touched depends on the set's size: the queries here share more of their way than among a billion.",
    ),
    (
        "first touch against HM-ANN",
        "Even with everything in slow memory HNSW takes no more than the row below says, by the paper's own times of a distance; 3.7 times needs slow memory that is short of bandwidth, too.",
    ),
    (
        "distances of HM-ANN",
        "Beams on both levels find the same nodes; what level 1 has seen is not looked at again here.",
    ),
    (
        "building with promotion",
        "Level 1 has this share of the nodes, and each is inserted there with as wide a beam; the paper does not say how it needs half of that.",
    ),
];

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
    let mut rows = rows(&found);
    rows.extend(sizes());
    for row in rows.iter_mut().filter(|row| row.difference().is_some() || row.ours.is_err()) {
        row.note = NOTES.iter().find(|(part, _)| row.what.contains(part)).map(|(_, note)| *note);
    }
    let set = given.map_or("vectors made here".to_string(), |given| given.vectors.display().to_string());
    let set = format!("{} of {}, {metric}, {set}", base.len(), base.dim());
    if json { Ok(format!("{:#}\n", document(&rows, &found, &set))) } else { Ok(table(&rows, &found, &set)) }
}

/// Table 3.1: what a billion vectors take.
fn sizes() -> Vec<Row> {
    let mut rows = Vec::new();
    let sets = [
        ("BIGANN", 128, Dtype::U8, 0.16, [475.0, 536.0, 462.0]),
        ("DEEP1B", 96, Dtype::F32, 0.11, [723.0, 756.0, 681.0]),
    ];
    for (set, dim, dtype, rate, [hnsw, all, slow]) in sets {
        let spec = Spec { m: 48, ..Spec::new(dim, Metric::L2, dtype) };
        let memory = Memory::of(&spec, BILLION, rate);
        let mut row = |what: String, paper: f64, ours: f64, unit: &'static str, fitted: bool| {
            let paper = Claim::About(paper);
            rows.push(Row { what, place: "Table 3.1", paper, ours: Ok(ours), unit, note: None, fitted });
        };
        let gib = |bytes: Bytes| bytes.0 as f64 / (1u64 << 30) as f64;
        row(format!("{set}, graph of HNSW"), hnsw, gib(Memory::of_hnsw(&spec, BILLION)), "GiB", false);
        row(format!("{set}, graph of HM-ANN"), all, gib(memory.all()), "GiB", false);
        row(format!("{set}, slow memory of HM-ANN"), slow, gib(memory.slow), "GiB", false);
        let within = Memory::within(&spec, BILLION, Bytes(96 << 30));
        // What searches keep is not in the text, and was chosen to lead to these.
        row(format!("{set}, nodes on level 1 with 96 GiB"), rate * 100.0, within.promoted * 100.0, "%", true);
    }
    rows
}

fn rows(found: &Found) -> Vec<Row> {
    let ratio = |slow: Variant, quick: Variant, recall: f64| {
        let time = |variant: Variant| {
            let seconds = found.between(variant, recall, |at| at.calculated);
            seconds.ok_or_else(|| format!("{} does not reach a recall of {recall}", variant.name()))
        };
        Ok(time(slow)? / time(quick)?)
    };
    let row =
        |what: &str, place: &'static str, paper: Claim, ours: Result<f64, String>, unit: &'static str| Row {
            what: what.to_string(),
            place,
            paper,
            ours,
            unit,
            note: None,
            fitted: false,
        };
    use Variant::*;
    let mut rows = Vec::new();
    for (recall, claim) in [(0.95, 1.8), (0.99, 4.3), (0.995, 3.9)] {
        let what = format!("random against high-degree promotion, top-1 recall {recall}");
        let ours = ratio(RandomPromotion, HmAnn, recall);
        rows.push(row(
            &what,
            "Section 3.4.3, Figure 3.3",
            Claim::About(claim),
            ours,
            "times the time, calculated",
        ));
    }
    let figure = "Section 3.4.3, Figure 3.5";
    let step = |what: &str, slow, quick, recall, claim| {
        row(what, figure, claim, ratio(slow, quick, recall), "times the time, calculated")
    };
    rows.push(step(
        "HNSW in memory mode against promotion and parallel level 0, recall 0.99",
        MemoryMode,
        PromotionParallel,
        0.99,
        Claim::About(1.75),
    ));
    rows.push(step(
        "promotion alone against promotion and parallel level 0, recall 0.99",
        Promotion,
        PromotionParallel,
        0.99,
        Claim::AtLeast(1.0),
    ));
    rows.push(step(
        "without against with fetching ahead, recall 0.99",
        PromotionParallel,
        HmAnn,
        0.99,
        Claim::AtLeast(1.0),
    ));
    let figure = "Section 3.4.3, Figure 3.4";
    rows.push(row(
        "HNSW against HNSW with parallel level 0, recall 0.95",
        figure,
        Claim::Between(1.0, 1.3),
        ratio(AllSlow, HnswParallel, 0.95),
        "times the time, calculated",
    ));
    let figure = "Section 3.4.3, Figure 3.6";
    rows.push(row(
        "memory mode against HM-ANN, recall 0.95",
        figure,
        Claim::About(2.0),
        ratio(MemoryMode, HmAnn, 0.95),
        "times the time, calculated",
    ));
    rows.push(row(
        "first touch against HM-ANN, recall 0.95",
        figure,
        Claim::About(3.7),
        ratio(FirstTouch, HmAnn, 0.95),
        "times the time, calculated",
    ));
    rows.push(row(
        "all slow against HM-ANN, recall 0.95",
        figure,
        Claim::Silent,
        ratio(AllSlow, HmAnn, 0.95),
        "times the time, calculated",
    ));
    let place = "Section 3.4.2";
    let distances = |at: fn((f64, f64)) -> f64| {
        found.distances.map(at).ok_or("a recall of 0.99 is not reached".to_string())
    };
    // The vectors that are made were made to come to this.
    let hnsw =
        row("distances of HNSW, recall 0.99", place, Claim::About(900.0), distances(|d| d.0), "a query");
    rows.push(Row { fitted: true, ..hnsw });
    rows.push(row(
        "distances of HM-ANN, recall 0.99",
        place,
        Claim::About(850.0),
        distances(|d| d.1),
        "a query",
    ));
    rows.push(row(
        "building with promotion takes longer by",
        "Table 3.1",
        Claim::About(8.0),
        Ok(found.longer * 100.0),
        "%",
    ));
    let place = "Section 3.4.3, Figures 3.7 and 3.8";
    let chosen =
        |at: fn((f64, f64)) -> f64| found.chosen.map(at).ok_or("no widths reach the goal".to_string());
    rows.push(row(
        "widths that Equation 3.1 admits and that are in time",
        place,
        Claim::Silent,
        chosen(|c| c.0 * 100.0),
        "%",
    ));
    rows.push(row("widths that Equation 3.1 leaves out", place, Claim::Silent, chosen(|c| c.1 * 100.0), "%"));
    let share = |variant| {
        let figure =
            |at: &At| 100.0 * at.touched.slow as f64 / (at.touched.slow + at.touched.fast).max(1) as f64;
        found.between(variant, 0.95, figure).ok_or("a recall of 0.95 is not reached".to_string())
    };
    for (name, share) in [("with the most links", found.held.0), ("at random", found.held.1)] {
        let what = format!("true nearest among nodes on level 1 that were chosen {name}");
        rows.push(row(
            &what,
            "counted, with no memory emulated",
            Claim::Silent,
            Ok(share * 100.0),
            "% of all",
        ));
    }
    for variant in [FirstTouch, MemoryMode, RandomPromotion, HmAnn] {
        let what = format!("slow distances of {}, recall 0.95", variant.name());
        rows.push(row(&what, "counted, with no memory emulated", Claim::Silent, share(variant), "% of all"));
    }
    rows
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
