//! HM-ANN (chapter 3 of the dissertation): the figures that text and tables state, beside what searches of the index touched.
//!
//! They are no simulations of a trace but counts of touches, so what was measured is handed over:
//! [`tiercel_ann::hm::reproduce::measure`].

use tiercel_ann::hm::reproduce::{At, Found};
use tiercel_ann::hm::{Memory, Variant};
use tiercel_ann::{Dtype, Metric, Spec};
use tiercel_core::Bytes;

use super::{Claim, Row};

/// The paper's title.
pub const TITLE: &str = "HM-ANN: Efficient Billion-Point Nearest Neighbor Search on Heterogeneous Memory";

const BILLION: u64 = 1_000_000_000;

/// How the figures are to be read.
pub const REMARKS: [&str; 6] = [
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

/// Every figure of the chapter, with why where it differs.
pub fn rows(found: &Found) -> Vec<Row> {
    let mut rows = recalls(found);
    rows.extend(work(found));
    rows.extend(widths(found));
    rows.extend(touches(found));
    rows.extend(sizes());
    for row in rows.iter_mut().filter(|row| row.difference().is_some() || row.ours.is_err()) {
        row.note = NOTES.iter().find(|(part, _)| row.what.contains(part)).map(|(_, note)| *note);
    }
    rows
}

fn row(
    what: impl Into<String>,
    place: &'static str,
    paper: Claim,
    ours: Result<f64, String>,
    unit: &'static str,
) -> Row {
    Row { what: what.into(), place, paper, ours, unit, note: None, fitted: false }
}

/// Figures 3.3 to 3.6: one way of searching against another, to the same recall.
fn recalls(found: &Found) -> Vec<Row> {
    use Variant::*;
    let ratio = |slow: Variant, quick: Variant, recall: f64| {
        let time = |variant: Variant| {
            let seconds = found.between(variant, recall, |at| at.calculated);
            seconds.ok_or_else(|| format!("{} does not reach a recall of {recall}", variant.name()))
        };
        Ok(time(slow)? / time(quick)?)
    };
    let random = "random against high-degree promotion, top-1 recall";
    let (degrees, steps) = ("Section 3.4.3, Figure 3.3", "Section 3.4.3, Figure 3.5");
    let (parallel, memory) = ("Section 3.4.3, Figure 3.4", "Section 3.4.3, Figure 3.6");
    let cases = [
        (format!("{random} 0.95"), degrees, RandomPromotion, HmAnn, 0.95, Claim::About(1.8)),
        (format!("{random} 0.99"), degrees, RandomPromotion, HmAnn, 0.99, Claim::About(4.3)),
        (format!("{random} 0.995"), degrees, RandomPromotion, HmAnn, 0.995, Claim::About(3.9)),
        (
            "HNSW in memory mode against promotion and parallel level 0, recall 0.99".to_string(),
            steps,
            MemoryMode,
            PromotionParallel,
            0.99,
            Claim::About(1.75),
        ),
        (
            "promotion alone against promotion and parallel level 0, recall 0.99".to_string(),
            steps,
            Promotion,
            PromotionParallel,
            0.99,
            Claim::AtLeast(1.0),
        ),
        (
            "without against with fetching ahead, recall 0.99".to_string(),
            steps,
            PromotionParallel,
            HmAnn,
            0.99,
            Claim::AtLeast(1.0),
        ),
        (
            "HNSW against HNSW with parallel level 0, recall 0.95".to_string(),
            parallel,
            AllSlow,
            HnswParallel,
            0.95,
            Claim::Between(1.0, 1.3),
        ),
        (
            "memory mode against HM-ANN, recall 0.95".to_string(),
            memory,
            MemoryMode,
            HmAnn,
            0.95,
            Claim::About(2.0),
        ),
        (
            "first touch against HM-ANN, recall 0.95".to_string(),
            memory,
            FirstTouch,
            HmAnn,
            0.95,
            Claim::About(3.7),
        ),
        ("all slow against HM-ANN, recall 0.95".to_string(), memory, AllSlow, HmAnn, 0.95, Claim::Silent),
    ];
    let rows = cases.into_iter().map(|(what, place, slow, quick, recall, paper)| {
        row(what, place, paper, ratio(slow, quick, recall), "times the time, calculated")
    });
    rows.collect()
}

/// Section 3.4.2 and Table 3.1: what searches and building take.
fn work(found: &Found) -> Vec<Row> {
    let place = "Section 3.4.2";
    let distances = |at: fn((f64, f64)) -> f64| {
        found.distances.map(at).ok_or("a recall of 0.99 is not reached".to_string())
    };
    let claimed = |what: &str, place, claim, ours, unit| row(what, place, Claim::About(claim), ours, unit);
    vec![
        // The vectors that are made were made to come to this.
        claimed("distances of HNSW, recall 0.99", place, 900.0, distances(|d| d.0), "a query").fitted(),
        claimed("distances of HM-ANN, recall 0.99", place, 850.0, distances(|d| d.1), "a query"),
        claimed("building with promotion takes longer by", "Table 3.1", 8.0, Ok(found.longer * 100.0), "%"),
    ]
}

/// Figures 3.7 and 3.8: which widths of searches Equation 3.1 chooses.
fn widths(found: &Found) -> Vec<Row> {
    let place = "Section 3.4.3, Figures 3.7 and 3.8";
    let chosen =
        |at: fn((f64, f64)) -> f64| found.chosen.map(at).ok_or("no widths reach the goal".to_string());
    let shown = |what: &str, ours| row(what, place, Claim::Silent, ours, "%");
    vec![
        shown("widths that Equation 3.1 admits and that are in time", chosen(|c| c.0 * 100.0)),
        shown("widths that Equation 3.1 leaves out", chosen(|c| c.1 * 100.0)),
    ]
}

/// What was counted: who is on level 1, and how much of what is touched is slow.
fn touches(found: &Found) -> Vec<Row> {
    let place = "counted, with no memory emulated";
    let share = |variant| {
        let figure =
            |at: &At| 100.0 * at.touched.slow as f64 / (at.touched.slow + at.touched.fast).max(1) as f64;
        found.between(variant, 0.95, figure).ok_or("a recall of 0.95 is not reached".to_string())
    };
    let mut rows = Vec::new();
    for (name, share) in [("with the most links", found.held.0), ("at random", found.held.1)] {
        let what = format!("true nearest among nodes on level 1 that were chosen {name}");
        rows.push(row(what, place, Claim::Silent, Ok(share * 100.0), "% of all"));
    }
    for variant in [Variant::FirstTouch, Variant::MemoryMode, Variant::RandomPromotion, Variant::HmAnn] {
        let what = format!("slow distances of {}, recall 0.95", variant.name());
        rows.push(row(what, place, Claim::Silent, share(variant), "% of all"));
    }
    rows
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
        let mut add = |what: String, paper: f64, ours: f64, unit: &'static str, fitted: bool| {
            let row = row(what, "Table 3.1", Claim::About(paper), Ok(ours), unit);
            rows.push(Row { fitted, ..row });
        };
        let gib = |bytes: Bytes| bytes.0 as f64 / (1u64 << 30) as f64;
        add(format!("{set}, graph of HNSW"), hnsw, gib(Memory::of_hnsw(&spec, BILLION)), "GiB", false);
        add(format!("{set}, graph of HM-ANN"), all, gib(memory.all()), "GiB", false);
        add(format!("{set}, slow memory of HM-ANN"), slow, gib(memory.slow), "GiB", false);
        let within = Memory::within(&spec, BILLION, Bytes(96 << 30));
        // What searches keep is not in the text, and was chosen to lead to these.
        add(format!("{set}, nodes on level 1 with 96 GiB"), rate * 100.0, within.promoted * 100.0, "%", true);
    }
    rows
}
