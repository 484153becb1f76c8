//! Windows of three by three pixels that are two apart: every other row of pixels is in two rows of windows, and every other
//! column in two columns of them. What such windows are made, and the gradient of their maxima.
//!
//! Rows are taken apart into pixels in even and in odd places, so that a vector has the same tap of neighbouring windows.
//! Going down the rows for the gradient, all that is known of the row that two rows of windows share stays in registers: the largest pixel of
//! each window there, which tap that is, and what the windows above gave it.
//!
//! Where a row has half a vector of windows, a vector has two rows of them, or of the gradient a row of two planes.
//!
//! Pixels that are not finite are not for this loop.

use super::rows::{Fold, Larger, ahead, put};
use super::wide_strides::all_zero;
use super::{Shape, Shares};
use crate::simd::Lanes;

/// What lies beside an image.
const OUTSIDE: f32 = f32::NEG_INFINITY;

/// Whether windows are two apart, and the first begin at most one pixel beside the image.
pub(super) fn applies(s: &Shape) -> bool {
    let form = &s.form;
    form.window == [3; 2] && form.stride == [2; 2] && form.padding[0] < 2 && form.padding[1] < 2
}

/// Whether half a vector of windows fills a row, and all rows, to the last pixel.
pub(super) fn halved<L: Lanes>(s: &Shape) -> bool {
    let full = (0..2).all(|axis| s.form.padding[axis] == 0 && s.from[axis] == 2 * s.to[axis] + 1);
    applies(s) && full && 2 * s.to[1] == L::COUNT
}

/// So many numbers from position `at` on; those beyond the end may be anything.
#[inline(always)]
fn pixels<L: Lanes>(l: L, x: &[f32], at: usize) -> L::Vector {
    if at + L::COUNT <= x.len() { l.load(x, at) } else { l.load_some(x, at) }
}

/// Vectors of the pixels in even and in odd places.
#[derive(Clone, Copy)]
struct Half<L: Lanes> {
    even: L::Vector,
    odd: L::Vector,
}

/// How rows of so many pixels end.
pub(super) struct Halves<L: Lanes> {
    l: L,
    width: usize,
    /// Which pixels in even and in odd places are in the row, of those that it ends among.
    there: [L::Mask; 2],
}

/// Rows of an image that a row of windows sees, at most three: where the first begins, and how many there are.
#[derive(Clone, Copy)]
struct Rows<'a> {
    x: &'a [f32],
    start: usize,
    count: usize,
    /// All three in whole vectors, where these are there.
    three: [&'a [f32]; 3],
}

impl<L: Lanes> Halves<L> {
    /// Of rows of so many pixels.
    #[inline(always)]
    pub fn new(l: L, width: usize) -> Halves<L> {
        let last = width / (2 * L::COUNT) * (2 * L::COUNT);
        Halves { l, width, there: [there(l, last, width), there(l, last + 1, width)] }
    }

