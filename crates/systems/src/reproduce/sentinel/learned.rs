//! What Sentinel learns of a network before it settles: steps, the length of its intervals, its lower bound.
//!
//! A simulation hands over figures of time and memory alone, so the policy is played here by itself.

use tiercel_core::{Bytes, Manager};
use tiercel_policies::Sentinel;
use tiercel_policies::sentinel::Steps;
use tiercel_run::Executor;
use tiercel_sim::Sim;
use tiercel_workload::{Lifetimes, Program, Trace};

use super::super::bench::{Bench, Net, row};
use super::super::{Claim, Row};
use super::{Case, FIFTH, LARGE, SMALL, most};
use crate::Fast;

/// Iterations after which it is taken as it is.
const PATIENCE: u32 = 64;

/// What it learned.
pub(super) struct Learned {
    /// The seconds of an iteration from then on.
    pub(super) seconds: f64,
    /// The iterations that it took.
    pub(super) steps: Steps,
    /// Layers in an interval.
    pub(super) length: u32,
    /// The least fast memory that the paper would have it run with.
    pub(super) lower_bound: Bytes,
}

/// Lets Sentinel learn a network, with intervals of its own choice or of so many layers.
pub(super) fn learn(
    bench: &Bench<'_>,
    trace: &Trace,
    fast: Option<Fast>,
    length: Option<u32>,
) -> Result<Learned, String> {
    let machine = bench.machine(trace, fast);
    let mut policy = length.map_or(Sentinel::new(), |length| Sentinel::new().interval(length));
    let mut manager = Manager::new(machine.clone(), Sim::with_times(machine, bench.times().clone()));
    let mut executor = Executor::new(trace);
    for _ in 0..PATIENCE {
        executor.iterate(&mut manager, &mut policy).map_err(|error| error.to_string())?;
        if policy.settled() {
            break;
        }
    }
    let last = executor.iterate(&mut manager, &mut policy).map_err(|error| error.to_string())?;
    let terms = policy.terms().ok_or("it learned nothing")?;
    Ok(Learned {
        seconds: last.time.seconds(),
        steps: policy.steps(),
        length: terms.length,
        lower_bound: policy.lower_bound().unwrap_or_default(),
    })
}

/// What Sentinel learns: the steps of Table III, Figure 5 and the lower bound of section IV-E.
pub(super) fn rows(bench: &Bench<'_>, programs: &[(Net, Program)]) -> Vec<Row> {
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
        let what = what("steps of test and trial");
        let row = row(what, "Table III", Claim::About(case.tried), tried, "steps");
        rows.push(match case.name {
            "MobileNet" => row.note(
                "Two steps for each interval that something comes too late for, ten intervals at most.",
            ),
            _ => row,
        });
    }
    for (case, learned) in SMALL.iter().zip(&learned) {
        let peak = Lifetimes::new(trace(case)).peak().1;
        let ours =
            learned.as_ref().map(|l| l.lower_bound.0 as f64 / peak.0 as f64 * 100.0).map_err(Clone::clone);
        let what = format!("{}: lower bound on fast memory", case.name);
        let row = row(what, "Section IV-E", Claim::Silent, ours, "% of the peak");
        rows.push(match case.name {
            "LSTM" => row.note("The scores of all words at all 35 steps are one tensor of half the peak."),
            _ => row,
        });
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
    rows.push(
        row("ResNet-32: length that the equations choose", place, Claim::About(8.0), chosen, "layers")
            .note("Two layers use 3.0 GB of the 2.8, which Equation 1 forbids."),
    );
    rows.push(row(
        "ResNet-32: worst length of 5 to 11 over best",
        place,
        Claim::About(21.0),
        spread,
        "% more time",
    ));
    rows
}
