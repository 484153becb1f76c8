//! DyNN-Offload (dissertation, chapter 6): what the text and the tables state, by simulation of an RTX 6000.
//!
//! Networks, samples and rivals are those of `tiercel_dynamic`; figures that the chapter shows only as bars are not in here.
//! Step times are simulated. The times of predictors alone are read off this machine's clock, and say so.

use tiercel_core::Bytes;
use tiercel_dynamic::blocks::{Cut, Representation};
use tiercel_dynamic::exam::{self, Setup};
use tiercel_dynamic::learned::Training;
use tiercel_dynamic::plans::Care;
use tiercel_dynamic::structure::jaccard;
use tiercel_dynamic::study::{Study, Sum};
use tiercel_dynamic::workloads::{self, ALL, Family, Source};
use tiercel_profile::{Model, machines};
use tiercel_workload::{Kernel, Lifetimes};

use super::bench::{Bench, row};
use super::{Claim, Paper, Row};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "dynn-offload",
    title: "Enabling Large Dynamic Neural Network Training with Learning-based Memory Management (dissertation, chapter 6)",
    machine: "rtx6000",
    remarks: &[
        "Samples are generated (crates/dynamic/src/workloads): none of the paper's data sets is here. Which way a network goes \
         follows from two subjects of a sample's words or from its length; 4 of 100 samples stray, whatever their words say.",
        "Networks are of the paper's kinds, not its very sizes; the card's memory is half of what the largest path has alive.",
        "A step is a batch whose members go the same way. Memory is counted in bytes, without fragmentation.",
        "`dynn-offload` is the paper's system: blocks by Sentinel's equations, two buffers, the path that the learned model says. \
         `ours` is a trie of sequences, a predictor of the next branch, and joint plans (keep, move, run again) by path.",
        "Times of predictors are measured on this machine, on one core; everything else is simulated or counted.",
        "Figure 6.9 (six machines) is not simulated.",
    ],
    reasons: &[
        (
            "DTR",
            "kernels whose results are cheap to make again are many here; what DTR drops is nearly free at half of the memory",
        ),
        (
            "Figure 6.6",
            "networks, sizes and the share of memory are ours; the paper states its ranges over all of them together",
        ),
        (
            "Figure 6.11",
            "blocks wait for all of their tensors, and Sentinel's equations look at mean blocks, not at each",
        ),
        (
            "Section 6.6.8",
            "most misses here are of samples that stray or are ambiguous, from which nothing is to be learned",
        ),
        ("Table 6.3", "other samples and other networks; the model reaches what the samples allow"),
        ("", "other networks, samples and processor; it was not looked into further"),
    ],
    rows,
};

/// The steps that are played for each figure.
const STEPS: usize = 40;
/// Passes of ours over the training samples.
const PASSES: usize = 3;
/// The share of the largest path's memory that the card has.
const SHARE: f64 = 0.5;

/// What was found of a workload.
struct Found {
    name: &'static str,
    family: Family,
    paper: bool,
    dynamic: bool,
    sums: Vec<(&'static str, Result<Sum, String>)>,
    /// The least tenth of the peak in which DTR runs.
    dtr_needs: Option<f64>,
    /// Of the learned model: accuracy, by global ids, misses without and with handling, inference and mapping in µs.
    accuracy: f64,
    by_ids: f64,
    misses: (usize, usize),
    times: (f64, f64),
    /// Of ours: accuracy, misses frozen and learning on, µs, and the mean cost of a wrong guess.
    our_accuracy: f64,
    our_misses: (usize, usize),
    our_time: f64,
    wrong: f64,
}

impl Found {
    fn sum(&self, system: &str) -> Result<Sum, String> {
        let found = self.sums.iter().find(|(name, _)| *name == system);
        found.map_or_else(|| Err("it was not simulated".to_string()), |(_, sum)| sum.clone())
    }

    /// By how many percent one system takes less than another.
    fn ahead(&self, winner: &str, other: &str) -> Result<f64, String> {
        Ok((self.sum(other)?.seconds / self.sum(winner)?.seconds - 1.0) * 100.0)
    }
}

struct Results {
    found: Vec<Found>,
    /// Accuracy of the recurrent family by hidden neurons.
    widths: Vec<(usize, f64)>,
}

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let seed = bench.options().seed.wrapping_add(1);
    let families = [Family::Transformer, Family::Lstm, Family::Cnn];
    let parts = bench.each(&families, |family| examine(*family, seed));
    let mut results = Results { found: Vec::new(), widths: Vec::new() };
    for part in parts {
        results.found.extend(part.found);
        results.widths.extend(part.widths);
    }
    let order = |found: &Found| ALL.iter().position(|workload| workload.name == found.name);
    results.found.sort_by_key(order);
    let mut rows = distances(seed);
    rows.extend(overall(&results));
    rows.extend(breakdown(&results));
    rows.extend(scale());
    rows.extend(predictions(&results));
    rows.extend(partitions(&results));
    rows.extend(ours(&results));
    rows
}

