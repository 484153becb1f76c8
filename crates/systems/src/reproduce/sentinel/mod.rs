//! Sentinel (HPCA 2021): Tables III and IV and Figures 5 and 7 to 10 on its server with Optane memory, Table V and Figure 12
//! on its GPU (`gpu.rs`), as far as text and tables state figures.

mod learned;

use std::time::Duration;

use tiercel_core::Bytes;
use tiercel_workload::{Lifetimes, Program};

use super::bench::{Bench, Job, Net, Results, program, row};
use super::{Claim, Paper, Row};
use crate::{Fast, System, autotm, fixed, memory_mode, pages, sentinel, tiercel};
use learned::{Learned, learn};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "sentinel",
    title: "Sentinel: Efficient Tensor Migration and Allocation on Heterogeneous Memory Systems for Deep Learning, \
            HPCA 2021",
    machine: "optane-sentinel",
    remarks: &[
        "Fast memory is 20 % of each network's peak where nothing else is said; for Figure 8 it is the machine's 96 GB.",
    ],
    rows,
};

/// A network of Table III.
struct Case {
    name: &'static str,
    /// At the paper's batch.
    paper: Net,
    /// At the batch at which ours has the paper's peak.
    ours: Net,
    /// The peak in GB, without Sentinel.
    peak: f64,
    /// Steps of test and trial.
    tried: f64,
}

const fn case(name: &'static str, paper: Net, ours: u64, peak: f64, tried: f64) -> Case {
    Case { name, paper, ours: (paper.0, ours), peak, tried }
}

/// Table III: small batches.
const SMALL: [Case; 5] = [
    case("ResNet-32", ("resnet32", 128), 5760, 14.10, 3.0),
    case("BERT-large", ("bert-large", 32), 40, 35.39, 3.0),
    case("LSTM", ("lstm", 20), 4110, 11.12, 0.0),
    case("DCGAN", ("dcgan", 128), 6112, 15.68, 3.0),
    case("MobileNet", ("mobilenet", 128), 352, 14.15, 1.0),
];

/// Table III: large batches.
const LARGE: [Case; 5] = [
    case("ResNet-200", ("resnet200", 4096), 393, 99.73, 7.0),
    case("BERT-large", ("bert-large", 128), 160, 133.59, 3.0),
    case("LSTM", ("lstm", 4096), 11100, 29.97, 0.0),
    case("DCGAN", ("dcgan", 10240), 45000, 115.10, 7.0),
    case("MobileNet", ("mobilenet", 4096), 3520, 142.07, 7.0),
];

/// Table IV: GB that move in a step under IAL, AutoTM and Sentinel, by network as in [`SMALL`].
const MOVED: [[f64; 3]; 5] =
    [[3.1, 5.1, 8.0], [2.8, 2.3, 4.0], [0.7, 1.2, 1.2], [0.8, 0.7, 1.2], [0.55, 0.8, 0.95]];

/// The fast memory of Figure 7.
const FIFTH: Option<Fast> = Some(Fast::Share(0.2));

/// The fast memories of Figure 10 beside that.
const MORE: [Option<Fast>; 2] = [Some(Fast::Share(0.4)), Some(Fast::Share(0.6))];

