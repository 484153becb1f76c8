//! The gradients of pooling, many windows at once.
//!
//! A window is taken apart by rows. What a row of the image has to do with a column of windows (the largest of its
//! pixels there) is the same for every row of windows that covers it, so it is worked out once, when the row enters a
//! ring; a row of windows then only chooses among rows, and its gradients are gathered there; and they are handed on to
//! pixels once, when no window covers the row any more. Rows are kept as one run for every remainder of the stride, so
//! that neighbouring windows find the same tap in neighbouring numbers.

use super::{LANES, STRIDES, Shape, WIDE};
use crate::kernels::simd::{join_pairs, part_pairs, wide};

/// The rows of the largest window that a ring holds.
const RING: usize = 8;

/// The numbers of a row: all its runs, with room for whole vectors.
const ROW: usize = WIDE + STRIDES * (LANES + RING);

/// Rows of an image as windows see them, for one thread.
pub(super) struct Rings {
    /// A row in runs. What is beside an image stays less than everything.
    runs: [f32; ROW],
    /// For every column of windows, the largest pixel of a row, and which it is.
    largest: [[f32; ROW]; RING],
    taps: [[u32; ROW]; RING],
    /// The gradients that fall to a row from every column of windows, from [`LANES`] on; zero before and behind.
    dy: [[f32; ROW]; RING],
}

impl Rings {
    pub fn new() -> Rings {
        Rings {
            runs: [f32::NEG_INFINITY; ROW],
            largest: [[0.0; ROW]; RING],
            taps: [[0; ROW]; RING],
            dy: [[0.0; ROW]; RING],
        }
    }
}

/// How a row lies in runs: pixel q, counted from the first zero on the left, is number q / stride of run q % stride.
#[derive(Clone, Copy)]
struct Runs {
    /// The numbers of a run.
    span: usize,
    width: usize,
    before: usize,
}

/// The runs of a shape's rows, where they fit a ring.
fn runs(s: &Shape) -> Option<Runs> {
    let (stride, window) = (s.form.stride[1] as usize, s.form.window[1] as usize);
    let (width, before) = (s.from[1], s.form.padding[1] as usize);
    let span = (width + before).div_ceil(stride).max(s.to[1].next_multiple_of(LANES) + (window - 1) / stride);
    let fits = stride * span + 2 * LANES <= ROW && window <= LANES;
    let fits = fits && stride <= STRIDES && s.form.window[0] as usize <= RING;
    fits.then_some(Runs { span, width, before })
}

impl Runs {
    /// The start of the run for pixels `r`, `r + S`, ….
    #[inline(always)]
    fn start<const S: usize>(&self, r: usize) -> usize {
        (self.before + r) % S * self.span + (self.before + r) / S
    }

    /// Lays a row out in runs.
    #[inline(always)]
    fn split<const S: usize>(&self, x: &[f32], row: &mut [f32; ROW]) {
        let (width, span) = (self.width, self.span);
        let starts: [usize; S] = std::array::from_fn(|r| self.start::<S>(r));
        match S {
            1 => row[starts[0]..][..width].copy_from_slice(x),
            2 => {
                let (low, high) = row.split_at_mut(span);
                let (even, odd) = if starts[0] < span {
                    (&mut low[starts[0]..], &mut high[starts[1] - span..])
                } else {
                    (&mut high[starts[0] - span..], &mut low[starts[1]..])
                };
                part_pairs(x, &mut even[..width.div_ceil(2)], &mut odd[..width / 2]);
            }
            _ => x.chunks(S).enumerate().for_each(|(at, x)| {
                x.iter().zip(&starts).for_each(|(x, start)| row[start + at] = *x);
            }),
        }
    }

    /// Puts a row together from its runs.
    #[inline(always)]
    fn join<const S: usize>(&self, row: &[f32; ROW], dx: &mut [f32]) {
        let starts: [usize; S] = std::array::from_fn(|r| self.start::<S>(r));
        match S {
            1 => dx.copy_from_slice(&row[starts[0]..][..dx.len()]),
            2 => join_pairs(&row[starts[0]..], &row[starts[1]..], dx),
            _ => {
                let (whole, rest) = dx.as_chunks_mut::<S>();
                let runs = starts.map(|start| &row[start..start + whole.len()]);
                for (at, dx) in whole.iter_mut().enumerate() {
                    *dx = runs.map(|run| run[at]);
                }
                rest.iter_mut().zip(&starts).for_each(|(dx, start)| *dx = row[start + runs[0].len()]);
            }
        }
    }
}

/// So many neighbouring numbers.
#[inline(always)]
fn block<T>(row: &[T; ROW], at: usize) -> &[T; LANES] {
    row[at..at + LANES].try_into().expect("so many")
}

