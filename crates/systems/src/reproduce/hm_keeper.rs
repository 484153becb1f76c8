//! HM-Keeper (dissertation, chapter 8): what the text and the tables state, by simulation of page accesses.
//!
//! Programs run for real at a small size and note the pages that they touch; the machine is as much smaller
//! (`tiercel_pages::sim` says how). Figures that the chapter shows only as bars are not in here.

use tiercel_core::Machine;
use tiercel_pages::programs::{self, Recording, Size};
use tiercel_pages::sim::{Outcome, memory_mode, setting, simulate};
use tiercel_pages::systems;
use tiercel_pages::tiers::Tiers;
use tiercel_profile::machines;

use super::bench::{Bench, row};
use super::{Claim, Paper, Row};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "hm-keeper",
    title: "HM-Keeper: Scalable Page Management for Multi-Tiered Large Memory Systems (dissertation, chapter 8)",
    machine: "optane-4tier",
    remarks: &[
        "Programs, memory and time are 4096 times smaller than the paper's; a simulated page stands for 32 pages side by \
         side, so spans and samples are as many for each other as in the paper.",
        "Programs here run for about 100 intervals, a quarter of an hour; the paper does not say for how long its ran. \
         hm-keeper moves 200 MB an interval: in that time 20 GB of the 96 GB of fast memory.",
        "What a program computes between accesses is assumed (20 to 200 ns); the less, the more placement matters.",
        "Programs that stand for the paper's: a shop after TPC-C for VoltDB, a key-value store under YCSB A for Cassandra, \
         our own BFS and SSSP on an R-MAT graph, an external sort for Spark.",
        "Profiling and what moving keeps the program waiting are charged in full, as in the paper's breakdown; copies \
         beside the program draw on the bandwidth of both tiers.",
        "`ours` are rows about Tiercel's own policy, of which the paper says nothing.",
    ],
    // The first that fits counts. What a longer run brings: `sweep --variants --windows=9600 store orders` (crates/pages).
    reasons: &[
        (
            "precision of DAMON",
            "the hot set here is three long runs of pages, each of many of DAMON's regions, whose ends are found within fifty \
             intervals; the paper does not say how its hot set lies",
        ),
        (
            "memory-mode",
            "Optane writes 256 bytes for every line of 64 that a cache writes back; here a line costs a line, so the write \
             amplification that the paper blames is not all there",
        ),
        (
            "Figure 8.5",
            "the rivals here never move as much as pays within 100 intervals, and first-touch never does: in a run eight times \
             as long hm-keeper is 15 and 20 % ahead of first-touch on store and orders (paper: 20 on average), 10 and 0 % ahead \
             of Memory-tiering, which catches up. The paper does not say for how long its programs ran",
        ),
        (
            "Figure 8.6",
            "the paper makes memory slow by traffic beside the program, which slows all that the program does; here latencies \
             alone grow, those of persistent memory three times, so placement matters two to three times as much. In the paper \
             gains are as on the machine as it is",
        ),
        (
            "Table 8.3",
            "the shop spreads its accesses wider than VoltDB: at best (ours) 81 % come to the first tier, where first-touch has \
             20 %; the paper's rivals that move little are at 77 to 80. From there hm-keeper comes 200 MB an interval nearer: \
             36 % after 100 intervals, 44 after 800",
        ),
        (
            "Memory-tiering's profiling",
            "a window of 256 MB at a random place finds even less of what is hot in 100 intervals than in the paper; eight times \
             as long makes it 10 % on store and nothing on orders",
        ),
        (
            "Thermostat's profiling",
            "Thermostat keeps to the same limit on the overhead here, where the paper's takes 2.5 times as much; within it a page \
             of every span, each in its turn, finds 200 MB an interval as well as hm-keeper's samples do",
        ),
        (
            "without adaptive",
            "what hm-keeper moves is bounded by its 200 MB an interval, less than a thousandth of the memory, and a coarse profile \
             finds so much that is hot, too: a better profiler (ours) is no faster under that bound, and a run eight times as \
             long shows the same",
        ),
        (
            "hierarchical",
            "what is promoted a tier at a time is moved twice within the same 200 MB; in a run eight times as long that is 8 % on \
             store and 5 on orders. Why it is more in the paper is not known",
        ),
    ],
    rows,
};

const THREADS: f64 = 8.0;
const OVERHEAD: f64 = 0.05;

/// The five programs of Table 8.2.
const FIVE: [&str; 5] = ["orders", "store", "bfs", "sssp", "sort"];

/// The machines on which everything is tried.
const MACHINES: [&str; 3] = ["optane-4tier", "optane-4tier-emulated", "cxl"];

/// One simulation.
#[derive(Clone, Copy)]
struct Job {
    program: &'static str,
    machine: &'static str,
    system: &'static str,
}

struct Results(Vec<(Job, Outcome)>);

