//! The gradients of pooling, many windows at once.
//!
//! A window is taken apart by rows. What a row of the image has to do with a column of windows (the largest of its
//! pixels there) is the same for every row of windows that covers it, so it is worked out once, when the row enters a
//! ring; a row of windows then only chooses among rows, and its gradients are gathered there; and they are handed on to
//! pixels once, when no window covers the row any more.

use super::flat::{self, Flat};
use super::rows::{Aligned, LANES, Larger, RING, ROW, Row, Runs, Slopes, by_window, next};
use super::side_by_side::{AREA, Beside};
use super::spread::{Bands, slopes};
use super::two;
use super::wide_strides::{self, Columns};
use super::{Shape, Shares};
use crate::simd::{Keys, Lanes, Maxima, lanes};

/// Rows of an image as windows see them, for one thread; aligned as [`Aligned`] says.
#[repr(align(64))]
pub(super) struct Rings {
    /// A row in runs, and the next. What is beside an image stays less than everything.
    runs: [Row; 2],
    /// For every column of windows, the largest pixel of a row, and which it is, from [`LANES`] on.
    largest: [Row; RING],
    taps: [Row; RING],
    /// The gradients that fall to a row from every column of windows, from [`LANES`] on; zero before and behind.
    dy: [Row; RING],
    /// The first column of every window that is inside the image.
    first: Row,
}

/// The gradients of windows whose taps are chosen.
#[derive(Clone, Copy)]
struct Chosen<'a, const W: usize> {
    dy: &'a Row,
    taps: &'a Row,
    runs: &'a Runs,
}

impl<const W: usize> Slopes for Chosen<'_, W> {
    #[inline(always)]
    fn at<L: Lanes, const T: usize>(self, l: L, phase: usize, at: usize) -> L::Vector {
        let (mut sum, mut b) = (l.splat(0.0), phase);
        while b < self.runs.columns::<W>() {
            let from = LANES + at - b / T;
            let mine = l.equal(l.load(self.taps, from), l.splat(b as f32));
            sum = l.add(sum, l.pick(mine, l.load(self.dy, from), l.splat(0.0)));
            b += T;
        }
        sum
    }
}

impl Rings {
    /// Nothing yet, of planes one by one or side by side.
    pub fn new(s: &Shape, beside: Option<&Beside>) -> Rings {
        let windows = beside.map_or(ROW, Beside::windows);
        let [stride, before, window] =
            [s.form.stride[1], s.form.padding[1], s.form.window[1]].map(|n| n as usize);
        let outside = |at: usize| before.saturating_sub(at * stride).min(window.max(1) - 1);
        Rings {
            runs: [[f32::NEG_INFINITY; ROW]; 2],
            largest: [[0.0; ROW]; RING],
            taps: [[0.0; ROW]; RING],
            dy: [[0.0; ROW]; RING],
            first: std::array::from_fn(|at| outside(at % windows) as f32),
        }
    }

    /// Finds the largest pixel of a row that enters, for every column of windows.
    #[inline(always)]
    fn enter<L: Lanes, const T: usize, const W: usize>(&mut self, l: L, runs: &Runs, row: usize) {
        let x = &self.runs[row % 2];
        let [largest, taps, dy] =
            [&mut self.largest, &mut self.taps, &mut self.dy].map(|all| &mut all[row % RING]);
        for first in (0..runs.to).step_by(L::COUNT) {
            let (mut best, mut tap) = (l.load(x, first), l.load(&self.first, first));
            for b in 1..runs.columns::<W>() {
                let x = l.load(x, runs.tap::<T>(b) + first);
                let better = l.better(x, best);
                best = l.pick(better, x, best);
                tap = l.pick(better, l.splat(b as f32), tap);
            }
            l.store(best, largest, LANES + first);
            l.store(tap, taps, LANES + first);
            l.store(l.splat(0.0), dy, LANES + first);
        }
    }

    /// Gives the gradients of a row of windows to the rows that have the largest pixels.
    #[inline(always)]
    fn choose<L: Lanes>(&mut self, l: L, (top, bottom): (usize, usize), dy: &[f32]) {
        for at in (0..dy.len()).step_by(L::COUNT) {
            let all = l.load_some(dy, at);
            let mut best = l.load(&self.largest[top % RING], LANES + at);
            let (mut chosen, mut number) = (l.splat(0.0), l.splat(0.0));
            for row in top + 1..bottom {
                number = l.add(number, l.splat(1.0));
                let x = l.load(&self.largest[row % RING], LANES + at);
                let better = l.better(x, best);
                best = l.pick(better, x, best);
                chosen = l.pick(better, number, chosen);
            }
            number = l.splat(0.0);
            for row in top..bottom {
                let to = &mut self.dy[row % RING];
                let mine = l.equal(chosen, number);
                number = l.add(number, l.splat(1.0));
                let sum = l.add(l.load(to, LANES + at), l.pick(mine, all, l.splat(0.0)));
                l.store(sum, to, LANES + at);
            }
        }
    }

