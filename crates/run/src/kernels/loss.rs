//! Softmax, cross-entropy, binary cross-entropy and the mean of squares, with their gradients.

use super::args::Args;
use super::math::{exp, ln, ln_1p_exp, sigmoid};
use super::simd::{PARTS as LANES, Sums, halves, lanes, transpose, wide};

lanes! {
    /// The largest element.
    pub(super) fn largest(l; row: &[f32]) -> f32 {
        let (mut best, mut parts) = ([l.splat(f32::NEG_INFINITY); 2], [f32::NEG_INFINITY; LANES]);
        let (whole, rest) = row.as_chunks::<LANES>();
        for chunk in whole {
            for part in (0..LANES).step_by(L::COUNT) {
                best[part / L::COUNT] = l.larger(l.load(chunk, part), best[part / L::COUNT]);
            }
        }
        for part in (0..LANES).step_by(L::COUNT) {
            l.store(best[part / L::COUNT], &mut parts, part);
        }
        parts.iter_mut().zip(rest).for_each(|(best, x)| *best = larger(*best, *x));
        halves(&parts, larger)
    }
}

/// The larger number, the first one where the second is none.
#[inline(always)]
fn larger(best: f32, x: f32) -> f32 {
    if x > best { x } else { best }
}

lanes! {
    /// Replaces every element by e^(x − shift) and returns the sum.
    pub(super) fn exponentials(l; row: &mut [f32], shift: f32) -> f32 {
        let mut sums = Sums::new(l);
        let (whole, rest) = row.as_chunks_mut::<LANES>();
        for chunk in whole {
            chunk.iter_mut().for_each(|x| *x = exp(*x - shift));
            for part in (0..LANES).step_by(L::COUNT) {
                sums.add(l, part, l.load(chunk, part));
            }
        }
        if !rest.is_empty() {
            // A whole vector of them takes as long as one.
            let mut last = [0f32; LANES];
            for part in (0..LANES).step_by(L::COUNT) {
                l.store(l.load_some(rest, part), &mut last, part);
            }
            last.iter_mut().for_each(|x| *x = exp(*x - shift));
            for part in (0..LANES).step_by(L::COUNT) {
                l.store_some(l.load(&last, part), rest, part);
                sums.add(l, part, l.load_some(&last[..rest.len()], part));
            }
        }
        sums.total(l)
    }
}

