//! Linear layers of few samples: weights are read once, as they lie, and that is nearly all that takes time.

use std::ops::Range;

use super::gemm::Extent;
use super::pool::Pool;
use super::shares::Boxes;
use super::simd::{Lanes, PARTS, fetch_early, halves, lanes};

/// Outputs whose weights are read side by side.
const SIDE: usize = 4;

/// Samples that meet them at a time.
const SAMPLES: usize = 4;

/// Rows of weights that are added to a gradient at a time.
const ROWS: usize = 8;

/// Numbers of all gradients that are made at a time: they stay in the first-level cache.
const GRADIENTS: usize = 4096;

/// A matrix with a row for each of few samples, of which threads have some columns.
pub(super) fn columns(numbers: &mut [f32], e: Extent, threads: usize) -> Boxes<'_, f32> {
    let some = e.columns.div_ceil(threads).next_multiple_of(16);
    Boxes::new(numbers, [e.rows, 1, 1, e.columns], [e.rows, 1, 1, some])
}

/// The dot products of `R` samples with some rows of weights, all rows of `depth` numbers one behind the other.
#[inline(always)]
fn dots<L: Lanes, const R: usize>(l: L, x: &[f32], w: &[f32], depth: usize, totals: &mut [[f32; SIDE]]) {
    let mut sums = [[l.splat(0.0); SIDE]; R];
    let (x, w) = (&x[..R * depth], &w[..SIDE * depth]);
    let whole = depth / L::COUNT * L::COUNT;
    for at in (0..whole).step_by(L::COUNT) {
        let mut all = [l.splat(0.0); SIDE];
        for (s, w_at) in all.iter_mut().enumerate() {
            *w_at = l.load(w, s * depth + at);
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = l.load(x, r * depth + at);
            for (sum, w) in sums.iter_mut().zip(&all) {
                *sum = l.fma(x, *w, *sum);
            }
        }
    }
    if whole < depth {
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = l.load_some(&x[..(r + 1) * depth], r * depth + whole);
            for (s, sum) in sums.iter_mut().enumerate() {
                *sum = l.fma(x, l.load_some(&w[..(s + 1) * depth], s * depth + whole), *sum);
            }
        }
    }
    for (totals, sums) in totals.iter_mut().zip(&sums) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            let mut parts = [0f32; PARTS];
            l.store(*sum, &mut parts, 0);
            *total = halves(&parts, |a, b| a + b);
        }
    }
}

lanes! {
    /// The dot products of up to [`SAMPLES`] samples with [`SIDE`] rows of weights.
    fn meet(l; x: &[f32], w: &[f32], depth: usize) -> [[f32; SIDE]; SAMPLES] {
        let mut totals = [[0f32; SIDE]; SAMPLES];
        // As many at a time as there are registers for.
        let some = if L::COUNT == 16 { 4 } else { 2 };
        for (x, totals) in x.chunks(some * depth).zip(totals.chunks_mut(some)) {
            match x.len() / depth {
                1 => dots::<L, 1>(l, x, w, depth, totals),
                2 => dots::<L, 2>(l, x, w, depth, totals),
                3 => dots::<L, 3>(l, x, w, depth, totals),
                _ => dots::<L, 4>(l, x, w, depth, totals),
            }
        }
        totals
    }
}

/// The results of few samples: dot products with every row of the weights.
pub(super) fn results(pool: &mut Pool, e: Extent, x: &[f32], w: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
    let y = columns(y, e, pool.threads());
    pool.each_of(e.columns * e.depth, y, |_, mut some| {
        for unit in some.units() {
            let mut y = some.get(unit);
            let range = y.ranges()[3].clone();
            for column in range.clone().step_by(SIDE) {
                // The last ones are computed with some before them, again.
                let first = column.min(e.columns.saturating_sub(SIDE));
                let side = SIDE.min(e.columns);
                for (group, x) in x.chunks(SAMPLES * e.depth).enumerate() {
                    let products = if side == SIDE {
                        meet(x, &w[first * e.depth..], e.depth)
                    } else {
                        one_by_one(x, w, e.depth)
                    };
                    for (row, products) in products.iter().enumerate().take(x.len() / e.depth) {
                        let y = y.run([group * SAMPLES + row, 0, 0]);
                        for at in column..range.end.min(column + SIDE) {
                            y[at - range.start] = products[at - first] + bias.map_or(0.0, |bias| bias[at]);
                        }
                    }
                }
            }
        }
    });
}

