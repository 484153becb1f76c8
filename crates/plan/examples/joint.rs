//! Keep, move, run again: plans for traces from files, each choice alone and all together, as the planner's own clock has
//! them (the simulator's figures: `cargo run --release -p tiercel-systems --example torch`).
//!
//! `cargo run --release -p tiercel-plan --example joint -- MACHINE 80%,50%,30% SECONDS SEED FILE…`

use std::time::Duration;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_plan::{Problem, Request, joint};
use tiercel_sim::Roofline;
use tiercel_workload::{Lifetimes, text};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, shares, seconds, seed, files @ ..] = arguments.as_slice() else {
        return Err("MACHINE.toml SHARES SECONDS SEED FILE…".into());
    };
    let machine = Machine::parse(&std::fs::read_to_string(machine)?)?;
    let (time, seed) = (Duration::from_secs_f64(seconds.parse()?), seed.parse()?);
    println!(
        "{:16} {:>5} {:8} {:>7} {:>7} {:>8} {:>6} {:>7} {:>7}",
        "trace", "fast", "choices", "time", "bound", "again", "packed", "s", "judged"
    );
    for file in files {
        let trace = text::parse(&std::fs::read_to_string(file)?)?;
        let peak = Lifetimes::new(&trace).peak().1;
        let floor = Problem::uniform(&trace, &machine, &Roofline, TierId(0));
        for share in shares.split(',') {
            let part: f64 = share.trim_end_matches('%').parse()?;
            let little = machine
                .clone()
                .with_capacity(TierId(0), Bytes((peak.0 as f64 * part / 100.0) as u64 / 64 * 64));
            for (name, moves, again) in [("move", true, false), ("again", false, true), ("both", true, true)]
            {
                let request = Request { moves, again, time, seed, ..Request::default() };
                match joint(&trace, &little, &Roofline, &request) {
                    Ok(found) => println!(
                        "{:16} {share:>5} {name:8} {:7.3} {:7.3} {:8.3} {:>6} {:7.1} {:>7}",
                        trace.name,
                        found.plan.iteration_ns / floor,
                        found.plan.bound_ns / floor,
                        found.again_ns / floor,
                        found.packed,
                        found.time.as_secs_f64(),
                        found.judged
                    ),
                    Err(error) => println!("{:16} {share:>5} {name:8} {error}", trace.name),
                }
            }
        }
    }
    Ok(())
}
