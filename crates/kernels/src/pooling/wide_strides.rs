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
use crate::simd::{Lanes, expect, fetch_early};

/// A number without room for fractions, the last bits of which are all zero.
const WHOLE: f32 = 8_388_608.0;

/// What lies beside an image is further down than all that does not.
const FAR: f32 = 4_194_304.0;

/// Pixels for each window from which on windows are few.
const FEW: u64 = 9;

/// Whether windows are few, and all of them begin in the image or reach into it.
pub(super) fn applies(s: &Shape) -> bool {
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

    /// Makes the rows of a row of windows one, and lays it out; returns whether all pixels are finite.
    #[inline(always)]
    fn enter<L: Lanes, const T: usize>(&mut self, l: L, runs: &Runs, x: &[f32], side: usize) -> bool {
        // Which pixels of the last vector are in the row.
        let rest = runs.width % L::COUNT;
        let inside: [f32; 16] = std::array::from_fn(|lane| if lane < rest { 1.0 } else { 0.0 });
        let inside = l.equal(l.load(&inside, 0), l.splat(1.0));
        let (mut at, mut zeros) = (0, l.splat(0.0));
        while at < runs.width {
            // Vectors that begin in the row.
            let some = (runs.width - at).div_ceil(L::COUNT).min(T);
            let mut found = match some {
                1 => columns::<L, 1>(l, x, runs.width, at),
                2 => columns::<L, 2>(l, x, runs.width, at),
                _ => columns::<L, 3>(l, x, runs.width, at),
            };
            for v in 0..T {
                // The last vector of the row; its number is known to the compiler, so nothing leaves registers.
                if v + 1 == some && at + some * L::COUNT > runs.width {
                    found.largest[v] = l.pick(inside, found.largest[v], l.splat(f32::NEG_INFINITY));
                    found.down[v] = l.pick(inside, found.down[v], l.splat(FAR));
                }
            }
            zeros = l.add(zeros, found.zeros);
            if runs.whole::<L, T>(at) {
                runs.lay_whole::<L, T>(l, found.largest, at, &mut self.largest[side]);
                runs.lay_whole::<L, T>(l, found.down, at, &mut self.down[side]);
            } else {
                runs.lay::<L, T>(l, found.largest, at, &mut self.largest[side]);
                runs.lay::<L, T>(l, found.down, at, &mut self.down[side]);
            }
            at += T * L::COUNT;
        }
        all_zero(l, zeros)
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

    /// The gradient of one plane; returns false, and it is not done, where a pixel is not finite.
    #[inline(always)]
    pub fn slopes<L: Lanes, const T: usize, const W: usize>(
        &mut self,
        l: L,
        (s, runs): (&Shape, &Runs),
        [x, dy]: [&[f32]; 2],
        dx: &mut [f32],
    ) -> bool {
        dx.fill(0.0);
        let (width, before) = (runs.width, s.form.padding[1] as usize);
        for i in 0..=s.to[0] {
            // What was just written cannot be read at once, so windows are looked at after the next rows are laid out.
            if i < s.to[0] {
                let (top, bottom, _) = s.cover(0, i);
                if !self.enter::<L, T>(l, runs, &x[top * width..bottom * width], i % 2) {
                    return false;
                }
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
        true
    }
}

/// Up to three vectors of columns.
struct Found<L: Lanes> {
    /// The largest pixels, and how far down the first such are, in pixels.
    largest: [L::Vector; 3],
    down: [L::Vector; 3],
    /// Zeros, unless a pixel was not finite.
    zeros: L::Vector,
}

/// What is found in the first `V` vectors of columns from `at` on. Those beyond the end of a row may be anything.
#[inline(always)]
fn columns<L: Lanes, const V: usize>(l: L, x: &[f32], width: usize, at: usize) -> Found<L> {
    let (wide, zero) = (l.splat(width as f32), l.splat(0.0));
    let (mut largest, mut down) = ([l.splat(f32::NEG_INFINITY); 3], [l.splat(FAR); 3]);
    let (mut zeros, mut number) = ([zero; V], zero);
    for v in 0..V {
        (largest[v], down[v]) = (pixels(l, x, at + v * L::COUNT), zero);
        zeros[v] = l.mul(largest[v], zero);
    }
    let mut from = width + at;
    while from < x.len() {
        number = l.add(number, wide);
        for v in 0..V {
            let more = pixels(l, x, from + v * L::COUNT);
            let larger = l.larger(more, largest[v]);
            zeros[v] = l.fma(more, zero, zeros[v]);
            down[v] = l.pick(l.equal(larger, largest[v]), down[v], number);
            largest[v] = larger;
        }
        from += width;
    }
    let mut all = zeros[0];
    zeros[1..].iter().for_each(|more| all = l.add(all, *more));
    Found { largest, down, zeros: all }
}

/// Some pixels, and zeros where there are no more.
#[inline(always)]
fn pixels<L: Lanes>(l: L, x: &[f32], at: usize) -> L::Vector {
    if at + L::COUNT <= x.len() { l.load(x, at) } else { l.load_some(x, at) }
}

/// Whether all numbers of a vector are zero.
#[inline(always)]
pub(super) fn all_zero<L: Lanes>(l: L, numbers: L::Vector) -> bool {
    let mut all = [0f32; 16];
    l.store(numbers, &mut all, 0);
    all.iter().fold(true, |fine, number| fine & (*number == 0.0))
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::back;
    use super::*;

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
            let Some(runs) = Runs::new(&s).filter(|_| applies(&s)) else { continue };
            tried += 1;
            back::tests::check(&s, &runs, &mut random);
        }
        assert!(tried > 100, "{tried} shapes");
    }
}