fn setup(representation: Representation, hidden: usize, seed: u64) -> Setup {
    Setup { representation, hidden, training: Training { seed, ..Training::default() } }
}

/// One family: its learned model, then all of its workloads with every rival.
fn examine(family: Family, seed: u64) -> Results {
    let machine = machines::named("rtx6000").expect("a shipped machine");
    let model = Model::new(&machine).expect("shipped machines have models");
    let of = ALL.iter().filter(|workload| workload.family == family);
    let mut all: Vec<Study> = of.map(|w| Study::new(w, &machine, &model, SHARE, Care::default())).collect();
    let dynamic: Vec<usize> = (0..all.len()).filter(|at| all[*at].workload.is_dynamic()).collect();
    let studies: Vec<&Study> = dynamic.iter().map(|at| &all[*at]).collect();
    let drawn = exam::draw(&studies, seed);
    let mut learned = exam::train(&studies, &drawn, setup(Representation::Idioms, 512, seed));
    let accuracy = exam::accuracy(&mut learned, &studies, &drawn);
    let mut ids = exam::train(&studies, &drawn, setup(Representation::GlobalIds, 512, seed));
    let by_ids = exam::accuracy(&mut ids, &studies, &drawn);
    let paper = |accuracy: &[f64]| {
        let of_paper = accuracy.iter().zip(&studies).filter(|(_, study)| study.workload.paper);
        let shares: Vec<f64> = of_paper.map(|(share, _)| *share).collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    };
    let mut widths = Vec::new();
    if family == Family::Lstm {
        widths.push((512, paper(&accuracy)));
        for hidden in [256, 1024, 2048] {
            let mut other = exam::train(&studies, &drawn, setup(Representation::Idioms, hidden, seed));
            widths.push((hidden, paper(&exam::accuracy(&mut other, &studies, &drawn))));
        }
    }
    let mut told = Vec::new();
    for (network, study) in studies.iter().enumerate() {
        let times = exam::times(&mut learned, study, network, &drawn[network].tested);
        // Handling trains the model: each network starts from the same one.
        let mut own = learned.clone();
        let misses = exam::misses(&mut own, &studies, &drawn, network, seed + 7);
        let (share, mut seen) = exam::our_accuracy(study, &drawn[network], PASSES);
        let time = exam::our_time(study, &mut seen, &drawn[network].tested);
        let our_misses = exam::our_misses(study, &mut seen, seed + 7);
        let samples = Source::new(study.workload, seed + 3).take(STEPS);
        let said: Vec<usize> = samples.iter().map(|s| exam::said(&mut learned, study, network, s)).collect();
        told.push((times, misses, share, time, our_misses, seen, said));
    }
    drop(studies);
    let mut told = dynamic.iter().copied().zip(told).collect::<std::collections::HashMap<_, _>>();
    let mut found = Vec::new();
    for (at, study) in all.iter_mut().enumerate() {
        let samples = Source::new(study.workload, seed + 3).take(STEPS);
        let (times, misses, our_accuracy, our_time, our_misses, mut seen, said) =
            told.remove(&at).unwrap_or_else(|| {
                let mut seen = tiercel_dynamic::study::Seen::default();
                samples.iter().for_each(|sample| seen.see(study, sample));
                ((0.0, 0.0), (0, 0), 1.0, 0.0, (0, 0), seen, vec![0; samples.len()])
            });
        let network = dynamic.iter().position(|known| *known == at);
        let mut sums = play(study, &samples, &said);
        sums.push(("ours", text(study.ours(&samples, &mut seen))));
        let dtr_needs = (5..=10).map(|tenth| f64::from(tenth) / 10.0).find(|share| {
            let limit = std::mem::replace(&mut study.limit, Bytes((study.peak.0 as f64 * share) as u64));
            let fits = study.dtr(&samples[..12]).is_ok();
            study.limit = limit;
            fits
        });
        found.push(Found {
            name: study.workload.name,
            family,
            paper: study.workload.paper,
            dynamic: study.workload.is_dynamic(),
            sums,
            dtr_needs,
            accuracy: network.map_or(1.0, |network| accuracy[network]),
            by_ids: network.map_or(1.0, |network| by_ids[network]),
            misses,
            times,
            our_accuracy,
            our_misses,
            our_time,
            wrong: study.costs().map_or(f64::NAN, |costs| costs.wrong()),
        });
    }
    Results { found, widths }
}