/// Plans are searched no longer than this, so that all takes less than a minute.
const PLANNING: Duration = Duration::from_secs(2);

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let bench = &bench.on(PAPER.machine).within(PLANNING);
    let nets: Vec<Net> = SMALL.iter().chain(&LARGE).map(|case| case.ours).collect();
    let programs = bench.programs(&nets);
    let mut jobs = Vec::new();
    for net in LARGE.iter().map(|case| case.ours) {
        let systems = [
            tiercel::TIERCEL,
            autotm::SYNC,
            sentinel::SENTINEL,
            fixed::FIRST_TOUCH,
            memory_mode::MEMORY_MODE,
            fixed::FAST_ONLY,
        ];
        jobs.extend(systems.map(|system| Job { net, system, fast: None }));
    }
    for net in SMALL.iter().map(|case| case.ours) {
        jobs.extend([fixed::FAST_ONLY, fixed::SLOW_ONLY].map(|system| Job { net, system, fast: None }));
        let systems = [tiercel::TIERCEL, autotm::SYNC, sentinel::SENTINEL, pages::IAL];
        jobs.extend(systems.map(|system| Job { net, system, fast: FIFTH }));
        jobs.extend(MORE.map(|fast| Job { net, system: sentinel::SENTINEL, fast }));
    }
    let results = &bench.play(&programs, &jobs);
    let mut rows = peaks(bench);
    rows.extend(learning(bench, &programs));
    rows.extend(losses(results));
    rows.extend(moved(results));
    rows.extend(large(results));
    rows.extend(bandwidth(results));
    rows.extend(sizes(results));
    rows
}

/// The arithmetic mean, which is what the paper's averages seem to be.
fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

fn most(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Table III: what networks keep at their peak.
fn peaks(bench: &Bench<'_>) -> Vec<Row> {
    let cases: Vec<&Case> = SMALL.iter().chain(&LARGE).collect();
    let peaks = bench.each(&cases, |case| Lifetimes::new(&program(case.paper).trace).peak().1);
    let say = |(case, peak): (&&Case, Bytes)| {
        let what = format!("{}, batch {}: peak (compared at batch {})", case.name, case.paper.1, case.ours.1);
        row(what, "Table III", Claim::About(case.peak), Ok(peak.0 as f64 / 1e9), "GB")
    };
    cases.iter().zip(peaks).map(say).collect()
}

/// What Sentinel learns: the steps of Table III, Figure 5 and the lower bound of section IV-E.
fn learning(bench: &Bench<'_>, programs: &[(Net, Program)]) -> Vec<Row> {
    let trace =
        |case: &Case| &programs.iter().find(|(net, _)| *net == case.ours).expect("it was built").1.trace;
    let resnet = &SMALL[0];
    let all = SMALL.iter().map(|case| (case, FIFTH)).chain(LARGE.iter().map(|case| (case, None)));
    let mut jobs: Vec<(&Case, Option<Fast>, Option<u32>)> =
        all.map(|(case, fast)| (case, fast, None)).collect();
    let lengths = jobs.len();
    jobs.extend((5..=11).map(|length| (resnet, FIFTH, Some(length))));
    let learned = bench.each(&jobs, |(case, fast, length)| learn(bench, trace(case), *fast, *length));
    let mut rows = Vec::new();
    for ((case, ..), learned) in jobs.iter().zip(&learned[..lengths]) {
        let figure = |get: fn(&Learned) -> f64| learned.as_ref().map(get).map_err(Clone::clone);
        let what = |what: &str| format!("{}, batch {}: {what}", case.name, case.ours.1);
        let tried = figure(|learned| f64::from(learned.steps.tried));
        rows.push(row(
            what("steps of test and trial"),
            "Table III",
            Claim::About(case.tried),
            tried,
            "steps",
        ));
    }
    for (case, learned) in SMALL.iter().zip(&learned) {
        let peak = Lifetimes::new(trace(case)).peak().1;
        let ours =
            learned.as_ref().map(|l| l.lower_bound.0 as f64 / peak.0 as f64 * 100.0).map_err(Clone::clone);
        let what = format!("{}: lower bound on fast memory", case.name);
        rows.push(row(what, "Section IV-E", Claim::AtMost(20.0), ours, "% of the peak"));
    }
    let times: Result<Vec<f64>, String> =
        learned[lengths..].iter().map(|l| l.as_ref().map(|l| l.seconds).map_err(Clone::clone)).collect();
    let spread = times
        .clone()
        .map(|times| (most(&times) / times.iter().copied().fold(f64::INFINITY, f64::min) - 1.0) * 100.0);
    let best = times.map(|times| {
        let shortest = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b]));
        shortest.map_or(0.0, |at| 5.0 + at as f64)
    });
    let chosen = learned[0].as_ref().map(|l| f64::from(l.length)).map_err(Clone::clone);
    let place = "Section IV-D, Figure 5";
    rows.push(row("ResNet-32: best length of 5 to 11", place, Claim::About(8.0), best, "layers"));
    rows.push(row("ResNet-32: length that the equations choose", place, Claim::About(8.0), chosen, "layers"));
    rows.push(row(
        "ResNet-32: worst length of 5 to 11 over best",
        place,
        Claim::About(21.0),
        spread,
        "% more time",
    ));
    rows
}