/// Up to [`LANES`] numbers, and zeros.
#[inline(always)]
fn some(numbers: &[f32]) -> [f32; LANES] {
    numbers.try_into().unwrap_or_else(|_| {
        let mut all = [0f32; LANES];
        all[..numbers.len()].copy_from_slice(numbers);
        all
    })
}

/// A number where it is chosen, and zero elsewhere, without a branch.
#[inline(always)]
fn chosen(number: f32, by: bool) -> f32 {
    f32::from_bits(number.to_bits() & 0u32.wrapping_sub(u32::from(by)))
}

impl Rings {
    /// Finds the largest pixel of a row that enters, for every column of windows.
    #[inline(always)]
    fn enter<const S: usize>(&mut self, s: &Shape, runs: &Runs, x: &[f32], row: usize) {
        runs.split::<S>(x, &mut self.runs);
        let (window, before) = (s.form.window[1] as usize, s.form.padding[1] as usize);
        for first in (0..s.to[1]).step_by(LANES) {
            let mut largest = [f32::NEG_INFINITY; LANES];
            // The first pixel inside the image, unless another is larger.
            let mut taps = [0u32; LANES];
            if first * S < before {
                let outside = |lane: usize| before.saturating_sub((first + lane) * S).min(window - 1);
                taps = std::array::from_fn(|lane| outside(lane) as u32);
            }
            for b in 0..window {
                let x = block(&self.runs, b % S * runs.span + first + b / S);
                for lane in 0..LANES {
                    let better = (x[lane] > largest[lane]) | x[lane].is_nan();
                    largest[lane] = if better { x[lane] } else { largest[lane] };
                    taps[lane] = if better { b as u32 } else { taps[lane] };
                }
            }
            self.largest[row % RING][first..first + LANES].copy_from_slice(&largest);
            self.taps[row % RING][LANES + first..][..LANES].copy_from_slice(&taps);
        }
        self.dy[row % RING][..2 * LANES + runs.span].fill(0.0);
    }

    /// Gives the gradients of a row of windows to the rows that have the largest pixels.
    #[inline(always)]
    fn choose(&mut self, (top, bottom): (usize, usize), dy: &[f32]) {
        for (at, dy) in dy.chunks(LANES).enumerate() {
            let at = at * LANES;
            let all = some(dy);
            let (mut largest, mut rows) = ([f32::NEG_INFINITY; LANES], [top as u32; LANES]);
            for row in top..bottom {
                let x = block(&self.largest[row % RING], at);
                for lane in 0..LANES {
                    let better = (x[lane] > largest[lane]) | x[lane].is_nan();
                    largest[lane] = if better { x[lane] } else { largest[lane] };
                    rows[lane] = if better { row as u32 } else { rows[lane] };
                }
            }
            for row in top..bottom {
                // One row after the other: else the compiler takes several at once, and scatters.
                let row = std::hint::black_box(row);
                let to = &mut self.dy[row % RING];
                let mut sum = *block(to, LANES + at);
                for lane in 0..LANES {
                    sum[lane] += chosen(all[lane], rows[lane] == row as u32);
                }
                to[LANES + at..][..LANES].copy_from_slice(&sum);
            }
        }
    }

    /// Hands the gradients of a row that leaves on to its pixels: to the chosen ones, or to all of every window.
    #[inline(always)]
    fn leave<const S: usize>(&mut self, s: &Shape, runs: &Runs, row: usize, all: bool, dx: &mut [f32]) {
        let (window, span) = (s.form.window[1] as usize, runs.span);
        let (gradients, taps) = (&self.dy[row % RING], &self.taps[row % RING]);
        for phase in 0..S {
            for first in (0..span).step_by(LANES) {
                let mut sum = [0f32; LANES];
                for b in (phase..window).step_by(S) {
                    let (dy, taps) =
                        (block(gradients, LANES + first - b / S), block(taps, LANES + first - b / S));
                    if all {
                        sum.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
                        continue;
                    }
                    for lane in 0..LANES {
                        sum[lane] += chosen(dy[lane], taps[lane] == b as u32);
                    }
                }
                self.runs[phase * span + first..][..LANES].copy_from_slice(&sum);
            }
        }
        runs.join::<S>(&self.runs, dx);
    }
}

/// The rows of an image that are in a ring.
#[derive(Default)]
struct Turning {
    /// Rows before this one have left.
    left: usize,
    /// Rows before this one have entered, or never will.
    entered: usize,
}

impl Turning {
    /// Lets the rows before `top` leave.
    #[inline(always)]
    fn leave<const S: usize>(
        &mut self,
        s: &Shape,
        runs: &Runs,
        top: usize,
        rings: &mut Rings,
        all: bool,
        dx: &mut [f32],
    ) {
        for row in self.left..top {
            let dx = &mut dx[row * runs.width..][..runs.width];
            if row < self.entered {
                rings.leave::<S>(s, runs, row, all, dx);
            } else {
                dx.fill(0.0);
            }
        }
        self.left = self.left.max(top);
        self.entered = self.entered.max(top);
    }
}