lanes! {
    /// Σ a · b.
    pub(super) fn dot(l; a: &[f32], b: &[f32]) -> f32 {
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
}

wide! {
    /// Multiplies every element.
    pub(super) fn scale(row: &mut [f32], factor: f32) {
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

/// Replaces a row by its softmax.
pub(super) fn softmax_row(row: &mut [f32]) {
    let shift = largest(row);
    let sum = exponentials(row, shift);
    scale(row, 1.0 / sum);
}

/// Classes up to which rows are computed side by side, one in each lane.
const FEW: usize = 64;

/// Up to [`LANES`] short rows side by side: element k of row l is `[k][l]`.
type Side = [[f32; LANES]; FEW];

/// Rows whose logarithms are taken together: of a few at a time each would wait for the one before.
const TOGETHER: usize = 16 * LANES;

wide! {
    /// Replaces short rows by their softmax; returns the largest element of every row, and the sum of its exponentials.
    fn softmax_side(rows: &mut [[f32; LANES]]) -> [[f32; LANES]; 2] {
        let mut shifts = [f32::NEG_INFINITY; LANES];
        for row in &*rows {
            for lane in 0..LANES {
                shifts[lane] = if row[lane] > shifts[lane] { row[lane] } else { shifts[lane] };
            }
        }
        let mut sums = [0f32; LANES];
        for row in &mut *rows {
            for lane in 0..LANES {
                row[lane] = exp(row[lane] - shifts[lane]);
            }
            for lane in 0..LANES {
                sums[lane] += row[lane];
            }
        }
        let mut factors = [1f32; LANES];
        factors.iter_mut().zip(&sums).for_each(|(factor, sum)| *factor /= sum);
        // Rows of a length that only the program knows: of rows of known length the compiler makes gathers.
        for row in rows.as_flattened_mut().chunks_mut(LANES) {
            row.iter_mut().zip(&factors).for_each(|(x, factor)| *x *= factor);
        }
        [shifts, sums]
    }
}

wide! {
    /// The logarithm of every number.
    fn logarithms(numbers: &mut [f32]) {
        numbers.iter_mut().for_each(|x| *x = ln(*x));
    }
}

/// `y` becomes the softmax of up to [`LANES`] rows, of itself where `x` is absent; returns the largest element of every
/// row, and the sum of its exponentials.
fn softmax_rows(y: &mut [f32], x: Option<&[f32]>, width: usize, side: &mut Side) -> [[f32; LANES]; 2] {
    let mut ends = [[0f32; LANES]; 2];
    let rows = y.len() / width;
    if width <= FEW {
        let all = &mut side[..width];
        transpose(x.unwrap_or(y), width, rows, width, LANES, all.as_flattened_mut());
        ends = softmax_side(all);
        transpose(all.as_flattened(), LANES, width, rows, width, y);
        return ends;
    }
    for (i, row) in y.chunks_exact_mut(width).enumerate() {
        if let Some(x) = x {
            row.copy_from_slice(&x[i * width..][..width]);
        }
        ends[0][i] = largest(row);
        ends[1][i] = exponentials(row, ends[0][i]);
        scale(row, 1.0 / ends[1][i]);
    }
    ends
}

pub(super) fn softmax(mut args: Args<'_, '_>) -> Result<(), String> {
    let width = args.call.last(0);
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    args.pool.rows(y, width, |start, y| {
        let mut side: Side = [[0.0; LANES]; FEW];
        for (i, rows) in y.chunks_mut(LANES * width).enumerate() {
            let from = (start + i * LANES) * width;
            softmax_rows(rows, x.map(|x| &x[from..from + rows.len()]), width, &mut side);
        }
    });
    Ok(())
}

wide! {
    /// dx = y · (dy − s), where an absent dy lies in dx.
    pub(super) fn softmax_slope(y: &[f32], dy: Option<&[f32]>, s: f32, dx: &mut [f32]) {
        match dy {
            Some(dy) => dx.iter_mut().zip(y).zip(dy).for_each(|((dx, y), dy)| *dx = y * (dy - s)),
            None => dx.iter_mut().zip(y).for_each(|(dx, y)| *dx = y * (*dx - s)),
        }
    }
}

pub(super) fn softmax_backward(mut args: Args<'_, '_>) -> Result<(), String> {
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

pub(super) fn cross_entropy(mut args: Args<'_, '_>) -> Result<(), String> {
    let classes = args.call.last(0);
    let (x, labels) = (args.maybe(0)?, args.ids(1)?);
    labels.check(classes)?;
    let (loss, y) = (args.write(0)?, args.write(1)?);
    let scratch = args.scratch();
    let losses = &mut scratch[..labels.len()];
    args.pool.rows2((y, classes), (losses, 1), |start, y, losses| {
        let mut side: Side = [[0.0; LANES]; FEW];
        let mut sums = [0f32; TOGETHER];
        for (i, losses) in losses.chunks_mut(TOGETHER).enumerate() {
            let (y, sums) = (&mut y[i * TOGETHER * classes..], &mut sums[..losses.len()]);
            let rows =
                y.chunks_mut(LANES * classes).zip(losses.chunks_mut(LANES)).zip(sums.chunks_mut(LANES));
            for (j, ((rows, losses), sums)) in rows.enumerate() {
                let rows = &mut rows[..losses.len() * classes];
                let first = start + i * TOGETHER + j * LANES;
                let x = x.map(|x| &x[first * classes..][..rows.len()]);
                for (row, loss) in losses.iter_mut().enumerate() {
                    *loss = x.unwrap_or(rows)[row * classes + labels.at(first + row)];
                }
                let [shifts, all] = softmax_rows(rows, x, classes, &mut side);
                losses.iter_mut().zip(&shifts).for_each(|(loss, shift)| *loss -= shift);
                sums.copy_from_slice(&all[..sums.len()]);
            }
            logarithms(sums);
            losses.iter_mut().zip(&*sums).for_each(|(loss, sum)| *loss = sum - *loss);
        }
    });
    loss[0] = (total(losses) / losses.len() as f64) as f32;
    Ok(())
}

pub(super) fn cross_entropy_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let classes = args.call.last(0);
    let (p, labels, dx) = (args.maybe(0)?, args.ids(1)?, args.write(0)?);
    labels.check(classes)?;
    let factor = 1.0 / labels.len() as f32;
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
fn mean(mut args: Args<'_, '_>, each: impl Fn(f32, f32) -> f32 + Sync + Copy) -> Result<(), String> {
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

pub(super) fn binary(args: Args<'_, '_>) -> Result<(), String> {
    mean(args, binary_each)
}

pub(super) fn mean_square(args: Args<'_, '_>) -> Result<(), String> {
    mean(args, |x, t| (x - t) * (x - t))
}

pub(super) fn mean_square_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, t, dx) = (args.maybe(0)?, args.read(1)?, args.write(0)?);
    let factor = 2.0 / dx.len() as f32;
    super::elementwise::zip(args.pool, dx, x, Some(t), |x, t| (x - t) * factor);
    Ok(())
}

pub(super) fn binary_backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (x, t, dx) = (args.maybe(0)?, args.read(1)?, args.write(0)?);
    let factor = 1.0 / dx.len() as f32;
    super::elementwise::zip(args.pool, dx, x, Some(t), |x, t| (sigmoid(x) - t) * factor);
    Ok(())
}
