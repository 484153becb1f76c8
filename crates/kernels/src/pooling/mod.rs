//! Pooling: the largest or the mean of every window, of every channel, and their gradients.

mod back;
mod flat;
mod pairs;
mod rows;
mod side_by_side;
mod spread;
mod two;
mod whole;
mod wide_strides;

use crate::KernelError;
use tiercel_workload::graph::{Pool as Form, PoolKind};

use super::args::{Args, Call};
use super::simd::{Lanes, Maxima, lanes};
use flat::Flat;
use rows::{Aligned, Fold, Larger, Plus, ROW, Row, Runs, by_window, next};
use side_by_side::{AREA, Beside};
use two::Halves;

/// A pooling of planes.
#[derive(Clone, Copy, Debug)]
struct Shape {
    form: Form,
    /// Rows and columns before and after.
    from: [usize; 2],
    to: [usize; 2],
}

impl Shape {
    /// The rows or columns of the image that window `i` covers on an axis, and how many it covers with padding.
    #[inline]
    fn cover(&self, axis: usize, i: usize) -> (usize, usize, usize) {
        let start = i * self.form.stride[axis] as usize;
        let (before, after) = (self.form.padding[axis] as usize, self.form.padding[axis + 2] as usize);
        let end = (start + self.form.window[axis] as usize).min(self.from[axis] + before + after);
        let inside = |at: usize| at.saturating_sub(before).min(self.from[axis]);
        (inside(start), inside(end), end - start)
    }
}

fn shape(call: &Call, form: Form) -> Shape {
    let (x, y) = match call.inputs.len() {
        // The gradient of a mean sees neither operand nor result, but their gradients.
        1 if matches!(call.op, tiercel_workload::graph::Op::PoolBackward(_)) => {
            (call.outputs[0], call.inputs[0])
        }
        2 => (call.inputs[0], call.inputs[1]),
        _ => (call.inputs[0], call.outputs[0]),
    };
    let ends = |form: super::args::Form| [form.shape.dim(2) as usize, form.shape.dim(3) as usize];
    Shape { form, from: ends(x), to: ends(y) }
}

impl Shape {
    /// Whether windows are two by two, do not overlap, and leave no pixel over.
    fn pairs(&self) -> bool {
        let Form { window, stride, padding, .. } = self.form;
        let whole = (0..2).all(|axis| 2 * self.to[axis] == self.from[axis]);
        window == [2; 2] && stride == [2; 2] && padding == [0; 4] && whole
    }

    /// The windows as neighbours, where there is a loop for them.
    fn maxima(&self) -> Option<Maxima> {
        let Form { window, stride, padding, .. } = self.form;
        let [top, left, ..] = padding.map(|n| n as usize);
        let maxima = Maxima { from: self.from, to: self.to, before: [top, left], window: window[0] as usize };
        (window[0] == window[1] && stride == [1; 2] && maxima.applies()).then_some(maxima)
    }

    /// One over what the mean of window `i` counts on an axis.
    fn share(&self, axis: usize, i: usize, count_padding: bool) -> f32 {
        let (low, high, all) = self.cover(axis, i);
        1.0 / (if count_padding { all } else { high - low }).max(1) as f32
    }
}

/// What the mean of a window is its sum times, by its row and by its column; aligned as [`Aligned`] says.
#[repr(align(64))]
struct Shares {
    rows: Row,
    columns: Row,
}

impl Shares {
    /// Those of windows that fit a row either way, of planes one by one or side by side.
    fn new(s: &Shape, beside: Option<&Beside>, count_padding: bool) -> Shares {
        let mut shares = Shares { rows: [0.0; ROW], columns: [0.0; ROW] };
        let periods = [ROW, beside.map_or(ROW, Beside::windows)];
        for (axis, all) in [&mut shares.rows, &mut shares.columns].into_iter().enumerate() {
            for some in all.chunks_mut(periods[axis]) {
                some.iter_mut()
                    .take(s.to[axis])
                    .enumerate()
                    .for_each(|(i, share)| *share = s.share(axis, i, count_padding));
            }
        }
        shares
    }
}

