//! `tiercel reproduce hm-ann`: chapter 3's figures beside ours.

use std::fmt::Write;

use serde_json::json;
use tiercel_ann::hm::Variant;
use tiercel_ann::hm::reproduce::{At, Found, measure, vectors};
use tiercel_ann::{Matrix, Metric};
use tiercel_systems::reproduce::{Claim, Row};

use crate::progress::Progress;
use crate::reproduce::{figures, spelled};

const TITLE: &str = "HM-ANN: Efficient Billion-Point Nearest Neighbor Search on Heterogeneous Memory";

/// How many vectors, and how many queries.
const SIZES: (usize, usize) = (60_000, 500);

const REMARKS: [&str; 6] = [
    "Times are measured here; slow memory is emulated: 238 ns more a distance or a list of links, the difference that the paper measured (421 against 183 ns). Touches are counted, not emulated.",
    "60,000 made vectors around 400 centres, 96 dimensions, stand for the paper's billion of real ones: shares of fast memory are the paper's, sizes are not, and what is near is easier to find.",
    "A distance here takes a tenth of the paper's 183 ns, because the vectors are small and mostly in caches; so slow touches weigh more than there.",
    "The four searches of level 0 take turns on one core; what they wait for in one turn is waited for once.",
    "The time of a setting is the median over its queries, and between two settings times are interpolated by recall: on a busy machine ratios vary by a tenth or two.",
    "Fetching ahead is modelled: beside the search of level 1 a vector comes every 53 ns (421 ns, eight on their way); it takes no core away.",
];

/// Why figures differ, by a part of what they are.
const NOTES: [(&str, &str); 8] = [
    (
        "random against high-degree",
        "Nodes with the most links are more often true neighbours and fewer touches are slow (both counted below), but they lie closer together than nodes at random, and the same widths find less (with one candidate on level 1 0.57 against 0.70): of 60,000 vectors one in six at random is near everywhere.",
    ),
    (
        "HNSW in slow memory against promotion",
        "A distance takes a tenth of the paper's time here and a slow one as much longer as there, so touches that are no longer slow save more.",
    ),
    (
        "without against with fetching ahead",
        "Fewer touches are slow (see the curves of --json), but the books of the migration space, hash tables here, take about as long as that saves.",
    ),
    (
        "HNSW against HNSW with parallel level 0",
        "What four searches wait for in one turn is waited for once here; on the paper's machine they share the bandwidth of slow memory.",
    ),
    (
        "against HM-ANN",
        "Half of the distances of a search among 60,000 vectors are on the upper levels, which are fast with both; among a billion nearly all are on level 0.",
    ),
    ("distances of", "60,000 vectors take fewer steps than a billion."),
    (
        "building with promotion",
        "Level 1 has this share of the nodes, and each is inserted there with as wide a beam; the paper does not say how it needs half of that.",
    ),
    (
        "nodes on level 1",
        "By the formula of section 3.3.4 for bytes of a vector and links that are not those of the paper's sets.",
    ),
];

/// The table or document.
pub fn run(json: bool, seed: u64, threads: usize) -> anyhow::Result<String> {
    let (count, asked) = SIZES;
    let (numbers, dim) = vectors(count + asked, seed);
    let bytes: Vec<u8> = numbers.iter().map(|n| *n as u8).collect();
    let all = Matrix::new(tiercel_ann::Dtype::U8, dim, bytes)?;
    let bar = Progress::new(Variant::ALL.len() + 2, "building and searching");
    let found =
        measure(&all.slice(0..count), &all.slice(count..count + asked), Metric::L2, threads, &mut || {
            bar.tick()
        })?;
    drop(bar);
    let mut rows = rows(&found);
    for row in rows.iter_mut().filter(|row| row.difference().is_some() || row.ours.is_err()) {
        row.note = NOTES.iter().find(|(part, _)| row.what.contains(part)).map(|(_, note)| *note);
    }
    if json { Ok(format!("{:#}\n", document(&rows, &found))) } else { Ok(table(&rows, &found)) }
}

