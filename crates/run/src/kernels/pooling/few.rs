//! The gradient of maxima whose windows are few beside pixels: each gives its own to a pixel by itself, and only where that
//! is is worked out for many at once.
//!
//! The rows of windows are made one first, pixel by pixel, so that as few rows as there are windows are laid out in runs:
//! the largest pixel of every column, and how far down the first such is. Of a window's columns those that have the largest
//! of all are left, and the one that is furthest up, or else furthest left, has it.
//!
//! Pixels that are not finite are not for this loop.

use super::Shape;
use super::rows::{Row, Runs};
use crate::kernels::simd::{Lanes, expect, fetch_early};

/// A number without room for fractions, the last bits of which are all zero.
const WHOLE: f32 = 8_388_608.0;

/// What lies beside an image is further down than all that does not.
const FAR: f32 = 4_194_304.0;

/// Pixels for each window from which on windows are few.
const FEW: u64 = 9;

/// Whether windows are few, and all of them begin in the image or reach into it.
pub(super) fn here(s: &Shape) -> bool {
    let form = &s.form;
    let begin = (s.to[1].max(1) - 1) * form.stride[1] as usize;
    let inside = form.padding[1] < form.window[1] && begin < s.from[1] + form.padding[1] as usize;
    form.stride[0] * form.stride[1] >= FEW && inside && s.from[0] * s.from[1] < FAR as usize
}

/// Rows of an image as windows see them, for one thread; aligned as [`Aligned`](super::rows::Aligned) says.
#[repr(align(64))]
pub(super) struct Columns {
    /// The largest pixels of the columns of a row of windows, in runs, and of the next.
    largest: [Row; 2],
    /// How far down they are, in pixels.
    down: [Row; 2],
    /// How far the largest pixels of windows are behind their first ones, in the last bits.
    found: Row,
}

impl Columns {
    /// Nothing yet.
    pub fn new() -> Columns {
        let row = |number| [number; super::rows::ROW];
        Columns { largest: [row(f32::NEG_INFINITY); 2], down: [row(FAR); 2], found: row(0.0) }
    }

    /// Makes the rows of a row of windows one, and lays it out.
    #[inline(always)]
    fn enter<L: Lanes, const T: usize>(&mut self, l: L, runs: &Runs, x: &[f32], side: usize) {
        let mut at = 0;
        while at < runs.width {
            let [mut largest, mut down] = [[l.splat(0.0); 3]; 2];
            for t in 0..T {
                (largest[t], down[t]) = column(l, x, runs.width, at + t * L::COUNT);
            }
            runs.lay::<L, T>(l, largest, at, &mut self.largest[side]);
            runs.lay::<L, T>(l, down, at, &mut self.down[side]);
            at += T * L::COUNT;
        }
    }

    /// Finds the largest pixels of windows.
    #[inline(always)]
    fn find<L: Lanes, const T: usize, const W: usize>(&mut self, l: L, runs: &Runs, side: usize) {
        let (largest, down) = (&self.largest[side], &self.down[side]);
        for at in (0..runs.to).step_by(L::COUNT) {
            let mut best = l.load(largest, at);
            for b in 1..runs.columns::<W>() {
                best = l.larger(l.load(largest, runs.tap::<T>(b) + at), best);
            }
            let mut first = l.splat(FAR);
            for b in 0..runs.columns::<W>() {
                let from = runs.tap::<T>(b) + at;
                let place = l.add(l.load(down, from), l.splat(b as f32));
                first = l.smaller(l.pick(l.equal(l.load(largest, from), best), place, first), first);
            }
            l.store(l.add(first, l.splat(WHOLE)), &mut self.found, at);
        }
    }