    /// The rows of a row of windows, the first of which begins at a position of `x`.
    #[inline(always)]
    fn rows<'a>(&self, x: &'a [f32], start: usize, count: usize) -> Rows<'a> {
        let (mut three, len) = ([&x[..0]; 3], self.width.next_multiple_of(L::COUNT));
        if count == 3 && start + 2 * self.width + len <= x.len() {
            for (row, three) in three.iter_mut().enumerate() {
                *three = &x[start + row * self.width..][..len];
            }
        }
        Rows { x, start, count, three }
    }

    /// A vector of pixels of all rows, made one; of `THREE` rows in whole vectors, or of others.
    #[inline(always)]
    fn column<F: Fold, const THREE: bool>(
        &self,
        rows: Rows,
        at: usize,
        strange: &mut L::Vector,
    ) -> L::Vector {
        let l = self.l;
        if THREE {
            let [a, b, c] = [l.load(rows.three[0], at), l.load(rows.three[1], at), l.load(rows.three[2], at)];
            *strange = F::strange(l, c, F::strange(l, b, F::strange(l, a, *strange)));
            return F::quick(l, F::quick(l, a, b), c);
        }
        let mut all = pixels(l, rows.x, rows.start + at);
        *strange = F::strange(l, all, *strange);
        for row in 1..rows.count {
            let more = pixels(l, rows.x, rows.start + row * self.width + at);
            *strange = F::strange(l, more, *strange);
            all = F::quick(l, all, more);
        }
        all
    }

    /// The pixels of all rows from `at` on, made one: two vectors taken apart.
    #[inline(always)]
    fn look<F: Fold, const THREE: bool>(&self, rows: Rows, at: usize, strange: &mut L::Vector) -> Half<L> {
        let (l, n, outside) = (self.l, L::COUNT, self.l.splat(F::OUTSIDE));
        if at >= self.width {
            return Half { even: outside, odd: outside };
        }
        let low = self.column::<F, THREE>(rows, at, strange);
        let high = if at + n < self.width { self.column::<F, THREE>(rows, at + n, strange) } else { outside };
        let [mut even, mut odd] = l.part(low, high);
        if at + 2 * n > self.width {
            even = l.pick(self.there[0], even, outside);
            odd = l.pick(self.there[1], odd, outside);
        }
        Half { even, odd }
    }

    /// A row of results, the first window of which begins `LEFT` columns beside the image, at position `to` of `y`.
    #[inline(always)]
    fn row<F: Fold, const LEFT: usize, const THREE: bool>(
        &self,
        rows: Rows,
        share: Option<(L::Vector, &Shares)>,
        (y, to, count): (&mut [f32], usize, usize),
        strange: &mut L::Vector,
    ) {
        let (l, n) = (self.l, L::COUNT);
        let mut before = l.splat(F::OUTSIDE);
        let mut now = self.look::<F, THREE>(rows, 0, strange);
        for at in (0..count).step_by(n) {
            // Two rows of pixels are left behind with each row of windows.
            for line in 0..4 {
                ahead(rows.x, rows.start + 4 * at + line * n);
            }
            ahead(y, to + at);
            let mut next = now;
            if LEFT == 0 || at + n < count {
                next = self.look::<F, THREE>(rows, 2 * (at + n), strange);
            }
            let Half { even, odd } = now;
            let taps = match LEFT {
                0 => [even, odd, l.slide::<1>(even, next.even)],
                _ => [l.follow(before, odd), even, odd],
            };
            let mut all = F::quick(l, F::quick(l, taps[0], taps[1]), taps[2]);
            if let Some((share, shares)) = share {
                all = l.mul(l.mul(all, share), l.load(&shares.columns, at));
            }
            // What is beyond the end of a row is written again with the next.
            put(l, all, y, to + at);
            (before, now) = (odd, next);
        }
    }

    /// One plane of results, whose image begins at a position of `x`, and it at one of `y`; returns false, and they are not
    /// right, where a pixel is not a number and `F` cares.
    #[inline(always)]
    pub fn plane<F: Fold, const LEFT: usize>(
        &self,
        s: &Shape,
        shares: Option<&Shares>,
        (x, first): (&[f32], usize),
        (y, begin): (&mut [f32], usize),
    ) -> bool {
        let mut strange = self.l.splat(0.0);
        for i in 0..s.to[0] {
            let (top, bottom, _) = s.cover(0, i);
            let rows = self.rows(x, first + top * self.width, bottom - top);
            let share = shares.map(|shares| (self.l.splat(shares.rows[i]), shares));
            let to = (&mut *y, begin + i * s.to[1], s.to[1]);
            match rows.three[0].is_empty() {
                false => self.row::<F, LEFT, true>(rows, share, to, &mut strange),
                true => self.row::<F, LEFT, false>(rows, share, to, &mut strange),
            }
        }
        F::fine(self.l, strange)
    }

    /// The larger of neighbouring pixels of a row that begins at a position of `x`.
    #[inline(always)]
    fn neighbours(&self, x: &[f32], start: usize, strange: &mut L::Vector) -> L::Vector {
        let l = self.l;
        ahead(x, start);
        let [a, b] = [l.load(x, start), l.load(x, start + 1)];
        *strange = l.add(l.add(*strange, a), b);
        l.larger(b, a)
    }

    /// One plane of maxima whose rows have [half a vector](halved) of windows, two rows at a time; the rest is as for
    /// [`Halves::plane`].
    #[inline(always)]
    pub fn rows_of_two(
        &self,
        s: &Shape,
        (x, first): (&[f32], usize),
        (y, begin): (&mut [f32], usize),
    ) -> bool {
        let (l, mut strange, last) = (self.l, self.l.splat(0.0), 2 * s.to[0]);
        let y = &mut y[..begin + s.to[0] * s.to[1]];
        let mut shared = self.neighbours(x, first, &mut strange);
        for i in (0..s.to[0]).step_by(2) {
            // Of a row of windows that is not there nothing is written.
            let mut next = [shared; 4];
            for (row, next) in next.iter_mut().enumerate() {
                let row = (2 * i + 1 + row).min(last);
                *next = self.neighbours(x, first + row * self.width, &mut strange);
            }
            let [a, b, c, d] = next;
            let low = l.larger(b, l.larger(a, shared));
            let high = l.larger(d, l.larger(c, b));
            let [even, odd] = l.part(low, high);
            ahead(y, begin + i * s.to[1]);
            put(l, l.larger(odd, even), y, begin + i * s.to[1]);
            shared = d;
        }
        Larger::fine(l, strange)
    }
}

