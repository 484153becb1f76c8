//! Windows that are neighbours, of three by three or five by five pixels, as many as pixels in a row: what they are made,
//! straight from image to image, and the gradient of their means.
//!
//! All rows of windows that lie wholly in the image are one run: of each row of the window they see as many pixels, one
//! behind the other wherever rows end, so that no vector is cut short. Vectors of these are made one, row upon row, and
//! neighbouring lanes of what that gives then are; for which of them a column of the window is in the image is known from the
//! column of the first. Of small planes even several are one run: for which lanes a row of the window is in the image is
//! then known from the place of the first as well. Windows of other
//! sizes are combined row by row (`mod.rs`, `spread.rs`).
//!
//! For the gradient of means, pixels see windows. What these share out is multiplied before, some rows or planes at a time.
//!
//! Pixels that are no numbers are found on the way; a maximum of such planes is not for this loop.

use std::ops::Range;

use super::rows::{Aligned, Fold, Given, LANES, ROW, Row, ahead, put};
use super::{Shape, Shares};
use crate::simd::Lanes;

/// The columns of the largest window.
const MOST: usize = 5;

/// Windows of a plane, at most, several of which are one run.
const SMALL: usize = 320;

/// Numbers of a run of planes, and as many as are multiplied before they are added up unless one row of windows has more:
/// the first-level cache holds them.
const SOME: usize = 2048;

/// The rows of numbers that were multiplied.
const SCALED: usize = MOST + 1;

/// Whether there is a loop for it: windows that are neighbours, as many as pixels in a row, which is longer than a vector
/// unless the plane is small.
pub(super) fn applies(s: &Shape) -> bool {
    let form = &s.form;
    let inside = (0..2).all(|axis| form.padding[axis] < form.window[axis]);
    let known = form.window[0] == form.window[1] && matches!(form.window[0], 3 | 5);
    let wide = (s.from[1] + form.padding[1] as usize).next_multiple_of(LANES) + 3 * LANES;
    let neighbours = form.stride == [1; 2] && known && inside && wide <= ROW;
    neighbours && s.from[1] == s.to[1] && (s.from[1] > LANES || is_small(s))
}

/// Whether planes are small: as many rows of windows as of pixels besides.
fn is_small(s: &Shape) -> bool {
    s.from == s.to && s.from[0] * s.from[1] <= SMALL
}

/// What is known of windows before any pixel is.
pub(super) struct Flat {
    /// Rows of the image, and the columns of it and of windows.
    height: usize,
    width: usize,
    /// Rows above the image that windows see, and columns left of it.
    before: [usize; 2],
    /// Whether planes are small.
    small: bool,
    tables: Tables,
    /// A row above or below the image.
    beyond: Row,
    /// Rows that begin before the first number or end beyond the last.
    edge: [Row; MOST],
}

/// What is known of neighbouring windows from the place of the first: its column, or of small planes its place in the plane.
struct Tables {
    /// How many such places there are.
    period: usize,
    /// For every column of the window, which of them have it in the image.
    columns: [[u16; ROW]; MOST],
    /// For every row of the window, which of the pixels that are left of the window by as much as windows begin before the
    /// image have it there; of small planes.
    rows: [[u16; ROW]; MOST],
    /// What columns share, and of small planes rows.
    shares: [Row; 2],
}

impl Tables {
    fn new(s: [usize; 2], before: [usize; 2], small: bool, shares: Option<&Shares>) -> Tables {
        let [height, width] = s;
        let period = if small { height * width } else { width };
        let table = [[0; ROW]; MOST];
        let mut tables = Tables { period, columns: table, rows: table, shares: [[0.0; ROW]; 2] };
        for tap in 0..MOST {
            // Those of one place after the other, from the last on.
            let (mut columns, mut rows) = (0, 0);
            for at in (0..period + LANES).rev() {
                let column = (at % width + tap).wrapping_sub(before[1]) < width;
                let row = (at + period - before[1] % period) % period / width;
                columns = columns << 1 | column as u16;
                rows = rows << 1 | ((row + tap).wrapping_sub(before[0]) < height) as u16;
                (tables.columns[tap][at], tables.rows[tap][at]) = (columns, rows);
            }
        }
        if let Some(shares) = shares {
            for at in 0..period + LANES {
                let at = [at, at % period];
                tables.shares[0][at[0]] = shares.columns[at[1] % width];
                tables.shares[1][at[0]] = shares.rows[at[1] / width];
            }
        }
        tables
    }

