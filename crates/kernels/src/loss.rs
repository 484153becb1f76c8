//! Softmax, cross-entropy, binary cross-entropy and the mean of squares, with their gradients.

use super::args::{Args, Ids};
use super::math::{ln, ln_1p_exp, sigmoid, vectors};
use super::pool::Pool;
use super::simd::{Lanes, PARTS as LANES, Sums, halves, lanes, transpose, wide};
use crate::KernelError;

/// The largest element.
#[inline(always)]
fn largest<L: Lanes>(l: L, row: &[f32]) -> f32 {
    let mut parts = [f32::NEG_INFINITY; LANES];
    if row.len() < LANES {
        return row.iter().fold(f32::NEG_INFINITY, |best, x| larger(best, *x));
    }
    let mut best = [l.splat(f32::NEG_INFINITY); 2];
    // The last vector ends where the row does, and sees some numbers twice.
    for first in (0..row.len()).step_by(LANES) {
        let first = first.min(row.len() - LANES);
        for part in (0..LANES).step_by(L::COUNT) {
            best[part / L::COUNT] = l.larger(l.load(row, first + part), best[part / L::COUNT]);
        }
    }
    for part in (0..LANES).step_by(L::COUNT) {
        l.store(best[part / L::COUNT], &mut parts, part);
    }
    halves(&parts, larger)
}

/// The larger number, the first one where the second is none.
#[inline(always)]
pub(super) fn larger(best: f32, x: f32) -> f32 {
    if x > best { x } else { best }
}

/// Vectors of a row whose exponentials are computed at once: each would wait for itself.
const ROW: usize = 4;

/// `y` becomes e^(x − shift), of itself where `x` is absent; returns the sum.
#[inline(always)]
fn exponentials<L: Lanes>(l: L, x: Option<&[f32]>, y: &mut [f32], shift: f32) -> f32 {
    let (len, minus) = (y.len(), l.splat(-shift));
    let mut sums = Sums::new(l);
    let many = len / (ROW * L::COUNT) * (ROW * L::COUNT);
    for at in (0..many).step_by(ROW * L::COUNT) {
        let mut some = [minus; ROW];
        for (v, some) in some.iter_mut().enumerate() {
            *some = l.add(l.load(x.unwrap_or(y), at + v * L::COUNT), minus);
        }
        for (v, e) in vectors::exp_below(l, some).into_iter().enumerate() {
            l.store(e, y, at + v * L::COUNT);
            sums.add(l, v * L::COUNT % LANES, e);
        }
    }
    for at in (many..len).step_by(L::COUNT) {
        let [e] = vectors::exp_below(l, [l.add(l.load_some(x.unwrap_or(y), at), minus)]);
        l.store_some(e, y, at);
        sums.add(l, at % LANES, l.load_some(y, at));
    }
    sums.total(l)
}

/// Multiplies every element.
#[inline(always)]
fn scale<L: Lanes>(l: L, row: &mut [f32], factor: f32) {
    let whole = row.len() / L::COUNT * L::COUNT;
    for at in (0..whole).step_by(L::COUNT) {
        l.store(l.mul(l.load(row, at), l.splat(factor)), row, at);
    }
    if whole < row.len() {
        l.store_some(l.mul(l.load_some(row, whole), l.splat(factor)), row, whole);
    }
}

/// `y` becomes the softmax of a row, of itself where `x` is absent; returns the row's largest element, and the sum of its
/// exponentials.
#[inline(always)]
pub(super) fn softmax_row<L: Lanes>(l: L, x: Option<&[f32]>, y: &mut [f32]) -> [f32; 2] {
    let shift = largest(l, x.unwrap_or(y));
    let sum = exponentials(l, x, y, shift);
    scale(l, y, 1.0 / sum);
    [shift, sum]
}

lanes! {
    /// The softmax of a long row.
    fn softmax_long(l; x: Option<&[f32]>, y: &mut [f32]) -> [f32; 2] {
        softmax_row(l, x, y)
    }
}