/// The vectors of windows in a row of so many pixels, where there is a loop for them.
pub(super) fn vectors<L: Lanes>(s: &Shape) -> Option<usize> {
    // Every window begins in the image or reaches into it.
    let begin = (s.to[1].max(1) - 1) * 2;
    let count = match s.from[1].div_ceil(2 * L::COUNT) {
        count @ ..=5 => count,
        count => count.next_power_of_two(),
    };
    let fits = s.to[1] <= count * L::COUNT && begin < s.from[1] + s.form.padding[1] as usize;
    (applies(s) && fits && count <= 8).then_some(count)
}

/// A row of an image as `V` vectors of windows see it.
#[derive(Clone, Copy)]
struct Seen<L: Lanes, const V: usize> {
    /// The largest pixels.
    best: [L::Vector; V],
    /// Where the first is as large as the second, and one of these as large as the third.
    first: [L::Mask; V],
    early: [L::Mask; V],
}

/// A plane and its windows, the first of which begin `LEFT` columns beside the image; or with the next, where rows have
/// [half a vector](halved) of windows: a vector has then first those of this one.
struct Plane<'a, L: Lanes, const V: usize, const LEFT: usize, const TWO: bool> {
    l: L,
    /// Pixels, of which those of the plane begin somewhere.
    x: &'a [f32],
    first: usize,
    height: usize,
    width: usize,
    /// The sums of pixels that were seen.
    sums: L::Vector,
    /// Which pixels in even and in odd places are in a row.
    there: [[L::Mask; 2]; V],
}