fn text(sum: Result<Sum, tiercel_dynamic::ground::Short>) -> Result<Sum, String> {
    sum.map_err(|short| format!("does not fit: {short}"))
}

/// Every rival but ours; DyNN-Offload believes what its model said.
fn play(
    study: &mut Study,
    samples: &[workloads::Sample],
    said: &[usize],
) -> Vec<(&'static str, Result<Sum, String>)> {
    let mut sums = vec![
        ("all fast", text(study.roomy(samples))),
        ("on demand", text(study.on_demand(samples))),
        ("unified memory", text(study.unified(samples))),
        ("DTR", text(study.dtr(samples))),
        ("L2L", text(study.layers(samples))),
        ("ZeRO-Offload", text(study.zero(samples))),
        ("oracle", text(study.oracle(samples))),
    ];
    let cuts = [
        ("dynn-offload", Cut::Sentinel),
        ("even operators", Cut::Operators),
        ("even time", Cut::Time),
        ("even sizes", Cut::Sizes),
    ];
    for (name, cut) in cuts {
        let mut turn = 0;
        let mut tell = |_: &workloads::Sample| {
            turn += 1;
            said[turn - 1]
        };
        sums.push((name, text(study.dynn_offload(samples, cut, &mut tell))));
    }
    sums
}

/// Table 6.1: how far the branches of samples are from those of the first.
fn distances(seed: u64) -> Vec<Row> {
    let workload = workloads::named("tree-lstm").expect("it is there");
    let ways = workload.ways();
    let taken = |way: usize| {
        let path = ways[way].path.iter().enumerate();
        path.filter(|(_, arm)| **arm > 0).map(|(site, _)| site).collect::<Vec<usize>>()
    };
    let samples = Source::new(workload, seed).take(6000);
    let mut counts = [0usize; 5];
    for sample in &samples {
        let distance = jaccard(&taken(0), &taken(sample.way));
        counts[((distance * 5.0 - 1e-9).ceil().max(1.0) as usize - 1).min(4)] += 1;
    }
    let paper = [5.0, 28.0, 25.0, 40.0, 2.0];
    let ranges = ["0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1"];
    let each = |((range, claim), count): ((&str, f64), usize)| {
        let ours = Ok(count as f64 / samples.len() as f64 * 100.0);
        let what = format!("Tree-LSTM: Jaccard distance {range}");
        row(what, "Table 6.1 (samples are generated after it)", Claim::About(claim), ours, "% of samples")
            .fitted()
    };
    ranges.into_iter().zip(paper).zip(counts).map(each).collect()
}

/// Figure 6.6: DyNN-Offload ahead of the others.
fn overall(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for found in results.found.iter().filter(|found| found.paper) {
        let (others, claim): (&[&str], Claim) = match found.dynamic {
            true => (&["unified memory", "DTR"], Claim::Between(2.0, 50.0)),
            false => (&["L2L", "ZeRO-Offload"], Claim::Between(11.0, 34.0)),
        };
        for other in others {
            if *other == "ZeRO-Offload" && found.family != Family::Transformer {
                continue;
            }
            let what = format!("{}: dynn-offload ahead of {other}", found.name);
            rows.push(row(what, "Figure 6.6", claim, found.ahead("dynn-offload", other), "% of the speed"));
        }
        if found.name == "fixed-bert" {
            let what = "fixed-bert: dynn-offload ahead of DTR";
            let ours = found.ahead("dynn-offload", "DTR");
            rows.push(row(what, "Figure 6.6", Claim::About(75.0), ours, "% of the speed"));
        }
    }
    rows
}