    /// The place so many further than another.
    #[inline(always)]
    fn further(&self, place: usize, count: usize) -> usize {
        let mut place = place + count;
        while place >= self.period {
            place -= self.period;
        }
        place
    }
}

impl Flat {
    /// Windows over images.
    pub fn new<F: Fold>(s: &Shape, shares: Option<&Shares>) -> Flat {
        let [above, left, ..] = s.form.padding.map(|n| n as usize);
        Flat::with::<F>(s.from, [above, left], (is_small(s), shares))
    }

    /// The way back, on which pixels see windows.
    pub fn back(s: &Shape, shares: &Shares) -> Flat {
        let before = [0, 1].map(|axis| (s.form.window[axis] - 1 - s.form.padding[axis]) as usize);
        Flat::with::<Given>(s.to, before, (is_small(s), Some(shares)))
    }

    fn with<F: Fold>(
        [height, width]: [usize; 2],
        before: [usize; 2],
        (small, shares): (bool, Option<&Shares>),
    ) -> Flat {
        let tables = Tables::new([height, width], before, small, shares);
        Flat { height, width, before, small, tables, beyond: [F::NOTHING; ROW], edge: [[0.0; ROW]; MOST] }
    }

    /// How many planes are one run, where they are small.
    fn together(&self) -> Option<usize> {
        self.small.then(|| (SOME / self.tables.period).max(1))
    }

    /// Some planes of results from number `plane` on, at least one and at most `count`. Returns how many, and whether they are
    /// right: not where a pixel is not a number and `F` cares.
    #[inline(always)]
    pub fn planes<L: Lanes, F: Fold, const W: usize>(
        &mut self,
        l: L,
        shares: Option<&Shares>,
        (plane, count): (usize, usize),
        (x, y): (&[f32], &mut [f32]),
        rows: usize,
    ) -> (usize, bool) {
        let mut strange = l.splat(0.0);
        let [from, to] = [self.height, rows].map(|rows| rows * self.width);
        let done = match self.together() {
            Some(together) => {
                let (run, count) = (plane * from, count.min(together));
                self.small::<L, F, W>(l, shares.is_some(), count, (x, run), (y, run), &mut strange)
            }
            None => {
                self.rows::<L, F, W>(l, shares, 0..rows, (x, plane * from), (y, plane * to), &mut strange);
                1
            }
        };
        (done, F::fine(l, strange))
    }

    /// Up to so many small planes of results, which begin at a position of `x`, and the results at one of `y`. Returns how many.
    #[inline(always)]
    fn small<L: Lanes, F: Fold, const W: usize>(
        &mut self,
        l: L,
        share: bool,
        count: usize,
        (x, first): (&[f32], usize),
        to: (&mut [f32], usize),
        strange: &mut L::Vector,
    ) -> usize {
        let (width, [above, left], period) = (self.width, self.before, self.tables.period);
        let start = first.wrapping_sub(above * width + left);
        let (count, inside) = fitting(x, [start, start.wrapping_add((W - 1) * width)], (count, period));
        let mut seen = [&x[..0]; W];
        for (a, (seen, edge)) in seen.iter_mut().zip(&mut self.edge).enumerate() {
            *seen = part(x, start.wrapping_add(a * width), count * period + 2 * LANES, inside, edge);
        }
        self.tables.run::<L, F, W, true>(l, seen, (share, l.splat(1.0)), (count * period, to), strange);
        count
    }

