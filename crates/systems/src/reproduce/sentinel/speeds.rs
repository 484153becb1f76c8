//! How fast Sentinel is on the server with Optane memory (section VII-B): Figures 7 to 10.

use super::super::bench::{Net, Results, row};
use super::super::{Claim, Row};
use super::{Case, FIFTH, LARGE, MORE, SMALL, mean, most};
use crate::{Fast, System, autotm, fixed, memory_mode, pages, sentinel, tiercel};

/// All four.
pub(super) fn rows(results: &Results) -> Vec<Row> {
    let mut rows = losses(results);
    rows.extend(as_published(results));
    rows.extend(large(results));
    rows.extend(bandwidth(results));
    rows.extend(sizes(results));
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
            let row = row(what, place, claim, behind(system).map(|all| all[at]), "% more time");
            rows.push(match (case.name, name) {
                ("LSTM", "Sentinel") => {
                    row.note("Its largest tensor alone is half of the peak, and five kernels use it.")
                }
                ("DCGAN", "Sentinel") => row.note("Its largest kernel works on 3.2 GB; fast memory has 3.1."),
                ("MobileNet", "Sentinel") => row.note(
                    "14 GB leave at 12 GB/s beside 2.2 s of kernels, most of them in the forward pass.",
                ),
                _ => row,
            });
        }
    }
    for (system, name, claim) in [
        (&sentinel::SENTINEL, "Sentinel", Claim::About(9.0)),
        (&pages::IAL, "IAL", Claim::About(46.0)),
        (&autotm::SYNC, "AutoTM", Claim::Silent),
        (&tiercel::TIERCEL, "Tiercel", Claim::Silent),
        (&fixed::SLOW_ONLY, "slow memory alone", Claim::Silent),
    ] {
        let what = format!("{name} behind fast memory alone, mean");
        let row = row(what, place, claim, behind(system).map(|all| mean(&all)), "% more time");
        rows.push(match name {
            "IAL" => row.note(
                "It leaves most in slow memory; the text does not say what slow memory alone cost in the paper.",
            ),
            _ => row,
        });
    }
    let without = |all: Vec<f64>| {
        let others = SMALL.iter().zip(all).filter(|(case, _)| case.name != "LSTM");
        mean(&others.map(|(_, loss)| loss).collect::<Vec<_>>())
    };
    for (system, name) in [(&sentinel::SENTINEL, "Sentinel"), (&tiercel::TIERCEL, "Tiercel")] {
        let what = format!("{name} behind fast memory alone, mean without LSTM");
        rows.push(row(what, place, Claim::Silent, behind(system).map(without), "% more time"));
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

/// Figure 7 once more: the paper's batches, and as many gigabytes as the paper had.
fn as_published(results: &Results) -> Vec<Row> {
    let place = "Section VII-B, Figure 7, with the paper's batches and gigabytes";
    let time = |case: &Case, system: &System| results.seconds(case.paper, system, case.fifth());
    let longer = |long: &System, short: &System| {
        let one = |case: &Case| Ok((time(case, long)? / time(case, short)? - 1.0) * 100.0);
        SMALL.iter().map(one).collect::<Result<Vec<f64>, String>>()
    };
    let mut rows = Vec::new();
    let behind = longer(&sentinel::SENTINEL, &fixed::FAST_ONLY);
    for (at, case) in SMALL.iter().enumerate() {
        let claim = if case.name == "DCGAN" { Claim::About(0.0) } else { Claim::Silent };
        let what = format!("{}, batch {}: Sentinel behind fast memory alone", case.name, case.paper.1);
        let row = row(what, place, claim, behind.clone().map(|all| all[at]), "% more time");
        rows.push(match case.name {
            "ResNet-32" => row.note("All that a step touches fits, as with LSTM and DCGAN."),
            "MobileNet" => {
                row.note("More than half would fit, but nearly all of it leaves in the forward pass.")
            }
            _ => row,
        });
    }
    for (name, system, claim) in [
        ("Sentinel", sentinel::SENTINEL, Claim::About(9.0)),
        ("IAL", pages::IAL, Claim::About(46.0)),
        ("AutoTM", autotm::SYNC, Claim::Silent),
        ("Tiercel", tiercel::TIERCEL, Claim::Silent),
    ] {
        let ours = longer(&system, &fixed::FAST_ONLY).map(|all| mean(&all));
        rows.push(row(format!("{name} behind fast memory alone, mean"), place, claim, ours, "% more time"));
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
        ("Memory Mode", memory_mode::MEMORY_MODE, 20.0),
        ("AutoTM", autotm::SYNC, 10.0),
    ] {
        let (without, lstm): (Vec<usize>, Vec<usize>) =
            (0..LARGE.len()).partition(|at| LARGE[*at].name != "LSTM");
        let gains = gains(&system);
        let ours = gains.clone().map(|all| mean(&without.iter().map(|at| all[*at]).collect::<Vec<_>>()));
        let what = format!("Sentinel ahead of {name}, mean without LSTM");
        let row = row(what, place, Claim::About(claim), ours, "% of the speed");
        rows.push(match name {
            "AutoTM" => row.note(
                "A third of the peak at most is too much, and the plan moves just that; Sentinel moves all.",
            ),
            _ => row,
        });
        let ours = gains.map(|all| all[lstm[0]]);
        rows.push(super::row(
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
        row("ResNet-32: fast memory, Sentinel over IAL", place, Claim::About(7.3), ratio(0), unit)
            .note("IAL's step takes six times as long, and leaves fast memory idle."),
        row("ResNet-32: slow memory, Sentinel over IAL", place, Claim::AtMost(1.0), ratio(1), unit)
            .note("A fifth of the bytes, nearly all of them copies, in a sixth of the time."),
    ]
}

/// Figure 10: more fast memory.
fn sizes(results: &Results) -> Vec<Row> {
    let place = "Section VII-B, Figure 10";
    let behind = |fast| longer(results, &SMALL, fast, &sentinel::SENTINEL, &fixed::FAST_ONLY);
    let mut rows = Vec::new();
    for (at, case) in SMALL.iter().enumerate() {
        let what = format!("{}: Sentinel at 60 % behind fast memory alone", case.name);
        let row = row(what, place, Claim::About(0.0), behind(MORE[1]).map(|all| all[at]), "% more time");
        rows.push(match case.name {
            "LSTM" => row.note(
                "The layer of its largest tensor uses 6.6 GB, and 0.4 are set aside; fast memory has 6.7.",
            ),
            "MobileNet" => row.note("It still sends away all 14 GB, though 6 would do."),
            _ => row,
        });
        let ours = behind(FIFTH)
            .and_then(|less| Ok((1.0 + less[at] / 100.0) / (1.0 + behind(MORE[0])?[at] / 100.0)));
        let what = format!("{}: Sentinel at 20 % behind Sentinel at 40 %", case.name);
        rows.push(super::row(
            what,
            place,
            Claim::AtMost(17.0),
            ours.map(|ours| (ours - 1.0) * 100.0),
            "% more time",
        ));
    }
    rows
}