/// Figure 6.7: where time goes.
fn breakdown(results: &Results) -> Vec<Row> {
    let place = "Section 6.6.3, Figure 6.7";
    let mut rows = Vec::new();
    let of = |name: &str| results.found.iter().find(|found| found.name == name);
    for (name, claim) in [("tree-cnn", 55.0), ("tree-lstm", 40.0)] {
        let ours = of(name).ok_or("missing".to_string()).and_then(|found| found.sum("unified memory"));
        let ours = ours.map(|sum| sum.stall / sum.seconds * 100.0);
        let what = format!("{name}: unified memory waits for tensors");
        rows.push(row(what, place, Claim::About(claim), ours, "% of the time"));
    }
    let ours = of("fixed-bert").ok_or("missing".to_string()).and_then(|found| found.sum("DTR"));
    let ours = ours.map(|sum| sum.again / sum.seconds * 100.0);
    rows.push(row("fixed-bert: DTR makes again", place, Claim::About(33.0), ours, "% of the time"));
    let again = |name: &str| {
        let sum = of(name).ok_or("missing".to_string()).and_then(|found| found.sum("DTR"))?;
        Ok(sum.again / sum.compute * 100.0)
    };
    let less = again("fixed-bert").and_then(|fixed: f64| Ok(fixed - again("var-bert")?));
    let what = "DTR makes less again in var-bert than in fixed-bert, by";
    rows.push(row(what, place, Claim::AtLeast(0.0), less, "% of the kernels' time"));
    rows
}

/// Section 6.6.4: the largest var-BERT that trains in 23 GB.
fn scale() -> Vec<Row> {
    let machine = machines::named("rtx6000").expect("a shipped machine");
    let limit = machine.tiers[0].capacity;
    let path = [1, 1, 1, 1, 1];
    let rows_of = workloads::named("var-bert").map_or(0, |workload| workload.rows);
    let trace = |layers: u64| workloads::bert(layers, &path, rows_of).trace;
    let without =
        (1..=96).take_while(|layers| Lifetimes::new(&trace(*layers)).peak().1 <= limit).last().unwrap_or(0);
    // On demand every kernel runs whose own tensors fit; the host must hold the rest.
    let fits = |layers: u64| {
        let trace = trace(layers);
        let used = |kernel: &Kernel| {
            let used = kernel.reads.iter().chain(&kernel.writes);
            used.map(|used| trace.tensor(used.tensor).bytes).sum::<Bytes>()
        };
        let host = Lifetimes::new(&trace).peak().1 <= machine.tiers[1].capacity;
        host && trace.kernels.iter().all(|kernel| used(kernel) <= limit)
    };
    let (mut with, mut step) = (without, without.max(1));
    while step > 0 {
        match fits(with + step) {
            true => with += step,
            false => step /= 2,
        }
    }
    let place = "Section 6.6.4: the largest var-bert in 23 GB";
    let note = "the host's 186 GB end it here; each layer keeps what four segments of 16 texts need";
    vec![
        row("without", place, Claim::About(12.0), Ok(without as f64), "layers"),
        row("with", place, Claim::About(96.0), Ok(with as f64), "layers").note(note),
        row("with over without", place, Claim::About(8.0), Ok(with as f64 / without.max(1) as f64), "times")
            .note(note),
    ]
}