    /// Some rows of results of one plane, which begins at a position of `x`, and its results at one of `y`; rows come in
    /// order, because what is written beyond the end of one is written again with the next.
    #[inline(always)]
    fn rows<L: Lanes, F: Fold, const W: usize>(
        &mut self,
        l: L,
        shares: Option<&Shares>,
        rows: Range<usize>,
        (x, first): (&[f32], usize),
        (y, begin): (&mut [f32], usize),
        strange: &mut L::Vector,
    ) {
        let (height, width, [above, left]) = (self.height, self.width, self.before);
        let mut i = rows.start;
        while i < rows.end {
            // Rows from this one on that see as many of the image.
            let whole = (above + height + 1).saturating_sub(W + i).min(rows.end - i);
            let count = if i >= above { whole.max(1) } else { 1 };
            let start = first.wrapping_add(i * width).wrapping_sub(above * width + left);
            let (low, high) = (above.saturating_sub(i), (above + height - i).min(W));
            let ends = [low, high - 1].map(|a| start.wrapping_add(a * width));
            let (count, inside) = fitting(x, ends, (count, width));
            let mut seen = [&self.beyond[..]; W];
            for (a, (seen, edge)) in seen.iter_mut().zip(&mut self.edge).enumerate() {
                if (low..high).contains(&a) {
                    *seen = part(x, start.wrapping_add(a * width), count * width + 2 * LANES, inside, edge);
                }
            }
            let share = (shares.is_some(), l.splat(shares.map_or(1.0, |shares| shares.rows[i])));
            let to = (&mut *y, begin + i * width);
            self.tables.run::<L, F, W, false>(l, seen, share, (count * width, to), strange);
            i += count;
        }
    }

    /// The gradient of planes of means.
    #[inline(always)]
    pub fn slopes<L: Lanes, const W: usize>(
        &mut self,
        l: L,
        (s, shares): (&Shape, &Shares),
        dy: &[f32],
        dx: &mut [f32],
    ) {
        const { assert!(SOME + 4 * SMALL <= SCALED * ROW && W < SCALED, "room for them") };
        let mut room = Aligned([[0f32; ROW]; SCALED]);
        let (scaled, mut strange) = (room.0.as_flattened_mut(), l.splat(0.0));
        let (above, width) = (s.form.padding[0] as usize, self.width);
        let [from, to] = [s.from, s.to].map(|[rows, columns]| rows * columns);
        // Before and behind there are others or nothing, and lanes that nobody looks at.
        let begin = (self.before[0] * width + self.before[1]).next_multiple_of(LANES);
        if let Some(together) = self.together() {
            for (dy, dx) in dy.chunks(together * to).zip(dx.chunks_mut(together * from)) {
                self.tables.scale::<L, true>(l, l.splat(1.0), (dy, dy.len()), &mut scaled[begin..]);
                let all = dx.len() / from;
                self.small::<L, Given, W>(l, false, all, (scaled, begin), (dx, 0), &mut strange);
            }
            return;
        }
        let some = (SOME / width).saturating_sub(W - 1).max(1);
        for plane in 0..dx.len() / from {
            for top in (0..s.from[0]).step_by(some) {
                let bottom = (top + some).min(s.from[0]);
                let windows = (top + above).saturating_sub(W - 1)..(bottom + above).min(s.to[0]);
                let mut row = windows.start;
                while row < windows.end {
                    // Rows that share as much.
                    let share = shares.rows[row];
                    let more = &shares.rows[row..windows.end];
                    let end = row + more.iter().take_while(|other| **other == share).count();
                    let (dy, len) = (&dy[plane * to + row * width..], (end - row) * width);
                    let to = &mut scaled[LANES + (row - windows.start) * width..];
                    self.tables.scale::<L, false>(l, l.splat(share), (dy, len), to);
                    row = end;
                }
                let origin = LANES.wrapping_sub(windows.start * width);
                let to = (&mut *dx, plane * from);
                self.rows::<L, Given, W>(l, None, top..bottom, (scaled, origin), to, &mut strange);
            }
        }
    }
}

/// How many times so many numbers, as asked for or once, can be read of rows the first and last of which begin at these
/// positions, and whether that is true even of once.
#[inline(always)]
fn fitting(x: &[f32], ends: [usize; 2], (count, numbers): (usize, usize)) -> (usize, bool) {
    for count in [count, 1] {
        // Positions before the first are beyond the last.
        let end = ends[1].wrapping_add(count * numbers + 2 * LANES);
        if ends[0] <= x.len() && ends[1] <= end && end <= x.len() {
            return (count, true);
        }
    }
    (1, false)
}