/// How much longer one system takes than another on every network, in percent.
fn longer(
    results: &Results,
    cases: &[Case],
    fast: Option<Fast>,
    long: &System,
    short: &System,
) -> Result<Vec<f64>, String> {
    let time = |net: Net, system: &System| {
        results.seconds(net, system, fast.filter(|_| system.name != fixed::SLOW_ONLY.name))
    };
    cases.iter().map(|case| Ok((time(case.ours, long)? / time(case.ours, short)? - 1.0) * 100.0)).collect()
}

/// Figure 7: a fifth of the peak.
fn losses(results: &Results) -> Vec<Row> {
    let place = "Section VII-B, Figure 7";
    let behind = |system: &System| longer(results, &SMALL, FIFTH, system, &fixed::FAST_ONLY);
    let mut rows = Vec::new();
    for (at, case) in SMALL.iter().enumerate() {
        let claim = if case.name == "DCGAN" { Claim::About(0.0) } else { Claim::Silent };
        for (system, name, claim) in [
            (&sentinel::SENTINEL, "Sentinel", claim),
            (&pages::IAL, "IAL", Claim::Silent),
            (&autotm::SYNC, "AutoTM", Claim::Silent),
            (&tiercel::TIERCEL, "Tiercel", Claim::Silent),
            (&fixed::SLOW_ONLY, "slow memory alone", Claim::Silent),
        ] {
            let what = format!("{}: {name} behind fast memory alone", case.name);
            rows.push(row(what, place, claim, behind(system).map(|all| all[at]), "% more time"));
        }
    }
    for (system, name, claim) in [
        (&sentinel::SENTINEL, "Sentinel", Claim::About(9.0)),
        (&pages::IAL, "IAL", Claim::About(46.0)),
        (&autotm::SYNC, "AutoTM", Claim::Silent),
        (&tiercel::TIERCEL, "Tiercel", Claim::Silent),
        (&fixed::SLOW_ONLY, "slow memory alone", Claim::Silent),
    ] {
        let ours = behind(system).map(|all| mean(&all));
        rows.push(row(format!("{name} behind fast memory alone, mean"), place, claim, ours, "% more time"));
    }
    for (other, name, average, at_most) in
        [(&pages::IAL, "IAL", 37.0, 56.0), (&autotm::SYNC, "AutoTM", 17.0, 31.0)]
    {
        let gains = longer(results, &SMALL, FIFTH, other, &sentinel::SENTINEL);
        let what = |what: &str| format!("Sentinel ahead of {name}, {what}");
        rows.push(row(
            what("mean"),
            place,
            Claim::About(average),
            gains.clone().map(|all| mean(&all)),
            "% of the speed",
        ));
        rows.push(row(
            what("most"),
            place,
            Claim::About(at_most),
            gains.map(|all| most(&all)),
            "% of the speed",
        ));
    }
    rows
}

/// Table IV.
fn moved(results: &Results) -> Vec<Row> {
    let systems = [("IAL", pages::IAL), ("AutoTM", autotm::SYNC), ("Sentinel", sentinel::SENTINEL)];
    let gb = |net: Net, system: &System| {
        let run = results.get(net, system, FIFTH)?;
        Ok::<f64, String>((run.fetched() + run.evicted()).0 as f64 / run.iterations.len() as f64 / 1e9)
    };
    let mut rows = Vec::new();
    for (case, paper) in SMALL.iter().zip(MOVED) {
        for ((name, system), paper) in systems.iter().zip(paper) {
            let what = format!("{}: moved under {name}", case.name);
            rows.push(row(what, "Table IV", Claim::About(paper), gb(case.ours, system), "GB"));
        }
    }
    rows
}