#[inline(always)]
fn max_runs<const S: usize>(
    s: &Shape,
    runs: &Runs,
    x: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    rings: &mut Rings,
) {
    let mut turning = Turning::default();
    for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
        let (top, bottom, _) = s.cover(0, i);
        turning.leave::<S>(s, runs, top, rings, false, dx);
        if turning.entered < bottom {
            // Gradients have been put together here.
            rings.runs[..S * runs.span + LANES].fill(f32::NEG_INFINITY);
        }
        for row in turning.entered..bottom {
            rings.enter::<S>(s, runs, &x[row * runs.width..][..runs.width], row);
        }
        turning.entered = turning.entered.max(bottom);
        rings.choose((top, bottom), dy);
    }
    turning.leave::<S>(s, runs, s.from[0], rings, false, dx);
}

#[inline(always)]
fn mean_runs<const S: usize>(
    s: &Shape,
    runs: &Runs,
    dy: &[f32],
    dx: &mut [f32],
    count_padding: bool,
    rings: &mut Rings,
) {
    let mut turning = Turning::default();
    let inside = s.inside(1);
    for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
        let (top, bottom, _) = s.cover(0, i);
        turning.leave::<S>(s, runs, top, rings, true, dx);
        for row in turning.entered..bottom {
            rings.dy[row % RING][..2 * LANES + runs.span].fill(0.0);
        }
        turning.entered = turning.entered.max(bottom);
        let usual = s.share(i, inside.start, count_padding);
        for row in top..bottom {
            let to = &mut rings.dy[row % RING][LANES..];
            to.iter_mut().zip(dy).for_each(|(to, dy)| *to += dy * usual);
            for j in (0..inside.start).chain(inside.end..s.to[1]) {
                // The edge's own share, in place of the usual one.
                to[j] += dy[j] * (s.share(i, j, count_padding) - usual);
            }
        }
    }
    turning.leave::<S>(s, runs, s.from[0], rings, true, dx);
}

/// Up to [`LANES`] neighbouring pairs, and zeros.
#[inline(always)]
fn pairs(x: &[f32]) -> [[u32; LANES]; 2] {
    let all: [f32; 2 * LANES] = match x.try_into() {
        Ok(all) => all,
        Err(_) => std::array::from_fn(|at| x.get(at).copied().unwrap_or(0.0)),
    };
    let pairs: [u64; LANES] = bytemuck::cast(all);
    [pairs.map(|pair| pair as u32), pairs.map(|pair| (pair >> 32) as u32)]
}

/// The gradient of one plane of a maximum of two by two, none of which overlap.
#[inline(always)]
fn max_pairs(s: &Shape, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    let (width, used) = (s.from[1], 2 * s.to[1]);
    let rows = x.chunks_exact(2 * width).zip(dx.chunks_exact_mut(2 * width));
    for ((x, dx), dy) in rows.zip(dy.chunks_exact(s.to[1])) {
        let ((x0, x1), (dx0, dx1)) = (x.split_at(width), dx.split_at_mut(width));
        let whole = if dy.len() < LANES { 0 } else { dy.len() };
        for (block, dy) in dy[..whole].chunks(LANES).enumerate() {
            let at = 2 * block * LANES..2 * (block * LANES + dy.len());
            let mut all = [0u32; LANES];
            all.iter_mut().zip(dy).for_each(|(all, dy)| *all = dy.to_bits());
            let ([a, b], [c, d]) = (pairs(&x0[at.clone()]), pairs(&x1[at.clone()]));
            let (mut largest, mut taps) = (a.map(f32::from_bits), [0u32; LANES]);
            for (tap, x) in [(1, b), (2, c), (3, d)] {
                for lane in 0..LANES {
                    let x = f32::from_bits(x[lane]);
                    let better = (x > largest[lane]) | x.is_nan();
                    largest[lane] = if better { x } else { largest[lane] };
                    taps[lane] = if better { tap } else { taps[lane] };
                }
            }
            for (first, dx) in [(0, &mut dx0[at.clone()]), (2, &mut dx1[at.clone()])] {
                let mut pairs = [0u64; LANES];
                for lane in 0..LANES {
                    let even = all[lane] & 0u32.wrapping_sub(u32::from(taps[lane] == first));
                    let odd = all[lane] & 0u32.wrapping_sub(u32::from(taps[lane] == first + 1));
                    pairs[lane] = u64::from(even) | u64::from(odd) << 32;
                }
                let pairs: [f32; 2 * LANES] = bytemuck::cast(pairs);
                dx.copy_from_slice(&pairs[..dx.len()]);
            }
        }
        // Short rows one by one.
        let pairs = dx0.chunks_exact_mut(2).zip(dx1.chunks_exact_mut(2));
        let from = x0.chunks_exact(2).zip(x1.chunks_exact(2));
        for (((x0, x1), (dx0, dx1)), dy) in from.zip(pairs).zip(dy).skip(whole) {
            let (mut largest, mut tap) = (x0[0], 0);
            for (at, x) in [(1, x0[1]), (2, x1[0]), (3, x1[1])] {
                let better = (x > largest) | x.is_nan();
                largest = if better { x } else { largest };
                tap = if better { at } else { tap };
            }
            let [a, b, c, d] = [0, 1, 2, 3].map(|at| chosen(*dy, tap == at));
            (dx0[0], dx0[1], dx1[0], dx1[1]) = (a, b, c, d);
        }
        dx0[used..].fill(0.0);
        dx1[used..].fill(0.0);
    }
    dx[2 * s.to[0] * width..].fill(0.0);
}

