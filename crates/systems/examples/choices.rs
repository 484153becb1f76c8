//! Moving, computing again, or both: the planned slowdown by how much fast memory there is.
//!
//! `cargo run --release -p tiercel-systems --example choices -- [MACHINE] [NET[:BATCH]]...`

use std::time::{Duration, Instant};

use tiercel_core::{Machine, TierId};
use tiercel_profile::{Model, machines};
use tiercel_systems::{Choices, Fast, Options, Setting, Times, named, simulate};
use tiercel_workload::graph::DType;
use tiercel_workload::{Lifetimes, nets};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let machine = machines::named(&arguments.next().unwrap_or("h200".into()))?;
    let mut cases: Vec<String> = arguments.collect();
    if cases.is_empty() {
        cases = vec!["resnet152:256".into(), "gpt2:8".into()];
    }
    let times = Times::new(Model::new(&machine)?);
    println!(
        "{:16} {:>9} {:>8} {:>7} {:>9} {:>10} {:>8} {:>7}",
        "network", "peak", "all fast", "memory", "move", "recompute", "both", "s"
    );
    for case in &cases {
        let (name, batch) = case.split_once(':').map_or((case.as_str(), None), |(n, b)| (n, b.parse().ok()));
        let mut options = nets::NetOptions { batch, ..nets::NetOptions::default() };
        if name == "gpt2" {
            // 24 layers of 2048 features.
            options = nets::NetOptions { depth: Some(24), width: Some(2048), dtype: DType::Bf16, ..options };
        }
        let program = nets::find(name).ok_or("no such network")?.build(&options)?;
        let peak = Lifetimes::new(&program.trace).peak().1;
        let time = |system, machine: &Machine, choices| {
            let options = Options { choices, time: Duration::from_secs(20), ..Options::default() };
            let run = simulate(named(system)?, &Setting::of(&program, machine, &times).with(options), 1);
            run.map(|run| run.time().0 as f64)
        };
        let fast = time("fast-only", &machine, Choices::Both)?;
        for share in [0.5, 0.3, 0.2] {
            let began = Instant::now();
            let little = Fast::Share(share).machine(&program.trace, &machine);
            let show = |choices| match time("tiercel", &little, choices) {
                Ok(time) => format!("{:.3}", time / fast),
                Err(_) => "none".to_string(),
            };
            println!(
                "{name:16} {:>9} {:7.3}s {:6.0}% {:>9} {:>10} {:>8} {:7.1}",
                peak.to_string(),
                fast / 1e9,
                100.0 * little.tier(TierId(0)).capacity.0 as f64 / peak.0 as f64,
                show(Choices::Move),
                show(Choices::Recompute),
                show(Choices::Both),
                began.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}
