//! CachedArrays (IPDPS 2024): Table III, Figures 2, 4, 5 and 7, as far as text and labels state figures.

use tiercel_core::{Bytes, Error, Hint, Manager, ObjectId, Operand, Policy, Step};
use tiercel_policies::{CachedArrays, Mode};
use tiercel_workload::Lifetimes;

use super::bench::{Bench, Job, Net, Results, row};
use super::{Claim, Paper, Row};
use crate::{Prepared, System, cachedarrays, fixed, memory_mode};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "cachedarrays",
    title: "CachedArrays: Optimizing Data Movement for Heterogeneous Memory Systems, IPDPS 2024",
    machine: "optane-cachedarrays",
    remarks: &[
        "2LM is memory-mode; ∅ and M say whether memory is freed between iterations or at once.",
        "The paper's copies are synchronous, so these are too; the systems of that name copy beside kernels.",
        "The paper does not label the bars of Figure 2. How long iterations take follows from Figures 5 and 6: traffic over \
         utilization is time, and DRAM and NVRAM agree on it within 4 %. By these, VGG 416 gains less than the abstract says.",
        "What memory-mode writes back is charged at the rate at which plain stores reach NVRAM. That is too slow by this \
         paper's Figures 5 and 6 (which come to 6 to 12 GB/s), and about right by AutoTM's Figure 8.",
        "The paper does not say which DenseNet-264 it trained; the published one needs a fifth less memory than Table III \
         has, so it moves less.",
        "DRAM traffic of the paper comes from hardware counters, which see every pass of a convolution over its operands; \
         ours counts operands once a kernel, or as often as the trace says.",
    ],
    reasons: &[
        ("footprint", "The paper does not say which DenseNet-264 it trained."),
        (
            "DRAM read",
            "Hardware counters see every pass of a convolution over its operands; ours counts operands once a kernel, or as often as the trace says.",
        ),
        (
            "DRAM write",
            "Hardware counters see every pass of a convolution over its operands; ours counts operands once a kernel, or as often as the trace says.",
        ),
        (
            "DenseNet 264: NVRAM",
            "The published DenseNet-264 needs a fifth less memory than the paper's, so less moves.",
        ),
        (
            "2LM",
            "What the hardware cache writes back is charged at the rate of plain stores: too slow by this paper's Figures 5 and 6.",
        ),
        (
            "NVRAM alone",
            "Kernel times are those fitted to AutoTM's processor and modules, scaled to this machine's bandwidths.",
        ),
        ("2LM: M", "The paper's cache serves metadata and what the framework keeps beside tensors, too."),
    ],
    rows,
};

/// Table III: the large networks, with their footprints in GB.
const LARGE: [(&str, Net, f64); 3] = [
    ("DenseNet 264", ("densenet264", 1536), 526.0),
    ("ResNet 200", ("resnet200", 2048), 529.0),
    ("VGG 416", ("vgg416", 256), 520.0),
];

/// Table III: the small networks.
const SMALL: [(&str, Net); 3] = [
    ("DenseNet 264", ("densenet264", 504)),
    ("ResNet 200", ("resnet200", 640)),
    ("VGG 116", ("vgg116", 320)),
];

/// The modes in the order of the paper's figures.
const MODES: [(&str, System); 6] = [
    ("2LM: ∅", memory_mode::LAZY),
    ("2LM: M", memory_mode::MEMORY_MODE),
    ("CA: ∅", NONE),
    ("CA: L", L),
    ("CA: LM", LM),
    ("CA: LMP", LMP),
];

/// The modes as the paper ran them: whoever starts a copy waits for it.
const NONE: System = System { prepare: |_| Ok(waiting(Mode::NONE)), ..cachedarrays::NONE };
const L: System = System { prepare: |_| Ok(waiting(Mode::L)), ..cachedarrays::L };
const LM: System = System { prepare: |_| Ok(waiting(Mode::LM)), ..cachedarrays::LM };
const LMP: System = System { prepare: |_| Ok(waiting(Mode::LMP)), ..cachedarrays::LMP };

fn waiting(mode: Mode) -> Prepared {
    Prepared::policy(Waiting(CachedArrays::new(mode)))
}

/// Figure 6: the share of the bus that is used, by network (ResNet 200, VGG 416), then NVRAM, DRAM, then mode.
const UTILIZATION: [[[f64; 6]; 2]; 2] = [
    [[0.063, 0.047, 0.085, 0.06, 0.036, 0.025], [0.179, 0.254, 0.222, 0.192, 0.273, 0.299]],
    [[0.046, 0.022, 0.072, 0.058, 0.037, 0.012], [0.223, 0.256, 0.174, 0.169, 0.206, 0.25]],
];

