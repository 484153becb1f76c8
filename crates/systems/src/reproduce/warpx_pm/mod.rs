//! WarpX-PM (dissertation, chapter 7): problems A to F on the paper's machine, by simulation.
//!
//! Placements, zones and the sizes of batches come from the code that runs particles for real (`tiercel_pic`: `System::wire`
//! and its placements), the number of copy threads from its model (`copiers`); what is simulated is how long kernels and copies take. An
//! iteration is what the chapter describes: the pusher passes over all particles, the deposit does again, the solver over all
//! fields. Everything is 1024 times smaller than the paper's and takes 1024 times less time.

use tiercel_core::Bandwidth;
use tiercel_pic::system::System;

use super::bench::{Bench, row};
use super::{Claim, Paper, Row};

mod world;

use world::{
    CACHE_WRITES, Costs, PHASES, PROBLEMS, Problem, SMALL, ahead_of_memory_mode, chosen, fit, iteration,
    phases,
};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "warpx-pm",
    title: "WarpX-PM: Optimizing Large-Scale Plasma Simulations on Big Memory System (dissertation, chapter 7)",
    machine: "optane-sentinel",
    remarks: &[
        "One socket of the paper's two, with half of each problem: the same parts as Sentinel's machine.",
        "How long phases compute for a particle and a cell is fitted to Table 7.3, the phases of problem B in memory mode, read as \
         seconds an iteration: as the sum of ten iterations the deposit would read persistent memory faster than it can be read. Nothing else \
         is fitted.",
        "By Table 7.2: 107 bytes a particle and 109 a cell (fewer where a problem's peak has no room for so many), 7 % of the peak short-lived \
         and used again 13 times in an iteration. Assumed: four ranks a socket, each with its helper threads.",
        "One or two helper threads of a rank take 5 and 10 % from the computation, three and four 25 and 35 %: section 7.4.2 says less than \
         10 and more than 20.",
        "Loads and stores of kernels reach 28 and 3.1 GB/s on persistent memory, as fitted for AutoTM's machine; copies reach what the memory \
         can. The cache of memory mode reads as kernels do and writes 9 GB/s back, the middle of what CachedArrays measured. An earlier \
         simulation gave it all of the memory's bandwidth, and too small particles: then it was ahead of WarpX-PM.",
        "Memory is modelled by bandwidths alone: what latency costs pointers and small objects on \
         persistent memory is not in here, nor traffic between sockets.",
        "Placement, zones and batches are the decisions of the code that runs for real (`crates/pic`); helper threads are those of its model \
         (equations 7.1 to 7.7), too.",
    ],
    reasons: &[
        (
            "IAL",
            "the paper ran three of its problems under IAL and does not say how its lists were tuned; here looking at pages \
             costs nothing",
        ),
        (
            "helper threads of a process",
            "a thread of each process copies as much as the pusher of Table 7.3 wants while it computes, so one is enough; the paper's \
             intervals must have been shorter or their copies slower than the parts say",
        ),
        (
            "static placement",
            "the paper's averages do not go together: with 34.4 % over memory mode and 41 % over static placement, memory mode is ahead of static \
             placement, and not 29 % behind it; its own gains in each phase come to what the rows below say",
        ),
        (
            "memory mode, ",
            "it hangs on how fast the cache writes back, which the paper does not say: see the rows that assume other speeds. Between 3.1 and \
             6 GB/s, less than the 6 to 12 that CachedArrays measured, it is what the paper says. The paper's own gains in each phase, weighted by \
             Table 7.3, come to 12 %",
        ),
        (
            "first-touch on G",
            "the paper says that all of G is in DRAM under WarpX-PM; the placement here brings particles tile by tile even where all would fit",
        ),
        (
            "number that the model chooses",
            "a thread of each process copies as much as the pusher of Table 7.3 wants while it computes, so the model's smallest number is one",
        ),
        (
            "",
            "with the phases of Table 7.3 memory is busy for a small part of an iteration (as in the paper's Figure 7.2), and a model of \
             bandwidths cannot lose more on it; the paper's baselines lose what latency and the other socket cost, too",
        ),
    ],
    rows,
};

/// One simulation to do.
#[derive(Clone, Copy)]
struct Job {
    problem: Problem,
    who: System,
    helpers: usize,
}

/// What was simulated, in seconds an iteration.
struct Results(Vec<(Job, Result<f64, String>)>);

impl Results {
    fn get(&self, problem: &str, who: System, helpers: usize) -> Result<f64, String> {
        let same = |job: &Job| {
            job.problem.name == problem && job.who == who && (job.helpers == helpers || !helped(job.who))
        };
        let found = self.0.iter().find(|(job, _)| same(job));
        found.map_or_else(|| Err("it was not simulated".to_string()), |(_, result)| result.clone())
    }

