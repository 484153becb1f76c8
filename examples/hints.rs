//! Smooths an array that is four times as large as fast memory, block by block, guided by hints alone.
//!
//! `cargo run --release --example hints`

use std::error::Error;

use tiercel::core::{Event, TierId};
use tiercel::{Bytes, CachedArrays, Machine, Memory, Mode};

const BLOCKS: usize = 32;
const LEN: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let data = Bytes((BLOCKS * LEN * size_of::<f32>()) as u64);
    let fast = Bytes(data.0 / 4);
    let machine = Machine::parse(include_str!("../machines/dram-throttled.toml"))?;
    let machine = machine.with_capacity(TierId(0), fast);
    let mut memory = Memory::open(&machine, CachedArrays::new(Mode::LMP))?;
    memory.manager().record();

    let mut blocks = Vec::new();
    for i in 0..BLOCKS {
        let mut block = memory.array::<f32>(&format!("block {i}"), LEN)?;
        memory.run([], [&mut block], |[], [x]| x.fill(i as f32))?;
        memory.archive(&block)?;
        blocks.push(block);
    }
    for _pass in 0..2 {
        for i in 0..BLOCKS {
            memory.will_use(&blocks[i])?;
            memory.will_use(&blocks[(i + 1) % BLOCKS])?; // fetched while this block is smoothed
            memory.run([], [&mut blocks[i]], |[], [x]| {
                for _ in 0..8 {
                    for j in 1..x.len() {
                        x[j] = 0.75 * x[j] + 0.25 * x[j - 1];
                    }
                }
            })?;
            memory.archive(&blocks[i])?;
        }
    }
    let mut sum = 0.0;
    for block in blocks {
        memory.run([&block], [], |[x], []| sum += x.iter().map(|x| f64::from(*x)).sum::<f64>())?;
        memory.retire(block)?;
    }

    let totals = memory.totals().clone();
    let events = memory.manager().take_events();
    let copies = events.iter().filter(|e| matches!(e.event, Event::CopyStarted { .. })).count();
    println!("{data} of data on {fast} of fast memory; sum {sum:.0}");
    println!("{copies} copies: fetched {}, evicted {}", totals.fetched, totals.evicted);
    println!(
        "peak: fast {}, slow {} (emulated); kernels waited {}",
        totals.peak[0], totals.peak[1], totals.stall
    );
    Ok(())
}