/// Sections 6.6.3, 6.6.5, 6.6.6 and 6.6.8: the predictors.
fn predictions(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let dynamic = || results.found.iter().filter(|found| found.dynamic);
    let paper = || dynamic().filter(|found| found.paper);
    let mean = |values: Vec<f64>| Ok(values.iter().sum::<f64>() / values.len().max(1) as f64);
    let place = "Section 6.6.5: accuracy, 5,000 samples to train and 1,000 to test a family";
    let all = mean(paper().map(|found| found.accuracy).collect());
    rows.push(
        row("the learned model, mean of the paper's five", place, Claim::About(0.82), all, "of samples")
            .fitted(),
    );
    let all = mean(paper().map(|found| found.our_accuracy).collect());
    rows.push(row("ours, mean of the same", place, Claim::AtLeast(0.82), all, "of samples").fitted());
    for found in dynamic() {
        let what = format!("{}: the learned model", found.name);
        let mut told = row(what, place, Claim::Silent, Ok(found.accuracy), "of samples");
        if !found.paper {
            told.note = Some(
                "paths that differ only in which of several equal layers or experts run have the same nine numbers",
            );
        }
        rows.push(told);
        rows.push(row(
            format!("{}: ours", found.name),
            place,
            Claim::Silent,
            Ok(found.our_accuracy),
            "of samples",
        ));
    }
    let claims = [(256, 0.7), (512, 0.82), (1024, 0.88), (2048, 0.91)];
    for (hidden, claim) in claims {
        let found = results.widths.iter().find(|(known, _)| *known == hidden).map(|(_, share)| *share);
        let ours = found.ok_or("it was not trained".to_string());
        rows.push(row(
            format!("{hidden} neurons"),
            "Table 6.3: accuracy, recurrent networks",
            Claim::About(claim),
            ours,
            "of samples",
        ));
    }
    let place = "Section 6.6.3: time of a prediction, measured here";
    for (what, claim, value) in [
        ("the learned model: inference", Claim::About(12.0), mean(paper().map(|f| f.times.0).collect())),
        (
            "the learned model: mapping",
            Claim::Between(10.0, 15.0),
            mean(paper().map(|f| f.times.1).collect()),
        ),
        ("ours: both together", Claim::AtMost(10.0), mean(paper().map(|f| f.our_time).collect())),
    ] {
        rows.push(row(what, place, claim, value, "µs"));
    }
    rows.push(row(
        "ours: following the trie",
        place,
        Claim::AtMost(250.0),
        Ok(exam::trie_time()),
        "ns an operation",
    ));
    let place = "Section 6.6.6, Figure 6.10: idioms ahead of global ids";
    let gain = mean(paper().map(|found| (found.accuracy - found.by_ids) * 100.0).collect());
    rows.push(row("mean of the paper's five", place, Claim::AtLeast(19.0), gain, "points"));
    let place = "Section 6.6.8: misses of 3,000";
    for (name, without, with) in
        [("tree-cnn", 167.0, 59.0), ("tree-lstm", 109.0, 42.0), ("var-bert", 182.0, 102.0)]
    {
        let Some(found) = results.found.iter().find(|found| found.name == name) else { continue };
        let mut line = |what: &str, claim, count: usize| {
            rows.push(row(format!("{name}: {what}"), place, claim, Ok(count as f64), "misses"));
        };
        line("without handling", Claim::About(without), found.misses.0);
        line("with handling", Claim::About(with), found.misses.1);
        line("ours, as trained", Claim::Silent, found.our_misses.0);
        line("ours, learning on", Claim::Silent, found.our_misses.1);
    }
    rows
}

/// Figure 6.11: Sentinel's partition against even splits.
fn partitions(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in ["tree-cnn", "tree-lstm", "var-bert"] {
        let Some(found) = results.found.iter().find(|found| found.name == name) else { continue };
        for cut in ["even operators", "even time", "even sizes"] {
            let what = format!("{name}: {cut} against Sentinel's blocks");
            let ours = found.ahead("dynn-offload", cut);
            rows.push(row(what, "Figure 6.11", Claim::Between(2.0, 29.0), ours, "% more time"));
        }
    }
    rows
}

/// Ours beside every rival.
fn ours(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let place = "ours, step time at half of the memory";
    for found in &results.found {
        for other in ["on demand", "DTR", "unified memory", "L2L", "ZeRO-Offload", "dynn-offload"] {
            let must = matches!(other, "on demand" | "DTR") && found.dynamic;
            let claim = if must { Claim::AtLeast(0.0) } else { Claim::Silent };
            let what = format!("{}: ours ahead of {other}", found.name);
            rows.push(row(what, place, claim, found.ahead("ours", other), "% of the speed"));
        }
        if let Some(share) = found.dtr_needs.filter(|share| *share > SHARE) {
            let what = format!("{}: DTR needs of the peak", found.name);
            rows.push(row(what, place, Claim::Silent, Ok(share * 100.0), "%"));
        }
        let behind = found.ahead("oracle", "ours");
        rows.push(row(
            format!("{}: ours behind the oracle", found.name),
            place,
            Claim::Silent,
            behind,
            "% more time",
        ));
        let fast = found.ahead("all fast", "ours");
        rows.push(row(
            format!("{}: ours behind all in fast memory", found.name),
            place,
            Claim::Silent,
            fast,
            "% more time",
        ));
        if found.dynamic {
            let what = format!("{}: a wrong guess costs", found.name);
            rows.push(row(what, place, Claim::Silent, Ok(found.wrong * 100.0), "% more time"));
        }
    }
    let dynamic = results.found.iter().filter(|found| found.dynamic);
    let logs: Result<Vec<f64>, String> =
        dynamic.map(|found| Ok((found.ahead("oracle", "ours")? / 100.0).ln_1p())).collect();
    let mean = logs.map(|logs| ((logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp() - 1.0) * 100.0);
    rows.push(row(
        "all dynamic ones: ours behind the oracle, geometric mean",
        place,
        Claim::AtMost(10.0),
        mean,
        "% more time",
    ));
    rows
}