/// Σ a · b.
#[inline(always)]
pub(super) fn dot_row<L: Lanes>(l: L, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [Sums::new(l); 2];
    let whole = a.len() / (2 * LANES) * (2 * LANES);
    for first in (0..whole).step_by(2 * LANES) {
        for (half, sums) in sums.iter_mut().enumerate() {
            for part in (0..LANES).step_by(L::COUNT) {
                let at = first + half * LANES + part;
                sums.add(l, part, l.mul(l.load(a, at), l.load(b, at)));
            }
        }
    }
    for at in (whole..a.len()).step_by(L::COUNT) {
        let product = l.mul(l.load_some(a, at), l.load_some(b, at));
        sums[(at - whole) / LANES].add(l, at % LANES, product);
    }
    let [first, second] = sums;
    first.total(l) + second.total(l)
}

lanes! {
    /// Σ a · b.
    pub(super) fn dot(l; a: &[f32], b: &[f32]) -> f32 {
        dot_row(l, a, b)
    }
}

/// Classes up to which rows are computed side by side, one in each lane.
const FEW: usize = 64;

/// Vectors of short rows whose exponentials are computed at once: each would wait for itself.
const SOME: usize = 4;

/// Short rows side by side.
const SIDE: usize = SOME * LANES;

/// Up to [`SIDE`] short rows side by side: element k of row l is `[k][l]`. They begin where a line of the cache does, so that
/// no vector is in two.
#[repr(align(64))]
struct Side([[f32; SIDE]; FEW]);

/// Rows whose logarithms are taken together: of a few at a time each would wait for the one before.
const TOGETHER: usize = 4 * SIDE;

lanes! {
    /// Replaces short rows by their softmax; returns the largest element of every row, and the sum of its exponentials.
    fn softmax_side(l; rows: &mut [[f32; SIDE]]) -> [[f32; SIDE]; 2] {
        let [mut shifts, mut totals] = [[0f32; SIDE]; 2];
        for first in (0..SIDE).step_by(SOME * L::COUNT) {
            let mut best = [l.splat(f32::NEG_INFINITY); SOME];
            for row in &*rows {
                for (v, best) in best.iter_mut().enumerate() {
                    *best = l.larger(l.load(row, first + v * L::COUNT), *best);
                }
            }
            let mut sums = [l.splat(0.0); SOME];
            for row in &mut *rows {
                let mut x = best;
                for (v, x) in x.iter_mut().enumerate() {
                    *x = l.sub(l.load(row, first + v * L::COUNT), *x);
                }
                for (v, (y, sum)) in vectors::exp_below(l, x).into_iter().zip(&mut sums).enumerate() {
                    l.store(y, row, first + v * L::COUNT);
                    *sum = l.add(*sum, y);
                }
            }
            for (v, (best, sum)) in best.into_iter().zip(&mut sums).enumerate() {
                l.store(best, &mut shifts, first + v * L::COUNT);
                l.store(*sum, &mut totals, first + v * L::COUNT);
                *sum = l.div(l.splat(1.0), *sum);
            }
            for row in &mut *rows {
                for (v, factor) in sums.iter().enumerate() {
                    let at = first + v * L::COUNT;
                    l.store(l.mul(l.load(row, at), *factor), row, at);
                }
            }
        }
        [shifts, totals]
    }
}

wide! {
    /// The logarithm of every number.
    fn logarithms(numbers: &mut [f32]) {
        numbers.iter_mut().for_each(|x| *x = ln(*x));
    }
}

/// `y` becomes the softmax of up to [`SIDE`] rows, of itself where `x` is absent; returns the largest element of every
/// row, and the sum of its exponentials.
fn softmax_rows(y: &mut [f32], x: Option<&[f32]>, width: usize, side: &mut Side) -> [[f32; SIDE]; 2] {
    let rows = y.len() / width;
    if width <= FEW {
        let all = &mut side.0[..width];
        transpose(x.unwrap_or(y), width, rows, width, SIDE, all.as_flattened_mut());
        let ends = softmax_side(all);
        transpose(all.as_flattened(), SIDE, width, rows, width, y);
        return ends;
    }
    let mut ends = [[0f32; SIDE]; 2];
    for (i, row) in y.chunks_exact_mut(width).enumerate() {
        [ends[0][i], ends[1][i]] = softmax_long(x.map(|x| &x[i * width..][..width]), row);
    }
    ends
}