/// Combines the rows of windows and then their columns: one plane of results.
#[inline(always)]
fn plane<L: Lanes, F: Fold, const T: usize, const W: usize>(
    l: L,
    (s, runs, shares): (&Shape, &Runs, Option<&Shares>),
    x: &[f32],
    y: &mut [f32],
    rows: &mut [Row; 2],
) {
    for i in 0..=s.to[0] {
        // What was just written cannot be read at once, so columns are combined after the next row is laid out.
        if i < s.to[0] {
            let (top, bottom, _) = s.cover(0, i);
            runs.split::<L, F, T>(l, &x[top * runs.width..bottom * runs.width], &mut rows[i % 2]);
        }
        let Some(last) = i.checked_sub(1) else { continue };
        let (row, y) = (&rows[last % 2], &mut y[last * runs.to..][..runs.to]);
        let share = shares.map(|shares| (l.splat(shares.rows[last]), &shares.columns));
        for at in (0..runs.to).step_by(L::COUNT) {
            let mut all = l.load(row, at);
            for b in 1..runs.columns::<W>() {
                all = F::fold(l, all, l.load(row, runs.tap::<T>(b) + at));
            }
            if let Some((share, columns)) = share {
                all = l.mul(l.mul(all, share), l.load(columns, at));
            }
            l.store_some(all, y, at);
        }
    }
}

/// Ways to one plane of results for some windows; one stays where it is made.
#[allow(clippy::large_enum_variant)]
enum Way<L: Lanes> {
    Flat(Flat),
    Two(Halves<L>),
    Any,
}

/// Some planes of results, one by one.
#[inline(always)]
fn each<L: Lanes, F: Fold>(
    l: L,
    (s, runs, shares): (&Shape, &Runs, Option<&Shares>),
    x: &[f32],
    y: &mut [f32],
    (way, rows): (&mut Way<L>, &mut [Row; 2]),
) {
    let [from, to] = [s.from, s.to].map(|[rows, columns]| rows * columns);
    let (mut number, count) = (0, y.len() / to);
    while number < count {
        let (all_x, all_y) = ((x, number * from), (&mut *y, number * to));
        let (some, done) = match (&mut *way, s.form.window[1], s.form.padding[1]) {
            (Way::Flat(flat), 3, _) => {
                flat.planes::<L, F, 3>(l, shares, (number, count - number), (x, y), s.to[0])
            }
            (Way::Flat(flat), _, _) => {
                flat.planes::<L, F, 5>(l, shares, (number, count - number), (x, y), s.to[0])
            }
            (Way::Two(halves), ..) if shares.is_none() && two::halved::<L>(s) => {
                (1, halves.rows_of_two(s, all_x, all_y))
            }
            (Way::Two(halves), _, 0) => (1, halves.plane::<F, 0>(s, shares, all_x, all_y)),
            (Way::Two(halves), _, _) => (1, halves.plane::<F, 1>(s, shares, all_x, all_y)),
            (Way::Any, ..) => (1, false),
        };
        for number in number..if done { number } else { number + some } {
            let (x, y) = (&x[number * from..][..from], &mut y[number * to..][..to]);
            by_window!(s, plane::<L, F>(l, (s, runs, shares), x, y, rows));
        }
        number += some;
    }
}

/// Planes of results, one by one or side by side.
#[inline(always)]
fn planes<L: Lanes, F: Fold>(
    l: L,
    (s, runs, beside): (&Shape, &Runs, Option<&Beside>),
    shares: Option<&Shares>,
    x: &[f32],
    y: &mut [f32],
) {
    let Aligned(rows) = &mut Aligned([[F::OUTSIDE; ROW]; 2]);
    let (one, one_runs) = beside.map_or((s, runs), |beside| (&beside.shape, &beside.runs));
    let mut way = match beside {
        None if flat::applies(one) => Way::Flat(Flat::new::<F>(one, shares)),
        _ if two::applies(one) => Way::Two(Halves::new(l, one.from[1])),
        _ => Way::Any,
    };
    let how = (one, one_runs, shares);
    let mut wide = Aligned([[F::OUTSIDE; AREA]; 2]);
    let [images, results] = &mut wide.0;
    let [from, to] = beside.map_or([x.len(), y.len()].map(|all| all.max(1)), Beside::counts);
    for (x, y) in x.chunks(from).zip(y.chunks_mut(to)) {
        let (from, to) = match beside {
            None => (x, &mut *y),
            Some(beside) => {
                let [image, windows] = beside.areas();
                beside.put_images(x, &mut images[..image]);
                next(x);
                next(y);
                (&images[..image], &mut results[..windows])
            }
        };
        each::<L, F>(l, how, from, to, (&mut way, rows));
        if let Some(beside) = beside {
            beside.take_windows(&results[..beside.areas()[1]], y);
        }
    }
}