impl<L: Lanes, const V: usize, const LEFT: usize, const TWO: bool> Plane<'_, L, V, LEFT, TWO> {
    /// A row beside the image.
    #[inline(always)]
    fn outside(&self) -> Seen<L, V> {
        let (l, outside) = (self.l, self.l.splat(OUTSIDE));
        let same = l.equal(outside, outside);
        Seen { best: [outside; V], first: [same; V], early: [same; V] }
    }

    /// A row, which may lie below the image.
    #[inline(always)]
    fn look(&mut self, row: usize) -> Seen<L, V> {
        let mut seen = self.outside();
        let (l, outside) = (self.l, self.l.splat(OUTSIDE));
        if row >= self.height {
            return seen;
        }
        let start = self.first + row * self.width;
        if TWO {
            let taps = self.taps_of_two(start);
            (seen.best[0], [seen.first[0], seen.early[0]]) = largest_of(l, taps);
            return seen;
        }
        let whole = self.x.get(start..start + 2 * V * L::COUNT);
        let [mut even, mut odd] = [[outside; V]; 2];
        for v in 0..V {
            let inside = 2 * v * L::COUNT;
            let both = match whole {
                // Of the next rows, which are not looked at.
                Some(row) => [l.load(row, inside), l.load(row, inside + L::COUNT)],
                None => {
                    let at = start + inside;
                    [pixels(l, self.x, at), pixels(l, self.x, at + L::COUNT)]
                }
            };
            self.sums = l.add(l.add(self.sums, both[0]), both[1]);
            ahead(self.x, start + inside);
            if inside + L::COUNT < self.width {
                ahead(self.x, start + inside + L::COUNT);
            }
            [even[v], odd[v]] = l.part(both[0], both[1]);
            if 2 * (v + 1) * L::COUNT > self.width {
                even[v] = l.pick(self.there[v][0], even[v], outside);
                odd[v] = l.pick(self.there[v][1], odd[v], outside);
            }
        }
        for v in 0..V {
            let taps = if LEFT == 1 {
                let before = if v > 0 { odd[v - 1] } else { outside };
                [l.follow(before, odd[v]), even[v], odd[v]]
            } else {
                let behind = if v + 1 < V { even[v + 1] } else { outside };
                [even[v], odd[v], l.slide::<1>(even[v], behind)]
            };
            (seen.best[v], [seen.first[v], seen.early[v]]) = largest_of(l, taps);
        }
        seen
    }

    /// The taps of the windows of a row of this plane and the next.
    #[inline(always)]
    fn taps_of_two(&mut self, start: usize) -> [L::Vector; 3] {
        let l = self.l;
        let mut all = [[self.sums; 2]; 2];
        for (plane, [begin, later]) in all.iter_mut().enumerate() {
            let start = start + plane * self.height * self.width;
            ahead(self.x, start);
            // The last vector has pixels of windows in even places only.
            (*begin, *later) = (l.load(self.x, start), pixels(l, self.x, start + 2));
            self.sums = l.add(l.add(self.sums, *begin), *later);
        }
        let [even, odd] = l.part(all[0][0], all[1][0]);
        [even, odd, l.part(all[0][1], all[1][1])[0]]
    }

    /// Writes what falls to the taps of a row of this plane and the next.
    #[inline(always)]
    fn hand_on_two(&self, row: usize, taps: [L::Vector; 3], dx: &mut [f32]) {
        let (l, zero) = (self.l, self.l.splat(0.0));
        // The last window of the first plane has nothing to do with the first of the second.
        let last = l.these(1 << (L::COUNT / 2 - 1));
        let next = l.pick(last, zero, l.slide::<1>(taps[0], zero));
        let both = l.join(taps[1], l.add(taps[2], next));
        let firsts = [taps[0], l.halve(taps[0], taps[0])[1]];
        for plane in 0..2 {
            let at = self.first + (plane * self.height + row) * self.width;
            ahead(dx, at);
            // The first pixel, and then all others.
            l.store(firsts[plane], dx, at);
            l.store(both[plane], dx, at + 1);
        }
    }

    /// Hands the gradients of a row on to its pixels. What is written beyond its end is written again with the next.
    #[inline(always)]
    fn hand_on(&self, row: usize, seen: &Seen<L, V>, dy: [L::Vector; V], dx: &mut [f32]) {
        let (l, zero) = (self.l, self.l.splat(0.0));
        let mut taps = [[zero; V]; 3];
        for v in 0..V {
            let early = l.pick(seen.early[v], dy[v], zero);
            taps[2][v] = l.pick(seen.early[v], zero, dy[v]);
            taps[1][v] = l.pick(seen.first[v], zero, early);
            taps[0][v] = l.pick(seen.first[v], early, zero);
        }
        if TWO {
            return self.hand_on_two(row, [taps[0][0], taps[1][0], taps[2][0]], dx);
        }
        for v in 0..V {
            let [even, odd] = if LEFT == 1 {
                let behind = if v + 1 < V { taps[0][v + 1] } else { zero };
                [taps[1][v], l.add(taps[2][v], l.slide::<1>(taps[0][v], behind))]
            } else {
                let before = if v > 0 { taps[2][v - 1] } else { zero };
                [l.add(taps[0][v], l.follow(before, taps[2][v])), taps[1][v]]
            };
            for (half, numbers) in l.join(even, odd).into_iter().enumerate() {
                let inside = (2 * v + half) * L::COUNT;
                if inside < self.width {
                    let at = self.first + row * self.width + inside;
                    ahead(dx, at);
                    put(l, numbers, dx, at);
                }
            }
        }
    }
}