    /// Hands the gradients of a row that leaves on to its pixels: to the chosen ones.
    #[inline(always)]
    fn leave<L: Lanes, const T: usize, const W: usize>(&self, l: L, runs: &Runs, row: usize, dx: &mut [f32]) {
        let chosen = Chosen::<W> { dy: &self.dy[row % RING], taps: &self.taps[row % RING], runs };
        runs.join::<L, _, T>(l, chosen, row, dx);
    }

    /// Lets the rows from one to another leave, of which those from `entered` on are in no window.
    #[inline(always)]
    fn leave_all<L: Lanes, const T: usize, const W: usize>(
        &self,
        l: L,
        runs: &Runs,
        rows: std::ops::Range<usize>,
        entered: usize,
        dx: &mut [f32],
    ) {
        for row in rows {
            if row < entered {
                self.leave::<L, T, W>(l, runs, row, dx);
            } else {
                dx[row * runs.width..][..runs.width].fill(0.0);
            }
        }
    }
}

/// The gradient of one plane of a maximum.
#[inline(always)]
fn max_runs<L: Lanes, const T: usize, const W: usize>(
    l: L,
    s: &Shape,
    runs: &Runs,
    [x, dy]: [&[f32]; 2],
    dx: &mut [f32],
    rings: &mut Rings,
) {
    // Rows before these have left, and have entered or never will.
    let (mut left, mut entered) = (0, 0);
    // Rows before this one have been laid out, or never will be.
    let mut ready = 0;
    for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
        let (top, bottom, _) = s.cover(0, i);
        rings.leave_all::<L, T, W>(l, runs, left..top, entered, dx);
        (left, entered) = (left.max(top), entered.max(top));
        for row in entered..bottom {
            // What was just written cannot be read at once, so a row is laid out before the one before it is looked at.
            for row in ready.max(row)..(row + 2).min(s.from[0]) {
                let x = &x[row * runs.width..][..runs.width];
                runs.split::<L, Larger, T>(l, x, &mut rings.runs[row % 2]);
                ready = row + 1;
            }
            rings.enter::<L, T, W>(l, runs, row);
        }
        entered = entered.max(bottom);
        if top < bottom {
            rings.choose(l, (top, bottom), dy);
        }
    }
    rings.leave_all::<L, T, W>(l, runs, left..s.from[0], entered, dx);
}

/// The same where windows are few; returns false, and it is not done, where a pixel is not finite.
#[inline(always)]
fn max_few<L: Lanes, const T: usize, const W: usize>(
    l: L,
    how: (&Shape, &Runs),
    both: [&[f32]; 2],
    dx: &mut [f32],
    columns: &mut Columns,
) -> bool {
    columns.slopes::<L, T, W>(l, how, both, dx)
}

lanes! {
    /// The gradient of some planes of a maximum.
    pub(super) fn max(l; s: &Shape, runs: &Runs, beside: Option<&Beside>, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let mut rings = Rings::new(s, beside);
        let mut columns = (beside.is_none() && wide_strides::applies(s)).then(Columns::new);
        let two = two::vectors::<L>(s).filter(|_| beside.is_none());
        let [from, to] = beside.map_or([s.from, s.to].map(|[rows, columns]| rows * columns), Beside::counts);
        // Beside images lies what is less than everything, and beside windows nothing.
        let mut wide_x = Aligned([f32::NEG_INFINITY; AREA]);
        let Aligned([wide_dy, wide_dx]) = &mut Aligned([[0f32; AREA]; 2]);
        let halved = beside.is_none() && two::halved::<L>(s);
        let (mut next, count) = (0, x.len().div_ceil(from));
        while next < count {
            let number = next;
            if halved && number + 2 <= count && two::slopes::<L, 1, 0, true>(l, (s, number), [x, dy], dx) {
                next += 2;
                continue;
            }
            next += 1;
            if let (Some(vectors), None) = (two, &columns)
                && two::slopes_of(l, vectors, (s, number), [x, dy], dx)
            {
                continue;
            }
            let [some, windows] = [(from, x.len()), (to, dy.len())]
                .map(|(count, end)| number * count..end.min((number + 1) * count));
            let (x, dy, dx) = (&x[some.clone()], &dy[windows], &mut dx[some]);
            let (how, both, out): (_, _, &mut [f32]) = match beside {
                None => ((s, runs), [x, dy], &mut *dx),
                Some(beside) => {
                    let [image, windows] = beside.areas();
                    beside.put_images(x, &mut wide_x.0[..image]);
                    beside.put_windows(dy, &mut wide_dy[..windows]);
                    let both = [&wide_x.0[..image], &wide_dy[..windows]];
                    ((&beside.shape, &beside.runs), both, &mut wide_dx[..image])
                }
            };
            let done = match &mut columns {
                Some(columns) => by_window!(s, max_few::<L>(l, how, both, out, columns)),
                None => false,
            };
            if !done {
                by_window!(how.0, max_runs::<L>(l, how.0, how.1, both, out, &mut rings));
            }
            if let Some(beside) = beside {
                beside.take_images(&wide_dx[..beside.areas()[0]], dx);
            }
        }
    }
}

