//! Smooths an array that is four times as large as fast memory, block by block: guided by hints, without any, and with
//! everything in fast memory. Hints change when bytes move and nothing else.
//!
//! `cargo run --release --example hints` slows memory down to stand in for a slow tier; `-- file:/a/folder` takes a disk.

use std::error::Error;
use std::time::{Duration, Instant};

use tiercel::core::{Backing, TierId};
use tiercel::{Bytes, CachedArrays, Machine, Memory, MemoryError, Mode};

const BLOCKS: usize = 32;
const LEN: usize = 1 << 20;
const DATA: Bytes = Bytes((BLOCKS * LEN * size_of::<f32>()) as u64);

/// Two passes over all blocks; their time, and the sum of what came out.
fn smooth(memory: &mut Memory, hints: bool) -> Result<(Duration, f64), MemoryError> {
    let mut blocks = Vec::new();
    for i in 0..BLOCKS {
        let mut block = memory.array::<f32>(&format!("block {i}"), LEN)?;
        memory.fill(&mut block, i as f32)?;
        memory.archive(&block)?;
        blocks.push(block);
    }
    let start = Instant::now();
    for i in (0..BLOCKS).chain(0..BLOCKS) {
        if hints {
            memory.will_use(&blocks[i])?;
            memory.will_use(&blocks[(i + 1) % BLOCKS])?; // fetched while this block is smoothed
        }
        memory.run_as("smooth", &mut blocks[i], |x| {
            for _ in 0..8 {
                for j in 1..x.len() {
                    x[j] = 0.75 * x[j] + 0.25 * x[j - 1];
                }
            }
        })?;
        if hints {
            memory.archive(&blocks[i])?; // first to leave when room is wanted
        }
    }
    let time = start.elapsed();
    let mut sum = 0.0;
    for block in blocks {
        sum += memory.run(&block, |x| x.iter().map(|x| f64::from(*x)).sum::<f64>())?;
    }
    Ok((time, sum))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut machine = Machine::parse(include_str!("../machines/dram-throttled.toml"))?;
    if let Some(slow) = std::env::args().nth(1) {
        machine.tiers[1].backing = slow.parse::<Backing>()?;
        machine.tiers[1].computable = false;
    }
    let quarter = machine.clone().with_capacity(TierId(0), Bytes(DATA.0 / 4));
    let whole = machine.clone().with_capacity(TierId(0), Bytes(DATA.0 + Bytes::mib(1).0));
    println!("{DATA} of data; a quarter of it in fast memory, the rest on {}", machine.tiers[1].backing);
    for (what, machine, hints) in
        [("all fast", &whole, false), ("with hints", &quarter, true), ("without hints", &quarter, false)]
    {
        let mut memory = Memory::open(machine, CachedArrays::new(Mode::LMP))?;
        let (time, sum) = smooth(&mut memory, hints)?;
        let totals = memory.totals();
        println!(
            "{what:14} {:4} ms, kernels waited {}; fetched {}, evicted {}; sum {sum:.0}",
            time.as_millis(),
            totals.stall,
            totals.fetched,
            totals.evicted
        );
    }
    Ok(())
}