/// Figure 5: TB moved in an iteration, by network, then DRAM read, DRAM write, NVRAM read, NVRAM write, then mode.
#[expect(
    clippy::approx_constant,
    reason = "a figure of the paper that happens to be near one of mathematics"
)]
const TRAFFIC: [[[f64; 6]; 4]; 3] = [
    [
        [4.88, 4.88, 4.76, 4.81, 4.19, 4.65],
        [3.84, 2.86, 3.45, 1.99, 1.99, 2.34],
        [1.87, 0.88, 2.13, 0.68, 0.52, 0.44],
        [1.42, 0.68, 1.04, 1.13, 0.35, 0.37],
    ],
    [
        [6.53, 6.52, 6.06, 5.8, 5.59, 6.28],
        [4.49, 3.31, 4.04, 2.21, 2.32, 2.69],
        [2.2, 1.0, 2.76, 1.28, 0.68, 0.37],
        [1.69, 0.82, 1.1, 1.21, 0.36, 0.37],
    ],
    [
        [11.3, 11.3, 8.45, 8.44, 8.93, 10.87],
        [5.83, 4.65, 5.41, 3.85, 3.85, 4.2],
        [1.99, 0.8, 4.71, 3.17, 1.95, 0.36],
        [1.53, 0.56, 1.05, 1.06, 0.34, 0.34],
    ],
];

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let nets: Vec<Net> = LARGE.iter().map(|(_, net, _)| *net).chain(SMALL.map(|(_, net)| net)).collect();
    let programs = bench.programs(&nets);
    let mut jobs = Vec::new();
    for (_, net, _) in LARGE {
        jobs.extend(MODES.map(|(_, system)| Job { net, system, fast: None }));
    }
    for (_, net) in SMALL {
        jobs.extend([fixed::FAST_ONLY, fixed::SLOW_ONLY].map(|system| Job { net, system, fast: None }));
    }
    let results = bench.play(&programs, &jobs);
    let mut rows = Vec::new();
    for (name, net, gb) in LARGE {
        let trace = &programs.iter().find(|(known, _)| *known == net).expect("it was built").1.trace;
        let ours = Lifetimes::new(trace).peak().1.0 as f64 / 1e9;
        rows.push(row(
            format!("{name}, batch {}: footprint", net.1),
            "Table III",
            Claim::About(gb),
            Ok(ours),
            "GB",
        ));
    }
    rows.extend(speeds(&results));
    rows.extend(times(&results));
    rows.extend(cache(&results));
    rows.extend(traffic(&results));
    for (name, net) in SMALL {
        let ratio = results
            .seconds(net, &fixed::SLOW_ONLY, None)
            .and_then(|slow| Ok(slow / results.seconds(net, &fixed::FAST_ONLY, None)?));
        rows.push(row(
            format!("{name}, batch {}: NVRAM alone against DRAM alone", net.1),
            "Section V c, Figure 7",
            Claim::Between(3.0, 4.0),
            ratio,
            "times the time",
        ));
    }
    rows
}

/// What the text says of Figure 2, whose bars it does not label.
fn speeds(results: &Results) -> Vec<Row> {
    let [lazy, eager, none, l, lm, lmp] = MODES.map(|(_, system)| system);
    let mut rows = Vec::new();
    for (name, net, _) in LARGE {
        let time = |system: &System| results.seconds(net, system, None);
        let ratio = |a: &System, b: &System| Ok(time(a)? / time(b)?);
        let best = time(&lm).and_then(|lm| Ok(lm.min(time(&lmp)?)));
        let mut say = |what: &str, place, claim, ours| {
            rows.push(row(format!("{name}: {what}"), place, claim, ours, "times the time"));
        };
        let best = best.and_then(|best| Ok(time(&lazy)? / best));
        say("2LM: ∅ against the best of CachedArrays", "Abstract", Claim::Between(1.4, 2.03), best);
        say("2LM: ∅ against 2LM: M", "Section V a, Figure 2", Claim::AtLeast(1.0), ratio(&lazy, &eager));
        say("CA: ∅ against 2LM: M", "Section V b, Figure 2", Claim::AtLeast(1.0), ratio(&none, &eager));
        if name.starts_with("VGG") {
            say("CA: ∅ against 2LM: ∅", "Section V b, Figure 2", Claim::AtLeast(1.0), ratio(&none, &lazy));
        }
        say("CA: ∅ against CA: L", "Section V, Figure 2", Claim::AtLeast(1.0), ratio(&none, &l));
        say("CA: L against CA: LM", "Section V, Figure 2", Claim::AtLeast(1.0), ratio(&l, &lm));
        let claim = if name.starts_with("VGG") { Claim::AtMost(1.0) } else { Claim::AtLeast(1.0) };
        say("CA: LMP against CA: LM", "Section V, Figure 2", claim, ratio(&lmp, &lm));
    }
    rows
}

