//! How close packings of many buffers come to the peak of live bytes.
//!
//! `cargo bench -p tiercel-plan --bench layout -- [SECONDS [COUNT [FAMILY]]]`
//!
//! Families without a known optimum, made from seeds: each is packed to within 2 % of the most bytes alive at a moment, or
//! for the seconds given (10). A line is printed for each.

#[path = "../tests/instances/mod.rs"]
mod instances;

use std::time::Duration;

use instances::Row;
use tiercel_core::Bytes;
use tiercel_plan::Effort;
use tiercel_plan::layout::{Buffer, pack};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seconds = words.first().and_then(|word| word.parse().ok()).unwrap_or(10);
    let count = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(60_000);
    let only = words.get(2);
    println!("{:16} {:>5} {:>8} {:>8} {:>7}", "family", "seed", "buffers", "above", "s");
    for seed in 1..=3 {
        let families: [(&str, Vec<Row>); 8] = [
            ("random-1%", instances::random(seed, count, 0.01)),
            ("random-10%", instances::random(seed, count, 0.1)),
            ("random-50%", instances::random(seed, count, 0.5)),
            ("random-100%", instances::random(seed, count, 1.0)),
            ("uniform-2%", instances::uniform(seed, count, 0.02)),
            ("uniform-30%", instances::uniform(seed, count, 0.3)),
            ("requests", instances::requests(seed, count)),
            ("training", instances::training(seed, count)),
        ];
        for (name, rows) in families {
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let buffers: Vec<Buffer> =
                rows.iter().map(|&(lower, upper, size)| Buffer::new(lower, upper, Bytes(size))).collect();
            let effort = Effort { gap: 0.02, time: Duration::from_secs(seconds), seed, ..Effort::default() };
            match pack(&buffers, None, &effort) {
                Ok(packing) => println!(
                    "{name:16} {seed:>5} {:>8} {:>7.2}% {:>7.2}",
                    buffers.len(),
                    packing.gap() * 100.0,
                    packing.time.as_secs_f64()
                ),
                Err(error) => println!("{name:16} {seed:>5} {error}"),
            }
        }
    }
}