    /// The gradient of one plane.
    #[inline(always)]
    pub fn slopes<L: Lanes, const T: usize, const W: usize>(
        &mut self,
        l: L,
        (s, runs): (&Shape, &Runs),
        [x, dy]: [&[f32]; 2],
        dx: &mut [f32],
    ) {
        dx.fill(0.0);
        let (width, before) = (runs.width, s.form.padding[1] as usize);
        for i in 0..=s.to[0] {
            // What was just written cannot be read at once, so windows are looked at after the next rows are laid out.
            if i < s.to[0] {
                let (top, bottom, _) = s.cover(0, i);
                self.enter::<L, T>(l, runs, &x[top * width..bottom * width], i % 2);
                // Of the next plane as many rows as windows step down.
                let (next, count) = (x.len() + top * width, s.form.stride[0] as usize * width);
                fetch_early(x.as_ptr().wrapping_add(next), count);
                expect(dx.as_ptr().wrapping_add(next), count);
            }
            let Some(last) = i.checked_sub(1) else { continue };
            self.find::<L, T, W>(l, runs, last % 2);
            let top = s.cover(0, last).0 * width;
            let dy = &dy[last * runs.to..][..runs.to];
            for (j, (dy, found)) in dy.iter().zip(&self.found).enumerate() {
                let behind = (found.to_bits() & (WHOLE as u32 - 1)) as usize;
                dx[top + j * T + behind - before] += dy;
            }
        }
    }
}

/// The largest pixels of some columns of rows, and how far down the first such are, in pixels.
#[inline(always)]
fn column<L: Lanes>(l: L, x: &[f32], width: usize, at: usize) -> (L::Vector, L::Vector) {
    let (mut best, mut down) = (l.load_some(&x[..width], at), l.splat(0.0));
    let mut from = width;
    while from < x.len() {
        let pixels = l.load_some(&x[from..from + width], at);
        let larger = l.larger(pixels, best);
        down = l.pick(l.equal(larger, best), down, l.splat(from as f32));
        best = larger;
        from += width;
    }
    (best, down)
}

/// Whether all numbers are finite.
#[inline(always)]
pub(super) fn finite<L: Lanes>(l: L, numbers: &[f32]) -> bool {
    // Zeros, or not a number: of four sums, because each waits for itself.
    let (mut sums, zero) = ([l.splat(0.0); 4], l.splat(0.0));
    let whole = numbers.len() / (4 * L::COUNT) * (4 * L::COUNT);
    for at in (0..whole).step_by(4 * L::COUNT) {
        for (v, sum) in sums.iter_mut().enumerate() {
            *sum = l.fma(l.load(numbers, at + v * L::COUNT), zero, *sum);
        }
    }
    for at in (whole..numbers.len()).step_by(L::COUNT) {
        sums[0] = l.fma(l.load_some(numbers, at), zero, sums[0]);
    }
    let mut all = [0f32; 16];
    let [a, b, c, d] = sums;
    l.store(l.add(l.add(a, b), l.add(c, d)), &mut all, 0);
    all.iter().all(|sum| *sum == 0.0)
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::back;
    use super::*;

    /// Sums of such gradients are exact, whatever the order; many pixels are equal, and in some planes one is not finite.
    #[test]
    fn few_windows_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(11), 0);
        for _ in 0..300 {
            let window: [usize; 2] = std::array::from_fn(|_| random.usize(1..8));
            let padding: [usize; 4] = std::array::from_fn(|side| random.usize(..window[side % 2]));
            let from = [random.usize(7..30), random.usize(17..70)];
            let to =
                [0, 1].map(|axis| (from[axis] + padding[axis] + padding[axis + 2] - window[axis]) / 3 + 1);
            let (kind, window, padding) =
                (PoolKind::Max, window.map(|n| n as u64), padding.map(|n| n as u64));
            let s = Shape { form: Pool { kind, window, stride: [3; 2], padding, ceil: false }, from, to };
            let Some(runs) = Runs::new(&s).filter(|_| here(&s)) else { continue };
            tried += 1;
            let (planes, size) = (random.usize(1..5), from[0] * from[1]);
            let mut x: Vec<f32> = (0..planes * size).map(|_| random.i8(-3..3) as f32).collect();
            if random.bool() {
                x[random.usize(..size)] = [f32::NAN, f32::NEG_INFINITY][random.usize(..2)];
            }
            let dy: Vec<f32> = (0..planes * to[0] * to[1]).map(|_| random.i8(-9..9) as f32).collect();
            let [mut dx, mut expected] = [vec![1f32; x.len()], vec![0f32; x.len()]];
            back::max(&s, &runs, None, &x, &dy, &mut dx);
            back::max_plain(&s, &x, &dy, &mut expected);
            assert_eq!(dx, expected, "{s:?}, {planes} planes");
        }
        assert!(tried > 100, "{tried} shapes");
    }
}