/// The largest of three taps, where the first is as large as the second, and where one of these is as large as the third.
#[inline(always)]
fn largest_of<L: Lanes>(l: L, taps: [L::Vector; 3]) -> (L::Vector, [L::Mask; 2]) {
    let both = l.larger(taps[1], taps[0]);
    let best = l.larger(taps[2], both);
    (best, [l.equal(both, taps[0]), l.equal(best, both)])
}

/// Which places of a row are in it, of every other one from the first on.
#[inline(always)]
fn there<L: Lanes>(l: L, first: usize, width: usize) -> L::Mask {
    let inside: [f32; 16] = std::array::from_fn(|at| if first + 2 * at < width { 1.0 } else { 0.0 });
    l.equal(l.load(&inside, 0), l.splat(1.0))
}

/// The gradient of plane number `number`, or of `TWO` from there on; returns false, and it is not right, where a pixel is not
/// finite.
#[inline(always)]
pub(super) fn slopes<L: Lanes, const V: usize, const LEFT: usize, const TWO: bool>(
    l: L,
    (s, number): (&Shape, usize),
    [x, dy]: [&[f32]; 2],
    dx: &mut [f32],
) -> bool {
    let ([height, width], above) = (s.from, s.form.padding[0] as usize);
    let (first, windows) = (number * height * width, number * s.to[0] * s.to[1]);
    let zero = l.splat(0.0);
    let mut plane = Plane::<L, V, LEFT, TWO> {
        l,
        x,
        first,
        height,
        width,
        sums: zero,
        there: [[there(l, 0, width); 2]; V],
    };
    for (v, masks) in plane.there.iter_mut().enumerate() {
        let first = 2 * v * L::COUNT;
        *masks = [there(l, first, width), there(l, first + 1, width)];
    }
    // The row that a row of windows begins with, and what falls to it.
    let mut shared = if above == 1 { plane.outside() } else { plane.look(0) };
    let mut sums = [zero; V];
    for i in 0..s.to[0] {
        let (middle, end) = (plane.look(2 * i + 1 - above), plane.look(2 * i + 2 - above));
        let start = windows + i * s.to[1];
        let [mut given, mut next] = [[zero; V]; 2];
        for v in 0..V {
            // Beyond the last window of a row nothing may be given.
            let at = v * L::COUNT;
            ahead(dy, start + at);
            let all = match at + L::COUNT <= s.to[1] {
                _ if TWO => {
                    let other = pixels(l, dy, start + s.to[0] * s.to[1]);
                    l.halve(pixels(l, dy, start), other)[0]
                }
                true => l.load(dy, start + at),
                false => l.load_some(&dy[..start + s.to[1]], start + at),
            };
            let both = l.larger(middle.best[v], shared.best[v]);
            let best = l.larger(end.best[v], both);
            let early = l.equal(best, both);
            let first = l.equal(both, shared.best[v]);
            next[v] = l.pick(early, zero, all);
            let all = l.pick(early, all, zero);
            given[v] = l.pick(first, zero, all);
            sums[v] = l.add(sums[v], l.pick(first, all, zero));
        }
        if let Some(row) = (2 * i).checked_sub(above) {
            plane.hand_on(row, &shared, sums, dx);
        }
        if 2 * i + 1 - above < height {
            plane.hand_on(2 * i + 1 - above, &middle, given, dx);
        }
        (shared, sums) = (end, next);
    }
    let row = 2 * s.to[0] - above;
    if row < height {
        plane.hand_on(row, &shared, sums, dx);
    }
    dx[first..first + height * width][((row + 1) * width).min(height * width)..].fill(0.0);
    // Of a sum that is not finite nothing makes zeros.
    all_zero(l, l.mul(plane.sums, zero))
}

