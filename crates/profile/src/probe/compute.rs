//! How fast this processor multiplies matrices, which is what well-written kernels reach.

use std::time::{Duration, Instant};

use tiercel_run::kernels::gemm::{Bias, Extent, Matrix, Rows, multiply};
use tiercel_run::kernels::pool::Pool;

/// The rows, columns and depth of the product: large enough to leave the caches, small enough to take little time.
const SIDE: usize = 1024;

/// Floating-point operations a second on so many threads, in units of 10⁹.
pub(super) fn gflops(threads: usize) -> f64 {
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