impl Results {
    fn get(&self, program: &str, machine: &str, system: &str) -> Result<&Outcome, String> {
        let same = |(job, _): &&(Job, Outcome)| {
            job.program == program && job.machine == machine && job.system == system
        };
        self.0.iter().find(same).map(|(_, out)| out).ok_or_else(|| "it was not simulated".to_string())
    }

    fn ns(&self, program: &str, machine: &str, system: &str) -> Result<f64, String> {
        Ok(self.get(program, machine, system)?.ns)
    }

    /// By how many percent one system is ahead of another on each program.
    fn ahead(&self, programs: &[&str], machine: &str, winner: &str, other: &str) -> Result<Vec<f64>, String> {
        let gain = |program: &&str| {
            Ok((self.ns(program, machine, other)? / self.ns(program, machine, winner)? - 1.0) * 100.0)
        };
        programs.iter().map(gain).collect()
    }
}

fn play(recording: &Recording, machine: &Machine, size: Size, system: &'static str, seed: u64) -> Outcome {
    let tiers = Tiers::of(machine, size.scale);
    let chosen = systems::named(system).expect("jobs name systems that are there");
    if chosen.is_cache() {
        return memory_mode(recording, &tiers, THREADS);
    }
    let setting = setting(recording.pages, size.scale, OVERHEAD, seed);
    simulate(recording, &tiers, chosen.keeper(setting, &tiers), setting, THREADS)
}

/// Everything that is simulated.
fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for program in &programs::ALL {
        for machine in MACHINES {
            jobs.extend(systems::ALL.iter().map(|s| Job { program: program.name, machine, system: s.name }));
        }
        let variants = systems::VARIANTS.iter();
        jobs.extend(variants.map(|s| Job { program: program.name, machine: "optane-4tier", system: s.name }));
    }
    jobs
}

fn mean(values: Result<Vec<f64>, String>) -> Result<f64, String> {
    values.map(|values| values.iter().sum::<f64>() / values.len().max(1) as f64)
}

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let seed = bench.options().seed;
    let size = Size { seed, ..Size::DEFAULT };
    let list = jobs();
    let mut results = Results(Vec::new());
    // A program's recording is large: one after another, with all simulations of it side by side.
    for program in &programs::ALL {
        let recording = program.record(size);
        let mine: Vec<Job> = list.iter().filter(|job| job.program == program.name).copied().collect();
        let outcomes = bench.each(&mine, |job| {
            let machine = machines::named(job.machine).expect("a shipped machine");
            play(&recording, &machine, size, job.system, seed)
        });
        results.0.extend(mine.into_iter().zip(outcomes));
    }
    let mut rows = profiling(&results);
    rows.extend(overall(&results));
    rows.extend(accesses(&results));
    rows.extend(ablations(&results));
    rows.extend(ours(&results));
    rows
}

/// Figure 8.1: recall and precision on GUPS.
fn profiling(results: &Results) -> Vec<Row> {
    let place = "Section 8.1, Figure 8.1";
    let late = |system: &str, which: fn(&tiercel_pages::sim::Point) -> f64| {
        let points = &results.get("gups", "optane-4tier", system)?.points;
        let half = &points[points.len() / 2..];
        Ok(half.iter().map(which).sum::<f64>() / half.len().max(1) as f64)
    };
    let mut rows = Vec::new();
    for (system, name) in [
        ("hm-keeper", "hm-keeper"),
        ("tiercel", "ours"),
        ("tiercel-bits", "ours on accessed bits"),
        ("damon", "DAMON"),
        ("hm-keeper, thermostat", "Thermostat"),
        ("autotiering", "AutoTiering"),
    ] {
        let (recall, precision) = match system {
            "damon" => (Claim::Silent, Claim::About(0.5)),
            "tiercel" | "tiercel-bits" => (Claim::AtLeast(0.9), Claim::AtLeast(0.9)),
            _ => (Claim::Silent, Claim::Silent),
        };
        let what = |figure: &str| format!("GUPS: {figure} of {name}, second half of the run");
        rows.push(row(what("recall"), place, recall, late(system, |p| p.recall), "of hot pages"));
        rows.push(row(what("precision"), place, precision, late(system, |p| p.precision), "of those found"));
    }
    rows
}