    /// By how many percent WarpX-PM is ahead of another, as a mean over problems.
    fn ahead(
        &self,
        problems: &[&'static str],
        choices: &[usize],
        winner: System,
        other: System,
    ) -> Result<f64, String> {
        let mut sum = 0.0;
        for name in problems {
            let helpers = number(name, choices);
            sum += (self.get(name, other, helpers)? / self.get(name, winner, helpers)? - 1.0) * 100.0;
        }
        Ok(sum / problems.len() as f64)
    }
}

/// Whether helper threads matter to it.
fn helped(who: System) -> bool {
    matches!(who, System::WarpxPm | System::Tiercel)
}

/// The helper threads that were chosen for a problem.
fn number(name: &str, choices: &[usize]) -> usize {
    let at = PROBLEMS.iter().position(|problem| problem.name == name);
    at.and_then(|at| choices.get(at).copied()).unwrap_or(1)
}

const SIX: [&str; 6] = ["A", "B", "C", "D", "E", "F"];

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let costs = match fit(CACHE_WRITES) {
        Ok(costs) => costs,
        Err(error) => {
            return vec![row("problem B in memory mode", "Table 7.3", Claim::Silent, Err(error), "s")];
        }
    };
    use System::{AllFast, FirstTouch, Ial, MemoryMode, SlowOnly, Static};
    let others = [AllFast, SlowOnly, FirstTouch, MemoryMode, Ial, Static];
    let mut jobs = Vec::new();
    for problem in PROBLEMS.into_iter().chain([SMALL]) {
        jobs.extend(others.map(|who| Job { problem, who, helpers: 1 }));
        for helpers in 1..=4 {
            let of = [System::WarpxPm, System::Tiercel];
            jobs.extend(of.map(|system| Job { problem, who: system, helpers }));
        }
    }
    let outcomes = bench.each(&jobs, |job| iteration(&job.problem, job.who, job.helpers, costs));
    let results = Results(jobs.into_iter().zip(outcomes).collect());
    let choices: Result<Vec<usize>, String> = PROBLEMS.iter().map(|problem| chosen(problem, costs)).collect();
    let choices = match choices {
        Ok(choices) => choices,
        Err(error) => return vec![row("helper threads", "Figure 7.8", Claim::Silent, Err(error), "threads")],
    };
    let mut rows = fitted(costs);
    rows.extend(overall(&results, &choices));
    rows.extend(by_the_breakdown());
    rows.extend(by_write_speed(bench));
    rows.extend(helpers(&results, &choices));
    rows.extend(ours(&results, &choices));
    rows
}

/// Table 7.3: what the model was made with.
fn fitted(costs: Costs) -> Vec<Row> {
    let found = phases(&PROBLEMS[1], System::MemoryMode, 1, costs);
    let names = ["pusher and gather", "deposit", "solver"];
    (0..3)
        .map(|at| {
            let ours = found.clone().map(|found| found[at]);
            let what = format!("problem B in memory mode: {}", names[at]);
            row(what, "Table 7.3", Claim::About(PHASES[at]), ours, "s an iteration").fitted()
        })
        .collect()
}

/// Figures 7.4 to 7.6: averages.
fn overall(results: &Results, choices: &[usize]) -> Vec<Row> {
    let ours = System::WarpxPm;
    let place = "Figure 7.4: WarpX-PM ahead of";
    let mut rows = Vec::new();
    for (name, other, claim) in [
        ("persistent memory alone, mean of A to F", System::SlowOnly, 64.6),
        ("memory mode, mean of A to F", System::MemoryMode, 34.4),
        ("first-touch, mean of A to F", System::FirstTouch, 41.0),
    ] {
        let found = results.ahead(&SIX, choices, ours, other);
        rows.push(row(name, place, Claim::About(claim), found, "% of the speed"));
    }
    let found = results.ahead(&["G"], choices, ours, System::FirstTouch).map(f64::abs);
    rows.push(row(
        "first-touch on G, which fits: at most",
        place,
        Claim::AtMost(5.0),
        found,
        "% of the speed",
    ));
    let statics = System::Static;
    let place = "Section 7.5.2, Figure 7.5";
    let found = results.ahead(&["B", "D"], choices, statics, System::MemoryMode);
    rows.push(row(
        "static placement ahead of memory mode, B and D",
        place,
        Claim::About(29.0),
        found,
        "% of the speed",
    ));
    let found = results.ahead(&SIX, choices, ours, statics);
    rows.push(row("WarpX-PM ahead of static placement", place, Claim::About(41.0), found, "% of the speed"));
    let found = results.ahead(&SIX, choices, ours, System::Ial);
    let place = "Figure 7.6: WarpX-PM ahead of";
    rows.push(row(
        "IAL, mean of A to F (the paper: of three)",
        place,
        Claim::About(83.3),
        found,
        "% of the speed",
    ));
    rows
}

/// The chapter's own gains by phase, in percent: by static placement of gather and of what is left (section 7.5.2), by prefetching of pusher,
/// deposit and solver; with the seconds of each phase (Table 7.3).
const GAINS: [(f64, f64); 5] = [(11.0, 300.8), (17.0, 132.0), (12.0, 47.2), (10.0, 25.2), (7.0, 9.9)];