/// So many numbers from position `at` on; where they are not all inside, what is not there is anything.
#[inline(always)]
fn part<'a>(x: &'a [f32], at: usize, len: usize, inside: bool, edge: &'a mut Row) -> &'a [f32] {
    if inside {
        return &x[at..at + len];
    }
    copy(x, at, &mut edge[..len]);
    &edge[..len]
}

/// Numbers from position `at` on, which may be before the first or beyond the last.
#[cold]
#[inline(never)]
fn copy(x: &[f32], at: usize, to: &mut [f32]) {
    for (i, to) in to.iter_mut().enumerate() {
        *to = x.get(at.wrapping_add(i)).copied().unwrap_or(0.0);
    }
}

impl Tables {
    /// Writes some results, one behind the other, to a position of `y`: what becomes of the pixels of `W` rows, of which only
    /// those of `SMALL` planes may be beside the image.
    #[inline(always)]
    fn run<L: Lanes, F: Fold, const W: usize, const SMALL: bool>(
        &self,
        l: L,
        mut rows: [&[f32]; W],
        (share, line): (bool, L::Vector),
        (len, (y, begin)): (usize, (&mut [f32], usize)),
        strange: &mut L::Vector,
    ) {
        let (n, outside) = (L::COUNT, l.splat(F::OUTSIDE));
        let end = len.next_multiple_of(n) + n;
        for row in &mut rows {
            *row = &row[..end];
        }
        let (mut at, mut place) = (0, 0);
        let mut now = self.column::<L, F, W, SMALL>(l, &rows, (0, 0), strange);
        while at < len {
            let later = self.further(place, n);
            let next = self.column::<L, F, W, SMALL>(l, &rows, (at + n, later), strange);
            ahead(rows[W / 2], at);
            ahead(y, begin + at);
            let mut taps = [outside; W];
            for (b, tap) in taps.iter_mut().enumerate() {
                *tap = l.pick(l.these(self.columns[b][place]), slide(l, b, now, next), outside);
            }
            let mut all = combine::<L, F, W>(l, taps);
            if share {
                let line = if SMALL { l.load(&self.shares[1], place) } else { line };
                all = l.mul(l.mul(all, line), l.load(&self.shares[0], place));
            }
            put(l, all, y, begin + at);
            (now, at, place) = (next, at + n, later);
        }
    }

    /// Some pixels of `W` rows, made one.
    #[inline(always)]
    fn column<L: Lanes, F: Fold, const W: usize, const SMALL: bool>(
        &self,
        l: L,
        rows: &[&[f32]; W],
        (at, place): (usize, usize),
        strange: &mut L::Vector,
    ) -> L::Vector {
        let mut all = [l.splat(F::NOTHING); W];
        for (a, (all, row)) in all.iter_mut().zip(rows).enumerate() {
            let some = l.load(row, at);
            *strange = F::strange(l, some, *strange);
            *all = if SMALL { l.pick(l.these(self.rows[a][place]), some, *all) } else { some };
        }
        combine::<L, F, W>(l, all)
    }

    /// Multiplies the gradients of some windows with what these share out.
    #[inline(always)]
    fn scale<L: Lanes, const SMALL: bool>(
        &self,
        l: L,
        line: L::Vector,
        (dy, len): (&[f32], usize),
        to: &mut [f32],
    ) {
        let to = &mut to[..len + LANES];
        let (mut at, mut place) = (0, 0);
        while at < len {
            ahead(dy, at);
            let some = if at + L::COUNT <= dy.len() { l.load(dy, at) } else { l.load_some(dy, at) };
            let line = if SMALL { l.load(&self.shares[1], place) } else { line };
            l.store(l.mul(l.mul(some, line), l.load(&self.shares[0], place)), to, at);
            (at, place) = (at + L::COUNT, self.further(place, L::COUNT));
        }
    }
}

/// Vectors made one, in the order that matters or in pairs.
#[inline(always)]
fn combine<L: Lanes, F: Fold, const W: usize>(l: L, all: [L::Vector; W]) -> L::Vector {
    if W == 5 && !F::ORDERED {
        let pairs = [F::quick(l, all[0], all[1]), F::quick(l, all[2], all[3])];
        return F::quick(l, F::quick(l, pairs[0], pairs[1]), all[4]);
    }
    let mut one = all[0];
    for more in &all[1..] {
        one = F::quick(l, one, *more);
    }
    one
}