/// Section 8.8.2: averages over the five programs.
fn overall(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let claims = [
        ("memory-optimizer", 32.0, Some(20.0)),
        ("memory-tiering", 22.0, Some(26.0)),
        ("autotiering", 20.0, Some(17.0)),
        ("autonuma", 25.0, Some(38.0)),
        ("memory-mode", 24.0, None),
        ("first-touch", 20.0, Some(19.0)),
    ];
    for (machine, place) in [
        ("optane-4tier", "Section 8.8.2, Figure 8.5: hm-keeper ahead of"),
        ("optane-4tier-emulated", "Section 8.8.2, Figure 8.6, emulated: hm-keeper ahead of"),
    ] {
        for (other, optane, emulated) in claims {
            let claim = if machine == "optane-4tier" { Some(optane) } else { emulated };
            let Some(claim) = claim else { continue };
            let ours = mean(results.ahead(&FIVE, machine, "hm-keeper", other));
            rows.push(row(
                format!("{other}, mean of five"),
                place,
                Claim::About(claim),
                ours,
                "% of the speed",
            ));
        }
    }
    let hemem = mean(results.ahead(&["gups"], "cxl", "hm-keeper", "hemem"));
    let place = "Section 8.8.2, Figure 8.10, two tiers";
    rows.push(
        row("GUPS: hm-keeper ahead of hemem", place, Claim::AtLeast(0.0), hemem, "% of the speed")
            .note("the hot set fits into fast memory here, where the paper finds both alike at 16 threads"),
    );
    rows
}

/// Table 8.3: lines by tier.
fn accesses(results: &Results) -> Vec<Row> {
    let place = "Table 8.3, VoltDB";
    let paper = [
        ("memory-tiering", [248.0, 15.0, 60.0, 0.704]),
        ("autotiering", [258.0, 34.0, 30.0, 2.5]),
        ("hm-keeper", [295.0, 0.198, 9.0, 0.092]),
    ];
    let mut rows = Vec::new();
    for (system, counts) in paper {
        let all: f64 = counts.iter().sum();
        for (tier, count) in counts.iter().enumerate() {
            let ours = results
                .get("orders", "optane-4tier", system)
                .map(|out| out.accesses[tier] / out.accesses.iter().sum::<f64>() * 100.0);
            let claim = Claim::About((count / all * 1000.0_f64).round() / 10.0);
            rows.push(row(format!("{system}: tier {}", tier + 1), place, claim, ours, "% of accesses"));
        }
    }
    rows
}

/// Sections 8.8.3 to 8.8.5: what is lost without a part.
fn ablations(results: &Results) -> Vec<Row> {
    let against = |variant: &str| mean(results.ahead(&FIVE, "optane-4tier", "hm-keeper", variant));
    let line =
        |what: &str, place, claim, variant: &str| row(what, place, claim, against(variant), "% more time");
    let profiling = "Section 8.8.3, Figure 8.11";
    vec![
        line("with Memory-tiering's profiling", profiling, Claim::About(22.0), "hm-keeper, window"),
        line("with Thermostat's profiling", profiling, Claim::About(7.0), "hm-keeper, thermostat"),
        line("without adaptive regions", profiling, Claim::About(22.0), "hm-keeper, fixed regions"),
        line("without adaptive samples", profiling, Claim::About(21.0), "hm-keeper, blind samples"),
        line("without a limit on the overhead", profiling, Claim::Silent, "hm-keeper, no limit"),
        line(
            "with a hierarchical view",
            "Section 8.8.4, Figure 8.13",
            Claim::About(20.0),
            "hm-keeper, hierarchical",
        ),
        line("with move_pages", "Section 8.8.5", Claim::Silent, "hm-keeper, move_pages"),
        line("with Nimble's copies", "Section 8.8.5", Claim::Silent, "hm-keeper, nimble"),
    ]
}

/// Ours beside the best of the others, on every program and machine.
fn ours(results: &Results) -> Vec<Row> {
    let place = "ours, against the best other";
    let mut rows = Vec::new();
    for machine in MACHINES {
        for program in &programs::ALL {
            let others = systems::ALL.iter().filter(|system| !system.name.starts_with("tiercel"));
            let best = others
                .filter_map(|system| results.ns(program.name, machine, system.name).ok())
                .fold(f64::INFINITY, f64::min);
            let ahead = results.ns(program.name, machine, "tiercel").map(|ns| (best / ns - 1.0) * 100.0);
            let what = format!("{machine}: {} ({})", program.name, program.like);
            rows.push(row(what, place, Claim::AtLeast(-2.0), ahead, "% of the speed"));
        }
    }
    let place = "ours, with and without its parts";
    let all: Vec<&str> = programs::ALL.iter().map(|program| program.name).collect();
    for (variant, what) in [
        ("tiercel, adaptive copies", "with hm-keeper's copies"),
        ("tiercel, regions", "on hm-keeper's profiler"),
        ("tiercel, constant n", "with hm-keeper's strategy"),
        ("tiercel, restless", "without damping"),
        ("tiercel, latency alone", "without the load of tiers"),
        ("tiercel, unsparing", "with the whole limit used in every interval"),
        ("tiercel-bits", "on accessed bits instead of samples"),
    ] {
        let loss = mean(results.ahead(&all, "optane-4tier", "tiercel", variant));
        rows.push(row(what, place, Claim::Silent, loss, "% more time"));
    }
    rows
}