/// The same with fewer rows of weights.
fn one_by_one(x: &[f32], w: &[f32], depth: usize) -> [[f32; SIDE]; SAMPLES] {
    let mut products = [[0f32; SIDE]; SAMPLES];
    for (x, products) in x.chunks_exact(depth).zip(&mut products) {
        for (w, product) in w.chunks_exact(depth).zip(products) {
            *product = super::loss::dot(x, w);
        }
    }
    products
}

/// Weights that are added to gradients: some rows, so far apart, and those rows behind them that memory is asked for
/// meanwhile.
struct Pile<'w> {
    w: &'w [f32],
    stride: usize,
    soon: Range<usize>,
}

/// Adds `N` rows of weights to the gradients of `S` samples, which are so far apart, each times its factor for each.
#[inline(always)]
fn pile<L: Lanes, const N: usize, const S: usize>(
    l: L,
    (sums, apart): (&mut [f32], usize),
    from: &Pile<'_>,
    factors: [&[f32]; S],
    len: usize,
) {
    let mut all = [[l.splat(0.0); N]; S];
    for (all, factors) in all.iter_mut().zip(factors) {
        for (all, factor) in all.iter_mut().zip(factors) {
            *all = l.splat(*factor);
        }
    }
    let w = &from.w[..(N - 1) * from.stride + len];
    let sums = &mut sums[..(S - 1) * apart + len];
    for at in (0..len / L::COUNT * L::COUNT).step_by(L::COUNT) {
        for next in from.soon.clone() {
            fetch_early(w.as_ptr().wrapping_add(next * from.stride + at), 1);
        }
        let mut some = [l.splat(0.0); S];
        for (s, some) in some.iter_mut().enumerate() {
            *some = l.load(sums, s * apart + at);
        }
        for n in 0..N {
            let w = l.load(w, n * from.stride + at);
            for (some, all) in some.iter_mut().zip(&all) {
                *some = l.fma(all[n], w, *some);
            }
        }
        for (s, some) in some.iter().enumerate() {
            l.store(*some, sums, s * apart + at);
        }
    }
    for at in len / L::COUNT * L::COUNT..len {
        for (s, factors) in factors.iter().enumerate() {
            for (n, factor) in factors.iter().enumerate() {
                sums[s * apart + at] = factor.mul_add(w[n * from.stride + at], sums[s * apart + at]);
            }
        }
    }
}

lanes! {
    /// Adds up to [`ROWS`] rows of weights to the gradients of one or two samples.
    fn pile_up(l; sums: &mut [f32], apart: usize, from: &Pile<'_>, factors: [&[f32]; 2], len: usize) {
        match (factors[0].len() == ROWS, factors[1].is_empty()) {
            (true, false) if L::COUNT == 16 => pile::<L, ROWS, 2>(l, (sums, apart), from, factors, len),
            (true, _) => {
                for (factors, sums) in factors.into_iter().zip(sums.chunks_mut(apart)) {
                    if !factors.is_empty() {
                        pile::<L, ROWS, 1>(l, (sums, apart), from, [factors], len);
                    }
                }
            }
            _ => {
                for (factors, sums) in factors.into_iter().zip(sums.chunks_mut(apart)) {
                    for (n, factor) in factors.iter().enumerate() {
                        let one = Pile { w: &from.w[n * from.stride..], stride: from.stride, soon: 0..0 };
                        pile::<L, 1, 1>(l, (&mut *sums, apart), &one, [std::slice::from_ref(factor)], len);
                    }
                }
            }
        }
    }
}

