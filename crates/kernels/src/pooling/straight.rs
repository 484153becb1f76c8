//! The gradient of means whose windows overlap no more than their neighbours: a pixel is in two rows of windows at most, and
//! in two columns of them, so all that it needs stays in registers.
//!
//! A vector has the sums of a column of windows for neighbouring columns. Every tap of these windows gets one of them, or
//! two that are neighbours: of the pixels that a vector of windows begins, those with the same tap are a vector, and they
//! are put together in turn.

use super::rows::{Runs, put_joined};
use super::spread::Band;
use super::{Shape, Shares};
use crate::simd::Lanes;

/// Whether windows overlap no more than their neighbours.
pub(super) fn applies(s: &Shape) -> bool {
    let form = &s.form;
    let near = (0..2).all(|axis| form.window[axis] <= 2 * form.stride[axis]);
    near && form.stride[1] < 4 && form.padding[1] < form.stride[1]
}

/// The vectors of windows in a row, where there is a loop for so many.
pub(super) fn vectors<L: Lanes>(s: &Shape) -> Option<usize> {
    let form = &s.form;
    let count =
        s.to[1].max(s.from[1].div_ceil(form.stride[1] as usize)).div_ceil(L::COUNT).next_power_of_two();
    (applies(s) && count <= 4).then_some(count)
}

/// Which windows are there, of `V` vectors.
#[inline(always)]
fn there<L: Lanes, const V: usize>(l: L, to: usize) -> [L::Mask; V] {
    let mut masks = [l.equal(l.splat(0.0), l.splat(0.0)); V];
    for (v, mask) in masks.iter_mut().enumerate() {
        let inside: [f32; 16] = std::array::from_fn(|at| if v * L::COUNT + at < to { 1.0 } else { 0.0 });
        *mask = l.equal(l.load(&inside, 0), l.splat(1.0));
    }
    masks
}

/// The gradients of some planes with `V` vectors of windows, `T` columns apart, the first of which begin `B` columns beside
/// the image.
#[inline(always)]
fn planes<L: Lanes, const T: usize, const B: usize, const V: usize>(
    l: L,
    (s, runs, shares): (&Shape, &Runs, &Shares),
    bands: &[Band],
    dy: &[f32],
    dx: &mut [f32],
) {
    let (width, to, n, zero) = (runs.width, runs.to, L::COUNT, l.splat(0.0));
    let (from, windows) = (s.from[0] * width, s.to[0] * to);
    let there = there::<L, V>(l, to);
    let mut columns = [zero; V];
    for (v, some) in columns.iter_mut().enumerate() {
        *some = l.load(&shares.columns, v * n);
    }
    // Whether a tap is one of a window, and whether the window before has one more there.
    let window = s.form.window[1] as usize;
    let (mut first, mut second) = ([false; T], [false; T]);
    for tap in 0..T {
        (first[tap], second[tap]) = (tap < window, tap + T < window);
    }
    for plane in 0..dx.len() / from {
        for band in bands {
            let mut sums = [zero; V];
            for r in band.low..band.low + band.windows {
                let (at, share) = (plane * windows + r * to, l.splat(shares.rows[r]));
                let row = dy.get(at..at + V * n);
                for v in 0..V {
                    let some = match row {
                        // Of the next row, which is not looked at.
                        Some(row) => l.load(row, v * n),
                        None => l.load_some(dy, at + v * n),
                    };
                    let part = l.mul(l.pick(there[v], some, zero), share);
                    sums[v] = if r > band.low { l.add(sums[v], part) } else { part };
                }
            }
            for v in 0..V {
                sums[v] = l.mul(sums[v], columns[v]);
            }
            let start = plane * from + band.first * width;
            // What is written beyond the end of a row is written again with the next.
            for v in 0..V {
                let before = if v > 0 { sums[v - 1] } else { zero };
                let behind = if v + 1 < V { sums[v + 1] } else { zero };
                let windows = [l.follow(before, sums[v]), sums[v], l.slide::<1>(sums[v], behind)];
                let mut all = [zero; 3];
                for (r, all) in all.iter_mut().enumerate().take(T) {
                    let (tap, window) = ((B + r) % T, 1 + (B + r) / T);
                    if first[tap] {
                        *all = l.add(zero, windows[window]);
                    }
                    if second[tap] {
                        *all = l.add(*all, windows[window - 1]);
                    }
                }
                put_joined::<L, T>(l, all, (v * T * n, width), start, dx);
            }
            if band.count > 1 {
                let inside = Band { first: plane * s.from[0] + band.first, ..*band };
                inside.copy(l, width, dx);
            }
        }
    }
}

/// The gradients of some planes with so many vectors of windows.
#[inline(always)]
pub(super) fn slopes<L: Lanes>(
    l: L,
    vectors: usize,
    how: (&Shape, &Runs, &Shares),
    bands: &[Band],
    dy: &[f32],
    dx: &mut [f32],
) {
    macro_rules! by_vectors {
        ($stride:literal, $before:literal) => {
            match vectors {
                1 => planes::<L, $stride, $before, 1>(l, how, bands, dy, dx),
                2 => planes::<L, $stride, $before, 2>(l, how, bands, dy, dx),
                _ => planes::<L, $stride, $before, 4>(l, how, bands, dy, dx),
            }
        };
    }
    match (how.0.form.stride[1], how.0.form.padding[1]) {
        (1, _) => by_vectors!(1, 0),
        (2, 0) => by_vectors!(2, 0),
        (2, _) => by_vectors!(2, 1),
        (_, 0) => by_vectors!(3, 0),
        (_, 1) => by_vectors!(3, 1),
        (_, _) => by_vectors!(3, 2),
    }
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::back;
    use super::*;

    #[test]
    fn means_of_windows_at_once_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(17), 0);
        for _ in 0..600 {
            let stride: [usize; 2] = std::array::from_fn(|_| random.usize(1..4));
            // Some reach further than to their neighbours.
            let window = stride.map(|stride| random.usize(1..=2 * stride + 1));
            let padding: [usize; 4] = std::array::from_fn(|side| random.usize(..window[side % 2]));
            let wide = [17, 70, 220][random.usize(..3)];
            let from = [random.usize(7..20), random.usize(7..wide)];
            let room = |axis: usize| from[axis] + padding[axis] + padding[axis + 2] - window[axis];
            let to = [0, 1].map(|axis| room(axis) / stride[axis] + 1);
            let kind = PoolKind::Average { count_padding: false };
            let [window, stride] = [window, stride].map(|both| both.map(|n| n as u64));
            let padding = padding.map(|n| n as u64);
            let s = Shape { form: Pool { kind, window, stride, padding, ceil: false }, from, to };
            let Some(runs) = Runs::new(&s) else { continue };
            tried += 1;
            back::tests::check_mean(&s, &runs, &mut random);
        }
        assert!(tried > 300, "{tried} shapes");
    }
}