lanes! {
    /// The largest of every window of some planes.
    fn largest(l; s: &Shape, runs: &Runs, beside: Option<&Beside>, x: &[f32], y: &mut [f32]) {
        planes::<L, Larger>(l, (s, runs, beside), None, x, y);
    }
}

lanes! {
    /// The mean of every window of some planes.
    fn mean(l; s: &Shape, runs: &Runs, beside: Option<&Beside>, shares: &Shares, x: &[f32], y: &mut [f32]) {
        planes::<L, Plus>(l, (s, runs, beside), Some(shares), x, y);
    }
}

lanes! {
    /// The largest of every window of two by two; of planes without a pixel left over.
    fn largest_pairs(l; width: usize, x: &[f32], y: &mut [f32]) {
        pairs::forward::<L, Larger>(l, width, 1.0, x, y);
    }
}

lanes! {
    /// Their mean.
    fn mean_pairs(l; width: usize, x: &[f32], y: &mut [f32]) {
        pairs::forward::<L, Plus>(l, width, 0.25, x, y);
    }
}

lanes! {
    /// The gradient of the largest of every window of two by two.
    fn slope_pairs(l; width: usize, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        pairs::backward(l, width, x, dy, dx);
    }
}

lanes! {
    /// The gradient of the mean of every window of two by two.
    fn spread_pairs(l; width: usize, dy: &[f32], dx: &mut [f32]) {
        pairs::spread(l, width, dy, dx);
    }
}