/// Figure 8: large batches on all of the machine's fast memory.
fn large(results: &Results) -> Vec<Row> {
    let place = "Section VII-B, Figure 8";
    let gains = |other: &System| longer(results, &LARGE, None, other, &sentinel::SENTINEL);
    let mut rows = Vec::new();
    for (name, system, claim) in [
        ("first-touch NUMA", fixed::FIRST_TOUCH, 70.0),
        ("Memory Mode", memory_mode::MEMORY_MODE, 23.0),
        ("AutoTM", autotm::SYNC, 17.0),
    ] {
        let (without, lstm): (Vec<usize>, Vec<usize>) =
            (0..LARGE.len()).partition(|at| LARGE[*at].name != "LSTM");
        let gains = gains(&system);
        let ours = gains.clone().map(|all| mean(&without.iter().map(|at| all[*at]).collect::<Vec<_>>()));
        rows.push(row(
            format!("Sentinel ahead of {name}, mean without LSTM"),
            place,
            Claim::About(claim),
            ours,
            "% of the speed",
        ));
        let ours = gains.map(|all| all[lstm[0]]);
        rows.push(row(
            format!("LSTM, which fits: Sentinel ahead of {name}"),
            place,
            Claim::About(0.0),
            ours,
            "% of the speed",
        ));
    }
    for (name, system) in [("Sentinel", sentinel::SENTINEL), ("Tiercel", tiercel::TIERCEL)] {
        let ours = longer(results, &LARGE, None, &system, &fixed::FAST_ONLY).map(|all| mean(&all));
        rows.push(row(
            format!("{name} behind fast memory alone, mean"),
            place,
            Claim::Silent,
            ours,
            "% more time",
        ));
    }
    rows
}

/// Figure 9: bytes that kernels and copies move on a tier, over time.
fn bandwidth(results: &Results) -> Vec<Row> {
    let rate = |system: &System, tier: usize| {
        let run = results.get(SMALL[0].ours, system, FIFTH)?;
        let (read, write) = run.traffic[tier];
        Ok::<f64, String>((read + write).0 as f64 / run.time().seconds())
    };
    let ratio = |tier: usize| Ok(rate(&sentinel::SENTINEL, tier)? / rate(&pages::IAL, tier)?);
    let place = "Section VII-B, Figure 9";
    let unit = "times the bandwidth";
    vec![
        row("ResNet-32: fast memory, Sentinel over IAL", place, Claim::About(7.3), ratio(0), unit),
        row("ResNet-32: slow memory, Sentinel over IAL", place, Claim::AtMost(1.0), ratio(1), unit),
    ]
}

/// Figure 10: more fast memory.
fn sizes(results: &Results) -> Vec<Row> {
    let place = "Section VII-B, Figure 10";
    let behind = |fast| longer(results, &SMALL, fast, &sentinel::SENTINEL, &fixed::FAST_ONLY);
    let mut rows = Vec::new();
    for (at, case) in SMALL.iter().enumerate() {
        let what = format!("{}: Sentinel at 60 % behind fast memory alone", case.name);
        rows.push(row(what, place, Claim::About(0.0), behind(MORE[1]).map(|all| all[at]), "% more time"));
        let ours = behind(FIFTH)
            .and_then(|less| Ok((1.0 + less[at] / 100.0) / (1.0 + behind(MORE[0])?[at] / 100.0)));
        let what = format!("{}: Sentinel at 20 % behind Sentinel at 40 %", case.name);
        rows.push(row(
            what,
            place,
            Claim::AtMost(17.0),
            ours.map(|ours| (ours - 1.0) * 100.0),
            "% more time",
        ));
    }
    rows
}
