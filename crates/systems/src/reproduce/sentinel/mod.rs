//! Sentinel (HPCA 2021): Tables III and IV and Figures 5 and 7 to 10 on its server with Optane memory, Table V and Figure 12
//! on its GPU (`gpu.rs`), as far as text and tables state figures.

mod gpu;
mod learned;
mod speeds;

use std::time::Duration;

use tiercel_core::Bytes;
use tiercel_workload::lifetimes::Class;
use tiercel_workload::{Lifetimes, TensorId};

use super::bench::{Bench, Job, Net, Results, program, row};
use super::{Claim, Paper, Row};
use crate::{Fast, System, autotm, fixed, memory_mode, pages, sentinel, tiercel};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "sentinel",
    title: "Sentinel: Efficient Tensor Migration and Allocation on Heterogeneous Memory Systems for Deep Learning, \
            HPCA 2021",
    machine: "optane-sentinel",
    remarks: &[
        "Fast memory is 20 % of each network's peak where nothing else is said; for Figure 8 it is the machine's 96 GB.",
        "Table III's peaks at small batches are 1.3 to 70 times what the tensors come to, and its own section III-B has 1.7 GB \
         of pages for ResNet-32, not 14.1. So a fifth of such a peak may hold everything that a step touches. Figure 7 stands \
         here twice: at batches with which the tensors themselves need Table III's gigabytes, which is harder than what \
         the paper ran, and at the paper's batches with as many gigabytes of fast memory as the paper gave them.",
        "By section IV-D whatever the rest of an interval does not need leaves at once, whether or not anybody wants the \
         room; so does ours on the server, but for what the next interval needs. What leaves in the forward pass is nearly the \
         whole peak: where the link is slow beside the kernels (MobileNet), that costs more than it saves, and more \
         fast memory helps little.",
        "On the GPU objects of ours leave only for others who want their room; rows beside the paper's have Sentinel by the words \
         of section IV-D, what each system moves, and how long the links would take for that alone.",
        "Table IV is out of proportion to Table III: with a fifth of the peak in fast memory, four fifths are elsewhere at the \
         peak, and have moved or were made there. What moves here follows from the tensors' lifetimes.",
        "Kernels that store to Optane memory get 3 of its 13 GB/s, as AutoTM measured; all that stays in slow memory costs 3 to 8 \
         times the time here, and IAL leaves most there, which notices pages once in five seconds.",
        "AutoTM is autotm-sync on the server and autotm-async on the GPU, as in the paper; plans are searched for two \
         seconds at most. SwapAdvisor is not there.",
        "The GPU is the machine v100 with the 128 GB of host memory of Table II; its kernel times are a model that was not \
         fitted. Sentinel's own 15.75 GB are taken as 16.",
    ],
    reasons: &[
        (
            "Table III",
            "The paper's peaks are 1.3 to 70 times what tensors come to, at sizes of images that it does not state.",
        ),
        (
            "Table IV",
            "It is out of proportion to Table III: what moves here follows from the tensors' lifetimes.",
        ),
        (
            "IAL",
            "It leaves most in slow memory, which kernels that store there feel 3 to 8 times, and notices pages once in five seconds.",
        ),
        (
            "Figure 12",
            "The paper compares its own implementations of the others; ours go by their papers (AutoTM's plan is searched with copies beside kernels). What each moves, and how long the links alone take for it, stands below.",
        ),
        (
            "Table V",
            "Largest batches depend on what the framework keeps beside tensors, and on sizes of images that the paper does not state.",
        ),
        ("Memory Mode", "The hardware cache is charged for what it writes back at the rate of plain stores."),
        (
            "behind fast memory alone",
            "Nearly the whole peak leaves in the forward pass, where the link is slow beside the kernels.",
        ),
        ("Sentinel ahead of", "It follows from how far each is behind fast memory alone, above."),
        ("ResNet-32", "Equations decide by the times of this model's kernels, not by the paper's."),
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

impl Case {
    /// The gigabytes of fast memory that the paper gave it for Figure 7.
    fn fifth(&self) -> Option<Fast> {
        Some(Fast::Amount(Bytes((self.peak * 0.2e9) as u64)))
    }
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
    case("MobileNet", ("mobilenet", 128), 343, 14.15, 1.0),
];

/// Table III: large batches.
const LARGE: [Case; 5] = [
    case("ResNet-200", ("resnet200", 4096), 393, 99.73, 7.0),
    case("BERT-large", ("bert-large", 128), 157, 133.59, 3.0),
    case("LSTM", ("lstm", 4096), 11077, 29.97, 0.0),
    case("DCGAN", ("dcgan", 10240), 45000, 115.10, 7.0),
    case("MobileNet", ("mobilenet", 4096), 3448, 142.07, 7.0),
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
    let ours = SMALL.iter().chain(&LARGE).map(|case| case.ours);
    let nets: Vec<Net> = ours.chain(SMALL.iter().map(|case| case.paper)).collect();
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
    for case in &SMALL {
        jobs.push(Job { net: case.paper, system: fixed::FAST_ONLY, fast: None });
        let systems = [tiercel::TIERCEL, autotm::SYNC, sentinel::SENTINEL, pages::IAL];
        jobs.extend(systems.map(|system| Job { net: case.paper, system, fast: case.fifth() }));
    }
    let results = &bench.play(&programs, &jobs);
    let mut rows = observations();
    rows.extend(peaks(bench));
    rows.extend(learned::rows(bench, &programs));
    rows.extend(speeds::rows(results));
    rows.extend(moved(results));
    rows.extend(gpu::rows(bench));
    rows
}

/// The arithmetic mean, which is what the paper's averages seem to be.
fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

fn most(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// What section III-B says of ResNet-32 at its batch.
fn observations() -> Vec<Row> {
    let trace = &program(SMALL[0].paper).trace;
    let lifetimes = Lifetimes::new(trace);
    let all = || (0..trace.tensors.len()).filter_map(|at| lifetimes.of(TensorId(at as u32)));
    let short = all().filter(|life| life.class == Class::Short).count() as f64 / all().count().max(1) as f64;
    let bytes: Bytes = trace.tensors.iter().map(|tensor| tensor.bytes).sum();
    let place = "Section III-B";
    vec![
        row(
            "ResNet-32, batch 128: tensors of one layer",
            place,
            Claim::About(92.0),
            Ok(short * 100.0),
            "% of all",
        )
        .note("TensorFlow makes many within an operation (Figure 2), which are no tensors here."),
        row(
            "ResNet-32, batch 128: all tensors of a step",
            place,
            Claim::About(1.68),
            Ok(bytes.0 as f64 / 1e9),
            "GB",
        )
        .note("907 MB are 54 % of all pages. Table III has 14.10 GB for the same step."),
    ]
}

/// Table III: what networks keep at their peak.
fn peaks(bench: &Bench<'_>) -> Vec<Row> {
    let cases: Vec<&Case> = SMALL.iter().chain(&LARGE).collect();
    let peaks = bench.each(&cases, |case| Lifetimes::new(&program(case.paper).trace).peak().1);
    let say = |(case, peak): (&&Case, Bytes)| {
        let what = format!("{}, batch {}: peak (compared at batch {})", case.name, case.paper.1, case.ours.1);
        let row = row(what, "Table III", Claim::About(case.peak), Ok(peak.0 as f64 / 1e9), "GB");
        match case.name {
            "ResNet-200" => row.note("Images of CIFAR-10 have 32 pixels; ours are the network's own, 224."),
            _ => row,
        }
    };
    cases.iter().zip(peaks).map(say).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures are compared at batches that need as much memory as the paper's.
    #[test]
    fn batches_have_the_peaks_of_table_iii() {
        for case in SMALL.iter().chain(&LARGE) {
            let peak = Lifetimes::new(&program(case.ours).trace).peak().1.0 as f64 / 1e9;
            assert!((peak / case.peak - 1.0).abs() < 0.02, "{}: {peak} GB", case.name);
        }
    }

    /// Table IV and the text's averages of it do not agree; this is what the table amounts to.
    #[test]
    fn the_text_and_table_iv_differ() {
        let ratios = |over: usize| mean(&MOVED.map(|moved| moved[2] / moved[over]));
        // The text has 85 % and 32 %.
        assert!((ratios(0) - 1.79).abs() < 0.01 && (ratios(1) - 1.44).abs() < 0.01);
    }
}