pub(super) fn softmax(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let width = args.call.last(0);
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    args.pool.rows(y, width, |start, y| {
        let mut side = Side([[0.0; SIDE]; FEW]);
        for (i, rows) in y.chunks_mut(SIDE * width).enumerate() {
            let from = (start + i * SIDE) * width;
            softmax_rows(rows, x.map(|x| &x[from..from + rows.len()]), width, &mut side);
        }
    });
    Ok(())
}

wide! {
    /// dx = y · (dy − s), where an absent dy lies in dx.
    fn softmax_slope(y: &[f32], dy: Option<&[f32]>, s: f32, dx: &mut [f32]) {
        match dy {
            Some(dy) => dx.iter_mut().zip(y).zip(dy).for_each(|((dx, y), dy)| *dx = y * (dy - s)),
            None => dx.iter_mut().zip(y).for_each(|(dx, y)| *dx = y * (*dx - s)),
        }
    }
}

pub(super) fn softmax_backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let width = args.call.last(0);
    let (y, dy, dx) = (args.read(0)?, args.maybe(1)?, args.write(0)?);
    args.pool.rows(dx, width, |start, dx| {
        for (i, dx) in dx.chunks_exact_mut(width).enumerate() {
            let at = (start + i) * width;
            let y = &y[at..at + width];
            let dy = dy.map(|dy| &dy[at..at + width]);
            let sum = dot(y, dy.unwrap_or(dx));
            softmax_slope(y, dy, sum, dx);
        }
    });
    Ok(())
}

wide! {
    /// Σ x in f64.
    fn total(numbers: &[f32]) -> f64 {
        let mut sums = [0f64; LANES];
        let (chunks, rest) = numbers.as_chunks::<LANES>();
        for chunk in chunks {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        sums.iter().sum::<f64>() + rest.iter().map(|x| f64::from(*x)).sum::<f64>()
    }
}

pub(super) fn cross_entropy(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let classes = args.call.last(0);
    let (x, labels) = (args.maybe(0)?, args.ids(1)?);
    labels.check(classes)?;
    let (loss, y) = (args.write(0)?, args.write(1)?);
    let scratch = args.scratch();
    if loss.len() == labels.len() {
        row_losses(args.pool, classes, x, labels, y, loss);
    } else {
        let losses = &mut scratch[..labels.len()];
        row_losses(args.pool, classes, x, labels, y, losses);
        loss[0] = mean_all(losses);
    }
    Ok(())
}

/// The mean of all elements.
pub(super) fn mean_of(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, y) = (args.read(0)?, args.write(0)?);
    y[0] = mean_all(x);
    Ok(())
}

fn mean_all(numbers: &[f32]) -> f32 {
    (total(numbers) / numbers.len() as f64) as f32
}

/// The loss of every row; `y` becomes the softmax of the rows of `x`, or of itself where there is none.
fn row_losses(
    pool: &mut Pool,
    classes: usize,
    x: Option<&[f32]>,
    labels: Ids<'_>,
    y: &mut [f32],
    losses: &mut [f32],
) {
    pool.rows2((y, classes), (losses, 1), |start, y, losses| {
        let mut side = Side([[0.0; SIDE]; FEW]);
        let mut sums = [0f32; TOGETHER];
        for (i, losses) in losses.chunks_mut(TOGETHER).enumerate() {
            let (y, sums) = (&mut y[i * TOGETHER * classes..], &mut sums[..losses.len()]);
            let rows = y.chunks_mut(SIDE * classes).zip(losses.chunks_mut(SIDE)).zip(sums.chunks_mut(SIDE));
            for (j, ((rows, losses), sums)) in rows.enumerate() {
                let rows = &mut rows[..losses.len() * classes];
                let first = start + i * TOGETHER + j * SIDE;
                let x = x.map(|x| &x[first * classes..][..rows.len()]);
                // They are in the cache afterwards; but where results take their place, they are gone.
                if x.is_none() {
                    labels.pick(first, rows, classes, losses);
                }
                let [shifts, all] = softmax_rows(rows, x, classes, &mut side);
                if let Some(x) = x {
                    labels.pick(first, x, classes, losses);
                }
                losses.iter_mut().zip(&shifts).for_each(|(loss, shift)| *loss -= shift);
                sums.copy_from_slice(&all[..sums.len()]);
            }
            logarithms(sums);
            losses.iter_mut().zip(&*sums).for_each(|(loss, sum)| *loss = sum - *loss);
        }
    });
}

