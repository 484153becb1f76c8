//! The gradient of maxima of three by three pixels whose windows are two apart: every other row of pixels is in two rows of
//! windows, and every other column in two columns of them.
//!
//! Rows are taken apart into pixels in even and in odd places, so that a vector has the same tap of neighbouring windows.
//! Going down the rows, all that is known of the row that two rows of windows share stays in registers: the largest pixel of
//! each window there, which tap that is, and what the windows above gave it.
//!
//! Pixels that are not finite are not for this loop.

use super::Shape;
use crate::kernels::simd::Lanes;

/// What lies beside an image.
const OUTSIDE: f32 = f32::NEG_INFINITY;

/// The vectors of windows in a row of so many pixels, where there is a loop for them.
pub(super) fn vectors<L: Lanes>(s: &Shape) -> Option<usize> {
    let form = &s.form;
    let near = form.window == [3; 2] && form.stride == [2; 2] && form.padding[0] < 2 && form.padding[1] < 2;
    // Every window begins in the image or reaches into it.
    let begin = (s.to[1].max(1) - 1) * 2;
    let count = s.from[1].div_ceil(2 * L::COUNT).next_power_of_two();
    let fits = s.to[1] <= count * L::COUNT && begin < s.from[1] + form.padding[1] as usize;
    (near && fits && count <= 4).then_some(count)
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

/// A plane and its windows, the first of which begin `LEFT` columns beside the image.
struct Plane<'a, L: Lanes, const V: usize, const LEFT: usize> {
    l: L,
    x: &'a [f32],
    width: usize,
    /// Which pixels in even and in odd places are in a row.
    there: [[L::Mask; 2]; V],
}

impl<L: Lanes, const V: usize, const LEFT: usize> Plane<'_, L, V, LEFT> {
    /// So many numbers from position `at` on; those beyond the end of the plane may be anything.
    #[inline(always)]
    fn pixels(&self, at: usize) -> L::Vector {
        let l = self.l;
        if at + L::COUNT <= self.x.len() { l.load(self.x, at) } else { l.load_some(self.x, at) }
    }

    /// A row beside the image.
    #[inline(always)]
    fn outside(&self) -> Seen<L, V> {
        let (l, outside) = (self.l, self.l.splat(OUTSIDE));
        let same = l.equal(outside, outside);
        Seen { best: [outside; V], first: [same; V], early: [same; V] }
    }

    /// A row, which may lie below the image.
    #[inline(always)]
    fn look(&self, row: usize) -> Seen<L, V> {
        let mut seen = self.outside();
        let (l, outside, start) = (self.l, self.l.splat(OUTSIDE), row * self.width);
        if start >= self.x.len() {
            return seen;
        }
        let [mut even, mut odd] = [[outside; V]; 2];
        for v in 0..V {
            let at = start + 2 * v * L::COUNT;
            [even[v], odd[v]] = l.part(self.pixels(at), self.pixels(at + L::COUNT));
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
            let both = l.larger(taps[1], taps[0]);
            seen.first[v] = l.equal(both, taps[0]);
            seen.best[v] = l.larger(taps[2], both);
            seen.early[v] = l.equal(seen.best[v], both);
        }
        seen
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
                let at = row * self.width + inside;
                if inside >= self.width {
                    continue;
                }
                if at + L::COUNT <= dx.len() {
                    l.store(numbers, dx, at);
                } else {
                    l.store_some(numbers, dx, at);
                }
            }
        }
    }
}

/// Which places of a row are in it, of every other one from the first on.
#[inline(always)]
fn there<L: Lanes>(l: L, first: usize, width: usize) -> L::Mask {
    let inside: [f32; 16] = std::array::from_fn(|at| if first + 2 * at < width { 1.0 } else { 0.0 });
    l.equal(l.load(&inside, 0), l.splat(1.0))
}

/// The gradient of one plane.
#[inline(always)]
pub(super) fn slopes<L: Lanes, const V: usize, const LEFT: usize>(
    l: L,
    s: &Shape,
    [x, dy]: [&[f32]; 2],
    dx: &mut [f32],
) {
    let ([height, width], above) = (s.from, s.form.padding[0] as usize);
    let mut plane = Plane::<L, V, LEFT> { l, x, width, there: [[there(l, 0, width); 2]; V] };
    for (v, masks) in plane.there.iter_mut().enumerate() {
        let first = 2 * v * L::COUNT;
        *masks = [there(l, first, width), there(l, first + 1, width)];
    }
    let zero = l.splat(0.0);
    // The row that a row of windows begins with, and what falls to it.
    let mut shared = if above == 1 { plane.outside() } else { plane.look(0) };
    let mut sums = [zero; V];
    for i in 0..s.to[0] {
        let (middle, end) = (plane.look(2 * i + 1 - above), plane.look(2 * i + 2 - above));
        let dy = &dy[i * s.to[1]..][..s.to[1]];
        let [mut given, mut next] = [[zero; V]; 2];
        for v in 0..V {
            let at = v * L::COUNT;
            let all = if at + L::COUNT <= dy.len() { l.load(dy, at) } else { l.load_some(dy, at) };
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
    dx[((row + 1) * width).min(height * width)..].fill(0.0);
}

/// The same for so many vectors of windows.
#[inline(always)]
pub(super) fn slopes_of<L: Lanes>(l: L, vectors: usize, s: &Shape, both: [&[f32]; 2], dx: &mut [f32]) {
    match (vectors, s.form.padding[1]) {
        (1, 0) => slopes::<L, 1, 0>(l, s, both, dx),
        (1, _) => slopes::<L, 1, 1>(l, s, both, dx),
        (2, 0) => slopes::<L, 2, 0>(l, s, both, dx),
        (2, _) => slopes::<L, 2, 1>(l, s, both, dx),
        (_, 0) => slopes::<L, 4, 0>(l, s, both, dx),
        (_, _) => slopes::<L, 4, 1>(l, s, both, dx),
    }
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::back;
    use super::super::rows::Runs;
    use super::*;

    #[test]
    fn windows_that_are_two_apart_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(13), 0);
        for _ in 0..400 {
            let padding: [usize; 4] = std::array::from_fn(|_| random.usize(..2));
            let from = [random.usize(2..20), random.usize(17..130)];
            let ends = |axis: usize| from[axis] + padding[axis] + padding[axis + 2];
            if (0..2).any(|axis| ends(axis) < 3) {
                continue;
            }
            let to =
                [0, 1].map(|axis| (ends(axis) - 3) / 2 + 1 - random.usize(..2).min((ends(axis) - 3) / 2));
            let (kind, padding) = (PoolKind::Max, padding.map(|n| n as u64));
            let form = Pool { kind, window: [3; 2], stride: [2; 2], padding, ceil: false };
            let s = Shape { form, from, to };
            let Some(runs) = Runs::new(&s) else { continue };
            tried += 1;
            back::tests::check(&s, &runs, &mut random);
        }
        assert!(tried > 200, "{tried} shapes");
    }
}