/// The gradient of one plane of a mean of two by two, none of which overlap.
#[inline(always)]
fn mean_pairs(s: &Shape, dy: &[f32], dx: &mut [f32]) {
    let width = s.from[1];
    for (dx, dy) in dx.chunks_exact_mut(2 * width).zip(dy.chunks_exact(s.to[1])) {
        let (dx0, dx1) = dx.split_at_mut(width);
        for ((dx0, dx1), dy) in dx0.chunks_exact_mut(2).zip(dx1.chunks_exact_mut(2)).zip(dy) {
            let share = dy * 0.25;
            (dx0[0], dx0[1], dx1[0], dx1[1]) = (share, share, share, share);
        }
        dx0[2 * s.to[1]..].fill(0.0);
        dx1[2 * s.to[1]..].fill(0.0);
    }
    dx[2 * s.to[0] * width..].fill(0.0);
}

wide! {
    /// The gradient of one plane of a maximum.
    pub(super) fn max(s: &Shape, x: &[f32], dy: &[f32], dx: &mut [f32], rings: &mut Rings) {
        if s.pairs() {
            return max_pairs(s, x, dy, dx);
        }
        match (runs(s), s.form.stride[1]) {
            (Some(runs), 1) => max_runs::<1>(s, &runs, x, dy, dx, rings),
            (Some(runs), 2) => max_runs::<2>(s, &runs, x, dy, dx, rings),
            (Some(runs), _) => max_runs::<3>(s, &runs, x, dy, dx, rings),
            (None, _) => max_plain(s, x, dy, dx),
        }
    }
}

/// The gradient of one plane of a maximum, window by window.
fn max_plain(s: &Shape, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    dx.fill(0.0);
    let width = s.from[1];
    for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
        let (top, bottom, _) = s.cover(0, i);
        for (j, dy) in dy.iter().enumerate() {
            let (left, right, _) = s.cover(1, j);
            let pixels = (top..bottom).flat_map(|row| row * width + left..row * width + right);
            let largest = pixels.reduce(|best, at| if x[at] > x[best] || x[at].is_nan() { at } else { best });
            if let Some(largest) = largest {
                dx[largest] += dy;
            }
        }
    }
}

wide! {
    /// The gradient of one plane of a mean.
    pub(super) fn mean(s: &Shape, dy: &[f32], dx: &mut [f32], count_padding: bool, rings: &mut Rings) {
        if s.pairs() {
            return mean_pairs(s, dy, dx);
        }
        match (runs(s), s.form.stride[1]) {
            (Some(runs), 1) => mean_runs::<1>(s, &runs, dy, dx, count_padding, rings),
            (Some(runs), 2) => mean_runs::<2>(s, &runs, dy, dx, count_padding, rings),
            (Some(runs), _) => mean_runs::<3>(s, &runs, dy, dx, count_padding, rings),
            (None, _) => mean_plain(s, dy, dx, count_padding),
        }
    }
}

/// The gradient of one plane of a mean, window by window.
fn mean_plain(s: &Shape, dy: &[f32], dx: &mut [f32], count_padding: bool) {
    dx.fill(0.0);
    for (i, dy) in dy.chunks_exact(s.to[1]).enumerate() {
        let (top, bottom, _) = s.cover(0, i);
        for (j, dy) in dy.iter().enumerate() {
            let ((left, right, _), share) = (s.cover(1, j), dy * s.share(i, j, count_padding));
            for dx in dx[top * s.from[1]..bottom * s.from[1]].chunks_exact_mut(s.from[1]) {
                dx[left..right].iter_mut().for_each(|dx| *dx += share);
            }
        }
    }
}