/// The times that Figures 5 and 6 amount to, against that of `CA: LM`.
fn times(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, [_, dram]) in UTILIZATION.iter().enumerate() {
        let ((name, net, _), moved) = (LARGE[at + 1], &TRAFFIC[at + 1]);
        let time = |mode: usize| (moved[0][mode] + moved[1][mode]) / dram[mode];
        for (mode, (label, system)) in MODES.iter().enumerate().filter(|(mode, _)| *mode != 4) {
            let paper = (time(mode) / time(4) * 100.0).round() / 100.0;
            let ours =
                results.seconds(net, system, None).and_then(|a| Ok(a / results.seconds(net, &LM, None)?));
            let what = format!("{name}: {label} against CA: LM");
            rows.push(row(what, "Figures 5 and 6", Claim::About(paper), ours, "times the time"));
        }
    }
    rows
}

/// What Figure 4 and its text say of the hardware cache under ResNet 200.
fn cache(results: &Results) -> Vec<Row> {
    let rates = |system: &System| {
        let run = results.get(LARGE[1].1, system, None)?;
        let [(dram_read, dram_write), (nvram_read, nvram_write)] = run.traffic[..] else {
            return Err("the machine has two tiers".to_string());
        };
        // A miss is read from NVRAM; a dirty one writes something else back first.
        let (misses, dirty) = (nvram_read, nvram_write);
        let accesses = (dram_read + dram_write).saturating_sub(misses).saturating_sub(dirty);
        let share = |bytes: Bytes| bytes.0 as f64 / accesses.0.max(1) as f64;
        Ok((1.0 - share(misses), share(dirty)))
    };
    let both = || Ok((rates(&memory_mode::LAZY)?, rates(&memory_mode::MEMORY_MODE)?));
    let more_hits = both().map(|((lazy, _), (eager, _))| (eager / lazy - 1.0) * 100.0);
    let less_dirt = both().map(|((_, lazy), (_, eager))| (1.0 - eager / lazy) * 100.0);
    let place = "Section V a, Figure 4";
    vec![
        row("ResNet 200: hit rate of 2LM: M above that of 2LM: ∅", place, Claim::About(18.0), more_hits, "%"),
        row(
            "ResNet 200: dirty misses of 2LM: M below those of 2LM: ∅",
            place,
            Claim::About(50.0),
            less_dirt,
            "%",
        ),
    ]
}

/// Figure 5.
fn traffic(results: &Results) -> Vec<Row> {
    let kinds = ["DRAM read", "DRAM write", "NVRAM read", "NVRAM write"];
    let mut rows = Vec::new();
    for ((name, net, _), paper) in LARGE.iter().zip(&TRAFFIC) {
        for (kind, (label, paper)) in kinds.iter().zip(paper).enumerate() {
            for ((mode, system), paper) in MODES.iter().zip(paper) {
                let ours = results.get(*net, system, None).map(|run| {
                    let (read, write) = run.traffic[kind / 2];
                    (if kind % 2 == 0 { read } else { write }).0 as f64 / 1e12
                });
                let what = format!("{name}: {label} under {mode}");
                rows.push(row(what, "Figure 5", Claim::About(*paper), ours, "TB"));
            }
        }
    }
    rows
}

/// A policy whose copies are all waited for before anything else happens.
struct Waiting<P>(P);

impl<P: Policy> Policy for Waiting<P> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn coming(&mut self, m: &mut Manager, step: Step, op: &str) -> Result<(), Error> {
        self.0.coming(m, step, op)
    }

    fn layer_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.0.layer_ended(m)
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.0.place(m, object)?;
        m.drain()
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        self.0.hint(m, object, hint)?;
        m.drain()
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.0.before(m, step, operands)?;
        m.drain()
    }

    fn after(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.0.after(m, step, operands)
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.0.iteration_ended(m)
    }

    fn settled(&self) -> bool {
        self.0.settled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traffic over utilization is time: what DRAM and NVRAM say of it must agree, or the labels were misread.
    #[test]
    fn both_halves_of_figure_6_tell_the_same_times() {
        for (at, halves) in UTILIZATION.iter().enumerate() {
            let moved = &TRAFFIC[at + 1];
            for mode in 0..6 {
                let nvram = (moved[2][mode] + moved[3][mode]) / halves[0][mode];
                let dram = (moved[0][mode] + moved[1][mode]) / halves[1][mode];
                assert!((nvram / dram - 1.0).abs() < 0.04, "{at} {mode}: {nvram} {dram}");
            }
        }
    }
}