/// What the chapter's gains by phase come to for a whole iteration: of all phases, and of those of static placement.
fn breakdown() -> [f64; 2] {
    let before: f64 = GAINS.iter().map(|(_, seconds)| seconds).sum();
    [0, 3].map(|first| {
        let gain = |at: usize| if at >= first { 1.0 + GAINS[at].0 / 100.0 } else { 1.0 };
        let after: f64 = GAINS.iter().enumerate().map(|(at, (_, seconds))| seconds / gain(at)).sum();
        (before / after - 1.0) * 100.0
    })
}

/// The chapter's averages beside its own breakdown of the same runs.
fn by_the_breakdown() -> Vec<Row> {
    let place = "calculated from section 7.5.2 and Table 7.3";
    let [all, statics] = breakdown();
    [
        ("WarpX-PM ahead of memory mode by the paper's gains in each phase", all),
        ("static placement ahead of memory mode by the paper's gains in each phase", statics),
    ]
    .map(|(what, is)| row(what, place, Claim::Silent, Ok(is), "% of the speed"))
    .into()
}

/// Whether another speed of the cache, within what CachedArrays measured and below it, would explain memory mode.
fn by_write_speed(bench: &Bench<'_>) -> Vec<Row> {
    let speeds = [("3.1, as kernels' own stores do,", 3.1e9), ("6", 6e9), ("12", 12e9)];
    let found = bench.each(&speeds, |(_, speed)| ahead_of_memory_mode(Bandwidth(*speed)));
    let rows = speeds.iter().zip(found).map(|((name, _), found)| {
        let what = format!("WarpX-PM ahead of memory mode if its cache wrote {name} GB/s back");
        row(what, "assumed otherwise, fitted again", Claim::Silent, found, "% of the speed")
    });
    rows.collect()
}

/// Figure 7.8: how many helper threads.
fn helpers(results: &Results, choices: &[usize]) -> Vec<Row> {
    let who = System::WarpxPm;
    let place = "Figure 7.8";
    let mut rows = Vec::new();
    let mut worst = Ok(0.0f64);
    let mut many = Ok(f64::INFINITY);
    for (at, (name, paper)) in SIX.into_iter().zip([2.0, 2.0, 2.0, 1.0, 2.0, 1.0]).enumerate() {
        let times: Result<Vec<f64>, String> = (1..=4).map(|n| results.get(name, who, n)).collect();
        let best =
            times.clone().map(|times| (0..4).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0));
        if let (Ok(times), Ok(best)) = (&times, &best) {
            let loss = (times[choices[at] - 1] / times[*best] - 1.0) * 100.0;
            worst = worst.map(|worst| worst.max(loss));
            many = many.map(|many: f64| many.min((times[2].min(times[3]) / times[*best] - 1.0) * 100.0));
        } else if let Err(error) = &times {
            (worst, many) = (Err(error.clone()), Err(error.clone()));
        }
        let what = format!("{name}: best number of helper threads of a process");
        rows.push(row(what, place, Claim::About(paper), best.map(|best| best as f64 + 1.0), "threads"));
        let what = format!("{name}: number that the model chooses");
        rows.push(row(what, place, Claim::About(paper), Ok(choices[at] as f64), "threads"));
    }
    rows.push(row(
        "most that the model's number loses to the best",
        place,
        Claim::AtMost(5.0),
        worst,
        "% of the speed",
    ));
    let note = "most of this follows from what helper threads are assumed to take from the computation";
    let found = row(
        "least that three or four helper threads lose",
        place,
        Claim::AtLeast(30.0),
        many,
        "% of the speed",
    );
    rows.push(found.note(note));
    rows
}

/// What the paper says nothing of.
fn ours(results: &Results, choices: &[usize]) -> Vec<Row> {
    let place = "ours";
    let tiercel = System::Tiercel;
    let ahead = |other| results.ahead(&SIX, choices, tiercel, other);
    vec![
        row(
            "tiercel ahead of WarpX-PM, mean of A to F",
            place,
            Claim::Silent,
            ahead(System::WarpxPm),
            "% of the speed",
        ),
        row(
            "all in fast memory ahead of tiercel, mean of A to F",
            place,
            Claim::Silent,
            results.ahead(&SIX, choices, System::AllFast, tiercel),
            "% of the speed",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_core::copiers::SPARE;

    /// Order, not figures: fast memory alone is fastest, ours is not behind WarpX-PM, and that not behind persistent memory.
    #[test]
    fn systems_stand_in_their_order() {
        let costs = fit(CACHE_WRITES).expect("memory mode");
        for problem in [PROBLEMS[0], PROBLEMS[4]] {
            let of = |system, helpers| iteration(&problem, system, helpers, costs).expect("it runs");
            let helpers = chosen(&problem, costs).expect("a number");
            assert!((1..=SPARE).contains(&helpers));
            let (warpx, ours) = (of(System::WarpxPm, helpers), of(System::Tiercel, helpers));
            assert!(of(System::AllFast, 1) <= ours * 1.001, "{}", problem.name);
            assert!(ours <= warpx * 1.001, "{}: {ours} {warpx}", problem.name);
            assert!(warpx < of(System::SlowOnly, 1), "{}", problem.name);
        }
    }
}