/// As many numbers of two vectors, one behind the other, from number `b` on.
#[inline(always)]
fn slide<L: Lanes>(l: L, b: usize, low: L::Vector, high: L::Vector) -> L::Vector {
    match b {
        0 => low,
        1 => l.slide::<1>(low, high),
        2 => l.slide::<2>(low, high),
        3 => l.slide::<3>(low, high),
        _ => l.slide::<4>(low, high),
    }
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::rows::Runs;
    use super::super::side_by_side::Beside;
    use super::super::{back, largest, mean, plain};
    use super::*;

    /// A pixel: many are equal, and few are no numbers or less than all.
    fn pixel(random: &mut fastrand::Rng) -> f32 {
        match random.usize(..9000) {
            0 => f32::NAN,
            1..20 => f32::NEG_INFINITY,
            _ => random.i8(-3..3) as f32,
        }
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    #[test]
    fn runs_of_windows_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(31), [0; 3]);
        for _ in 0..400 {
            let window = [3, 5][random.usize(..2)];
            let before: [usize; 2] = std::array::from_fn(|_| random.usize(..window));
            let most = [18, 90][random.usize(..2)];
            let from = [random.usize(1..18), random.usize(1..most)];
            let padding = [before[0], before[1], window - 1 - before[0], window - 1 - before[1]];
            let (kind, padding) = (PoolKind::Max, padding.map(|n| n as u64));
            let form = Pool { kind, window: [window as u64; 2], stride: [1; 2], padding, ceil: false };
            let s = Shape { form, from, to: from };
            let Some(runs) = Runs::new(&s).filter(|_| applies(&s)) else { continue };
            tried[usize::from(is_small(&s))] += 1;
            let planes = random.usize(1..40);
            let x: Vec<f32> = (0..planes * from[0] * from[1]).map(|_| pixel(&mut random)).collect();
            let [mut y, mut expected] = [vec![1f32; x.len()], vec![0f32; x.len()]];
            let better = |best: f32, x: f32| if x > best || x.is_nan() { x } else { best };
            largest(&s, &runs, None, &x, &mut y);
            plain(&s, &x, &mut expected, f32::NEG_INFINITY, better);
            let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
            assert!(y.iter().zip(&expected).all(same), "largest of {s:?}, {planes} planes");
            let x: Vec<f32> = (0..x.len()).map(|_| random.f32() - 0.5).collect();
            let count_padding = random.bool();
            let shares = Shares::new(&s, None, count_padding);
            mean(&s, &runs, None, &shares, &x, &mut y);
            plain(&s, &x, &mut expected, 0.0, |sum, x| sum + x);
            for (at, (y, sum)) in y.iter().zip(&expected).enumerate() {
                let [i, j] = [at / from[1] % from[0], at % from[1]];
                let share = s.share(0, i, count_padding) * s.share(1, j, count_padding);
                assert!((y - sum * share).abs() < 1e-5, "mean of {s:?}");
            }
            let mut dx = vec![f32::NAN; x.len()];
            back::mean(&s, &runs, None, &shares, &x, &mut dx);
            back::mean_plain(&s, count_padding, &x, &mut expected);
            assert!(dx.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "gradient of {s:?}");
            // Those of planes side by side are added up in the same order.
            let Some(beside) = Beside::new(&s) else { continue };
            tried[2] += 1;
            let shares = Shares::new(&s, Some(&beside), count_padding);
            let mut other = vec![f32::NAN; x.len()];
            mean(&s, &runs, Some(&beside), &shares, &x, &mut other);
            assert_eq!(bits(&y), bits(&other), "mean of {s:?}");
            back::mean(&s, &runs, Some(&beside), &shares, &x, &mut other);
            assert_eq!(bits(&dx), bits(&other), "gradient of {s:?}");
        }
        assert!(tried.iter().all(|tried| *tried > 40), "{tried:?} shapes");
    }
}
