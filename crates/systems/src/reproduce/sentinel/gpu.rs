//! Sentinel's figures on its GPU (section VII-C): Table V and Figure 12.
//!
//! What the paper prints are batches of networks whose image sizes it does not say, so batches are compared as multiples of
//! the one with which a network fits without moving anything.

use std::time::Duration;

use tiercel_core::{Manager, TierId};
use tiercel_policies::Vdnn;
use tiercel_run::Executor;
use tiercel_sim::Sim;
use tiercel_workload::{Lifetimes, Trace};

use super::super::bench::{Bench, Job, Net, Results, program, row};
use super::super::{Claim, Row};
use super::{mean, most};
use crate::{Setting, System, autotm, fixed, pages, sentinel, simulate, swaps, tiercel};

/// A network of Table V with its largest batches: without moving anything, under vDNN, Capuchin and Sentinel.
struct Case {
    name: &'static str,
    net: &'static str,
    paper: [f64; 4],
}

/// Where vDNN does not work.
const NONE: f64 = f64::NAN;

/// Table V.
const CASES: [Case; 5] = [
    Case { name: "ResNet-200", net: "resnet200", paper: [1000.0, 4200.0, 5900.0, 5700.0] },
    Case { name: "BERT-large", net: "bert-large", paper: [5.0, NONE, 27.0, 28.0] },
    Case { name: "LSTM", net: "lstm", paper: [800.0, NONE, 1400.0, 1500.0] },
    Case { name: "DCGAN", net: "dcgan", paper: [600.0, 1400.0, 2700.0, 2500.0] },
    Case { name: "MobileNet", net: "mobilenet", paper: [800.0, 1200.0, 3200.0, 3200.0] },
];

/// The batches of Figure 12, which the text does not state, as multiples of the one that fits: the least of Table V, and one
/// below.
const MULTIPLES: [f64; 2] = [1.25, 1.5];

/// Plans are searched no longer than this.
const PLANNING: Duration = Duration::from_secs(1);

/// All figures of the GPU.
pub(super) fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let bench = &bench.on("v100").within(PLANNING);
    let room = bench.capacity(TierId(0));
    let fits = bench.each(&CASES, |case| {
        largest(1, |batch| Lifetimes::new(&program((case.net, batch)).trace).peak().1 <= room)
    });
    let mut rows = batches(bench, &fits);
    rows.extend(speeds(bench, &fits));
    rows
}