lanes! {
    /// The gradient of some planes of a mean.
    pub(super) fn mean(l; s: &Shape, runs: &Runs, beside: Option<&Beside>, shares: &Shares, dy: &[f32], dx: &mut [f32]) {
        let Aligned(sums) = &mut Aligned([[0f32; ROW]; RING]);
        let bands = Bands::new(s);
        let bands = bands.all();
        let Some(beside) = beside else {
            if flat::applies(s) {
                return match s.form.window[1] {
                    3 => Flat::back(s, shares).slopes::<L, 3>(l, (s, shares), dy, dx),
                    _ => Flat::back(s, shares).slopes::<L, 5>(l, (s, shares), dy, dx),
                };
            }
            let (from, to) = (s.from[0] * s.from[1], s.to[0] * s.to[1]);
            for (dy, dx) in dy.chunks_exact(to).zip(dx.chunks_exact_mut(from)) {
                by_window!(s, slopes::<L>(l, (runs, shares, bands), dy, dx, sums));
            }
            return;
        };
        let ([from, to], [image, windows]) = (beside.counts(), beside.areas());
        let Aligned([wide_dy, wide_dx]) = &mut Aligned([[0f32; AREA]; 2]);
        for (dy, dx) in dy.chunks(to).zip(dx.chunks_mut(from)) {
            beside.put_windows(dy, &mut wide_dy[..windows]);
            next(dy);
            next(dx);
            let (s, runs) = (&beside.shape, &beside.runs);
            let (dy, wide) = (&wide_dy[..windows], &mut wide_dx[..image]);
            by_window!(s, slopes::<L>(l, (runs, shares, bands), dy, wide, sums));
            beside.take_images(&wide_dx[..image], dx);
        }
    }
}

/// The gradient of a maximum of windows that are neighbours.
pub(super) fn max_straight(s: &Shape, maxima: Maxima, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    let [from, to] = [s.from, s.to].map(|[rows, columns]| rows * columns);
    let (mut together, mut done) = (maxima.together(), 0);
    // The last planes may be too few to lie side by side.
    for all in [x.len() / from / together * together, x.len() / from] {
        let mut keys = Keys::default();
        let (some, windows) = (done * from..all * from, done * to..all * to);
        let (mut x, mut dx, mut dy) = (&x[some.clone()], &mut dx[some], &dy[windows]);
        while !x.is_empty() {
            let good = maxima.slopes(together, x, dy, dx, &mut keys);
            (x, dy) = (&x[good * together * from..], &dy[good * together * to..]);
            dx = &mut dx[good * together * from..];
            // A pixel of the next ones is not a number.
            let (strange, windows) = ((together * from).min(x.len()), (together * to).min(dy.len()));
            max_plain(s, &x[..strange], &dy[..windows], &mut dx[..strange]);
            (x, dy, dx) = (&x[strange..], &dy[windows..], &mut dx[strange..]);
        }
        (together, done) = (1, all);
    }
}

/// The gradient of a maximum, window by window.
pub(super) fn max_plain(s: &Shape, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    dx.fill(0.0);
    let (from, to, width) = (s.from[0] * s.from[1], s.to[0] * s.to[1], s.from[1]);
    for (at, dy) in dy.iter().enumerate() {
        let (plane, i, j) = (at / to * from, at % to / s.to[1], at % s.to[1]);
        let ((top, bottom, _), (left, right, _)) = (s.cover(0, i), s.cover(1, j));
        let pixels = (top..bottom).flat_map(|row| plane + row * width + left..plane + row * width + right);
        let largest = pixels.reduce(|best, at| if x[at] > x[best] || x[at].is_nan() { at } else { best });
        if let Some(largest) = largest {
            dx[largest] += dy;
        }
    }
}