/// The same for so many vectors of windows.
#[inline(always)]
pub(super) fn slopes_of<L: Lanes>(
    l: L,
    vectors: usize,
    how: (&Shape, usize),
    both: [&[f32]; 2],
    dx: &mut [f32],
) -> bool {
    match (vectors, how.0.form.padding[1]) {
        (1, 0) => slopes::<L, 1, 0, false>(l, how, both, dx),
        (1, _) => slopes::<L, 1, 1, false>(l, how, both, dx),
        (2, 0) => slopes::<L, 2, 0, false>(l, how, both, dx),
        (2, _) => slopes::<L, 2, 1, false>(l, how, both, dx),
        (3, 0) => slopes::<L, 3, 0, false>(l, how, both, dx),
        (3, _) => slopes::<L, 3, 1, false>(l, how, both, dx),
        (4, 0) => slopes::<L, 4, 0, false>(l, how, both, dx),
        (4, _) => slopes::<L, 4, 1, false>(l, how, both, dx),
        (5, 0) => slopes::<L, 5, 0, false>(l, how, both, dx),
        (5, _) => slopes::<L, 5, 1, false>(l, how, both, dx),
        (_, 0) => slopes::<L, 8, 0, false>(l, how, both, dx),
        (_, _) => slopes::<L, 8, 1, false>(l, how, both, dx),
    }
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::rows::Runs;
    use super::super::{back, largest, mean, plain};
    use super::*;

    #[test]
    fn windows_that_are_two_apart_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(13), 0);
        for _ in 0..400 {
            let mut padding: [usize; 4] = std::array::from_fn(|_| random.usize(..2));
            let wide = [130, 270][random.usize(..2)];
            let mut from = [random.usize(2..20), random.usize(17..wide)];
            // Half a vector of windows, of every kind of vectors.
            let half = [9, 17, 0, 0][random.usize(..4)];
            if half > 0 {
                (padding, from) = ([0; 4], [2 * random.usize(1..10) + 1, half]);
            }
            let ends = |axis: usize| from[axis] + padding[axis] + padding[axis + 2];
            if (0..2).any(|axis| ends(axis) < 3) {
                continue;
            }
            let to = [0, 1].map(|axis| {
                (ends(axis) - 3) / 2 + 1
                    - random.usize(..2).min((ends(axis) - 3) / 2) * usize::from(half == 0)
            });
            let (kind, padding) = (PoolKind::Max, padding.map(|n| n as u64));
            let form = Pool { kind, window: [3; 2], stride: [2; 2], padding, ceil: false };
            let s = Shape { form, from, to };
            let Some(runs) = Runs::new(&s) else { continue };
            tried += 1;
            back::tests::check(&s, &runs, &mut random);
            forward(&s, &runs, &mut random);
        }
        assert!(tried > 200, "{tried} shapes");
    }

    /// The largest and the mean of every window of some random planes are those of single ones.
    fn forward(s: &Shape, runs: &Runs, random: &mut fastrand::Rng) {
        let (planes, strange) = (random.usize(1..4), random.usize(..4));
        let [from, to] = [s.from, s.to].map(|[rows, columns]| planes * rows * columns);
        let mut x: Vec<f32> = (0..from).map(|_| random.i8(-9..9) as f32).collect();
        if strange < 2 {
            x[random.usize(..from)] = [f32::NAN, f32::NEG_INFINITY][strange];
        }
        let [mut y, mut expected] = [vec![1f32; to], vec![0f32; to]];
        let better = |best: f32, x: f32| if x > best || x.is_nan() { x } else { best };
        largest(s, runs, None, &x, &mut y);
        plain(s, &x, &mut expected, f32::NEG_INFINITY, better);
        let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        assert!(y.iter().zip(&expected).all(same), "largest of {s:?}");
        x.iter_mut().for_each(|x| *x = random.i8(-9..9) as f32);
        mean(s, runs, None, &Shares::new(s, None, false), &x, &mut y);
        plain(s, &x, &mut expected, 0.0, |sum, x| sum + x);
        for (at, (y, sum)) in y.iter().zip(expected).enumerate() {
            let [i, j] = [at / s.to[1] % s.to[0], at % s.to[1]];
            let share = s.share(0, i, false) * s.share(1, j, false);
            assert!((y - sum * share).abs() < 1e-5, "mean of {s:?}");
        }
    }
}
