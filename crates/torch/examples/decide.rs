//! Plans a recorded iteration as the Python package does, for so much memory of an H200: `decide TRACE GIB SECONDS`.
//!
//! Traces are what `Session.trace` writes.

use std::sync::Arc;

use tiercel_core::Bytes;
use tiercel_torch::Asked;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "decide TRACE GIB SECONDS";
    let path = arguments.next().ok_or(usage)?;
    let fast: f64 = arguments.next().ok_or(usage)?.parse()?;
    let seconds: f64 = arguments.next().ok_or(usage)?.parse()?;
    let workload = tiercel_workload::open(&path, &Default::default())?;
    let trace = Arc::new(workload.trace().clone());
    let machine = tiercel_core::Machine::parse(include_str!("../../../machines/h200.toml"))?;
    let fast = Bytes((fast * (1u64 << 30) as f64) as u64);
    let machine = tiercel_torch::with_capacities(&machine, &[fast, Bytes(100 << 30)]);
    let decided = tiercel_torch::decide(
        trace,
        &machine,
        "tiercel",
        Asked { again: true, places: false, seconds, seed: 0 },
    )?;
    println!(
        "all fast {:.1} ms, planned {:.1}, bound {:.1}; fetched {}, evicted {}",
        decided.all_fast.0 as f64 / 1e6,
        decided.predicted.0 as f64 / 1e6,
        decided.bound.map_or(0.0, |b| b.0 as f64 / 1e6),
        decided.fetched,
        decided.evicted
    );
    Ok(())
}