/// The gradient of a mean, window by window.
pub(super) fn mean_plain(s: &Shape, count_padding: bool, dy: &[f32], dx: &mut [f32]) {
    dx.fill(0.0);
    let (from, to, width) = (s.from[0] * s.from[1], s.to[0] * s.to[1], s.from[1]);
    for (at, dy) in dy.iter().enumerate() {
        let (plane, i, j) = (at / to * from, at % to / s.to[1], at % s.to[1]);
        let ((top, bottom, _), (left, right, _)) = (s.cover(0, i), s.cover(1, j));
        let share = dy * (s.share(0, i, count_padding) * s.share(1, j, count_padding));
        for dx in dx[plane + top * width..plane + bottom * width].chunks_exact_mut(width) {
            dx[left..right].iter_mut().for_each(|dx| *dx += share);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::*;

    /// Random windows of three by three or five by five that are neighbours, over images smaller than `most`, if any fit.
    pub fn neighbours(most: [usize; 2], random: &mut fastrand::Rng) -> Option<Shape> {
        let window = [3, 5][random.usize(..2)];
        let padding: [usize; 4] = std::array::from_fn(|_| random.usize(..window));
        let from: [usize; 2] = std::array::from_fn(|axis| random.usize(1..most[axis]));
        let ends = |axis: usize| from[axis] + padding[axis] + padding[axis + 2] + 1;
        if (0..2).any(|axis| ends(axis) <= window) {
            return None;
        }
        let to = [0, 1].map(|axis| ends(axis) - window);
        let (kind, window, padding) = (PoolKind::Max, [window as u64; 2], padding.map(|n| n as u64));
        Some(Shape { form: Pool { kind, window, stride: [1; 2], padding, ceil: false }, from, to })
    }

    /// The gradients of maxima of some random planes are those of single windows. Sums of such gradients are exact, whatever
    /// the order; many pixels are equal, and in some planes one is not finite.
    pub fn check(s: &Shape, runs: &Runs, random: &mut fastrand::Rng) {
        let (planes, size) = (random.usize(1..5), s.from[0] * s.from[1]);
        let mut x: Vec<f32> = (0..planes * size).map(|_| random.i8(-3..3) as f32).collect();
        if random.usize(..3) == 0 {
            x[random.usize(..size)] = [f32::NAN, f32::NEG_INFINITY][random.usize(..2)];
        }
        let dy: Vec<f32> = (0..planes * s.to[0] * s.to[1]).map(|_| random.i8(-9..9) as f32).collect();
        let [mut dx, mut expected] = [vec![1f32; x.len()], vec![0f32; x.len()]];
        max(s, runs, None, &x, &dy, &mut dx);
        max_plain(s, &x, &dy, &mut expected);
        assert_eq!(dx, expected, "{s:?}, {planes} planes");
    }

    /// The gradients of means of some random planes are those of single windows, as far as sums in another order can be.
    fn check_mean(s: &Shape, runs: &Runs, random: &mut fastrand::Rng) {
        let (planes, count_padding) = (random.usize(1..5), random.bool());
        let dy: Vec<f32> = (0..planes * s.to[0] * s.to[1]).map(|_| random.f32() - 0.5).collect();
        let size = planes * s.from[0] * s.from[1];
        let [mut dx, mut expected] = [vec![f32::NAN; size], vec![0f32; size]];
        mean(s, runs, None, &Shares::new(s, None, count_padding), &dy, &mut dx);
        mean_plain(s, count_padding, &dy, &mut expected);
        let same = dx.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(same, "{s:?}, {planes} planes");
    }

    /// Sums of such gradients are exact, whatever the order; many pixels are equal, and some less than all.
    #[test]
    fn neighbouring_windows_are_as_good_as_single_ones() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..400 {
            let Some(s) = neighbours([12, 70], &mut random) else { continue };
            let (from, to) = (s.from, s.to);
            let Some(maxima) = s.maxima() else { continue };
            let (planes, strange) = (random.usize(1..10), random.usize(..300) + 1);
            let mut pixel = || match random.usize(..300) {
                0 if strange > 200 => f32::NAN,
                1..20 => f32::NEG_INFINITY,
                20..40 => -0.0,
                _ => random.i8(-3..3) as f32,
            };
            let x: Vec<f32> = (0..planes * from[0] * from[1]).map(|_| pixel()).collect();
            let dy: Vec<f32> = (0..planes * to[0] * to[1]).map(|_| random.i8(-9..9) as f32).collect();
            let [mut dx, mut expected] = [vec![1f32; x.len()], vec![0f32; x.len()]];
            max_straight(&s, maxima, &x, &dy, &mut dx);
            max_plain(&s, &x, &dy, &mut expected);
            assert_eq!(dx, expected, "{s:?}, {planes} planes");
        }
    }

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
            check_mean(&s, &runs, &mut random);
        }
        assert!(tried > 300, "{tried} shapes");
    }
}
