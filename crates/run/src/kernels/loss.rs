//! Softmax, cross-entropy, binary cross-entropy and the mean of squares, with their gradients.

use super::args::Args;
use super::math::{exp, sigmoid};
use super::simd::wide;

/// Partial sums of a row, so that sums are vectors too; fixed, so that every processor adds in the same order.
const LANES: usize = 16;

wide! {
    /// The largest element.
    pub(super) fn largest(row: &[f32]) -> f32 {
        let mut best = [f32::NEG_INFINITY; LANES];
        let chunks = row.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (best, x) in best.iter_mut().zip(chunk) {
                *best = if *x > *best { *x } else { *best };
            }
        }
        best.iter().chain(rest).fold(f32::NEG_INFINITY, |best, x| if *x > best { *x } else { best })
    }
}

wide! {
    /// Replaces every element by e^(x − shift) and returns the sum.
    pub(super) fn exponentials(row: &mut [f32], shift: f32) -> f32 {
        let mut sums = [0f32; LANES];
        let mut chunks = row.chunks_exact_mut(LANES);
        for chunk in &mut chunks {
            for (sum, x) in sums.iter_mut().zip(chunk) {
                *x = exp(*x - shift);
                *sum += *x;
            }
        }
        let rest: f32 = chunks.into_remainder().iter_mut().map(|x| { *x = exp(*x - shift); *x }).sum();
        sums.iter().sum::<f32>() + rest
    }
}

wide! {
    /// Σ a · b.
    pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
        let mut sums = [[0f32; LANES]; 2];
        let (ca, cb) = (a.chunks_exact(2 * LANES), b.chunks_exact(2 * LANES));
        let rest: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(a, b)| a * b).sum();
        for (a, b) in ca.zip(cb) {
            for (half, sums) in sums.iter_mut().enumerate() {
                let (a, b) = (&a[half * LANES..][..LANES], &b[half * LANES..][..LANES]);
                for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                    *sum += a * b;
                }
            }
        }
        let [first, second] = sums;
        first.iter().zip(second).map(|(a, b)| a + b).sum::<f32>() + rest
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

pub(super) fn softmax(mut args: Args<'_, '_>) -> Result<(), String> {
    let width = args.call.last(0);
    let (x, y) = (args.maybe(0)?, args.write(0)?);
    args.pool.rows(y, width, |start, y| {
        for (i, row) in y.chunks_exact_mut(width).enumerate() {
            if let Some(x) = x {
                row.copy_from_slice(&x[(start + i) * width..][..width]);
            }
            softmax_row(row);
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

pub(super) fn cross_entropy(mut args: Args<'_, '_>) -> Result<(), String> {
    let classes = args.call.last(0);
    let (x, labels) = (args.maybe(0)?, args.ids(1)?);
    labels.check(classes)?;
    let (loss, y) = (args.write(0)?, args.write(1)?);
    let scratch = args.scratch();
    let losses = &mut scratch[..labels.len()];
    args.pool.rows2((y, classes), (losses, 1), |start, y, losses| {
        for (i, (row, loss)) in y.chunks_exact_mut(classes).zip(losses).enumerate() {
            if let Some(x) = x {
                row.copy_from_slice(&x[(start + i) * classes..][..classes]);
            }
            let label = row[labels.at(start + i)];
            let shift = largest(row);
            let sum = exponentials(row, shift);
            scale(row, 1.0 / sum);
            *loss = sum.ln() - (label - shift);
        }
    });
    loss[0] = (losses.iter().map(|l| f64::from(*l)).sum::<f64>() / losses.len() as f64) as f32;
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

/// The mean over all elements of a function of an element and its target.
fn mean(mut args: Args<'_, '_>, each: impl Fn(f64, f64) -> f64 + Sync) -> Result<(), String> {
    let (x, t) = (args.read(0)?, args.read(1)?);
    let (loss, scratch) = (args.write(0)?, args.scratch());
    let pieces = x.len().div_ceil(PIECE);
    args.pool.rows(&mut scratch[..pieces], 1, |start, sums| {
        for (i, sum) in sums.iter_mut().enumerate() {
            let from = (start + i) * PIECE;
            let to = (from + PIECE).min(x.len());
            let pairs = x[from..to].iter().zip(&t[from..to]);
            *sum = pairs.map(|(x, t)| each(f64::from(*x), f64::from(*t))).sum::<f64>() as f32;
        }
    });
    let sum: f64 = scratch[..pieces].iter().map(|s| f64::from(*s)).sum();
    loss[0] = (sum / x.len() as f64) as f32;
    Ok(())
}

pub(super) fn binary(args: Args<'_, '_>) -> Result<(), String> {
    mean(args, |x, t| x.max(0.0) - x * t + (-x.abs()).exp().ln_1p())
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