fn rows(found: &Found) -> Vec<Row> {
    let ratio = |slow: Variant, quick: Variant, recall: f64| {
        let time = |variant: Variant| {
            let seconds = found.seconds(variant, recall);
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
        rows.push(row(&what, "Section 3.4.3, Figure 3.3", Claim::About(claim), ours, "times the time"));
    }
    let figure = "Section 3.4.3, Figure 3.5";
    let step = |what: &str, slow, quick, recall, claim| {
        row(what, figure, claim, ratio(slow, quick, recall), "times the time")
    };
    rows.push(step(
        "HNSW in slow memory against promotion and parallel level 0, recall 0.99",
        AllSlow,
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
        "times the time",
    ));
    let figure = "Section 3.4.3, Figure 3.6";
    rows.push(row(
        "memory mode against HM-ANN, recall 0.95",
        figure,
        Claim::About(2.0),
        ratio(MemoryMode, HmAnn, 0.95),
        "times the time",
    ));
    rows.push(row(
        "first touch against HM-ANN, recall 0.95",
        figure,
        Claim::About(3.7),
        ratio(FirstTouch, HmAnn, 0.95),
        "times the time",
    ));
    rows.push(row(
        "all slow against HM-ANN, recall 0.95",
        figure,
        Claim::Silent,
        ratio(AllSlow, HmAnn, 0.95),
        "times the time",
    ));
    let place = "Section 3.4.2";
    let distances = |at: fn((f64, f64)) -> f64| {
        found.distances.map(at).ok_or("a recall of 0.99 is not reached".to_string())
    };
    rows.push(row(
        "distances of HNSW, recall 0.99",
        place,
        Claim::About(900.0),
        distances(|d| d.0),
        "a query",
    ));
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
    rows.push(row(
        "nodes on level 1",
        "Table 3.1",
        Claim::Between(11.0, 16.0),
        Ok(found.promoted * 100.0),
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

fn document(rows: &[Row], found: &Found) -> serde_json::Value {
    let point = |at: &At| {
        let each = at.queries.max(1) as f64;
        json!({"recall": at.recall, "us": at.seconds * 1e6, "fast": at.touched.fast as f64 / each,
            "slow": at.touched.slow as f64 / each, "lists": at.touched.lists as f64 / each,
            "fetched": at.touched.fetched as f64 / each, "vain": at.touched.vain as f64 / each})
    };
    let curves: Vec<_> = found
        .curves
        .iter()
        .map(|(variant, points)| json!({"variant": variant.name(), "points": points.iter().map(point).collect::<Vec<_>>()}))
        .collect();
    json!({"paper": "hm-ann", "title": TITLE, "machine": "here, slow memory emulated", "measured": true, "emulated": true,
        "remarks": REMARKS, "rows": rows.iter().map(spelled).collect::<Vec<_>>(), "curves": curves})
}

fn table(rows: &[Row], found: &Found) -> String {
    let mut page = format!("{TITLE}\nmeasured here, slow memory emulated\n\n");
    // Writing to a string never fails.
    let _ = figures(&mut page, rows);
    let _ = writeln!(
        page,
        "time a query, in µs, by recall\n  {:<28} {:>8} {:>8} {:>8}",
        "", "0.9", "0.95", "0.99"
    );
    for (variant, _) in &found.curves {
        let at =
            |recall| found.seconds(*variant, recall).map_or("-".to_string(), |s| format!("{:.0}", s * 1e6));
        let _ = writeln!(page, "  {:<28} {:>8} {:>8} {:>8}", variant.name(), at(0.9), at(0.95), at(0.99));
    }
    page.push('\n');
    REMARKS.iter().for_each(|remark| {
        let _ = writeln!(page, "- {remark}");
    });
    page
}
