//! Sums of squares, for clipping by the global norm and to find gradients that are not finite.
//!
//! Squares are added in 64 bits: in 32 sums within a tile, each in order, and tile after tile; so the sum is the same
//! for any number of threads and on every instruction set. It is finite exactly where all numbers are.

use std::sync::atomic::{AtomicU64, Ordering};

use tiercel_kernels::pool::Pool;
use tiercel_kernels::simd::{Level, level};

use crate::number::Number;
use crate::pass::{Gradient, TILE};

/// The sum of the squares of all numbers.
pub fn sum_of_squares(pool: &mut Pool, numbers: Gradient<'_>) -> f64 {
    match numbers {
        Gradient::F32(numbers) => sum(pool, numbers),
        Gradient::Bf16(numbers) => sum(pool, numbers),
        Gradient::F16(numbers) => sum(pool, numbers),
    }
}

fn sum<G: Number>(pool: &mut Pool, numbers: &[G]) -> f64 {
    let tiles: Vec<&[G]> = numbers.chunks(TILE).collect();
    let sums: Vec<AtomicU64> = tiles.iter().map(|_| AtomicU64::new(0)).collect();
    let (level, threads) = (level(), if tiles.len() < 2 { 1 } else { pool.threads() });
    let work = |thread: usize| {
        for index in (thread..tiles.len()).step_by(threads) {
            sums[index].store(one(level, tiles[index]).to_bits(), Ordering::Relaxed);
        }
    };
    if threads == 1 {
        work(0)
    } else {
        pool.run(&work)
    }
    sums.iter().map(|sum| f64::from_bits(sum.load(Ordering::Relaxed))).sum()
}

fn one<G: Number>(level: Level, tile: &[G]) -> f64 {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: levels are at most what the processor has.
        Level::Avx512 => unsafe { avx512(tile) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: levels are at most what the processor has.
        Level::Avx2 => unsafe { avx2(tile) },
        _ => each(tile),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn avx512<G: Number>(tile: &[G]) -> f64 {
    each(tile)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<G: Number>(tile: &[G]) -> f64 {
    each(tile)
}

/// Sums beside each other in a tile.
const SUMS: usize = 32;

/// The product of two numbers of 32 bits is exact in 64, so it does not matter whether it is fused with the addition.
#[inline(always)]
fn each<G: Number>(tile: &[G]) -> f64 {
    let mut sums = [0f64; SUMS];
    let (whole, rest) = tile.as_chunks::<SUMS>();
    for numbers in whole {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            let number = f64::from(number.widen());
            *sum += number * number;
        }
    }
    for (sum, number) in sums.iter_mut().zip(rest) {
        let number = f64::from(number.widen());
        *sum += number * number;
    }
    sums.iter().sum()
}
