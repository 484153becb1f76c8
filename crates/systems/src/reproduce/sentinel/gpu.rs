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

/// The simulations of Figure 12.
struct Figure<'a> {
    results: &'a Results,
    nets: &'a [Net],
}

/// Where its rows stand, and what they count.
const FIGURE: (&str, &str) = ("Section VII-C, Figure 12", "times the speed");

/// What the rows of Sentinel as the text has it add to their names.
const AT_ONCE: &str = "Sentinel whose objects all leave at once";

impl Figure<'_> {
    /// How many times as fast as another a system is, network by network; of all, or of those that vDNN can run.
    fn gains(&self, system: &System, other: &System, convolutions: bool) -> Result<Vec<f64>, String> {
        let runs = |net: &&Net| {
            let case = CASES.iter().find(|case| case.net == net.0).expect("it is one of them");
            !convolutions || !case.paper[1].is_nan()
        };
        let seconds = |net: Net, system| self.results.seconds(net, system, None);
        self.nets.iter().filter(runs).map(|net| Ok(seconds(*net, other)? / seconds(*net, system)?)).collect()
    }

    /// What is copied in an iteration, over the peak, on average.
    fn moved(&self, system: &System) -> Result<f64, String> {
        let one = |net: &Net| {
            let run = self.results.get(*net, system, None)?;
            let peak = self.results.peak(*net).ok_or("it was not simulated")?;
            Ok((run.fetched() + run.evicted()).0 as f64 / run.iterations.len() as f64 / peak.0 as f64 * 100.0)
        };
        Ok(mean(&self.nets.iter().map(one).collect::<Result<Vec<f64>, String>>()?))
    }

    /// How long copies would take if nothing else went on, over all memory fast, on average: in each direction on its own link.
    fn crossing(&self, system: &System, rates: [f64; 2]) -> Result<f64, String> {
        let one = |net: &Net| {
            let run = self.results.get(*net, system, None)?;
            let each = run.iterations.len() as f64;
            let [out, back] = [run.evicted(), run.fetched()].map(|bytes| bytes.0 as f64 / each);
            let kernels = self.results.seconds(*net, &fixed::FAST_ONLY, None)?;
            Ok((out / rates[0]).max(back / rates[1]) / kernels)
        };
        Ok(mean(&self.nets.iter().map(one).collect::<Result<Vec<f64>, String>>()?))
    }

    /// The figures that the paper states.
    fn stated(&self) -> Vec<Row> {
        let (place, unit) = FIGURE;
        let claimed =
            |what: &str, claim: f64, ours| row(what.to_string(), place, Claim::About(claim), ours, unit);
        let um = self.gains(&sentinel::SENTINEL, &pages::UNIFIED_MEMORY, false);
        let least = |all: Vec<f64>| all.into_iter().fold(f64::INFINITY, f64::min);
        let vdnn = self.gains(&sentinel::SENTINEL, &swaps::VDNN, true);
        let mut rows = vec![
            claimed("Sentinel over unified memory, least", 1.1, um.clone().map(least)),
            claimed("Sentinel over unified memory, most", 7.8, um.map(|all| most(&all))),
            claimed("Sentinel over vDNN, mean of convolutional networks", 2.0, vdnn.map(|all| mean(&all))),
        ];
        for (name, system, average, highest) in
            [("AutoTM", autotm::ASYNC, 1.17, 1.29), ("Capuchin", swaps::CAPUCHIN, 1.16, 1.21)]
        {
            let gains = self.gains(&sentinel::SENTINEL, &system, false);
            let what = |what: &str| format!("Sentinel over {name}, {what}");
            rows.push(claimed(&what("mean"), average, gains.clone().map(|all| mean(&all))));
            rows.push(claimed(&what("most"), highest, gains.map(|all| most(&all))));
        }
        rows
    }

    /// What shows why they are as they are.
    fn evidence(&self, rates: [f64; 2]) -> Vec<Row> {
        let (place, unit) = FIGURE;
        let shown = |what: String, ours, unit| row(what, place, Claim::Silent, ours, unit);
        let over = |system: &System, other: &System, convolutions| {
            self.gains(system, other, convolutions).map(|all| mean(&all))
        };
        let mut rows = Vec::new();
        for (name, system) in [("Tiercel", tiercel::TIERCEL), ("Enough memory", fixed::FAST_ONLY)] {
            rows.push(shown(
                format!("{name} over Sentinel, mean"),
                over(&system, &sentinel::SENTINEL, false),
                unit,
            ));
        }
        for (name, system, convolutions) in [
            ("vDNN, mean of convolutional networks", swaps::VDNN, true),
            ("AutoTM, mean", autotm::ASYNC, false),
            ("Capuchin, mean", swaps::CAPUCHIN, false),
        ] {
            let ours = over(&sentinel::AT_ONCE, &system, convolutions);
            rows.push(shown(format!("{AT_ONCE}, over {name}"), ours, unit));
        }
        for (name, system) in [
            ("Sentinel", sentinel::SENTINEL),
            (AT_ONCE, sentinel::AT_ONCE),
            ("vDNN", swaps::VDNN),
            ("AutoTM", autotm::ASYNC),
            ("Capuchin", swaps::CAPUCHIN),
        ] {
            rows.push(shown(format!("moved under {name}, mean"), self.moved(&system), "% of the peak"));
            let what = format!("links alone under {name}, over all memory fast, mean");
            rows.push(shown(what, self.crossing(&system, rates), "times as long"));
        }
        rows
    }
}

/// Figure 12.
fn speeds(bench: &Bench<'_>, fits: &[u64]) -> Vec<Row> {
    let net = |case: &Case, fits: u64, multiple: f64| -> Net { (case.net, (fits as f64 * multiple) as u64) };
    let nets: Vec<Net> = CASES
        .iter()
        .zip(fits)
        .flat_map(|(case, fits)| MULTIPLES.map(|multiple| net(case, *fits, multiple)))
        .collect();
    let programs = bench.programs(&nets);
    let systems = [
        tiercel::TIERCEL,
        autotm::ASYNC,
        sentinel::SENTINEL,
        sentinel::AT_ONCE,
        pages::UNIFIED_MEMORY,
        swaps::VDNN,
        swaps::CAPUCHIN,
        fixed::FAST_ONLY,
    ];
    let jobs: Vec<Job> =
        nets.iter().flat_map(|net| systems.map(|system| Job { net: *net, system, fast: None })).collect();
    let results = bench.play(&programs, &jobs);
    let (_, out, back) = bench.device();
    let figure = Figure { results: &results, nets: &nets };
    [figure.stated(), figure.evidence([out, back])].concat()
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
