//! How fast this processor multiplies matrices, which is what well-written kernels reach.

use std::time::{Duration, Instant};

use tiercel_kernels::gemm::{Bias, Extent, Matrix, Rows, multiply};
use tiercel_kernels::pool::Pool;

use crate::quiet::{self, Others};

/// The rows, columns and depth of the product: large enough to leave the caches, small enough to take little time.
const SIDE: usize = 1024;

/// How often it is measured at most where other programs are busy.
const TRIES: usize = 3;

/// Floating-point operations a second on so many threads, in units of 10⁹, with the share of the processors that others
/// had meanwhile. Others only ever make it less, so what is measured beside them is measured again.
pub(super) fn undisturbed(threads: usize) -> (f64, f64) {
    let mut best = (0.0f64, 1.0f64);
    for _ in 0..TRIES {
        let others = Others::since_now();
        let found = gflops(threads);
        let share = others.share();
        if share <= quiet::LITTLE {
            return (found, share);
        }
        best = (best.0.max(found), best.1.min(share));
        quiet::wait(Duration::from_millis(500));
    }
    best
}

fn gflops(threads: usize) -> f64 {
    let mut pool = Pool::new(threads);
    let extent = Extent::new(SIDE, SIDE, SIDE);
    let numbers: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    let (a, b) = (Matrix::by_line(&numbers, SIDE), Matrix::by_depth(&numbers, SIDE));
    let mut product = vec![0f32; SIDE * SIDE];
    let mut scratch = vec![0f32; extent.scratch() * threads.max(1)];
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < 3 || (times.len() < 15 && started.elapsed() < Duration::from_millis(400)) {
        let started = Instant::now();
        multiply(&mut pool, extent, &a, &b, &Rows::new(&mut product, SIDE, Bias::None), &mut scratch);
        times.push(started.elapsed());
    }
    std::hint::black_box(&product);
    times.sort_unstable();
    2.0 * (SIDE as f64).powi(3) / times[times.len() / 2].as_secs_f64() / 1e9
}