/// The largest batch with which something holds, to three hundredths, if it holds for all below.
fn largest(from: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut good, mut bad) = (from, from * 2);
    while holds(bad) && bad < 1 << 24 {
        (good, bad) = (bad, bad * 2);
    }
    while bad - good > (good * 3 / 100).max(1) {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// Whether vDNN keeps a network in memory by moving inputs of convolutions alone.
fn vdnn_runs(bench: &Bench<'_>, trace: &Trace) -> bool {
    let machine = bench.machine(trace, None);
    let mut policy = Vdnn::new();
    let mut manager = Manager::new(machine.clone(), Sim::with_times(machine, bench.times().clone()));
    let mut executor = Executor::new(trace);
    let mut before = 0;
    for _ in 0..3 {
        before = policy.overflows();
        if executor.iterate(&mut manager, &mut policy).is_err() {
            return false;
        }
    }
    policy.overflows() == before
}

/// Whether a system runs a network at all.
fn runs(bench: &Bench<'_>, system: &System, trace: &Trace) -> bool {
    let machine = bench.machine(trace, None);
    let setting = Setting::new(trace, &machine, bench.times()).with(bench.options());
    simulate(system, &setting, 1).is_ok()
}

/// Table V.
fn batches(bench: &Bench<'_>, fits: &[u64]) -> Vec<Row> {
    let mut jobs = Vec::new();
    for (case, fits) in CASES.iter().zip(fits) {
        jobs.extend((1..4).filter(|way| !case.paper[*way].is_nan()).map(|way| (case, *fits, way)));
    }
    let found = bench.each(&jobs, |(case, fits, way)| {
        let holds = |batch: u64| {
            let trace = &program((case.net, batch)).trace;
            match way {
                1 => vdnn_runs(bench, trace),
                2 => runs(bench, &swaps::CAPUCHIN, trace),
                _ => runs(bench, &sentinel::SENTINEL, trace),
            }
        };
        largest(*fits, holds) as f64 / *fits as f64
    });
    let names = ["TensorFlow", "vDNN", "Capuchin", "Sentinel"];
    let mut rows = Vec::new();
    for ((case, fits, way), ours) in jobs.iter().zip(&found) {
        let what = format!("{}: largest batch under {}, of {fits} without", case.name, names[*way]);
        let paper = (case.paper[*way] / case.paper[0] * 100.0).round() / 100.0;
        let row = row(what, "Table V", Claim::About(paper), Ok(*ours), "times");
        rows.push(match (case.name, names[*way]) {
            ("ResNet-200", "vDNN") => {
                row.note("What batch norms read again is no convolution's input, and stays.")
            }
            ("ResNet-200", "Sentinel") => {
                row.note("GPU and host memory together are full then, as with BERT-large.")
            }
            ("LSTM", "Sentinel") => row.note("One kernel works on all of the GPU's memory then."),
            _ => row,
        });
    }
    let sentinel: Vec<f64> =
        jobs.iter().zip(&found).filter(|((.., way), _)| *way == 3).map(|(_, ours)| *ours).collect();
    rows.push(row(
        "Largest batch under Sentinel, mean",
        "Section VII-C, Table V",
        Claim::About(4.18),
        Ok(mean(&sentinel)),
        "times",
    ));
    let over: Vec<f64> = jobs
        .iter()
        .zip(&found)
        .filter(|((.., way), _)| *way == 1)
        .map(|((case, ..), vdnn)| {
            let at = CASES.iter().position(|known| known.net == case.net).expect("it is one of them");
            sentinel[at] / vdnn
        })
        .collect();
    rows.push(row(
        "Largest batch, Sentinel over vDNN, mean",
        "Section VII-C, Table V",
        Claim::About(1.9),
        Ok(mean(&over)),
        "times",
    ));
    rows
}

/// Figure 12.
fn speeds(bench: &Bench<'_>, fits: &[u64]) -> Vec<Row> {
    let at = |fits: u64, multiple: f64| (fits as f64 * multiple) as u64;
    let net = |case: &Case, fits: u64, multiple: f64| -> Net { (case.net, at(fits, multiple)) };
    let all: Vec<Net> = CASES
        .iter()
        .zip(fits)
        .flat_map(|(case, fits)| MULTIPLES.map(|multiple| net(case, *fits, multiple)))
        .collect();
    let programs = bench.programs(&all);
    let systems = [
        tiercel::TIERCEL,
        autotm::ASYNC,
        sentinel::SENTINEL,
        pages::UNIFIED_MEMORY,
        swaps::VDNN,
        swaps::CAPUCHIN,
        fixed::FAST_ONLY,
    ];
    let jobs: Vec<Job> =
        all.iter().flat_map(|net| systems.map(|system| Job { net: *net, system, fast: None })).collect();
    let results: Results = bench.play(&programs, &jobs);
    let place = "Section VII-C, Figure 12";
    let gains = |other: &System, convolutions: bool| {
        let nets = all.iter().filter(|net| {
            let case = CASES.iter().find(|case| case.net == net.0).expect("it is one of them");
            !convolutions || !case.paper[1].is_nan()
        });
        let gain = |net: &Net| {
            Ok(results.seconds(*net, other, None)? / results.seconds(*net, &sentinel::SENTINEL, None)?)
        };
        nets.map(gain).collect::<Result<Vec<f64>, String>>()
    };
    let unit = "times the speed";
    let mut rows = Vec::new();
    let um = gains(&pages::UNIFIED_MEMORY, false);
    let least = |all: Vec<f64>| all.into_iter().fold(f64::INFINITY, f64::min);
    rows.push(row(
        "Sentinel over unified memory, least",
        place,
        Claim::About(1.1),
        um.clone().map(least),
        unit,
    ));
    rows.push(row(
        "Sentinel over unified memory, most",
        place,
        Claim::About(7.8),
        um.map(|all| most(&all)),
        unit,
    ));
    rows.push(row(
        "Sentinel over vDNN, mean of convolutional networks",
        place,
        Claim::About(2.0),
        gains(&swaps::VDNN, true).map(|all| mean(&all)),
        unit,
    ));
    for (name, system, average, highest) in
        [("AutoTM", autotm::ASYNC, 1.17, 1.29), ("Capuchin", swaps::CAPUCHIN, 1.16, 1.21)]
    {
        let gains = gains(&system, false);
        rows.push(row(
            format!("Sentinel over {name}, mean"),
            place,
            Claim::About(average),
            gains.clone().map(|all| mean(&all)),
            unit,
        ));
        rows.push(row(
            format!("Sentinel over {name}, most"),
            place,
            Claim::About(highest),
            gains.map(|all| most(&all)),
            unit,
        ));
    }
    for (name, other) in [("Tiercel", tiercel::TIERCEL), ("Enough memory", fixed::FAST_ONLY)] {
        let ours =
            gains(&other, false).map(|all| mean(&all.iter().map(|gain| 1.0 / gain).collect::<Vec<_>>()));
        rows.push(row(format!("{name} over Sentinel, mean"), place, Claim::Silent, ours, unit));
    }
    for (name, system) in [("Sentinel", sentinel::SENTINEL), ("Capuchin", swaps::CAPUCHIN)] {
        let one = |net: &Net| {
            let run = results.get(*net, &system, None)?;
            let peak = results.peak(*net).ok_or("it was not simulated")?;
            Ok((run.fetched() + run.evicted()).0 as f64 / run.iterations.len() as f64 / peak.0 as f64 * 100.0)
        };
        let ours = all.iter().map(one).collect::<Result<Vec<f64>, String>>().map(|all| mean(&all));
        let row = row(format!("moved under {name}, mean"), place, Claim::Silent, ours, "% of the peak");
        rows.push(match name {
            "Sentinel" => row.note(
                "A fifth to a third of the peak does not fit, but whatever an interval does not need leaves at once; the link \
                 takes several times as long as the kernels.",
            ),
            _ => row,
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text's averages of Table V, or it was misread.
    #[test]
    fn table_v_says_what_the_text_says() {
        let near = |ours: f64, text: f64| (ours / text - 1.0).abs() < 0.03;
        assert!(near(mean(&CASES.map(|case| case.paper[3] / case.paper[0])), 4.18));
        let over: Vec<f64> =
            CASES.iter().map(|case| case.paper[3] / case.paper[1]).filter(|over| !over.is_nan()).collect();
        assert!(near(mean(&over), 1.9), "{over:?}");
    }

    #[test]
    fn the_largest_is_found_to_three_hundredths() {
        for limit in [1, 2, 3, 100, 4711] {
            let found = largest(1, |batch| batch <= limit);
            assert!(found <= limit && limit - found <= limit * 3 / 100, "{found} of {limit}");
        }
    }
}
