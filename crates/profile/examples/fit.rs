//! Fits the kernel model to a measured profile: prints the table for the machine file on standard output, and how well
//! it predicts on standard error.
//!
//! `cargo run -p tiercel-profile --release --example fit -- profile.csv [held-back.csv]`
//!
//! With a second file, only the shipped parameters are judged, on that file; nothing is fitted.

use tiercel_profile::fit::{Score, fit, scores, tidied};
use tiercel_profile::{Model, autotm, machines};

/// Parts into which kernels are divided: each is predicted from a fit to the others.
const FOLDS: usize = 5;

/// How often tiers and kinds are fitted in turn.
const TURNS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args().skip(1);
    let profile = paths.next().ok_or("usage: fit PROFILE.csv [HELD-BACK.csv]")?;
    let machine = machines::named("optane-autotm")?;
    if let Some(held_back) = paths.next() {
        let groups = autotm::parse(&std::fs::read_to_string(held_back)?)?;
        let model = Model::new(&machine)?;
        show("shipped parameters, held-back file", &scores(&groups, |_| &model));
        return Ok(());
    }
    let groups = autotm::parse(&std::fs::read_to_string(profile)?)?;
    let kernels = tidied(fit(&machine, &groups, TURNS));
    let model = Model::with(&machine, &kernels);
    show("fitted to all", &scores(&groups, |_| &model));
    // Whole shapes are left out, not only single placements of them.
    let fold = |at: usize| (at * 7 + at / FOLDS) % FOLDS;
    let models: Vec<Model> = (0..FOLDS)
        .map(|left_out| {
            let others: Vec<_> =
                (0..groups.len()).filter(|at| fold(*at) != left_out).map(|at| groups[at].clone()).collect();
            Model::with(&machine, &tidied(fit(&machine, &others, TURNS)))
        })
        .collect();
    show("each shape predicted from the others", &scores(&groups, |at| &models[fold(at)]));
    println!("{}", kernels.to_toml());
    Ok(())
}

fn show(title: &str, scores: &[Score]) {
    eprintln!("{title}: median |predicted / measured − 1|");
    eprintln!("{:24} {:>6} {:>10} {:>8}", "kind", "rows", "slowdown", "time");
    for s in scores {
        let percent = |x: f64| format!("{:.1} %", 100.0 * x);
        let (slowdown, time) = (percent(s.median), percent(s.median_time));
        eprintln!("{:24} {:>6} {slowdown:>10} {time:>8}", s.kind, s.rows);
    }
}
