//! ReDL: Figures 4 and 8, as far as the text states figures.

use super::bench::{Bench, Job, Net, Results, row};
use super::{Claim, Paper, Row};
use crate::{Fast, System, fixed, pages, redl};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "redl",
    title: "ReDL: Scalable Data Management on Hybrid Memory System for Deep Neural Network Applications",
    machine: "redl",
    remarks: &[
        "Fast memory is 20 % of each network's peak, as in the paper.",
        "The paper trains on CIFAR-10 and MNIST and does not say to which size it brings their images; ours are the \
         networks' own.",
        "ResNet50 V2 stands here as the published ResNet-50, whose blocks have their norms in another order.",
        "OIM is stood in for by the improved active list, on whose pages and lists it builds.",
        "Kernel times are those of AutoTM's processor scaled to this machine's bandwidths; slow memory that reads and \
         writes at more than half the speed of fast memory costs them less than the paper's.",
    ],
    reasons: &[
        ("OIM", "It is stood in for by the improved active list, on whose pages and lists it builds."),
        (
            "slow memory alone",
            "Slow memory that reads and writes at more than half the speed of fast memory costs modelled kernels less than the paper's, perhaps because a block device emulated its slow memory.",
        ),
        (
            "NUMA",
            "Slow memory alone costs a quarter here and twice as much again in the paper, so who leaves tensors there loses less.",
        ),
        (
            "ReDL behind",
            "Slow memory costs less here than in the paper, so what comes late costs less, too; images may be of another size.",
        ),
    ],
    rows,
};

/// Table II.
const NETS: [(&str, Net); 4] = [
    ("ResNet50", ("resnet50", 128)),
    ("LSTM", ("lstm", 20)),
    ("VGG 19", ("vgg19", 64)),
    ("Inception V3", ("inception-v3", 64)),
];

/// The fast memory of the paper.
const FIFTH: Option<Fast> = Some(Fast::Share(0.2));

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let programs = bench.programs(&NETS.map(|(_, net)| net));
    let mut jobs = Vec::new();
    for (_, net) in NETS {
        jobs.extend([fixed::FAST_ONLY, fixed::SLOW_ONLY].map(|system| Job { net, system, fast: None }));
        let systems = [fixed::FIRST_TOUCH, redl::REDL, pages::IAL];
        jobs.extend(systems.map(|system| Job { net, system, fast: FIFTH }));
    }
    let results = bench.play(&programs, &jobs);
    let mut rows = first(&results);
    rows.extend(losses(&results));
    rows.extend(gains(&results, "OIM", &pages::IAL, 8.4, 11.0));
    rows.extend(gains(&results, "NUMA", &fixed::FIRST_TOUCH, 20.0, 34.0));
    rows
}

/// How many times longer one system takes than another.
fn ratio(results: &Results, net: Net, long: &System, short: &System) -> Result<f64, String> {
    let time = |system: &System| {
        let fast = FIFTH.filter(|_| system.name != fixed::SLOW_ONLY.name);
        results.seconds(net, system, fast)
    };
    Ok(time(long)? / time(short)?)
}

/// Figure 4a: what slow memory and first-touch cost ResNet50.
fn first(results: &Results) -> Vec<Row> {
    let (name, net) = NETS[0];
    let say = |what: &str, paper: f64, long: &System| {
        let ours = ratio(results, net, long, &fixed::FAST_ONLY);
        let what = format!("{name}: {what} against fast memory alone");
        row(what, "Section II, Figure 4a", Claim::About(paper), ours, "times the time")
    };
    vec![say("slow memory alone", 3.0, &fixed::SLOW_ONLY), say("first-touch NUMA", 1.5, &fixed::FIRST_TOUCH)]
}

/// Figure 8: how far ReDL stays behind fast memory alone.
fn losses(results: &Results) -> Vec<Row> {
    let place = "Section IV-B, Figure 8";
    let loss = |net: Net| Ok((1.0 - 1.0 / ratio(results, net, &redl::REDL, &fixed::FAST_ONLY)?) * 100.0);
    let claims = [("ResNet50", Claim::About(9.6)), ("VGG 19", Claim::About(3.9))];
    let mut rows = Vec::new();
    for (name, net) in NETS {
        // Of the others the text says that they lie between these.
        let claim = claims.iter().find(|(known, _)| *known == name).map(|(_, claim)| *claim);
        let claim = claim.unwrap_or(Claim::Between(3.9, 9.6));
        let what = format!("{name}: ReDL behind fast memory alone");
        rows.push(row(what, place, claim, loss(net), "% of the speed"));
    }
    let all: Result<Vec<f64>, String> = NETS.iter().map(|(_, net)| loss(*net)).collect();
    let mean = all.map(|all| all.iter().sum::<f64>() / all.len() as f64);
    rows.push(row("ReDL behind fast memory alone, mean", place, Claim::About(6.9), mean, "% of the speed"));
    rows
}

/// Section IV-B: how far ReDL is ahead of another, on average and at most.
fn gains(results: &Results, name: &str, other: &System, average: f64, most: f64) -> Vec<Row> {
    let place = "Section IV-B, Figure 8";
    let gain = |net: &Net| Ok((ratio(results, *net, other, &redl::REDL)? - 1.0) * 100.0);
    let all: Result<Vec<f64>, String> = NETS.iter().map(|(_, net)| gain(net)).collect();
    let mean = all.clone().map(|all| all.iter().sum::<f64>() / all.len() as f64);
    let largest = all.map(|all| all.into_iter().fold(f64::NEG_INFINITY, f64::max));
    vec![
        row(format!("ReDL ahead of {name}, mean"), place, Claim::About(average), mean, "% of the speed"),
        row(format!("ReDL ahead of {name}, most"), place, Claim::About(most), largest, "% of the speed"),
    ]
}
