//! Traces of real training iterations on a machine whose slow tiers kernels cannot work on: moving alone, running again
//! alone, and both, simulated, as times of having all memory fast; with what no such plan takes less than.
//!
//! `cargo run --release -p tiercel-systems --example torch -- [MACHINE] [80%,50%,30%] [SECONDS] [SEED] FILE…`

use std::time::{Duration, Instant};

use tiercel_plan::{Request, joint};
use tiercel_profile::{Model, machines};
use tiercel_systems::compare::geometric_mean;
use tiercel_systems::{Choices, Fast, Options, Setting, Times, named, simulate};
use tiercel_workload::text;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, shares, seconds, seed, files @ ..] = arguments.as_slice() else {
        return Err("MACHINE SHARES SECONDS SEED FILE…".into());
    };
    let machine = machines::named(machine)?;
    let times = Times::new(Model::new(&machine)?);
    let (time, seed) = (Duration::from_secs_f64(seconds.parse()?), seed.parse()?);
    let ways = [Choices::Move, Choices::Recompute, Choices::Both];
    println!(
        "simulated, times as long as fast-only on {}, {seconds} s of planning, seed {seed}",
        machine.name
    );
    println!(
        "{:16} {:>5} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7}",
        "trace", "fast", "moving", "again", "both", "bound", "planned", "s"
    );
    for share in shares.split(',') {
        let fast: Fast = share.parse()?;
        let mut all = Vec::new();
        for file in files {
            let trace = text::parse(&std::fs::read_to_string(file)?)?;
            let little = fast.machine(&trace, &machine);
            let ample = Setting::new(&trace, &machine, &times);
            let goal = simulate(named("fast-only")?, &ample, 1)?.time().0 as f64;
            let mut row = Vec::new();
            let (mut planned, mut took) = (f64::NAN, 0.0);
            for choices in ways {
                let options = Options { time, seed, choices, ..Options::default() };
                let setting = Setting::new(&trace, &little, &times).with(options);
                let began = Instant::now();
                let run = simulate(named("tiercel")?, &setting, 1).ok();
                took = began.elapsed().as_secs_f64();
                row.push(run.as_ref().map_or(f64::NAN, |run| run.time().0 as f64 / goal));
                let plan = run.and_then(|run| run.planned);
                planned = plan.map_or(f64::NAN, |planned| planned.plan.iteration_ns / goal);
            }
            let hurried =
                Request { time: Duration::from_millis(1), rounds: 1, places: false, ..Request::default() };
            let bound =
                joint(&trace, &little, &times, &hurried).map_or(f64::NAN, |found| found.plan.bound_ns / goal);
            println!(
                "{:16} {share:>5} {:9.3} {:9.3} {:9.3} {bound:7.3} {planned:7.3} {took:7.1}",
                trace.name, row[0], row[1], row[2]
            );
            all.push(row);
        }
        for (at, name) in ["moving", "again", "both"].into_iter().enumerate() {
            let mean = geometric_mean(all.iter().map(|row| row[at]).filter(|time| time.is_finite()));
            let there = all.iter().filter(|row| row[at].is_finite()).count();
            println!("{share} {name}: geometric mean {:.4} of {there}", mean.unwrap_or(f64::NAN));
        }
    }
    Ok(())
}