/// Some of the gradients of all samples, which begin where a line of the cache does.
#[repr(align(64))]
struct Gradients([f32; GRADIENTS]);

/// The gradients of few samples: sums of the rows of the weights, on top of what is there already where `add`. Of all samples
/// some columns are made at a time, while memory is asked for the weights that come next.
pub(super) fn slopes(pool: &mut Pool, e: Extent, w: &[f32], dy: &[f32], (dx, add): (&mut [f32], bool)) {
    let apart = GRADIENTS / e.rows / PARTS * PARTS;
    let dx = columns(dx, e, pool.threads());
    pool.each_of(e.columns * e.depth, dx, |_, mut some| {
        let mut sums = Gradients([0.0; GRADIENTS]);
        for unit in some.units() {
            let mut dx = some.get(unit);
            let range = dx.ranges()[3].clone();
            for first in range.clone().step_by(apart) {
                let len = apart.min(range.end - first);
                for (row, sums) in sums.0.chunks_exact_mut(apart).enumerate().take(e.rows) {
                    match add {
                        true => {
                            sums[..len].copy_from_slice(&dx.run([row, 0, 0])[first - range.start..][..len])
                        }
                        false => sums[..len].fill(0.0),
                    }
                }
                for top in (0..e.depth).step_by(ROWS) {
                    let rows = top..e.depth.min(top + ROWS);
                    let w = &w[top * e.columns + first..];
                    for (pair, sums) in sums.0.chunks_mut(2 * apart).enumerate().take(e.rows.div_ceil(2)) {
                        let of = |sample: usize| match sample < e.rows {
                            true => &dy[sample * e.depth..][rows.clone()],
                            false => &[][..],
                        };
                        // Every pair asks for as many of the next rows.
                        let share = (ROWS * 2).div_ceil(e.rows);
                        let soon =
                            (ROWS + pair * share).min(2 * ROWS)..(ROWS + (pair + 1) * share).min(2 * ROWS);
                        let from = Pile { w, stride: e.columns, soon };
                        pile_up(sums, apart, &from, [of(2 * pair), of(2 * pair + 1)], len);
                    }
                }
                for (row, sums) in sums.0.chunks_exact(apart).enumerate().take(e.rows) {
                    dx.run([row, 0, 0])[first - range.start..][..len].copy_from_slice(&sums[..len]);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_have_what_one_computes_by_hand() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut numbers = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
        for (rows, columns, depth) in [
            (1, 1, 1),
            (2, 3, 5),
            (3, 4, 16),
            (4, 50, 33),
            (7, 21, 40),
            (5, 600, 9),
            (15, 1100, 20),
            (2, 5, 700),
        ] {
            let (x, w, bias, dy) =
                (numbers(rows * depth), numbers(columns * depth), numbers(columns), numbers(rows * columns));
            for threads in [1, 2, 3] {
                let mut pool = Pool::new(threads);
                let mut y = vec![7f32; rows * columns];
                results(&mut pool, Extent::new(rows, columns, depth), &x, &w, Some(&bias), &mut y);
                for (i, y) in y.iter().enumerate() {
                    let product = |k: usize| x[i / columns * depth + k] * w[i % columns * depth + k];
                    let expected = bias[i % columns] + (0..depth).map(product).sum::<f32>();
                    assert!((y - expected).abs() < 1e-4, "{y} for {expected} at {i} of {rows} x {columns}");
                }
                // The weights of as many outputs as there were columns, for gradients of `depth` numbers.
                let mut dx = vec![7f32; rows * depth];
                slopes(&mut pool, Extent::new(rows, depth, columns), &w, &dy, (&mut dx, false));
                for (i, dx) in dx.iter().enumerate() {
                    let product = |k: usize| dy[i / depth * columns + k] * w[k * depth + i % depth];
                    let expected: f32 = (0..columns).map(product).sum();
                    assert!((dx - expected).abs() < 1e-4, "{dx} for {expected} at {i} of {rows} x {depth}");
                }
            }
        }
    }
}
