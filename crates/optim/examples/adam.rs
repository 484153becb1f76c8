//! How fast the update is, beside the fastest copy of the same memory: `cargo run --release -p tiercel-optim --example adam`.
//!
//! Arguments: `--threads N` (one a core), `--most N` parameters (10^8), `--seconds S` a row (1). Copies and updates take
//! turns, and the best of each counts, because machines are shared.

use std::time::Instant;

use tiercel_optim::{Adam, Bf16, Gradient, Output, Part, Pool, Rule, level, update};

fn argument(name: &str, otherwise: f64) -> f64 {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name);
    at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(otherwise)
}

/// The seconds that something takes.
fn timed(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

/// Copies one slice over another with all threads, as `memcpy` does it.
fn copy(pool: &mut Pool, from: &[f32], to: &mut [f32]) {
    let row = 1 << 16;
    pool.rows(to, 1, |start, to| {
        for (at, to) in to.chunks_mut(row).enumerate() {
            let start = start + at * row;
            to.copy_from_slice(&from[start..start + to.len()]);
        }
    });
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = argument("--threads", cores as f64) as usize;
    let (most, seconds) = (argument("--most", 1e8) as usize, argument("--seconds", 1.0));
    let mut pool = Pool::new(threads);
    println!(
        "AdamW on {threads} threads, {:?}; bytes are those that must move: no line is counted twice",
        level()
    );
    println!(
        "{:>11} {:>28} {:>12} {:>10} {:>10} {:>8}",
        "parameters", "gradient -> output", "parameters/s", "update", "copy", "share"
    );
    for len in [1_000_000, 10_000_000, 30_000_000, 100_000_000].into_iter().filter(|len| *len <= most) {
        let mut p: Vec<f32> = (0..len).map(|i| (i % 1000) as f32 * 1e-3).collect();
        let (mut m, mut v) = (vec![0f32; len], vec![0f32; len]);
        let g: Vec<f32> = p.iter().map(|p| p - 0.5).collect();
        let g16 = vec![Bf16(0x3c00); len];
        let mut out = vec![Bf16(0); len];
        let mut target = vec![0f32; len];
        let mut best = [f64::INFINITY; 3];
        let start = Instant::now();
        let mut step = 0;
        while step < 5 || start.elapsed().as_secs_f64() < seconds {
            step += 1;
            best[0] = best[0].min(timed(|| copy(&mut pool, &g, &mut target)));
            for mixed in [false, true] {
                let part = Part {
                    parameter: &mut p,
                    first: &mut m,
                    second: &mut v,
                    gradient: if mixed { Gradient::Bf16(&g16) } else { Gradient::F32(&g) },
                    output: if mixed { Output::Bf16(&mut out) } else { Output::None },
                };
                let rule = Rule::Adam(Adam::default());
                let time = timed(|| update(&mut pool, rule, step, [1.0; 2], part, &|_| ()));
                best[1 + usize::from(mixed)] = best[1 + usize::from(mixed)].min(time);
            }
        }
        let copied = 8.0 * len as f64 / best[0];
        for (name, time) in [("32 bits -> none", best[1]), ("bf16 -> bf16", best[2])] {
            let moved = 28.0 * len as f64 / time; // 4 + 24, or 2 + 24 + 2
            println!(
                "{len:>11} {name:>28} {:>12.3e} {:>5.1} GB/s {:>5.1} GB/s {:>6.0} %",
                len as f64 / time,
                moved / 1e9,
                copied / 1e9,
                moved / copied * 100.0
            );
        }
    }
}