/// Combines all pixels of every window, one after the other.
fn plain(s: &Shape, x: &[f32], y: &mut [f32], begin: f32, f: impl Fn(f32, f32) -> f32) {
    for (x, y) in x.chunks_exact(s.from[0] * s.from[1]).zip(y.chunks_exact_mut(s.to[0] * s.to[1])) {
        for (at, y) in y.iter_mut().enumerate() {
            let ((top, bottom, _), (left, right, _)) = (s.cover(0, at / s.to[1]), s.cover(1, at % s.to[1]));
            let rows = x[top * s.from[1]..bottom * s.from[1]].chunks_exact(s.from[1]);
            *y = rows.flat_map(|x| &x[left..right]).fold(begin, |y, x| f(y, *x));
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>, form: Form) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let s = shape(args.call, form);
    let (from, to, runs) = (s.from[0] * s.from[1], s.to[0] * s.to[1], Runs::new(&s));
    let beside = Beside::new(&s).filter(|_| !flat::applies(&s));
    let beside = beside.as_ref();
    args.pool.rows(y, to, |start, y| {
        let x = &x[start * from..][..y.len() / to * from];
        match (form.kind, runs) {
            (PoolKind::Max, _) if s.pairs() => largest_pairs(s.from[1], x, y),
            (PoolKind::Average { .. }, _) if s.pairs() => mean_pairs(s.from[1], x, y),
            (PoolKind::Max, Some(runs)) => largest(&s, &runs, beside, x, y),
            (PoolKind::Average { count_padding }, Some(runs)) => {
                mean(&s, &runs, beside, &Shares::new(&s, beside, count_padding), x, y);
            }
            (PoolKind::Max, None) => {
                // A NaN stays.
                plain(&s, x, y, f32::NEG_INFINITY, |best, x| if x > best || x.is_nan() { x } else { best });
            }
            (PoolKind::Average { count_padding }, None) => {
                plain(&s, x, y, 0.0, |sum, x| sum + x);
                let share = |i: usize, j: usize| s.share(0, i, count_padding) * s.share(1, j, count_padding);
                y.iter_mut()
                    .enumerate()
                    .for_each(|(at, y)| *y *= share(at / s.to[1] % s.to[0], at % s.to[1]));
            }
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, form: Form) -> Result<(), KernelError> {
    let s = shape(args.call, form);
    let (x, dy) = match form.kind {
        PoolKind::Max => (args.read(0)?, args.read(1)?),
        PoolKind::Average { .. } => (&[][..], args.read(0)?),
    };
    let dx = args.write(0)?;
    let (from, to, runs) = (s.from[0] * s.from[1], s.to[0] * s.to[1], Runs::new(&s));
    let beside = Beside::new(&s).filter(|_| !flat::applies(&s));
    let beside = beside.as_ref();
    args.pool.rows(dx, from, |start, dx| {
        let dy = &dy[start * to..][..dx.len() / from * to];
        let x = if x.is_empty() { x } else { &x[start * from..][..dx.len()] };
        if let (PoolKind::Max, Some(maxima)) = (form.kind, s.maxima()) {
            return back::max_straight(&s, maxima, x, dy, dx);
        }
        match (form.kind, runs) {
            (PoolKind::Max, _) if s.pairs() => slope_pairs(s.from[1], x, dy, dx),
            (PoolKind::Average { .. }, _) if s.pairs() => spread_pairs(s.from[1], dy, dx),
            (PoolKind::Max, Some(runs)) => back::max(&s, &runs, beside, x, dy, dx),
            (PoolKind::Average { count_padding }, Some(runs)) => {
                back::mean(&s, &runs, beside, &Shares::new(&s, beside, count_padding), dy, dx);
            }
            (PoolKind::Max, None) => back::max_plain(&s, x, dy, dx),
            (PoolKind::Average { count_padding }, None) => back::mean_plain(&s, count_padding, dy, dx),
        }
    });
    Ok(())
}

pub(super) fn global(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    let plane = x.len() / y.len();
    args.pool.sums(plane, y, 1, |start, y| whole::means(plane, &x[start * plane..][..y.len() * plane], y));
    Ok(())
}

pub(super) fn global_backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (dy, dx) = (args.read(0)?, args.write(0)?);
    let plane = dx.len() / dy.len();
    let share = 1.0 / plane as f32;
    args.pool.rows(dx, plane, |start, dx| {
        dx.chunks_exact_mut(plane).enumerate().for_each(|(i, dx)| dx.fill(dy[start + i] * share));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::back::tests::neighbours;
    use super::*;

    /// A pixel: many are equal, and few are no numbers or less than all.
    fn pixel(random: &mut fastrand::Rng) -> f32 {
        match random.usize(..4000) {
            0 => f32::NAN,
            1..20 => f32::NEG_INFINITY,
            _ => random.i8(-3..3) as f32,
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a == b || (a - b).abs() < 1e-5 || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn neighbouring_windows_are_as_good_as_single_ones() {
        let (mut random, mut tried) = (fastrand::Rng::with_seed(23), 0);
        for _ in 0..300 {
            let Some(s) = neighbours([14, 90], &mut random) else { continue };
            let (from, to) = (s.from, s.to);
            let Some(runs) = Runs::new(&s) else { continue };
            tried += 1;
            let planes = random.usize(1..4);
            let x: Vec<f32> = (0..planes * from[0] * from[1]).map(|_| pixel(&mut random)).collect();
            let [mut y, mut expected] =
                [vec![1f32; planes * to[0] * to[1]], vec![0f32; planes * to[0] * to[1]]];
            let better = |best: f32, x: f32| if x > best || x.is_nan() { x } else { best };
            largest(&s, &runs, None, &x, &mut y);
            plain(&s, &x, &mut expected, f32::NEG_INFINITY, better);
            assert!(y.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "largest of {s:?}");
            let count_padding = random.bool();
            mean(&s, &runs, None, &Shares::new(&s, None, count_padding), &x, &mut y);
            plain(&s, &x, &mut expected, 0.0, |sum, x| sum + x);
            for (at, (y, sum)) in y.iter().zip(expected).enumerate() {
                let [i, j] = [at / to[1] % to[0], at % to[1]];
                let share = s.share(0, i, count_padding) * s.share(1, j, count_padding);
                assert!(same(*y, sum * share), "mean of {s:?}");
            }
        }
        assert!(tried > 100, "{tried} shapes");
    }
}