pub(super) fn cross_entropy_backward(mut args: Args<'_, '_>, rows: u64) -> Result<(), KernelError> {
    let classes = args.call.last(0);
    let (p, labels, dx) = (args.maybe(0)?, args.ids(1)?, args.write(0)?);
    labels.check(classes)?;
    let factor = 1.0 / rows as f32;
    args.pool.rows(dx, classes, |start, dx| {
        let p = p.map(|p| &p[start * classes..]);
        super::elementwise::map_part(dx, p, |p| p * factor);
        for (i, row) in dx.chunks_exact_mut(classes).enumerate() {
            row[labels.at(start + i)] -= factor;
        }
    });
    Ok(())
}

/// The piece in which losses are summed, whatever the number of threads.
pub(super) const PIECE: usize = 4096;

wide! {
    /// Σ of a function of an element and its target.
    fn sum_of[F: Fn(f32, f32) -> f32](x: &[f32], t: &[f32], each: F) -> f64 {
        // A few numbers are added before they are made longer, which takes as long as the function itself.
        const SOME: usize = 4;
        let mut sums = [0f64; LANES];
        let (cx, ct) = (x.chunks_exact(SOME * LANES), t.chunks_exact(SOME * LANES));
        let rest = cx.remainder().iter().zip(ct.remainder());
        let rest: f64 = rest.map(|(x, t)| f64::from(each(*x, *t))).sum();
        for (x, t) in cx.zip(ct) {
            let mut numbers = [0f32; LANES];
            for (x, t) in x.chunks_exact(LANES).zip(t.chunks_exact(LANES)) {
                for lane in 0..LANES {
                    numbers[lane] += each(x[lane], t[lane]);
                }
            }
            sums.iter_mut().zip(&numbers).for_each(|(sum, number)| *sum += f64::from(*number));
        }
        sums.iter().sum::<f64>() + rest
    }
}

/// The mean over all elements of a function of an element and its target.
fn mean(mut args: Args<'_, '_>, each: impl Fn(f32, f32) -> f32 + Sync + Copy) -> Result<(), KernelError> {
    let (x, t) = (args.read(0)?, args.read(1)?);
    let (loss, scratch) = (args.write(0)?, args.scratch());
    let pieces = x.len().div_ceil(PIECE);
    args.pool.sums(PIECE, &mut scratch[..pieces], 1, |start, sums| {
        for (i, sum) in sums.iter_mut().enumerate() {
            let from = (start + i) * PIECE;
            let to = (from + PIECE).min(x.len());
            *sum = sum_of(&x[from..to], &t[from..to], each) as f32;
        }
    });
    let sum: f64 = scratch[..pieces].iter().map(|s| f64::from(*s)).sum();
    loss[0] = (sum / x.len() as f64) as f32;
    Ok(())
}

/// Cross-entropy behind a sigmoid: ln(1 + e^x) − x · t.
#[inline(always)]
fn binary_each(x: f32, t: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    (positive - x * t) + ln_1p_exp(x)
}

pub(super) fn binary(args: Args<'_, '_>) -> Result<(), KernelError> {
    mean(args, binary_each)
}

pub(super) fn mean_square(args: Args<'_, '_>) -> Result<(), KernelError> {
    mean(args, |x, t| (x - t) * (x - t))
}

pub(super) fn mean_square_backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, t, dx) = (args.maybe(0)?, args.read(1)?, args.write(0)?);
    let factor = 2.0 / dx.len() as f32;
    super::elementwise::zip(args.pool, dx, x, Some(t), |x, t| (x - t) * factor);
    Ok(())
}

pub(super) fn binary_backward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, t, dx) = (args.maybe(0)?, args.read(1)?, args.write(0)?);
    let factor = 1.0 / dx.len() as f32;
    super::elementwise::zip(args.pool, dx, x, Some(t), |x, t| (sigmoid(x) - t) * factor);
    Ok(())
}
